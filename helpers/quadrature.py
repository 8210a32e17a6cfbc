"""Points and weights for the integral over a in [0, 1] (paper section 3).

The paper sums at k/m, k = 1..m, on the right of every interval; the released code at k/m,
k = 0..m-1, on the left. Both err by O(1/m). The midpoint sum errs by O(1/m^2), and m Gauss-Legendre
points are exact for polynomials up to degree 2m - 1. Weights sum to 1 under every rule.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

RULES = ("right", "left", "midpoint", "gauss")


@lru_cache(maxsize=64, typed=True)  # typed: 20.0 must not be answered from what 20 left
def points_and_weights(rule: str, steps: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the points a_k in [0, 1] and weights w_k of a rule, so that sum_k w_k f(a_k) ~ integral of f.

    Args:
        rule: "right", "left", "midpoint" or "gauss".
        steps: the number of points, at least 1.

    Raises:
        ValueError: another rule, or steps that is no whole number of at least 1.

    >>> points_and_weights("right", 4)[0]
    array([0.25, 0.5 , 0.75, 1.  ])
    """
    check_steps(steps)
    if rule == "gauss":
        points, weights = np.polynomial.legendre.leggauss(steps)  # on [-1, 1]
        return _fixed((points + 1) / 2, weights / 2)
    offsets = {"right": 1.0, "left": 0.0, "midpoint": 0.5}
    if rule not in offsets:
        raise ValueError(f"The rule {rule!r} is not known: use one of {', '.join(RULES)}.")
    return _fixed((np.arange(steps) + offsets[rule]) / steps, np.full(steps, 1 / steps))


def _fixed(points: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    points.setflags(write=False)  # they are handed to every caller
    weights.setflags(write=False)
    return points, weights


def check_steps(steps: object, name: str = "steps") -> None:
    """Raise ValueError unless ``steps`` is a whole number of at least 1; ``name`` is what the message calls it."""
    if isinstance(steps, bool) or not isinstance(steps, int | np.integer) or steps < 1:
        raise ValueError(f"{name} is {steps!r}: a whole number of at least 1 is needed.")
