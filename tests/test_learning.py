"""Tables are checked, split without leaks, and a bag of words learns what words can tell and nothing else."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest

from helpers import data, learning
from helpers.evaluate import evaluate

MESSAGES = data.PROJECT / "data" / "examples" / "messages.tsv"


def table(texts, labels, *, second=None, pair=None):
    """A table as data.read makes it; label numbers follow the alphabet."""
    names = sorted(set(labels))
    frame = pd.DataFrame({"first": list(texts), "label": list(labels)})
    return frame.assign(
        second=second or "", label_id=[names.index(x) for x in labels], split="x", phenomenon="", pair=pair or ""
    )


def many(counts, **options):
    """A table with so many rows of each label, no two of them alike."""
    labels = [label for label, count in counts.items() for _ in range(count)]
    return table([f"alpha{i} beta{i} gamma{i} delta{i}" for i in range(len(labels))], labels, **options)


@pytest.fixture(scope="module")
def messages():
    return data.read(MESSAGES, first="text", label="label")


@pytest.mark.parametrize(
    ("frame", "match"),
    [
        (many({"a": 20}), r"All 20 rows have the label 'a'"),
        (many({"a": 20, "b": 9}), r"1 of 2 classes have fewer than 10 rows: 'b' has 9\. "),
        (many({f"c{i:02}": 2 for i in range(30)}), r"30 of 30 .* and 25 more.*Is this the column of the labels\?"),
        (many({"a": 20}).assign(label="", label_id=-1), "no labels"),
        (
            many({"not-it": 40, "it": 40, "Not it": 3}),
            r"'Not it' \(3 rows\) and 'not-it' \(40 rows\) differ in nothing",
        ),
    ],
)
def test_what_cannot_be_learned_is_refused(frame, match):
    with pytest.raises(ValueError, match=match):
        learning.check(frame)


def test_a_table_with_enough_of_each_passes():
    learning.check(many({"a": 10, "b": 500}))
    learning.check(many({"a": 4, "b": 5}), least=4)


def test_a_class_that_a_sample_missed_is_named():
    with pytest.raises(ValueError, match=r"1 of 3 classes have fewer than 5 rows: 'rare' has 0\. .*larger sample"):
        learning.check(many({"a": 10, "b": 10}), least=5, labels=["a", "b", "rare"])


def test_texts_that_stand_in_quotes_are_warned_of_and_the_cure_works(tmp_path):
    rows = [(f'"He came {n}"', "ab"[n % 2]) for n in range(20)]
    old, new = tmp_path / "old.tsv", tmp_path / "new.tsv"
    old.write_text("text\tlabel\n" + "".join(f"{text}\t{label}\n" for text, label in rows))
    with pytest.warns(UserWarning, match="20 of 20 texts stand in quotes") as seen:
        learning.check(data.read(old, first="text", label="label"))
    assert 'to_csv("new.tsv", sep="\\t", index=False, quoting=3)' in str(seen[0].message)
    pd.read_csv(old, sep="\t").to_csv(new, sep="\t", index=False, quoting=3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mended = data.read(new, first="text", label="label")
        learning.check(mended)
        learning.check(many({"a": 10, "b": 10}).assign(first='"Stop," he said.'))
    assert mended["first"][1] == "He came 1"


def test_words_keep_apostrophes_and_what_is_asked_and_tell_two_texts_apart():
    assert learning.words("Isn't it 9 o'clock? $_<script> Ärger!") == [
        "isn't", "it", "9", "o'clock", "?", "script", "ärger", "!"
    ]  # fmt: skip
    assert learning.words(("Yes.", "yes!")) == ["yes", "|yes", "|!"]
    assert learning.words("🙂") == []


def test_near_duplicates_are_found_whatever_their_order_and_no_others():
    texts = ["The soup was cold.", "cold was the SOUP", "The soup was warm.", "A bed of roses", "🙂", "🙂"]
    texts += ["...", "👍"]
    assert learning.near_duplicates(texts, bound=0.9) == [(0, 1), (4, 5)]  # no words, and equal
    assert learning.near_duplicates(texts, bound=0.6) == [(0, 1), (0, 2), (1, 2), (4, 5)]
    pairs = [("one two", "three"), ("three", "one two")]
    assert learning.near_duplicates(pairs, bound=0.1) == []


@pytest.mark.parametrize("bound", [0, -1, 60, float("nan")])
def test_a_bound_that_is_no_share_is_refused(bound):
    with pytest.raises(ValueError, match="bound is .*: give a share"):
        learning.near_duplicates(["a", "b"], bound=bound)


def test_many_rows_are_compared_in_blocks_and_none_is_missed(monkeypatch):
    texts = [f"alpha{i % 7} beta{i % 7} gamma{i % 3}" for i in range(40)]
    together, groups = learning.near_duplicates(texts), learning._together(table(texts, ["a"] * 40), learning.CLOSE)
    sizes = []
    counted = learning.coo_matrix
    monkeypatch.setattr(
        learning, "coo_matrix", lambda made, **more: sizes.append(more or made.shape) or counted(made, **more)
    )
    monkeypatch.setattr(learning, "ROWS", 6)
    assert learning.near_duplicates(texts) == together
    assert sizes == [(min(6, 40 - start), 40 - start) for start in range(0, 40, 6)]  # never all by all
    assert learning._together(table(texts, ["a"] * 40), learning.CLOSE).tolist() == groups.tolist()


def test_equal_texts_without_words_do_not_leak():
    signs = [f"{a}{b}" for a in "👍👎🎉…" for b in "!.;:-+*/"]
    signs = [sign.replace("!", "¡") for sign in signs]  # "!" is a word
    parts = learning.split(table(signs * 4, ["a", "b"] * (2 * len(signs))))
    found = [set(part["first"]) for part in parts.values()]
    assert sum(map(len, found)) == len(signs)


def orders(word):
    return [f"my order {number} has not {word} yet please send it" for number in range(50)]


@pytest.mark.parametrize(
    ("frame", "said"),
    [
        (
            table(orders("come") + orders("arrived"), ["a", "b"] * 50),
            r"50 rows of this class are 1 group, .* bound=0\.9",
        ),
        (many({"a": 50, "b": 50}, pair=["yes", "no"] * 50), r'column pair does not say .*frame\.assign\(pair=""\)'),
        (many({"a": 2, "b": 50}), "No row of 'a' is in the part"),
    ],
    ids=["a template", "a column that happens to be called pair", "a rare class"],
)
def test_a_class_that_a_part_would_lack_is_refused_with_the_cure(frame, said):
    with pytest.raises(ValueError, match=said) as error:
        learning.split(frame)
    assert ("column pair" in str(error.value)) == bool(frame["pair"].any())


def test_the_cures_cure():
    template = table(orders("come") + orders("arrived"), ["a", "b"] * 50)
    assert all(part["label"].nunique() == 2 for part in learning.split(template, bound=0.9).values())
    named = many({"a": 50, "b": 50}, pair=["yes", "no"] * 50)
    assert len(learning.split(named.assign(pair=""))["test"]) == 20
    assert len(learning.split(named.drop(columns="pair"))["test"]) == 20


def test_a_split_has_every_row_once_and_each_class_in_its_share():
    frame = many({"a": 100, "b": 30, "c": 10})
    parts = learning.split(frame, seed=3)
    assert {name: len(part) for name, part in parts.items()} == {"train": 84, "dev": 28, "test": 28}
    assert sorted(text for part in parts.values() for text in part["first"]) == sorted(frame["first"])
    for name, part in parts.items():
        assert set(part["split"]) == {name}
        share = learning.SHARES[name]
        assert part["label"].value_counts().to_dict() == {"a": 100 * share, "b": 30 * share, "c": 10 * share}


def test_a_split_depends_on_its_seed_alone():
    frame = many({"a": 30, "b": 30})
    one, again, other = (learning.split(frame, seed=seed)["test"]["first"].tolist() for seed in (1, 1, 2))
    assert one == again
    assert one != other


def test_near_duplicates_and_named_pairs_stay_together():
    frame = many({"a": 40, "b": 40}, pair=["p"] * 2 + [""] * 76 + ["q"] * 2)
    twins = frame.assign(first=frame["first"] + " more", pair="")
    both = pd.concat([frame, twins], ignore_index=True)
    for seed in range(3):
        parts = learning.split(both, seed=seed)
        where = {text: name for name, part in parts.items() for text in part["first"]}
        assert all(where[text] == where[f"{text} more"] for text in frame["first"])
        assert where[frame["first"][0]] == where[frame["first"][1]]
        assert where[frame["first"][78]] == where[frame["first"][79]]
        assert len(set(where.values())) == 3


@pytest.mark.parametrize("shares", [{"train": 0.5, "dev": 0.4}, {"train": 1.2, "dev": -0.2}])
def test_shares_that_cannot_be_meant_are_refused(shares):
    with pytest.raises(ValueError, match="add up to 1"):
        learning.split(many({"a": 10, "b": 10}), shares)


def test_a_bag_of_words_learns_words_and_not_their_order():
    frame = table(["good day", "bad day", "good tea", "bad tea"], ["yes", "no", "yes", "no"])
    rival = learning.BagOfWords.fit(frame)
    unseen = table(["bread good", "tea bad", "good !"], ["yes", "no", "yes"])
    assert evaluate(rival, unseen, check=False).accuracy == 1
    assert rival.predict(["good bad"]) == pytest.approx(rival.predict(["bad good"]))
    assert rival.predict(["never seen", ""]) == pytest.approx(np.full((2, 2), 0.5), abs=1e-3)


def test_its_weights_are_where_the_penalised_loss_is_least():
    """One word, one weight: with k of n right on either side, setting the slope to 0 gives n·(p - k/n) = -penalty·w."""
    frame = table(["x"] * 4 + ["y"] * 4, ["a", "a", "a", "b", "b", "b", "b", "a"])
    rival = learning.BagOfWords.fit(frame, penalty=2.0)
    p = rival.predict(["x"])[0, 0]
    assert 4 * (p - 3 / 4) == pytest.approx(-2.0 * rival.weights[rival.vocabulary["x"], 0], abs=1e-3)


def test_a_class_that_the_sample_lacks_is_still_a_class():
    rival = learning.BagOfWords.fit(table(["one", "two"], ["a", "c"]), labels=("a", "b", "c"))
    assert rival.predict(["one"]).argmax() == 0
    assert rival.predict(["two"]).argmax() == 2
    assert rival.weights.shape == (2, 3)


def test_pairs_are_learned_by_the_side_a_word_stands_on():
    frame = table(["sun", "rain"] * 4, ["dry", "wet"] * 4, second=["rain", "sun"] * 4)
    rival = learning.BagOfWords.fit(frame)
    assert rival.labels[rival.predict([("rain", "sun")]).argmax()] == "wet"


# ---- the example table -----------------------------------------------------------------------------------------------


def test_messages_are_balanced_and_their_places_too(messages):
    learning.check(messages)
    raw = pd.read_csv(MESSAGES, sep="\t", quoting=3, keep_default_na=False)
    assert raw["text"].tolist() == messages["first"].tolist()
    assert (pd.crosstab(raw["place"], raw["label"]) == 30).all().all()
    assert pd.crosstab(raw["place"], raw["label"]).shape == (4, 4)


def test_no_two_messages_share_half_of_their_words(messages):
    assert learning.near_duplicates(messages["first"], bound=0.45) == []


def test_messages_are_tidy_and_of_many_lengths(messages):
    assert all(
        text == " ".join(text.split()) and text[-1] in '.!?"' and text.isprintable() for text in messages["first"]
    )
    lengths = messages["first"].str.split().str.len()
    assert lengths.min() == 3
    assert lengths.max() >= 35
    means = lengths.groupby(messages["label"]).mean()
    assert means.max() <= 1.15 * means.min()


def test_neither_a_question_mark_nor_please_nor_thanks_gives_a_label_away(messages):
    asks = messages["first"].str.contains("?", regex=False)
    assert (~asks[messages["label"] == "question"]).mean() >= 0.2
    assert (messages.loc[asks, "label"] != "question").mean() >= 0.35
    for word, label in (("please", "request"), ("thank", "thanks")):
        assert messages["first"].str.lower().str.contains(word).groupby(messages["label"]).mean()[label] <= 0.4


def test_words_alone_tell_something_and_not_enough(messages):
    found = []
    for seed in range(4):
        parts = learning.split(messages, seed=seed)
        found.append(evaluate(learning.BagOfWords.fit(parts["train"]), parts["dev"]).accuracy)
    assert 0.5 <= np.mean(found) <= 0.7
