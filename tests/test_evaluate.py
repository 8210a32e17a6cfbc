"""Measuring a classifier: by label names, with intervals, and an alarm where the names do not fit the answers."""

import io
import itertools
import json
import math
import warnings
from contextlib import redirect_stderr
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from tiny import save_tiny

from helpers import data, models, registry
from helpers._labels import check_order
from helpers.evaluate import (
    PUBLISHED,
    Evaluation,
    LabelOrderError,
    check_labels,
    evaluate,
    main,
    markdown,
    table,
    wilson,
)

NLI = ("entailment", "neutral", "contradiction")
SENTIMENT = ("negative", "positive")
GOOD = [[80, 12, 8], [10, 75, 15], [5, 5, 90]]  # counts [gold, meant]


class Stub:
    """A classifier that gives each text the class that its last word names, with probability 0.8.

    ``meant`` are the classes in the true order of the logits, ``labels`` what it calls them.
    """

    name = "stub"

    def __init__(self, meant, labels=None):
        self.meant, self.labels, self.asked = tuple(meant), tuple(labels or meant), []

    def predict(self, texts, *, batch_size=32):
        self.asked.append((len(texts), batch_size))
        found = np.full((len(texts), len(self.meant)), 0.2 / (len(self.meant) - 1), dtype=np.float32)
        words = [(text if isinstance(text, str) else text[1]).split()[-1] for text in texts]
        found[np.arange(len(texts)), [self.meant.index(word) for word in words]] = 0.8
        return found


def frame(counts, names=SENTIMENT, **columns):
    """Texts for a Stub: ``counts[gold][meant]`` of each kind."""
    pairs = [(g, m) for g, m in itertools.product(range(len(names)), repeat=2) for _ in range(counts[g][m])]
    made = {
        "first": [f"text {n} {names[m]}" for n, (_, m) in enumerate(pairs)],
        "second": "",
        "label": [names[g] for g, _ in pairs],
        "label_id": [g for g, _ in pairs],
    }
    return pd.DataFrame(made | columns)


