"""Attribution against the plain algorithm, closed forms, and what its callers may get wrong."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from families import CONFIGS, FAMILIES, difference, inputs, make, reference
from texts import tokenizer_for
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import (
    AutoModelForTokenClassification,
    BartConfig,
    BartForSequenceClassification,
    BertForSequenceClassification,
)
from transformers.modeling_outputs import SequenceClassifierOutput

from helpers.attention import UnsupportedModelError, gate_heads, scale_layer, touch
from helpers.attribution import _groups, attribute, attribute_inputs
from helpers.engine import AUTO_STEPS
from helpers.quadrature import points_and_weights

TARGET = torch.tensor([2, 0, 1])


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("side", [None, "right", "left"])
@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
@pytest.mark.parametrize("dtype, bound", [(torch.float64, 1e-10), (torch.float32, 2e-5)])
def test_equals_brute_force(family, side, implementation, dtype, bound):
    model = make(family, implementation=implementation, dtype=dtype)
    batch = inputs(side)
    target = TARGET[: len(batch["input_ids"])]
    theirs, attention = reference(model, batch, target, *points_and_weights("right", 7))
    ours = attribute_inputs(model, batch, target=target, steps=7, rule="right")
    assert difference(ours.scores, theirs) < bound
    assert difference(ours.attention, attention) < bound


def dense(model, batch, steps=400, **options):
    """A reference close to the limit: many Gauss points in float64."""
    return attribute_inputs(model, batch, steps=steps, rule="gauss", **options)


def test_scores_of_a_linear_model_in_closed_form():
    """One layer, one head, F = logit: the path is linear, so Attr = A * (dF/dA) at any a, and the gap is 0.

    Dropping the layer norms leaves F linear in A: every rule with one point is exact.
    """
    model = make("bert", num_hidden_layers=1, num_attention_heads=1)
    layer = model.bert.encoder.layer[0]
    layer.attention.output.LayerNorm = torch.nn.Identity()
    layer.output.LayerNorm = torch.nn.Identity()
    layer.intermediate.intermediate_act_fn = torch.nn.Identity()
    model.bert.pooler.activation = torch.nn.Identity()
    batch, target = inputs("right"), TARGET
    for rule in ("right", "left", "midpoint", "gauss"):
        ours = attribute_inputs(model, batch, target=target, steps=1, rule=rule, output="logit")
        assert ours.gap.abs().max() < 1e-12
    # By hand: the logit reads row [CLS] only, through W = everything from the context to the logit.
    with touch(model, record=True) as seen, torch.no_grad():
        model(**batch)
    attention, values = seen.attention[0], seen.values[0]
    out = layer.attention.output.dense.weight
    inner = torch.eye(24, dtype=torch.float64) + layer.output.dense.weight @ layer.intermediate.dense.weight
    readout = (model.classifier.weight @ model.bert.pooler.dense.weight @ inner @ out)[target]
    by_hand = torch.zeros(3, 1, 1, 9, 9, dtype=torch.float64)
    by_hand[:, 0, 0, 0] = attention[:, 0, 0] * torch.einsum("bd,bkd->bk", readout, values[:, 0])
    assert torch.allclose(ours.scores, by_hand, atol=1e-12)


@pytest.mark.parametrize("family", FAMILIES)
def test_completeness(family):
    model, batch = make(family), inputs("right")
    few, exact = dense(model, batch, steps=8), dense(model, batch, steps=500)
    bound = 2e-3 if family == "distilbert" else 1e-5  # the ReLU in its head is a kink: no rule converges fast
    assert exact.gap.abs().max() < min(bound, few.gap.abs().max() / 10)
    with touch(model, factors=scale_layer(1, 0.0)), torch.no_grad():
        at_zero = model(**batch).logits.softmax(-1).gather(-1, exact.target[:, None])[:, 0]
    assert torch.allclose(exact.start[:, 1], at_zero, atol=1e-12)
    total = exact.scores.sum((2, 3, 4))
    assert torch.allclose(total - exact.gap, exact.value[:, None] - exact.start, atol=1e-12)


def test_auto_takes_more_points_only_where_they_are_needed_and_says_how_many():
    model, batch = make("bert"), inputs("right")
    auto = attribute_inputs(model, batch, tolerance=1e-4, floor=1e-9)
    allowed = (1e-4 * (auto.value[:, None] - auto.start).abs()).clamp(min=1e-9)
    assert (auto.gap.abs() <= allowed).all()
    assert len(auto.steps.unique()) > 1, "every layer took the same number: the test is too easy"
    fixed = attribute_inputs(model, batch, steps=6, rule="gauss")
    for row, layer in zip(*torch.where(auto.steps == 6), strict=True):
        assert torch.allclose(auto.scores[row, layer], fixed.scores[row, layer], atol=1e-12)
    for row, layer in zip(*torch.where(auto.steps > 6), strict=True):
        assert fixed.gap[row, layer].abs() > allowed[row, layer]


def test_mean_baseline():
    """The mean head's attention as the start: head-independent attention has nothing to attribute."""
    model, batch = make("bert"), inputs("right")
    exact = dense(model, batch, steps=200, baseline="mean")
    assert exact.gap.abs().max() < 1e-6
    with touch(model, record=[2]) as seen, torch.no_grad():
        model(**batch)
        mean = seen.attention[2].mean(1, keepdim=True).expand_as(seen.attention[2])
        context = mean @ seen.values[2]
    with touch(model, contexts={2: context}), torch.no_grad():
        start = model(**batch).logits.softmax(-1).gather(-1, exact.target[:, None])[:, 0]
    assert torch.allclose(exact.start[:, 2], start, atol=1e-12)
    single = make("bert", num_attention_heads=1)
    assert dense(single, batch, steps=5, baseline="mean").scores.abs().max() == 0


