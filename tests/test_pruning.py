"""Importance of heads against brute force, orders and gates, and curves of accuracy while heads go."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from families import make
from texts import tokenizer_for
from torch.nn import functional

from helpers import pruning, surgery
from helpers.attention import UnsupportedModelError, gate_heads, touch
from helpers.attribution import attribute
from helpers.inputs import encode

TEXTS = ["a good film", "the dull plot never wakes up at all", "we love it", "bad", "a warm and funny story"]
GOLD = [0, 2, 1, 1, 0]
SHAPE = (3, 4)


@pytest.fixture(scope="module")
def model():
    return make("bert")


@pytest.fixture(scope="module")
def tokenizer():
    return tokenizer_for("bert")


def logits(model, tokenizer, text, gates=None):
    with torch.no_grad(), touch(model, factors={} if gates is None else gate_heads(gates)):
        return model(**encode(model, tokenizer, [text]).tensors).logits[0]


def gradient_of_attention(model, tokenizer, text, gold):
    """A and dL/dA of every layer, [layer, head, query, key], by plain autograd through the matrices."""
    ones = torch.nn.Parameter(torch.zeros(()))  # something that asks for gradients, so that the matrices have some
    with touch(model, record=True, factors={layer: 1 + 0 * ones for layer in range(SHAPE[0])}) as seen:
        loss = functional.cross_entropy(model(**encode(model, tokenizer, [text]).tensors).logits, torch.tensor([gold]))
        matrices = [seen.attention[layer] for layer in range(SHAPE[0])]
        slopes = torch.autograd.grad(loss, matrices)
    return torch.cat(matrices).detach(), torch.cat(slopes)


# ---- scores ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reduce", ["max", "sum"])
def test_attribution_is_the_mean_of_every_examples_maximum_or_sum(model, tokenizer, reduce):
    options = {"steps": 4, "rule": "gauss"}
    found, attention = pruning.by_attribution(model, tokenizer, TEXTS, GOLD, reduce=reduce, at_once=2, **options)
    each = attribute(model, tokenizer, TEXTS, target=GOLD, **options)
    expected = np.stack([getattr(a.scores, reduce)(axis=(-2, -1)) for a in each])
    np.testing.assert_allclose(found.examples, expected, rtol=1e-5, atol=1e-9)
    np.testing.assert_allclose(found.heads, expected.mean(axis=0), rtol=1e-5, atol=1e-9)
    np.testing.assert_allclose(attention.examples, np.stack([a.attention.max(axis=(-2, -1)) for a in each]), rtol=1e-5)
    # of each text: one whole pass, then from layer l on 4 points, and a start where the gap is wanted
    assert found.forward == pytest.approx(5 * (1 + 4 * (1 + 2 / 3 + 1 / 3)))
    with_gap, _ = pruning.by_attribution(model, tokenizer, TEXTS, GOLD, reduce=reduce, gap=True, **options)
    assert with_gap.forward == pytest.approx(5 * (1 + 5 * (1 + 2 / 3 + 1 / 3)))
    assert found.backward == pytest.approx(5 * 4 * 2)
    assert attention.forward == 5 and attention.backward == 0


def test_the_predicted_class_is_the_default_and_gold_gives_another_answer(model, tokenizer):
    predicted = [int(logits(model, tokenizer, text).argmax()) for text in TEXTS]
    assert predicted != GOLD
    options = {"steps": 2, "rule": "gauss"}
    default, _ = pruning.by_attribution(model, tokenizer, TEXTS, **options)
    named, _ = pruning.by_attribution(model, tokenizer, TEXTS, predicted, **options)
    gold, _ = pruning.by_attribution(model, tokenizer, TEXTS, GOLD, **options)
    np.testing.assert_array_equal(default.examples, named.examples)
    assert np.abs(default.examples - gold.examples).max() > 1e-4


@pytest.mark.parametrize("classes", [2, 3])
def test_scores_for_every_class_equal_those_asked_for_one_by_one(tokenizer, classes):
    model = make("bert", num_labels=classes)
    options = {"steps": 4, "rule": "gauss"}
    found, attention = pruning.by_class(model, tokenizer, TEXTS, at_once=2, **options)
    assert [each.name for each in found] == [f"attribution for LABEL_{number}" for number in range(classes)]
    for number, each in enumerate(found):
        alone, beside = pruning.by_attribution(model, tokenizer, TEXTS, number, **options)
        np.testing.assert_allclose(each.examples, alone.examples, rtol=1e-4, atol=1e-7)
        np.testing.assert_array_equal(attention.examples, beside.examples)
        # the last class costs nothing
        assert each.forward == pytest.approx((classes - 1) * alone.forward)
        assert each.backward == pytest.approx((classes - 1) * alone.backward)
    assert np.abs(found[0].examples - found[1].examples).max() > 1e-3


def test_scores_for_every_class_where_they_do_not_add_up_to_0_are_refused(model, tokenizer):
    single = make("bert", num_labels=1)
    for refused, options in [(model, {"steps": "auto"}), (model, {"output": "logit"}), (single, {})]:
        with pytest.raises(ValueError, match="add up to 0 for the probabilities .* use by_attribution"):
            pruning.by_class(refused, tokenizer, TEXTS, **options)


def test_attention_alone_equals_attention_beside_attribution(model, tokenizer):
    alone = pruning.by_attention(model, tokenizer, TEXTS, batch_size=2)
    _, beside = pruning.by_attribution(model, tokenizer, TEXTS, steps=1, rule="gauss")
    np.testing.assert_allclose(alone.examples, beside.examples, rtol=1e-5)


def test_taylor_against_autograd_through_the_matrices(model, tokenizer):
    plain = pruning.by_taylor(model, tokenizer, TEXTS, GOLD, batch_size=3)
    scaled = pruning.by_taylor(model, tokenizer, TEXTS, GOLD, form="normalised", batch_size=2)
    products = [
        attention * slope
        for attention, slope in (
            gradient_of_attention(model, tokenizer, *each) for each in zip(TEXTS, GOLD, strict=True)
        )
    ]
    expected = np.stack([p.sum((-2, -1)).abs().numpy() for p in products])
    np.testing.assert_allclose(plain.examples, expected, rtol=1e-5, atol=1e-9)
    by_token = np.stack([p.sum(-1).abs().sum(-1).numpy() for p in products])
    norm = np.linalg.norm(by_token.mean(axis=0), axis=-1)[:, None]
    np.testing.assert_allclose(scaled.heads, by_token.mean(axis=0) / norm, rtol=1e-5)
    np.testing.assert_allclose(np.linalg.norm(scaled.heads, axis=-1), 1, rtol=1e-5)
    assert (plain.forward, plain.backward) == (5, 5)


def test_taylor_is_the_slope_of_the_loss_by_the_gate(model, tokenizer):
    """dL/dg by a small change of one gate: what first order means."""
    text, gold, step = TEXTS[1], GOLD[1], 1e-5
    found = pruning.by_taylor(model, tokenizer, [text], [gold]).examples[0]
    for layer, head in [(0, 1), (2, 3)]:
        losses = []
        for change in (-step, step):
            gates = np.ones(SHAPE)
            gates[layer, head] += change
            losses.append(functional.cross_entropy(logits(model, tokenizer, text, gates)[None], torch.tensor([gold])))
        assert found[layer, head] == pytest.approx(abs(float(losses[1] - losses[0])) / (2 * step), rel=1e-4, abs=1e-7)


def test_accuracy_difference_switches_one_head_off_at_a_time(model, tokenizer):
    found = pruning.by_accuracy(model, tokenizer, TEXTS, GOLD, batch_size=2)
    right = np.array(
        [int(logits(model, tokenizer, text).argmax()) == gold for text, gold in zip(TEXTS, GOLD, strict=True)]
    )
    for layer in range(SHAPE[0]):
        for head in range(SHAPE[1]):
            gates = np.ones(SHAPE)
            gates[layer, head] = 0
            without = [int(logits(model, tokenizer, text, gates).argmax()) for text in TEXTS]
            expected = right.astype(float) - (np.array(without) == GOLD)
            np.testing.assert_array_equal(found.examples[:, layer, head], expected)
    assert np.abs(found.examples).max() == 1  # some head matters for some text, or nothing was tested
    assert found.forward == 13 * 5 and found.backward == 0


def test_random_scores_are_those_of_their_seed():
    np.testing.assert_array_equal(pruning.at_random(SHAPE, seed=3).heads, pruning.at_random(SHAPE, seed=3).heads)
    assert not np.array_equal(pruning.at_random(SHAPE, seed=3).heads, pruning.at_random(SHAPE, seed=4).heads)


def test_the_model_is_left_as_it_was(model, tokenizer):
    before = logits(model, tokenizer, TEXTS[0])
    model.train()
    try:
        pruning.by_taylor(model, tokenizer, TEXTS, GOLD)
        pruning.by_attention(model, tokenizer, TEXTS)
        assert model.training and model.config._attn_implementation == "eager"
        assert all(p.grad is None and p.requires_grad for p in model.parameters())
    finally:
        model.eval()
    assert torch.equal(before, logits(model, tokenizer, TEXTS[0]))


NUMBERS = [0, 2, 1, 1, 0]
NAMES = [f"LABEL_{number}" for number in NUMBERS]
GATES = pruning.gates_overall(np.arange(12.0).reshape(SHAPE), [0, 6, 12])
WITH_GOLD = {
    "taylor": lambda model, tokenizer, gold, texts=TEXTS: pruning.by_taylor(model, tokenizer, texts, gold).examples,
    "accuracy": lambda model, tokenizer, gold, texts=TEXTS: pruning.by_accuracy(model, tokenizer, texts, gold).examples,
    "curve": lambda model, tokenizer, gold, texts=TEXTS: pruning.curve("a", model, tokenizer, texts, gold, GATES).right,
    "curves": lambda model, tokenizer, gold, texts=TEXTS: (
        pruning.curves(model, tokenizer, texts, gold, {"a": GATES})["a"].right
    ),
}
with_gold = pytest.mark.parametrize("run", WITH_GOLD.values(), ids=WITH_GOLD)


@with_gold
def test_classes_may_be_given_by_name(model, tokenizer, run):
    expected = run(model, tokenizer, NUMBERS)
    np.testing.assert_array_equal(run(model, tokenizer, NAMES), expected)
    np.testing.assert_array_equal(run(model, tokenizer, torch.tensor(NUMBERS)), expected)
    assert np.any(expected)


@with_gold
@pytest.mark.parametrize(
    ("gold", "match"),
    [
        (["0", "2", "1", "1", "0"], "no class '0': give one of LABEL_0"),
        ([0, 2, 1, 1, 7], "no class 7"),
        ([0, 2, 1, 1, -100], "no class -100"),
        ([0.0, 2.0, 1.0, 1.0, 0.0], "no class 0.0"),
        ([0], "has 1 classes for 5 texts"),
        ([*NUMBERS, 0], "has 6 classes for 5 texts"),
        (None, "is None for 5 texts"),
        (1, "is 1 for 5 texts"),
        ("LABEL_1", "is 'LABEL_1' for 5 texts"),
        (np.array(1), r"is array\(1\) for 5 texts"),
    ],
)
def test_classes_that_cannot_be_meant_are_refused(model, tokenizer, run, gold, match):
    with pytest.raises(ValueError, match=match):
        run(model, tokenizer, gold)


@with_gold
@pytest.mark.parametrize("change", [{"num_labels": 1}, {"problem_type": "multi_label_classification"}])
def test_a_model_that_chooses_no_class_has_no_right_answer(tokenizer, run, change):
    with pytest.raises(ValueError, match="does not choose one class"):
        run(make("bert", **change), tokenizer, [0] * 5)


def test_classes_that_do_not_exclude_each_other_are_asked_for_one_by_one(tokenizer):
    with pytest.raises(ValueError, match="exclude each other.*use by_attribution"):
        pruning.by_class(make("bert", problem_type="multi_label_classification"), tokenizer, TEXTS)


def test_classes_are_named_by_their_number_whatever_order_the_names_come_in(tokenizer):
    model = make("bert")
    model.config.id2label = {2: "c", 0: "a", 1: "b"}
    found, _ = pruning.by_class(model, tokenizer, TEXTS[:1], steps=1)
    assert [each.name for each in found] == ["attribution for a", "attribution for b", "attribution for c"]


SCORES = {
    "attribution": lambda m, t, texts: pruning.by_attribution(m, t, texts, steps=1)[0].examples,
    "class": lambda m, t, texts: pruning.by_class(m, t, texts, steps=1)[0][0].examples,
    "attention": lambda m, t, texts: pruning.by_attention(m, t, texts).examples,
    "gated": lambda m, t, texts: pruning.gated_logits(m, t, texts, GATES).swapaxes(0, 1),
    "taylor": lambda m, t, texts: pruning.by_taylor(m, t, texts, [0]).examples,
    "accuracy": lambda m, t, texts: pruning.by_accuracy(m, t, texts, [0]).examples,
    "curve": lambda m, t, texts: pruning.curve("a", m, t, texts, [0], GATES).right.T,
    "curves": lambda m, t, texts: pruning.curves(m, t, texts, [0], {"a": GATES})["a"].right.T,
}


@pytest.mark.parametrize("run", SCORES.values(), ids=SCORES)
def test_one_text_one_pair_and_a_generator_are_texts(model, tokenizer, run):
    for text in ("a good film", ("a good film", "the dull plot")):
        expected = run(model, tokenizer, [text])
        assert len(expected) == 1
        np.testing.assert_array_equal(run(model, tokenizer, text), expected)
        np.testing.assert_array_equal(run(model, tokenizer, (each for each in [text])), expected)
    with pytest.raises(ValueError, match="No text was given"):
        run(model, tokenizer, [])


def test_targets_of_attribution_are_read_for_all_texts_at_once(model, tokenizer):
    options = {"steps": 1, "at_once": 2}
    one, _ = pruning.by_attribution(model, tokenizer, TEXTS, 1, **options)
    for same in (np.int64(1), np.array(1), "LABEL_1", [1] * 5):
        np.testing.assert_array_equal(
            pruning.by_attribution(model, tokenizer, TEXTS, same, **options)[0].heads, one.heads
        )
    with pytest.raises(ValueError, match="2 targets were given for 5 texts"):
        pruning.by_attribution(model, tokenizer, TEXTS, [0, 1], **options)


@pytest.mark.parametrize("at_once", [0, -1, 2.5])
def test_texts_are_kept_one_at_a_time_or_more(model, tokenizer, at_once):
    for run in (pruning.by_attribution, pruning.by_class):
        with pytest.raises(ValueError, match="at_once is .*: a whole number of at least 1"):
            run(model, tokenizer, TEXTS, at_once=at_once)


def test_the_cost_of_some_layers_is_counted_by_the_whole_model(model, tokenizer):
    found, _ = pruning.by_attribution(model, tokenizer, TEXTS, layers=[2], steps=4)
    assert found.forward == pytest.approx(5 * (1 + 4 / 3)) and found.backward == pytest.approx(5 * 4 / 3)
    classes, _ = pruning.by_class(model, tokenizer, TEXTS, layers=[1, 2], steps=4)
    assert classes[0].backward == pytest.approx(2 * 5 * 4 * (2 / 3 + 1 / 3))


@pytest.mark.parametrize("gates", [[[1, 0, 1, 1]] + [[1] * 4] * 2, [[0] * 4] + [[1] * 4] * 2])
def test_a_model_cut_unevenly_is_refused_with_the_cure(model, tokenizer, gates):
    cut = surgery.remove_heads(model, np.array(gates))
    for name in ("attribution", "class", "attention", "taylor", "accuracy", "gated"):
        with pytest.raises(UnsupportedModelError, match="gate_heads|unequal width"):
            SCORES[name](cut, tokenizer, TEXTS[:1])


# ---- orders ----------------------------------------------------------------------------------------------------------


def test_gates_remove_the_smallest_or_the_largest_first():
    values = np.array([[0.3, 0.1], [0.2, 0.4]])
    np.testing.assert_array_equal(
        pruning.gates_overall(values, [0, 1, 3, 4]),
        [[[1, 1], [1, 1]], [[1, 0], [1, 1]], [[0, 0], [0, 1]], [[0, 0], [0, 0]]],
    )
    np.testing.assert_array_equal(pruning.gates_overall(values, [1], first="largest"), [[[1, 1], [1, 0]]])
    np.testing.assert_array_equal(pruning.gates_per_layer(values, [1]), [[[1, 0], [0, 1]]])
    np.testing.assert_array_equal(pruning.gates_per_layer(values, [1], first="largest"), [[[0, 1], [1, 0]]])


@pytest.mark.parametrize("first", ["smallest", "largest"])
def test_of_equal_heads_the_first_in_the_model_goes_first(first):
    np.testing.assert_array_equal(
        pruning.gates_overall(np.zeros(SHAPE), [5], first=first)[0], [[0] * 4, [0, 1, 1, 1], [1] * 4]
    )


def test_every_text_may_have_an_order_of_its_own():
    values = np.random.default_rng(0).normal(size=(5, *SHAPE))
    together = pruning.gates_overall(values, [2, 7])
    assert together.shape == (2, 5, *SHAPE)
    for row in range(5):
        np.testing.assert_array_equal(together[:, row], pruning.gates_overall(values[row], [2, 7]))
    np.testing.assert_array_equal(pruning.gates_per_layer(values, [2])[0].sum(axis=-1), np.full((5, 3), 2))


def test_removing_more_never_brings_a_head_back():
    gates = pruning.gates_overall(np.random.default_rng(1).integers(0, 3, SHAPE), range(13))
    assert (np.diff(gates, axis=0) <= 0).all() and gates[0].all() and not gates[-1].any()


def test_counts_of_shares():
    assert pruning.counts_of([0, 0.1, 0.5, 1], 72) == [0, 7, 36, 72]
    with pytest.raises(ValueError, match="between 0 and 1"):
        pruning.counts_of([0.5, 1.5], 72)


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: pruning.gates_overall(np.zeros(SHAPE), [13]), "13 heads can't be removed: there are 12"),
        (lambda: pruning.gates_per_layer(np.zeros(SHAPE), [5]), "5 heads can't be removed: there are 4"),
        (lambda: pruning.gates_overall(np.zeros(SHAPE), [-1]), "-1 heads"),
        (lambda: pruning.gates_overall(np.zeros(SHAPE), [0, 0.25, 1.0]), r"whole numbers of heads.*counts_of\("),
        (lambda: pruning.gates_per_layer(np.zeros(SHAPE), [1.0]), r"whole numbers of heads.*counts_of\("),
        (lambda: made("a", [1, 0], shares=(0.5,)).area, "1 setting.*two shares or more"),
        (lambda: pruning.gates_overall(np.full(SHAPE, np.nan), [1]), "nan or inf"),
        (lambda: pruning.gates_overall(np.zeros(SHAPE), [1], first="last"), "smallest, largest"),
        (lambda: pruning.by_attribution(None, None, TEXTS, reduce="mean"), "use one of max, sum"),
        (lambda: pruning.by_taylor(None, None, TEXTS, GOLD, form="second"), "use one of plain, normalised"),
        (lambda: pruning.interval(np.ones(1)), "at least 2"),
        (lambda: pruning.interval(np.ones(3), strata=np.zeros(2)), "give each its group"),
    ],
)
def test_what_cannot_be_meant_is_refused(call, match):
    with pytest.raises(ValueError, match=match):
        call()


# ---- heads off -------------------------------------------------------------------------------------------------------


def test_gated_logits_equal_those_one_by_one(model, tokenizer):
    values = np.random.default_rng(0).normal(size=(len(TEXTS), *SHAPE))
    shared = pruning.gates_overall(values[0], [0, 3, 12])
    own = pruning.gates_overall(values, [0, 3, 12])
    for gates in (shared, own):
        found = pruning.gated_logits(model, tokenizer, TEXTS, gates, batch_size=2)
        assert found.shape == (3, len(TEXTS), 3)
        for setting in range(3):
            for row, text in enumerate(TEXTS):
                one = gates[setting] if gates.ndim == 3 else gates[setting, row]
                np.testing.assert_allclose(found[setting, row], logits(model, tokenizer, text, one), atol=1e-5)
    plain = np.stack([logits(model, tokenizer, text) for text in TEXTS])
    np.testing.assert_allclose(found[0], plain, atol=1e-5)
    assert np.abs(found[1] - plain).max() > 1e-3


def test_layers_below_the_first_closed_gate_run_once(model, tokenizer):
    """One head off at a time, in any layer: what is left out below must not be missed, and must be left out."""
    gates, ran = np.ones((13, *SHAPE), dtype=np.float32), []
    gates[1:].reshape(12, 12)[np.diag_indices(12)] = 0
    lowest = model.base_model.encoder.layer[0].attention.self.query
    with lowest.register_forward_hook(lambda *_: ran.append(1)):
        found = pruning.gated_logits(model, tokenizer, TEXTS[:1], gates)
    assert len(ran) == 2 + 4, "to look at the model's shape, without gates, and once for each head of layer 0"
    for setting, logits_ in zip(gates, found, strict=True):
        np.testing.assert_allclose(logits_[0], logits(model, tokenizer, TEXTS[0], setting), atol=1e-6)
    own = gates[[[1], [9]]].swapaxes(0, 1)  # one setting: the first text loses a head of layer 0, the second of layer 2
    both = pruning.gated_logits(model, tokenizer, TEXTS[:2], own.reshape(1, 2, *SHAPE), batch_size=2)[0]
    for row, number in enumerate((1, 9)):
        np.testing.assert_allclose(both[row], logits(model, tokenizer, TEXTS[row], gates[number]), atol=1e-5)


@pytest.mark.parametrize("shape", [(3, 4), (2, 3, 5), (2, 4, 3, 4), (1, 2, 5, 3, 4), (0, 3, 4)])
def test_gates_of_another_shape_are_refused(model, tokenizer, shape):
    with pytest.raises(ValueError, match="5 texts and 3 layers of 4 heads"):
        pruning.gated_logits(model, tokenizer, TEXTS, np.ones(shape))


# ---- curves ----------------------------------------------------------------------------------------------------------


def made(name, *rows, shares=(0, 0.5, 1)):
    return pruning.Curve(name, np.array(shares), np.array(rows, dtype=bool))


def test_a_curve_follows_the_accuracy(model, tokenizer):
    gates = pruning.gates_overall(pruning.at_random(SHAPE, seed=0).heads, [0, 6, 12])
    found = pruning.curve("random", model, tokenizer, TEXTS, GOLD, gates)
    logits = pruning.gated_logits(model, tokenizer, TEXTS, gates)
    np.testing.assert_array_equal(found.accuracy, (logits.argmax(-1) == GOLD).mean(axis=1))
    np.testing.assert_allclose(found.shares, [0, 0.5, 1])


def test_curves_equal_those_one_by_one_and_run_what_they_share_once(model, tokenizer, monkeypatch):
    rng = np.random.default_rng(0)
    own, one = rng.normal(size=(len(TEXTS), *SHAPE)), rng.normal(size=SHAPE)
    gates = {
        "own": pruning.gates_per_layer(own, range(5)),
        "own, largest": pruning.gates_per_layer(own, range(5), first="largest"),
        "one": pruning.gates_per_layer(one, range(5)),
    }
    expected = {name: pruning.curve(name, model, tokenizer, TEXTS, GOLD, each) for name, each in gates.items()}
    settings, run = [], pruning.gated_logits
    monkeypatch.setattr(pruning, "gated_logits", lambda *args, **o: settings.append(len(args[3])) or run(*args, **o))
    found = pruning.curves(model, tokenizer, TEXTS, GOLD, gates, batch_size=2)
    assert list(found) == list(gates)
    for name, each in found.items():
        np.testing.assert_array_equal(each.right, expected[name].right)
        np.testing.assert_allclose(each.shares, np.arange(5) / 4)
        assert each.name == name
    assert sorted(settings) == [2 + 3, 2 * 3]  # all on and all off with the shared ones; three settings a curve besides
    assert len({each.right.tobytes() for each in found.values()}) > 1


def test_area_and_interval_by_hand():
    curve = made("a", [1, 1, 1, 1], [1, 1, 0, 0], [0, 0, 0, 0])
    np.testing.assert_allclose(curve.accuracy, [1, 0.5, 0])
    assert curve.area == pytest.approx(0.5)
    low, high = curve.interval()
    assert low[0] == high[0] == 1 and low[2] == high[2] == 0
    assert 0 <= low[1] < 0.5 < high[1] <= 1


def test_the_interval_of_a_mean_is_about_two_standard_errors_wide():
    values = np.random.default_rng(0).normal(size=400)
    low, high = pruning.interval(values, seed=1)
    assert high - low == pytest.approx(2 * 1.96 * values.std() / 20, rel=0.1)
    assert (low, high) == pruning.interval(values, seed=1)


def test_each_stratum_is_resampled_within_itself():
    """What differs between groups alone must not widen the bounds: the groups' sizes are no chance."""
    values, group = np.repeat([2.0, 0.0], [10, 90]), np.repeat([3, 1], [10, 90])
    low, high = pruning.interval(values, seed=1)
    assert low < 0.15 and high > 0.25
    assert pruning.interval(values, seed=1, strata=group) == pytest.approx((0.2, 0.2))
    spread = np.random.default_rng(0).normal(size=100) + values
    low, high = pruning.interval(spread, seed=1, strata=group)
    error = np.sqrt(sum((group == g).sum() * spread[group == g].var() for g in (1, 3))) / 100
    assert low < spread.mean() < high and high - low == pytest.approx(2 * 1.96 * error, rel=0.1)
    assert (low, high) == pruning.interval(spread, seed=1, strata=group)
    both = pruning.interval(np.column_stack([spread, values]), seed=1, strata=group)
    assert np.shape(both) == (2, 2) and both[0][0] == pytest.approx(low)


