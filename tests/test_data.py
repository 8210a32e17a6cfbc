"""helpers.data: every layout, every kind of damage with its line number, samples, the hashes (the hub: test_hub.py)."""

import doctest
import hashlib
import os
import re
import subprocess
import sys
import warnings
from pathlib import Path

import pandas as pd
import pytest

from helpers import data

PROJECT = Path(__file__).resolve().parent.parent

# What every layout below says in its own way: task -> rows of (first, second, label).
ROWS = {
    "sst2": [('a " loud and empty film', "", "negative"), ("warm , funny and over too soon", "", "positive")],
    "mnli": [
        ("The kettle is on.", 'Someone says "tea', "neutral"),
        ("n/a", "NA", "entailment"),
        ("All shops were shut.", "One shop was open.", "contradiction"),
    ],
    "rte": [("Two boats left the harbour.", "Boats left.", "entailment"), ("It rained.", "null", "not_entailment")],
    "mrpc": [
        ('" We won , " she said .', "She said they won .", "equivalent"),
        ("It fell .", "It rose .", "not_equivalent"),
    ],
}
MRPC_HEADER = "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String"
SPLITS = {task: ["train", "dev"] + ["dev_mismatched"] * (task == "mnli") for task in ROWS}


def write(path: Path, *lines: str, end: str = "\n", encoding: str = "utf-8") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes("".join(line + end for line in lines).encode(encoding))
    return path


def official(root: Path) -> Path:
    """GLUE's official files: its folder names, headers, extra columns and spare blanks."""
    for split in ("train", "dev"):
        rows = [f"{first} \t{int(label == 'positive')}" for first, _, label in ROWS["sst2"]]
        write(root / "SST-2" / f"{split}.tsv", "sentence\tlabel", *rows)
        rows = [f"{i}\t{first}\t{second}\t{label}" for i, (first, second, label) in enumerate(ROWS["rte"])]
        write(root / "RTE" / f"{split}.tsv", "index\tsentence1\tsentence2\tlabel", *rows)
        rows = [f"{int(label == 'equivalent')}\t70{i}\t80{i}\t{a}\t{b}" for i, (a, b, label) in enumerate(ROWS["mrpc"])]
        write(root / "MRPC" / f"{split}.tsv", MRPC_HEADER, *rows, encoding="utf-8-sig")
    start = "index promptID pairID genre sentence1_binary_parse sentence2_binary_parse sentence1_parse sentence2_parse"
    for split, votes in (("train", 1), ("dev_matched", 5), ("dev_mismatched", 5)):
        header = [*start.split(), "sentence1", "sentence2", *(f"label{i + 1}" for i in range(votes)), "gold_label"]
        rows = [[str(i), "7", "7n", "fiction", "( x", "( y", "(S x", "(S y"] + [a, b] + ["neutral"] * votes + [label]
                for i, (a, b, label) in enumerate(ROWS["mnli"])]  # fmt: skip
        write(root / "MNLI" / f"{split}.tsv", *("\t".join(row) for row in [header, *rows]))
    return root


def tidy(root: Path) -> Path:
    """The same rows in folders by task name, with as few columns as possible."""
    for task, splits in SPLITS.items():
        known = data.TASKS[task]
        names = {"sst2": ["sentence"], "mrpc": ["sentence1", "sentence2"]}.get(task, ["premise", "hypothesis"])
        numbered = task in ("sst2", "mrpc")
        rows = [[first, second][: len(names)] + [str(known.labels.index(label)) if numbered else label]
                for first, second, label in ROWS[task]]  # fmt: skip
        for split in splits:
            write(root / task / f"{split}.tsv", *("\t".join(row) for row in [[*names, "label"], *rows]))
    return root


@pytest.mark.parametrize("layout", [official, tidy])
@pytest.mark.parametrize("task", ROWS)
def test_every_layout_gives_the_same_table(tmp_path, layout, task):
    root = layout(tmp_path)
    known = data.TASKS[task]
    own = next(root / name for name in known.folders if (root / name).is_dir())
    for split in SPLITS[task]:
        frame = data.load(task, root, split=split)
        assert tuple(frame.columns) == data.COLUMNS
        assert list(zip(frame["first"], frame["second"], frame["label"], strict=True)) == ROWS[task]
        assert [known.labels[i] for i in frame["label_id"]] == frame["label"].tolist()
        assert frame["label_id"].dtype == "int64"
        assert set(frame["split"]) == {split} and set(frame["phenomenon"]) == set(frame["pair"]) == {""}
        assert list(frame.index) == list(range(len(ROWS[task])))
        pd.testing.assert_frame_equal(frame, data.load(task, str(own), split=split))


