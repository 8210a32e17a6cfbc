"""Passes that begin at a layer: the layers below run once, results are equal, nothing is left behind."""

from __future__ import annotations

import pytest
import torch
from families import FAMILIES, inputs, make

from helpers.attention import touch
from helpers.attribution import attribute_inputs
from helpers.blocks import Blocks


@pytest.mark.parametrize("family", FAMILIES)
def test_a_pass_begun_anywhere_equals_the_whole_pass(family):
    model, batch = make(family), inputs("right")
    rows = torch.tensor([2, 0, 0])
    copies = {name: tensor[rows] for name, tensor in batch.items()}
    with touch(model, record=True) as session, torch.no_grad():
        blocks = Blocks(model, session)
        with blocks.watch():
            model(**batch)
        assert blocks.complete and len(blocks.calls) == session.calls == 3
        whole = model(**copies).logits
        weights = session.attention[2]
        for layer in range(3):
            with blocks.begin_at(layer, rows):
                for _ in range(2):  # a second pass inside counts from the start again
                    assert torch.allclose(model(**copies).logits, whole, atol=1e-12)
                    assert torch.allclose(session.attention[2], weights, atol=1e-12)
                    assert sorted(session.attention) == list(range(layer, 3)), "what is left out is not read"


def test_layers_below_run_once():
    model, batch = make("bert"), inputs("right")
    runs = []
    for number, layer in enumerate(model.bert.encoder.layer):
        layer.intermediate.register_forward_hook(lambda *_, number=number: runs.append(number))
    attribute_inputs(model, batch, steps=5, layers=[2])
    assert [runs.count(number) for number in range(3)] == [1, 1, 3], "once; and in layer 2 also at 0 and at 5 points"


@pytest.mark.parametrize("family", ["bert", "albert"])
def test_where_passes_cannot_begin_at_a_layer_the_result_is_the_same(family, monkeypatch):
    model, batch = make(family), inputs("right")
    expected = attribute_inputs(model, batch, steps=3).scores
    monkeypatch.setattr(Blocks, "complete", property(lambda self: False))
    assert torch.allclose(attribute_inputs(model, batch, steps=3).scores, expected, atol=1e-13)


def test_what_happens_between_blocks_is_noticed():
    """A block whose output is changed before the next one reads it must not be replayed."""
    model, batch = make("bert"), inputs("right")
    first = model.bert.encoder.layer[1]
    first.register_forward_pre_hook(lambda module, args: (args[0] * 1.5, *args[1:]))
    with touch(model) as session, torch.no_grad():
        blocks = Blocks(model, session)
        with blocks.watch():
            model(**batch)
    assert not blocks.complete


def test_the_modules_are_restored_after_an_error():
    model, batch = make("bert"), inputs("right")
    with touch(model) as session, torch.no_grad():
        blocks = Blocks(model, session)
        with blocks.watch():
            model(**batch)
        with pytest.raises(KeyError), blocks.begin_at(2, torch.arange(3)):
            raise KeyError
    for module in model.modules():
        assert "forward" not in vars(module)
        assert not module._forward_hooks and not module._forward_pre_hooks
