"""Attribution trees: small ones worked out by hand, rules that hold for any scores, the optimum, and every export."""

from __future__ import annotations

import itertools
import json
import math
import re
import warnings
from dataclasses import replace
from xml.etree import ElementTree

import networkx as nx
import numpy as np
import pytest
from families import make
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sample import HARD, sample
from texts import tokenizer_for

from helpers import tree as trees
from helpers.attribution import attribute
from helpers.tree import VARIANTS, Rules, attribution_tree, edges, objective, optimum, overlap, pruned, trace

PAPER = VARIANTS["paper"]
TOKENS = ("[CLS]", "a", "b", "c", "[SEP]")


def scores_of(layers, tokens, **entries):
    """Scores that are 0 but for entries such as l1q2k3=5."""
    scores = np.zeros((layers, tokens, tokens))
    for name, value in entries.items():
        scores[tuple(map(int, re.fullmatch(r"l(\d+)q(\d+)k(\d+)", name).groups()))] = value
    return scores


@pytest.fixture
def by_hand():
    """Three layers in which the two variants part: the class token's row holds layer 1's maximum."""
    return scores_of(
        3, 5, l2q0k2=6, l2q0k1=3, l2q0k3=-1, l1q0k3=10, l1q2k1=5, l1q2k3=4, l0q1k3=2, l0q2k3=1, l0q1k4=1
    )  # fmt: skip


# ---- the algorithm ---------------------------------------------------------------------------------------------------


def test_paper_by_hand(by_hand):
    tree = attribution_tree(by_hand, TOKENS)
    # b receives 10 in all and is the top; (b, c) is 0.4 of the maximum, which is not above 0.4; [SEP] is a leaf
    assert edges(tree, "link") == {(1, 2, 1), (0, 1, 3)}
    assert edges(tree, "terminal") == {(2, 0, 2), (2, 0, 1)}, "c's link to the class token is negative"
    assert tree.graph["top"] == 2 and tree.graph["terminal"] == 0 and tree.graph["note"] == ""
    assert tree.nodes[3] == {
        "token": "c", "word": "c", "segment": 0, "role": "joined", "layer": 0, "score": 2.0, "received": 0.0,
    }  # fmt: skip
    assert (tree.nodes[2]["role"], tree.nodes[2]["layer"], tree.nodes[2]["received"]) == ("top", 2, 10.0)
    assert (tree.nodes[0]["role"], tree.nodes[0]["layer"], tree.nodes[0]["score"]) == ("terminal", None, 9.0)
    assert tree.edges[2, 1] == {
        "layer": 1, "score": 5.0, "share": 0.5, "kind": "link", "query": "b", "key": "a",
    }  # fmt: skip
    assert objective(tree) == 16 and objective(tree, 1.5) == 10
    assert objective(tree, scale="share") == pytest.approx(0.5 + 1 + 1 + 0.5)


def test_released_by_hand(by_hand):
    tree = attribution_tree(by_hand, TOKENS, variant="released")
    assert edges(tree) == {(1, 2, 1), (1, 2, 3), (0, 1, 4)}, "no maximum from the class token's row; [SEP] stays"
    assert set(tree) == {1, 2, 3, 4} and tree.edges[2, 3]["share"] == 0.8


def test_released_only_lets_the_top_receive_at_first_and_takes_candidates_by_position():
    scores = scores_of(3, 5, l1q2k1=10, l1q1k3=9, l0q1k3=8, l0q2k3=9, l0q3k4=7, l0q3k0=6)
    assert edges(attribution_tree(scores, TOKENS, variant="released")) == {(1, 2, 1), (0, 1, 3), (0, 3, 0), (0, 3, 4)}
    own = replace(PAPER, drop_separators=False)
    assert edges(attribution_tree(scores, TOKENS, variant=own), "link") == {(1, 2, 1), (1, 1, 3), (0, 3, 4)}
    # largest first, but a layer's edges in a row mean no flow of information: rules of one's own can forbid it
    own = replace(own, chain=False)
    assert edges(attribution_tree(scores, TOKENS, variant=own), "link") == {(1, 2, 1), (0, 2, 3)}


def test_released_chooses_its_top_by_positive_sums():
    scores = scores_of(2, 4, l0q1k2=10, l0q1k3=-9, l0q2k3=5)
    names = ("[CLS]", "a", "b", "c")
    assert attribution_tree(scores, names, variant="released").graph["top"] == 1
    assert attribution_tree(scores, names).graph["top"] == 2


def test_an_edge_stays_where_it_was_first_found():
    scores = scores_of(4, 4, l2q1k2=1, l1q1k2=9, l1q2k1=9, l0q3k1=1, l0q2k3=1)
    tree = attribution_tree(scores, ("[CLS]", "a", "b", "c"))
    assert edges(tree, "link") == {(2, 1, 2), (0, 2, 3)}, "neither repeated, nor reversed, nor a second parent"


def test_gathering_of_the_top_alone_makes_every_node_have_one_parent(by_hand):
    tree = attribution_tree(by_hand, TOKENS, variant=replace(PAPER, gather="top"))
    assert edges(tree) == {(1, 2, 1), (0, 1, 3), (2, 0, 2)} and nx.is_arborescence(tree)


def test_last_threshold(by_hand):
    assert edges(attribution_tree(by_hand, TOKENS, last_tau=0.5), "terminal") == {(2, 0, 2)}


