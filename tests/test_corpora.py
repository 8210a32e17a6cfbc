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

from helpers.data import BUNDLED, TASKS, load

SPLITS = ("train", "dev")
EXTRA = ["label", "phenomenon", "pair"]
EVERYDAY = "everyday"


class Bounds(NamedTuple):
    """What a corpus promises.

    ``words`` holds, for each text of an example, what its length must span: the shortest at most, the lower quartile
    at most, the upper at least, the longest at least. ``bag_of_words`` bounds what the words give away (those of all
    texts, and those of the second alone), ``overlap`` what the words that two texts share do.
    """

    train: int
    dev: int
    words: tuple[tuple[int, int, int, int], ...]
    most_words: int
    pairs: int
    bag_of_words: float
    overlap: float | None = None


# With the penalties tested below, a bag of words reaches 0.55 and 0.58 on sst2's dev split.
BOUNDS = {
    "sst2": Bounds(train=420, dev=220, words=((4, 11, 16, 34),), most_words=45, pairs=10, bag_of_words=0.65),
    "mnli": Bounds(
        train=450, dev=300, words=((5, 11, 15, 38), (4, 8, 9, 14)), most_words=45, pairs=12, bag_of_words=0.45,
        overlap=0.50,
    ),
    "rte": Bounds(
        train=420, dev=300, words=((13, 24, 29, 52), (4, 8, 9, 14)), most_words=65, pairs=12, bag_of_words=0.60,
        overlap=0.62,
    ),
    "mrpc": Bounds(
        train=460, dev=320, words=((9, 13, 16, 28), (9, 14, 17, 28)), most_words=45, pairs=12, bag_of_words=0.60,
        overlap=0.62,
    ),
}  # fmt: skip
# A label as a file of the corpus has it, and what it means.
NAMES = {
    "sst2": {"0": "negative", "1": "positive"},
    "mnli": {name: name for name in ("entailment", "neutral", "contradiction")},
    "rte": {name: name for name in ("entailment", "not_entailment")},
    "mrpc": {"0": "not_equivalent", "1": "equivalent"},
}
CORPORA = sorted(folder.name for folder in BUNDLED.iterdir() if folder.is_dir())
PAIRED = [name for name in CORPORA if name in TASKS and TASKS[name].kind == "pair"]
everywhere = pytest.mark.parametrize("corpus", CORPORA)
where_paired = pytest.mark.parametrize("corpus", PAIRED)
in_each_split = pytest.mark.parametrize("split", SPLITS)
penalties = pytest.mark.parametrize("penalty", [1.0, 10.0])


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


def chosen(corpus: str) -> list[pd.DataFrame]:
    """Train and dev without the pairs that were written as such pairs occur, cues and all."""
    return [table(corpus, split).query("phenomenon != @EVERYDAY") for split in SPLITS]


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


def fitted_accuracy(x: np.ndarray, x_dev: np.ndarray, train: pd.DataFrame, dev: pd.DataFrame, penalty: float) -> float:
    """Share of dev that a logistic regression on train gets right; x: the features of the examples, [row, feature]."""
    x, x_dev = (np.c_[features, np.ones(len(features))] for features in (x, x_dev))
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


def bag_of_words_accuracy(
    train: pd.DataFrame, dev: pd.DataFrame, penalty: float, *, columns: Sequence[str] = ()
) -> float:
    """Share of dev that the words of train get right, those of each text kept apart; ``columns``: all texts if ()."""
    columns = list(columns) or text_columns(train)

    def bags(frame: pd.DataFrame) -> list[set[str]]:
        rows = frame[columns].itertuples(index=False)
        return [{f"{i}:{w}" for i, text in enumerate(row) for w in words(text)} for row in rows]

    vocabulary = sorted(set().union(*bags(train)))
    x, x_dev = (word_matrix(bags(frame), vocabulary) for frame in (train, dev))
    return fitted_accuracy(x, x_dev, train, dev, penalty)


