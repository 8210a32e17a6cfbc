"""Which class of a model is which label of a table: matched by name, and checked against the answers."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pandas as pd
from scipy.optimize import linear_sum_assignment
from scipy.stats import binomtest

ALPHA = 0.01
"""How improbable a result has to be before the order of the labels is blamed."""
GAIN = 0.15
"""The share of the examples that another order has to be better by, where the accuracy is not under 1/classes."""

ONE_ANSWER = 0.9
"""The share of the answers that one class has where the model may just not tell the classes apart."""


class LabelOrderError(ValueError):
    """A model's label names do not fit its answers.

    Attributes:
        labels: the names in the order of the logits that fit the sample best.
        accuracy: what was found with the names as they are.
        possible: the accuracy with ``labels``.
        examples: size of the sample.
    """

    def __init__(self, message: str, labels: Sequence[str], accuracy: float, possible: float, examples: int):
        super().__init__(message)
        self.labels, self.accuracy, self.possible, self.examples = tuple(labels), accuracy, possible, examples


def plain(name: object) -> str:
    """A label's name without what spellings differ in."""
    return str(name).strip().casefold().replace("-", "_").replace(" ", "_")


def _same(name: str, names: Sequence[str]) -> str | None:
    """The one of ``names`` that is meant: spelt the same or, where a single one is alike when plain, that one."""
    if name in names:
        return name
    alike = {other for other in names if plain(other) == plain(name)}
    return alike.pop() if len(alike) == 1 else None


def check_columns(frame: pd.DataFrame, needed: Iterable[str]) -> None:
    """Refuse a table without rows, or without one of the columns needed."""
    missing = set(needed) - set(getattr(frame, "columns", ()))
    if missing or not len(frame):
        raise ValueError(
            f"The table has no {', '.join(sorted(missing)) or 'rows'}: give one as helpers.data.load or read returns. "
            "Read a file of yours by data.read('mine.tsv', first='your text column', label='your label column')."
        )


def check_table(frame: pd.DataFrame) -> None:
    """Refuse a table without rows, or without a label in every one."""
    check_columns(frame, ("first", "second", "label", "label_id"))
    if not frame.index.is_unique:
        raise ValueError("The table's index repeats itself: give table.reset_index(drop=True).")
    blank = frame["label"].isna() | (frame["label"] == "") | (frame["label_id"] == -1)
    if blank.any():
        raise ValueError(
            f"{blank.sum()} of {len(frame)} rows have no label (label_id -1): take them out, or name the column "
            'with the labels, data.read(path, first=..., label="...").'
        )


def match(
    own: Sequence[str], frame: pd.DataFrame, labels: Sequence[str] | Mapping[str, str] | None = None
) -> tuple[list[str], np.ndarray]:
    """Return the classes, those of the table first and in its order, and for every logit the number of its class.

    Args:
        own: the model's names, in the order of its logits.
        frame: labelled texts that passed :func:`check_table`.
        labels: see :func:`helpers.evaluate.evaluate`.

    Raises:
        ValueError: the names do not fit.
    """
    own = [str(name) for name in own]
    gold = frame.drop_duplicates("label").sort_values("label_id")["label"].tolist()
    stated = _stated(own, labels)
    spelt = Counter(plain(name) for name in own) if labels is None else Counter()
    # Two classes of the model that a table's one label could mean are told apart by their spelling, or not at all.
    names = [(_same(name, gold) if name in gold or spelt[plain(name)] < 2 else None) or name for name in stated]
    if (labels is None and len(set(own)) < len(own)) or not set(gold) <= set(names):
        raise ValueError(_no_match(gold, stated))
    classes = list(dict.fromkeys([*gold, *names]))
    return classes, np.array([classes.index(name) for name in names])


def _no_match(gold: list[str], names: list[str]) -> str:
    found = f"The table has the labels {gold}, the model {names}"
    if len(names) < len(gold):
        return f"{found}, which are fewer: rename labels in the table so that each is a class of the model."
    known = {plain(name): name for name in gold}
    absent = [name for name in gold if plain(name) not in map(plain, names)] or gold
    others = [name for name in names if plain(name) not in known] or names
    guess = dict(zip(others, absent + absent[-1:] * len(others), strict=False))
    example = [guess.get(name, known.get(plain(name))) for name in names]
    return (
        f"{found}: say which is which, all in the order of the logits, such as labels={example}, or those that differ, "
        f"such as labels={guess}. Classes that get the same name are merged."
    )


