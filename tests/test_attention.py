"""Touching a model: what is read, what is changed, and that nothing is left behind."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from families import FAMILIES, inputs, make
from transformers import AutoModelForSequenceClassification, DebertaV2Config

from helpers.attention import UnsupportedModelError, gate_heads, keep_edges, scale_layer, touch


def logits(model, batch):
    with torch.no_grad():
        return model(**batch).logits


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("side", ["right", "left"])
def test_reading_changes_nothing(family, side):
    model, batch = make(family), inputs(side)
    plain = logits(model, batch)
    with touch(model, record=True) as seen:
        touched = logits(model, batch)
        assert seen.calls == len(seen.attention) == 3
        assert torch.allclose(seen.context(1), seen.attention[1] @ seen.values[1])
    assert torch.allclose(plain, touched, atol=1e-12)
    real = batch["attention_mask"].bool()
    for weights in seen.attention.values():
        assert torch.allclose(weights.sum(-1), torch.ones((), dtype=weights.dtype))
        on_padding = weights.permute(0, 2, 3, 1)[real[:, :, None] & ~real[:, None, :]]
        assert on_padding.abs().max() == 0, "a real token attends to padding"


def test_without_the_mask_function_padding_would_be_attended():
    """The guard that the mask function is registered: a padded batch equals its texts one by one."""
    model, batch = make("bert"), inputs("right")
    with touch(model):
        together = logits(model, batch)
        for row, length in enumerate((9, 5, 7)):
            alone = logits(model, {name: tensor[row : row + 1, :length] for name, tensor in batch.items()})
            assert torch.allclose(together[row], alone[0], atol=1e-12)


@pytest.mark.parametrize("family", FAMILIES)
def test_gates_change_outputs_and_open_gates_do_not(family):
    model, batch = make(family), inputs("right")
    plain = logits(model, batch)
    for layer in range(3):
        gates = np.ones((3, 4))
        with touch(model, factors=gate_heads(gates)):
            assert torch.allclose(plain, logits(model, batch), atol=1e-12)
        gates[layer, 1] = 0
        with touch(model, factors=gate_heads(gates)) as seen:
            seen.record = True
            assert (logits(model, batch) - plain).abs().max() > 1e-6
            assert (seen.attention[layer][:, 1] == 0).all() and (seen.attention[layer][:, 0] > 0).any()


def test_a_gate_equals_zeroed_output_weights():
    """Head 2 of layer 1 off is the same model with that head's columns of the output projection set to 0."""
    model, batch = make("bert"), inputs("right")
    gates = torch.ones(3, 4)
    gates[1, 2] = 0
    with touch(model, factors=gate_heads(gates)):
        gated = logits(model, batch)
    dense = model.bert.encoder.layer[1].attention.output.dense
    dense.weight.data[:, 2 * 6 : 3 * 6] = 0
    assert torch.allclose(gated, logits(model, batch), atol=1e-12)


def test_scaling_a_layer_per_row_equals_one_by_one():
    model, batch = make("bert"), inputs("right")
    factors = torch.tensor([0.0, 0.3, 0.9], dtype=torch.float64)
    with touch(model, factors=scale_layer(1, factors)):
        together = logits(model, batch)
    for row, a in enumerate(factors):  # 0.3 has to arrive with all its digits
        with touch(model, factors=scale_layer(1, float(a))):
            assert torch.allclose(together[row], logits(model, batch)[row], rtol=0, atol=1e-12)
    with touch(model, factors=scale_layer(1, 1.0)):
        assert torch.allclose(logits(model, batch), logits(model, {**batch}), atol=1e-12)


def test_keeping_all_edges_is_the_identity_and_keeping_none_is_factor_zero():
    model, batch = make("bert"), inputs("right")
    plain = logits(model, batch)
    with touch(model, factors=keep_edges(torch.ones(3, 9, 9, dtype=torch.bool))):
        assert torch.allclose(plain, logits(model, batch), atol=1e-12)
    edges = torch.ones(3, 4, 9, 9, dtype=torch.bool)
    edges[2] = False
    with touch(model, factors=keep_edges(edges)):
        none = logits(model, batch)
    with touch(model, factors=scale_layer(2, 0.0)):
        assert torch.allclose(none, logits(model, batch), atol=1e-12)
    assert not torch.allclose(none, plain, atol=1e-6)


def test_a_replaced_context_is_what_the_rest_of_the_model_sees():
    model, batch = make("bert"), inputs("right")
    with touch(model, record=[1]) as seen:
        plain = logits(model, batch)
        context = seen.context(1)
    with touch(model, contexts={1: context}) as changed:
        assert torch.allclose(plain, logits(model, batch), atol=1e-12)
        changed.contexts = {1: context * 0}
        zero = logits(model, batch)
    with touch(model, factors=scale_layer(1, 0.0)):
        assert torch.allclose(zero, logits(model, batch), atol=1e-12)


