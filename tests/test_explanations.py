"""Eight methods against closed forms, and the measures against models whose answer is known."""

from __future__ import annotations

import itertools

import networkx as nx
import numpy as np
import pytest
import texts
import torch
from families import FAMILIES, make

from helpers import explanations, faithfulness, planted
from helpers._explain_graph import flow, mixed, rollout
from helpers._explain_measure import MEASURES, own_tokens
from helpers._explain_vectors import baseline_ids, value_norms
from helpers.attention import UnsupportedModelError
from helpers.attribution import attribute
from helpers.explanations import METHODS, WITH_LINKS, explain, from_links
from helpers.inputs import Word, encode

TWO = ["the film is very good", "a slow start but a wonderful end !"]
READ = np.array([1.0, 0.0, 0.0])


@pytest.fixture(scope="module")
def model():
    return make("bert")


@pytest.fixture(scope="module")
def tokenizer():
    made = texts.tokenizer_for("bert")
    made.mask_token = "[UNK]"  # the small vocabulary has no [MASK]
    return made


def some_attention(seed=0, layers=2, heads=2, n=3):
    return np.random.default_rng(seed).dirichlet(np.ones(n), (layers, heads, n))


# ---- rollout and flow ------------------------------------------------------------------------------------------------


def test_mixing_by_hand():
    attention = np.array([[[[0.2, 0.8], [1.0, 0.0]], [[0.6, 0.4], [0.0, 1.0]]]])
    assert np.allclose(mixed(attention), [[[0.7, 0.3], [0.25, 0.75]]])
    assert np.allclose(mixed(attention, 0), [[[0.4, 0.6], [0.5, 0.5]]])
    assert np.allclose(mixed(attention, 1), [np.eye(2)])
    assert np.allclose(mixed(0.5 * attention, 0), [[[0.4, 0.6], [0.5, 0.5]]])  # rows that don't add up are made to


def test_rollout_of_two_layers_by_hand():
    first = np.array([[0.5, 0.5, 0.0], [0.0, 1.0, 0.0], [0.25, 0.25, 0.5]])
    second = np.array([[0.2, 0.3, 0.5], [0.0, 0.0, 1.0], [1.0, 0.0, 0.0]])
    tokens, links = rollout(np.stack([first, second]), READ)
    assert np.allclose(tokens, [0.2 * 0.5 + 0.5 * 0.25, 0.2 * 0.5 + 0.3 * 1 + 0.5 * 0.25, 0.5 * 0.5])
    assert np.allclose(links[1], [[0.2, 0.3, 0.5], [0, 0, 0], [0, 0, 0]])
    assert np.allclose(links[0], [[0.1, 0.1, 0], [0, 0.3, 0], [0.125, 0.125, 0.25]])


def test_rollout_is_the_sum_over_all_paths():
    mixing, layers, n = mixed(some_attention(layers=3, n=3)), 3, 3
    tokens, links = rollout(mixing, READ)
    by_path, through = np.zeros(n), np.zeros_like(links)
    for path in itertools.product(range(n), repeat=layers):  # tokens at layers 3, 2, 1; token 0 is read
        steps = list(zip(reversed(range(layers)), (0, *path), path, strict=False))
        chance = np.prod([mixing[layer, i, j] for layer, i, j in steps])
        by_path[path[-1]] += chance
        for layer, i, j in steps:
            through[layer, i, j] += chance
    assert np.allclose(tokens, by_path, rtol=0, atol=1e-12)
    assert np.allclose(links, through, rtol=0, atol=1e-12)
    assert np.allclose(links.sum(axis=(1, 2)), 1)


