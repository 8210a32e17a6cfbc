"""The bundled corpora are what their READMEs claim: well-formed, balanced, without duplicates or give-aways."""

from __future__ import annotations

import csv
import difflib
import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from functools import cache
from itertools import groupby
from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import minimize

from helpers.data import BUNDLED, load

SPLITS = ("train", "dev")
EXTRA = ["label", "phenomenon", "pair"]


class Bounds(NamedTuple):
    """What a corpus promises; ``words`` are the extremes and quartiles that the length of an example must span."""

    train: int
    dev: int
    words: tuple[int, int, int, int]  # shortest at most, lower quartile at most, upper at least, longest at least
    most_words: int
    pairs: int
    bag_of_words: float


# sst2: with the penalties tested below a bag of words reaches 0.55 and 0.58 on dev.
BOUNDS = {
    "sst2": Bounds(train=420, dev=220, words=(4, 11, 16, 34), most_words=45, pairs=10, bag_of_words=0.65),
}
CORPORA = sorted(folder.name for folder in BUNDLED.iterdir() if folder.is_dir())
everywhere = pytest.mark.parametrize("corpus", CORPORA)
in_each_split = pytest.mark.parametrize("split", SPLITS)


@cache
def lines(corpus: str, split: str) -> tuple[tuple[str, ...], ...]:
    text = (BUNDLED / corpus / f"{split}.tsv").read_bytes().decode("utf-8")
    assert text.endswith("\n"), "the last line has no line end"
    assert "\r" not in text
    return tuple(tuple(line.split("\t")) for line in text[:-1].split("\n"))


@cache
def table(corpus: str, split: str) -> pd.DataFrame:
    header, *rows = lines(corpus, split)
    return pd.DataFrame(rows, columns=list(header)).assign(split=split)


def both(corpus: str) -> pd.DataFrame:
    return pd.concat([table(corpus, split) for split in SPLITS], ignore_index=True)


def text_columns(frame: pd.DataFrame) -> list[str]:
    return list(frame.columns[: frame.columns.get_loc("label")])


def example_texts(frame: pd.DataFrame) -> list[str]:
    """One string an example: the sentence, or the two of a pair."""
    return [" / ".join(row) for row in frame[text_columns(frame)].itertuples(index=False)]


def words(text: str) -> list[str]:
    return re.findall(r"[^\W_]+(?:'[^\W_]+)*", text.lower())


def word_matrix(bags: Sequence[set[str]], vocabulary: Sequence[str]) -> np.ndarray:
    number = {word: i for i, word in enumerate(vocabulary)}
    matrix = np.zeros((len(bags), len(number)))
    for row, bag in zip(matrix, bags, strict=True):
        row[[number[word] for word in bag if word in number]] = 1
    return matrix


def close_texts(texts: Sequence[str], bound: float) -> list[tuple[int, int]]:
    """Positions i < j of the texts of which the words overlap (intersection over union) by ``bound`` or more."""
    bags = [set(words(text)) for text in texts]
    matrix = word_matrix(bags, sorted(set().union(*bags)))
    shared = matrix @ matrix.T
    size = np.diag(shared)
    overlap = np.triu(shared / (size[:, None] + size - shared), k=1)
    return [(int(i), int(j)) for i, j in np.argwhere(overlap >= bound)]


def words_changed(first: str, second: str) -> int:
    blocks = difflib.SequenceMatcher(None, words(first), words(second), autojunk=False).get_opcodes()
    return sum(max(b - a, d - c) for kind, a, b, c, d in blocks if kind != "equal")


def bag_of_words_accuracy(train: pd.DataFrame, dev: pd.DataFrame, penalty: float) -> float:
    """Share of dev that a logistic regression on the words of train gets right (the two of a pair kept apart)."""

    def bags(frame: pd.DataFrame) -> list[set[str]]:
        columns = text_columns(frame)
        rows = frame[columns].itertuples(index=False)
        return [{f"{i}:{w}" for i, text in enumerate(row) for w in words(text)} for row in rows]

    vocabulary = sorted(set().union(*bags(train)))
    x, x_dev = (np.c_[word_matrix(bags(frame), vocabulary), np.ones(len(frame))] for frame in (train, dev))
    classes = np.array(sorted(set(train["label"])))
    y = (train["label"].to_numpy()[:, None] == classes).astype(float)

    def loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
        weights = flat.reshape(-1, len(classes))
        logits = x @ weights
        logits -= np.log(np.exp(logits - logits.max(1, keepdims=True)).sum(1, keepdims=True)) + logits.max(
            1, keepdims=True
        )
        gradient = x.T @ (np.exp(logits) - y) + penalty * weights
        return -(y * logits).sum() + penalty / 2 * (weights**2).sum(), gradient.ravel()

    weights = minimize(loss, np.zeros(x.shape[1] * len(classes)), jac=True, method="L-BFGS-B").x
    predicted = classes[(x_dev @ weights.reshape(-1, len(classes))).argmax(1)]
    return float((predicted == dev["label"].to_numpy()).mean())


