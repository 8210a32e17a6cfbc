"""A stranger's model and table: what is found out about them, in words that help; and what is done with them."""

import json
import warnings

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import torch
from browser import dump, needs_browser
from sample import sample
from tiny import save_tiny
from transformers import (
    BertForTokenClassification,
    DebertaV2Config,
    DebertaV2ForSequenceClassification,
    DistilBertConfig,
    DistilBertForSequenceClassification,
)

from helpers import cli, own_model, plots, report
from helpers.checkup import FINE, NOTE, PROBLEM, examine, read_texts
from helpers.models import load

WORDS = ("the", "film", "was", "good", "bad", "slow", "dull", "wonderful", "not", "very", "a", "story")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_tiny(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def frame(folder):
    """Forty texts with the labels that the model itself gives, but for one in five."""
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(WORDS, rng.integers(3, 9))) for _ in range(240)]
    said = load(folder).predict(texts).argmax(1)
    rows = [i for label in (0, 1) for i in np.flatnonzero(said == label)[:20]]
    assert len(rows) == 40
    labels = [1 - said[i] if n % 5 == 0 else said[i] for n, i in enumerate(rows)]
    made = read_texts(sentences=[texts[i] for i in rows])
    return made.assign(label=np.take(["bad", "good"], labels), label_id=labels)


@pytest.fixture(scope="module")
def found(folder, frame):
    return examine(str(folder), frame)


def said(found, about, kind):
    return " ".join(f.said for f in found.findings if (f.about, f.kind) == (about, kind))


# ---- the texts -------------------------------------------------------------------------------------------------------


def test_texts_come_from_a_table_or_as_typed(tmp_path):
    path = tmp_path / "mine.tsv"
    path.write_text('what\twhich\n"a $5 film\tbad\n<b>good</b>\tgood\n', encoding="utf-8")
    table = read_texts(str(path), first="what", label="which")
    typed = read_texts(sentences=['"a $5 film', "<b>good</b>"])
    assert table["first"].tolist() == typed["first"].tolist() == ['"a $5 film', "<b>good</b>"]
    assert table["label"].tolist() == ["bad", "good"] and set(typed["label"]) == {""} and set(typed["label_id"]) == {-1}
    assert set(typed.columns) == set(table.columns)
    pairs = read_texts(sentences=[["a", "b"], ["c", "d"]])
    assert pairs["second"].tolist() == ["b", "d"]


def test_neither_and_both_and_a_missing_column_are_refused(tmp_path):
    (tmp_path / "mine.tsv").write_text("what\na film\n", encoding="utf-8")
    for options in ({}, {"path": "mine.tsv", "sentences": ["a film"]}):
        with pytest.raises(ValueError, match="either a table or sentences"):
            read_texts(**options)
    with pytest.raises(ValueError, match="no column for 'text'. Columns found, split at tabs: 'what'"):
        read_texts(str(tmp_path / "mine.tsv"), first="text")
    (tmp_path / "mine.csv").write_text("text,label\na film,good\n", encoding="utf-8")
    with pytest.raises(ValueError, match="looks comma-separated. To save it tab-separated"):
        read_texts(str(tmp_path / "mine.csv"), first="text", label="label")
    with pytest.raises(FileNotFoundError, match="no file no/where.tsv. Looked at .*where.tsv"):
        read_texts("no/where.tsv")
    with pytest.raises(ValueError, match="Text 1 is empty or blank"):
        read_texts(sentences=["a film", " "])


# ---- what is found out -----------------------------------------------------------------------------------------------


def test_what_fits_is_said_and_measured(found, frame):
    assert found.labelled and found.measured.right == 32 and found.without_labels() == ""
    assert "32 of 40 right, 80.0%" in said(found, "accuracy", FINE)
    assert said(found, "attention", FINE) == "2 layers of 4 heads can be read and changed."
    assert found.probabilities.shape == (40, 2) and len(found.texts) == 40
    assert not [f for f in found.findings if f.kind == PROBLEM]
    assert list(found.table().columns) == ["check", "verdict", "what was found"] and len(found.table()) > 4


