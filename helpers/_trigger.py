"""What a trigger is: a few tokens, where they stand, and the links they came from (part of :mod:`helpers.triggers`)."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import groupby
from numbers import Real
from pathlib import Path
from typing import Any

from transformers.convert_slow_tokenizer import bytes_to_unicode

from helpers._labels import plain
from helpers._link import Link
from helpers.records import read_json, write_json

FORMAT = "attattr-triggers"
VERSION = 1
MARKS = ("Ġ", "▁")  # how byte-level and sentence-piece vocabularies mark a token that begins a word
HALF = "\ufffd"  # what bytes that make no whole letter are decoded as
BYTES = {sign: byte for byte, sign in bytes_to_unicode().items()}  # what byte a sign of a byte-level vocabulary is


@dataclass(frozen=True)
class Trigger:
    """A few tokens to insert into a text, and where.

    Attributes:
        tokens: as the vocabulary has them, in order of segment and position; a piece such as "##ly" stays one.
        ids: their numbers.
        segments: 0 or 1 for each token, the first or the second text.
        positions: for each token its place in its segment, 0 in front to 1 at the end: place / (tokens - 1), and 0.5 in
            a segment of one token.
        target: the class it pushes to, which is the one explained where it was found; -1: none.
        label: that class by name.
        score: the mean of its links' scores ("paper"), or the sum of the two largest in their head, those that give no
            token included ("released"); 0 where it comes from no links.
        row: the number of the example it was found in; -1: none.
        places: the token positions in that example.
        words: for each token the whole word it is of, as written.
        links: the links that gave its tokens, largest first.
        source: "attribution", "attention", "random", "frequent", "gradient" or "typed".
        support: how many examples gave the same tokens, as :func:`unique` counts.
    """

    tokens: tuple[str, ...]
    ids: tuple[int, ...]
    segments: tuple[int, ...]
    positions: tuple[float, ...]
    target: int = -1
    label: str = ""
    score: float = 0.0
    row: int = -1
    places: tuple[int, ...] = ()
    words: tuple[str, ...] = ()
    links: tuple[Link, ...] = ()
    source: str = "typed"
    support: int = 1

    def __post_init__(self) -> None:
        self._as_plain_numbers()
        count = len(self.tokens)
        if not count or {len(self.ids), len(self.segments), len(self.positions)} != {count}:
            raise ValueError(
                f"A trigger of {count} tokens has {len(self.ids)} ids, {len(self.segments)} segments and "
                f"{len(self.positions)} positions: give one of each for every token, and one token or more."
            )
        if set(self.segments) - {0, 1} or not all(0 <= place <= 1 for place in self.positions):
            raise ValueError(
                f"The trigger {' '.join(self.tokens)!r} has the segments {self.segments} and positions "
                f"{self.positions}: segments are 0 (first text) or 1 (second), positions run from 0 (front) to 1 (end)."
            )

    def _as_plain_numbers(self) -> None:
        """Make Python's own numbers of those of numpy, which JSON can't write."""
        if isinstance(self.target, str):
            raise ValueError(f"target is {self.target!r}: give the class's number, and its name as label.")
        kinds = {"tokens": str, "ids": int, "segments": int, "positions": float, "places": int}
        for name, kind in kinds.items():
            object.__setattr__(self, name, tuple(map(kind, getattr(self, name))))
        for name, one in {"target": int, "row": int, "score": float}.items():
            object.__setattr__(self, name, one(getattr(self, name)))

    def __str__(self) -> str:
        """Return the tokens without the marks of word beginnings; ``|`` stands before those of the second text."""
        shown = [readable([token]) or token for token in self.tokens]
        first, second = (
            " ".join(t for t, s in zip(shown, self.segments, strict=True) if s == number) for number in (0, 1)
        )
        return f"{first} | {second}".strip() if second else first

    @property
    def key(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """What makes two triggers the same one: ids and segments."""
        return self.ids, self.segments

    def take(self, which: Iterable[int]) -> Trigger:
        """Return the trigger with some of its tokens, by their numbers in ``tokens``."""
        kept = sorted(set(which))
        if not kept or not all(0 <= i < len(self.tokens) for i in kept):
            raise ValueError(f"The trigger '{self}' has the tokens 0 to {len(self.tokens) - 1}, and {kept} was asked.")
        names = ("tokens", "ids", "segments", "positions", "places", "words")
        fewer: dict[str, Any] = {n: tuple(getattr(self, n)[i] for i in kept) for n in names if getattr(self, n)}
        return replace(self, **fewer)

    def one_link(self) -> Trigger:
        """Return the trigger that its largest link alone would have made.

        Raises:
            ValueError: it comes from no links.
        """
        if not self.links or not self.places:
            raise ValueError(f"The trigger '{self}' ({self.source}) comes from no links: take() keeps some of it.")
        largest = self.links[0]
        part = self.take(i for i, place in enumerate(self.places) if place in (largest.query, largest.key))
        return replace(part, links=(largest,), score=largest.score)

    @classmethod
    def from_text(
        cls,
        tokenizer,
        text: str,
        *,
        positions: float | Sequence[float] = 0.0,
        segments: int | Sequence[int] = 0,
        target: int = -1,
        label: str = "",
    ) -> Trigger:
        """Return a trigger of the words in ``text``, as the tokenizer cuts them.

        Args:
            positions: 0 (front) to 1 (end): one for all words, or one a word.
            segments: 0 or 1, likewise.
            target, label: the class it is meant to push to, if any.

        Raises:
            ValueError: no word, a special token such as [CLS], a word that the vocabulary lacks, or not one position
                and segment a word.
        """
        words = str(text).split()
        if not words:
            raise ValueError("The trigger has no word: type one, or a few.")
        each = zip(words, _each(segments, words, "segments"), _each(positions, words, "positions"), strict=True)
        found = [
            (token, part, place, word)
            for word, part, place in sorted(each, key=lambda one: one[1:])
            for token in tokenizer(f" {word}", add_special_tokens=False)["input_ids"]
        ]
        check_plain(tokenizer, [row[0] for row in found], repr(text))
        if not found:
            raise ValueError(f"The tokenizer keeps nothing of {text!r}: type a word.")
        lowered = str(text).lower()
        if lowered != text and (tokenizer(lowered)["input_ids"] == tokenizer(str(text))["input_ids"]):
            warnings.warn(f"This model reads no capitals: {text!r} became {lowered!r}.", stacklevel=2)
        ids, parts, places, of = zip(*found, strict=True)
        tokens = tuple(tokenizer.convert_ids_to_tokens(list(ids)))
        return cls(tokens, ids, parts, places, target=target, label=label, words=of)


def _each(given, words: Sequence[str], name: str) -> list:
    found = [given] * len(words) if isinstance(given, Real) else list(given)
    if len(found) != len(words):
        raise ValueError(f"{len(found)} {name} were given for the {len(words)} words of the trigger: one a word.")
    return found


def check_plain(tokenizer, ids: Iterable[int], name: str) -> None:
    """Refuse special tokens, the mark for unknown words among them."""
    special = sorted({str(tokenizer.convert_ids_to_tokens(i)) for i in ids if i in set(tokenizer.all_special_ids)})
    if special:
        raise ValueError(
            f"The trigger {name} holds {', '.join(special)}. Marks such as [CLS] and [SEP] are the model's own and no "
            "reader can type them, and [UNK] stands for any word that the vocabulary lacks: use words that it has."
        )


def as_list(triggers: Iterable[Trigger]) -> list[Trigger]:
    """Return triggers as a list; refuse a single one, and what holds a list of them."""
    if isinstance(triggers, Trigger):
        raise ValueError(f"A single trigger was given, '{triggers}': give a list, [trigger].")
    if hasattr(triggers, "triggers"):
        name = type(triggers).__name__
        raise ValueError(f"The {name} as a whole was given: give {name[0]}.triggers, its list of triggers.")
    return list(triggers)


def check_class(trigger: Trigger, labels: Sequence[str]) -> None:
    """Refuse a trigger whose class goes by another number here: it comes from a model with another order of labels.

    Names are the same that differ in capitals, "-", "_" or spaces. A name without a number is refused as well.
    """
    own = [number for number, label in enumerate(labels) if plain(label) == plain(trigger.label)]
    if trigger.target < 0 and trigger.label:
        raise ValueError(
            f"The trigger '{trigger}' has the label {trigger.label!r} and no target: give target="
            f"{own[0] if own else '...'}, the number of the class; labels here: {', '.join(map(str, labels))}."
        )
    if trigger.target >= 0 and own and trigger.target not in own:
        here = own[0]
        raise ValueError(
            f"The trigger '{trigger}' pushes to {trigger.label!r} as class {trigger.target}, and here that is class "
            f"{here}: it comes from a model with another order of labels. Take dataclasses.replace(trigger, "
            f"target={here})."
        )


def check_fast(tokenizer) -> None:
    """Refuse a tokenizer that doesn't say which token is of which word."""
    if not getattr(tokenizer, "is_fast", False):
        raise ValueError("This tokenizer does not tell words from pieces: load a fast one, AutoTokenizer's default.")