def test_tasks_have_glue_label_order():
    assert {name: task.labels for name, task in data.TASKS.items()} == {
        "sst2": ("negative", "positive"),
        "mnli": ("entailment", "neutral", "contradiction"),
        "rte": ("entailment", "not_entailment"),
        "mrpc": ("not_equivalent", "equivalent"),
    }
    assert {name: task.kind for name, task in data.TASKS.items()} == dict.fromkeys(("mnli", "rte", "mrpc"), "pair") | {
        "sst2": "single"
    }
    with pytest.raises(AttributeError):
        data.TASKS["sst2"].labels = ("positive", "negative")


def test_numbers_and_names_are_both_labels(tmp_path):
    write(tmp_path / "dev.tsv", "premise\thypothesis\tlabel", "a\tb\t2", "a\tb\tentailment", "a\tb\t1")
    frame = data.load("mnli", tmp_path)
    assert frame["label"].tolist() == ["contradiction", "entailment", "neutral"]
    assert frame["label_id"].tolist() == [2, 0, 1]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_text_comes_through_as_it_is(tmp_path, end, encoding):
    quotes = ['"', 'so "good', 'a "" b']
    breaks = ["one\u2028two", "one\x85two", "one\rtwo"]
    sentences = [*quotes, "NA", "null", "-1", "café \U0001f600", *breaks]
    rows = [f"{sentence}\t{i % 2}" for i, sentence in enumerate(sentences)]
    write(tmp_path / "dev.tsv", "sentence\tlabel", *rows, "", end=end, encoding=encoding)
    frame = data.load("sst2", tmp_path)
    assert data.texts(frame) == sentences
    assert frame["label_id"].tolist() == [0, 1] * 5


def test_extra_columns_of_the_bundled_layout(tmp_path):
    write(tmp_path / "dev.tsv", "sentence\tlabel\tphenomenon\tpair", "not bad at all\t1\tnegation\t3", "bad\t0\t\t")
    frame = data.load("sst2", tmp_path)
    assert frame["phenomenon"].tolist() == ["negation", ""] and frame["pair"].tolist() == ["3", ""]


HEADER = "sentence\tlabel"
DAMAGE = {
    "empty file": ("", r"dev\.tsv has no rows: it is empty"),
    "header alone": (f"{HEADER}\n", r"dev\.tsv has no rows"),
    "other columns": ("text\tstars\nfine\t1\n", r"no column for the text of sst2: sentence\. .*'text', 'stars'"),
    "commas": ("sentence,label\nfine,1\n", r"Columns found, split at tabs: 'sentence,label'"),
    "few fields": (f"{HEADER}\nfine\t1\nfine\n", r"dev\.tsv, line 3: 1 field; the header has 2: sentence, label\.$"),
    "many fields": (f"{HEADER}\na\tb\t1\nfine\t1\na\tb\t1\n", r"dev\.tsv, line 2: 3 fields, line 4: 3 fields; the h"),
    "every row long": (f"{HEADER}\n" + "a\tb\t1\n" * 8, r"line 6: 3 fields and 3 more lines; the header has 2"),
    "empty text": (f"{HEADER}\nfine\t1\n \t1\n", r"dev\.tsv, line 3: column 'sentence' is empty"),
    "unknown label": (f"{HEADER}\na\t1\nb\tgood\n", r"line 3: unknown label 'good'\. .* negative or 0, positive or 1"),
    "number too large": (f"{HEADER}\nfine\t2\n", r"line 2: unknown label '2'"),
    "one label empty": (f"{HEADER}\nfine\t1\nfine\t\n", r"line 3: label column 'label' is empty\. Fill it in"),
    "a column twice": ("sentence\tlabel\tlabel\na\t1\t0\n", r"2 columns named 'label': rename all but one"),
    "dash outside MNLI": (f"{HEADER}\nfine\t1\nfine\t-\n", r"line 3: unknown label '-'"),
    "after a blank line": (f"{HEADER}\n\n\r\nfine\tgood\n", r"dev\.tsv, line 4: unknown label"),
}  # fmt: skip