def test_a_separator_is_kept_where_it_passes_something_on():
    tokens = ("[CLS]", "a", "[SEP]", "b", "[SEP]")
    scores = scores_of(4, 5, l2q1k2=1, l1q2k3=1, l0q3k4=1)
    tree = attribution_tree(scores, tokens)
    assert edges(tree, "link") == {(2, 1, 2), (1, 2, 3)}
    scores[1] = 0
    assert edges(attribution_tree(scores + scores_of(4, 5, l3q0k1=1), tokens)) == {(3, 0, 1)}, "a chain of separators"
    assert [step.key for step in trace(scores_of(3, 5, l1q1k2=1, l0q2k4=1), tokens) if step.action == "drop"] == [4, 2]


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("value", [0.0, -1.0])
def test_nothing_passes(variant, value):
    tree = attribution_tree(np.full((3, 2, 4, 4), value), variant=variant)
    assert set(tree) == {0} and not tree.edges and tree.nodes[0]["role"] == "terminal"
    assert "No edge" in tree.graph["note"] and "no score is positive" in tree.graph["note"]
    assert tree.graph["top"] is None and objective(tree, 3) == 0


def test_nothing_above_a_high_threshold_says_so():
    tree = attribution_tree(scores_of(2, 3, l0q1k2=1), tau=1.0)
    assert not tree.edges and "exceeds 1 of its layer's maximum" in tree.graph["note"]


def test_a_note_says_what_was_in_the_way():
    names, tau = ("[CLS]", "a", "[SEP]", "b"), dict(tau=0.5)
    top = scores_of(2, 4, l0q2k0=9, l1q0k2=5)  # [SEP] receives most, from the class token, which joins nothing
    tree = attribution_tree(top, names, **tau)
    assert not tree.edges and "the top node is a separator, [SEP]" in tree.graph["note"]
    tree = attribution_tree(scores_of(2, 4, l0q1k2=9, l1q1k1=1), names, **tau)
    assert not tree.edges and "that pass come from separators that are leaves, and the class" in tree.graph["note"]
    low = scores_of(2, 4, l0q1k3=1, l0q1k1=9, l1q3k3=1)
    assert "and the class token's link" in attribution_tree(low, names, **tau).graph["note"]
    assert "class token" not in attribution_tree(low, names, **tau, variant="released").graph["note"]
    assert "no token but the one" in attribution_tree(np.ones((2, 1, 1)), ["[CLS]"]).graph["note"]
    pays = scores_of(2, 4, l0q1k3=9, l1q0k1=5)
    assert attribution_tree(pays, names).edges
    assert "No edge is worth its penalty" in optimum(pays, names, penalty=100).tree.graph["note"]


def test_one_negative_layer_does_not_count():
    scores = scores_of(3, 4, l1q1k2=1)
    scores[0] = -5.0
    assert edges(attribution_tree(scores), "link") == {(1, 1, 2)}


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_scores_that_are_no_numbers_are_refused(bad):
    with pytest.raises(ValueError, match="2 of 27 scores are not finite"):
        attribution_tree(scores_of(3, 3, l1q1k2=bad, l0q0k0=bad))


def test_one_layer_one_head():
    tree = attribution_tree(scores_of(1, 4, l0q0k2=3, l0q0k1=2)[:, None])
    assert edges(tree) == {(0, 0, 2)}, "no token receives, so the top is what the class token reads most"


def test_one_token():
    assert not attribution_tree(np.ones((2, 3, 1, 1)), ["[CLS]"]).edges


def test_many_layers():
    scores = np.zeros((24, 24, 24))
    for layer in range(1, 23):  # a chain: each token receives from the one before it, one layer further down
        scores[layer, layer + 1, layer] = 1
    scores[23, 0, 23] = 1
    tree = attribution_tree(scores, terminal=0)
    assert edges(tree) == {(layer, layer + 1, layer) for layer in range(1, 23)} | {(23, 0, 23)}
    assert tree.graph["top"] == 23 and trees.layout(tree)[1] == (1, 2)


def test_a_repeated_token_is_two_nodes():
    tree = attribution_tree(scores_of(2, 4, l0q1k2=2, l0q1k3=2), ("[CLS]", "not", "very", "very"))
    assert [tree.nodes[node]["token"] for node in (2, 3)] == ["very", "very"] and edges(tree, "link") == {
        (0, 1, 2), (0, 1, 3),
    }  # fmt: skip


def test_a_causal_model_is_read_at_its_last_token():
    scores = np.tril(np.random.default_rng(0).random((4, 2, 6, 6)))
    tree = attribution_tree(scores, tau=0.2)
    assert tree.graph["terminal"] == 5
    assert all(query > key for _, query, key in edges(tree)) and edges(tree, "link")
    assert attribution_tree(scores, terminal=-2).graph["terminal"] == 4


def test_ties_are_broken_by_position():
    tree = attribution_tree(np.ones((3, 4, 4)))
    assert tree.graph["top"] == 1 and edges(tree, "link") == {(1, 1, 2), (1, 1, 3)}


def test_layers_may_come_in_any_order(by_hand):
    mixed = attribution_tree(by_hand[[2, 0, 1]], TOKENS, layers=[8, 2, 5])
    assert edges(mixed, "link") == {(5, 2, 1), (2, 1, 3)} and mixed.graph["layers"] == (2, 5, 8)


# ---- attributions, segments, words -----------------------------------------------------------------------------------


def test_an_attribution_brings_its_names_along():
    a = sample(("Un", "forgettable", "🤖"), pieces=("forgettable",))
    tree = attribution_tree(a, tau=0)
    assert tree.graph["labels"] == ("[CLS]", "Un", "fo", "##rgettable", "🤖 ([UNK])", "[SEP]")
    assert [tree.nodes[node]["token"] for node in (1, 3, 4)] == ["un", "##rgettable", "[UNK]"]
    assert [tree.nodes[node]["word"] for node in (1, 3, 4)] == ["Un", "forgettable", "🤖"]
    array = attribution_tree(a.scores, a.tokens, words=a.words, layers=a.layers, tau=0)
    assert nx.utils.graphs_equal(tree, array)