@pytest.mark.parametrize("batch_tokens", [1, 30, 63, 200, 10_000])
@pytest.mark.parametrize("steps", [1, 5, 20])
def test_the_size_of_a_pass_changes_nothing(batch_tokens, steps):
    model, batch = make("bert"), inputs("right")
    whole = attribute_inputs(model, batch, steps=steps, batch_tokens=10_000)
    parts = attribute_inputs(model, batch, steps=steps, batch_tokens=batch_tokens)
    assert torch.allclose(whole.scores, parts.scores, atol=1e-13)


def test_some_layers_are_the_same_layers_of_all():
    model, batch = make("bert"), inputs("right")
    every, some = (attribute_inputs(model, batch, steps=5, layers=layers) for layers in (None, [2, 0]))
    assert some.layers == (2, 0)
    assert torch.allclose(some.scores, every.scores[:, [2, 0]], rtol=0, atol=1e-14)
    for wrong in ([3], [-1], [], [1.5], [True], 3):
        with pytest.raises(ValueError, match="layers is .*: give numbers from 0 to 2"):
            attribute_inputs(model, batch, steps=5, layers=wrong)


@pytest.mark.parametrize("output", ["logit", "log-probability"])
def test_other_outputs(output):
    model, batch = make("bert"), inputs("right")
    exact = dense(model, batch, target=TARGET, output=output)
    with torch.no_grad():
        logits = model(**batch).logits
    values = logits if output == "logit" else logits.log_softmax(-1)
    assert torch.allclose(exact.value, values[torch.arange(3), TARGET], atol=1e-12)
    assert exact.gap.abs().max() < 1e-5


def test_one_output_is_explained_raw_and_many_labels_by_their_own_sigmoid():
    batch = inputs("right")
    single = make("bert", num_labels=1)
    exact = dense(single, batch)
    with torch.no_grad():
        assert torch.allclose(exact.value, single(**batch).logits[:, 0], atol=1e-12)
    assert exact.scores.abs().max() > 1e-3 and exact.probability.isnan().all()
    many = make("bert", problem_type="multi_label_classification")
    with torch.no_grad():
        expected = many(**batch).logits.sigmoid()[torch.arange(3), TARGET]
    assert torch.allclose(attribute_inputs(many, batch, target=TARGET, steps=2).value, expected, atol=1e-12)