@pytest.mark.parametrize("content, message", DAMAGE.values(), ids=DAMAGE)
def test_damage_is_told_with_its_line(tmp_path, content, message):
    write(tmp_path / "dev.tsv", content, end="")
    with pytest.raises(ValueError, match=message):
        data.load("sst2", tmp_path)


def test_damage_in_a_second_text_and_in_the_encoding(tmp_path):
    write(tmp_path / "dev.tsv", "index\tsentence1\tsentence2\tlabel", "0\ta\t\tentailment")
    with pytest.raises(ValueError, match=r"dev\.tsv, line 2: column 'sentence2' is empty"):
        data.load("rte", tmp_path)
    write(tmp_path / "train.tsv", HEADER, "fine\t1", "café\t1", encoding="latin-1")
    with pytest.raises(ValueError, match=r"train\.tsv, line 3: not UTF-8"):
        data.load("sst2", tmp_path, split="train")


def test_mnli_rows_without_an_agreed_label_are_left_out_and_counted(tmp_path, caplog):
    rows = ["a\tb\t-", "c\td\tneutral", "e\tf\t-", "g\th\tentailment"]
    write(tmp_path / "dev_matched.tsv", "sentence1\tsentence2\tgold_label", *rows)
    frame = data.load("mnli", tmp_path)
    assert data.texts(frame) == [("c", "d"), ("g", "h")] and list(frame.index) == [0, 1]
    assert frame["label"].tolist() == ["neutral", "entailment"]
    assert "left out 2 rows" in caplog.text


def test_test_split_without_labels_names_those_with(tmp_path):
    official(tmp_path)
    write(tmp_path / "SST-2" / "test.tsv", "index\tsentence", "0\tfine")
    with pytest.raises(ValueError, match=r"test\.tsv has no labels .* Splits with labels here: dev, train\."):
        data.load("sst2", tmp_path, split="test")
    write(tmp_path / "SST-2" / "test.tsv", HEADER, "fine\t-1", "dull\t-1")
    with pytest.raises(ValueError, match=r"test\.tsv has no labels"):
        data.load("sst2", tmp_path, split="test")


def test_mrpc_test_is_the_first_release_where_there(tmp_path):
    official(tmp_path)
    write(tmp_path / "MRPC" / "test.tsv", "index\t#1 ID\t#2 ID\t#1 String\t#2 String", "0\t1\t2\ta\tb")
    with pytest.raises(ValueError, match="has no labels"):
        data.load("mrpc", tmp_path, split="test")
    file = tmp_path / "MRPC" / "msr_paraphrase_test.txt"
    write(file, MRPC_HEADER, "1\t1\t2\ta\tb", end="\r\n", encoding="utf-8-sig")
    assert data.load("mrpc", tmp_path, split="test")["label"].tolist() == ["equivalent"]


def test_any_file_of_a_folder_can_be_asked_for(tmp_path):
    write(tmp_path / "sst2" / "dev.tsv", HEADER, "fine\t1")
    write(tmp_path / "sst2" / "train_sentences.tsv", HEADER, "dull\t0")
    frame = data.load("sst2", tmp_path, split="train_sentences")
    assert frame["first"].tolist() == ["dull"] and frame["split"].tolist() == ["train_sentences"]
    with pytest.raises(FileNotFoundError, match=r"No split 'train' of sst2 in .*: dev, train_sentences\."):
        data.load("sst2", tmp_path, split="train")


@pytest.mark.parametrize("task", ["SST-2", "cola", "", None])
def test_unknown_task_lists_the_known(task):
    with pytest.raises(ValueError, match=r"no task .* Tasks: sst2, mnli, rte, mrpc\."):
        data.load(task)


@pytest.mark.parametrize("source", [None, "", " ", 3, ["bundled"]])
def test_source_of_no_kind_is_refused(source):
    with pytest.raises(ValueError, match='give "bundled", "hub", or the path'):
        data.load("sst2", source)


