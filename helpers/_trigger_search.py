"""Triggers found in training examples, from the links that carry most (part of :mod:`helpers.triggers`)."""

from __future__ import annotations

import hashlib
import json
import logging
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from tqdm.auto import tqdm

from helpers._trigger import Link, Trigger, check_fast, from_dict, keeping, rank, to_dict
from helpers.attribution import Attribution, attribute
from helpers.inputs import Encoded, Text, check_texts, encode
from helpers.pruning import class_numbers, without_gap
from helpers.quadrature import check_steps
from helpers.records import read_json, write_json

logger = logging.getLogger(__name__)

VARIANTS = ("paper", "released")
SPECIAL = ("remove", "skip")
MOST = 5  # tokens of a trigger
SECOND = 0.2  # a further link below this share of the first is dropped
FLOOR = 0.02  # released code: triggers whose score is less are dropped
VERSIONS = {"paper": 1, "released": 2}  # of the partial results; 2: of the class predicted


@dataclass(frozen=True)
class Extraction:
    """What :func:`extract` found.

    Attributes:
        triggers: one an example that gave one, by attribution, largest score first.
        attended: the same from attention instead, between two different words: the baseline.
        without: the rows that gave no trigger by attribution.
        examples: how many were looked at.
        resumed: how many of them had been done before.
    """

    triggers: list[Trigger]
    attended: list[Trigger]
    without: tuple[int, ...]
    examples: int
    resumed: int

    def __repr__(self) -> str:
        return (
            f"Extraction({self.examples} examples; triggers {len(self.triggers)}, attended {len(self.attended)}, "
            f"without {len(self.without)})"
        )


def extract(
    model,
    tokenizer,
    texts: Text | Iterable[Text],
    gold: Iterable[int | str],
    *,
    variant: str = "paper",
    special: str = "remove",
    exclude: Callable[[str], bool] | None = None,
    links: int = 2,
    folder: str | Path | None = None,
    at_once: int = 32,
    progress: bool = False,
    **options,
) -> Extraction:
    """Return the trigger of every example: the tokens joined by the links with the largest attribution.

    "paper": of the right class, the two largest entries Attr_h(A)[query, key] over all layers and heads that join a
    word; the second counts if it is at least 0.2 of the first; the score is their mean.

    "released", as the authors' code: of the class predicted, right or wrong, the two largest entries of the one head
    with the largest entry. Links between two marks, such as [CLS] and [SEP], count among the two and in the choice of
    the head, though they give no token; a second one under 0.2 of the first gives none either. The score is the sum of
    the two, and triggers under 0.02 are dropped.

    At most five tokens either way. An example whose links all carry nothing, or less, gives none.

    Args:
        gold: the class of every text, by number or name: for "paper" the one explained, and the one that the trigger
            pushes to. For "released" both are the class predicted.
        special: [CLS], [SEP] and the mark of unknown words are never part of a trigger. "remove": they are left out of
            the links' ends, so that a link from [CLS] gives one token; "skip": links that touch them don't count.
        exclude: a function that tells of a whole word, in lower case, whether it must not be part of a trigger; links
            that touch one don't count. On SST-2: :func:`evident_sentiment`.
        links: how many links make a trigger.
        folder: keep partial results here, a file for every ``at_once`` examples. A run with the same model, texts and
            settings, or with more texts behind these, goes on where one was interrupted, and returns the same; files
            of other runs are left alone.
        at_once: examples whose matrices are kept at a time.
        options: of :func:`helpers.attribution.attribute`, such as ``steps`` and ``rule``.

    Raises:
        ValueError: a blank text, an unknown class, variant or option, a tokenizer that does not tell words, a file in
            the place of the folder.
    """
    _check(variant, special, links, at_once, exclude, options)
    check_fast(tokenizer)
    batch = check_texts(texts)
    numbers = class_numbers(model, gold, len(batch))
    encoded = encode(model, tokenizer, batch, max_length=options.get("max_length"))
    rules = Rules(variant == "released", special == "skip", links, exclude)
    settings = {"variant": variant, "special": special, "links": links, "options": options}
    store = _Store(folder, _setting(model, tokenizer, settings) if folder else "", batch, numbers, encoded, exclude)
    parts = [range(first, min(first + at_once, len(batch))) for first in range(0, len(batch), at_once)]
    done = {part.start: found for part in parts if (found := store.read(part)) is not None}
    resumed = sum(map(len, done.values()))
    with tqdm(total=len(batch), initial=resumed, disable=not progress, desc="triggers", unit="text") as bar:
        for part in parts:
            if part.start in done:
                continue
            target = None if rules.one_head else numbers[part].tolist()
            given = _attributions(model, tokenizer, [batch[i] for i in part], target, options)
            done[part.start] = [find(a, row, tokenizer, rules) for row, a in zip(part, given, strict=True)]
            store.write(part, done[part.start])
            bar.update(len(part))
    pairs = [pair for part in parts for pair in done[part.start]]
    return Extraction(
        sorted((one for one, _ in pairs if one), key=rank),
        sorted((two for _, two in pairs if two), key=rank),
        tuple(row for row, (one, _) in enumerate(pairs) if not one),
        len(batch),
        resumed,
    )


