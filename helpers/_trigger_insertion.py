"""Triggers put into texts, by token id, at the same relative positions (part of :mod:`helpers.triggers`)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from helpers._trigger import Trigger, check_fast, check_plain, fits, groups, is_marked, surface
from helpers.attribution import labels_of
from helpers.inputs import Encoded, Text, Word, check_texts, encode, length_limit
from helpers.pruning import class_numbers

WHERE = ("relative", "front", "end", "random")
JOINTS = tuple("'’-_/&@#$")  # marks inside words, as in "well-made", "and/or" and "$5"
POINTS = tuple(".,:")  # inside words too, between letters and digits: "u.s.", "3.5"


@dataclass(frozen=True, eq=False)
class Victims:
    """Texts to attack, tokenised, with their right classes; see :func:`prepare`.

    Attributes:
        texts: as given.
        gold: the right class of each, int [victim].
        labels: the class names in logit order.
        encoded: the texts as the model takes them.
        limit: the most tokens a text may have, special tokens and trigger included.
        tokenizer: the model's.
        pads: the number that pads each input.
    """

    texts: list[Text]
    gold: np.ndarray
    labels: tuple[str, ...]
    encoded: Encoded
    limit: int
    tokenizer: Any = field(repr=False)
    pads: dict[str, int] = field(repr=False)

    def __len__(self) -> int:
        return len(self.texts)

    def __repr__(self) -> str:
        counts = (f"{label} {int((self.gold == number).sum())}" for number, label in enumerate(self.labels))
        return f"Victims({len(self)} texts; {', '.join(counts)})"

    def chosen(self, rows: Iterable[int] | None) -> np.ndarray:
        """Return victims' numbers as an array, all for None; refuses a mask, and numbers that no victim has."""
        if rows is None:
            return np.arange(len(self))
        found = np.asarray(list(rows))
        if not len(found):
            return found.astype(int)
        if found.dtype.kind not in "iu" or found.min() < 0 or found.max() >= len(self):
            said = "are True and False" if found.dtype == bool else f"hold {found[0]!s} to {found[-1]!s}"
            raise ValueError(
                f"The rows {said}: give numbers from 0 to {len(self) - 1}, of a mask those of np.flatnonzero(mask)."
            )
        return found.astype(int)

    def rows(self, label: int | str) -> np.ndarray:
        """Return the rows of a class, by its name or number."""
        known = label in self.labels if isinstance(label, str) else 0 <= label < len(self.labels)
        if not known:
            raise ValueError(f"There is no class {label!r}: give one of {', '.join(self.labels)}, or its number.")
        return np.flatnonzero(self.gold == (self.labels.index(label) if isinstance(label, str) else label))

    @cached_property
    def lines(self) -> dict[str, list[list[int]]]:
        """The model's inputs by name, padding left out, a list a text."""
        lengths = [len(tokens) for tokens in self.encoded.tokens]
        return {
            name: [line[:length] for line, length in zip(tensor.tolist(), lengths, strict=True)]
            for name, tensor in self.encoded.tensors.items()
        }

    @cached_property
    def spans(self) -> list[dict[int, list[int]]]:
        """For every text and segment the gaps for a trigger, by the token behind each, and last where the text ends.

        A gap is between two words; not in "don't", "and/or" or "3.5", which tokenizers cut at the mark.
        """
        found: list[dict[int, list[int]]] = []
        for text, words in zip(self.texts, self.encoded.words, strict=True):
            found.append({})
            for segment, part in enumerate([text] if isinstance(text, str) else text):
                own = [word for word in words if word.segment == segment]
                starts, _ = _offsets(part, own)
                inner = [w.start for w in own[1:] if not _within(part, starts[w.start])]
                found[-1][segment] = [own[0].start, *inner, own[-1].stop]
        return found


def check_victims(victims: object) -> None:
    """Refuse what :func:`prepare` did not make, such as the texts themselves."""
    if not isinstance(victims, Victims):
        raise ValueError(
            f"A {type(victims).__name__} was given in place of the victims: give triggers.prepare(model, tokenizer, "
            "texts, gold)."
        )


