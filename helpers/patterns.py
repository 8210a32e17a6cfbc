"""Error patterns: which links, or which words, recur in the explanations of wrong predictions.

An explanation says what one answer leaned on. Read over many answers, half of them wrong, it can say more: a link that
comes up again and again where the model errs, and seldom where it is right, is a suspect. For a pattern that is found
in w of W wrong and r of R right predictions

    lift = (w / (w + r)) / (W / (W + R)),    odds ratio = w (R - r) / (r (W - w)) with 1/2 added to every count,

p is Fisher's exact test of "no more often where the model is wrong", and q its Benjamini-Hochberg correction for the
many patterns that were tried. A pattern that was found so is confirmed on other examples, where few are tried.

Attributions in, tables out, no model.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from numbers import Integral
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy import stats

from helpers._labels import plain

KINDS = ("links", "words")


class Pattern(NamedTuple):
    """A word, or two words that are linked, in lower case; str(pattern) is how it is written.

    Two words are in alphabetical order, or (receiver, giver) where the direction counts: "tuesday <- april".
    ``layer`` is None where it doesn't count.
    """

    words: tuple[str, ...]
    layer: int | None = None
    directed: bool = False

    def __str__(self) -> str:
        where = "" if self.layer is None else f" (layer {self.layer})"
        return (" ← " if self.directed else " – ").join(self.words) + where


@dataclass(frozen=True)
class Reading:
    """What of an explanation counts as a pattern.

    Attributes:
        kind: ``"links"`` between two different places with a word, or ``"words"``, what others receive from a word.
        k: how many an example has, the ones with the largest scores above 0.
        directed: tell "a receives from b" from "b receives from a".
        by_layer: tell the layers apart; else a link's largest score over the layers counts.
        stop: words, in lower case, that are left out. Special tokens and marks without a letter or digit always are.
    """

    kind: str = "links"
    k: int = 3
    directed: bool = False
    by_layer: bool = False
    stop: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"kind is {self.kind!r}: give one of {', '.join(map(repr, KINDS))}.")
        if isinstance(self.k, bool) or not isinstance(self.k, Integral) or self.k < 1:
            raise ValueError(f"k is {self.k!r}: give the number of patterns an example has, at least 1.")
        if isinstance(self.stop, str):
            raise ValueError(f"stop is {self.stop!r}: give a set of words.")
        object.__setattr__(self, "stop", frozenset(word.lower() for word in self.stop))


@dataclass(frozen=True, eq=False)
class Mined:
    """What was found, and how.

    Attributes:
        table: a row a pattern, the most suspicious first: pattern, wrong and right (in how many predictions it is
            found), of_wrong and of_right (shares), lift, odds, low and high (its 95 % interval), p, q,
            significant (q at most alpha), says (the class that the wrong ones with it get most often), score (mean
            over the wrong ones that have it, unit of F), rows (positions of these, the largest score first).
        wrong, right: how many predictions there were of either kind.
        tested: how many patterns were tested, which is what q corrects for.
        reading, least, alpha: as given.
    """

    table: pd.DataFrame
    wrong: int
    right: int
    reading: Reading
    least: int
    alpha: float
    tested: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "tested", len(self.table))

    @property
    def significant(self) -> pd.DataFrame:
        """The rows that pass; none, where nothing recurs among the errors more than chance explains."""
        return self.table[self.table["significant"]]

    def __repr__(self) -> str:
        found = f"{len(self.significant)} with q at most {self.alpha:g}"
        if not self.tested:
            few = f"none is in {self.least} predictions or more: lower least, or give more examples"
            found = few if self.least else "there was none to confirm"
        return (
            f"Mined({self.tested} {self.reading.kind} in {self.wrong} wrong and {self.right} right predictions; "
            f"{found})"
        )


def patterns_of(attribution, reading: Reading | None = None) -> dict[Pattern, float]:
    """Return the patterns of one explanation with their scores, the largest first; ties in alphabetical order.

    The score of a link is summed over heads and over the pieces of its two words, a^l_ij, and of all layers (and both
    directions, and all places where the same two words stand) the largest counts. The score of a word is the sum of
    what all others, special tokens among them, receive from it in a layer; again the largest.

    Args:
        attribution: an :class:`helpers.result.Attribution`.
        reading: what counts; ``Reading()`` if None.
    """
    reading, found = _checked(reading), {}
    names = [_name(word, reading.stop) for word in attribution.words]
    for layer, matrix in zip(attribution.layers, _by_words(attribution), strict=True):
        for words, score in _scored(matrix, names, reading):
            pattern = Pattern(words, int(layer) if reading.by_layer else None, reading.directed and len(words) == 2)
            if score > max(0.0, found.get(pattern, 0.0)):
                found[pattern] = float(score)
    return dict(sorted(found.items(), key=lambda item: (-item[1], str(item[0])))[: reading.k])


def mine(
    attributions: Sequence, gold: Sequence[str | int], *, reading: Reading | None = None, least: int = 5,
    alpha: float = 0.05,
) -> Mined:  # fmt: skip
    """Return which patterns recur among wrong predictions, ranked by Fisher's p, then by how many wrong ones have it.

    Args:
        attributions: one an example, each of the class that the model predicted.
        gold: the right class of each, by name or by its number.
        reading: what counts as a pattern; ``Reading()`` if None.
        least: patterns found in fewer predictions, wrong and right together, are not tested. It must not look at
            which are wrong: a choice by that would make p too small.
        alpha: the share of false finds that is accepted among those called significant.

    Raises:
        ValueError: no or all predictions are wrong, so that there is nothing to compare; lengths that differ; an
            unknown class; or an explanation of another class than the predicted one.

    >>> found = mine(attribute(model, tokenizer, texts), frame["label"])
    >>> found.table.head()
    """
    reading = _checked(reading)
    if isinstance(least, bool) or not isinstance(least, Integral) or least < 1:
        raise ValueError(f"least is {least!r}: give a number of predictions, at least 1.")
    if not 0 < alpha < 1:
        raise ValueError(f"alpha is {alpha!r}: give a share between 0 and 1, such as 0.05.")
    wrong = _wrong(attributions, gold)
    found = [patterns_of(a, reading) for a in attributions]
    counts = Counter(pattern for each in found for pattern in each)
    tested = [pattern for pattern, count in counts.items() if count >= least]
    return Mined(_table(tested, found, wrong, attributions, alpha), *_counts(wrong), reading, int(least), alpha)


def confirm(mined: Mined, attributions: Sequence, gold: Sequence[str | int], *, first: int | None = None) -> Mined:
    """Return how the patterns found do on examples that had no part in finding them.

    Only these are tested, so q corrects for few; ``significant`` then means confirmed.

    Args:
        mined: from :func:`mine`, on other examples.
        attributions, gold: as for :func:`mine`.
        first: test so many from the top of the table, significant or not; None: the significant ones.

    Raises:
        ValueError: as for :func:`mine`.
    """
    if first is not None and (isinstance(first, bool) or not isinstance(first, Integral) or first < 1):
        raise ValueError(f"first is {first!r}: give how many patterns, at least 1, or None for the significant ones.")
    chosen = list((mined.significant if first is None else mined.table.head(first))["pattern"])
    wrong = _wrong(attributions, gold)
    found = [patterns_of(a, mined.reading) for a in attributions]
    table = _table(chosen, found, wrong, attributions, mined.alpha)
    return Mined(table, *_counts(wrong), mined.reading, 0, mined.alpha)


def _checked(reading: object) -> Reading:
    """Return the reading, the usual one for None; refuse what is none."""
    if reading is not None and not isinstance(reading, Reading):
        kind = reading if reading in KINDS else KINDS[0]
        raise ValueError(f"reading is {reading!r}: give Reading({kind!r}).")
    return reading or Reading()


def _wrong(attributions: Sequence, gold: Sequence[str | int]) -> np.ndarray:
    """Whether each prediction is wrong, bool [example]; refuses what can't be compared."""
    if hasattr(attributions, "scores"):
        raise ValueError("A single attribution was given: give a list, [a], and a list with its label.")
    if len(attributions) != len(gold):
        raise ValueError(f"{len(attributions)} attributions and {len(gold)} labels were given: one label each.")
    found = []
    for row, (a, label) in enumerate(zip(attributions, gold, strict=True)):
        if a.target != a.predicted:
            raise ValueError(
                f"Attribution {row} explains {a.labels[a.target]!r}, and the model says {a.labels[a.predicted]!r}: "
                "an error pattern is what the answer given leans on. Attribute with target=None."
            )
        found.append(_number(label, a.labels) != a.predicted)
    count = sum(found)
    if not count:
        raise ValueError(
            f"None of the {len(found)} predictions is wrong, so there is no error to find a pattern in: give more "
            "examples, or harder ones."
        )
    if count == len(found):
        raise ValueError(
            f"All {count} predictions are wrong, so there is nothing to compare them with: give right ones too, and "
            "see with helpers.evaluate whether the labels are in order."
        )
    return np.array(found)