def quiet(*given, **options):
    """Evaluate, with any warning an error."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return evaluate(*given, **options)


# ---- what is measured ------------------------------------------------------------------------------------------------


def test_measures_of_a_known_confusion():
    found = quiet(Stub(SENTIMENT), frame([[30, 10], [5, 55]]))
    assert (found.name, found.examples, found.right, found.accuracy) == ("stub", 100, 85, 0.85)
    assert found.interval == wilson(85, 100)
    assert found.confusion.to_dict("index") == {
        "negative": {"negative": 30, "positive": 10}, "positive": {"negative": 5, "positive": 55}
    }  # fmt: skip
    assert (found.confusion.index.name, found.confusion.columns.name) == ("gold", "predicted")
    assert found.cross_entropy == pytest.approx(-0.85 * math.log(0.8) - 0.15 * math.log(0.2), rel=1e-6)
    assert found.calibration_error == pytest.approx(0.05, abs=1e-6)  # 0.85 right at confidence 0.8
    assert found.labels.loc["negative", ["examples", "right", "accuracy"]].tolist() == [40, 30, 0.75]
    assert tuple(found.labels.loc["positive", ["low", "high"]]) == wilson(55, 60)
    assert len(found.phenomena) == 0


def test_wilson_against_values_worked_out_by_hand():
    z = 1.959964
    p, n = 0.9, 10
    middle, half = (
        (p + z**2 / (2 * n)) / (1 + z**2 / n),
        z * math.sqrt(p * 0.1 / n + z**2 / (4 * n**2)) / (1 + z**2 / n),
    )
    assert wilson(9, 10) == pytest.approx((middle - half, middle + half), abs=1e-6)
    assert wilson(9, 10) == pytest.approx((0.596, 0.982), abs=5e-4)
    assert wilson(0, 5) == pytest.approx((0.0, z**2 / (5 + z**2)), abs=1e-6)
    assert wilson(5, 5)[1] == pytest.approx(1.0)


def test_rows_keep_the_index_and_say_what_was_answered():
    given = frame([[2, 1], [0, 1]])
    given.index = [7, 3, 11, 5]
    rows = quiet(Stub(SENTIMENT), given).rows
    assert rows.index.tolist() == [7, 3, 11, 5]
    assert rows["predicted"].tolist() == ["negative", "negative", "positive", "positive"]
    assert rows["right"].tolist() == [True, True, False, True]
    assert rows["probability"].tolist() == pytest.approx([0.8] * 4)


def test_phenomena_hardest_first_and_rows_without_one_left_out():
    names = ["irony"] * 3 + ["plain"] * 4 + ["", "plain"]
    found = quiet(Stub(SENTIMENT), frame([[1, 2], [0, 6]], phenomenon=names))
    assert found.phenomena.index.tolist() == ["irony", "plain"]
    assert found.phenomena["examples"].tolist() == [3, 5]
    assert found.phenomena["right"].tolist() == [1, 5]
    assert (found.phenomena.loc["irony", "low"], found.phenomena.loc["irony", "high"]) == wilson(1, 3)


def test_probabilities_of_zero_give_a_finite_cross_entropy():
    sure = Stub(SENTIMENT)
    sure.predict = lambda texts, **_: np.array([[1.0, 0.0]] * len(texts), dtype=np.float32)
    assert math.isfinite(quiet(sure, frame([[3, 0], [1, 0]])).cross_entropy)


def test_pairs_are_given_as_pairs():
    given = frame(GOOD, NLI)
    given = given.assign(second=given["first"], first="premise")
    assert quiet(Stub(NLI), given).right == 245


def test_batch_size_and_progress_change_no_figure():
    stub, given = Stub(SENTIMENT), frame([[30, 10], [5, 55]])
    with redirect_stderr(io.StringIO()) as shown:
        bar = evaluate(stub, given, batch_size=2, progress=True)
    assert stub.asked == [(32, 2), (32, 2), (32, 2), (4, 2)] and "100" in shown.getvalue()
    pd.testing.assert_frame_equal(bar.rows, quiet(stub, given).rows)
    assert stub.asked[-1] == (100, 32)


def test_what_is_shown_is_small_and_escaped():
    found = quiet(Stub(("<b>no</b>", "yes")), frame([[3, 0], [0, 3]], ("<b>no</b>", "yes"), phenomenon="<script>"))
    assert repr(found).startswith("Evaluation(stub: 6 of 6 right, 100.0%, 95 % interval 61.0% to 100.0%;")
    assert "predicted" in str(found) and "<script>" in str(found)
    page = found._repr_html_()
    assert "<script>" not in page and "<b>" not in page and "&lt;script&gt;" in page


def test_a_real_model_and_the_bundled_sentences():
    classifier = models.load("minilm-sst2", device="cpu")
    given = data.load("sst2", limit=60)
    found = evaluate(classifier, given)
    right = classifier.predict(data.texts(given)).argmax(1) == given["label_id"]
    assert found.right == right.sum() and found.name == "minilm-sst2"
    assert set(found.phenomena.index) == set(given["phenomenon"])


# ---- names -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", list(itertools.permutations(NLI)), ids="-".join)
def test_a_model_may_order_its_classes_as_it_likes(order):
    found = quiet(Stub(order), frame(GOOD, NLI))
    assert found.confusion.to_numpy().tolist() == GOOD  # shown in the table's order
    assert found.confusion.columns.tolist() == list(NLI)


def test_case_hyphen_and_space_do_not_matter():
    names = ("entailment", "not_entailment")
    found = quiet(Stub(names, (" ENTAILMENT", "Not-Entailment")), frame([[9, 1], [2, 8]], names))
    assert found.right == 17 and found.confusion.columns.tolist() == list(names)


def test_order_is_the_tasks_also_where_a_rare_label_comes_first():
    given = frame(GOOD, NLI).iloc[::-1]
    assert quiet(Stub(NLI), given).confusion.columns.tolist() == list(NLI)


def test_a_class_that_the_table_lacks_counts_as_wrong():
    found = quiet(Stub((*SENTIMENT, "neutral")), frame([[8, 0], [0, 8]]).assign(label="positive", label_id=1))
    assert found.confusion.columns.tolist() == ["positive", "negative", "neutral"]
    assert (found.right, found.labels.index.tolist()) == (8, ["positive"])


UNNAMED = Stub(SENTIMENT, ("LABEL_0", "LABEL_1"))


@pytest.mark.parametrize(
    "labels",
    [SENTIMENT, ["NEGATIVE", "Positive"], {"LABEL_0": "negative", "label-1": "positive"}],
    ids=["in order", "another case", "one by one"],
)
def test_names_can_be_stated(labels):
    assert quiet(UNNAMED, frame([[9, 1], [2, 8]]), labels=labels).right == 17


def test_a_stated_mapping_may_name_only_what_differs_and_merge_classes():
    names = ("entailment", "not_entailment")
    merge = {"neutral": "not_entailment", "contradiction": "not_entailment"}
    model = Stub(NLI)
    model.predict = lambda texts, **_: np.array([[0.4, 0.3, 0.3], [0.6, 0.2, 0.2]], dtype=np.float32)
    given = pd.DataFrame({"first": ["a", "b"], "second": "", "label": names[::-1], "label_id": [1, 0]})
    found = quiet(model, given, labels=merge)
    assert found.confusion.columns.tolist() == list(names)
    assert found.rows["predicted"].tolist() == ["not_entailment", "entailment"]  # 0.3 + 0.3 beats 0.4
    assert found.rows["probability"].tolist() == pytest.approx([0.6, 0.6])


def refused(model, given, **options):
    with pytest.raises(ValueError) as error:
        evaluate(model, given, **options)
    return str(error.value)


def test_unnamed_classes_are_refused_with_both_lists_and_a_way_out():
    message = refused(UNNAMED, frame([[9, 1], [2, 8]]))
    assert "the labels ['negative', 'positive'], the model ['LABEL_0', 'LABEL_1']" in message
    assert "labels=['negative', 'positive']" in message
    assert "labels={'LABEL_0': 'negative', 'LABEL_1': 'positive'}" in message


def test_three_classes_for_two_labels_are_refused_with_the_merge_spelt_out():
    message = refused(Stub(NLI), frame([[9, 1], [2, 8]], ("entailment", "not_entailment")))
    assert "labels={'neutral': 'not_entailment', 'contradiction': 'not_entailment'}" in message
    assert "labels=['entailment', 'not_entailment', 'not_entailment']" in message


def test_what_an_error_suggests_is_accepted():
    given = frame([[9, 1], [2, 8]])
    assert quiet(UNNAMED, given, labels={"LABEL_0": "negative", "LABEL_1": "positive"}).right == 17


@pytest.mark.parametrize(
    ("model", "options", "said"),
    [
        (Stub(NLI), {}, "the model ['entailment', 'neutral', 'contradiction']: say which is which"),
        (Stub(("positive",)), {}, "which are fewer: rename labels in the table"),
        (Stub(SENTIMENT, ("positive", "Positive")), {}, "the model ['positive', 'Positive']: say which is which"),
        (UNNAMED, {"labels": ["negative"]}, "labels is ['negative']: give 2 names"),
        (UNNAMED, {"labels": "negative"}, "labels is 'negative': give 2 names"),
        (UNNAMED, {"labels": {"LABEL_2": "negative"}}, "labels names ['LABEL_2'], which the model does not have"),
        (UNNAMED, {"labels": ["negative", "postive"]}, "the model ['negative', 'postive']: say which is which"),
    ],
)
def test_names_that_do_not_fit(model, options, said):
    assert said in refused(model, frame([[9, 1], [2, 8]]), **options)


def test_outputs_have_to_be_one_a_label():
    model = Stub(SENTIMENT)
    model.predict = lambda texts, **_: np.zeros((len(texts), 1))
    message = refused(model, frame([[9, 0], [2, 0]]))
    assert "2 labels, ['negative', 'positive'], and its outputs have shape [11, 1]" in message


@pytest.mark.parametrize("names", [("Yes", "yes"), ("a-b", "a_b"), ("no way", "no_way")])
@pytest.mark.parametrize("labels", ["own", "list", "mapping"])
def test_classes_that_differ_in_spelling_alone_are_kept_apart(names, labels):
    stated = {"own": None, "list": [*names, "other"], "mapping": dict(zip(names, names, strict=True))}[labels]
    model = Stub(("one", "two", "three"), (*names, "other"))
    given = frame([[8, 1, 0], [0, 7, 1], [0, 0, 9]], ("one", "two", "three"))
    given["label"] = given["label"].map(dict(zip(model.meant, model.labels, strict=True)))
    found = quiet(model, given, labels=stated)
    assert found.confusion.to_numpy().tolist() == [[8, 1, 0], [0, 7, 1], [0, 0, 9]]


def test_a_spelling_that_two_classes_of_the_model_could_mean_is_refused():
    assert "say which is which" in refused(Stub(NLI, ("POSITIVE", "Positive", "negative")), frame([[9, 1], [2, 8]]))


SOFT = [[0.2, 0.8]]


@pytest.mark.parametrize(
    ("output", "said"),
    [
        (lambda n: np.array(SOFT * (n - 1)), "asked about 11 texts, and predict returned 10 rows"),
        (lambda n: np.array([[np.nan, np.nan], *SOFT * (n - 1)]), "for 1 of 11 texts are not finite"),
        (lambda n: np.array([[2.0, -1.0], *SOFT * (n - 1)]), "for 1 of 11 texts are no probabilities that add up to 1"),
        (lambda n: np.array([[0.7, 0.9]] * n), "for 11 of 11 texts are no probabilities .* several labels at once"),
    ],
    ids=["rows", "nan", "logits", "several at once"],
)
def test_what_is_no_probability_is_refused(output, said):
    model = Stub(SENTIMENT)
    model.predict = lambda texts, **_: output(len(texts))
    with pytest.raises(ValueError, match=said):
        evaluate(model, frame([[9, 0], [2, 0]]), check=False)


@pytest.mark.parametrize(("counts", "other_cause"), [([[2, 0], [48, 0]], True), ([[5, 20], [20, 5]], False)])
def test_a_model_with_one_answer_for_all_may_just_be_poor(counts, other_cause):
    with pytest.raises(LabelOrderError) as error:
        evaluate(Stub(SENTIMENT), frame(counts))
    assert ("it says 'negative' for 50 of 50 texts: it may as well be that it can't" in str(error.value)) == other_cause


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda f: f.iloc[:0], "The table has no rows: give one as helpers.data.load or read returns"),
        (lambda f: f.drop(columns="label"), "The table has no label:"),
        (lambda f: f.drop(columns=["second", "label_id"]), "The table has no label_id, second:"),
        (lambda f: f.assign(label="", label_id=-1), "20 of 20 rows have no label"),
        (lambda f: f.assign(label_id=[-1] * 3 + [0] * 17), "3 of 20 rows have no label"),
        (lambda f: f.assign(label=[None] + ["negative"] * 19), "1 of 20 rows have no label"),
        (lambda f: f.assign(label=["other"] + f["label"].tolist()[1:]), "the labels ['other', 'negative', 'positive']"),
        (lambda f: pd.concat([f, f]), "index repeats itself"),
        (lambda f: f.assign(second=["x"] + [""] * 19), "19 of 20 rows have no second text"),
    ],
    ids=["empty", "no label", "no columns", "unlabelled", "some unlabelled", "none", "unknown", "index", "mixed"],
)  # fmt: skip
def test_tables_that_cannot_be_measured(change, said):
    model, given = Stub(SENTIMENT), change(frame([[9, 1], [2, 8]]))
    assert said in refused(model, given)
    with pytest.raises(ValueError):
        check_labels(model, given)
    assert not model.asked


# ---- the order of the labels -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", list(itertools.permutations(NLI)), ids="-".join)
def test_each_wrong_order_of_three_is_found_and_the_right_one_shown(order):
    given = frame(GOOD, NLI)
    mistaken = Stub(order, NLI)
    if order == NLI:
        quiet(mistaken, given)
        return
    with pytest.raises(LabelOrderError) as error:
        evaluate(mistaken, given)
    assert error.value.labels == order
    assert error.value.possible == pytest.approx(245 / 300) and error.value.examples == 300
    assert f"labels={list(order)}" in str(error.value) and "81.7%" in str(error.value)
    assert f"of 300 right ({error.value.accuracy:.1%})" in str(error.value)
    assert quiet(mistaken, given, labels=error.value.labels).right == 245


def test_two_classes_the_wrong_way_round_and_check_false():
    mistaken, given = Stub(SENTIMENT, SENTIMENT[::-1]), frame([[16, 4], [2, 18]])
    with pytest.raises(LabelOrderError, match=r"6 of 40 right \(15.0%\), under 1/2 by more than chance") as error:
        evaluate(mistaken, given)
    assert error.value.labels == SENTIMENT
    found = quiet(mistaken, given, check=False)
    assert (found.right, found.accuracy) == (6, 0.15)


def test_the_order_shown_is_that_of_the_logits_also_for_merged_classes():
    names = ("entailment", "not_entailment")
    swapped = ["not_entailment", "entailment", "entailment"]
    with pytest.raises(LabelOrderError) as error:
        given = frame([[18, 2], [3, 17]], names)
        evaluate(Stub(("entailment", "not_entailment", "-"), NLI), given, labels=swapped)
    assert error.value.labels == ("entailment", "not_entailment", "not_entailment")


def test_accuracy_over_one_in_classes_with_two_of_three_swapped_is_noticed():
    with pytest.raises(LabelOrderError) as error:
        evaluate(
            Stub(("neutral", "entailment", "contradiction"), NLI), frame([[40, 10, 10], [10, 40, 10], [0, 0, 80]], NLI)
        )
    assert error.value.accuracy == 0.5 and "under 1/3" not in str(error.value)


@pytest.mark.parametrize(
    ("counts", "outcome"),
    [
        ([[2, 2], [3, 1]], "warns"),  # 3 of 8
        ([[0, 4], [4, 0]], "raises"),  # 0 of 8
        ([[0, 3], [2, 0]], "warns"),  # 0 of 5
        ([[1, 1], [1, 1]], "passes"),  # exactly 1/2
        ([[45, 55], [55, 45]], "warns"),  # 90 of 200 happens once in eleven times by chance
        ([[40, 60], [60, 40]], "raises"),  # 80 of 200 does not
        ([[60, 40], [40, 60]], "passes"),
    ],
)
def test_small_samples_are_not_blamed(counts, outcome):
    model, given = Stub(SENTIMENT), frame(counts)
    if outcome == "raises":
        with pytest.raises(LabelOrderError):
            evaluate(model, given)
    elif outcome == "warns":
        with pytest.warns(UserWarning, match=r"right is under 1/2, which may be chance with so few .*'negative', 'pos"):
            evaluate(model, given)
        quiet(model, given, check=False)
    else:
        quiet(model, given)


@pytest.mark.parametrize("accuracy", [0.5, 0.6, 0.8])
def test_a_weak_model_with_its_names_in_order_is_rarely_accused(accuracy):
    """Three in a hundred at most, on samples of 30 of three classes."""
    random = np.random.default_rng(0)
    accused = 0
    for _ in range(100):
        counts = [
            random.multinomial(10, np.roll([accuracy, (1 - accuracy) / 2, (1 - accuracy) / 2], g)) for g in range(3)
        ]
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                check_order(np.array(counts), NLI, np.arange(3))
        except LabelOrderError:
            accused += 1
    assert accused <= 3


def test_check_labels_asks_for_a_sample_only():
    model, given = Stub(("neutral", "contradiction", "entailment"), NLI), frame(GOOD, NLI)
    with pytest.raises(LabelOrderError) as error:
        check_labels(model, given)
    assert error.value.labels == model.meant and model.asked == [(200, 32)]
    found = check_labels(model, given, labels=model.meant, limit=30, seed=1)
    assert isinstance(found, Evaluation) and found.examples == 30


def test_check_labels_looks_at_the_names_of_all_rows():
    given = pd.concat([frame([[50, 0], [0, 50]]), frame([[1, 0], [0, 0]]).assign(label="other", label_id=2)])
    with pytest.raises(ValueError, match="'other'"):
        check_labels(Stub(SENTIMENT), given.reset_index(drop=True), limit=2)


# ---- the table -------------------------------------------------------------------------------------------------------


@pytest.fixture
def glue(tmp_path):
    """A folder in GLUE's layout with few rows; the tiny tokenizer knows some of the words."""
    for task, lines in {
        "SST-2/dev": ["sentence\tlabel", *["a good film\t1", "a bad film\t0"] * 3],
        "MNLI/dev_matched": ["sentence1\tsentence2\tgold_label", *[f"a film\tit is good\t{name}" for name in NLI]],
        "MNLI/dev_mismatched": [
            "sentence1\tsentence2\tgold_label",
            *[f"a film\tit is good\t{name}" for name in NLI] * 2,
        ],
    }.items():
        path = tmp_path / "glue" / f"{task}.tsv"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return tmp_path / "glue"


