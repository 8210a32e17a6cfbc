"""Accuracy while heads go: curves, their areas and intervals, paired comparisons (a part of :mod:`helpers.pruning`)."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from scipy import stats


@dataclass(frozen=True)
class Curve:
    """Which examples are right while heads go.

    Attributes:
        name: of the order.
        shares: of the heads that are off, [setting], rising.
        right: bool [setting, example].
        seed: of the bootstrap.
    """

    name: str
    shares: np.ndarray
    right: np.ndarray
    seed: int = field(default=0, repr=False)

    @property
    def accuracy(self) -> np.ndarray:
        """Share of the examples that are right, [setting]."""
        return self.right.mean(axis=1)

    @property
    def area(self) -> float:
        """Area under the accuracy over the shares, by trapezoids, divided by their range: a mean accuracy.

        Raises:
            ValueError: the shares are all the same (one setting, say), so nothing lies under the curve.
        """
        return float(self._areas().mean())

    def _areas(self) -> np.ndarray:
        """The area of every example; their mean is the curve's."""
        if not np.ptp(self.shares) > 0:
            raise ValueError(
                f"{self.name} was measured at {len(self.shares)} setting(s) of one share, {self.shares[0]:g}: an area "
                "needs two shares or more. Take .accuracy, or more counts."
            )
        return np.trapezoid(self.right.astype(float), self.shares, axis=0) / np.ptp(self.shares)

    def interval(self, level: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
        """Return the bounds of the accuracy, by bootstrap over examples, two arrays [setting]."""
        return interval(self.right.T, level=level, seed=self.seed)

    def removable(self, within: float = 0.01) -> float:
        """Return the largest share of heads up to which the accuracy stays ``within`` reach of its start or above."""
        kept = self.accuracy >= self.accuracy[0] - within - 1e-9
        return float(self.shares[np.argmin(kept) - 1] if not kept.all() else self.shares[-1])


def interval(
    values: np.ndarray, *, level: float = 0.95, seed: int = 0, resamples: int = 2000, strata: np.ndarray | None = None
):
    """Return the bounds of the mean over the first axis, by percentile bootstrap over that axis.

    Args:
        values: [example, ...].
        strata: the group of each example, such as its class, int [example]. Each group is then resampled within itself
            and keeps its size, as in a sample that was drawn group by group. A group of one can't vary, which would
            pass for certainty: the bounds are then nan.
    """
    values = np.asarray(values, dtype=float)
    if len(values) < 2:
        raise ValueError(f"A bootstrap over {len(values)} example says nothing: give at least 2.")
    if strata is not None and np.shape(strata) != values.shape[:1]:
        raise ValueError(f"strata has the shape {np.shape(strata)} for {len(values)} examples: give each its group.")
    groups = [values] if strata is None else [values[np.equal(strata, group)] for group in np.unique(strata)]
    if min(map(len, groups)) < 2:
        return np.full(values.shape[1:], np.nan)[()], np.full(values.shape[1:], np.nan)[()]
    found = stats.bootstrap(
        groups, _mean, confidence_level=level, n_resamples=resamples, method="percentile", axis=0, vectorized=True,
        rng=np.random.default_rng(seed), batch=max(1, int(2e7 // values.size)),
    )  # fmt: skip
    return found.confidence_interval.low, found.confidence_interval.high


def _mean(*groups: np.ndarray, axis: int) -> np.ndarray:
    """Return the mean over the examples of all groups."""
    return sum(group.sum(axis=axis) for group in groups) / sum(group.shape[axis] for group in groups)


@dataclass(frozen=True)
class Comparison:
    """Two curves over the same examples: the difference of their areas, its interval, and the p-value of none."""

    difference: float
    low: float
    high: float
    p: float


def compare(first: Curve, second: Curve, *, level: float = 0.95, seed: int = 0) -> Comparison:
    """Return area(first) - area(second), paired by example: bootstrap interval and sign-flip permutation test."""
    if first.right.shape != second.right.shape or not np.allclose(first.shares, second.shares):
        raise ValueError(
            f"{first.name} and {second.name} were not measured on the same shares and examples "
            f"({first.right.shape} and {second.right.shape}): make both curves from the same texts and counts."
        )
    difference = first._areas() - second._areas()
    low, high = interval(difference, level=level, seed=seed)
    test = stats.permutation_test(
        (difference,), np.mean, permutation_type="samples", vectorized=True, n_resamples=4999,
        rng=np.random.default_rng(seed), batch=max(1, int(2e7 // difference.size)),
    )  # fmt: skip
    return Comparison(float(difference.mean()), float(low), float(high), float(test.pvalue))
