"""Error patterns: counts and tests against closed forms, on made-up attributions; and nothing where nothing is."""

import math
import subprocess
import sys
from itertools import permutations

import numpy as np
import pytest
from sample import sample

from helpers.patterns import Pattern, Reading, confirm, mine, patterns_of


def linked(words, links, *, predicted=1, layers=(0, 1), target=None):
    """An Attribution of the words whose only scores are those given: {(layer, query word, key word): score}."""
    a = sample(words, layers=layers, target=predicted if target is None else target, predicted=predicted)
    a.scores[:] = 0.0
    spans = {word.text: word for word in a.words}
    for (layer, query, key), score in links.items():
        a.scores[layer, 0, spans[query].start, spans[key].start] = score
    return a


def says(link, predicted=1, target=None):
    """An Attribution of five words that leans on one link of them."""
    return linked(("a", "slow", "but", "warm", "film"), {(0, *link): 0.3}, predicted=predicted, target=target)


def pair(*words):
    return Pattern(words)


SUSPECT, OTHER = ("warm", "slow"), ("film", "but")


def examples(wrong_with=6, wrong=8, right_with=2, right=12):
    """Attributions and gold labels with given counts of SUSPECT among wrong and right ones; the others have OTHER."""
    rows = [(i < wrong_with, True) for i in range(wrong)] + [(i < right_with, False) for i in range(right)]
    found = [says(SUSPECT if has else OTHER) for has, _ in rows]
    return found, ["negative" if wrong else "positive" for _, wrong in rows]


# ---- what an explanation leans on ------------------------------------------------------------------------------------


def test_links_are_ranked_by_their_largest_score_over_layers_and_directions():
    a = linked(
        ("Slow", "but", "warm"),
        {(0, "Slow", "warm"): 0.2, (1, "warm", "Slow"): 0.3, (0, "but", "warm"): 0.25, (1, "Slow", "but"): 0.1},
    )
    assert patterns_of(a) == pytest.approx(
        {pair("slow", "warm"): 0.3, pair("but", "warm"): 0.25, pair("but", "slow"): 0.1}
    )
    assert list(patterns_of(a, Reading(k=2))) == [pair("slow", "warm"), pair("but", "warm")]


def test_direction_and_layer_count_when_asked():
    a = linked(("slow", "warm"), {(0, "slow", "warm"): 0.2, (1, "warm", "slow"): 0.3})
    both = patterns_of(a, Reading(directed=True))
    assert {str(p): round(s, 6) for p, s in both.items()} == {"warm ← slow": 0.3, "slow ← warm": 0.2}
    layers = patterns_of(a, Reading(by_layer=True))
    assert [str(p) for p in layers] == ["slow – warm (layer 1)", "slow – warm (layer 0)"]


def test_layers_keep_their_own_numbers():
    a = linked(("slow", "warm"), {(1, "slow", "warm"): 0.2}, layers=(3, 5))
    assert [p.layer for p in patterns_of(a, Reading(by_layer=True))] == [5]


def test_heads_and_pieces_are_summed():
    a = sample(("unbelievable", "film"), layers=(0,), pieces=("unbelievable",))
    a.scores[:] = 0.0
    a.scores[0, :, 1, 3], a.scores[0, :, 2, 3] = 0.1, 0.05  # two heads, two pieces
    a.scores[0, :, 1, 2] = 9.0  # within the word
    assert patterns_of(a) == pytest.approx({pair("film", "unbelievable"): 0.3})


def test_marks_special_tokens_stop_words_and_what_speaks_against_are_no_patterns():
    a = linked(
        ("slow", ",", "the", "film"),
        {
            (0, "[CLS]", "film"): 0.9, (0, "film", "[SEP]"): 0.8, (0, "film", ","): 0.7, (0, "film", "the"): 0.6,
            (0, "film", "slow"): 0.1, (1, "slow", "film"): -0.5,
        },
    )  # fmt: skip
    assert patterns_of(a, Reading(stop={"The"})) == pytest.approx({pair("film", "slow"): 0.1})


def test_words_are_what_others_receive_from_them():
    a = linked(
        ("slow", "film", "."),
        {(0, "[CLS]", "slow"): 0.2, (0, "film", "slow"): 0.1, (1, "[CLS]", "film"): 0.25, (1, "slow", "."): 0.9},
    )
    assert patterns_of(a, Reading("words")) == pytest.approx({Pattern(("slow",)): 0.3, Pattern(("film",)): 0.25})
    assert str(Pattern(("slow",))) == "slow"