def _check(variant: str, special: str, links: int, at_once: int, exclude, options: dict[str, Any]) -> None:
    for name, value, known in (("variant", variant, VARIANTS), ("special", special, SPECIAL)):
        if value not in known:
            raise ValueError(f"{name} is {value!r}: give one of {', '.join(known)}.")
    if taken := sorted({"target", "progress", "layers"} & set(options)):
        raise ValueError(
            f"{', '.join(taken)} can't be given here: the variant says which class is explained, over all layers."
        )
    if exclude is not None and not callable(exclude):
        raise ValueError(
            f"exclude is {exclude!r}: give a function that says of a word whether to leave it out, such as the list's "
            "own, words.__contains__."
        )
    check_steps(at_once, "at_once")
    check_steps(links, "links")


def _attributions(model, tokenizer, texts: list[Text], target: list | None, options: dict) -> list[Attribution]:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*texts are longer than.*")  # said at the start, for all
        found = attribute(model, tokenizer, texts, target=target, **without_gap(options))
    return cast(list[Attribution], found)


# ---- from one attribution to a trigger -------------------------------------------------------------------------------

Pair = tuple[Trigger | None, Trigger | None]


class Rules(NamedTuple):
    """How links make a trigger: of one head, marks counted (released), or of all; without any that touch marks, or not.

    Marks: [CLS], [SEP] and the like.
    """

    one_head: bool = False
    skip: bool = False
    links: int = 2
    exclude: Callable[[str], bool] | None = None


def find(a: Attribution, row: int, tokenizer, rules: Rules) -> Pair:
    """Return an example's trigger by attribution, and by attention between two words; None where there is none."""
    of = np.full(len(a.tokens), -1)  # the word of each token
    for number, word in enumerate(a.words):
        if word.segment is not None:
            of[word.start : word.stop] = number
    ids = tokenizer.convert_tokens_to_ids(list(a.tokens))
    plain = (of >= 0) & ~np.isin(ids, tokenizer.all_special_ids)
    barred = [rules.exclude is not None and n >= 0 and bool(rules.exclude(a.words[n].text.lower())) for n in of]
    usable = plain & ~np.array(barred, dtype=bool)
    ends = usable if rules.skip else usable | ~plain  # a special token may be an end, a barred word may not
    allowed = np.outer(ends, ends)
    if not rules.one_head:  # the authors' code counts links between two marks
        allowed &= usable[:, None] | usable
    apart = np.outer(usable, usable) & (of[:, None] != of)
    least = 0.0 if rules.one_head else SECOND
    by_attribution = largest_links(a.scores, allowed, a.layers, rules.links, one_head=rules.one_head, least=least)
    by_attention = largest_links(a.attention, apart, a.layers, rules.links)
    made = _made(a, row, by_attribution, usable, ids, of, "attribution", rules.one_head)
    return made, _made(a, row, by_attention, usable, ids, of, "attention", False)


def largest_links(
    matrix: np.ndarray,
    allowed: np.ndarray,
    layers: Sequence[int],
    count: int,
    *,
    one_head: bool = False,
    least: float = SECOND,
) -> tuple[Link, ...]:
    """Return the largest positive entries, largest first; after the first those of at least ``least`` of it.

    Args:
        matrix: [layer, head, query, key].
        allowed: bool [query, key].
        layers: the layers' numbers.
        one_head: take them from the one head with the largest entry.
    """
    left = np.where(allowed & np.isfinite(matrix), matrix, 0.0)
    if one_head and left.size:
        best = left.max(axis=(2, 3))
        left = left * (np.arange(best.size).reshape(best.shape) == best.argmax())[..., None, None]
    found: list[Link] = []
    while len(found) < count:
        layer, head, query, key = map(int, np.unravel_index(left.argmax(), left.shape))
        score = float(left[layer, head, query, key])
        if score <= 0 or (found and score < least * found[0].score):
            break
        found.append(Link(int(layers[layer]), head, query, key, score))
        left[layer, head, query, key] = 0
    return tuple(found)