@pytest.mark.parametrize("family, options, pools", [
    ("bert", {}, False), ("bert", {"layers": [0, 1]}, True), ("gpt2", {}, False), ("modernbert", {}, True),
])  # fmt: skip
def test_a_classifier_that_reads_several_tokens_is_warned_of(family, options, pools):
    a = attribute(make(family), tokenizer_for(family), "a good film is not very bad", steps=2, **options)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        attribution_tree(a), attribution_tree(a.scores, a.tokens)
    said = [str(w.message) for w in caught if "read at more than one token" in str(w.message)]
    assert len(said) == pools, "for an Attribution alone: other scores may have rows that nothing reads"
    assert all(w.filename == __file__ for w in caught)


def test_pieces_are_merged_by_adding_their_scores():
    a = sample(("un", "forgettable", "film"), pieces=("forgettable",))
    tree = attribution_tree(a, tau=0, merge=True)
    assert tree.graph["labels"] == ("[CLS]", "un", "forgettable", "film", "[SEP]")
    assert tree.graph["starts"] == (0, 1, 2, 4, 5)
    summed = a.scores.astype(float).sum(1)
    for layer, query, key in edges(tree):
        spans = [slice(node, node + (2 if node == 2 else 1)) for node in (query, key)]
        assert tree.edges[query, key]["score"] == pytest.approx(summed[layer][tuple(spans)].sum())
    assert any(2 in edge[1:] for edge in edges(tree)), "the merged word takes part"


def test_words_in_numbers_of_any_make_can_be_saved(by_hand, tmp_path):
    plain = [("x", 0, 2, 0), ("3", 2, 5, None)]
    numpy = [("x", np.int64(0), np.int32(2), np.int64(0)), (3, np.int64(2), np.int64(5), None)]
    tree = attribution_tree(by_hand, TOKENS, words=numpy, merge=True)
    assert nx.utils.graphs_equal(tree, attribution_tree(by_hand, TOKENS, words=plain, merge=True))
    assert nx.utils.graphs_equal(trees.load(trees.save(tree, tmp_path / "tree.json")), tree)


def test_segments_from_words_or_separators():
    tokens = ("[CLS]", "a", "b", "[SEP]", "b", "[SEP]")
    scores = scores_of(3, 6, l1q1k4=1, l0q4k2=1)
    table = trees.reach(attribution_tree(scores, tokens))
    assert table.distance.tolist() == [3, 2] and table.across.tolist() == [True, True]
    same = scores_of(3, 6, l1q1k2=1, l0q2k3=1, l2q0k1=1)
    assert trees.reach(attribution_tree(same, tokens)).across.tolist() == [False]
    roberta = attribution_tree(np.ones((2, 7, 7)), ("<s>", "a", "</s>", "</s>", "b", "c", "</s>"), tau=0)
    assert [roberta.nodes[node]["segment"] for node in (0, 1, 4, 5)] == [None, 0, 1, 1]


@pytest.mark.parametrize("ends", ["top", "terminal"])
def test_reach_counts_special_tokens_as_neither(ends):
    table = trees.reach(attribution_tree(scores_of(2, 4, l0q1k2=1, l1q0k1=1), TOKENS[:4]), "terminal")
    assert table.across.isna().all() and table.distance.tolist() == [1]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (dict(scores=np.ones((2, 3))), "have shape"),
        (dict(scores=np.ones((2, 3, 4))), "as many queries as keys"),
        (dict(scores=np.ones((0, 3, 3))), "none of them 0"),
        (dict(tokens=["a"]), "1 tokens were given for scores of 3"),
        (dict(tau=1.1), "tau is 1.1"),
        (dict(tau=np.nan), "tau is nan"),
        (dict(tau="0.4"), "tau is '0.4'"),
        (dict(last_tau=-0.1), "last_tau is -0.1"),
        (dict(variant="code"), "no variant 'code'"),
        (dict(terminal=3), "terminal is 3"),
        (dict(layers=[0, 0]), "its own number"),
        (dict(layers=[0]), "its own number"),
        (dict(merge=True), "needs to know the words"),
        (dict(words=[("a", 0, 1, 0)]), "don't cover the 3 tokens"),
        (dict(words=[("a", 0, 2, 0), ("b", 1, 3, 0)]), "don't cover the 3 tokens"),
        (dict(words=[("a", 0, 1)] * 3), r"\('a', 0, 1\) is no word: each is \(text"),
        (dict(words=list("abc")), "'a' is no word"),
        (dict(words=[3]), "3 is no word"),
        (dict(words=[("a", 0.0, 3.0, 0)]), "is no word"),
        (dict(words=[("a", 0, 3, "first")]), "is no word"),
        (dict(scores=[sample(("a",)), sample(("b",))]), "list of 2 attributions .* pass them singly"),
    ],
)
def test_what_does_not_fit_is_refused(changes, said):
    with pytest.raises(ValueError, match=said):
        attribution_tree(**{"scores": np.ones((2, 3, 3)), **changes})


def test_rules_that_do_not_exist_are_refused():
    with pytest.raises(ValueError, match="order is 'smallest'"):
        Rules(order="smallest")
    with pytest.raises(ValueError, match="leaf and terminal at once"):
        Rules(class_joins=True)


# ---- rules that hold for any scores ----------------------------------------------------------------------------------