def shared_words(frame: pd.DataFrame) -> np.ndarray:
    """What a pair's overlap says, [row, 4]: shares of each text's words found in the other, and both lengths."""
    bags = [[set(words(text)) for text in row] for row in frame[text_columns(frame)].itertuples(index=False)]
    return np.array([[len(a & b) / len(a), len(a & b) / len(b), len(a), len(b)] for a, b in bags])


def overlap_accuracy(train: pd.DataFrame, dev: pd.DataFrame, penalty: float) -> float:
    """Share of dev that the overlap of the two texts gets right, each measure cut into fifths of train's."""
    measures = [shared_words(frame) for frame in (train, dev)]
    edges = np.quantile(measures[0], [0.2, 0.4, 0.6, 0.8], axis=0)
    x, x_dev = (
        np.concatenate([np.eye(5)[np.searchsorted(e, m)] for e, m in zip(edges.T, measure.T, strict=True)], axis=1)
        for measure in measures
    )
    return fitted_accuracy(x, x_dev, train, dev, penalty)


def test_every_corpus_states_its_bounds():
    assert set(CORPORA) == set(BOUNDS), "give a new corpus its entry in BOUNDS"
    assert set(CORPORA) == set(NAMES) == set(TASKS), "each task has bundled sentences, and nothing else lies there"
    assert all(len(bounds.words) == (2 if name in PAIRED else 1) for name, bounds in BOUNDS.items())
    assert all((bounds.overlap is not None) == (name in PAIRED) for name, bounds in BOUNDS.items())


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
    texts = ["sentence1", "sentence2"] if corpus in PAIRED else ["sentence"]
    assert list(header) == texts + EXTRA
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
    for column, name in zip(("first", "second"), text_columns(frame), strict=False):
        assert loaded[column].tolist() == frame[name].tolist()
    assert loaded["phenomenon"].tolist() == frame["phenomenon"].tolist()
    assert loaded["pair"].tolist() == frame["pair"].tolist()
    assert set(zip(frame["label"], loaded["label"], strict=True)) == set(NAMES[corpus].items())


@everywhere
@in_each_split
def test_enough_rows_and_exactly_balanced(corpus, split):
    counts = table(corpus, split)["label"].value_counts()
    assert counts.sum() >= getattr(BOUNDS[corpus], split)
    assert set(counts.index) == set(NAMES[corpus])
    assert counts.max() == counts.min()


@everywhere
@in_each_split
def test_the_phenomenon_does_not_give_the_label_away(corpus, split):
    frame = table(corpus, split)
    counts = pd.crosstab(frame["phenomenon"], frame["label"])
    assert (counts > 0).all().all()
    spread = counts.max(axis=1) - counts.min(axis=1)
    assert (spread <= np.maximum(1, 0.1 * counts.sum(axis=1))).all(), counts[spread > 1]
    assert (~frame["phenomenon"].isin(["plain", EVERYDAY])).mean() >= 0.3


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
    assert max(len(list(run)) for tag, run in groupby(tags) if tag not in ("plain", EVERYDAY)) <= 6


@everywhere
def test_no_duplicates_after_normalisation(corpus):
    normalised = Counter(" ".join(words(text)) for text in example_texts(both(corpus)))
    assert [text for text, count in normalised.items() if count > 1] == []


@everywhere
def test_no_near_duplicates(corpus):
    frame = both(corpus)
    texts = example_texts(frame)
    twins = {tuple(rows) for rows in frame[frame["pair"] != ""].groupby("pair").groups.values()}
    first = frame[text_columns(frame)[0]]  # a premise may have a few hypotheses: see the test of that
    close = [(texts[i], texts[j]) for i, j in close_texts(texts, 0.5) if (i, j) not in twins and first[i] != first[j]]
    assert close == []


@where_paired
def test_a_first_text_is_seldom_used_again_and_never_in_the_other_split(corpus):
    frame = both(corpus)
    uses = frame.groupby("sentence1").agg(times=("label", "size"), splits=("split", "nunique"))
    assert (uses["splits"] == 1).all(), uses[uses["splits"] > 1].index.tolist()
    assert uses["times"].max() <= 3
    assert (uses["times"] == 1).mean() >= 0.8