def test_an_attribution_inside_a_gate_explains_the_pruned_model():
    model, batch = make("bert"), inputs("right")
    gates = torch.ones(3, 4)
    gates[1, 2] = 0
    with touch(model, factors=gate_heads(gates)):
        gated = dense(model, batch, target=TARGET, steps=64)
    assert (gated.attention[:, 1, 2] == 0).all() and (gated.scores[:, 1, 2] == 0).all()
    model.bert.encoder.layer[1].attention.output.dense.weight.data[:, 2 * 6 : 3 * 6] = 0
    pruned = dense(model, batch, target=TARGET, steps=64)
    rest = torch.ones(3, 4, dtype=torch.bool)
    rest[1, 2] = False
    assert torch.allclose(gated.scores[:, rest], pruned.scores[:, rest], atol=1e-10)


def test_inside_a_touch_that_tells_rows_apart_nothing_is_attributed():
    """Copies of a row would get the factor of another: two of three rows, at two points, are as many as the rows."""
    model, batch = make("bert"), inputs("right", (9, 5))
    by_row = {0: torch.tensor([2.0, 1.0]).reshape(2, 1, 1, 1)}
    for changes in ({"factors": by_row}, {"contexts": {1: torch.zeros(2, 4, 9, 6, dtype=torch.float64)}}):
        with touch(model, **changes), pytest.raises(ValueError, match="inside touch.* differ between the rows"):
            attribute_inputs(model, batch, steps=2, batch_tokens=18)
    with touch(make("bert"), factors=by_row):
        attribute_inputs(model, batch, steps=2)  # another model's touch is no matter


@pytest.mark.parametrize("read", [lambda o: o.logits[0], lambda o: o.logits[torch.arange(3), torch.tensor([5, 1, 2])]])
def test_a_read_that_knows_the_rows_by_number_is_refused(read):
    model = make("bert", head=AutoModelForTokenClassification)
    with pytest.raises(ValueError, match="`read` gave . rows of logits for . rows of inputs"):
        attribute_inputs(model, inputs("right"), steps=2, read=read)


def test_inputs_made_in_inference_mode():
    model, batch = make("bert"), inputs("right")
    expected = attribute_inputs(model, batch, steps=2).scores
    with torch.inference_mode():
        found = model.get_input_embeddings()(batch["input_ids"])
    ours = attribute_inputs(model, {"inputs_embeds": found, "attention_mask": batch["attention_mask"]}, steps=2)
    assert torch.allclose(ours.scores, expected, atol=1e-13)


def test_scores_that_are_not_finite_are_told(classifier):
    def overflow(_, args, output):
        return output + torch.nan if torch.is_grad_enabled() else output

    model = make("bert")
    model.classifier.register_forward_hook(overflow)
    with pytest.warns(UserWarning, match="1 of 1 texts have scores that are not finite numbers, text 0 first"):
        attribute(model, classifier[1], "a good film", steps=2)


@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode])
def test_under_no_grad_and_with_frozen_or_training_weights(context):
    model, batch = make("bert"), inputs("right")
    expected = attribute_inputs(model, batch, steps=3).scores
    with context():
        assert torch.equal(attribute_inputs(model, batch, steps=3).scores, expected)
    first = next(model.parameters()).requires_grad_(False)
    model.train()
    assert torch.equal(attribute_inputs(model, batch, steps=3).scores, expected)
    assert model.training and not first.requires_grad and model.classifier.weight.requires_grad
    assert all(parameter.grad is None for parameter in model.parameters())


def test_without_the_gap_the_scores_are_the_same_and_no_pass_is_made_for_it():
    model, batch = make("bert"), inputs("right")
    whole, bare = (attribute_inputs(model, batch, steps=4, rule="gauss", gap=gap) for gap in (True, False))
    assert torch.equal(whole.scores, bare.scores) and torch.equal(whole.steps, bare.steps)
    assert bare.gap.isnan().all() and bare.start.isnan().all() and whole.gap.isfinite().all()
    passes = {}
    for gap in (True, False):
        runs = []
        hook = model.classifier.register_forward_hook(lambda *_, runs=runs: runs.append(0))
        attribute_inputs(model, batch, steps=4, rule="gauss", gap=gap)
        hook.remove()
        passes[gap] = len(runs)
    assert passes[True] - passes[False] == 1, "one for all layers"