def _number(label: str | int, labels: Sequence[str]) -> int:
    names = [plain(name) for name in labels]
    if isinstance(label, Integral) and not isinstance(label, bool) and 0 <= label < len(labels):
        return int(label)
    if isinstance(label, str) and plain(label) in names:
        return names.index(plain(label))
    raise ValueError(f"There is no class {label!r}: the model has {', '.join(map(str, labels))}.")


def _counts(wrong: np.ndarray) -> tuple[int, int]:
    return int(wrong.sum()), int((~wrong).sum())


def _name(word, stop: frozenset[str]) -> str | None:
    """A word as it counts in a pattern; None for special tokens, marks and words that are left out."""
    name = word.text.lower()
    counts = word.segment is not None and any(letter.isalnum() for letter in name) and name not in stop
    return name if counts else None


def _by_words(attribution) -> np.ndarray:
    """Scores summed over heads and the pieces of words, [layer, query, key]; 0 for what a word gives itself."""
    starts = [word.start for word in attribution.words]
    scores = attribution.layer_scores().astype(np.float64)
    merged = np.add.reduceat(np.add.reduceat(scores, starts, axis=1), starts, axis=2)
    merged[:, range(len(starts)), range(len(starts))] = 0.0
    return merged


def _scored(matrix: np.ndarray, names: Sequence[str | None], reading: Reading):
    """Yield the words of every pattern in a layer, and its score."""
    if reading.kind == "words":
        yield from (((name,), score) for name, score in zip(names, matrix.sum(axis=0), strict=True) if name)
        return
    for query, key in np.argwhere(matrix > 0):
        receiver, giver = names[query], names[key]
        if receiver and giver:
            words = (receiver, giver) if reading.directed else tuple(sorted((receiver, giver)))
            yield words, matrix[query, key]


