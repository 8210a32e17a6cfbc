"""Points and weights for the integral over a in [0, 1] (paper section 3).

The paper sums at k/m, k = 1..m, on the right of every interval; the released code at k/m,
k = 0..m-1, on the left. Both err by O(1/m). The midpoint sum errs by O(1/m^2), and m Gauss-Legendre
points are exact for polynomials up to degree 2m - 1. Weights sum to 1 under every rule.

The nested rule begins with four Gauss points and adds the points of Kronrod's and Patterson's extensions: 9, 19, 39
and 79 points, each set holding the one before, so that no gradient is computed twice. Of a set of n points the
weights make polynomials up to degree 3n/2 exact (7 for the first four).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.polynomial import legendre

RULES = ("right", "left", "midpoint", "gauss", "nested")
NESTED = (4, 9, 19, 39, 79)  # numbers of points of the nested rule


@lru_cache(maxsize=64, typed=True)  # typed: 20.0 must not be answered from what 20 left
def points_and_weights(rule: str, steps: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the points a_k in [0, 1] and weights w_k of a rule, so that sum_k w_k f(a_k) ~ integral of f.

    Args:
        rule: "right", "left", "midpoint", "gauss", or "nested", whose points come in the order in which they are added.
        steps: the number of points, at least 1; for "nested" one of 4, 9, 19, 39, 79.

    Raises:
        ValueError: another rule, or steps that is no whole number of at least 1.

    >>> points_and_weights("right", 4)[0]
    array([0.25, 0.5 , 0.75, 1.  ])
    """
    check_steps(steps)
    if rule == "gauss":
        points, weights = legendre.leggauss(steps)  # on [-1, 1]
        return _fixed((points + 1) / 2, weights / 2)
    if rule == "nested":
        if steps not in NESTED:
            raise ValueError(
                f"The nested rule has {', '.join(map(str, NESTED))} points, not {steps}: use one of these."
            )
        points = _nested()[:steps]
        exact = np.eye(steps)[0] * 2  # integrals of the Legendre polynomials over [-1, 1]
        return _fixed((points + 1) / 2, np.linalg.solve(legendre.legvander(points, steps - 1).T, exact) / 2)
    offsets = {"right": 1.0, "left": 0.0, "midpoint": 0.5}
    if rule not in offsets:
        raise ValueError(f"The rule {rule!r} is not known: use one of {', '.join(RULES)}.")
    return _fixed((np.arange(steps) + offsets[rule]) / steps, np.full(steps, 1 / steps))


def stages(rules: Sequence[tuple[str, int]]) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return, for rules to be tried in turn, the points that each adds, and their weights in it and in all later rules.

    Args:
        rules: (rule, steps); a rule whose points begin with those of the one before adds the rest only.

    Returns:
        Of every rule its new points [point] and weights [rule, point], the first row for the rule itself.
    """
    tables, found, kept = [points_and_weights(*rule) for rule in rules], [], 0
    for i, (points, weights) in enumerate(tables):
        follows = i > 0 and np.array_equal(points[:kept], tables[i - 1][0])
        first = kept if follows else 0
        rows = [weights[first:]]
        for later, more in tables[i + 1 :]:
            same = np.array_equal(later[: len(points)], points)
            rows.append(more[first : len(points)] if same else np.zeros(len(points) - first))
        found.append((points[first:], np.stack(rows)))
        kept = len(points)
    return found


@lru_cache(maxsize=1)
def _nested() -> np.ndarray:
    """The points of the nested rule on [-1, 1], in the order in which they are added."""
    points = legendre.leggauss(NESTED[0])[0]
    while len(points) < NESTED[-1]:
        points = np.append(points, _extension(points))
    return points


def _extension(points: np.ndarray) -> np.ndarray:
    """Return the n + 1 points that extend n points best.

    They are the roots of the polynomial of degree n + 1 that, times the one with the given roots, is orthogonal to
    every polynomial of degree n.
    """
    n = len(points)
    x, w = legendre.leggauss(2 * n + 3)  # exact for every product below
    basis = legendre.legvander(x, n + 1)
    product = basis[:, : n + 1].T @ (basis * (w * np.prod(x[:, None] - points, axis=1))[:, None])
    product /= np.abs(product).max()
    roots = np.sort(legendre.legroots(np.append(np.linalg.solve(product[:, :-1], -product[:, -1]), 1)))
    return (roots - roots[::-1]) / 2  # symmetric about 0, to the last bit


def _fixed(points: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    points.setflags(write=False)  # they are handed to every caller
    weights.setflags(write=False)
    return points, weights


def check_steps(steps: object, name: str = "steps") -> None:
    """Raise ValueError unless ``steps`` is a whole number of at least 1; ``name`` is what the message calls it."""
    if isinstance(steps, bool) or not isinstance(steps, int | np.integer) or steps < 1:
        raise ValueError(f"{name} is {steps!r}: a whole number of at least 1 is needed.")