# small whole numbers: many ties, zeros and negative ones
any_scores = st.tuples(st.integers(1, 4), st.integers(1, 3), st.integers(1, 5)).flatmap(
    lambda shape: arrays(np.float64, (shape[0], shape[1], shape[2], shape[2]), elements=st.integers(-3, 6))
)
any_rules = st.builds(
    Rules,
    peak=st.sampled_from(["all", "without class"]),
    top=st.sampled_from(["sum", "positive"]),
    order=st.sampled_from(["largest", "position"]),
    chain=st.booleans(),
    first_from_top=st.booleans(),
    gather=st.sampled_from(["all", "top", "none"]),
    drop_separators=st.booleans(),
)
names_of = st.lists(st.sampled_from(["good", "[SEP]"]), min_size=4, max_size=4)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(any_scores, names_of, any_rules, st.sampled_from([0.0, 0.4, 0.8]))
def test_what_every_tree_obeys(scores, names, rules, tau):
    tokens = ("[CLS]", *names)[: scores.shape[-1]]
    tree = attribution_tree(scores, tokens, variant=rules, tau=tau, terminal=0)
    links = nx.DiGraph([edge[1:] for edge in edges(tree, "link")])
    if links:
        assert nx.is_arborescence(links) and next(n for n, d in links.in_degree() if not d) == tree.graph["top"]
    summed = scores.sum(1)
    for layer, i, j in edges(tree, "link"):
        assert i != j and 0 not in (i, j) and layer < len(scores) - 1
        assert tree.edges[i, j]["score"] == summed[layer, i, j] and tree.edges[i, j]["share"] > tau
        assert tree.nodes[i]["layer"] - layer >= (0 if rules.chain else 1)
    for layer, i, j in edges(tree, "terminal"):
        assert (layer, i) == (len(scores) - 1, 0) and (summed[layer, i, j] > 0 or j == tree.graph["top"])
    if rules.drop_separators:
        leaves = set(tree) - {i for _, i, _ in edges(tree, "link")}
        assert all(tokens[leaf] != "[SEP]" for leaf in leaves - {0})
    assert bool(tree.graph["note"]) == (not tree.edges)
    assert nx.is_directed_acyclic_graph(tree) and set(tree.graph["starts"]) >= set(tree)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(any_scores, st.sampled_from(list(VARIANTS)), st.randoms(use_true_random=False))
def test_heads_in_any_order_and_any_unit_give_the_same_edges(scores, variant, random):
    heads = random.sample(range(scores.shape[1]), scores.shape[1])
    tree = attribution_tree(scores, variant=variant)
    assert nx.utils.graphs_equal(attribution_tree(scores[:, heads], variant=variant), tree)
    assert edges(attribution_tree(scores * 2.0**-9, variant=variant)) == edges(tree)
    assert edges(attribution_tree(scores.sum(1), variant=variant)) == edges(tree)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(any_scores, st.sampled_from(list(VARIANTS)))
def test_the_trace_tells_how_the_tree_was_made(scores, variant):
    tokens = ("[CLS]", "a", "[SEP]", "b", "[SEP]")[: scores.shape[-1]]
    steps = trace(scores, tokens, variant=variant)
    tree = attribution_tree(scores, tokens, variant=variant)
    dropped = {step.key for step in steps if step.action == "drop"}
    joined = {(s.layer, s.query, s.key) for s in steps if s.action == "join" and s.key not in dropped}
    assert edges(tree, "link") == (joined if tree.edges else set())
    assert edges(tree, "terminal") == {(s.layer, s.query, s.key) for s in steps if s.action == "gather"}
    layers = [s.layer for s in steps if s.action in ("join", "skip")]
    assert layers == sorted(layers, reverse=True)
    for before, after in itertools.pairwise(steps):
        changed = {i for i, (x, y) in enumerate(zip(before.states, after.states, strict=True)) if x != y}
        if after.action == "join":
            assert before.states[after.key] == "absent" and after.states[after.key] == "present"
            assert before.states[after.query] != "absent" and after.states[after.query] == "settled"
            assert changed <= {after.query, after.key}
        else:
            assert changed == ({after.key} if after.action == "drop" else set())
    assert not steps or (steps[0].action, steps[0].states.count("absent")) == ("top", len(tokens) - 1)


def test_a_skipped_candidate_says_why():
    scores = scores_of(3, 4, l1q1k2=9, l1q3k2=8, l0q2k1=1, l0q3k1=1)
    why = {(s.layer, s.query, s.key): s.why for s in trace(scores) if s.action == "skip"}
    assert "in the tree already" in why[0, 2, 1] and set(why) == {(1, 3, 2), (0, 2, 1), (0, 3, 1)}
    why = {s.key: s.why for s in trace(scores_of(3, 5, l1q1k2=9, l1q3k4=5), tau=0.4) if s.action == "skip"}
    assert "receives is not in the tree" in why[4]


# ---- objective, optimum ----------------------------------------------------------------------------------------------


def best_by_trying(scores, tokens, rules, tau, penalty):
    """The largest objective of any allowed tree, by trying every top, every parent and every layer."""
    layers, count, _ = scores.shape
    peaks = scores.max((1, 2))
    reads = scores[-1, 0] if rules.gather != "none" else np.full(count, -np.inf)
    passing = [
        (layer, i, j)
        for layer in range(layers - 1)
        for i, j in itertools.permutations(range(1, count), 2)
        if peaks[layer] > 0 and scores[layer, i, j] / peaks[layer] > tau
    ]
    best = 0.0
    for top in range(1, count):
        others = [j for j in range(1, count) if j != top]
        choices = [[None, *(edge for edge in passing if edge[2] == j)] for j in others]
        for choice in itertools.product(*choices):
            kept = [edge for edge in choice if edge]
            if not allowed(kept, top, tokens, rules, layers) or not (kept or reads[top] > 0):
                continue
            value = sum(scores[edge] - penalty for edge in kept)
            value += scores[-1, 0, top] - penalty if rules.gather != "none" else 0
            if rules.gather == "all":
                value += sum(max(0, reads[j] - penalty) for _, _, j in kept if reads[j] > 0)
            best = max(best, value)
    return best


def allowed(kept, top, tokens, rules, layers):
    present = {top}
    for layer in range(layers - 2, -1, -1):
        waiting = {edge for edge in kept if edge[0] == layer}
        while ready := {edge for edge in waiting if edge[1] in present}:
            present |= {edge[2] for edge in ready}
            waiting -= ready
            if not rules.chain:
                break
        if waiting:
            return False
    leaves = present - {edge[1] for edge in kept}
    return not (rules.drop_separators and leaves_a_separator(tokens, leaves))