@pytest.mark.filterwarnings("ignore:.*which may be chance")
def test_table_of_a_folder_model_with_both_mnli_sets(glue, tmp_path, monkeypatch):
    monkeypatch.setattr(data, "BUNDLED", tmp_path / "nothing")
    folder = str(save_tiny(tmp_path / "model", labels=("CONTRADICTION", "entailment", "neutral")))
    rows = table([folder], glue=str(glue), progress=False)
    assert [(row["task"], row["published"]) for row in rows] == [
        ("mnli", PUBLISHED["mnli"]), ("mnli mismatched", PUBLISHED["mnli mismatched"])
    ]  # fmt: skip
    assert [row["glue"]["examples"] for row in rows] == [3, 6]
    assert rows[0]["glue"]["accuracy"] == pytest.approx(1 / 3)  # one text, one answer, three labels
    assert list(rows[0]["glue"]["confusion"]) == list(NLI)
    assert rows[0]["bundled"] is None and "bundled dev: " in rows[0]["notes"][0] and not rows[1]["notes"]
    shown = markdown(rows).splitlines()
    assert shown[0] == "| task | model | GLUE dev | bundled dev | BERT-base published |"
    assert shown[2] == f"| mnli | {folder} | 33.3% (6.1% to 79.2%; n 3) | – | 83.9% |"
    assert "- mnli: bundled dev: " in "\n".join(shown)


