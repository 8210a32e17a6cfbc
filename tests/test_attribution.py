"""Attribution against the plain algorithm, closed forms, and what its callers may get wrong."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from families import FAMILIES, inputs, make, reference

from helpers.attribution import attribute_inputs
from helpers.quadrature import points_and_weights

TARGET = torch.tensor([2, 0, 1])


def difference(ours: torch.Tensor, theirs: np.ndarray) -> float:
    """The largest difference, padding included, relative to the largest score of the layer."""
    scale = np.abs(theirs).max(axis=(2, 3, 4), keepdims=True)
    assert (scale > 1e-6).all(), "the reference is trivial"
    return float(np.abs((ours.numpy() - theirs) / scale).max())


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("side", [None, "right", "left"])
@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
@pytest.mark.parametrize("dtype, bound", [(torch.float64, 1e-10), (torch.float32, 1e-5)])
def test_equals_brute_force(family, side, implementation, dtype, bound):
    model = make(family, implementation=implementation, dtype=dtype)
    batch = inputs(side)
    target = TARGET[: len(batch["input_ids"])]
    theirs, attention = reference(model, batch, target, *points_and_weights("right", 7))
    ours = attribute_inputs(model, batch, target=target, steps=7, rule="right")
    assert difference(ours.scores, theirs) < bound
    assert difference(ours.attention, attention) < bound