def _within(text: str, offset: int) -> bool:
    """Return whether a place in a text is inside one word: beside a mark that joins two letters, or begins "'s"."""
    before, after = text[max(0, offset - 2) : offset], text[offset : offset + 2]
    if not before[-1:].strip() or not after[:1].strip():
        return False
    return (
        before[-1] in JOINTS
        or (after[0] in JOINTS and bool(after[1:].strip()))
        or (before[-1] in POINTS and before[:-1].isalnum() and after[0].isalnum())
        or (after[0] in POINTS and before[-1].isalnum() and after[1:].isalnum())
    )


def prepare(
    model, tokenizer, texts: Text | Iterable[Text], gold: Iterable[int | str], *, max_length: int | None = None
) -> Victims:
    """Return texts ready to be attacked.

    Args:
        gold: the right class of every text, by number or by name.
        max_length: at most so many tokens, trigger included; the model's limit if None.

    Raises:
        ValueError: a blank text, an unknown class, a tokenizer that does not say which token is of which word.
    """
    batch = check_texts(texts)
    check_fast(tokenizer)
    numbers = class_numbers(model, gold, len(batch))
    encoded = encode(model, tokenizer, batch, max_length=max_length)
    pads = {"input_ids": tokenizer.pad_token_id, "attention_mask": 0, "token_type_ids": tokenizer.pad_token_type_id}
    limit = length_limit(model, tokenizer)
    limit = limit if max_length is None else min(limit, max_length)
    return Victims(batch, numbers, labels_of(model), encoded, limit, tokenizer, pads)


@dataclass(frozen=True, eq=False)
class Inserted:
    """Victims with a trigger in them; see :func:`insert`. Lists and arrays follow ``rows``.

    Attributes:
        victims, trigger: what they were made of.
        rows: the victims' numbers, int [text].
        inputs: the model's inputs by name, unpadded, a list a text.
        places: where the trigger's tokens stand, in their order, a tuple a text.
        trimmed: tokens that were cut from the text to make room, int [text].
    """

    victims: Victims
    trigger: Trigger
    rows: np.ndarray
    inputs: dict[str, list[list[int]]]
    places: list[tuple[int, ...]]
    trimmed: np.ndarray
    _gaps: list[list[int]] = field(repr=False)
    _ends: list[dict[int, int]] = field(repr=False)

    def __repr__(self) -> str:
        cut = int((self.trimmed > 0).sum())
        return f"Inserted('{self.trigger}' in {len(self.rows)} texts; {cut} cut to make room)"

    @property
    def ids(self) -> list[tuple[int, ...]]:
        """The token numbers of every text."""
        return [tuple(ids) for ids in self.inputs["input_ids"]]

    @property
    def tokens(self) -> list[tuple[str, ...]]:
        """The tokens of every text."""
        return [tuple(self.victims.tokenizer.convert_ids_to_tokens(ids)) for ids in self.inputs["input_ids"]]

    def batch(self, which: Sequence[int] | None = None) -> dict[str, Tensor]:
        """Return what ``model(**inputs)`` takes for some of the texts, padded on the right."""
        which = range(len(self.rows)) if which is None else which
        like = self.victims.encoded.tensors
        width = max(len(self.inputs["input_ids"][i]) for i in which)
        return {
            name: torch.tensor(
                [rows[i] + [self.victims.pads[name]] * (width - len(rows[i])) for i in which],
                dtype=like[name].dtype, device=like[name].device,
            )
            for name, rows in self.inputs.items()
        }  # fmt: skip

    def texts(self) -> tuple[list[Text], np.ndarray]:
        """Return the texts as a reader would write them, and whether the tokenizer makes the same ids of each."""
        marked = is_marked(self.victims.tokenizer)
        together = groups(self.trigger, marked)
        written = [self._written(i, together, marked) for i in range(len(self.rows))]
        columns = list(zip(*written, strict=True)) if isinstance(written[0], tuple) else [written]
        again = self.victims.tokenizer(*[list(column) for column in columns], verbose=False)["input_ids"]
        same = [list(one) == two for one, two in zip(again, self.inputs["input_ids"], strict=True)]
        return written, np.array(same)

    def _written(self, i: int, together: list[list[int]], marked: bool) -> Text:
        text = self.victims.texts[int(self.rows[i])]
        parts = [text] if isinstance(text, str) else list(text)
        words = self.victims.encoded.words[int(self.rows[i])]
        for segment, part in enumerate(parts):
            starts, stops = _offsets(part, [word for word in words if word.segment == segment])
            whole = part[: stops.get(self._ends[i][segment], len(part))]
            here = [(self._gaps[i][n], n) for n, g in enumerate(together) if self.trigger.segments[g[0]] == segment]
            for gap, number in sorted(here, reverse=True):  # from behind: what is in front keeps its offset
                tokens = [self.trigger.tokens[k] for k in together[number]]
                joined = not marked and tokens[0].startswith("##")
                first, second = (stops, starts) if joined else (starts, stops)
                offset = min(first.get(gap, second.get(gap, len(whole))), len(whole))
                whole = _spliced(whole, offset, surface(self.victims.tokenizer, tokens), joined)
            parts[segment] = whole
        return parts[0] if isinstance(text, str) else (parts[0], parts[1])