def test_folders_that_will_not_do(tmp_path):
    with pytest.raises(FileNotFoundError, match=r'nowhere is not there\. source is "bundled", "hub", or a folder'):
        data.load("sst2", tmp_path / "nowhere")
    file = write(tmp_path / "mine.tsv", HEADER, "fine\t1")
    with pytest.raises(FileNotFoundError, match=r"mine\.tsv is a file: .* read\(path, first=\.\.\.\)"):
        data.load("sst2", file)
    file.unlink()
    with pytest.raises(FileNotFoundError, match=r"Looked for a folder sst2 or SST-2, .* There: nothing\."):
        data.load("sst2", tmp_path)
    (tmp_path / "CoLA").mkdir()
    with pytest.raises(FileNotFoundError, match=r"There: CoLA\."):
        data.load("sst2", tmp_path)


def test_another_tasks_folder_is_not_taken(tmp_path):
    """Numbers as labels make MRPC's files look like RTE's."""
    tidy(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"No files of rte in .*mrpc\. .*named for another task"):
        data.load("rte", tmp_path / "mrpc")


def test_relative_folder_from_here_then_from_the_project(tmp_path, monkeypatch):
    tidy(tmp_path / "project" / "mine")
    (tmp_path / "notebooks").mkdir()
    monkeypatch.chdir(tmp_path / "notebooks")
    monkeypatch.setattr(data, "PROJECT", tmp_path / "project")
    assert len(data.load("mnli", "mine")) == 3
    write(Path("mine") / "mnli" / "dev.tsv", "premise\thypothesis\tlabel", "a\tb\t0")
    assert len(data.load("mnli", "mine")) == 1


@pytest.fixture
def many(tmp_path) -> Path:
    rows = [f"sentence number {i}\t{int(i % 4 == 0)}" for i in range(200)]
    write(tmp_path / "dev.tsv", HEADER, *rows)
    return tmp_path


def test_sample_is_reproducible_stratified_ordered_and_nested(many):
    whole = data.load("sst2", many)
    for limit in (1, 2, 3, 7, 40, 199):
        drawn = data.load("sst2", many, limit=limit, seed=5)
        pd.testing.assert_frame_equal(drawn, data.load("sst2", many, limit=limit, seed=5))
        assert len(drawn) == limit and list(drawn.index) == list(range(limit))
        assert abs(drawn["label_id"].sum() - limit / 4) <= 1
        places = [whole["first"].tolist().index(text) for text in drawn["first"]]
        assert places == sorted(set(places))
        assert set(drawn["first"]) <= set(data.load("sst2", many, limit=limit + 1, seed=5)["first"])
    assert set(data.load("sst2", many, limit=40, seed=5)["first"]) != set(data.load("sst2", many, limit=40)["first"])
    assert set(data.load("sst2", many, limit=40)["first"]) != set(whole["first"][:40])


@pytest.mark.parametrize("limit", [None, 200, 10_000])
def test_sample_of_everything_is_everything(many, limit):
    pd.testing.assert_frame_equal(data.load("sst2", many, limit=limit, seed=3), data.load("sst2", many))


@pytest.mark.parametrize("limit", [0, -1, 2.5, "10", True])
def test_limit_must_be_a_number_of_rows(limit):
    with pytest.raises(ValueError, match=f"limit is {limit!r}: give a whole number of at least 1"):
        data.load("sst2", "no/such/folder", limit=limit)


@pytest.mark.parametrize("seed", [-1, None, 0.5])
def test_seed_must_be_a_whole_number(many, seed):
    with pytest.raises(ValueError, match="seed is"):
        data.load("sst2", many, limit=3, seed=seed)


