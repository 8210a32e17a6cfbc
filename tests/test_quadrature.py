"""Quadrature rules against integrals known in closed form."""

from __future__ import annotations

from itertools import pairwise, product

import numpy as np
import pytest
from numpy.polynomial import legendre

from helpers.quadrature import NESTED, RULES, points_and_weights, stages


@pytest.mark.parametrize("rule, steps", [*product(RULES[:-1], [1, 2, 7, 20, 64]), *product(["nested"], NESTED)])
def test_weights_sum_to_one_and_points_lie_in_the_interval(rule, steps):
    points, weights = points_and_weights(rule, steps)
    assert len(points) == len(weights) == steps
    assert weights.sum() == pytest.approx(1, abs=1e-12) and weights.min() > 0
    assert (np.diff(np.sort(points)) > 0).all() and points.min() >= 0 and points.max() <= 1


@pytest.mark.parametrize("steps, degree", [(4, 7), (9, 13), (19, 29), (39, 59), (79, 119)])
def test_nested_points_are_exact_up_to_their_degree_and_not_beyond(steps, degree):
    points, weights = points_and_weights("nested", steps)
    integrals = weights @ legendre.legvander(2 * points - 1, degree + 3)
    integrals[0] -= 1
    assert np.abs(integrals[: degree + 1]).max() < 1e-11
    if steps < 79:  # there it is lost in rounding
        assert np.abs(integrals[degree + 1 :]).max() > 1e-9


def test_nested_points_hold_those_before_them():
    for few, more in pairwise(NESTED):
        assert np.array_equal(points_and_weights("nested", more)[0][:few], points_and_weights("nested", few)[0])
    with pytest.raises(ValueError, match="The nested rule has 4, 9, 19, 39, 79 points, not 20"):
        points_and_weights("nested", 20)


def test_stages_add_up_to_each_rule():
    """Sums kept for all later rules, over new points only, are the rules' own sums."""
    rules = [("nested", 4), ("nested", 9), ("nested", 19), ("gauss", 24)]
    sums, taken = np.zeros(len(rules)), 0
    for i, (points, weights) in enumerate(stages(rules)):
        sums[i:] += weights @ np.exp(points)
        taken += len(points)
        assert sums[i] == pytest.approx(np.e - 1, abs=1e-8)
        own = points_and_weights(*rules[i])
        assert sums[i] == pytest.approx(own[1] @ np.exp(own[0]), abs=1e-14)
    assert taken == 19 + 24, "no point is taken twice but those of a rule that doesn't follow"


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