def insert(
    victims: Victims, trigger: Trigger, *, rows: Iterable[int] | None = None, where: str = "relative", seed: int = 0
) -> Inserted:
    """Return the texts with the trigger in them, at the same relative positions in each segment.

    A token that stood at 0.3 of its text is put at 0.3 of this one, by its id. Gaps are between words: one that would
    part the pieces of a word moves to the nearest end of it (of two as near, the earlier). The pieces of one word that
    the trigger has side by side stay together. Where the text then gets too long, its longer segment is cut from the
    end, a word that would be left in half as well; the trigger stays, and its places are those in what is left.

    Args:
        rows: which texts; None: all.
        where: "relative"; or, to see what the position matters, "front" or "end" of the same segment, or "random",
            another gap for every token and text.
        seed: of "random".

    Raises:
        ValueError: no row, or one that isn't there; a trigger for another vocabulary, with a special token, for a
            second text that is not there, or so long that no word of a text is left.
    """
    check_victims(victims)
    if where not in WHERE:
        raise ValueError(f"where is {where!r}: give one of {', '.join(WHERE)}.")
    if not fits(trigger, victims.tokenizer):
        raise ValueError(
            f"The trigger '{trigger}' was made with another vocabulary: its ids mean something else here. Take "
            "triggers.moved(trigger, tokenizer)."
        )
    check_plain(victims.tokenizer, trigger.ids, f"'{trigger}'")
    chosen = victims.chosen(rows)
    if not len(chosen):
        raise ValueError(f"No text was chosen for the trigger '{trigger}': give at least one row, or None for all.")
    together = groups(trigger, is_marked(victims.tokenizer))
    inputs: dict[str, list[list[int]]] = {name: [] for name in victims.encoded.tensors}
    places, trimmed, gaps, ends = [], [], [], []
    for row in chosen.tolist():
        spans, lost = _trimmed(victims, row, trigger)
        at = [_gap(spans[trigger.segments[g[0]]], trigger.positions[g[0]], where) for g in together]
        if where == "random":
            rng = np.random.default_rng((seed, row))
            at = [int(rng.choice(spans[trigger.segments[g[0]]])) for g in together]
        found = _put(victims, row, trigger, together, spans, at)
        for name, line in found[0].items():
            inputs[name].append(line)
        places.append(found[1])
        trimmed.append(lost)
        gaps.append(at)
        ends.append({segment: span[-1] for segment, span in spans.items()})
    return Inserted(victims, trigger, chosen, inputs, places, np.array(trimmed, dtype=int), gaps, ends)