def test_a_stratum_of_one_has_no_bounds():
    assert np.isnan(pruning.interval(np.arange(5.0), strata=[0, 0, 0, 0, 1])).all()
    assert np.isnan(pruning.interval(np.ones((5, 3)), strata=[0, 0, 0, 0, 1])).all()


def test_removable_is_the_share_up_to_which_nothing_is_lost():
    rows = [[1] * 100, [1] * 99 + [0], [1] * 98 + [0] * 2, [1] * 100]
    curve = made("a", *rows, shares=(0, 0.1, 0.2, 0.3))
    assert curve.removable() == pytest.approx(0.1)  # that 0.3 is right again doesn't count
    assert curve.removable(within=0.02) == pytest.approx(0.3)
    assert curve.removable(within=0) == 0


def test_comparison_is_paired_by_example():
    rng = np.random.default_rng(0)
    hard = rng.random(200) < 0.5  # both orders fail on these
    one = made("one", ~hard, ~hard, ~hard)
    two = made("two", ~hard, ~hard & (rng.random(200) < 0.8), ~hard & (rng.random(200) < 0.8))
    found = pruning.compare(one, two)
    assert found.difference == pytest.approx(one.area - two.area)
    assert 0 < found.low < found.difference < found.high and found.p < 0.01
    same = pruning.compare(one, one)
    assert (same.difference, same.low, same.high) == (0, 0, 0) and same.p > 0.9
    with pytest.raises(ValueError, match="same shares and examples"):
        pruning.compare(one, made("short", ~hard, ~hard, shares=(0, 1)))