def test_the_same_word_in_two_places_is_a_link_and_counts_once():
    a = sample(("very", "very", "good"), layers=(0,))
    a.scores[:] = 0.0
    a.scores[0, 0, 1, 2], a.scores[0, 0, 1, 3], a.scores[0, 0, 2, 3] = 0.3, 0.2, 0.1
    assert patterns_of(a) == pytest.approx({pair("very", "very"): 0.3, pair("good", "very"): 0.2})


def test_ties_go_by_the_alphabet_whatever_the_order_of_the_words():
    for words in permutations(("b", "a", "c")):
        links = {(0, one, two): 0.25 for one, two in (("a", "b"), ("a", "c"), ("b", "c"))}
        assert [p.words for p in patterns_of(linked(words, links), Reading(k=2))] == [("a", "b"), ("a", "c")]


def test_nothing_speaks_for_the_answer():
    assert patterns_of(linked(("slow", "film"), {(0, "slow", "film"): -1.0})) == {}


# ---- counts and tests ------------------------------------------------------------------------------------------------


def test_every_number_against_its_closed_form():
    table = mine(*examples()).table
    row = table.iloc[0]
    assert row["pattern"] == pair("slow", "warm")
    assert (row["wrong"], row["right"], row["of_wrong"], row["of_right"]) == (6, 2, 6 / 8, 2 / 12)
    assert row["lift"] == pytest.approx((6 / 8) / (8 / 20))
    assert row["odds"] == pytest.approx(6.5 * 10.5 / (2.5 * 2.5))
    spread = 1.96 * math.sqrt(1 / 6.5 + 1 / 2.5 + 1 / 2.5 + 1 / 10.5)
    assert (row["low"], row["high"]) == pytest.approx((row["odds"] / math.exp(spread), row["odds"] * math.exp(spread)))
    # of the 8 that have it, 6 or more among the 8 wrong of 20
    p = sum(math.comb(8, w) * math.comb(12, 8 - w) for w in range(6, 9)) / math.comb(20, 8)
    assert row["p"] == pytest.approx(p)
    assert row["q"] == pytest.approx(2 * p)  # two patterns tested, the other one has a larger p
    assert (row["says"], row["score"], row["rows"]) == ("positive", pytest.approx(0.3), (0, 1, 2, 3, 4, 5))
    assert list(table["significant"]) == [True, False]


def test_rows_are_the_wrong_ones_strongest_first():
    found, gold = examples()
    found[3].scores[:] *= 2
    assert mine(found, gold).table["rows"][0] == (3, 0, 1, 2, 4, 5)


def test_benjamini_hochberg_over_all_patterns_tested():
    found, gold = examples()
    mined = mine(found, gold, least=1)
    p, q = mined.table["p"].to_numpy(), mined.table["q"].to_numpy()
    by_hand = [min(p[j] * len(p) / (j + 1) for j in range(i, len(p))) for i in range(len(p))]
    assert q == pytest.approx(np.minimum(by_hand, 1))
    assert mined.tested == 2 and (mined.wrong, mined.right) == (8, 12)


def test_ties_in_the_table_go_by_the_alphabet():
    found = [says(link) for link in (("warm", "slow"), ("film", "but")) * 4]
    gold = ["negative", "negative", "positive", "positive"] * 2
    table = mine(found, gold, least=1).table
    assert [str(p) for p in table["pattern"]] == ["but – film", "slow – warm"]
    assert table["p"].nunique() == 1


def test_the_filter_counts_wrong_and_right_alike():
    found, gold = examples(wrong_with=0, right_with=5)
    assert len(mine(found, gold, least=5).table) == 2
    assert len(mine(found, gold, least=6).table) == 1


def test_class_numbers_and_spellings_of_names_will_do():
    found, gold = examples()
    names = mine(found, gold).table
    numbers = mine(found, [["negative", "positive"].index(name) for name in gold]).table
    spelt = mine(found, [name.upper() for name in gold]).table
    assert names.equals(numbers) and names.equals(spelt)


def test_a_pattern_of_right_predictions_only_has_no_class_to_say():
    found, gold = examples(wrong_with=0, wrong=4, right_with=6)
    row = mine(found, gold).table.set_index("pattern").loc[[pair("slow", "warm")]].iloc[0]
    assert (row["says"], row["rows"], row["lift"], row["p"]) == ("", (), 0.0, 1.0)
    assert np.isnan(row["score"])


# ---- other examples --------------------------------------------------------------------------------------------------


def test_what_is_true_is_confirmed_on_other_examples():
    mined = mine(*examples())
    again = confirm(mined, *examples(12, 16, 4, 24))
    assert list(again.table["pattern"]) == [pair("slow", "warm")]
    assert again.table["q"][0] == again.table["p"][0]  # one pattern tested: nothing to correct for
    assert again.table["significant"].all()