def _trimmed(victims: Victims, row: int, trigger: Trigger) -> tuple[dict[int, list[int]], int]:
    """Return where each segment's words begin, and where its kept part ends; and how many tokens are cut."""
    spans = victims.spans[row]
    if missing := set(trigger.segments) - set(spans):
        raise ValueError(
            f"The trigger '{trigger}' has tokens for segment {missing.pop()}, and text {row} has "
            f"{'a single text' if len(spans) == 1 else 'no such part'}: give every segment as 0, or attack pairs."
        )
    length = len(victims.encoded.tokens[row])
    over = length + len(trigger.ids) - victims.limit
    stops = {segment: span[-1] for segment, span in spans.items()}
    for _ in range(over):
        longest = max(spans, key=lambda s: (stops[s] - spans[s][0], s))
        stops[longest] -= 1
    if any(stops[s] - spans[s][0] < 1 for s in spans):
        raise ValueError(
            f"A trigger of {len(trigger.ids)} tokens leaves nothing of text {row} within {victims.limit} tokens: take "
            "a shorter one, or raise max_length."
        )
    kept = {s: [place for place in span if place <= stops[s]] for s, span in spans.items()}
    kept = {s: span if len(span) > 1 else [span[0], stops[s]] for s, span in kept.items()}  # a first word cut in two
    return kept, sum(spans[s][-1] - kept[s][-1] for s in spans)


def _gap(span: list[int], position: float, where: str) -> int:
    """Return the place between words that is nearest to a relative position; of two as near, the earlier."""
    if where in ("front", "end"):
        return span[0] if where == "front" else span[-1]
    wanted = span[0] + int(position * (span[-1] - span[0]) + 0.5)
    return min(span, key=lambda place: (abs(place - wanted), place))


def _put(
    victims: Victims, row: int, trigger: Trigger, together: list[list[int]], spans: dict[int, list[int]], at: list[int]
) -> tuple[dict[str, list[int]], tuple[int, ...]]:
    """Return a text's inputs with the trigger's groups of tokens before the places ``at``, and where they got."""
    pieces: list[tuple[int, int]] = []  # (place in the text, -1) or (-1, number in the trigger)
    place = 0
    for segment, span in sorted(spans.items()):
        here = [n for n, group in enumerate(together) if trigger.segments[group[0]] == segment]
        for n in sorted(here, key=lambda n: at[n]):
            pieces += [(i, -1) for i in range(place, at[n])] + [(-1, k) for k in together[n]]
            place = at[n]
        pieces += [(i, -1) for i in range(place, span[-1])]
        place = victims.spans[row][segment][-1]  # behind what was cut
    pieces += [(i, -1) for i in range(place, len(victims.encoded.tokens[row]))]
    lines = {}
    for name, rows in victims.lines.items():
        own = trigger.ids if name == "input_ids" else [rows[row][spans[s][0]] for s in trigger.segments]
        lines[name] = [own[k] if k >= 0 else rows[row][i] for i, k in pieces]
    where = {k: n for n, (_, k) in enumerate(pieces) if k >= 0}
    return lines, tuple(where[k] for k in range(len(trigger.ids)))


def _offsets(part: str, words: Sequence[Word]) -> tuple[dict[int, int], dict[int, int]]:
    """Return where words begin and end in a text: by the number of their first token, and of the one behind them."""
    starts, stops, begun = {}, {}, 0
    for word in words:
        found = part.find(word.text, begun)
        begun = found if found >= 0 else begun
        starts[word.start] = begun
        begun += len(word.text) if found >= 0 else 0
        stops[word.stop] = begun
    return starts, stops


def _spliced(text: str, offset: int, word: str, joined: bool) -> str:
    """Return the text with a word in it, with the spaces it needs; a ``joined`` one goes on with the word before."""
    before, after = text[:offset], text[offset:]
    apart = not before or before[-1].isspace()
    lead = "" if joined or apart else " "
    trail = " " if after and not after[0].isspace() and (after[0].isalnum() or (apart and not joined)) else ""
    return f"{before}{lead}{word}{trail}{after}"