def test_flow_through_a_narrow_place():
    """Token 2 is reached over token 1 of the layer between, whose pipe from the reader is 0.3 wide."""
    first = np.array([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0], [0.0, 1.0, 0.0]])
    second = np.array([[0.7, 0.3, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    assert np.allclose(flow(np.stack([first, second]), READ), [0.7, 0.0, 0.3], rtol=0, atol=1e-6)
    first[1] = [0.0, 0.8, 0.2]
    assert np.allclose(flow(np.stack([first, second]), READ), [0.7, 0.3, 0.2], rtol=0, atol=1e-6)


@pytest.mark.parametrize("readers", [READ, np.full(3, 1 / 3)])
def test_flow_equals_networkx(readers):
    mixing = mixed(some_attention(seed=4, layers=3))
    graph = nx.DiGraph()
    for layer, i, j in np.ndindex(mixing.shape):
        graph.add_edge((layer + 1, i), (layer, j), capacity=mixing[layer, i, j])
    for token in np.flatnonzero(readers):
        graph.add_edge("reader", (len(mixing), token), capacity=readers[token])
    wanted = [nx.maximum_flow_value(graph, "reader", (0, token)) for token in range(3)]
    assert np.allclose(flow(mixing, readers), wanted, rtol=0, atol=1e-6)


def test_no_residual_share_outside_0_and_1():
    with pytest.raises(ValueError, match="from 0 to 1"):
        mixed(some_attention(), 1.5)


# ---- what needs the model --------------------------------------------------------------------------------------------


def test_value_norms_equal_the_norms_of_what_each_head_adds(model, tokenizer):
    """The contribution alpha * (x W_V + b_V) W_O of one key, made from the weights and the hidden states."""
    found = explain("value norms", model, tokenizer, TWO[0])
    outputs = model(**tokenizer(TWO[0], return_tensors="pt"), output_hidden_states=True, output_attentions=True)
    for layer in range(3):
        block, states = model.bert.encoder.layer[layer].attention, outputs.hidden_states[layer][0]
        for head in range(4):
            place = slice(6 * head, 6 * head + 6)
            value = states @ block.self.value.weight[place].T + block.self.value.bias[place]
            moved = value @ block.output.dense.weight[:, place].T  # key, hidden
            for query, key in ((0, 3), (2, 2), (4, 0)):
                wanted = (outputs.attentions[layer][0, head, query, key] * moved[key]).norm().detach()
                assert found.links[layer, head, query, key] == pytest.approx(float(wanted), rel=1e-10)


def test_value_norms_of_known_numbers():
    values = torch.tensor([[[[3.0, 4.0]], [[1.0, 0.0]]]])  # one text, two heads, one key, two dims
    projection = torch.tensor([[1.0, 0.0, 0.0, 5.0], [0.0, 1.0, 2.0, 5.0]])
    assert value_norms(values, projection).flatten().tolist() == [5.0, 2.0]


@pytest.mark.parametrize("family", ["gpt2", "albert"])
def test_value_norms_are_refused_where_the_projection_is_unknown(family):
    tokenizer, other = texts.tokenizer_for(family), make(family)
    other.config.pad_token_id = tokenizer.pad_token_id
    with pytest.raises(UnsupportedModelError, match="output projections of"):
        explain("value norms", other, tokenizer, "a good film", terminal=-1)
    assert explain("attention", other, tokenizer, "a good film", terminal=-1).links.shape[:2] == (3, 4)


def test_gradient_x_attention_is_autograds(model, tokenizer):
    """dF/dA by torch's own graph through the eager attention, no path and no contexts."""
    found = explain("gradient x attention", model, tokenizer, TWO[0], target=2)
    outputs = model(**tokenizer(TWO[0], return_tensors="pt"), output_attentions=True)
    slopes = torch.autograd.grad(outputs.logits.softmax(-1)[0, 2], outputs.attentions)
    for layer in range(3):
        wanted = (slopes[layer] * outputs.attentions[layer])[0].detach()
        assert np.allclose(found.links[layer], wanted, rtol=1e-5, atol=1e-8)
    assert found.target == 2 and np.isnan(found.gap)


def test_attribution_is_ours_and_complete(model, tokenizer):
    found, a = (explain("attribution", model, tokenizer, TWO[1]), attribute(model, tokenizer, TWO[1]))
    assert np.allclose(found.links, a.scores, rtol=1e-6, atol=1e-8)
    assert found.gap == pytest.approx(np.abs(a.gap).max(), rel=1e-6)
    few = explain("attribution", model, tokenizer, TWO[1], steps=2)
    assert few.gap > 10 * found.gap


def test_integrated_gradients_equal_a_path_written_by_hand(model, tokenizer):
    found = explain("integrated gradients", model, tokenizer, TWO[0], target=1, steps=16)
    inputs = tokenizer(TWO[0], return_tensors="pt")
    ids, table = inputs.pop("input_ids"), model.get_input_embeddings()
    start, end = table(baseline_ids(ids, tokenizer)).detach(), table(ids).detach()
    points, weights = np.polynomial.legendre.leggauss(16)
    total = torch.zeros_like(end)
    for point, weight in zip((points + 1) / 2, weights / 2, strict=True):
        at = (start + point * (end - start)).requires_grad_()
        value = model(inputs_embeds=at, **inputs).logits.softmax(-1)[0, 1]
        total += weight * torch.autograd.grad(value, at)[0]
    assert np.allclose(found.token_scores, ((end - start) * total)[0].sum(-1), rtol=0, atol=1e-8)
    assert found.token_scores[0] == found.token_scores[-1] == 0  # [CLS] and [SEP] are the baseline's own


def test_integrated_gradients_are_complete(model, tokenizer):
    found = explain("integrated gradients", model, tokenizer, TWO, steps=64)
    for each, text in zip(found, TWO, strict=True):
        inputs = tokenizer(text, return_tensors="pt")
        blank = {**inputs, "input_ids": baseline_ids(inputs["input_ids"], tokenizer)}
        with torch.no_grad():
            change = [float(model(**some).logits.softmax(-1)[0, each.target]) for some in (inputs, blank)]
        assert each.token_scores.sum() == pytest.approx(change[0] - change[1], abs=1e-3)
        assert abs(each.gap) < 1e-3 < abs(change[0] - change[1])
    assert not model.get_input_embeddings()._forward_hooks


def test_the_baseline_keeps_marks_and_takes_unknown_words_for_words():
    tokenizer = texts.tokenizer_for("bert")  # no mask token: padding
    ids = tokenizer("good zebra", return_tensors="pt")["input_ids"]
    assert baseline_ids(ids, tokenizer).tolist() == [[1, 0, 0, 2]]
    tokenizer.add_special_tokens({"mask_token": "[MASK]"})
    assert baseline_ids(ids, tokenizer).tolist() == [[1, tokenizer.mask_token_id, tokenizer.mask_token_id, 2]]


# ---- the same for all ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
def test_every_method_takes_the_same_and_gives_the_same(model, tokenizer, method):
    found = explain(method, model, tokenizer, TWO, target=[2, 0], steps=4)
    alone = explain(method, model, tokenizer, TWO[0], target=2, steps=4)
    for each, n, target in zip(found, (7, 10), (2, 0), strict=True):
        assert (each.method, each.target, len(each.tokens)) == (method, target, n)
        assert each.token_scores.shape == (n,) and each.token_scores.dtype == float
        assert np.isfinite(each.token_scores).all() and np.ptp(each.token_scores) > 0
        assert (each.links is not None) == (method in WITH_LINKS)
        if each.links is not None:
            assert each.links.shape in ((3, 4, n, n), (3, n, n)) and each.layer_links().shape == (3, n, n)
    assert np.allclose(found[0].token_scores, alone.token_scores, rtol=1e-5, atol=1e-7)
    if method not in WITH_LINKS:
        with pytest.raises(ValueError, match="scores tokens and no links"):
            alone.layer_links()


@pytest.mark.parametrize("family", [each for each in FAMILIES if each != "distilbert"])
def test_rollout_flow_and_gradients_run_in_every_family(family):
    tokenizer, other = texts.tokenizer_for(family), make(family)
    other.config.pad_token_id = tokenizer.pad_token_id
    terminal = {"gpt2": -1, "modernbert": None}.get(family, 0)
    for method in ("rollout", "flow", "integrated gradients"):
        found = explain(method, other, tokenizer, "a good film", terminal=terminal, steps=32)
        assert np.isfinite(found.token_scores).all() and np.ptp(found.token_scores) > 0
        assert method == "integrated gradients" or found.token_scores.max() <= 1 + 1e-6
    assert abs(found.gap) < 0.01  # of integrated gradients


def test_random_numbers_have_a_seed_and_differ_by_text(model, tokenizer):
    first, again = (explain("random", model, tokenizer, [TWO[0]] * 2, seed=3) for _ in range(2))
    other = explain("random", model, tokenizer, [TWO[0]] * 2, seed=4)
    assert np.array_equal(first[1].links, again[1].links)
    assert not np.array_equal(first[0].links, first[1].links)
    assert not np.array_equal(first[0].links, other[0].links)


def test_what_all_take_by_hand():
    links = np.arange(8.0).reshape(2, 2, 2)  # [layer, query, key]
    assert from_links(links, np.ones(2)).tolist() == [(0 + 2 + 4 + 6) / 2, (1 + 3 + 5 + 7) / 2]
    assert from_links(links, np.array([1, 0])).tolist() == [(0 + 2 + 4) / 2, (1 + 3 + 5) / 2]
    assert np.allclose(from_links(np.stack([links, links], axis=1), np.ones(2)), 2 * from_links(links, np.ones(2)))


@pytest.mark.parametrize(
    ("asked", "said"),
    [(("saliency", TWO, {}), "rollout"), (("random", TWO, {"target": 9}), "class 9"), (("rollout", " ", {}), "blank"),
     (("flow", TWO, {"terminal": 10}), "terminal is 10")],
)  # fmt: skip
def test_what_is_wrong_is_said(model, tokenizer, asked, said):
    method, some, options = asked
    with pytest.raises(ValueError, match=said):
        explain(method, model, tokenizer, some, **options)


# ---- the measures ----------------------------------------------------------------------------------------------------


def test_token_measures_are_those_of_the_model_run_one_by_one(model, tokenizer):
    """Hidden and masked tokens of one text, with the probabilities asked for one setting at a time."""
    found = {m: [explain(m, model, tokenizer, TWO[0], target=1)] for m in ("attention", "integrated gradients")}
    outputs = model(**tokenizer(TWO[0], return_tensors="pt"))
    shares, whole = (0, 0.4, 1), outputs.logits.softmax(-1)[0, 1].item()
    for how in ("hidden", "masked"):
        measured = explanations.token_faithfulness(model, tokenizer, TWO[:1], found, shares=shares, how=how)
        assert measured.whole.tolist() == pytest.approx([whole], abs=1e-12)
        for number, (each,) in enumerate(found.values()):
            own = np.arange(1, 6)  # 5 tokens between [CLS] and [SEP]; 40 % are two
            best = own[np.argsort(-each.token_scores[1:6], kind="stable")[:2]]
            rest = np.setdiff1d(own, best)
            for array, gone in ((measured.deleted, best), (measured.inserted, rest)):
                if how == "masked":
                    inputs = tokenizer(TWO[0], return_tensors="pt")
                    inputs["input_ids"][0, gone] = tokenizer.mask_token_id
                    wanted = model(**inputs).logits.softmax(-1)[0, 1].item()
                else:
                    chosen = np.isin(np.arange(7), gone)
                    edges = [faithfulness.from_tokens(chosen, 3)[None]]
                    wanted = faithfulness.without(model, tokenizer, TWO[:1], edges)[0, 0, 1]
                assert array[number, 1, 0] == pytest.approx(float(wanted), abs=1e-12)
        assert measured.deleted[0, 2, 0] == pytest.approx(measured.inserted[0, 0, 0], abs=1e-12)  # nothing left
        assert measured.inserted[0, 2, 0] == pytest.approx(whole, abs=1e-12)


def test_link_measures_follow_faithfulness(model, tokenizer):
    found = {m: explain(m, model, tokenizer, TWO) for m in ("attribution", "random")}
    shares = (0, 0.1, 0.3)
    measured = explanations.link_faithfulness(model, tokenizer, TWO, found, shares=shares)
    target = [each.target for each in found["random"]]
    for number, some in enumerate(found.values()):
        ramps = [faithfulness.ramp(e.layer_links(), shares, allowed=faithfulness.live(3, len(e.tokens))) for e in some]
        for array, follow in (
            (measured.deleted, faithfulness.deletion),
            (measured.inserted, faithfulness.insertion),
        ):
            curve = follow("", model, tokenizer, TWO, ramps, target, shares)
            assert np.allclose(array[number], curve.right, rtol=0, atol=1e-12)
            name = "deletion" if follow is faithfulness.deletion else "insertion"
            by_text = measured.measured(name).iloc[:, number]
            assert by_text.mean() == pytest.approx(curve.area, abs=1e-12)


def made_up():
    deleted = np.array([[[1.0, 0.8], [0.5, 0.4], [0.3, 0.0]], [[1.0, 0.8], [0.9, 0.8], [0.3, 0.0]]])
    inserted = np.array([[[0.3, 0.0], [0.9, 0.6], [1.0, 0.8]], [[0.3, 0.0], [0.4, 0.2], [1.0, 0.8]]])
    return explanations.Faithfulness(("one", "two"), np.array([0, 0.5, 1]), deleted, inserted, np.array([1.0, 0.8]))


def test_measures_of_known_curves():
    known = made_up()
    assert known.measured("comprehensiveness")["one"].tolist() == pytest.approx([0.5, 0.4])
    assert known.measured("sufficiency")["two"].tolist() == pytest.approx([0.6, 0.6])
    assert known.measured("deletion")["one"].tolist() == pytest.approx([0.575, 0.4])
    assert known.measured("insertion")["two"].tolist() == pytest.approx([0.525, 0.3])
    with pytest.raises(ValueError, match="comprehensiveness, sufficiency"):
        known.measured("area")


def test_a_lead_points_the_same_way_in_every_measure():
    table = made_up().table("one").set_index(["measure", "method"])
    for name in MEASURES:
        assert table.loc[(name, "one"), ["lead", "lead_low", "lead_high"]].tolist() == [0, 0, 0]
        assert table.loc[(name, "two"), "lead"] > 0.1
        line = table.loc[(name, "two")]
        assert line["low"] <= line["mean"] <= line["high"] and line["lead_low"] <= line["lead"] <= line["lead_high"]
    assert table.loc[("sufficiency", "two"), "lead"] == pytest.approx(0.45)


def test_measures_refuse_what_does_not_fit(model, tokenizer):
    one = {"attention": explain("attention", model, tokenizer, TWO, target=[0, 1])}
    other = one | {"random": explain("random", model, tokenizer, TWO, target=[1, 1])}
    for some, options, said in (
        (other, {}, "same target"),
        ({}, {}, "none was given"),
        (one, {"shares": (0.1, 0.2)}, "rise from 0"),
        (one, {"how": "removed"}, "hidden, masked"),
    ):
        with pytest.raises(ValueError, match=said):
            explanations.token_faithfulness(model, tokenizer, TWO, some, **options)
    with pytest.raises(ValueError, match="no mask token"):
        explanations.token_faithfulness(model, texts.tokenizer_for("bert"), TWO, one, how="masked")
    with pytest.raises(ValueError, match="10 tokens"):
        explanations.with_masked(model, tokenizer, TWO, [np.ones((1, 7), bool)] * 2)
    with pytest.raises(ValueError, match="scores tokens and no links"):
        explanations.link_faithfulness(model, tokenizer, TWO, {"flow": explain("flow", model, tokenizer, TWO)})


def test_marks_are_no_tokens_of_the_text(model, tokenizer):
    words = encode(model, tokenizer, ("good film", "bad")).words[0]
    assert own_tokens(words).tolist() == [False, True, True, False, True, False]


def test_rank_of_two_words():
    words = [Word(t, i, i + 1, 0 if i else None) for i, t in enumerate(["[CLS]", "a", "b", "c", "d"])]
    words[-1] = Word("d", 4, 6, 0)  # two pieces
    pair, rank = (words[2], words[4]), lambda *scores: explanations.rank_of_words(np.array(scores), words, pair)
    assert rank(9, 0, 2, 1, 0, 3) == 1  # [CLS] is no word, and the best piece of d counts
    assert rank(0, 2, 2, 1, 0, 3) == 2  # a tie counts against the planted
    assert rank(0, 5, 0, 4, 6, 0) == 3
    assert planted.rank_of_link(np.eye(6)[None], words, pair) > 1  # nothing on their link


# ---- the model's state -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
def test_a_model_in_training_under_inference_mode_is_explained_without_dropout(method, model, tokenizer):
    expected = explain(method, model, tokenizer, TWO[0], target=1)
    model.train()
    try:
        with torch.inference_mode():
            found = explain(method, model, tokenizer, TWO[0], target=1)
        assert model.training
    finally:
        model.eval()
    np.testing.assert_allclose(found.token_scores, expected.token_scores, atol=1e-10)


def test_masking_in_training_is_without_dropout(model, tokenizer):
    chosen = [np.zeros((1, len(explain("random", model, tokenizer, TWO[0]).tokens)), dtype=bool)]
    expected = explanations.with_masked(model, tokenizer, TWO[:1], chosen)
    model.train()
    try:
        np.testing.assert_allclose(explanations.with_masked(model, tokenizer, TWO[:1], chosen), expected, atol=1e-10)
    finally:
        model.eval()


@pytest.mark.parametrize("steps", [0, -1, 2.5])
def test_no_points_are_refused(steps, model, tokenizer):
    with pytest.raises(ValueError, match="steps is .*: a whole number of at least 1"):
        explain("integrated gradients", model, tokenizer, TWO[0], steps=steps)