def test_gradients_flow_through_what_is_recorded():
    model, batch = make("bert"), inputs("right")
    with touch(model, record=[0]) as seen:
        output = model(**batch).logits[:, 0].sum()
        gradient = torch.autograd.grad(output, seen.attention[0])[0]
    assert gradient.shape == (3, 4, 9, 9) and gradient.abs().max() > 0


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("fails", [True, False])
def test_the_model_is_restored(implementation, training, fails):
    model, batch = make("bert", implementation=implementation), inputs("right")
    model.train(training)
    model.bert.encoder.layer[1].eval()  # a module in another mode than its model
    modes = [module.training for module in model.modules()]
    hooks = len(model._forward_hooks) + len(model._forward_pre_hooks)
    try:
        with touch(model, record=True):
            assert not any(module.training for module in model.modules())
            logits(model, batch)
            if fails:
                raise KeyError("something inside")
    except KeyError:
        assert fails
    assert model.config._attn_implementation == model.bert.config._attn_implementation == implementation
    assert [module.training for module in model.modules()] == modes
    assert len(model._forward_hooks) + len(model._forward_pre_hooks) == hooks


def test_blocks_nest_and_the_inner_one_sees_the_outer_change():
    model, batch = make("bert", implementation="sdpa"), inputs("right")
    plain = logits(model, batch)
    gates = torch.ones(3, 4)
    gates[0, 0] = 0
    with touch(model, factors=gate_heads(gates)):
        gated = logits(model, batch)
        with touch(model, record=True) as inner:
            assert torch.allclose(gated, logits(model, batch), atol=1e-12)
            assert (inner.attention[0][:, 0] == 0).all()
        assert torch.allclose(gated, logits(model, batch), atol=1e-12)
        with pytest.raises(ZeroDivisionError), touch(model, factors=scale_layer(0, 0.0)):
            1 / 0  # noqa: B018
        assert torch.allclose(gated, logits(model, batch), atol=1e-12)
    assert torch.allclose(plain, logits(model, batch), atol=1e-12)
    assert model.config._attn_implementation == "sdpa"


def test_two_models_in_nested_blocks_do_not_mix():
    one, two, batch = make("bert"), make("bert", seed=5), inputs("right")
    plain = logits(two, batch)
    with touch(one, factors=scale_layer(0, 0.0)), touch(two):
        assert torch.allclose(plain, logits(two, batch), atol=1e-12)
    with touch(one, factors=scale_layer(0, 0.0)):
        assert torch.allclose(plain, logits(two, batch), atol=1e-12)


def test_what_cannot_be_touched_is_refused():
    config = DebertaV2Config(
        vocab_size=60, hidden_size=24, num_hidden_layers=2, num_attention_heads=4, intermediate_size=32
    )
    deberta = AutoModelForSequenceClassification.from_config(config).train()
    with pytest.raises(UnsupportedModelError, match="ignores the attention switch"), touch(deberta):
        pass
    assert deberta.training
    with pytest.raises(UnsupportedModelError, match="AutoModel"), touch(torch.nn.Linear(2, 2)):
        pass


@pytest.mark.parametrize(
    "change, message",
    [
        ({"factors": scale_layer(3, 0.0)}, r"Layers \[3\] were named, but this model's layers are 0 to 2"),
        ({"record": [7]}, r"Layers \[7\]"),
        ({"contexts": {-1: torch.zeros(1)}}, r"Layers \[-1\]"),
        ({"factors": gate_heads(torch.ones(3, 5))}, r"factor of layer 0 has shape \(1, 5, 1, 1\)"),
        ({"factors": {0: torch.ones(9, 1, 1, 1)}}, "does not broadcast"),
        ({"factors": {0: torch.ones(1, 3, 4, 9, 9)}}, "does not broadcast"),
        ({"contexts": {0: torch.zeros(3, 4, 9, 7)}}, r"\[batch, head, query, dim\] = \(3, 4, 9, 6\)"),
    ],
)
def test_what_does_not_fit_is_said(change, message):
    model = make("bert")
    with pytest.raises(ValueError, match=message), touch(model, **change):
        logits(model, inputs("right"))
    assert model.config._attn_implementation == "eager"


@pytest.mark.parametrize("wrong", [lambda: gate_heads(torch.ones(4)), lambda: keep_edges(torch.ones(9, 9))])
def test_gates_and_edges_of_the_wrong_rank(wrong):
    with pytest.raises(ValueError, match="is needed"):
        wrong()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_runs_and_softmax_is_taken_in_float32(dtype):
    model, batch = make("bert", dtype=dtype), inputs("right")
    with touch(model, record=True) as seen:
        logits(model, batch)
    assert seen.attention[0].dtype == dtype
    assert (seen.attention[0].float().sum(-1) - 1).abs().max() < 0.02
