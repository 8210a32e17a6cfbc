"""Quadrature rules against integrals known in closed form."""

from __future__ import annotations

import numpy as np
import pytest

from helpers.quadrature import RULES, points_and_weights


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("steps", [1, 2, 7, 20, 64])
def test_weights_sum_to_one_and_points_lie_in_the_interval(rule, steps):
    points, weights = points_and_weights(rule, steps)
    assert len(points) == len(weights) == steps
    assert weights.sum() == pytest.approx(1, abs=1e-14)
    assert (np.diff(points) > 0).all() and points[0] >= 0 and points[-1] <= 1


def test_the_papers_and_the_released_points():
    assert points_and_weights("right", 4)[0].tolist() == [0.25, 0.5, 0.75, 1.0]
    assert points_and_weights("left", 4)[0].tolist() == [0.0, 0.25, 0.5, 0.75]
    assert points_and_weights("midpoint", 2)[0].tolist() == [0.25, 0.75]


@pytest.mark.parametrize("steps", [1, 2, 3, 6, 10])
def test_gauss_is_exact_up_to_degree_2m_minus_1_and_not_beyond(steps):
    points, weights = points_and_weights("gauss", steps)
    for degree in range(2 * steps):
        assert weights @ points**degree == pytest.approx(1 / (degree + 1), abs=1e-13)
    beyond = 2 * steps
    assert abs(weights @ points**beyond - 1 / (beyond + 1)) > 1e-13


@pytest.mark.parametrize("rule, order", [("right", 1), ("left", 1), ("midpoint", 2)])
def test_order_of_convergence(rule, order):
    errors = []
    for steps in (50, 100, 200):
        points, weights = points_and_weights(rule, steps)
        errors.append(abs(weights @ np.exp(points) - (np.e - 1)))
    assert np.log2(errors[0] / errors[1]) == pytest.approx(order, abs=0.05)
    assert np.log2(errors[1] / errors[2]) == pytest.approx(order, abs=0.05)


@pytest.mark.parametrize("steps", [0, -1, 2.5, 20.0, "20", None, True, np.nan])
def test_bad_steps(steps):
    with pytest.raises(ValueError, match="steps is"):
        points_and_weights("right", steps)


def test_bad_rule():
    with pytest.raises(ValueError, match="'simpson' is not known: use one of right, left, midpoint, gauss"):
        points_and_weights("simpson", 4)