def test_numbers_are_taken_for_the_models_and_named_by_it(folder, frame, found):
    numbered = frame.assign(label=frame["label_id"].astype(str))
    again = examine(str(folder), numbered)
    assert again.labelled and again.measured.right == 32
    assert "0 is bad, 1 is good" in said(again, "labels", NOTE)
    assert set(again.frame["label"]) == {"bad", "good"}


@pytest.mark.parametrize("labels", ["bad, good", "LABEL_0=bad, LABEL_1=good", ["bad", "good"]])
def test_classes_without_a_name_get_the_tables(tmp_path, frame, labels):
    nameless = str(save_tiny(tmp_path, labels=("LABEL_0", "LABEL_1")))
    lost = examine(nameless, frame)
    assert not lost.labelled and lost.measured is None
    assert "labels = 'bad, good' best, with 32 of 40 right" in said(lost, "labels", PROBLEM)
    assert lost.require().predict("a good film").shape == (1, 2)  # what needs no labels works
    named = examine(nameless, frame, labels=labels)
    assert named.labelled and named.measured.right == 32
    assert named.require().labels == ("bad", "good") and named.require().model.config.id2label == {0: "bad", 1: "good"}
    counted = examine(nameless, frame.assign(label=frame["label_id"].astype(str)), labels=labels)
    assert counted.labelled and counted.require().labels == ("bad", "good")


def test_a_wrong_order_is_a_problem_that_names_the_right_one(tmp_path, frame):
    turned = examine(str(save_tiny(tmp_path, labels=("good", "bad"))), frame)
    assert not turned.labelled and turned.measured is None
    assert "8 of 40 right (20.0%)" in said(turned, "labels", PROBLEM)
    assert "In the notebook: labels = 'bad, good'." in turned.without_labels()
    righted = examine(str(tmp_path), frame, labels="bad, good")
    assert righted.labelled and righted.measured.right == 32


def test_merged_classes_are_measured_and_no_more(tmp_path, frame):
    three = str(save_tiny(tmp_path, labels=("bad", "good", "grand")))
    merged = examine(three, frame.assign(label="good", label_id=0), labels="good, good, grand")
    assert merged.measured is not None and not merged.labelled and "Classes were merged" in merged.without_labels()


def test_texts_without_labels_still_work(folder, frame):
    bare = examine(str(folder), read_texts(sentences=frame["first"].tolist()[:8]))
    assert not bare.labelled and bare.measured is None and len(bare.require().labels) == 2
    assert "no labels" in bare.without_labels() and own_model.why_no_triggers(bare) == bare.without_labels()
    assert len(own_model.pick(bare, 3)) == 3
    assert own_model.study_heads(bare, rows=8).measure == "answers kept"
    assert "at least 4" in own_model.why_no_curve(examine(str(folder), read_texts(sentences=["a film"])))


def test_a_score_and_several_answers_at_once_are_no_classes(tmp_path, frame):
    one = examine(str(save_tiny(tmp_path / "one", labels=("score",))), frame)
    several = examine(str(save_tiny(tmp_path / "many", problem_type="multi_label_classification")), frame)
    for found, word in ((one, "regression"), (several, "yes or no of its own")):
        assert word in said(found, "outputs", NOTE) and word in found.without_labels()
        assert found.classifier is not None and found.measured is None
        assert "does not choose one class" in own_model.why_no_curve(found)
        with pytest.raises(ValueError, match="does not choose one class"):
            own_model.study_heads(found)
    assert one.probabilities.shape == (40, 1)