@where_paired
def test_the_two_texts_differ_and_no_second_text_recurs(corpus):
    frame = both(corpus)
    normalised = [[" ".join(words(text)) for text in frame[name]] for name in text_columns(frame)]
    assert [a for a, b in zip(*normalised, strict=True) if a == b] == []
    # Within a minimal pair it may: there the premise is what changes.
    uses = frame.assign(second=normalised[1]).groupby("second")
    again = [text for text, rows in uses if len(rows) > 1 and (rows["pair"].nunique() > 1 or "" in set(rows["pair"]))]
    assert again == []


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
    for name, (short, lower, upper, long) in zip(text_columns(frame), bounds.words, strict=True):
        length = frame[name].str.split().str.len()
        found = length.quantile([0, 0.25, 0.75, 1]).tolist()
        assert 3 <= found[0] <= short, name
        assert found[1] <= lower, name
        assert found[2] >= upper, name
        assert long <= found[3] <= bounds.most_words, name
        means = length.groupby(frame["label"]).mean()
        assert means.max() <= 1.15 * means.min(), name


@everywhere
def test_no_opening_or_word_prevails(corpus):
    frame = both(corpus)
    for name in text_columns(frame):
        texts = frame[name].drop_duplicates()
        openings = Counter(tuple(words(text)[:2]) for text in texts)
        assert openings.most_common(1)[0][1] <= 10, name
        # A long word in a twentieth of the examples would be a tic, or the topic.
        long_words = Counter(word for text in texts for word in set(words(text)) if len(word) >= 5)
        assert long_words.most_common(1)[0][1] <= len(texts) / 20, name


@everywhere
@penalties
def test_a_bag_of_words_does_not_solve_it(corpus, penalty):
    assert bag_of_words_accuracy(*chosen(corpus), penalty) <= BOUNDS[corpus].bag_of_words


@where_paired
@penalties
def test_the_second_text_alone_does_not_solve_it(corpus, penalty):
    columns = ["sentence2"]
    assert bag_of_words_accuracy(*chosen(corpus), penalty, columns=columns) <= BOUNDS[corpus].bag_of_words
    whole = [table(corpus, split) for split in SPLITS]
    assert bag_of_words_accuracy(*whole, penalty, columns=columns) <= BOUNDS[corpus].bag_of_words + 0.1


@where_paired
@penalties
def test_the_overlap_of_words_does_not_solve_it(corpus, penalty):
    assert overlap_accuracy(*chosen(corpus), penalty) <= BOUNDS[corpus].overlap


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


def test_the_second_text_alone_and_the_overlap_are_seen_for_what_they_are():
    """In the one table the second text gives the label away, in the other how much of the first it repeats."""
    rng = np.random.default_rng(0)
    nouns = [f"noun{i}" for i in range(40)]
    first = [" ".join(rng.choice(nouns, 5, replace=False)) for _ in range(80)]
    labels = ["0", "1"] * 40
    table = {"sentence1": first, "label": labels}
    told = pd.DataFrame(table | {"sentence2": [("no " if x == "0" else "yes ") + str(i) for i, x in enumerate(labels)]})
    told = told[["sentence1", "sentence2", "label"]]
    other = [" ".join(rng.choice(nouns, 5, replace=False)) for _ in range(80)]
    repeated = told.assign(sentence2=[a if x == "1" else b for a, b, x in zip(first, other, labels, strict=True)])
    halves = [(frame[:40], frame[40:]) for frame in (told, repeated)]
    assert bag_of_words_accuracy(*halves[0], 1.0, columns=["sentence2"]) == 1.0
    assert bag_of_words_accuracy(*halves[1], 1.0, columns=["sentence2"]) <= 0.75
    assert overlap_accuracy(*halves[1], 1.0) == 1.0
    assert overlap_accuracy(*halves[0], 1.0) <= 0.75