def test_missing_adapters_and_foreign_models_are_rows_not_crashes(tmp_path, monkeypatch):
    monkeypatch.setattr(registry, "ADAPTERS", tmp_path)
    folder = str(save_tiny(tmp_path / "model", labels=("up", "down")))
    rows = table(["minilm-rte", folder, "no such model"], progress=False)
    assert [(row["task"], row["glue"], row["bundled"]) for row in rows] == [
        ("rte", None, None), ("?", None, None), ("?", None, None)
    ]  # fmt: skip
    shown = markdown(rows)
    assert "| rte | minilm-rte | – | – | 65.7% |" in shown
    for part in ("- rte: minilm-rte has no adapter yet", "['up', 'down'], are those of no task here: sst2 ['negative',",
                 "- ?: There is no model 'no such model'"):  # fmt: skip
        assert part in shown


def test_a_model_that_cannot_be_loaded_is_a_note_whatever_the_reason(monkeypatch):
    def load(name):
        raise {"one": KeyError("a key"), "two": RuntimeError("a size")}[name]

    monkeypatch.setattr(models, "load", load)
    shown = markdown(table(["one", "two"], progress=False))
    assert "- ?: 'a key'" in shown and "- ?: a size" in shown


def test_a_wrong_order_is_a_note(glue, monkeypatch):
    stub = SimpleNamespace(name="mine", labels=SENTIMENT)
    stub.predict = lambda texts, **_: np.array([[0.9, 0.1] if "good" in t else [0.1, 0.9] for t in texts])
    (glue / "SST-2" / "dev.tsv").write_text("sentence\tlabel\n" + "a good film\t1\na bad film\t0\n" * 10)
    monkeypatch.setattr(models, "load", lambda name: stub)
    (row,) = table(["mine"], glue=str(glue), limit=20, progress=False)
    assert row["glue"] is None and "0 of 20 right" in row["notes"][0]
    assert row["bundled"]["examples"] == 20