def _stated(own: list[str], labels: Sequence[str] | Mapping[str, str] | None) -> list[str]:
    """The class names in the order of the logits: the model's own, or what ``labels`` states instead."""
    if labels is None:
        return own
    if isinstance(labels, Mapping):
        stated = {_same(str(name), own): str(value) for name, value in labels.items()}
        unknown = [name for name in labels if _same(str(name), own) is None]
        if unknown:
            raise ValueError(f"labels names {unknown}, which the model does not have. It has {own}.")
        return [stated.get(name, name) for name in own]
    if isinstance(labels, str) or len(labels) != len(own):
        raise ValueError(f"labels is {labels!r}: give {len(own)} names, one for each of the model's {own}.")
    return [str(name) for name in labels]


def check_order(confusion: np.ndarray, classes: Sequence[str], column: np.ndarray) -> None:
    """Raise :class:`LabelOrderError` where the names of the classes do not fit what the model answers.

    That is where the accuracy is under 1/classes by more than chance explains (exact binomial test, one-sided,
    p < ALPHA), or where another order would be right in GAIN more of the examples, as when two of three names are
    swapped (sign test over the examples whose verdict changes, p < ALPHA). Under 1/classes by what may be chance is
    a warning.

    Args:
        confusion: counts [gold, predicted].
        classes: their names.
        column: for every logit the number of its class.
    """
    examples, right, k = int(confusion.sum()), int(confusion.trace()), len(classes)
    if k < 2:
        return
    # Counts decide; the small diagonal lets a class keep its name where nothing speaks against it.
    gold, predicted = linear_sum_assignment(confusion + np.eye(k) / (k + 1), maximize=True)
    fits = gold[np.argsort(predicted)]  # the class that answers of each class are most often right for
    moved = np.flatnonzero(fits != np.arange(k))
    won, lost = int(confusion[fits[moved], moved].sum()), int(confusion[moved, moved].sum())
    under = right / examples < 1 / k
    chance = binomtest(right, examples, 1 / k, alternative="less").pvalue
    luck = binomtest(won, won + lost, alternative="greater").pvalue if won + lost else 1.0
    if (under and chance < ALPHA) or ((won - lost) / examples >= GAIN and luck < ALPHA):
        best = [classes[fits[c]] for c in column]
        possible = (right + won - lost) / examples
        message = _wrong_order(right, examples, possible, best, under) + _one_answer(confusion, classes)
        raise LabelOrderError(message, best, right / examples, possible, examples)
    if under:
        warnings.warn(
            f"{right} of {examples} right is under 1/{k}, which may be chance with so few examples: make sure on more "
            f"of them that the labels are {[classes[c] for c in column]} in the order of the logits.",
            stacklevel=3,
        )


def _wrong_order(right: int, examples: int, possible: float, best: list[str], under: bool) -> str:
    # Under 1/classes some other order is always better: over all orders, the mean accuracy is 1/classes.
    found = f"{right:,} of {examples:,} right ({right / examples:.1%})"
    found += f", under 1/{len(set(best))} by more than chance explains" if under else ""
    return (
        f"{found}. Unless the texts are made to fool it, the model's labels are in another order. With labels={best}, "
        f"in the order of the logits, {possible:.1%} are right: pass that, and give the model's config these names. "
        "check=False measures it as it is."
    )


def _one_answer(confusion: np.ndarray, classes: Sequence[str]) -> str:
    """The other cause that there may be, where nearly all answers are the same; else nothing."""
    answers, examples = confusion.sum(axis=0), int(confusion.sum())
    most = int(answers.argmax())
    if answers[most] < ONE_ANSWER * examples:
        return ""
    return (
        f" But it says {classes[most]!r} for {int(answers[most]):,} of {examples:,} texts: it may as well be that it "
        "can't tell the classes apart, because it was trained too little or on texts of another kind; then no order "
        "helps."
    )