def test_half_precision_and_long_texts_are_told(tmp_path, frame):
    classifier = load(save_tiny(tmp_path))
    classifier.model.to(torch.bfloat16).save_pretrained(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = examine(str(tmp_path), read_texts(sentences=["a film", "good " * 60]))
    assert "holds bfloat16; here it runs in float32" in said(found, "number format", NOTE)
    assert found.require().model.dtype == torch.float32
    assert "1 of 2 texts are longer than 40 tokens" in said(found, "texts", NOTE)


def test_a_model_that_says_one_thing_only(tmp_path, frame):
    classifier = load(save_tiny(tmp_path))
    with torch.no_grad():
        classifier.model.classifier.bias += torch.tensor([0.0, 50.0])
    classifier.model.save_pretrained(tmp_path)
    found = examine(str(tmp_path), frame)
    assert "It says 'good' for 40 of 40 texts" in said(found, "answers", NOTE)
    assert "always saying" in said(found, "accuracy", NOTE)


def save(model, folder):
    model.save_pretrained(folder)
    load(save_tiny(folder / "words")).tokenizer.save_pretrained(folder)
    return str(folder)


def test_a_family_whose_attention_is_out_of_reach(tmp_path, frame):
    sizes = dict(vocab_size=60, hidden_size=24, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32)
    found = examine(save(DebertaV2ForSequenceClassification(DebertaV2Config(**sizes)), tmp_path), frame)
    assert found.classifier is None and "DeBERTa is such a family" in said(found, "attention", PROBLEM)
    with pytest.raises(ValueError, match="ignores the attention switch"):
        found.require()


def test_another_family_works(tmp_path, frame):
    config = DistilBertConfig(vocab_size=60, dim=24, n_layers=1, n_heads=2, hidden_dim=32, max_position_embeddings=40)
    found = examine(save(DistilBertForSequenceClassification(config), tmp_path), frame)
    assert "1 layers of 2 heads" in said(found, "attention", FINE) and found.classifier is not None


@pytest.mark.parametrize("make, hint", [
    (lambda folder: "no-such-model", "There is no model 'no-such-model'"),
    (lambda folder: str(save_tiny(folder, cls=BertForTokenClassification)), "is no trained classifier"),
    (lambda folder: str(folder), "has no *.safetensors"),
])  # fmt: skip
def test_what_is_no_classifier_is_a_finding(tmp_path, frame, make, hint):
    found = examine(make(tmp_path), frame)
    assert found.classifier is None and hint in said(found, "model", PROBLEM) and found.measured is None
    with pytest.raises(ValueError, match="."):
        found.require()


# ---- what is done with them ------------------------------------------------------------------------------------------


def test_half_of_what_is_picked_is_wrong_and_the_surest_first(found):
    rows = own_model.pick(found, 6)
    assert rows["right"].tolist() == [False] * 3 + [True] * 3
    sure = found.probabilities[rows.index].max(axis=1)
    wrong = found.probabilities[~found.measured.rows["right"].to_numpy()].max(axis=1)
    assert np.allclose(sure[:3], np.sort(wrong)[::-1][:3])
    assert len(own_model.pick(found, 20)) == 20 and (~own_model.pick(found, 36)["right"]).sum() == 8
    assert (
        own_model.pick(found, 6).equals(rows)
        and rows["first"].tolist() == found.frame.loc[rows.index, "first"].tolist()
    )


def test_heads_are_ordered_on_one_half_and_measured_on_the_other(found):
    study = own_model.study_heads(found, rows=20)
    assert (study.chosen_on, study.reported_on, study.measure) == (10, 10, "accuracy")
    assert {name: heads.shape for name, heads in study.importances.items()} == dict.fromkeys(study.curves, (2, 4))
    assert list(study.curves) == ["attribution", "attention", "random"]
    starts = {curve.accuracy[0] for curve in study.curves.values()}
    assert len(starts) == 1 and study.curves["random"].right.shape == (len(own_model.SHARES), 10)


def test_without_labels_every_answer_is_kept_at_the_start(folder, frame):
    bare = examine(str(folder), read_texts(sentences=frame["first"].tolist()))
    assert all(curve.accuracy[0] == 1 for curve in own_model.study_heads(bare, rows=12).curves.values())


def test_triggers_are_found_on_one_half_and_reported_on_the_other(found):
    contest = own_model.search_triggers(found, searched=12, pool=3, top=1)
    assert set(contest.choosing).isdisjoint(contest.reporting) and len(contest.reporting) == 20
    assert set(contest.chosen) == {"attribution", "random words", "typical words"}
    summary = contest.summary()
    assert summary["drop"].between(-1, 1).all() and {"bad", "good", "all"} == set(summary["class"])
    half = set(found.frame["first"].iloc[contest.choosing])
    for picked in contest.chosen["attribution"].values():
        assert any(" ".join(t.tokens).split()[0] in text for t in picked for text in half)


def test_too_few_rows_of_a_class_are_a_reason(folder, frame):
    few = examine(str(folder), frame.groupby("label").head(3).reset_index(drop=True))
    if few.labelled:
        assert "fewer than 6 rows" in own_model.why_no_triggers(few)
        with pytest.raises(ValueError, match="fewer than 6 rows"):
            own_model.search_triggers(few)
    assert few.labelled


def test_the_report_tells_of_all_texts_and_the_table_holds_every_score(found, tmp_path):
    from helpers.attribution import attribute

    rows, classifier = own_model.pick(found, 2), found.require()
    many = attribute(classifier.model, classifier.tokenizer, rows["first"].tolist(), steps=2, rule="gauss")
    table = found.table().assign(nothing=np.nan, share=0.123456, whole=np.int64(3))
    part = report.Part("What <was> found", ["One & two.", "Three."], None, table)
    page = report.page(many, found.probabilities[rows.index], parts=[part], title="mine")
    assert "What &lt;was&gt; found" in page and "One &amp; two." in page and "0.123" in page and "0.1234" not in page
    about = report.content(many, found.probabilities[rows.index], parts=[part], about={"model": found.name})
    assert about["parts"][0]["table"][0] | {"nothing": None, "whole": 3} == about["parts"][0]["table"][0]
    json.dumps(about, allow_nan=False)
    links = report.links_table(many)
    links.to_feather(tmp_path / "scores.arrow")
    again = pd.read_feather(tmp_path / "scores.arrow")
    assert len(again) == sum(a.scores.size for a in many)
    for number, a in enumerate(many):
        own = again[again["text"] == number]
        assert np.isclose(own["score"].sum(), a.scores.sum(), atol=1e-4)
        first = own.iloc[0]
        assert first["score"] == a.scores.max() == a.scores[first.layer, first["head"], first.query, first["key"]]
        assert first["key_token"] == a.tokens[first["key"]]


@needs_browser
def test_a_page_with_parts_shows_them_with_the_network_cut(tmp_path):
    figure, axes = plt.subplots()
    axes.set_title("a picture")
    plt.close(figure)
    drawn = plots.head_maps(sample(), layer=0, head=0)
    parts = [report.Part("One", ["Said."], figure, pd.DataFrame({"<b>": [1.5]})), report.Part("Two", figure=drawn)]
    page = report.page([sample()], np.array([[0.02, 0.98]]), parts=parts)
    (tmp_path / "page.html").write_text(page, encoding="utf-8")
    done = dump(tmp_path / "page.html", tmp_path / "profile")
    assert [line for line in done.stderr.splitlines() if "CONSOLE" in line] == []  # a picture refused would be told
    body = done.stdout.split("</head>")[1]
    assert 'alt="One"' in body and "<th>&lt;b&gt;</th>" in body
    assert body.count('class="main-svg"') >= 2 * 4  # one of the parts; links, heads and tree of the text


def test_the_command_line_writes_the_table(folder, tmp_path):
    target = tmp_path / "scores.arrow"
    given = ["explain", "a good film", "--model", str(folder), "--steps", "2", "--arrow", str(target), "--quiet"]
    assert cli.main(given) == 0
    table = pd.read_feather(target)
    assert set(table["text"]) == {0} and len(table) == 2 * 4 * 5 * 5
    assert cli.main(given) == 2  # it is there already
