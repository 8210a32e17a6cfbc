"""What an attribution tree is made from: summed scores, names of the tokens, and the rules (Algorithm 1 of the paper).

Private to :mod:`helpers.tree`. Inside, tokens (or whole words, where they are merged) are numbered 0, 1, ...
in reading order and called units; a unit's name outside is the position of its first token.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from numbers import Integral, Real
from typing import Any, NamedTuple

import numpy as np

SEPARATORS = ("[SEP]", "</s>")
SPECIAL = ("[CLS]", "<s>", *SEPARATORS)
UNKNOWN = ("[UNK]", "<unk>")


class Edge(NamedTuple):
    """Unit ``query`` receives from unit ``key`` in the layer at ``layer`` on axis 0."""

    layer: int
    query: int
    key: int


@dataclass(frozen=True)
class Rules:
    """What Algorithm 1 leaves open, and where the released code decides otherwise.

    Attributes:
        peak: the layer's maximum is taken over "all" rows, or "without class": not over the class token's.
        top: the top node has the largest "sum" of what it receives from others, or the largest sum of the
            "positive" ones among them (positive once added up over layers).
        order: candidates of a layer are taken "largest" score first, or by "position" (query, then key).
        chain: whether a token that joined in a layer may receive others in the same layer. No information
            flows that way, it would need two layers, but the algorithm's states allow it.
        first_from_top: in the layer below the last, only the top node receives.
        class_joins: whether the class token may join as a leaf like any other token.
        gather: which joined tokens the class token is linked to at the end, through the last layer: "all"
            whose link passes, the "top" node alone (each node then has one parent, without exception), or "none".
        drop_separators: whether a [SEP] that is a leaf is left out.
    """

    peak: str = "all"
    top: str = "sum"
    order: str = "largest"
    chain: bool = True
    first_from_top: bool = False
    class_joins: bool = False
    gather: str = "all"
    drop_separators: bool = True

    def __post_init__(self) -> None:
        choices = {
            "peak": ("all", "without class"),
            "top": ("sum", "positive"),
            "order": ("largest", "position"),
            "gather": ("all", "top", "none"),
        }
        for name, known in choices.items():
            if getattr(self, name) not in known:
                raise ValueError(f"{name} is {getattr(self, name)!r}: give one of {', '.join(map(repr, known))}.")
        if self.class_joins and self.gather != "none":
            raise ValueError('The class token can\'t be leaf and terminal at once: with class_joins, gather is "none".')


VARIANTS = {
    "paper": Rules(),
    "released": Rules("without class", "positive", "position", True, True, True, "none", False),
}


@dataclass(frozen=True, eq=False)
class Problem:
    """The scores a^l of every layer with everything that decides which trees are allowed.

    Attributes:
        scores: summed over heads (and over the pieces of a word where merged), float64 [layer, query, key],
            first layer first.
        layers: the layer numbers of axis 0, ascending.
        tokens, words, segments: of every unit; a segment is None for special tokens.
        labels: as a reader knows the units: a whole word as it was written, a piece as the tokenizer has it.
        starts, stops: the tokens of every unit.
        terminal: the unit that the classifier reads.
        peaks: the maximum each layer's scores are held against, 0 where none is positive, [layer].
    """

    scores: np.ndarray
    layers: tuple[int, ...]
    tokens: tuple[str, ...]
    labels: tuple[str, ...]
    words: tuple[str, ...]
    segments: tuple[int | None, ...]
    starts: tuple[int, ...]
    stops: tuple[int, ...]
    terminal: int
    tau: float
    last_tau: float
    variant: str
    rules: Rules
    merged: bool
    separators: frozenset[int]
    peaks: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        rows = np.ones(len(self.labels), dtype=bool)
        if self.rules.peak == "without class" and len(self.labels) > 1:
            rows[self.terminal] = False
        peaks = self.scores[:, rows].max(axis=(1, 2))
        peaks[-1] = self.scores[-1].max()  # there the class token's row is the one that counts
        object.__setattr__(self, "peaks", np.maximum(peaks, 0.0))

    def share(self, edge: Edge) -> float:
        """Return an edge's score as a share of its layer's maximum, 0 where no score is positive."""
        peak = float(self.peaks[edge.layer])
        return float(self.scores[edge]) / peak if peak > 0 else 0.0

    def reading(self, unit: int) -> Edge:
        """Return the link through which the terminal reads a unit in the last layer."""
        return Edge(len(self.layers) - 1, self.terminal, unit)

    def is_read(self, unit: int) -> bool:
        """Return whether that link passes."""
        return self.rules.gather != "none" and self.share(self.reading(unit)) > self.last_tau

    def candidates(self, layer: int) -> list[Edge]:
        """Return the edges of a layer below the last with a / max(a) > tau, in the order of the rules."""
        if not self.peaks[layer] > 0:
            return []
        passing = self.scores[layer] / self.peaks[layer] > self.tau
        np.fill_diagonal(passing, False)
        passing[self.terminal] = False
        if not self.rules.class_joins:
            passing[:, self.terminal] = False
        query, key = np.nonzero(passing)
        if self.rules.order == "largest":
            order = np.argsort(-self.scores[layer, query, key], kind="stable")  # ties: by query, then by key
            query, key = query[order], key[order]
        return [Edge(layer, int(i), int(j)) for i, j in zip(query, key, strict=True)]

    def received(self) -> np.ndarray:
        """Return what every unit receives from others over all layers, as the rules count it, [unit]."""
        total = self.scores.sum(axis=0)
        np.fill_diagonal(total, 0.0)
        if self.rules.top == "positive":
            total = np.maximum(total, 0.0)
        return total.sum(axis=1)

    def top(self) -> int | None:
        """Return the top node; ties go to the token that the terminal reads most, then to the first."""
        received, read = self.received(), self.scores[-1, self.terminal]
        others = [unit for unit in range(len(self.labels)) if unit != self.terminal]
        return max(others, key=lambda unit: (received[unit], read[unit], -unit), default=None)


def prepare(
    source: Any,
    tokens: Sequence[str] | None = None,
    *,
    words: Sequence | None = None,
    layers: Sequence[int] | None = None,
    tau: float = 0.4,
    last_tau: float = 0.0,
    variant: str | Rules = "paper",
    terminal: int | None = None,
    merge: bool = False,
) -> Problem:
    """Check what :func:`helpers.tree.attribution_tree` takes, and put it in order."""
    if isinstance(source, list | tuple) and any(hasattr(item, "scores") for item in source):
        raise ValueError(f"A list of {len(source)} attributions was given: a tree is made of one, so pass them singly.")
    if isinstance(source, str):
        raise ValueError(
            f"A text was given, {source!r:.80}: give attribute(model, tokenizer, text), or an array with tokens."
        )
    if attributed := hasattr(source, "scores"):
        tokens = source.tokens if tokens is None else tokens
        words = getattr(source, "words", None) if words is None else words
        layers = getattr(source, "layers", None) if layers is None else layers
        source = source.scores
    scores = _summed(source)
    numbers = tuple(range(len(scores))) if layers is None else tuple(int(layer) for layer in layers)
    if len(numbers) != len(scores) or len(set(numbers)) != len(numbers):
        raise ValueError(f"layers is {numbers} for {len(scores)} layers of scores: give each its own number.")
    if isinstance(variant, str) and variant not in VARIANTS:
        raise ValueError(f"There is no variant {variant!r}: give {', '.join(VARIANTS)}, or Rules of your own.")
    names = tuple(str(i) for i in range(scores.shape[1])) if tokens is None else tuple(map(str, tokens))
    if len(names) != scores.shape[1]:
        raise ValueError(f"{len(names)} tokens were given for scores of {scores.shape[1]}: leave padding out of both.")
    reader = _terminal(terminal, scores)
    if attributed and np.delete(scores[np.argmax(numbers)], reader, axis=0).any():
        warnings.warn(
            "The last of these layers is read at more than one token: the classifier pools over tokens, or it is not "
            f"the model's last layer. The tree shows what one of them receives, {names[reader]!r}.",
            stacklevel=3,
        )
    units = _units(words, names, merge)
    if merge:
        first = [unit.start for unit in units]
        scores = np.add.reduceat(np.add.reduceat(scores, first, axis=1), first, axis=2)
    return Problem(
        scores=scores[np.argsort(numbers)],
        layers=tuple(sorted(numbers)),
        tokens=tuple(unit.token for unit in units),
        labels=tuple(unit.label for unit in units),
        words=tuple(unit.word for unit in units),
        segments=tuple(unit.segment for unit in units),
        starts=tuple(unit.start for unit in units),
        stops=tuple(unit.stop for unit in units),
        terminal=next(u for u, unit in enumerate(units) if reader < unit.stop),
        tau=_threshold("tau", tau),
        last_tau=_threshold("last_tau", last_tau),
        variant=variant if isinstance(variant, str) else "own",
        rules=VARIANTS[variant] if isinstance(variant, str) else variant,
        merged=merge,
        separators=frozenset(u for u, unit in enumerate(units) if names[unit.start] in SEPARATORS),
    )


def _summed(source: Any) -> np.ndarray:
    scores = np.asarray(source, dtype=np.float64)
    if scores.ndim == 4:
        scores = scores.sum(axis=1)
    if scores.ndim != 3 or scores.shape[1] != scores.shape[2] or not scores.size:
        raise ValueError(
            f"The scores have shape {np.shape(source)}: [layer, head, query, key] or, summed over heads, "
            "[layer, query, key] is needed, with as many queries as keys and none of them 0."
        )
    if not np.isfinite(scores).all():
        raise ValueError(
            f"{int((~np.isfinite(scores)).sum())} of {scores.size} scores are not finite numbers: no maximum can be "
            "taken. Attribute the text again, in float32 where the model is in half precision."
        )
    return scores


class _Unit(NamedTuple):
    token: str
    label: str
    word: str
    segment: int | None
    start: int
    stop: int


def _units(words: Sequence | None, names: tuple[str, ...], merge: bool) -> list[_Unit]:
    """Return the tokens, or the words where they are merged, in reading order."""
    if words is None:
        if merge:
            raise ValueError(
                "merge=True needs to know the words: pass an Attribution, which has them, or words=[(text, first "
                "token, token after the last, segment), ...]."
            )
        return [
            _Unit(name, name, name, s, i, i + 1)
            for i, (name, s) in enumerate(zip(names, _segments(names), strict=True))
        ]
    spans = [_span(word) for word in words]
    ends = [0, *(stop for _, _, stop, _ in spans)]
    if [start for _, start, _, _ in spans] != ends[:-1] or ends[-1] != len(names) or sorted(set(ends)) != ends:
        raise ValueError(
            f"The words don't cover the {len(names)} tokens one after another: each is (text, start, stop, segment)."
        )
    units = []
    for text, start, stop, segment in spans:
        pieces = names[start:stop]
        label = f"{text} ({pieces[0]})" if pieces[0] in UNKNOWN and len(pieces) == 1 else text
        if merge:
            units.append(_Unit(text, label, text, segment, start, stop))
        elif len(pieces) == 1:
            units.append(_Unit(pieces[0], label, text, segment, start, stop))
        else:
            units += [_Unit(piece, piece, text, segment, start + k, start + k + 1) for k, piece in enumerate(pieces)]
    return units


def _span(word: Any) -> tuple[str, int, int, int | None]:
    """Return a word's parts as plain text and ints (a file can hold no others)."""
    parts = tuple(word) if isinstance(word, Iterable) and not isinstance(word, str) else ()
    if len(parts) == 4:
        text, start, stop, segment = parts
        numbers = (start, stop) if segment is None else (start, stop, segment)
        if all(isinstance(number, Integral) for number in numbers):
            return str(text), int(start), int(stop), None if segment is None else int(segment)
    raise ValueError(
        f"{word!r:.80} is no word: each is (text, first token, token after the last, segment), where the segment is 0, "
        "1, or None for a special token."
    )


def _segments(names: tuple[str, ...]) -> list[int | None]:
    """Return each token's segment where no words say it: a separator, or a row of them, ends a segment."""
    segments: list[int | None] = []
    segment = 0
    for name, after in zip(names, (*names[1:], None), strict=True):
        segments.append(None if name in SPECIAL else segment)
        if name in SEPARATORS and after not in SEPARATORS:
            segment += 1
    return segments


def _terminal(terminal: int | None, scores: np.ndarray) -> int:
    count = scores.shape[1]
    if terminal is None:  # a causal model's last token is the only one that has read the whole text
        above, below = (np.any(half(scores, k)) for half, k in ((np.triu, 1), (np.tril, -1)))
        return count - 1 if below and not above else 0
    if isinstance(terminal, bool) or not isinstance(terminal, int | np.integer) or not -count <= terminal < count:
        raise ValueError(f"terminal is {terminal!r}: give the position of the token that is read, 0 to {count - 1}.")
    return int(terminal) % count


def _threshold(name: str, value: float) -> float:
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 <= float(value) <= 1 or math.isnan(value):
        raise ValueError(f"{name} is {value!r}: it is a share of the layer's maximum, from 0 to 1.")
    return float(value)