def test_what_is_chance_is_not():
    again = confirm(mine(*examples()), *examples(3, 8, 5, 12))
    assert again.tested == 1 and not again.table["significant"].any()


def test_what_does_not_occur_again_is_not_confirmed():
    again = confirm(mine(*examples()), *examples(0, 8, 0, 12)).table
    assert (again["wrong"][0], again["right"][0], again["p"][0]) == (0, 0, 1.0)
    assert np.isnan(again["lift"][0])


def test_the_first_of_the_table_can_be_asked_for():
    assert confirm(mine(*examples()), *examples(), first=2).tested == 2


def test_the_reading_goes_along():
    mined = mine(*examples(), reading=Reading("words"))
    assert [len(p.words) for p in confirm(mined, *examples(), first=3).table["pattern"]] == [1, 1]


def test_chance_alone_is_seldom_called_significant():
    """200 tables without any pattern: at most 5 % of them, and some, have a find (Fisher is on the safe side)."""
    rng, words = np.random.default_rng(0), ("a", "slow", "but", "warm", "film")
    pool = [says(pair) for pair in permutations(words, 2)]
    finds = 0
    for _ in range(200):
        found = [pool[i] for i in rng.integers(len(pool), size=60)]
        gold = rng.choice(["negative", "positive"], 60)
        finds += bool(len(mine(found, gold).significant))
    assert finds <= 16  # 10 expected at most; more than 16 has a probability of 0.02


# ---- nothing to find, and what cannot be meant -----------------------------------------------------------------------


def test_none_wrong():
    found, _ = examples()
    with pytest.raises(ValueError, match="None of the 20 predictions is wrong.*harder"):
        mine(found, ["positive"] * 20)


def test_all_wrong():
    found, _ = examples()
    with pytest.raises(ValueError, match="All 20 predictions are wrong.*in order"):
        mine(found, ["negative"] * 20)


def test_nothing_significant():
    mined = mine(*examples(2, 8, 3, 12))
    assert mined.tested == 2 and mined.significant.empty
    assert "0 with q at most 0.05" in repr(mined)
    assert confirm(mined, *examples()).table.empty


def test_nothing_frequent_enough():
    mined = mine(*examples(), least=99)
    assert mined.table.empty and mined.significant.empty and mined.tested == 0


def test_an_explanation_of_another_class_is_refused():
    found, gold = examples()
    found[4] = says(SUSPECT, predicted=0, target=1)
    with pytest.raises(ValueError, match=r"Attribution 4 explains 'positive', and the model says 'negative'"):
        mine(found, gold)


@pytest.mark.parametrize(
    ("gold", "message"),
    [(["positive"], "20 attributions and 1 labels"), (["great"] * 20, "no class 'great'"), ([2] * 20, "no class 2")],
)
def test_labels_that_do_not_fit(gold, message):
    with pytest.raises(ValueError, match=message):
        mine(examples()[0], gold)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kind": "trees"}, "kind is 'trees'"),
        ({"k": 0}, "k is 0"),
        ({"k": True}, "k is True"),
        ({"stop": "the"}, "stop"),
    ],
)
def test_a_reading_that_cannot_be_meant(options, message):
    with pytest.raises(ValueError, match=message):
        Reading(**options)


@pytest.mark.parametrize("least", [0, -1, 2.5, True])
def test_least_that_cannot_be_meant(least):
    with pytest.raises(ValueError, match="least is"):
        mine(*examples(), least=least)


def test_no_torch_is_needed():
    code = "import sys, helpers.patterns; assert 'torch' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("alpha", [5, 0, -0.1, float("nan")])
def test_alpha_that_cannot_be_meant(alpha):
    with pytest.raises(ValueError, match="alpha is"):
        mine(*examples(), alpha=alpha)


@pytest.mark.parametrize("first", [0, -1, 1.5, True])
def test_first_that_cannot_be_meant(first):
    with pytest.raises(ValueError, match="first is"):
        confirm(mine(*examples()), *examples(), first=first)


def test_what_is_given_in_place_of_something_else_is_told():
    found, gold = examples()
    with pytest.raises(ValueError, match=r"give Reading\('words'\)"):
        mine(found, gold, reading="words")
    with pytest.raises(ValueError, match=r"give Reading\('links'\)"):
        patterns_of(found[0], ["trees"])
    with pytest.raises(ValueError, match=r"give a list, \[a\]"):
        mine(found[0], ["positive"])


def test_it_says_why_nothing_was_tested():
    found = mine(*examples(), least=50)
    assert "none is in 50 predictions or more: lower least, or give more examples" in repr(found)
    assert "none to confirm" in repr(confirm(found, *examples()))
    assert "lower least" not in repr(mine(*examples()))