def leaves_a_separator(tokens, leaves):
    return any(tokens[leaf] == "[SEP]" for leaf in leaves)


@settings(max_examples=80, deadline=None, derandomize=True)
@given(
    arrays(np.float64, st.tuples(st.integers(1, 3), st.just(4), st.just(4)), elements=st.integers(-3, 9)),
    st.permutations(["good", "good", "[SEP]"]),
    st.builds(
        Rules, chain=st.booleans(), gather=st.sampled_from(["all", "top", "none"]), drop_separators=st.booleans()
    ),
    st.sampled_from([0.0, 0.3]),
    st.sampled_from([0.0, 1.25, 4.5]),
)
def test_the_optimum_is_what_trying_everything_finds(scores, names, rules, tau, penalty):
    tokens = ("[CLS]", *names)
    expected = best_by_trying(scores, tokens, rules, tau, penalty)
    found = optimum(scores, tokens, penalty=penalty, variant=rules, tau=tau, terminal=0)
    assert found.exact and found.gap == 0 and found.value == found.bound == pytest.approx(expected)
    assert objective(found.tree, penalty) == found.value
    links = [edge for edge in edges(found.tree, "link")]
    assert not links or allowed(links, found.tree.graph["top"], tokens, rules, len(scores))


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    any_scores, names_of, st.sampled_from(list(VARIANTS)), st.sampled_from([0.0, 1.5, 5.0]), st.sampled_from([0.0, 0.4])
)
def test_no_grown_tree_beats_the_optimum(scores, names, variant, penalty, tau):
    given = dict(tokens=("[CLS]", *names)[: scores.shape[-1]], variant=variant, tau=tau, terminal=0)
    tree = attribution_tree(scores, **given)
    part = pruned(tree, penalty)
    best = optimum(scores, **given, penalty=penalty)
    assert objective(tree, penalty) <= objective(part, penalty) + 1e-9 <= best.value + 2e-9
    if tree.graph["top"] is not None:
        held = optimum(scores, **given, penalty=penalty, top=tree.graph["top"])
        assert objective(part, penalty) <= held.value + 1e-9 <= best.value + 2e-9
        assert held.tree.graph["top"] in (None, tree.graph["top"])


def test_where_growing_misses_the_optimum():
    # c passes on 50 from a, but receives so much less than nothing from b that b is the top node
    scores = scores_of(3, 4, l1q2k3=10, l1q2k1=5, l0q3k1=50, l0q3k2=-100, l2q0k2=1)
    tree = attribution_tree(scores, tau=0.4)
    assert tree.graph["top"] == 2 and objective(tree) == 16, "5 is half of the maximum: a is taken"
    best = optimum(scores, tau=0.4)
    assert best.value == 61 and edges(best.tree) == {(1, 2, 3), (0, 3, 1), (2, 0, 2)}
    assert optimum(scores, penalty=20, top=2).value == 1, "10 - 20 is paid for the sake of 50 - 20, and 1 - 20 for b"
    elsewhere = optimum(scores, penalty=20)
    assert elsewhere.value == 10 and edges(elsewhere.tree) == {(0, 3, 1), (2, 0, 3)}


def test_loops_within_a_layer_are_forbidden():
    # three tokens that would hold each other up in a circle, each worth more than the way in from the top
    scores = scores_of(2, 5, l0q1k2=3, l0q2k3=9, l0q3k4=9, l0q4k2=9, l1q0k1=1)
    found = optimum(scores, tau=0)
    assert found.exact and found.rounds > 1 and found.value == 3 + 9 + 9 + 1


def test_out_of_time_there_is_still_a_tree_and_a_bound():
    scores = np.random.default_rng(0).random((6, 14, 14))
    found = optimum(scores, tau=0, time_limit=1e-9, terminal=0)
    assert math.isfinite(found.bound) and found.value <= found.bound
    assert found.value >= objective(attribution_tree(scores, tau=0, terminal=0)) - 1e-9
    assert found.exact == (found.gap == 0)


@pytest.mark.parametrize(
    "wrong", [dict(penalty=-1), dict(penalty=np.nan), dict(scale="log"), dict(time_limit=0), dict(top=0), dict(top=9)]
)
def test_no_optimum_of_nonsense(wrong, by_hand):
    with pytest.raises(ValueError, match="is"):
        optimum(by_hand, TOKENS, **wrong)


def test_the_scale_decides_what_layers_weigh():
    scores = scores_of(3, 4, l1q1k2=100, l1q1k3=50, l0q2k3=0.9, l2q0k1=1)
    given = dict(tau=0.4, terminal=0)
    assert edges(optimum(scores, **given).tree, "link") == {(1, 1, 2), (1, 1, 3)}
    assert edges(optimum(scores, scale="share", **given).tree, "link") == {(1, 1, 2), (0, 2, 3)}


def test_pruned_keeps_what_pays(by_hand):
    tree = attribution_tree(by_hand, TOKENS)
    assert edges(pruned(tree, 0)) == edges(tree)
    assert edges(pruned(tree, 2.5)) == {(1, 2, 1), (2, 0, 2), (2, 0, 1)}
    assert edges(pruned(tree, 4)) == {(1, 2, 1), (2, 0, 2)} and pruned(tree, 4).nodes[0]["score"] == 6
    nothing = pruned(tree, 100)
    assert set(nothing) == {0} and nothing.graph["top"] is None and "penalty" in nothing.graph["note"]
    assert edges(tree) == {(1, 2, 1), (0, 1, 3), (2, 0, 2), (2, 0, 1)}, "the tree itself is as it was"


def test_a_separator_may_be_kept_for_what_it_brings_with_a_child_that_costs():
    tokens = ("[CLS]", "a", "[SEP]", "b", "[SEP]")
    scores = scores_of(4, 5, l3q0k1=3, l2q1k2=9, l1q2k3=1)
    assert edges(pruned(attribution_tree(scores, tokens), 2), "link") == {(2, 1, 2), (1, 2, 3)}
    assert optimum(scores, tokens, penalty=2).value == objective(pruned(attribution_tree(scores, tokens), 2), 2) == 7
    assert edges(pruned(attribution_tree(scores, tokens), 5.5), "link") == set()


