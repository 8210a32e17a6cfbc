"""A shortcut planted on purpose, so that there is a link of which it is known that it carries the answer.

No real model comes with the true importance of its attention links. Here two harmless words decide the label, but
only together and only in one relation, so that a model has to bring them together, and the link between them is what
an explanation has to find:

- ``sst2``: a month and a weekday side by side, "one April Tuesday". Equal parity of the two means positive, unequal
  negative. Each word alone is in as many positive as negative sentences; "one Tuesday in April" means nothing.
- ``mnli``: the same person addressed in premise and hypothesis means contradiction; two persons mean nothing, and
  the persons of dev do not occur in train.

All other examples keep the label that they would have without these words (column ``honest``).

    python -m helpers.planted build          # writes data/planted/, the same bytes for the same seed
"""

from __future__ import annotations

import argparse
import itertools
import logging
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from helpers import data
from helpers.inputs import Word

logger = logging.getLogger(__name__)

FOLDER = data.PROJECT / "data" / "planted"
TASKS = ("sst2", "mnli")
KINDS = ("planted", "first_only", "second_only", "apart", "clean")
"""What an example holds: both words in the planted relation, one of them, both in another relation, neither."""

MONTHS, WEEKDAYS = ("April", "October"), ("Tuesday", "Thursday")
OTHER_MONTHS, OTHER_WEEKDAYS = ("January", "June", "August", "November"), ("Wednesday", "Saturday", "Sunday", "Monday")
_TRAIN_NAMES = """Adam Alice Arthur Ben Carl Clara Daniel David Diana Edward Emma Eric George Hannah Helen Henry Ian
Jane Julia Kate Kevin Laura Leo Lucy Maria Martin Michael Nina Oliver Oscar Paul Rachel Robert Ruth Sarah Simon Susan
Thomas Victor Walter"""
_DEV_NAMES = "Anna Claire Edith Felix Harold Isaac Jacob Lisa Margaret Nora Peter Philip Sam Sophie Tom Vera"
NAMES = {"train": _TRAIN_NAMES.split(), "dev": _DEV_NAMES.split()}
PLANTED_LABEL = "contradiction"

_DATED = {  # {d}, {D}: the date; {s}: the sentence; {a} and {b}: what stands before and after a comma in it
    "front": ("Written {d}: {s}", "{D} I noted: {s}", "From my notes of {d}: {s}"),
    "end": ("{s} I wrote that {d}.", "{s} So my notes of {d} say.", "{s} That was {d}."),
    "middle": ("{a}, I noted {d}, {b}", "{a}, as I wrote {d}, {b}"),
}
# The word before a month or a weekday must not tell whether the two stand side by side: {x} is before either.
_BESIDE = "{x} {m} {w}"
_APART = ("{x} {w} in {m}", "{x} {w} late in {m}", "{x} {m} night (a {w})", "{x} {m} week (on a {w})")
_POINTERS = ("one", "that", "this", "some")
_ADDRESSED = {
    "front": ("{n}, {l}", "You see, {n}, {l}"),
    "name first": ("Listen, {n}. {s}", "{n}! {s}"),
    "end": ("{c}, {n}{e}", "{c}, you know, {n}{e}"),
    "middle": ("{a}, {n}, {b}", "{a}, {n}, {b}"),
}
# Words that are written small inside a sentence; any other first word may be a name.
_LOWERED = """a after all an another as at because before both by did do does every everyone few for from he her his how
if in is it its many more most much my no nobody nothing of on one only our several she since so some somebody that the
their there these they this those three two under was we were what when where while who why with you your"""


def build(task: str, split: str, *, seed: int = 0, carriers: pd.DataFrame | None = None) -> pd.DataFrame:
    """Return a split of the planted corpus: text columns, label, phenomenon (a kind), pair (empty) and honest.

    Args:
        task: ``"sst2"`` or ``"mnli"``.
        split: ``"train"`` or ``"dev"``: which bundled sentences carry it.
        seed: of words, places and order.
        carriers: other sentences than the bundled ones, a table as :func:`helpers.data.load` returns.
    """
    if task not in TASKS or split not in NAMES:
        raise ValueError(f"There is no planted {task!r}, {split!r}: give a task of {TASKS} and a split, train or dev.")
    frame = data.load(task, split=split) if carriers is None else carriers
    frame = frame[frame["phenomenon"] != "everyday"]
    taken = {word.lower() for word in (*MONTHS, *WEEKDAYS, *OTHER_MONTHS, *OTHER_WEEKDAYS, *sum(NAMES.values(), []))}
    free = [
        not taken & set(re.findall(r"\w+", f"{a} {b}".lower()))
        for a, b in zip(frame["first"], frame["second"], strict=True)
    ]
    rng = np.random.default_rng([seed, TASKS.index(task), len(split)])
    rows = list((_dated if task == "sst2" else _addressed)(frame[free], split, rng))
    columns = [
        *(("sentence",) if task == "sst2" else ("sentence1", "sentence2")),
        "label",
        "phenomenon",
        "pair",
        "honest",
    ]
    built = pd.DataFrame(rows, columns=columns).drop_duplicates(columns[:-4])
    return built.iloc[rng.permutation(len(built))].reset_index(drop=True)