def test_read_a_file_of_your_own(tmp_path):
    path = write(tmp_path / "reviews.tsv", "id\ttext\tanswer\tstars", "7\tfine\tso it is\tgood", "8\tdull\tnot so\tbad")
    frame = data.read(path, first="text", label="stars")
    assert tuple(frame.columns) == data.COLUMNS and data.texts(frame) == ["fine", "dull"]
    assert frame["label"].tolist() == ["good", "bad"] and frame["label_id"].tolist() == [1, 0]
    assert set(frame["split"]) == {"reviews"}
    named = data.read(path, first="text", second="answer", label="stars", labels=["good", "bad"])
    assert named["label_id"].tolist() == [0, 1] and data.texts(named) == [("fine", "so it is"), ("dull", "not so")]
    assert data.read(path, first="text")["label_id"].tolist() == [-1, -1]
    with pytest.raises(ValueError, match=r"no column for 'star'\. Columns found, .* 'id', 'text', 'answer', 'stars'"):
        data.read(path, first="text", label="star")
    with pytest.raises(ValueError, match=r"lines 2, 3: unknown label 'good'\. Labels: no or 0, yes or 1"):
        data.read(path, first="text", label="stars", labels=["no", "yes"])
    write(path, "text\tstars", "fine\tgood", "dull\t")
    with pytest.raises(ValueError, match=r"line 3: label column 'stars' is empty\. Fill it in, take the row out, or"):
        data.read(path, first="text", label="stars")
    write(path, "text\tstars", "fine\t", "dull\t")
    with pytest.raises(ValueError, match=r"lines 2, 3: label column 'stars' is empty"):
        data.read(path, first="text", label="stars")
    assert data.read(path, first="text")["label"].tolist() == ["", ""]


def test_a_column_that_is_there_twice_is_refused_where_it_is_used(tmp_path):
    path = write(tmp_path / "mine.tsv", "text\tstars\tnote\ttext \tnote", "fine\tgood\t1\tdull\t2")
    with pytest.raises(ValueError, match=r"mine\.tsv has 2 columns named 'text': rename all but one"):
        data.read(path, first="text")
    assert data.read(path, first="stars")["first"].tolist() == ["good"], "what is not read may be there twice"


