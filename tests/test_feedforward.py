"""What feed-forward blocks carry: equal to plain gates in plain hooks, and complete along every path."""

from __future__ import annotations

import numpy as np
import pytest
import texts
import torch
from families import FAMILIES, make

from helpers.attention import UnsupportedModelError, touch
from helpers.attribution import attribute
from helpers.feedforward import SCALED, attribute_blocks
from helpers.quadrature import points_and_weights
from helpers.surgery import remove_heads

TWO = ["the film is very good", "a slow start but a wonderful end !"]
BLOCKS = {"bert": "bert", "roberta": "roberta", "xlm-roberta": "roberta", "electra": "electra"}
CUBE = {"scaled": "both", "steps": 24, "rule": "gauss"}


def loaded(family, **changes):
    model, tokenizer = make(family, **changes), texts.tokenizer_for(family)
    model.config.pad_token_id = tokenizer.pad_token_id
    return model, tokenizer


def gated(model, family, inputs, target, attention, feedforward):
    """F with gates written by hand: on what goes into W_O, and on what the second dense layer gives, by token.

    attention [layer, 1], feedforward [layer, token]. Nothing of the package is used.
    """
    layers, hooks = getattr(model, BLOCKS[family]).encoder.layer, []
    for layer, g_a, g_f in zip(layers, attention, feedforward, strict=True):
        scale_in = lambda module, args, g=g_a: (args[0] * g, *args[1:])  # noqa: E731
        scale_out = lambda module, args, output, g=g_f: output * g[:, None]  # noqa: E731
        hooks.append(layer.attention.output.dense.register_forward_pre_hook(scale_in))
        hooks.append(layer.output.dense.register_forward_hook(scale_out))
    try:
        return model(**inputs).logits.softmax(-1)[0, target]
    finally:
        for hook in hooks:
            hook.remove()


def by_hand(family, model, tokenizer, text, target, scaled, layers, steps):
    """Sum_k w_k dF/d(gate) along the path: of attention [layer], of feed-forward [layer, token]; and F at its start."""
    inputs = tokenizer(text, return_tensors="pt")
    depth, n = model.config.num_hidden_layers, inputs["input_ids"].shape[1]
    chosen = torch.zeros(depth, 1, dtype=torch.float64)
    chosen[list(layers)] = 1

    def gates(a, part):
        moved = scaled in (part, "both")
        return 1 - chosen * (1 - a) if moved else torch.ones(depth, 1, dtype=torch.float64)

    attention, feedforward = torch.zeros(depth), torch.zeros(depth, n)
    for a, w in zip(*points_and_weights("gauss", steps), strict=True):
        g_a = gates(a, "attention").clone().requires_grad_()
        g_f = gates(a, "feed-forward").expand(depth, n).clone().requires_grad_()
        slopes = torch.autograd.grad(gated(model, family, inputs, target, g_a, g_f), [g_a, g_f])
        attention = attention + w * (slopes[0] * chosen)[:, 0] * (scaled != "feed-forward")
        feedforward = feedforward + w * (slopes[1] * chosen) * (scaled != "attention")
    with torch.no_grad():
        start = gated(model, family, inputs, target, gates(0, "attention"), gates(0, "feed-forward").expand(depth, n))
    return attention.numpy(), feedforward.numpy(), float(start)


@pytest.mark.parametrize("scaled", SCALED)
@pytest.mark.parametrize("family", BLOCKS)
def test_a_layers_path_equals_gates_written_by_hand(family, scaled):
    model, tokenizer = loaded(family)
    found = attribute_blocks(model, tokenizer, TWO[0], scaled=scaled, target=1, steps=9, rule="gauss")
    for layer in range(3):
        wanted = by_hand(family, model, tokenizer, TWO[0], 1, scaled, [layer], 9)
        assert np.allclose(found.parts[layer, 0], wanted[0][layer], rtol=0, atol=1e-12)
        assert np.allclose(found.feedforward[layer], wanted[1][layer], rtol=0, atol=1e-12)
        assert found.start[layer] == pytest.approx(wanted[2], abs=1e-12)
    assert (np.abs(found.parts).max(axis=0) > 1e-3).tolist() == [scaled != "feed-forward", scaled != "attention"]