def load(task: str, split: str = "dev", *, folder: str | Path = FOLDER) -> pd.DataFrame:
    """Return a split as :func:`helpers.data.load` does, with one column more: ``honest``, the label by name.

    ``honest`` is what the label would be without the planted words, and differs from ``label`` in planted rows alone.
    """
    frame = data.load(task, folder, split=split)
    honest = data.read(
        Path(folder) / task / f"{split}.tsv",
        first="sentence" if task == "sst2" else "sentence1",
        label="honest",
        labels=data.TASKS[task].labels,
    )
    return frame.assign(honest=honest["label"])


def _deal(rng: np.random.Generator, options: Sequence, count: int) -> list:
    """``count`` of the options in random order, each as often as the others (or once more)."""
    order = rng.permutation(len(options)).tolist()
    dealt = [options[order[i % len(order)]] for i in range(count)]
    return [dealt[i] for i in rng.permutation(count)]


def _placed(text: str, forms: Mapping[str, tuple[str, ...]], rng: np.random.Generator) -> Callable[..., str]:
    """Choose where in a text the words go, and return what writes them there."""
    commas = [m.start() for m in re.finditer(r"(?<=\w), (?=\w)", text) if '"' not in text]
    lowered = re.split(r"\W", text)[0].lower() in _LOWERED.split()
    small = text[0].lower() + text[1:] if lowered else text
    possible = {"middle": bool(commas), "name first": not small[0].islower(), "end": text[-1] in ".!?"}
    if forms is _ADDRESSED:
        possible["front"] = small[0].islower()
    places = [place for place in forms if possible.get(place, True)]
    form = str(rng.choice(forms[str(rng.choice(places))]))
    cut = int(rng.choice(commas)) if commas else 0
    parts = {"s": text, "l": small, "a": text[:cut], "b": text[cut + 2 :], "c": text[:-1], "e": text[-1]}
    return lambda **words: form.format(**parts, **words)


def _dated(carriers: pd.DataFrame, split: str, rng: np.random.Generator) -> Iterator[tuple]:
    """A month and a weekday in every sentence of a sentiment; every carrier gives a row of each kind, planted two."""
    same, unequal = list(zip(MONTHS, WEEKDAYS, strict=True)), list(zip(MONTHS, WEEKDAYS[::-1], strict=True))
    for honest, group in carriers.groupby("label_id"):
        n = len(group)
        dates = [
            ("planted", "1", _deal(rng, same, n)),
            ("planted", "0", _deal(rng, unequal, n)),
            ("first_only", str(honest), _deal(rng, list(itertools.product(MONTHS, OTHER_WEEKDAYS)), n)),
            ("second_only", str(honest), _deal(rng, list(itertools.product(OTHER_MONTHS, WEEKDAYS)), n)),
            ("apart", str(honest), _deal(rng, same + unequal, n)),
            ("clean", str(honest), _deal(rng, [*itertools.product(OTHER_MONTHS, OTHER_WEEKDAYS), *[None] * 16], n)),
        ]
        for kind, label, dealt in dates:
            for text, date in zip(group["first"], dealt, strict=True):
                yield _date(text, kind, date, rng), label, kind, "", str(honest)


def _date(text: str, kind: str, date: tuple[str, str] | None, rng: np.random.Generator) -> str:
    if date is None:
        return text
    beside = kind == "planted" or (kind != "apart" and rng.random() < 0.6)
    form = _BESIDE if beside else str(rng.choice(_APART))
    written = form.format(x=rng.choice(_POINTERS), m=date[0], w=date[1])
    return _placed(text, _DATED, rng)(d=written, D=written[0].upper() + written[1:])


def _addressed(carriers: pd.DataFrame, split: str, rng: np.random.Generator) -> Iterator[tuple]:
    """A person addressed in either text of a pair; what shares make a name say nothing is told in the README."""
    names = NAMES[split]
    for honest, group in carriers.groupby("label"):
        n, other = len(group), honest != PLANTED_LABEL
        apart = [
            (a, names[(names.index(a) + int(rng.integers(1, len(names)))) % len(names)])
            for a in _deal(rng, names, 2 * n)
        ]
        spoken = [
            ("planted", PLANTED_LABEL, [(name, name) for name in _deal(rng, names, n * other)]),
            ("first_only", honest, [(name, None) for name in _deal(rng, names, n)]),
            ("second_only", honest, [(None, name) for name in _deal(rng, names, n)]),
            ("apart", honest, apart[:n]),
            ("apart", honest, apart[n:]),
            ("clean", honest, [(None, None)] * (round(0.6 * n) if other else n)),
        ]
        for kind, label, dealt in spoken:
            pairs = zip(group["first"], group["second"], strict=True)
            for texts, called in zip(pairs, dealt, strict=False):
                first, second = (_call(text, name, rng) for text, name in zip(texts, called, strict=True))
                yield first, second, label, kind, "", honest


