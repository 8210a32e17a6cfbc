"""Models built by hand: the scores are those of the pencil."""

from __future__ import annotations

import math

import pytest
import torch

from helpers import toys
from helpers.attention import touch
from helpers.attribution import attribute_inputs
from helpers.paths import attribute_together
from helpers.toys import CLS, SINK, A, B, tokens


def scores(model, *kinds, **options) -> torch.Tensor:
    """The scores [layer, head, query, key] of one text, exact: every path here is a polynomial of low degree."""
    options = {"steps": 4, "rule": "gauss", "output": "logit", "target": torch.tensor([0])} | options
    return attribute_inputs(model, tokens(*kinds), **options).scores[0]


def logits(model, batch) -> torch.Tensor:
    with torch.no_grad():
        return model(**batch).logits


def only(shape: torch.Size, **links: float) -> torch.Tensor:
    """Zeros but for links written as l<layer>h<head>q<query>k<key>."""
    expected = torch.zeros(shape, dtype=torch.float64)
    for name, value in links.items():
        layer, head, query, key = (int(part) for part in name[1:].translate(str.maketrans("hqk", "   ")).split())
        expected[layer, head, query, key] = value
    return expected


@pytest.mark.parametrize(
    "readout, one, two",
    [(toys.both, 1 / 2, 1 / 2), (toys.either, 1 / 2, 1 / 2), (toys.against, 0, 1 / 2), (toys.first, 1, 0)],
)
def test_pairs(readout, one, two):
    found = scores(toys.pair(readout), A, B)
    assert torch.allclose(found, only(found.shape, l0h0q0k1=one, l0h0q0k2=two), atol=1e-12)


def test_layers_that_depend_on_each_other():
    model = toys.relay()
    found = scores(model, A, B)
    assert torch.allclose(found, only(found.shape, l0h0q2k1=1, l1h0q0k2=1), atol=1e-12)
    together = attribute_together(model, tokens(A, B), steps=4, output="logit")
    assert torch.allclose(together.scores[0], found / 2, atol=1e-12) and together.gap.abs().max() < 1e-12


def test_layers_of_which_one_is_enough():
    model = toys.twice()
    assert scores(model, A, B).abs().max() < 1e-12
    together = attribute_together(model, tokens(A, B), steps=4, output="logit")
    expected = only(together.scores.shape[1:], l0h0q0k1=1 / 2, l1h0q0k1=1 / 2)
    assert torch.allclose(together.scores[0], expected, atol=1e-12)
    assert float(together.value) == pytest.approx(1) and float(together.start) == pytest.approx(0)


def test_a_sink_gets_nothing_and_matters():
    model = toys.sink()
    found = scores(model, A, SINK)
    assert torch.allclose(found, only(found.shape, l0h0q0k1=1 / 4), atol=1e-12)
    hidden = tokens(A, SINK)
    hidden["attention_mask"][0, 2] = 0
    assert float(logits(model, hidden)) == pytest.approx(1)


@pytest.mark.parametrize("amount", [0.0, 5.0])
def test_heads_that_cancel(amount):
    found = scores(toys.cancelling(amount), A, B)
    assert torch.allclose(found[0, :, 0, 1], torch.tensor([1, amount, -amount], dtype=torch.float64), atol=1e-12)
    every = toys.every_text(3)
    assert torch.allclose(logits(toys.cancelling(amount), every), logits(toys.cancelling(), every), atol=1e-12)


def test_early_and_late_are_one_function():
    every = toys.every_text(3)
    assert every["input_ids"].shape == (27, 4) and len(every["input_ids"].unique(dim=0)) == 27
    early, late = logits(toys.early(), every), logits(toys.late(), every)
    assert torch.allclose(early, late, atol=1e-12) and len(early.unique()) == 2
    one, other = scores(toys.early(), A, B), scores(toys.late(), A, B)
    assert torch.allclose(one, other.flip(0), atol=1e-12)
    assert torch.allclose(one, only(one.shape, l0h0q0k1=1), atol=1e-12)


def test_attention_is_what_the_head_says():
    head = toys.Head({A: 0.0, B: math.log(2)})
    model = toys.build([[head, head]], toys.first)
    with touch(model, record=True) as seen, torch.no_grad():
        model(**tokens(A, B, SINK))
    expected = torch.tensor([0, 1 / 3, 2 / 3, 0], dtype=torch.float64)
    assert torch.allclose(seen.attention[0], expected.expand(1, 2, 4, 4), atol=1e-12)
    assert seen.attention[0][..., CLS].max() == 0


def test_where_no_kind_fits_all_tokens_are_read_equally():
    """NEVER is a finite number, and a softmax has to give its weight to something."""
    model = toys.early()
    with touch(model, record=True) as seen, torch.no_grad():
        model(**tokens(B, B))
    assert torch.allclose(seen.attention[0], torch.tensor(1 / 3, dtype=torch.float64), atol=1e-12)


def test_paths_under_inference_mode_and_what_they_refuse():
    model, batch = toys.pair(toys.both), tokens(A, B)
    expected = attribute_together(model, batch, output="logit").scores
    with torch.inference_mode():
        made = tokens(A, B)
        assert torch.equal(attribute_together(model, made, output="logit").scores, expected)
    with pytest.raises(ValueError, match="layers is \\[1\\]: give numbers from 0 to 0"):
        attribute_together(model, batch, layers=[1])
    with pytest.raises(ValueError, match="target is .*: a class from 0 to 0 is needed for every row"):
        attribute_together(model, batch, target=torch.tensor([1]))