@pytest.mark.parametrize(
    "error", [torch.OutOfMemoryError("full"), RuntimeError("DefaultCPUAllocator: can't allocate memory")]
)
def test_a_batch_that_runs_out_of_memory_is_halved_until_it_fits(error):
    model, batch = make("bert"), inputs("right")
    expected = attribute_inputs(model, batch, steps=9).scores
    sizes = []

    def full(_, args):
        if torch.is_grad_enabled() and args[0].requires_grad:
            sizes.append(len(args[0]))
            if len(args[0]) > 3 * 2:
                raise error

    model.classifier.register_forward_pre_hook(full)
    found = attribute_inputs(model, batch, steps=9, batch_tokens=10_000)
    assert torch.allclose(found.scores, expected, atol=1e-13)
    assert sizes[1:5] == [81, 40, 20, 10] and sizes[5] == 5, "halved until it fits"
    assert set(sizes[5:-1]) == {5}, "found once, kept for what follows"


@pytest.mark.parametrize("error", [torch.OutOfMemoryError("full"), RuntimeError("something else")])
def test_what_halving_cannot_cure_is_raised(error):
    model, batch = make("bert"), inputs("right")

    def fail(_, args):
        if torch.is_grad_enabled() and args[0].requires_grad:
            raise error

    model.bert.encoder.layer[1].register_forward_pre_hook(fail)
    with pytest.raises(RuntimeError, match=str(error)):
        attribute_inputs(model, batch, steps=1)


class _Sizes(TorchDispatchMode):
    """Counts the elements of every tensor that an operation makes, by the shape of its last two axes."""

    def __init__(self, tokens: int) -> None:
        super().__init__()
        self.tokens, self.square = tokens, 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        for tensor in made if isinstance(made, tuple | list) else (made,):
            if isinstance(tensor, torch.Tensor) and tensor.shape[-2:] == (self.tokens, self.tokens):
                self.square = max(self.square, tensor.numel())
        return made


def test_no_query_by_key_matrix_is_made_per_step():
    """The largest [.., query, key] tensor does not grow with the steps, though all of them share one pass."""
    model = make("bert", dtype=torch.float32)
    batch = inputs("right", lengths=(23, 23, 20))
    largest = {}
    for steps in (1, 40):
        with _Sizes(23) as sizes:
            attribute_inputs(model, batch, steps=steps, batch_tokens=10**6)
        largest[steps] = sizes.square
    assert largest[1] == 3 * 3 * 4 * 23 * 23, "the result itself, [batch, layer, head, query, key]"
    assert largest[40] <= 3 * 3 * 40 * 23 * 23, "one mask [query, key] a copy is all that grows: nothing a head"


def test_half_precision_is_summed_in_float32():
    exact = attribute_inputs(make("bert"), inputs("right"), target=TARGET, steps=20)
    half = attribute_inputs(make("bert", dtype=torch.bfloat16), inputs("right"), target=TARGET, steps=20)
    assert half.scores.dtype == half.value.dtype == torch.float32
    assert half.gap.dtype == torch.float64
    error = (half.scores.double() - exact.scores).abs().amax((2, 3, 4)) / exact.scores.abs().amax((2, 3, 4))
    assert error.median() < 0.3


def test_half_precision_says_so(classifier):
    half = make("bert", dtype=torch.bfloat16)
    result = attribute(half, classifier[1], "a good film", steps=2)
    assert result.precision == "bfloat16" and "model in bfloat16, sums in float32" in repr(result)
    with pytest.warns(UserWarning, match="The model is in bfloat16, and its rounding is larger"):
        attribute(half, classifier[1], "a good film", tolerance=1e-6, floor=1e-9)


def test_equal_calls_give_equal_numbers():
    model, batch = make("bert", dtype=torch.float32), inputs("right")
    first, second = (attribute_inputs(model, batch, steps=10) for _ in range(2))
    assert torch.equal(first.scores, second.scores) and torch.equal(first.gap, second.gap)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"steps": 0}, "steps is 0"),
        ({"steps": 2.5}, "steps is 2.5"),
        ({"steps": "many"}, "steps is 'many'"),
        ({"rule": "left"}, "steps='auto' adds points by the nested rule"),
        ({"steps": 3, "rule": "simpson"}, "'simpson' is not known"),
        ({"output": "loss"}, "'loss' is not known: use one of probability, logit, log-probability"),
        ({"baseline": "ones"}, "'ones' is not known: use one of zero, mean"),
        ({"tolerance": 0}, "tolerance is 0"),
        ({"batch_tokens": 0}, "batch_tokens is 0"),
        ({"precision": "float8", "steps": 4}, "'float8' is not known: use one of float32, bfloat16"),
        ({"precision": "bfloat16"}, "steps='auto' goes by a gap finer than bfloat16 resolves"),
        ({"gap": False}, "steps='auto' goes by the gap: for gap=False give a number"),
    ],
)
def test_bad_settings_are_refused_before_any_work(options, message):
    with pytest.raises(ValueError, match=message):
        attribute_inputs(None, {}, **options)