@pytest.mark.parametrize("scaled", SCALED)
def test_one_path_for_all_layers_equals_gates_written_by_hand(scaled):
    model, tokenizer = loaded("bert")
    found = attribute_blocks(model, tokenizer, TWO[1], scaled=scaled, at_once=True, target=2, steps=7, rule="gauss")
    attention, feedforward, start = by_hand("bert", model, tokenizer, TWO[1], 2, scaled, range(3), 7)
    assert np.allclose(found.parts[:, 0], attention, rtol=0, atol=1e-12)
    assert np.allclose(found.feedforward, feedforward, rtol=0, atol=1e-12)
    assert found.start.shape == found.gap.shape == found.steps.shape == (1,)
    assert found.start[0] == pytest.approx(start, abs=1e-12)


def test_the_sum_is_what_finite_differences_add_up_to():
    """The slope of F along the path, by central differences of F alone, is the sum of the two parts' slopes."""
    model, tokenizer = loaded("bert")
    found = attribute_blocks(model, tokenizer, TWO[0], target=0, **CUBE | {"steps": 1})  # one point, a = 0.5
    inputs, n, h = tokenizer(TWO[0], return_tensors="pt"), len(found.tokens), 1e-5

    def at(a, layer):
        gate = torch.ones(3, 1, dtype=torch.float64)
        gate[layer] = a
        with torch.no_grad():
            return float(gated(model, "bert", inputs, 0, gate, gate.expand(3, n)))

    slopes = [(at(0.5 + h, layer) - at(0.5 - h, layer)) / (2 * h) for layer in range(3)]
    assert np.allclose(found.parts.sum(axis=1), slopes, rtol=0, atol=1e-8)


@pytest.mark.parametrize("at_once", [False, True])
@pytest.mark.parametrize("family", [each for each in FAMILIES if each != "distilbert"])  # its ReLU converges slowly
def test_both_parts_together_are_complete_in_every_family(family, at_once):
    model, tokenizer = loaded(family)
    found = attribute_blocks(model, tokenizer, TWO, scaled="both", at_once=at_once, steps=48, rule="gauss")
    for each in found:
        total = each.parts.sum(keepdims=True)[0] if at_once else each.parts.sum(axis=1)
        assert np.allclose(total, each.value - each.start, rtol=0, atol=2e-4)
        assert np.abs(each.parts).min() > 1e-6  # neither part is empty
    assert np.abs([each.value - each.start for each in found]).max() > 0.05


def test_a_kink_costs_points_and_the_gap_tells():
    model, tokenizer = loaded("distilbert")
    few, many = (attribute_blocks(model, tokenizer, TWO[0], scaled="both", steps=s, rule="right") for s in (20, 400))
    assert np.abs(many.gap).max() < 0.3 * np.abs(few.gap).max()
    assert np.allclose(few.gap, few.parts.sum(axis=1) - (few.value - few.start), rtol=0, atol=1e-12)


@pytest.mark.parametrize("family", FAMILIES)
def test_attention_alone_is_the_papers_score(family):
    model, tokenizer = loaded(family)
    found = attribute_blocks(model, tokenizer, TWO, scaled="attention", steps=5, rule="right")
    for each, a in zip(found, attribute(model, tokenizer, TWO, steps=5), strict=True):
        assert np.allclose(each.attention, a.scores, rtol=1e-5, atol=1e-7)  # an Attribution is float32
        assert np.allclose(each.start, a.start, rtol=0, atol=1e-12)
        assert each.target == a.target and each.tokens == a.tokens


def test_a_padded_batch_equals_the_texts_one_by_one():
    model, tokenizer = loaded("bert")
    options = {"scaled": "both", "steps": 6, "rule": "gauss"}
    together = attribute_blocks(model, tokenizer, TWO, **options)
    small = attribute_blocks(model, tokenizer, TWO, batch_tokens=1, **options)
    for text, each, other in zip(TWO, together, small, strict=True):
        alone = attribute_blocks(model, tokenizer, text, **options)
        for name in ("attention", "feedforward", "start", "gap"):
            assert np.allclose(getattr(each, name), getattr(alone, name), rtol=0, atol=1e-12)
            assert np.allclose(getattr(each, name), getattr(other, name), rtol=0, atol=1e-12)