def test_every_corpus_states_its_bounds():
    assert "sst2" in CORPORA
    assert set(CORPORA) == set(BOUNDS), "give a new corpus its entry in BOUNDS"


@everywhere
def test_folder_holds_both_splits_and_a_readme(corpus):
    names = {path.name for path in (BUNDLED / corpus).iterdir()}
    assert names == {"train.tsv", "dev.tsv", "README.md"}
    readme = (BUNDLED / corpus / "README.md").read_text("utf-8")
    assert "CC0" in readme


@everywhere
@in_each_split
def test_header_and_fields(corpus, split):
    header, *rows = lines(corpus, split)
    assert list(header[-3:]) == EXTRA
    assert len(header) in (4, 5)  # one text column or two
    wrong = [number for number, row in enumerate(rows, start=2) if len(row) != len(header) or not all(row[:-1])]
    assert not wrong, f"lines with too few, too many or empty fields: {wrong}"


@everywhere
@in_each_split
def test_a_quote_is_an_ordinary_character(corpus, split):
    path = BUNDLED / corpus / f"{split}.tsv"
    frame = pd.read_csv(path, sep="\t", quoting=csv.QUOTE_NONE, keep_default_na=False, dtype=str)
    pd.testing.assert_frame_equal(frame, table(corpus, split).drop(columns="split"))


@everywhere
@in_each_split
def test_text_is_tidy(corpus, split):
    frame = table(corpus, split)
    for text in frame[text_columns(frame)].to_numpy().ravel():
        assert text == unicodedata.normalize("NFC", " ".join(text.split())), f"stray blanks or marks: {text!r}"
        assert text.isprintable(), text
        assert text.strip('"')[0].isupper() or text[0].isdigit(), f"no capital: {text!r}"
        assert text.rstrip('"')[-1] in ".!?", f"no end: {text!r}"


@everywhere
@in_each_split
def test_loads_as_it_stands(corpus, split):
    frame, loaded = table(corpus, split), load(corpus, split=split)
    assert loaded["first"].tolist() == frame[text_columns(frame)[0]].tolist()
    assert loaded["phenomenon"].tolist() == frame["phenomenon"].tolist()
    assert loaded["pair"].tolist() == frame["pair"].tolist()
    names = set(zip(frame["label"], loaded["label"], strict=True))
    assert len(names) == frame["label"].nunique()
    if corpus == "sst2":
        assert names == {("0", "negative"), ("1", "positive")}


@everywhere
@in_each_split
def test_enough_rows_and_exactly_balanced(corpus, split):
    counts = table(corpus, split)["label"].value_counts()
    assert counts.sum() >= getattr(BOUNDS[corpus], split)
    assert len(counts) >= 2
    assert counts.max() == counts.min()


@everywhere
@in_each_split
def test_the_phenomenon_does_not_give_the_label_away(corpus, split):
    frame = table(corpus, split)
    counts = pd.crosstab(frame["phenomenon"], frame["label"])
    assert (counts > 0).all().all()
    spread = counts.max(axis=1) - counts.min(axis=1)
    assert (spread <= np.maximum(1, 0.1 * counts.sum(axis=1))).all(), counts[spread > 1]
    assert (frame["phenomenon"] != "plain").mean() >= 0.4


@everywhere
def test_both_splits_hold_every_phenomenon(corpus):
    counts = pd.crosstab(both(corpus)["phenomenon"], both(corpus)["split"])
    assert (counts > 0).all().all()
    assert len(counts) >= 5


@everywhere
@in_each_split
def test_rows_are_shuffled(corpus, split):
    labels = table(corpus, split)["label"].tolist()
    longest = max(len(list(run)) for _, run in groupby(labels))
    same = np.mean([a == b for a, b in zip(labels, labels[1:], strict=False)])
    assert longest <= 12
    assert same == pytest.approx(1 / len(set(labels)), abs=0.12), "labels alternate, or stand in blocks"
    tags = table(corpus, split)["phenomenon"].tolist()
    assert max(len(list(run)) for tag, run in groupby(tags) if tag != "plain") <= 6


@everywhere
def test_no_duplicates_after_normalisation(corpus):
    normalised = Counter(" ".join(words(text)) for text in example_texts(both(corpus)))
    assert [text for text, count in normalised.items() if count > 1] == []