def _made(a: Attribution, row: int, links, usable, ids, of, source: str, released: bool) -> Trigger | None:
    """Return the trigger of some links; None where they join no word, or score too little (released)."""
    total = sum(link.score for link in links)
    if released:  # those that give no token have counted in the total
        words = [link for link in links if usable[link.query] or usable[link.key]]
        links = tuple(link for link in words if link.score >= SECOND * links[0].score)
    while len(places := sorted({end for link in links for end in (link.query, link.key) if usable[end]})) > MOST:
        links = links[:-1]
    if not places or (released and total < FLOOR):
        return None
    segments = {place: a.words[of[place]].segment for place in places}
    spans = {s: (min(w.start for w in a.words if w.segment == s), max(w.stop for w in a.words if w.segment == s))
             for s in set(segments.values())}  # fmt: skip
    positions = []
    for place in places:
        start, stop = spans[segments[place]]
        positions.append((place - start) / (stop - start - 1) if stop - start > 1 else 0.5)
    return Trigger(
        tokens=tuple(a.tokens[place] for place in places),
        ids=tuple(int(ids[place]) for place in places),
        segments=tuple(segments.values()),
        positions=tuple(positions),
        target=a.target,
        label=a.labels[a.target],
        score=total if released else float(np.mean([link.score for link in links])),
        row=row,
        places=tuple(places),
        words=tuple(a.words[of[place]].text for place in places),
        links=links,
        source=source,
    )


# ---- partial results -------------------------------------------------------------------------------------------------


class _Store:
    """Partial results in a folder, a file a part, named and marked by all that they were made from."""

    def __init__(
        self, folder: str | Path | None, setting: str, texts: list[Text], gold: np.ndarray, encoded: Encoded, exclude
    ) -> None:
        self.folder, self.setting = keeping(folder), setting
        self.texts, self.gold, self.encoded, self.exclude = texts, gold, encoded, exclude

    def mark(self, part: range) -> str:
        """Return a hash of the setting and of the part's rows, texts, tokens, classes and barred words."""
        words = sorted({word.text.lower() for i in part for word in self.encoded.words[i] if word.segment is not None})
        barred = [word for word in words if self.exclude and self.exclude(word)]
        tokens = [self.encoded.tokens[i] for i in part]
        about = [self.setting, part.start, [self.texts[i] for i in part], tokens, self.gold[part].tolist(), barred]
        return hashlib.sha256(json.dumps(about).encode()).hexdigest()

    def read(self, part: range) -> list[Pair] | None:
        """Return a part's results, or None where there are none, or none that are whole and its own."""
        if self.folder is None:
            return None
        mark = self.mark(part)
        path = self._path(part, mark)
        if not path.is_file():
            return None
        content = read_json(path)
        try:
            if content["fingerprint"] != mark:
                raise ValueError("made from something else")
            one, two = ([from_dict(t) if t else None for t in content[name]] for name in ("attribution", "attention"))
            if {len(one), len(two)} != {len(part)}:
                raise ValueError("of another length")
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            logger.warning("%s is damaged or not from this run (%r): its examples are done again.", path, error)
            return None
        return list(zip(one, two, strict=True))

    def write(self, part: range, pairs: list[Pair]) -> None:
        """Keep a part's results; the file appears whole or not at all."""
        if self.folder is None:
            return
        mark = self.mark(part)
        one, two = ([to_dict(t) if t else None for t in column] for column in zip(*pairs, strict=True))
        write_json(self._path(part, mark), {"fingerprint": mark, "attribution": one, "attention": two})

    def _path(self, part: range, mark: str) -> Path:
        return cast(Path, self.folder) / f"triggers-{part.start:06d}-{mark[:12]}.json"


def _setting(model, tokenizer, settings: dict[str, Any]) -> str:
    """Return a hash of the weights, the vocabulary's special tokens, and the settings."""
    about = [VERSIONS[settings["variant"]], model.config.to_dict(), settings, tokenizer.all_special_ids]
    mark = hashlib.sha256(json.dumps(about, default=str, sort_keys=True).encode())
    for name, weight in model.state_dict().items():
        mark.update(f"{name} {weight.dtype} {tuple(weight.shape)}".encode())
        mark.update(weight.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return mark.hexdigest()