def test_a_relative_file_is_looked_for_from_here_then_from_the_project(tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    write(tmp_path / "project" / "mine.tsv", "text", "from the project")
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setattr(data, "PROJECT", tmp_path / "project")
    assert data.read("mine.tsv", first="text")["first"].tolist() == ["from the project"]
    write(Path("mine.tsv"), "text", "from here")
    assert data.read("mine.tsv", first="text")["first"].tolist() == ["from here"]
    with pytest.raises(FileNotFoundError) as told:
        data.read("no/where.tsv", first="text")
    places = [tmp_path / "here" / "no" / "where.tsv", tmp_path / "project" / "no" / "where.tsv"]
    assert str(told.value) == f"There is no file no/where.tsv. Looked at {places[0]} and at {places[1]}."
    with pytest.raises(FileNotFoundError, match=r"no file .*missing\.tsv\. Looked at [^ ]*missing\.tsv\.$"):
        data.read(tmp_path / "missing.tsv", first="text")
    with pytest.raises(FileNotFoundError, match=r"It is a folder: give the file in it\."):
        data.read(tmp_path, first="text")


@pytest.mark.parametrize("mark, name", [(",", "comma"), (";", "semicolon")])
def test_a_file_without_tabs_is_told_with_a_command_that_mends_it(tmp_path, mark, name):
    rows = [['so ""good"", and 5 $', "007"], ["two\nlines and\ta tab", "NA"], ["plain", "007"]]
    quoted = [mark.join(f'"{cell}"' for cell in row) for row in rows]
    file = write(tmp_path / "mine.csv", f"text{mark}stars", *quoted)
    with pytest.raises(ValueError, match=f"the file looks {name}-separated") as told:
        data.read(file, first="text", label="stars")
    subprocess.run([sys.executable, "-c", str(told.value).partition("run in Python: ")[2]], check=True)
    frame = data.read(tmp_path / "mine.tabs.tsv", first="text", label="stars")
    assert frame["first"].tolist() == ['so "good", and 5 $', "two lines and a tab", "plain"]
    assert frame["label"].tolist() == ["007", "NA", "007"]
    with pytest.raises(ValueError, match="no column for 'words'") as told:
        data.read(tmp_path / "mine.tabs.tsv", first="words")
    assert "separated" not in str(told.value), "this one has tabs"
    assert data.read(write(file, "one, two", "a"), first="one, two")["first"].tolist() == ["a"]


def run_the_line(message: str) -> None:
    subprocess.run([sys.executable, "-c", message.partition("run in Python: ")[2]], check=True)


def test_fields_quoted_by_a_spreadsheet_are_told_with_a_command_that_takes_the_quotes_off(tmp_path):
    quoted = ['"He said ""no"" twice"\tNA', 'a ""b"" c\t007', '"plain"\tNA', '"so ""good"""\t007', 'a 5" disc\t007']
    file = write(tmp_path / "mine.tsv", "text\tstars", *quoted)
    with pytest.warns(UserWarning) as caught:
        kept = data.read(file, first="text", label="stars")
    assert kept["first"].tolist() == [row.partition("\t")[0] for row in quoted], "kept as they are"
    (told,) = [str(warning.message) for warning in caught]
    assert "mine.tsv, lines 2, 5: text in quotes" in told and caught[0].filename == __file__
    run_the_line(told)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        frame = data.read(tmp_path / "mine.plain.tsv", first="text", label="stars")
    assert frame["first"].tolist() == ['He said "no" twice', 'a ""b"" c', "plain", 'so "good"', 'a 5" disc']
    assert frame["label"].tolist() == ["NA", "007", "NA", "007", "007"]


def test_plain_quotes_are_no_reason_to_warn(tmp_path):
    texts = ['"Quoted"', '"one" and "two"', '" a ""', '""', '"', '""both""', 'a "" b']
    file = write(tmp_path / "mine.tsv", "text", *texts)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert data.read(file, first="text")["first"].tolist() == texts


def test_rows_of_a_quoted_file_that_hold_line_ends_are_told_with_a_cure(tmp_path):
    file = write(tmp_path / "mine.tsv", "text\tstars", '"two', 'lines"\t1', '"a\ttab"\t0', "fine\t1")
    with pytest.raises(
        ValueError, match=r"line 2: 1 field, line 4: 3 fields; the header has 2: text, stars\. If"
    ) as told:
        data.read(file, first="text")
    run_the_line(str(told.value))
    assert data.read(tmp_path / "mine.plain.tsv", first="text")["first"].tolist() == ["two lines", "a tab", "fine"]
    write(file, '"text"\t"stars"', '"fine"\t"1"')
    with pytest.raises(data.ColumnError, match="If a spreadsheet quoted it") as told:
        data.read(file, first="text")
    run_the_line(str(told.value))
    assert data.read(tmp_path / "mine.plain.tsv", first="text")["first"].tolist() == ["fine"]


@pytest.mark.parametrize("header, hinted", [
    ("A fine, slow film.\tgood", True), ("dull\t0", True), ("id\tSentence\tstars", False), ("words,label", False),
])  # fmt: skip
def test_a_header_that_may_be_a_row_is_told(tmp_path, header, hinted):
    with pytest.raises(data.ColumnError) as told:
        data.read(write(tmp_path / "mine.tsv", header, "\t".join("1" * (1 + header.count("\t")))), first="review")
    hint = "If that is a row of yours, add a header line first, such as: review<TAB>label."
    assert (hint in str(told.value)) == hinted and told.value.column == "review"


@pytest.mark.parametrize("encoding, said", [("utf-16", "it looks like UTF-16"), ("cp1252", "comes from Windows")])
def test_another_encoding_is_told_with_a_command_that_mends_it(tmp_path, encoding, said):
    file = write(tmp_path / "mine.tsv", "text", "caf\u00e9 \u201cgood\u201d", end="\r\n", encoding=encoding)
    with pytest.raises(ValueError, match=f"not UTF-8.*{said}") as told:
        data.read(file, first="text")
    run_the_line(str(told.value))
    assert data.read(tmp_path / "mine.utf8.tsv", first="text")["first"].tolist() == ["caf\u00e9 \u201cgood\u201d"]


def test_read_names_that_are_numbers(tmp_path):
    path = write(tmp_path / "stars.tsv", "text\tstars", "dull\t1", "fine\t5", "so so\t3")
    assert data.read(path, first="text", label="stars")["label_id"].tolist() == [0, 2, 1]
    swapped = data.read(write(path, "text\tstars", "a\t1", "b\t0"), first="text", label="stars", labels=["1", "0"])
    assert swapped["label"].tolist() == ["1", "0"] and swapped["label_id"].tolist() == [0, 1]


def test_texts_of_a_table_that_mixes_kinds_are_refused(tmp_path):
    tidy(tmp_path)
    both = pd.concat([data.load("sst2", tmp_path), data.load("rte", tmp_path)])
    with pytest.raises(ValueError, match="2 of 4 rows have no second text"):
        data.texts(both)
    assert data.texts(both[:0]) == []


def test_task_that_is_not_bundled_says_what_is(tmp_path, monkeypatch):
    monkeypatch.setattr(data, "BUNDLED", tmp_path)
    write(tmp_path / "sst2" / "dev.tsv", HEADER, "fine\t1")
    assert len(data.load("sst2")) == 1
    with pytest.raises(FileNotFoundError, match=r"No files of rte .* There: sst2\."):
        data.load("rte")


@pytest.mark.parametrize("split", ["train", "dev"])
def test_bundled_sst2(split):
    frame = data.load("sst2", split=split)
    assert set(frame["label"]) == {"negative", "positive"}
    assert frame["phenomenon"].ne("").any()
    assert all(isinstance(text, str) for text in data.texts(frame))


def test_docstring_examples_are_true():
    failed, tried = doctest.testmod(data)
    assert tried and not failed


def test_import_is_light():
    code = "import sys, helpers.data; sys.exit(bool({'torch', 'datasets', 'transformers'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], cwd=PROJECT).returncode == 0


# --- What is in data/

FOLDERS = ("corpora", "planted", "examples", "adapters")


def held(folder: str) -> list[Path]:
    return [path for path in (PROJECT / "data" / folder).rglob("*") if path.is_file() and path.name[0] != "."]


def test_hashes_of_the_data_are_those_on_record():
    lines = (PROJECT / "data" / "SHA256SUMS").read_text(encoding="utf-8").splitlines()
    recorded = {name: digest for digest, name in (line.split("  ") for line in lines)}
    actual = {
        path.relative_to(PROJECT / "data").as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for folder in FOLDERS
        for path in held(folder)
    }
    assert actual == recorded, "after a wanted change, write data/SHA256SUMS anew: data/README.md has the command"


def test_readme_tells_source_licence_and_size_of_everything():
    readme = (PROJECT / "data" / "README.md").read_text(encoding="utf-8")
    rows = re.findall(rf"^\| `((?:{'|'.join(FOLDERS)})/[^`]+)` \|(.+)\|$", readme, re.M)
    told = {name: [cell.strip() for cell in cells.split("|")] for name, cells in rows}
    there = {"/".join(path.relative_to(PROJECT / "data").parts[:2]) for folder in FOLDERS for path in held(folder)}
    assert {name for name in there if not name.endswith("README.md")} == set(told)
    assert all(len(cells) == 4 and all(cells) for cells in told.values())
    for name in [name for name in told if name.startswith(("corpora/", "planted/"))]:
        folder = PROJECT / "data" / name
        train, dev = (len(data.load(folder.name, folder, split=split)) for split in ("train", "dev"))
        assert f"{train} train, {dev} dev" in told[name][0]


# --- Real data, where this machine has them: ATTATTR_GLUE=path/to/glue

if "ATTATTR_GLUE" in os.environ:
    # GLUE's sizes; for MNLI also those of a smaller selection. GLUE keeps the labels of SST-2's and MRPC's test sets.
    SIZES = {
        ("sst2", "train"): {67349}, ("sst2", "dev"): {872}, ("sst2", "test"): {1821, None},
        ("sst2", "train_sentences"): {6920, None},
        ("rte", "train"): {2490}, ("rte", "dev"): {277},
        ("mrpc", "train"): {3668}, ("mrpc", "dev"): {408}, ("mrpc", "test"): {1725, None},
        ("mnli", "train"): {392702, 12010}, ("mnli", "dev"): {9815}, ("mnli", "dev_mismatched"): {9832, 3912},
    }  # fmt: skip

    @pytest.mark.parametrize("task, split", SIZES)
    def test_real_glue(task, split):
        try:
            frame = data.load(task, os.environ["ATTATTR_GLUE"], split=split)
        except (ValueError, FileNotFoundError) as error:
            assert None in SIZES[task, split] and re.search("has no labels|No split", str(error)), error
            return
        assert len(frame) in SIZES[task, split]
        assert set(frame["label"]) == set(data.TASKS[task].labels)
        assert frame["second"].ne("").all() == (data.TASKS[task].kind == "pair")