def test_auto_takes_points_until_the_gap_is_small():
    model, tokenizer = loaded("bert")
    found = attribute_blocks(model, tokenizer, TWO, scaled="both", tolerance=0.001)
    for each in found:
        assert (np.abs(each.gap) <= np.maximum(0.001 * np.abs(each.value - each.start), 1e-4)).all()
    assert len({int(s) for each in found for s in each.steps}) > 1  # no more points than a layer needs


def test_a_block_that_gives_nothing_gets_nothing():
    model, tokenizer = loaded("bert")
    with torch.no_grad():
        model.bert.encoder.layer[1].output.dense.weight.zero_()
        model.bert.encoder.layer[1].output.dense.bias.zero_()
    found = attribute_blocks(model, tokenizer, TWO[0], steps=4, rule="gauss")
    assert np.array_equal(found.feedforward[1], np.zeros(len(found.tokens)))
    assert found.start[1] == found.value
    assert np.abs(found.feedforward[[0, 2]]).max(axis=1).min() > 1e-4


def test_the_model_is_left_as_it_was_found_even_after_an_error():
    model, tokenizer = loaded("bert")
    inputs = tokenizer(TWO[0], return_tensors="pt")
    before = model(**inputs).logits
    attribute_blocks(model, tokenizer, TWO, steps=2, rule="gauss")
    model.bert.encoder.layer[0].output.dense.bias.data[0] = torch.nan
    with pytest.raises(ValueError, match="not finite"):
        attribute_blocks(model, tokenizer, TWO)
    model.bert.encoder.layer[0].output.dense.bias.data[0] = 0
    assert not any(module._forward_hooks for module in model.modules())
    assert model.config._attn_implementation == "eager" and not model.training
    assert torch.equal(model(**inputs).logits, before)
    assert all(parameter.requires_grad and parameter.grad is None for parameter in model.parameters())


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"scaled": "values"}, "attention, feed-forward, both"),
        ({"steps": 4, "rule": "left"}, "a = 0"),
        ({"steps": 0}, "at least 1"),
        ({"target": 7}, "There is no class 7"),
    ],
)
def test_what_is_wrong_is_said_before_any_work(options, said):
    model, tokenizer = loaded("bert")
    with pytest.raises(ValueError, match=said):
        attribute_blocks(model, tokenizer, TWO, **options)


def test_blocks_that_are_not_known_are_refused():
    model, tokenizer = loaded("bert")
    chunked = make("bert", chunk_size_feed_forward=1)
    with pytest.raises(UnsupportedModelError, match="chunk_size_feed_forward"):
        attribute_blocks(chunked, tokenizer, TWO[0])
    for layer in model.bert.encoder.layer:
        layer.output.renamed = layer.output.dense
        layer.output.forward = lambda hidden, rest, own=layer.output: own.LayerNorm(own.renamed(hidden) + rest)
        del layer.output.dense
    with pytest.raises(UnsupportedModelError, match="feed-forward blocks of BertForSequenceClassification"):
        attribute_blocks(model, tokenizer, TWO[0])


@pytest.mark.parametrize("scaled", SCALED)
def test_a_model_that_lost_a_head_of_every_layer(scaled):
    model, tokenizer = loaded("bert")
    model = remove_heads(model, np.array([[0, 1, 1, 1], [1, 1, 0, 1], [1, 1, 1, 0]]))
    few, many = (attribute_blocks(model, tokenizer, TWO[1], scaled=scaled, steps=n, rule="gauss") for n in (20, 80))
    assert many.attention.shape[:2] == (3, 3)
    assert np.abs(many.gap).max() < max(1e-8, np.abs(few.gap).max() / 10)


def test_inside_a_touch_that_tells_rows_apart_nothing_is_attributed():
    model, tokenizer = loaded("bert")
    with (
        touch(model, factors={0: torch.tensor([2.0, 1.0]).reshape(2, 1, 1, 1)}),
        pytest.raises(ValueError, match="inside touch.* differ between the rows"),
    ):
        attribute_blocks(model, tokenizer, TWO, steps=2, rule="gauss")