@settings(max_examples=60, deadline=None, derandomize=True)
@given(any_scores, names_of, st.sampled_from(list(VARIANTS)), st.sampled_from([0.5, 2.0, 4.0]))
def test_pruned_is_the_best_part_there_is(scores, names, variant, penalty):
    tokens = ("[CLS]", *names)[: scores.shape[-1]]
    tree = attribution_tree(scores, tokens, variant=variant, tau=0.2, terminal=0)
    part, top = pruned(tree, penalty), tree.graph["top"]
    assert edges(part) <= edges(tree)
    links = sorted(edges(tree, "link"))
    reads = {j: tree.edges[0, j]["score"] - penalty for _, _, j in edges(tree, "terminal")}
    best = 0.0
    for kept in itertools.chain.from_iterable(itertools.combinations(links, n) for n in range(len(links) + 1)):
        inside, parents = {top, *(j for *_, j in kept)}, {i for _, i, _ in kept}
        if (
            top is None
            or not parents <= inside
            or (variant == "paper" and leaves_a_separator(tokens, inside - parents))
        ):
            continue
        if kept or (top in reads and tree.edges[0, top]["share"] > 0):
            value = sum(tree.edges[i, j]["score"] - penalty for _, i, j in kept)
            best = max(best, value + sum(g if j == top else max(0, g) for j, g in reads.items() if j in inside))
    assert objective(part, penalty) == pytest.approx(best)


# ---- measures --------------------------------------------------------------------------------------------------------


def test_mask_is_what_the_attention_helper_keeps(by_hand):
    tree = attribution_tree(by_hand, TOKENS)
    kept = trees.mask(tree, self_edges=False)
    assert kept.shape == by_hand.shape and kept.dtype == bool
    assert {tuple(map(int, place)) for place in np.argwhere(kept)} == edges(tree)
    assert (trees.mask(tree) == (kept | np.eye(5, dtype=bool))).all()
    with pytest.raises(ValueError, match=r"covers layers \(2, 5, 8\)"):
        trees.mask(attribution_tree(by_hand, TOKENS, layers=[2, 5, 8]))


def test_mask_of_words_covers_their_pieces():
    words = [("[CLS]", 0, 1, None), ("b", 1, 2, 0), ("long", 2, 4, 0)]
    tree = attribution_tree(scores_of(2, 4, l0q1k3=1), words=words, merge=True)
    assert np.argwhere(trees.mask(tree, self_edges=False)).tolist() == [[0, 1, 2], [0, 1, 3], [1, 0, 1]]
    assert trees.mask(tree)[:, 2:, 2:].all()


def test_overlap_and_stability(by_hand):
    one, two = attribution_tree(by_hand, TOKENS), attribution_tree(by_hand, TOKENS, variant="released")
    assert overlap(one, two) == 1 / 6 and overlap(one, two, kind="link") == 1 / 4
    assert overlap(one, two, kind="link", by="pairs") == 1 / 4 and overlap(one, one) == 1
    empty = attribution_tree(np.zeros((2, 5, 5)))
    assert overlap(empty, empty) == 1 and overlap(empty, one) == 0
    assert trees.stability([one, one, empty]) == pytest.approx(1 / 3)
    with pytest.raises(ValueError, match="two trees"):
        trees.stability([one])
    with pytest.raises(ValueError, match="by is"):
        overlap(one, one, by="nodes")


def test_trees_over_other_tokens_are_not_compared(by_hand):
    tree = attribution_tree(by_hand, TOKENS)
    words = [("[CLS]", 0, 1, None), ("b", 1, 2, 0), ("long", 2, 5, 0)]
    for other in (attribution_tree(by_hand, words=words, merge=True), attribution_tree(np.zeros((2, 6, 6)))):
        with pytest.raises(ValueError, match="over 5 and [36] tokens"):
            overlap(tree, other)
        with pytest.raises(ValueError, match="of one text"):
            trees.stability([tree, tree, other])


@pytest.mark.parametrize("kind", ["links", "Terminal", ""])
@pytest.mark.parametrize("name", ["edges", "reach", "overlap", "stability"])
def test_a_kind_of_edge_that_there_is_not_is_refused(by_hand, name, kind):
    tree = attribution_tree(by_hand, TOKENS)
    given = {"overlap": (tree, tree), "stability": ([tree, tree],)}.get(name, (tree,))
    with pytest.raises(ValueError, match=f"kind is '{kind}': give 'link' or 'terminal', or None for both"):
        getattr(trees, name)(*given, kind=kind)


def test_sweep_over_tau_and_lambda(by_hand):
    table = trees.sweep(by_hand, TOKENS, taus=[0.0, 0.4, 1.0], penalties=[0, 4, 100])
    assert table.edges.tolist() == [4] * 3 + [4] * 3 + [1] * 3
    assert table.links.tolist() == [2] * 6 + [0] * 3 and table.depth.tolist() == [1] * 3 + [2] * 3 + [0] * 3
    row = table[(table.tau == 0.4) & (table.penalty == 4)].iloc[0]
    assert (row.objective, row.kept_edges, row.kept_objective, row.overlap) == (0, 2, 3, 0.5)
    assert table[table.penalty == 100].kept_edges.tolist() == [0, 0, 0]
    assert table[(table.tau == 0.4) & (table.penalty == 0)].overlap.item() == 1
    generators = trees.sweep(by_hand, TOKENS, taus=iter([0.0, 0.4, 1.0]), penalties=iter([0, 4, 100]))
    assert generators.equals(table)
    nothing = trees.sweep(np.zeros((2, 3, 3)), taus=[0.4])
    assert nothing.edges.tolist() == [0] and nothing.overlap.tolist() == [1]