def continues(token: str, marked: bool) -> bool:
    """Return whether a token goes on with the word before it; ``marked``: whether the vocabulary marks beginnings."""
    return not token.startswith(MARKS) if marked else token.startswith("##")


def is_marked(tokenizer) -> bool:
    """Return whether the vocabulary marks the tokens that begin a word (as "Ġ" or "▁") rather than those that don't."""
    tokens = tokenizer.convert_ids_to_tokens(tokenizer(" a a", add_special_tokens=False)["input_ids"])
    return any(token.startswith(MARKS) for token in tokens)


def surface(tokenizer, tokens: Sequence[str]) -> str:
    """Return what tokens of one word look like in a text, without the mark of a piece."""
    return tokenizer.convert_tokens_to_string(list(tokens)).strip().removeprefix("##").replace(" ", "")


def readable(tokens: Sequence[str]) -> str:
    """Return what tokens of one word look like, whatever their vocabulary, without the marks of word beginnings.

    A byte-level vocabulary writes a letter such as "é" as the signs of its two bytes; half a letter stays as it is.
    """
    text = _decoded(tokens)
    whole = "".join(token.strip("".join(MARKS)) for token in tokens) if HALF in text else text
    return "".join(whole.split())


def _decoded(tokens: Sequence[str]) -> str:
    """Return the tokens as one, its signs taken for bytes if all of them can be."""
    signs = "".join(token.strip("".join(MARKS)) for token in tokens)
    return bytes(BYTES[sign] for sign in signs).decode(errors="replace") if set(signs) <= BYTES.keys() else signs