# From here on: texts through attribute()


@pytest.fixture(scope="module")
def classifier():
    return make("bert", dtype=torch.float64), tokenizer_for("bert")


SENTENCES = ["a good film", "the story was very slow , but the end is wonderful !", "dull", "we love the start ."]


def test_a_batch_equals_one_by_one_in_the_order_given(classifier):
    together = attribute(*classifier, SENTENCES, steps=7)
    assert [a.text for a in together] == SENTENCES
    for text, one in zip(SENTENCES, together, strict=True):
        alone = attribute(*classifier, text, steps=7)
        assert alone.tokens == one.tokens and alone.scores.shape == one.scores.shape
        np.testing.assert_allclose(one.scores, alone.scores, atol=1e-7)
        np.testing.assert_allclose(one.gap, alone.gap, atol=1e-9)
        n = len(one.tokens)
        assert one.scores.shape == one.attention.shape == (3, 4, n, n)
        assert one.scores.dtype == one.attention.dtype == np.float32
        np.testing.assert_allclose(one.attention.sum(-1), 1, atol=1e-6)
        np.testing.assert_allclose(one.scores.sum((1, 2, 3)) - one.gap, one.value - one.start, atol=1e-6)


def test_texts_share_a_batch_with_others_of_about_their_length():
    lengths = [30, 7, 8, 7, 46, 31, 7, 30]
    groups = list(_groups(lengths, 4, 1000))
    assert groups == [[1, 3, 6, 2], [0, 7, 5], [4]]
    assert list(_groups([20] * 30, 4, 1000)) == [list(range(12)), list(range(12, 24)), list(range(24, 30))], (
        "the budget"
    )


def test_left_padding_tokenizers_change_nothing(classifier):
    model, tokenizer = classifier
    right = attribute(model, tokenizer, SENTENCES, steps=3)
    tokenizer.padding_side = "left"
    for a, b in zip(right, attribute(model, tokenizer, SENTENCES, steps=3), strict=True):
        np.testing.assert_array_equal(a.scores, b.scores)
    tokenizer.padding_side = "right"


def test_targets_by_index_by_name_and_by_text(classifier):
    model, tokenizer = classifier
    model.config.id2label = {0: "no", 1: "maybe", 2: "yes"}
    predicted = attribute(model, tokenizer, SENTENCES[0], steps=2)
    assert predicted.target == predicted.predicted and predicted.labels == ("no", "maybe", "yes")
    by_name, by_index = (attribute(model, tokenizer, SENTENCES[0], target=t, steps=2) for t in ("maybe", 1))
    np.testing.assert_array_equal(by_name.scores, by_index.scores)
    per_text = attribute(model, tokenizer, SENTENCES, target=["yes", 0, "maybe", 2], steps=2)
    assert [a.target for a in per_text] == [2, 0, 1, 2]
    total = sum(attribute(model, tokenizer, SENTENCES[0], target=t, steps=2).probability for t in range(3))
    assert total == pytest.approx(1)
    for wrong in ("Yes", 3, -1, True):
        with pytest.raises(ValueError, match="There is no class .*: give one of no, maybe, yes"):
            attribute(model, tokenizer, SENTENCES[0], target=wrong)
    with pytest.raises(ValueError, match="2 targets were given for 4 texts"):
        attribute(model, tokenizer, SENTENCES, target=[0, 1])