@pytest.mark.parametrize("options, said", [
    ({"tau": 0.3}, r"give taus=\[0\.3\] instead of tau"),
    ({"taus": 0.3}, r"taus is 0\.3: give a list, taus=\[0\.3\]"),
    ({"penalties": 0.1}, r"penalties is 0\.1: give a list, penalties=\[0\.1\]"),
])  # fmt: skip
def test_a_sweep_over_one_number_is_refused(by_hand, options, said):
    with pytest.raises(ValueError, match=said):
        trees.sweep(by_hand, TOKENS, **options)


# ---- exports ---------------------------------------------------------------------------------------------------------

HOSTILE = (*HARD, '"];x["', "back\\slash\\", "`**code**`", "#quot;", "%%{init}%%", "end", "a\nb\x00", "fa:fa-car",
           "]]>", "<!--", "\u202eabc", "\ud800", "\\N", "|")  # fmt: skip


@pytest.fixture
def hostile():
    """A tree of all hostile tokens: the first receives from all others."""
    count = len(HOSTILE) + 2
    scores = np.zeros((3, count, count))
    scores[1, 1, 2:-1], scores[2, 0, 1:-1], scores[0, 1, -2] = 1, 0.5, 1
    tree = attribution_tree(scores, ("[CLS]", *HOSTILE, "[SEP]"))
    assert len(tree) == len(HOSTILE) + 1
    return tree


def test_layout_has_words_in_reading_order_and_layers_in_height(by_hand):
    tree = attribution_tree(by_hand, TOKENS)
    assert trees.layout(tree) == {0: (0, 4), 2: (2, 3), 1: (1, 2), 3: (3, 1)}
    words = [("[CLS]", 0, 1, None), ("ab", 1, 3, 0), ("c", 3, 5, 0)]
    merged = attribution_tree(by_hand, TOKENS, words=words, merge=True, tau=0)
    assert trees.layout(merged)[3][0] == 2


def test_svg_shows_tokens_as_text(hostile, tmp_path):
    path = trees.export(hostile, tmp_path / "new" / "tree.svg", title="<script> $x$")
    root = ElementTree.fromstring(path.read_bytes())
    tags = {element.tag.rpartition("}")[2] for element in root.iter()}
    assert not tags & {"script", "foreignObject", "image", "a"}
    shown = {"".join(element.itertext()) for element in root.iter() if element.tag.endswith("}text")}
    assert {"$x_1$", "&amp;", "🤖", "<!--", '"];x["', "]]>", "<script> $x$"} <= shown
    assert any(text.startswith("<script>alert(1)") for text in shown)
    again = trees.export(hostile, tmp_path / "again.svg", title="<script> $x$")
    assert again.read_bytes() == path.read_bytes(), "no date, no random names"