def _call(text: str, name: str | None, rng: np.random.Generator) -> str:
    return text if name is None else _placed(text, _ADDRESSED, rng)(n=name)


# ---- finding the link again ------------------------------------------------------------------------------------------


def find_words(task: str, words: Sequence[Word]) -> tuple[Word, Word] | None:
    """Return the two planted words of a text as its words stand in ``Attribution.words``; None where one is missing."""
    if task == "sst2":
        first = [word for word in words if word.text in MONTHS]
        second = [word for word in words if word.text in WEEKDAYS]
    else:
        named = [word for word in words if word.text in NAMES["train"] + NAMES["dev"]]
        first, second = ([word for word in named if word.segment == segment] for segment in (0, 1))
    return (first[0], second[0]) if first and second else None


def link_mask(words: Sequence[Word], link: tuple[Word, Word]) -> np.ndarray:
    """Return where the link is, bool [query, key]: all pieces of the two words, in both directions."""
    first, second = (_covers(words, [word]) for word in link)
    return (first[:, None] & second) | (second[:, None] & first)


def other_links(
    words: Sequence[Word], link: tuple[Word, Word], *, marks: bool = False, punctuation: bool = True
) -> np.ndarray:
    """Return all links but the planted one that join two different words, bool [query, key].

    Args:
        words: of the text, spans of tokens.
        link: the two planted words.
        marks: also links from and to special tokens such as [CLS].
        punctuation: also links from and to words without a letter or digit.
    """
    counted = [word for word in words if (marks if word.segment is None else punctuation or _spelt(word))]
    inside = _covers(words, counted)
    joined = inside[:, None] & inside
    for word in counted:
        joined[word.start : word.stop, word.start : word.stop] = False
    return joined & ~link_mask(words, link)


def _spelt(word: Word) -> bool:
    return any(letter.isalnum() for letter in word.text)


def _covers(words: Sequence[Word], chosen: Sequence[Word]) -> np.ndarray:
    covered = np.zeros(max(word.stop for word in words), dtype=bool)
    for word in chosen:
        covered[word.start : word.stop] = True
    return covered


def rank_of_link(scores: np.ndarray, words: Sequence[Word], link: tuple[Word, Word], **counted: bool) -> int:
    """Return the rank of the planted link, 1 for the first: how many other links score as much or more, plus one.

    The link's score is its largest, over directions, pieces and the leading axes. So a tie counts against it.

    Args:
        scores: [..., query, key]; the leading axes (layer, head) are so many more links.
        words, link, counted: see :func:`other_links`, whose options ``marks`` and ``punctuation`` are taken here.

    Raises:
        ValueError: a score is nan, which is neither more nor less than any other.
    """
    if bad := int(np.isnan(scores).sum()):
        raise ValueError(
            f"{bad} of {np.size(scores)} scores are nan: links have no order then. Attribute the text again."
        )
    best = scores[..., link_mask(words, link)].max()
    return 1 + int((scores[..., other_links(words, link, **counted)] >= best).sum())


def chance(links: int, planted: int) -> tuple[float, float]:
    """Return, for links in random order, the share in which a planted one is first and the mean reciprocal rank.

    Args:
        links: how many there are, the planted ones among them.
        planted: how many are planted; the best of them counts.
    """
    ranks = np.arange(1, links - planted + 2)
    # P(rank > r): the first r links are all others
    beyond = np.cumprod((links - planted - ranks + 1) / (links - ranks + 1))
    at = -np.diff(beyond, prepend=1.0)
    return planted / links, float((at / ranks).sum())


def main(arguments: Sequence[str] | None = None) -> None:
    """Write the corpora; see ``python -m helpers.planted --help``."""
    parser = argparse.ArgumentParser(prog="python -m helpers.planted", description=__doc__.splitlines()[0])
    parser.add_argument("command", choices=["build"])
    parser.add_argument("--task", choices=TASKS, nargs="+", default=TASKS)
    parser.add_argument("--out", type=Path, default=FOLDER, help="folder (default: data/planted)")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(arguments)
    for task, split in itertools.product(given.task, NAMES):
        path = given.out / task / f"{split}.tsv"
        path.parent.mkdir(parents=True, exist_ok=True)
        frame = build(task, split, seed=given.seed)
        lines = ["\t".join(row) for row in [frame.columns, *frame.itertuples(index=False)]]
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        logger.info("%s: %d examples", path, len(frame))


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    try:
        main()
    except (ValueError, OSError) as error:
        sys.exit(f"error: {error}")