@everywhere
def test_no_near_duplicates(corpus):
    frame = both(corpus)
    texts = example_texts(frame)
    twins = {tuple(rows) for rows in frame[frame["pair"] != ""].groupby("pair").groups.values()}
    close = [(texts[i], texts[j]) for i, j in close_texts(texts, 0.5) if (i, j) not in twins]
    assert close == []


@everywhere
def test_minimal_pairs_are_minimal(corpus):
    tagged = both(corpus).query("pair != ''")
    groups = dict(list(tagged.groupby("pair")))
    assert len(groups) >= BOUNDS[corpus].pairs
    for pair, rows in groups.items():
        assert len(rows) == 2, pair
        assert rows["split"].nunique() == 1, f"{pair} is torn over the splits"
        assert rows["label"].nunique() == 2, pair
        assert 1 <= words_changed(*example_texts(rows)) <= 2, example_texts(rows)


@everywhere
@in_each_split
def test_lengths_are_spread_and_alike_in_all_classes(corpus, split):
    bounds, frame = BOUNDS[corpus], table(corpus, split)
    length = pd.Series([len(text.split()) for text in example_texts(frame)])
    shortest, lower, upper, longest = length.quantile([0, 0.25, 0.75, 1])
    assert 3 <= shortest <= bounds.words[0]
    assert lower <= bounds.words[1]
    assert upper >= bounds.words[2]
    assert bounds.words[3] <= longest <= bounds.most_words
    means = length.groupby(frame["label"]).mean()
    assert means.max() <= 1.15 * means.min()


@everywhere
def test_no_opening_or_word_prevails(corpus):
    frame = both(corpus)
    texts = frame[text_columns(frame)[0]].drop_duplicates()
    openings = Counter(tuple(words(text)[:2]) for text in texts)
    assert openings.most_common(1)[0][1] <= 10
    # A long word in a twentieth of the examples would be a tic, or the topic.
    long_words = Counter(word for text in texts for word in set(words(text)) if len(word) >= 5)
    assert long_words.most_common(1)[0][1] <= len(texts) / 20


@everywhere
@pytest.mark.parametrize("penalty", [1.0, 10.0])
def test_a_bag_of_words_does_not_solve_it(corpus, penalty):
    accuracy = bag_of_words_accuracy(table(corpus, "train"), table(corpus, "dev"), penalty)
    assert accuracy <= BOUNDS[corpus].bag_of_words


@everywhere
def test_readme_counts_are_those_of_the_files(corpus):
    """The README's table: phenomenon, then a count per split and label in the order of its heading."""
    rows = [
        [cell.strip(" `*") for cell in line.strip(" |").split("|")]
        for line in (BUNDLED / corpus / "README.md").read_text("utf-8").splitlines()
        if line.startswith("|")
    ]
    labels = load(corpus)["label"].unique()
    start = next(i for i, row in enumerate(rows) if row[0] == "phenomenon" and any("train" in cell for cell in row))
    heading = [tuple(cell.split()) for cell in rows[start][1:]]
    assert set(heading) == {(split, label) for split in SPLITS for label in labels}
    end = next(i for i, row in enumerate(rows) if i > start and row[0] == "all") + 1
    stated = {row[0]: dict(zip(heading, map(int, row[1:]), strict=True)) for row in rows[start + 2 : end]}
    loaded = pd.concat([load(corpus, split=split) for split in SPLITS])
    counts = Counter(zip(loaded["phenomenon"], loaded["split"], loaded["label"], strict=True))
    total = Counter(zip(loaded["split"], loaded["label"], strict=True))
    assert stated.pop("all") == dict(total)
    assert {(p, *key): n for p, row in stated.items() for key, n in row.items()} == dict(counts)


# The checks themselves: each must see the fault that it looks for.


def test_close_texts_sees_a_reordered_twin():
    texts = ["The soup was cold.", "Cold was the soup!", "The soup was warm and the bread fresh."]
    assert close_texts(texts, 0.8) == [(0, 1)]


def test_words_changed_counts_replacements_and_insertions():
    assert words_changed("I would go again.", "I would go again!") == 0
    assert words_changed("I would go again.", "I wouldn't go again.") == 1
    assert words_changed("I would go.", "I would never go again.") == 2


def test_bag_of_words_learns_a_give_away():
    frame = pd.DataFrame({"sentence": ["good day", "bad day", "good tea", "bad tea"], "label": ["1", "0", "1", "0"]})
    unseen = pd.DataFrame({"sentence": ["good bread", "bad bread"], "label": ["1", "0"]})
    assert bag_of_words_accuracy(frame, unseen, 1.0) == 1.0
    assert bag_of_words_accuracy(frame, unseen.assign(label=["0", "1"]), 1.0) == 0.0