def test_command_prints_and_keeps_the_table(glue, tmp_path, capsys):
    kept = tmp_path / "made" / "table.json"
    rows = main(["--models", "minilm-sst2", "--glue", str(glue), "--limit", "12", "--json", str(kept)])
    said = capsys.readouterr()
    assert said.out == markdown(rows) + "\n" and "minilm-sst2" in said.err
    assert "| sst2 | minilm-sst2 | 100.0% (61.0% to 100.0%; n 6) | " in said.out
    assert json.loads(kept.read_text()) == json.loads(json.dumps(rows))


def test_command_measures_what_works_offline_by_default(monkeypatch):
    asked = []
    monkeypatch.setattr("helpers.evaluate.table", lambda names, **options: asked.append((names, options)) or [])
    main([])
    assert asked == [([f"minilm-{task}" for task in data.TASKS], {"glue": None, "limit": None})]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--limit", "0"], "--limit is 0: give a whole number of at least 1"),
        (["--glue", "no such folder"], "--glue is 'no such folder', and there is no such folder"),
        (["--json", "."], "--json is '.', which is a folder: give a file"),
    ],
)
def test_command_refuses_before_any_work(arguments, said, monkeypatch):
    monkeypatch.setattr(models, "load", lambda name: pytest.fail("a model was loaded"))
    with pytest.raises(ValueError) as error:
        main(arguments)
    assert said in str(error.value)