def test_auto_that_does_not_converge_warns_with_the_cure(classifier, monkeypatch):
    monkeypatch.setattr("helpers.engine.AUTO_STEPS", (1, 2))
    monkeypatch.setattr("helpers.attribution.AUTO_STEPS", (1, 2))
    with pytest.warns(UserWarning, match="completeness gap is still above the tolerance at 2 points"):
        result = attribute(*classifier, SENTENCES[0], tolerance=1e-9, floor=1e-12)
    assert (result.steps == 2).all()


def test_causal_models_attribute_nothing_to_what_comes_later():
    result = attribute(make("gpt2"), tokenizer_for("gpt2"), "a good film", steps=5)
    later = np.triu(np.ones(result.scores.shape[-2:], dtype=bool), 1)
    assert (result.scores[..., later] == 0).all() and np.abs(result.scores).max() > 1e-4


@pytest.mark.parametrize("layers, heads", [(1, 1), (6, 2), (24, 4)])
def test_any_number_of_layers_and_heads(layers, heads):
    model = make("bert", num_hidden_layers=layers, num_attention_heads=heads)
    result = attribute(model, tokenizer_for("bert"), "a good film", steps=2)
    assert result.scores.shape[:2] == (layers, heads)
    assert len(result.start) == len(result.gap) == len(result.steps) == layers


class _MeanOfLayers(BertForSequenceClassification):
    """A head that reads the hidden states of every layer."""

    def forward(self, input_ids=None, attention_mask=None, token_type_ids=None, **kwargs):
        seen = self.bert(input_ids, attention_mask=attention_mask, output_hidden_states=True, **kwargs)
        return SequenceClassifierOutput(logits=self.classifier(torch.stack(seen.hidden_states[1:]).mean(0)[:, 0]))


def test_a_head_that_reads_every_layer_is_attributed_right():
    torch.manual_seed(0)
    model = _MeanOfLayers(CONFIGS["bert"]).double().eval()
    theirs, _ = reference(model, inputs("right"), TARGET, *points_and_weights("right", 7))
    ours = attribute_inputs(model, inputs("right"), target=TARGET, steps=7)
    assert difference(ours.scores, theirs) < 1e-10


def test_encoder_decoders_and_wrappers_are_refused_with_the_cure(classifier):
    model, tokenizer = classifier
    sizes = dict(d_model=16, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2, decoder_attention_heads=2)
    bart = BartForSequenceClassification(BartConfig(vocab_size=60, encoder_ffn_dim=16, decoder_ffn_dim=16, **sizes))
    with pytest.raises(UnsupportedModelError, match="encoder-decoder"):
        attribute(bart, tokenizer, "a good film")
    wrapped = torch.nn.DataParallel(model)
    with pytest.raises(UnsupportedModelError, match="model.module"):
        attribute(wrapped, tokenizer, "a good film")
    both = SimpleNamespace(model=model, tokenizer=tokenizer)
    with pytest.raises(UnsupportedModelError, match="pass its .model and its .tokenizer"):
        attribute(both, tokenizer, "a good film")


def test_outputs_that_are_not_finite_are_refused(classifier):
    model = make("bert")
    model.classifier.bias.data[1] = torch.nan
    with pytest.raises(ValueError, match="not finite"):
        attribute(model, classifier[1], "a good film")


def test_models_that_return_tuples(classifier):
    model, tokenizer = make("bert"), classifier[1]
    expected = attribute(model, tokenizer, "a good film", steps=2).scores
    model.config.return_dict = False
    np.testing.assert_array_equal(attribute(model, tokenizer, "a good film", steps=2).scores, expected)


@pytest.mark.parametrize(
    "target", [1.7, [0.9], [None], torch.tensor(1.0), np.float64(1), [True]], ids=lambda value: repr(value)
)
def test_targets_that_are_no_classes(classifier, target):
    with pytest.raises(ValueError, match="There is no class"):
        attribute(*classifier, ["a good film"], target=target)


@pytest.mark.parametrize("target", [np.int64(2), torch.tensor(2), [torch.tensor(2)], np.array([2]), torch.tensor([2])])
def test_targets_of_any_whole_kind(classifier, target):
    assert attribute(*classifier, ["a good film"], target=target, steps=1)[0].target == 2