def _table(tested: list[Pattern], found: list[dict], wrong: np.ndarray, attributions: Sequence, alpha: float):
    """The tested patterns with their counts and tests, the most suspicious first."""
    rows = []
    for pattern in tested:
        having = [row for row, each in enumerate(found) if pattern in each]
        errors = sorted((row for row in having if wrong[row]), key=lambda row: -found[row][pattern])
        says = Counter(attributions[row].labels[attributions[row].predicted] for row in errors).most_common(1)
        rows.append(
            {
                "pattern": pattern,
                **_statistics(len(errors), len(having) - len(errors), *_counts(wrong)),
                "says": says[0][0] if says else "",
                "score": float(np.mean([found[row][pattern] for row in errors])) if errors else np.nan,
                "rows": tuple(errors),
            }
        )
    table = pd.DataFrame(rows, columns=COLUMNS)
    q = stats.false_discovery_control(table["p"].astype(float)) if rows else np.array([])
    table = table.assign(q=q, significant=q <= alpha, written=table["pattern"].map(str))
    table = table.sort_values(["p", "wrong", "written"], ascending=[True, False, True], ignore_index=True)
    return table.drop(columns="written")


@cache
def _statistics(w: int, r: int, wrong: int, right: int) -> dict[str, float]:
    """Shares, lift, odds ratio with its interval after Woolf (1/2 added to each count), and Fisher's p."""
    cells = np.array([[w, r], [wrong - w, right - r]])
    (a, b), (c, d) = cells + 0.5
    odds, spread = a * d / (b * c), 1.96 * np.sqrt(1 / a + 1 / b + 1 / c + 1 / d)
    return {
        "wrong": w,
        "right": r,
        "of_wrong": w / wrong,
        "of_right": r / right,
        "lift": (w / (w + r)) / (wrong / (wrong + right)) if w + r else np.nan,
        "odds": odds,
        "low": odds * np.exp(-spread),
        "high": odds * np.exp(spread),
        "p": float(stats.fisher_exact(cells, alternative="greater").pvalue),
    }


COLUMNS = [
    "pattern", "wrong", "right", "of_wrong", "of_right", "lift", "odds", "low", "high", "p", "q", "significant",
    "says", "score", "rows",
]  # fmt: skip