def groups(trigger: Trigger, marked: bool) -> list[list[int]]:
    """Return the numbers of the tokens that stay together: the pieces of one word, side by side."""
    found: list[list[int]] = []
    for i, token in enumerate(trigger.tokens):
        before = found[-1][-1] if found else None
        joins = (
            before is not None
            and continues(token, marked)
            and trigger.segments[i] == trigger.segments[before]
            and bool(trigger.words)
            and trigger.words[i] == trigger.words[before]
            and (not trigger.places or trigger.places[i] == trigger.places[before] + 1)
        )
        if joins:
            found[-1].append(i)
        else:
            found.append([i])
    return found


def unique(triggers: Iterable[Trigger]) -> list[Trigger]:
    """Return each trigger once, largest score first: of those with the same tokens and segments the best, and a count.

    A trigger that was found for two classes is kept for each.
    """
    order = sorted(as_list(triggers), key=lambda t: (t.target, *t.key))
    kept = []
    for _, same in groupby(order, key=lambda t: (t.target, *t.key)):
        alike = sorted(same, key=rank)
        kept.append(replace(alike[0], support=sum(trigger.support for trigger in alike)))
    return sorted(kept, key=rank)


def rank(trigger: Trigger) -> tuple:
    """Return what sorts triggers: largest score first, then by source row."""
    return -trigger.score, trigger.row, trigger.target, trigger.key


def moved(trigger: Trigger, tokenizer) -> Trigger:
    """Return the trigger for another model: as it is where its tokens have the same ids there, else by its text.

    A token that is a mark only, such as "▁", is left out.

    Raises:
        ValueError: the other vocabulary lacks one of the words, one is half a letter, or nothing is left.
    """
    if fits(trigger, tokenizer):
        return trigger
    marked, bytewise = (any(token.startswith(marks) for token in trigger.tokens) for marks in (MARKS, MARKS[0]))
    words, positions, segments = [], [], []
    for group in groups(trigger, marked):
        pieces = [trigger.tokens[i].removeprefix("##") for i in group]
        text = readable(pieces)
        if not text:
            continue
        if bytewise and HALF in _decoded(pieces):
            raise ValueError(f"The trigger '{trigger}' holds half a letter, which no other vocabulary can write.")
        words.append(text)
        positions.append(trigger.positions[group[0]])
        segments.append(trigger.segments[group[0]])
    made = Trigger.from_text(tokenizer, " ".join(words), positions=positions, segments=segments)
    rest = {name: getattr(trigger, name) for name in ("target", "label", "score", "row", "source", "support")}
    return replace(made, **rest)


def fits(trigger: Trigger, tokenizer) -> bool:
    """Return whether the trigger's ids mean the same tokens in this vocabulary."""
    rows = len(tokenizer)
    return max(trigger.ids) < rows and tuple(tokenizer.convert_ids_to_tokens(list(trigger.ids))) == trigger.tokens


def to_dict(trigger: Trigger) -> dict[str, Any]:
    """Return a trigger as JSON knows it."""
    return asdict(trigger)


def from_dict(content: dict[str, Any]) -> Trigger:
    """Return the trigger that :func:`to_dict` wrote."""
    plain: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in content.items()
    }
    links = tuple(Link(*link) for link in plain["links"])
    return Trigger(**{**plain, "links": links})


def save(triggers: Iterable[Trigger], path: str | Path) -> Path:
    """Write triggers to a JSON file, which appears whole or not at all, and return its path."""
    path = Path(path).expanduser()
    found = [to_dict(trigger) for trigger in as_list(triggers)]
    write_json(path, {"format": FORMAT, "version": VERSION, "triggers": found})
    return path


def keeping(folder: str | Path | None) -> Path | None:
    """Return a folder to keep results in, which is made if need be; None for None.

    Raises:
        ValueError: there can be no such folder.
    """
    if not folder:
        return None
    path = Path(folder).expanduser()
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"{path} can't be a folder to keep results in ({error.strerror}): give another.") from None
    return path


def load(path: str | Path) -> list[Trigger]:
    """Read what :func:`save` wrote.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it holds no triggers, is cut short, or is of another version.
    """
    path = Path(path).expanduser()
    if not path.is_file():
        raise FileNotFoundError(f"There is no file of triggers at {path}.")
    content = read_json(path)
    try:
        if (content["format"], content["version"]) != (FORMAT, VERSION):
            raise KeyError("version")
        return [from_dict(one) for one in content["triggers"]]
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"{path} holds no triggers of this version, or is damaged ({error!r}): extract again."
        ) from None