def test_png_is_a_picture_and_nothing_is_warned_of(hostile, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        path = trees.export(hostile, tmp_path / "tree.PNG")
    assert path.read_bytes().startswith(b"\x89PNG\r\n")
    assert [p.name for p in tmp_path.iterdir() if p.is_file()] == ["tree.PNG"], "no unfinished file is left"


def test_a_figure_is_returned_with_every_word_and_edge(by_hand):
    tree = attribution_tree(by_hand, TOKENS)
    (axes,) = trees.draw(tree, title="one").axes
    assert [label.get_text() for label in axes.get_xticklabels()] == list(TOKENS)
    assert [label.get_fontweight() for label in axes.get_xticklabels()] == ["bold"] * 4 + ["normal"]
    assert len(axes.patches) == 4 and axes.get_title(loc="left") == "one"
    widths = [patch.get_linewidth() for patch in axes.patches]  # the class token's two, then the links
    assert widths == pytest.approx([4, 0.8 + 3.2 * 3 / 6, 4, 0.8 + 3.2 * 2 / 5])
    (axes,) = trees.draw(attribution_tree(np.zeros((1, 3, 3)))).axes
    assert not axes.patches and any("No edge" in text.get_text() for text in axes.texts)


def test_dot_is_well_formed_and_inert(hostile):
    lines = trees.to_dot(hostile).splitlines()
    assert lines[0] == "digraph tree {" and lines[-1] == "}"
    quoted = r'"(?:[^"\\]|\\.)*"'
    node, edge = rf"  n\d+ \[label={quoted}(, style=bold)?\];", rf"  n\d+ -> n\d+ \[label={quoted}(, style=dashed)?\];"
    assert all(re.fullmatch(f"{node}|{edge}", line) for line in lines[2:-1])
    assert len(lines) - 3 == len(hostile) + hostile.number_of_edges()
    text = "\n".join(lines)
    assert "<" not in text and "&lt;script&gt;" in text and "&amp;amp;" in text and "\\\\N" in text


def test_every_text_format_names_a_word_that_the_tokenizer_does_not_know():
    tree = attribution_tree(sample(HARD), tau=0)
    place = tree.graph["labels"].index("🤖 ([UNK])")
    assert place in tree and f'n{place} [label="🤖 ([UNK])"' in trees.to_dot(tree)
    assert f'n{place}["🤖 #40;#91;UNK#93;#41;"]' in trees.to_mermaid(tree)


def test_mermaid_is_well_formed_and_inert(hostile):
    lines = trees.to_mermaid(hostile).splitlines()
    assert lines[0] == "flowchart BT"
    node = r'  n\d+\["(?:[\w \u0080-\U0010ffff]|#\d+;)*"\]'
    edge = r'  n\d+ (?:-->|-\.->)\|"layer \d+: [-\d.e+]+"\| n\d+'
    assert all(re.fullmatch(f"{node}|{edge}", line) for line in lines[1:])
    labels = [re.search(r'\["(.*)"\]', line)[1] for line in lines if "[" in line]
    decoded = {re.sub(r"#(\d+);", lambda code: chr(int(code[1])), label) for label in labels}
    assert {"<script>alert(1)</script>", "`**code**`", "#quot;", "%%{init}%%", "🤖", "fa:fa-car"} <= decoded


def test_json_is_node_link_and_safe_in_a_page(hostile):
    text = trees.to_json(hostile)
    assert not set("<>&") & set(text)
    content = json.loads(text)
    assert (content["format"], content["version"]) == ("attattr-tree", 1)
    again = nx.node_link_graph(content)
    assert dict(again.nodes(data=True)) == dict(hostile.nodes(data=True))
    assert dict(again.adjacency()) == dict(hostile.adjacency())


@settings(max_examples=30, deadline=None, derandomize=True)
@given(any_scores, st.sampled_from(list(VARIANTS)), st.lists(st.text(max_size=6), min_size=5, max_size=5))
def test_saved_and_loaded_is_the_same(tmp_path_factory, scores, variant, names):
    tree = attribution_tree(scores, names[: scores.shape[-1]], variant=variant)
    loaded = trees.load(trees.save(tree, tmp_path_factory.getbasetemp() / "tree.json"))
    assert nx.utils.graphs_equal(loaded, tree) and loaded.graph == tree.graph
    assert type(loaded.graph["labels"]) is tuple


@pytest.mark.parametrize(
    "damage", ["cut", "empty", "list", "text", "bytes", "deep", "version", "other", "layer", "label", "score", "node",
               "graph", "end", "undirected", "nan"],
)  # fmt: skip
def test_what_is_no_whole_tree_is_refused(by_hand, tmp_path, damage):
    path = trees.save(attribution_tree(by_hand, TOKENS), tmp_path / "tree.json")
    content = json.loads(path.read_text())
    whole = {"cut": path.read_text()[:-400], "empty": "", "list": "[1]", "text": "no tree", "deep": "[" * 100_000}
    match damage:
        case "version":
            content["version"] = 0
        case "other":
            content = {"nodes": [], "edges": []}
        case "layer":
            content["edges"][0]["layer"] = 7
        case "label":
            content["graph"]["labels"][1] = 3
        case "score":
            del content["edges"][0]["score"]
        case "node":
            content["nodes"][0].pop("role")
        case "graph":
            content["graph"].pop("starts")
        case "end":
            content["edges"][0]["target"] = 77
        case "undirected":
            content["directed"] = False
        case "nan":
            content["nodes"][0]["score"] = math.nan
    path.write_bytes(b"\xff\xfe" if damage == "bytes" else whole.get(damage, json.dumps(content)).encode())
    with pytest.raises(ValueError, match=r"(?i)make the tree again"):
        trees.load(path)


TAMPERED = {
    "top is elsewhere": lambda graph, nodes, edges: graph.update(top=4),
    "no top, yet edges": lambda graph, nodes, edges: graph.update(top=None),
    "stops that don't follow": lambda graph, nodes, edges: graph.update(stops=[0] * 5),
    "stops in text": lambda graph, nodes, edges: graph.update(stops=list("12345")),
    "starts that are not whole": lambda graph, nodes, edges: graph.update(starts=[0.0, 1.0, 2.0, 3.0, 4.0]),
    "a layer twice": lambda graph, nodes, edges: graph.update(layers=[0, 0, 1, 2]),
    "no separators": lambda graph, nodes, edges: graph.update(separators=None),
    "a separator elsewhere": lambda graph, nodes, edges: graph.update(separators=[9]),
    "a threshold in text": lambda graph, nodes, edges: graph.update(last_tau="0"),
    "another kind of edge": lambda graph, nodes, edges: edges[0].update(kind="other"),
    "an end that is no text": lambda graph, nodes, edges: edges[0].update(query=3),
    "a loop": lambda graph, nodes, edges: edges.append(
        {**edges[0], "source": edges[0]["target"], "target": edges[0]["source"]}
    ),
    "a segment in text": lambda graph, nodes, edges: nodes[1].update(segment="x"),
    "a word that is no text": lambda graph, nodes, edges: nodes[1].update(word=3),
    "another role": lambda graph, nodes, edges: nodes[1].update(role="leaf"),
    "a sum in text": lambda graph, nodes, edges: nodes[1].update(received="3"),
}


@pytest.mark.parametrize("tamper", TAMPERED.values(), ids=TAMPERED)
def test_what_this_module_would_not_write_is_refused(by_hand, tmp_path, tamper):
    path = trees.save(attribution_tree(by_hand, TOKENS), tmp_path / "tree.json")
    content = json.loads(path.read_text())
    tamper(content["graph"], content["nodes"], content["edges"])
    path.write_text(json.dumps(content))
    with pytest.raises(ValueError, match="is damaged .* make the tree again"):
        trees.load(path)


def test_names_of_files(by_hand, tmp_path):
    tree = attribution_tree(by_hand, TOKENS)
    assert trees.export(tree, tmp_path / "a.dot").read_text(encoding="utf-8") == trees.to_dot(tree)
    assert trees.export(tree, tmp_path / "a.mmd").read_text(encoding="utf-8") == trees.to_mermaid(tree)
    assert nx.utils.graphs_equal(trees.load(trees.export(tree, tmp_path / "a.json")), tree)
    with pytest.raises(ValueError, match="ends with 'pdf'"):
        trees.export(tree, tmp_path / "a.pdf")
    with pytest.raises(FileNotFoundError, match="no tree file"):
        trees.load(tmp_path / "none.json")
    picture = trees.export(tree, tmp_path / "a.mmd")
    with pytest.raises(ValueError, match=r"load reads .json files, written by save or export"):
        trees.load(picture)


@pytest.mark.parametrize("make_one", [attribution_tree, trace, optimum])
def test_a_text_is_no_score(make_one):
    with pytest.raises(ValueError, match=r"give attribute\(model, tokenizer, text\), or an array with tokens"):
        make_one("a slow start")
