"""What chosen edges carry: exact where the answer is known, by hand where it is small."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import numpy as np
import pytest
import texts
import torch
from families import CONFIGS, make

from helpers import faithfulness, pruning, tree
from helpers.attention import gate_heads, touch
from helpers.attribution import attribute
from helpers.faithfulness import carried, from_tokens, like, live, ramp, with_only, without

BENCHMARK = Path(__file__).resolve().parents[1] / "benchmarks" / "tree.py"
THREE = ["the film is very good", "a slow start but a wonderful end !", "bad"]
LENGTHS = (7, 10, 3)  # with [CLS] and [SEP]
TOKENIZER = texts.tokenizer_for("bert")


def plain(model, text, tokenizer=TOKENIZER):
    """The probabilities of one text by itself, with the model's own attention."""
    with torch.no_grad():
        return model(**tokenizer(text, return_tensors="pt")).logits.softmax(-1)[0].numpy()


def random_edges(seed=0, *, settings=2, layers=3, heads=None, share=0.5):
    random = np.random.default_rng(seed)
    lead = (settings, layers) if heads is None else (settings, layers, heads)
    return [random.random((*lead, n, n)) < share for n in LENGTHS]


@pytest.fixture(scope="module")
def model():
    return make("bert")


@pytest.mark.parametrize("heads", [None, 4])
@pytest.mark.parametrize("family", ["bert", "electra"])
def test_keeping_all_and_removing_none_are_the_model_itself(family, heads):
    model = make(family)
    every = [np.ones_like(each) for each in random_edges(heads=heads)]
    expected = np.stack([plain(model, text) for text in THREE])
    for found in (with_only(model, TOKENIZER, THREE, every), without(model, TOKENIZER, THREE, [~e for e in every])):
        assert found.shape == (2, 3, 3)
        assert np.allclose(found, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("self_edges", [True, False])
def test_removing_is_keeping_the_rest(model, self_edges):
    edges = random_edges()
    rest = [~each for each in edges]
    kept = with_only(model, TOKENIZER, THREE, edges, self_edges=self_edges)
    assert np.array_equal(kept, without(model, TOKENIZER, THREE, rest, self_edges=self_edges))
    assert np.abs(kept[0] - kept[1]).max() > 1e-4  # the settings are not the same


@pytest.mark.parametrize("heads", [None, 4])
@pytest.mark.parametrize("side", ["right", "left"])
def test_a_padded_batch_equals_the_texts_one_by_one(model, side, heads):
    tokenizer = texts.tokenizer_for("bert")
    tokenizer.padding_side = side
    edges = random_edges(heads=heads)
    together = with_only(model, tokenizer, THREE, edges)
    small = with_only(model, tokenizer, THREE, edges, batch_size=2)
    for row, text in enumerate(THREE):
        alone = with_only(model, tokenizer, text, edges[row : row + 1])
        assert np.allclose(together[:, row], alone[:, 0], rtol=0, atol=1e-12)
    assert np.allclose(together, small, rtol=0, atol=1e-12)


def test_self_edges_stay_on_request_alone(model):
    nothing = [np.zeros_like(each) for each in random_edges()]
    own = [nothing[i] | np.eye(n, dtype=bool) for i, n in enumerate(LENGTHS)]
    kept = with_only(model, TOKENIZER, THREE, nothing)
    assert np.array_equal(kept, with_only(model, TOKENIZER, THREE, own, self_edges=False))
    bare = with_only(model, TOKENIZER, THREE, nothing, self_edges=False)
    with touch(model, factors=gate_heads(np.zeros((3, 4)))):
        assert np.allclose(bare[0], [plain(model, text) for text in THREE], rtol=0, atol=1e-12)
    assert np.abs(kept - bare).max() > 1e-3


def test_a_head_of_its_own_is_a_gate(model):
    edges = [np.ones((1, 3, 4, n, n), dtype=bool) for n in LENGTHS]
    for each in edges:
        each[:, 1, 2] = False
    gates = np.ones((3, 4))
    gates[1, 2] = 0
    expected = pruning.gated_logits(model, TOKENIZER, THREE, gates[None])[0]
    found = with_only(model, TOKENIZER, THREE, edges, self_edges=False)[0]
    assert np.allclose(found, torch.from_numpy(expected).softmax(-1).numpy(), atol=1e-6)


def even(model):
    """The model with all queries 0: every token attends to all tokens alike."""
    for layer in model.bert.encoder.layer:
        layer.attention.self.query.weight.data.zero_()
        layer.attention.self.query.bias.data.zero_()
    return model


def test_by_hand_one_layer_one_edge():
    """With queries of 0 each weight is 1/n; [CLS] reads token 2 alone, still with 1/n: nothing is normalised again."""
    model = even(make("bert", num_hidden_layers=1))
    layer = model.bert.encoder.layer[0]
    batch = TOKENIZER(THREE[0], return_tensors="pt")
    edges = np.zeros((1, 1, 7, 7), dtype=bool)
    edges[0, 0, 0, 2] = True
    with torch.no_grad():
        hidden = model.bert.embeddings(batch["input_ids"], token_type_ids=batch["token_type_ids"])
        context = layer.attention.self.value(hidden)[:, 2:3] / 7
        attended = layer.attention.output(context, hidden[:, :1])
        out = layer.output(layer.intermediate(attended), attended)
        expected = model.classifier(model.bert.pooler(out)).softmax(-1)
    found = with_only(model, TOKENIZER, THREE[0], [edges], self_edges=False)
    assert np.allclose(found[0], expected.numpy(), rtol=0, atol=1e-12)


def disturbed(model, layer, token, function):
    """What a function returns while one token's value in one layer is another."""

    def change(module, inputs, output):
        output = output.clone()
        output[:, token] += 1.0
        return output

    hook = model.bert.encoder.layer[layer].attention.self.value.register_forward_hook(change)
    try:
        return function()
    finally:
        hook.remove()


def test_nothing_flows_along_a_removed_edge(model):
    """Another value of token 3 in the last layer changes what [CLS] reads, unless that one edge is gone."""
    edge, other = (np.zeros((1, 3, 7, 7), dtype=bool) for _ in range(2))
    edge[0, 2, 0, 3], other[0, 2, 0, 4] = True, True
    for removed, blind in ((edge, True), (other, False)):

        def found(removed=removed):
            return without(model, TOKENIZER, THREE[0], [removed])

        assert (np.abs(disturbed(model, 2, 3, found) - found()).max() < 1e-12) == blind


def test_a_token_whose_edges_are_gone_is_not_read_by_others(model):
    """Texts that differ in one word answer alike once nobody reads it; its share of every softmax still counts."""
    pair = ["the film is very good", "the film is not good"]
    gone = from_tokens(np.arange(7) == 4, 3)
    assert gone.sum() == 3 * 6 and not gone[:, 4, 4].any()
    for asked, alike in ((even(make("bert")), True), (model, False)):  # even: what a token's key is changes no weight
        one, two = without(asked, TOKENIZER, pair, [gone[None]] * 2)[0]
        assert np.allclose(one, two, rtol=0, atol=1e-12) == alike
        assert np.abs(plain(asked, pair[0]) - plain(asked, pair[1])).max() > 1e-3


def test_the_rows_that_live_leaves_out_change_nothing(model):
    for n, text in zip(LENGTHS, THREE, strict=True):
        dead = ~live(3, n)
        assert dead[:-1].sum() == 2 * n and live(3, n)[-1].sum() == n - 1
        found = without(model, TOKENIZER, text, [dead[None]], self_edges=True)[0, 0]
        assert np.allclose(found, plain(model, text), rtol=0, atol=1e-12)


def test_live_where_all_tokens_are_read_or_another_one():
    assert live(2, 4, terminal=None).sum() == 2 * 12
    assert np.argwhere(live(2, 4, terminal=-1)[1]).tolist() == [[3, 0], [3, 1], [3, 2]]
    assert not live(3, 1).any()
    for wrong in (4, -5):
        with pytest.raises(ValueError, match=f"terminal is {wrong} and there are 4 tokens"):
            live(2, 4, terminal=wrong)


def test_what_live_leaves_out_of_a_causal_model_changes_nothing():
    gpt2, tokenizer, text = make("gpt2"), texts.tokenizer_for("gpt2"), "a film bad good"
    dead = ~live(3, 4, terminal=-1, causal=True)
    assert (~dead).sum() == 2 * 6 + 3
    found = without(gpt2, tokenizer, text, [dead[None]])[0, 0]
    assert np.allclose(found, plain(gpt2, text, tokenizer), rtol=0, atol=1e-12)


@pytest.mark.parametrize("layers", [1, 24])
@pytest.mark.parametrize("text", ["bad", "the film is <script> & $ _ 🙂", ("the film", "is not good")])
def test_a_tree_of_any_depth_and_text_is_measured(layers, text):
    model = make("bert", num_hidden_layers=layers)
    found = attribute(model, TOKENIZER, text, steps=1)
    kept = tree.mask(tree.attribution_tree(found), self_edges=False)
    rival = like(kept, found.attention.sum(axis=1), allowed=live(layers, len(found.tokens)))
    assert rival.sum() == kept.sum()
    measured = carried(model, TOKENIZER, text, {"tree": [kept], "rival": [rival]})
    one = with_only(model, TOKENIZER, text, [kept[None]])[0, 0]
    assert np.allclose(measured.only[0, 0], one, rtol=0, atol=1e-12)


def test_the_benchmark_draws_no_edge_that_a_causal_model_does_not_have(monkeypatch):
    found = attribute(make("gpt2"), texts.tokenizer_for("gpt2"), "a good film is not very bad", steps=2)
    monkeypatch.setattr(sys, "path", list(sys.path))  # the benchmark adds to it
    chosen = runpy.run_path(str(BENCHMARK))["choices"]([found], 0.0, np.random.default_rng(0))
    there = found.attention.sum(axis=1) > 0
    assert chosen["random"][0].sum() == chosen["tree"][0].sum() > 3
    assert [name for name, (edges,) in chosen.items() if (edges & ~there).any()] == []


def test_choices_of_tokens_are_true_or_false_and_no_positions():
    for wrong in ([0, 2], [0, 1, 0], np.ones((3, 3), dtype=bool)):
        with pytest.raises(ValueError, match="True or False for every token"):
            from_tokens(wrong, 2)


def test_as_many_edges_in_every_layer_the_best_that_are_allowed():
    reference = np.zeros((2, 3, 3), dtype=bool)
    reference[0, 0, :2] = reference[1, 2, 2] = True
    scores = np.arange(18.0).reshape(2, 3, 3)
    assert np.argwhere(like(reference, scores)).tolist() == [[0, 2, 1], [0, 2, 2], [1, 2, 2]]
    allowed = live(2, 3)
    assert np.argwhere(like(reference, scores, allowed=allowed)).tolist() == [[0, 2, 0], [0, 2, 1], [1, 0, 2]]
    ties = like(reference, np.zeros((2, 3, 3)), allowed=allowed)
    assert np.argwhere(ties).tolist() == [[0, 0, 1], [0, 0, 2], [1, 0, 1]]
    heads = like(np.ones((2, 4, 3, 3), dtype=bool), np.zeros((2, 4, 3, 3)))
    assert heads.all()


@pytest.mark.parametrize("kind", [np.uint8, np.float16, np.int64])
def test_scores_of_every_kind_of_number_are_put_in_order(kind):
    scores = np.array([[[0, 3], [9, 1]]], dtype=kind)
    assert np.argwhere(like(np.eye(2, dtype=bool)[None], scores)).tolist() == [[0, 0, 1], [0, 1, 0]]


@pytest.mark.parametrize(
    ("scores", "allowed", "said"),
    [
        (np.zeros((2, 3, 4)), None, "of the scores' shape"),
        (np.full((2, 3, 3), np.nan), None, "nan"),
        (np.zeros((2, 3, 3)), np.ones((2, 3, 3)), "float64"),
        (np.zeros((2, 3, 3)), np.ones((2, 3, 4), dtype=bool), "don't fit"),
        (np.zeros((2, 3, 3)), np.zeros((2, 3, 3), dtype=bool), "9 edges are wanted in layer 0, where 0"),
    ],
)
def test_a_choice_that_cannot_be_made_is_refused(scores, allowed, said):
    with pytest.raises(ValueError, match=said):
        like(np.ones((2, 3, 3), dtype=bool), scores, allowed=allowed)


def test_a_reference_of_numbers_or_of_another_text_is_refused():
    for reference in (np.ones((2, 3, 3)), np.zeros((2, 2, 2), dtype=bool)):
        with pytest.raises(ValueError, match="a bool array of the scores' shape"):
            like(reference, np.zeros((2, 3, 3)), allowed=live(2, 3))
    with pytest.raises(ValueError, match="No fraction"):
        ramp(np.zeros((2, 3, 3)), [])


def test_a_ramp_rises_from_none_to_all_and_each_step_holds_the_last():
    random = np.random.default_rng(0)
    scores, allowed = random.normal(size=(3, 8, 8)), live(3, 8)
    steps = ramp(scores, [0, 0.25, 0.5, 1], allowed=allowed)
    assert not steps[0].any() and np.array_equal(steps[-1], allowed)
    assert all((after >= before).all() for before, after in zip(steps, steps[1:], strict=False))
    assert steps[1].sum(axis=(1, 2)).tolist() == [14, 14, 2]  # a quarter of 56, 56 and 7, rounded up
    assert ramp(scores, [0.01, 0.1, 0.7], allowed=allowed).sum(axis=(2, 3)).tolist() == [
        [1, 1, 1],
        [6, 6, 1],
        [40, 40, 5],
    ]
    with pytest.raises(ValueError, match="1.5 was asked for"):
        ramp(scores, [0, 1.5])
    assert scores[0][steps[1][0]].min() > scores[0][allowed[0] & ~steps[1][0]].max()


def test_carried_puts_the_numbers_together(model):
    masks = {name: [each[0] for each in random_edges(seed)] for seed, name in enumerate(("one", "two"))}
    found = carried(model, TOKENIZER, THREE, masks)
    expected = np.stack([plain(model, text) for text in THREE])
    assert np.allclose(found.whole, expected, atol=1e-12)
    assert found.target.tolist() == expected.argmax(-1).tolist()
    assert np.allclose(found.start, expected.max(-1))
    one = with_only(model, TOKENIZER, THREE, [each[None] for each in masks["one"]])[0]
    kept = one[np.arange(3), found.target]
    assert np.allclose(found.probability()["one"], kept) and list(found.probability()) == ["one", "two"]
    assert np.allclose(found.sufficiency["one"], found.start - kept)
    less = without(model, TOKENIZER, THREE, [each[None] for each in masks["two"]])[0][np.arange(3), found.target]
    assert np.allclose(found.comprehensiveness["two"], found.start - less)
    assert found.answers()["one"].tolist() == (one.argmax(-1) == found.target).tolist()
    assert found.answers(gold=one.argmax(-1))["one"].all()
    other = carried(model, TOKENIZER, THREE, masks, target=[0, 1, 2])
    assert np.allclose(other.start, np.diag(expected))
    assert np.allclose(carried(model, TOKENIZER, THREE, masks, target=1).start, expected[:, 1])
    for gold in ([0, 1], ["one", "two", "one"], [True, False, True]):
        with pytest.raises(ValueError, match="one class number a text"):
            found.answers(gold=gold)
    with pytest.raises(ValueError, match="use one of only, less"):
        found.probability("without")


def test_a_model_with_one_output_keeps_no_answer():
    model = make("bert", num_labels=1)
    found = carried(model, TOKENIZER, THREE, {"all": [np.ones((3, n, n), dtype=bool) for n in LENGTHS]})
    assert np.allclose(found.start, found.probability()["all"])
    with pytest.raises(ValueError, match="one output"):
        found.answers()


def test_outputs_that_are_no_numbers_are_refused():
    model = make("bert")
    model.classifier.weight.data[:] = np.nan
    with pytest.raises(ValueError, match="not finite"):
        with_only(model, TOKENIZER, "bad", [np.ones((1, 3, 3, 3), dtype=bool)])


def test_curves_start_and_end_where_they_must_and_their_area_is_exact(model):
    fractions = [0.0, 0.5, 1.0]
    random = np.random.default_rng(1)
    edges = [ramp(random.random((3, n, n)), fractions, allowed=live(3, n)) for n in LENGTHS]
    target = [0, 1, 2]
    whole = np.array([plain(model, text)[t] for text, t in zip(THREE, target, strict=True)])
    down = faithfulness.deletion("d", model, TOKENIZER, THREE, edges, target, fractions)
    up = faithfulness.insertion("i", model, TOKENIZER, THREE, edges, target, fractions)
    assert np.allclose(down.right[0], whole) and np.allclose(up.right[-1], whole)
    assert np.allclose(down.right[-1], up.right[0])  # nothing left: self-edges alone, twice
    assert np.isclose(down.area, np.mean(0.25 * down.right[0] + 0.5 * down.right[1] + 0.25 * down.right[2]))
    assert pruning.compare(up, up).difference == 0
    named = faithfulness.deletion("n", model, TOKENIZER, THREE, edges, [f"LABEL_{t}" for t in target], fractions)
    assert np.array_equal(named.right, down.right)
    for wrong, shares in ((None, fractions), (target, [0, 1]), (target, [1, 0.5, 0])):
        with pytest.raises(ValueError, match="the class to follow, and the fractions of the 3 settings"):
            faithfulness.insertion("w", model, TOKENIZER, THREE, edges, wrong, shares)
    with pytest.raises(ValueError, match="no class -1"):
        faithfulness.insertion("w", model, TOKENIZER, THREE, edges, [-1, 0, 1], fractions)


def test_paired_is_the_mean_difference_within_its_bounds():
    random = np.random.default_rng(0)
    common = random.normal(scale=5, size=80)  # what texts share falls out
    mean, low, high = faithfulness.paired(common + random.normal(1, 0.1, size=80), common)
    assert low < mean < high and abs(mean - 1) < 0.05 and high - low < 0.1
    for wrong in (common[:1], np.where(common > 0, np.nan, common), common[:, None]):
        with pytest.raises(ValueError, match="one number a text"):
            faithfulness.paired(wrong, common)


@pytest.mark.parametrize(
    ("edges", "said"),
    [
        (lambda e: e[:2], "for 2 texts of 3"),
        (lambda e: np.ones((3, 1, 3, 7, 7), dtype=bool), "a list with one array a text"),
        (lambda e: [each.astype(float) for each in e], "float64"),
        (lambda e: [each[0] for each in e], "bool"),
        (lambda e: [each[..., 1:, 1:] for each in e], "same max_length"),
        (lambda e: [each[:0] for each in e], "one setting or more"),
        (lambda e: [e[0][:1], *e[1:]], "equally many"),
        (lambda e: [each[:, :2] for each in e], "cover 2 layers and the model has 3"),
    ],
)
def test_edges_that_do_not_fit_are_refused(model, edges, said):
    with pytest.raises(ValueError, match=said):
        with_only(model, TOKENIZER, THREE, edges(random_edges()))


def test_too_many_layers_or_heads_are_refused(model):
    with pytest.raises(ValueError, match="layers are 0 to 2"):
        with_only(model, TOKENIZER, THREE, random_edges(layers=4))
    with pytest.raises(ValueError, match="does not broadcast"):
        with_only(model, TOKENIZER, THREE, random_edges(heads=3))
    with pytest.raises(ValueError, match="one choice"):
        carried(model, TOKENIZER, THREE, {})
    mixed = {"all heads": [e[0] for e in random_edges()], "each": [e[0] for e in random_edges(heads=4)]}
    with pytest.raises(ValueError, match="equally many layers and heads"):
        carried(model, TOKENIZER, THREE, mixed)
    with pytest.raises(ValueError, match=r"text 0 are bool \(2, 2, 3, 7, 7\): bool \[layer, query, key\]"):
        carried(model, TOKENIZER, THREE, {"with settings": random_edges(heads=3, layers=2, settings=2)})


def test_a_text_cut_to_a_length_goes_with_edges_of_that_length(model):
    edges = np.ones((1, 3, 6, 6), dtype=bool)
    with pytest.warns(UserWarning, match="cut to 6") as said:
        found = with_only(model, TOKENIZER, THREE[1], [edges], max_length=6)
        carried(model, TOKENIZER, THREE[1], {"all": [edges[0]]}, max_length=6)
    assert [warning.filename for warning in said] == [__file__] * 2  # one each, and it points here
    cut = TOKENIZER(THREE[1], truncation=True, max_length=6, return_tensors="pt")
    with torch.no_grad():
        assert np.allclose(found[0], model(**cut).logits.softmax(-1).numpy(), atol=1e-12)
    assert CONFIGS["bert"].max_position_embeddings == 40  # as in the other tests: nothing else was cut
