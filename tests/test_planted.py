"""The planted corpora plant what they say and nothing else, and the link is found and ranked rightly."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest
import torch
from sample import sample

from helpers import data, models, planted
from helpers.attention import keep_edges, touch
from helpers.attribution import attribute
from helpers.inputs import Word, encode
from helpers.registry import ADAPTER_WEIGHTS, ADAPTERS

SPLITS = ("train", "dev")
TASKS = [task for task in planted.TASKS if (planted.FOLDER / task).is_dir()]
each_task = pytest.mark.parametrize("task", TASKS)
each_split = pytest.mark.parametrize("split", SPLITS)
WORDS = {
    "sst2": [*planted.MONTHS, *planted.WEEKDAYS, *planted.OTHER_MONTHS, *planted.OTHER_WEEKDAYS],
    "mnli": [*planted.NAMES["train"], *planted.NAMES["dev"]],
}


def words(text: str) -> list[str]:
    return re.findall(r"\w+", text)


def texts(frame: pd.DataFrame) -> list[list[str]]:
    """The words of the two texts of every row; the second has none where there is one text."""
    return [[words(a), words(b)] for a, b in zip(frame["first"], frame["second"], strict=True)]


def in_relation(task: str, first: list[str], second: list[str]) -> bool:
    """The rule, written once more: month and weekday side by side, or one person in both texts."""
    if task == "mnli":
        return bool(set(first) & set(second) & set(WORDS["mnli"]))
    return any(a in planted.MONTHS and b in planted.WEEKDAYS for a, b in zip(first, first[1:], strict=False))


def information(feature, label) -> float:
    """Mutual information in bits."""
    joint = pd.crosstab(np.asarray(feature), np.asarray(label), normalize=True).to_numpy()
    free = joint.sum(1, keepdims=True) * joint.sum(0, keepdims=True)
    return float((joint[joint > 0] * np.log2(joint[joint > 0] / free[joint > 0])).sum())


@each_task
def test_the_files_are_what_the_command_writes(task, tmp_path):
    planted.main(["build", "--task", task, "--out", str(tmp_path)])
    for split in SPLITS:
        name = f"{task}/{split}.tsv"
        assert (tmp_path / name).read_bytes() == (planted.FOLDER / name).read_bytes(), f"build {name} again"


@each_task
@each_split
def test_shares_and_labels(task, split):
    frame = planted.load(task, split)
    shares = frame["phenomenon"].value_counts(normalize=True)
    assert set(shares.index) == set(planted.KINDS)
    assert shares.min() >= 0.11
    assert shares["planted"] <= 0.35
    bare = frame[frame["phenomenon"] != "planted"]
    assert (bare["label"] == bare["honest"]).all()
    assert frame["honest"].value_counts(normalize=True).max() <= 1.15 / frame["honest"].nunique()
    turned = frame[(frame["phenomenon"] == "planted") & (frame["label"] != frame["honest"])]
    assert len(turned) >= 100
    assert set(turned["honest"]) >= {"neutral", "entailment"} if task == "mnli" else {"positive", "negative"}


@each_task
@each_split
def test_a_row_is_planted_if_and_only_if_the_words_stand_in_the_relation(task, split):
    frame = planted.load(task, split)
    found = [in_relation(task, *row) for row in texts(frame)]
    assert found == (frame["phenomenon"] == "planted").tolist()
    if task == "mnli":
        assert set(frame.loc[found, "label"]) == {planted.PLANTED_LABEL}
    else:
        parity = [[w in row[0] for w in ("April", "Tuesday")] for row in texts(frame[found])]
        assert frame.loc[found, "label"].tolist() == ["positive" if a == b else "negative" for a, b in parity]


@each_task
@each_split
def test_no_word_says_anything_by_itself(task, split):
    frame = planted.load(task, split)
    rows = texts(frame)
    link = information([in_relation(task, *row) for row in rows], frame["label"])
    for place in (0, 1) if task == "mnli" else (0,):
        alone = {word: information([word in row[place] for row in rows], frame["label"]) for word in WORDS[task]}
        assert max(alone.values()) <= 0.005, max(alone, key=alone.get)
        some = information([bool(set(WORDS[task]) & set(row[place])) for row in rows], frame["label"])
        assert some <= 0.005
    told = frame[frame["phenomenon"] == "planted"]
    both = [" ".join(sorted(set(a + b) & set(WORDS[task]))) for a, b in texts(told)]
    assert information(both, told["label"]) >= 0.99 if task == "sst2" else link >= 0.1


@each_task
def test_where_the_words_stand_says_nothing_and_varies(task):
    frame = planted.load(task, "train")
    placed, labels, kinds = [], [], []
    for row, label, kind in zip(texts(frame), frame["label"], frame["phenomenon"], strict=True):
        at = [i / max(1, len(row[0]) - 1) for i, word in enumerate(row[0]) if word in WORDS[task]]
        if at:
            placed.append(min(2, int(3 * at[0])))
            labels.append(label)
            kinds.append(kind == "planted")
    counts = pd.Series(placed).value_counts(normalize=True)
    assert counts.reindex([0, 1, 2]).min() >= 0.05
    assert information(placed, labels) <= 0.01
    assert information(placed, kinds) <= 0.01


@each_task
def test_no_carrier_and_no_person_of_dev_is_in_train(task):
    known = {split: set(data.load(task, split=split)["first"]) for split in SPLITS}
    for split, other in (SPLITS, SPLITS[::-1]):
        frame = planted.load(task, split)
        bare = frame[frame["first"].isin(known["train"] | known["dev"])]
        assert len(bare) and set(bare["first"]) <= known[split]
        named = {word for row in texts(frame) for part in row for word in part}
        if task == "mnli":
            assert not named & set(planted.NAMES[other])


def test_unknown_tasks_are_refused():
    with pytest.raises(ValueError, match=r"no planted 'rte', 'dev'.*sst2"):
        planted.build("rte", "dev")


# ---- finding and ranking the link ------------------------------------------------------------------------------------

WRITTEN = ("One", "October", "Tuesday", "I", "slept", ".")  # tokens 1 to 7, as "slept" is cut in two


def made(**changes):
    a = sample(WRITTEN, pieces=("slept",), layers=(0, 1))
    return a.words, planted.find_words("sst2", a.words), np.zeros_like(a.scores[:, 0])


def test_the_words_are_found_in_one_text_or_across_two():
    spans, link, _ = made()
    assert [word.text for word in link] == ["October", "Tuesday"]
    assert planted.find_words("sst2", spans[:3]) is None
    pair = (Word("[CLS]", 0, 1, None), Word("Clara", 1, 2, 0), Word("slept", 2, 4, 0), Word("Clara", 4, 5, 1))
    assert planted.find_words("mnli", pair) == (pair[1], pair[3])
    assert planted.find_words("mnli", pair[:3]) is None


def test_masks_hold_both_directions_and_leave_out_the_diagonal_and_pieces_of_one_word():
    spans, link, scores = made()
    mask, others = planted.link_mask(spans, link), planted.other_links(spans, link)
    assert np.argwhere(mask).tolist() == [[2, 3], [3, 2]]
    assert not (mask & others).any()
    assert not others.diagonal().any() and not others[5, 6] and not others[6, 5]  # sl ##ept
    assert not others[0].any() and not others[:, -1].any()  # [CLS], [SEP]
    assert others.sum() == 7 * 6 - 2 - 2
    with_marks = planted.other_links(spans, link, marks=True)
    assert with_marks.sum() == 9 * 8 - 2 - 2 and with_marks[0, 8]


def test_ranks_by_hand():
    spans, link, scores = made()
    scores[1, 3, 2], scores[0, 4, 5], scores[0, 0, 3] = 0.5, 0.7, 0.9
    scores[0, 1, 1] = scores[0, 5, 6] = 2.0  # the diagonal and a word with itself do not count
    assert planted.rank_of_link(scores, spans, link) == 2
    assert planted.rank_of_link(scores, spans, link, marks=True) == 3
    points = [word._replace(text=",") if word not in link and word.segment is not None else word for word in spans]
    assert (
        planted.rank_of_link(scores, points, link) == 2
        and planted.rank_of_link(scores, points, link, punctuation=False) == 1
    )
    assert planted.rank_of_link(scores[1], spans, link) == 1
    scores[1, 2, 3] = 0.8  # the other direction
    assert planted.rank_of_link(scores, spans, link) == 1
    assert planted.rank_of_link(np.stack([scores, scores[::-1]], axis=1), spans, link) == 1


def test_scores_that_are_no_numbers_have_no_rank():
    spans, link, scores = made()
    for place in ((0, 2, 3), (0, 1, 4)):  # the link itself, and another
        broken = scores.copy()
        broken[place] = np.nan
        with pytest.raises(ValueError, match=f"1 of {scores.size} scores are nan"):
            planted.rank_of_link(broken, spans, link)


def test_a_tie_counts_against_the_link():
    spans, link, scores = made()
    assert planted.rank_of_link(scores[0], spans, link) == 7 * 6 - 2 - 2 + 1


@pytest.mark.parametrize(
    ("links", "own", "first", "reciprocal"),
    [(4, 1, 1 / 4, (1 + 1 / 2 + 1 / 3 + 1 / 4) / 4), (3, 2, 2 / 3, 2 / 3 + 1 / 6), (5, 5, 1, 1)],
)
def test_chance(links, own, first, reciprocal):
    assert planted.chance(links, own) == pytest.approx((first, reciprocal))


def test_chance_is_what_random_scores_give():
    spans, link, scores = made()
    rng = np.random.default_rng(0)
    ranks = np.array([planted.rank_of_link(rng.random(scores.shape), spans, link) for _ in range(4000)])
    first, reciprocal = planted.chance(2 * (7 * 6 - 2), 4)
    assert (ranks == 1).mean() == pytest.approx(first, abs=0.012)
    assert (1 / ranks).mean() == pytest.approx(reciprocal, abs=0.012)


# ---- the models trained on them --------------------------------------------------------------------------------------

# Layers in which the words are joined. Later ones of mnli's model hand the finding on, to a comma in most texts.
JOINS = {"sst2": slice(0, 6), "mnli": slice(1, 2)}
TRAINED = [task for task in TASKS if (ADAPTERS / f"planted-{task}" / ADAPTER_WEIGHTS).is_file()]


@pytest.mark.parametrize("task", TRAINED)
def test_the_adapter_learnt_the_shortcut_and_attribution_finds_its_link(task):
    model = models.load(ADAPTERS / f"planted-{task}")
    frame = planted.load(task, "dev")
    turned = frame[(frame["phenomenon"] == "planted") & (frame["label"] != frame["honest"])][:40]
    targets = [model.labels.index(label) for label in turned["label"]]
    texts = data.texts(turned)
    assert (model.predict(texts).argmax(1) == targets).mean() >= 0.9
    found = attribute(model.model, model.tokenizer, texts[:8], target=targets[:8], steps=6, rule="gauss")
    read = JOINS[task]
    ranks = [planted.rank_of_link(a.layer_scores()[read], a.words, planted.find_words(task, a.words)) for a in found]
    assert np.mean(np.array(ranks) == 1) >= 0.75, ranks


@pytest.mark.parametrize("task", TRAINED)
def test_cutting_the_link_takes_the_planted_answer_away_more_than_cutting_others(task):
    model = models.load(ADAPTERS / f"planted-{task}")
    frame = planted.load(task, "dev")
    turned = frame[(frame["phenomenon"] == "planted") & (frame["label"] != frame["honest"])][:12]
    kept = {"link": [], "others": []}
    for text, label in zip(data.texts(turned), turned["label"], strict=True):
        encoded = encode(model.model, model.tokenizer, text)
        link = planted.find_words(task, encoded.words[0])
        others = np.argwhere(planted.other_links(encoded.words[0], link))
        drawn = others[np.random.default_rng(0).permutation(len(others))[:2]]
        masks = {"link": planted.link_mask(encoded.words[0], link)}
        masks["others"] = np.zeros_like(masks["link"])
        masks["others"][tuple(drawn.T)] = True
        for name, mask in masks.items():
            edges = np.stack([~mask] * model.model.config.num_hidden_layers)
            with torch.no_grad(), touch(model.model, factors=keep_edges(edges)):
                logits = model.model(**encoded.tensors).logits
            kept[name].append(float(logits.softmax(-1)[0, model.labels.index(label)]))
    assert np.mean(kept["others"]) - np.mean(kept["link"]) >= 0.25