def test_two_classes_of_one_name_are_told_apart_by_number_only(classifier):
    model = make("bert")
    model.config.id2label = {0: "x", 1: "x", 2: "y"}
    with pytest.raises(ValueError, match="2 classes are named 'x'"):
        attribute(model, classifier[1], "a good film", target="x")
    assert attribute(model, classifier[1], "a good film", target=1, steps=1).target == 1


@pytest.mark.parametrize("target", [torch.tensor([0, 1, 3]), torch.tensor([0]), [0, -1, 1], 1, torch.ones(3)])
def test_class_numbers_that_do_not_fit_the_batch(target):
    with pytest.raises(ValueError, match="one class number a row"):
        attribute_inputs(make("bert"), inputs("right"), target=target, steps=1)


def test_inputs_that_are_no_batch_are_refused():
    batch = inputs("right")
    for extra in ({"position_ids": torch.arange(9)[None]}, {"return_dict": True}):
        with pytest.raises(ValueError, match="one batch size"):
            attribute_inputs(make("bert"), {**batch, **extra}, steps=1)


def test_layers_from_a_generator_serve_every_batch(classifier):
    results = attribute(*classifier, SENTENCES, steps=2, layers=(n for n in (0, 2)), batch_tokens=1)
    assert {a.layers for a in results} == {(0, 2)}


def test_threads_in_one_model_wait_for_each_other(classifier):
    expected = [a.scores for a in attribute(*classifier, SENTENCES, steps=3)]
    with ThreadPoolExecutor(4) as pool:
        jobs = [pool.submit(attribute, *classifier, SENTENCES[i % 4], steps=3) for i in range(24)]
        for i, job in enumerate(jobs):
            np.testing.assert_allclose(job.result().scores, expected[i % 4], atol=1e-7)


# ---- copies of all layers in one pass --------------------------------------------------------------------------------


def test_copies_of_all_layers_share_one_pass():
    model, batch = make("bert"), inputs("right")
    sizes = []
    model.classifier.register_forward_pre_hook(lambda _, args: sizes.append(len(args[0])))
    attribute_inputs(model, batch, steps=5, gap=False)
    assert sizes[-1] == 3 * 3 * 5, "rows, layers, points"


@pytest.mark.parametrize("batch_tokens", [27, 30, 45, 81, 400])
@pytest.mark.parametrize("family", ["bert", "gpt2", "modernbert", "distilbert"])
def test_where_passes_are_cut_changes_nothing(family, batch_tokens):
    """Among the sizes: as many copies as texts, of several layers, where a share can't be told by its length."""
    model, batch = make(family), inputs("left")
    parts = attribute_inputs(model, batch, steps=3, batch_tokens=batch_tokens)
    one_by_one = [attribute_inputs(model, batch, steps=3, layers=[layer]).scores for layer in range(3)]
    assert torch.allclose(parts.scores, torch.cat(one_by_one, dim=1), rtol=0, atol=1e-12)


def test_auto_takes_no_point_twice():
    model, batch = make("bert"), inputs("right")
    copies = []
    hook = model.classifier.register_forward_pre_hook(
        lambda _, args: copies.append(len(args[0])) if torch.is_grad_enabled() and args[0].requires_grad else None
    )
    found = attribute_inputs(model, batch, tolerance=1e-3, floor=1e-9)
    hook.remove()
    assert found.steps.max() > AUTO_STEPS[0]
    assert sum(copies[1:]) == int(found.steps.sum()), "the first is the search for the row that is read"


def test_bfloat16_passes_are_near_and_said():
    model, batch = make("bert", dtype=torch.float32), inputs("right")
    exact, half = (
        attribute_inputs(model, batch, steps=8, precision=p, output="logit") for p in ("float32", "bfloat16")
    )
    assert half.scores.dtype == torch.float32 and torch.equal(half.value, exact.value), "only the path is run in half"
    error = (half.scores - exact.scores).norm() / exact.scores.norm()
    assert 1e-5 < error < 0.05


@pytest.mark.parametrize("dtype", [torch.float16, torch.float64])
def test_bfloat16_passes_are_for_models_in_float32(dtype):
    """Autocast leaves float64 as it is, and float16 stops it in the middle."""
    with pytest.raises(ValueError, match=f"for models in float32, and this one is in {dtype}"):
        attribute_inputs(make("bert", dtype=dtype), inputs("right"), steps=2, precision="bfloat16")
