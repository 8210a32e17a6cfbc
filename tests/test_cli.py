"""python -m helpers: what it writes, what it refuses, and that its page needs nothing but itself."""

import csv
import json
import re
import subprocess
import sys
import warnings

import numpy as np
import pandas as pd
import pytest
from browser import dump, needs_browser
from sample import HARD, sample
from test_exercises import answered, made
from tiny import save_tiny

from helpers import cli, exercises, report
from helpers.models import load
from helpers.records import ROOT
from helpers.result import Attribution
from helpers.stream import open_dataset


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return str(save_tiny(tmp_path_factory.mktemp("model"), labels=("<b>bad</b>", "good")))


@pytest.fixture
def run(capsys):
    """Run the command line; return its status and what it wrote to the two streams."""

    def call(*arguments):
        capsys.readouterr()
        try:
            status = cli.main([str(a) for a in arguments])
        except SystemExit as stop:  # argparse
            status = stop.code
        return status, *capsys.readouterr()

    return call


# ---- explain ---------------------------------------------------------------------------------------------------------


def test_a_text_is_explained_as_by_the_helpers(run, model, tmp_path, caplog):
    status, out, err = run("explain", "The film was good", "A bad end", "--model", model, "--steps", "4", "--rule",
                           "gauss", "--target", "good", "--html", tmp_path / "one.html", "--json",
                           tmp_path / "one.json", "--save", tmp_path / "scores", "--links", "3")  # fmt: skip
    assert status == 0, err
    found = json.loads((tmp_path / "one.json").read_text(encoding="utf-8"))
    saved = [Attribution.load(path) for path in sorted((tmp_path / "scores").iterdir())]
    classifier = load(model)
    assert (found["format"], found["version"], found["model"]) == ("attattr-explanation", 1, model)
    for text, a, sentence in zip(found["texts"], saved, ("The film was good", "A bad end"), strict=True):
        assert text["text"] == a.text == sentence
        assert (text["explained"], a.rule, set(a.steps)) == ("good", "gauss", {4})
        assert np.allclose(text["probabilities"], classifier.predict(sentence)[0])
        assert np.isclose(text["value"], text["probabilities"][1], atol=1e-5)
        assert [link["score"] for link in text["links"]] == pytest.approx(list(a.top_links(3)["score"]))
        assert np.allclose([layer["gap"] for layer in text["layers"]], a.gap)
        assert f"{text['links'][0]['score']:+.4f}  layer {text['links'][0]['layer']}" in out
    page = (tmp_path / "one.html").read_text(encoding="utf-8")
    assert "A bad end" in page and "&lt;b&gt;bad&lt;/b&gt;" in page and "<b>bad</b>" not in page.split("</head>")[1]
    assert f"written: {tmp_path / 'one.html'}" in caplog.messages


def test_a_pair_and_a_class_by_number(run, model, tmp_path):
    assert run("explain", "The film was good", "--pair", "it was bad", "--model", model, "--target", "0", "--json",
               tmp_path / "a.json", "--quiet")[:2] == (0, "")  # fmt: skip
    (text,) = json.loads((tmp_path / "a.json").read_text(encoding="utf-8"))["texts"]
    assert text["text"] == ["The film was good", "it was bad"] and text["explained"] == "<b>bad</b>"
    assert text["tokens"].count("[SEP]") == 2


def test_texts_come_from_a_table_or_from_lines(run, model, tmp_path, caplog):
    table, lines, target = tmp_path / "texts.tsv", tmp_path / "texts.txt", tmp_path / "a.json"
    table.write_text("id\tsentence\tother\n1\ta good film\tbad\n2\tthe end\tgood\n3\tslow\tslow\n", encoding="utf-8")
    lines.write_text("\ufeffa good film\n\nthe end\n", encoding="utf-8")
    common = ("--model", model, "--steps", "2", "--json", target, "--force")

    def texts():
        return [text["text"] for text in json.loads(target.read_text(encoding="utf-8"))["texts"]]

    assert run("explain", "--file", lines, *common)[0] == 0
    assert texts() == ["a good film", "the end"]
    run("explain", "--file", table, "--text-column", "sentence", "--pair-column", "other", "--limit", "2", *common)
    assert texts() == [["a good film", "bad"], ["the end", "good"]]
    assert "explained are the first 2 texts of 3; --limit takes more" in caplog.messages
    status, _, err = run("explain", "--file", table, *common)
    assert status == 1 and "no column for 'text'. Columns found, split at tabs: 'id', 'sentence', 'other'" in err
    assert "--text-column names the column, as in --text-column review." in err
    _, _, err = run("explain", "--file", table, "--text-column", "sentence", "--pair-column", "answer", *common)
    assert "--pair-column names the column" in err and "no column for 'answer'" in err


@pytest.mark.parametrize("arguments, said", [
    ((), "give either texts or --file"),
    (("a good film", "--file", "x.tsv"), "give either texts or --file"),
    (("--file", "nowhere.tsv"), "there is no file nowhere.tsv"),
    (("a", "b", "--pair", "c"), "--pair goes with one text"),
    (("a good film", "--html", "nowhere/a.html"), "there is no folder"),
    (("a good film", "--html", "pyproject.toml"), "pyproject.toml is there already"),
    (("--file", "README.md", "--limit", "0"), "--limit is 0"),
])  # fmt: skip
def test_what_is_asked_wrongly_is_refused_before_a_model_is_loaded(run, monkeypatch, arguments, said):
    monkeypatch.chdir(ROOT)
    before = (ROOT / "pyproject.toml").read_bytes()
    status, out, err = run("explain", *arguments, "--model", "no-such-model")
    assert status == 2 and out == ""
    assert err.startswith("error: ") and said in err and err.count("\n") == 1
    assert (ROOT / "pyproject.toml").read_bytes() == before


@pytest.mark.parametrize("arguments, said", [
    (("a", "--model", "minilm-mnli"), "trained on pairs of texts: give the second one with --pair, or --pair-column"),
    (("a", "--pair", "b", "--model", "minilm-sst2"), "trained on single texts: leave out --pair and --pair-column"),
])  # fmt: skip
def test_a_registered_model_reads_what_it_was_trained_on(run, arguments, said):
    status, out, err = run("explain", *arguments)
    assert (status, out) == (2, "") and err.startswith("error: ") and said in err and err.count("\n") == 1


@pytest.mark.parametrize("arguments, said", [
    (("a", "--target", "grand"), "There is no class 'grand': give one of <b>bad</b>, good (0 to 1)."),
    (("a good film", " "), "Text 1 is empty or blank"),
])  # fmt: skip
def test_what_fails_is_one_line_and_writes_nothing(run, model, tmp_path, arguments, said):
    given = arguments if "--model" in arguments else (*arguments, "--model", model)
    status, out, err = run("explain", *given, "--html", tmp_path / "a.html", "--quiet")
    assert status == 1 and out == ""
    assert err.startswith("error: ") and said in err and err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_long_text_is_cut_with_one_line_of_notice(run, model, caplog):
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # none gets past the command line
        status, out, err = run("explain", "good " * 90, "--model", model, "--steps", "1", "--rule", "midpoint")
    assert status == 0 and out.startswith("good good")
    notes = [line for line in caplog.messages if line.startswith("note: ")]
    assert len(notes) == 1 and "longer than 40 tokens" in notes[0] and "\n" not in notes[0]


def test_a_table_in_another_format_is_not_taken_for_lines(run, model, tmp_path):
    (tmp_path / "texts.CSV").write_text("text\na good film\n", encoding="utf-8")
    status, _, err = run("explain", "--file", tmp_path / "texts.CSV", "--model", model)
    assert status == 2 and "neither tab-separated (.tsv) nor one text a line" in err


@pytest.mark.parametrize("mark", [",", ";", "\t"])
def test_a_table_with_commas_is_refused_with_a_command_that_writes_tabs(run, model, tmp_path, mark):
    (tmp_path / "mine.csv").write_text(f'text{mark}stars\n"a ""good"" film, mostly"{mark}1\n', encoding="utf-8")
    status, _, err = run("explain", "--file", tmp_path / "mine.csv", "--model", model)
    assert status == 2
    subprocess.run([sys.executable, "-c", err.partition("run in Python: ")[2]], check=True)
    given = ("--file", tmp_path / "mine.tabs.tsv", "--model", model, "--steps", "1", "--quiet")
    status, out, err = run("explain", *given)
    assert status == 0 and out.startswith('a "good" film, mostly\n'), err


def test_a_quoted_table_is_noted_in_a_line(run, model, tmp_path, caplog):
    (tmp_path / "mine.tsv").write_text('text\n"a ""good"" film"\n', encoding="utf-8")
    assert run("explain", "--file", tmp_path / "mine.tsv", "--model", model, "--steps", "1")[0] == 0
    (note,) = [line for line in caplog.messages if "quotes" in line]
    assert note.startswith("note: ") and "mine.tsv, line 2: text in quotes" in note


@pytest.mark.parametrize("arguments, said", [
    (["--steps", "0"], "--steps is 0: give auto or a whole number"), (["--steps", "-2"], "--steps is -2"),
    (["--steps", "many"], "--steps is many"), (["--steps", "2.5"], "--steps is 2.5"),
    (["--model", "no-such"], "There is no model 'no-such': give a folder, a hub id, or one of minilm"),
    (["--model", ""], "There is no model ''"),
])  # fmt: skip
def test_wrong_steps_and_models_are_refused_before_torch_is_loaded(tmp_path, arguments, said):
    (tmp_path / "texts.txt").write_text("a good film\n", encoding="utf-8")
    code = ("import sys; from helpers import cli; statuses = [cli.main([*start.split(), *sys.argv[2:]])"
            " for start in ('explain good', f'attribute {sys.argv[1]}/texts.txt {sys.argv[1]}/out')];"
            " sys.exit(3 if 'torch' in sys.modules else 0 if statuses == [2, 2] else 4)")  # fmt: skip
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path), *arguments], cwd=ROOT, capture_output=True,
                          text=True)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stderr.count(f"error: {said}") == 2 and done.stderr.count("\n") == 2


@pytest.mark.parametrize("text", ["", " \n"])
def test_an_empty_text_is_refused(run, model, text):
    assert run("explain", text, "--model", model) == (2, "", "error: The text is empty or blank\n")


def test_force_writes_over(run, model, tmp_path):
    target = tmp_path / "a.json"
    target.write_text("mine", encoding="utf-8")
    given = ("explain", "a good film", "--model", model, "--steps", "1", "--json", target)
    assert run(*given)[0] == 2 and target.read_text(encoding="utf-8") == "mine"
    assert run(*given, "--force")[0] == 0 and json.loads(target.read_text(encoding="utf-8"))["texts"]


def test_help_and_a_missing_command():
    for arguments, status in ((["--help"], 0), (["explain", "--help"], 0), ([], 2), (["explain", "a", "--stepz"], 2)):
        done = subprocess.run([sys.executable, "-m", "helpers", *arguments], cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == status and "usage: python -m helpers" in done.stdout + done.stderr


# ---- the page --------------------------------------------------------------------------------------------------------

PROBE = """<!DOCTYPE html><body><script>
const frame = document.createElement("iframe");
frame.style = "width: 390px; height: 900px; border: 0";
frame.src = "page.html";
frame.onload = () => setTimeout(() => {
  const page = frame.contentDocument, all = (css) => [...page.querySelectorAll(css)];
  const fetched = frame.contentWindow.performance.getEntriesByType("resource").map((r) => r.name);
  const line = document.createElement("pre");
  line.textContent = "PAGE|" + [all(".plotly-graph-div").length,
    all(".plotly-graph-div").filter((f) => f.querySelector(".main-svg .trace, .main-svg .hm image")).length,
    fetched.filter((url) => !/^data:/.test(url)).length, frame.contentWindow.hacked ? 1 : 0,
    page.documentElement.scrollWidth].join("|") + "|END";
  document.body.append(line);
}, 1500);
document.body.append(frame);
</script></body>"""


@needs_browser
def test_the_page_shows_its_figures_with_the_network_cut(tmp_path):
    script = "<script>hacked=1</script>"
    hard = sample((*HARD, script, "<img", "src=x", "onerror=hacked=1>"), labels=("negative", script))
    many = [hard, sample()]
    page = report.page(many, np.array([[0.02, 0.98]] * 2), title=f"a {script} title", facts="$x_1$ & more")
    (tmp_path / "page.html").write_text(page, encoding="utf-8")
    (tmp_path / "probe.html").write_text(PROBE, encoding="utf-8")
    done = dump(tmp_path / "probe.html", tmp_path / "profile")
    counted = re.search(r"PAGE\|([\d|]+)\|END", done.stdout)
    assert counted, done.stderr[-2000:]
    figures, drawn, fetched, hacked, width = map(int, counted[1].split("|"))
    assert (figures, drawn) == (6, 6)  # links, heads and tree of two texts
    assert (fetched, hacked) == (0, 0) and width <= 390
    assert [line for line in done.stderr.splitlines() if "CONSOLE" in line] == []


def test_a_page_names_no_address_to_load_from():
    body = report.page([sample()], np.array([[0.02, 0.98]])).split("</head>")[1]
    assert re.findall(r"(?:src|href)=[\"'](?!data:|#)[^\"']*", body) == []


def test_a_model_with_one_output_and_one_of_few_layers():
    raw = sample(output="raw", labels=("score",), target=0, predicted=0, value=-1.5, probability=float("nan"))
    page = report.page([raw], np.array([[-1.5]]))
    assert "-1.5000 (the raw output)" in page and "<th>class</th>" not in page
    (text,) = report.content([raw], np.array([[-1.5]]))["texts"]
    assert text["probabilities"] is None and text["value"] == -1.5
    json.dumps(text, allow_nan=False)


def test_a_page_stays_small_where_a_text_is_long():
    words = tuple(f"w{n}" for n in range(report.LONGEST))
    rows = np.array([[0.02, 0.98]])
    page, shorter = (report.page([sample(some, layers=(0, 1))], rows) for some in (words, words[:-2]))
    assert "heads-1" not in page and f"This text has {report.LONGEST + 2} tokens." in page and "links-1" in page
    assert "heads-1" in shorter and "This text has" not in shorter


def test_no_edge_and_no_row_of_probabilities():
    flat = sample()
    flat.scores[:] = 0
    assert "There is no tree. No edge" in report.page([flat], np.array([[0.02, 0.98]]))
    assert report.content([flat], np.array([[0.02, 0.98]]))["texts"][0]["tree"]["edges"] == []
    for many, rows in (([], np.zeros((0, 2))), ([flat], np.zeros((2, 2)))):
        with pytest.raises(ValueError, match="one row for each"):
            report.page(many, rows)


# ---- exercises -------------------------------------------------------------------------------------------------------


@pytest.fixture
def class_folder(tmp_path, monkeypatch):
    """A folder of notebooks with one in it, and two copies beside it; only what copies hold is read."""
    folder = tmp_path / "notebooks"
    folder.mkdir()
    path = made(folder)
    monkeypatch.setattr(cli, "NOTEBOOKS", folder)
    for name in ("anna", "ben"):
        nb = answered(path, tmp_path / f"{name}.ipynb")
        checks = [cell for cell in nb.cells if cell.source.startswith("def check_")]
        for n, cell in enumerate(checks, 1):
            said = f"'Exercise {n}: {'right' if name == 'anna' else 'not yet'}.'"
            cell.outputs = [exercises.nbformat.v4.new_output("execute_result", {"text/plain": said})]
        exercises.write_notebook(nb, tmp_path / f"{name}.ipynb")
    return tmp_path


def test_check_reads_what_copies_say_and_counts(run, class_folder):
    anna, ben = (class_folder / f"{name}.ipynb" for name in ("anna", "ben"))
    status, out, _ = run("check", "07", anna, "--saved")
    assert status == 0 and f"{anna}: 3 of 3 right" in out
    status, out, _ = run("check", "07", anna, ben, "--saved", "--csv", class_folder / "marks.csv")
    assert status == 1 and f"{ben}: 0 of 3 right" in out and "not yet" in out
    with (class_folder / "marks.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["file"], row["verdict"]) for row in rows] == [(str(anna), "right")] * 3 + [(str(ben), "not yet")] * 3


def test_check_runs_the_notebook_by_default(run, class_folder, monkeypatch):
    asked = []
    monkeypatch.setattr(exercises, "run", lambda path, nb, **options: asked.append((path.name, nb, options)) or [])
    assert run("check", "07", "--solutions")[0] == 0
    assert run("check", "07", class_folder / "anna.ipynb", "--profile", "demo", "--timeout", "5")[0] == 0
    assert [(name, nb is None, options["profile"], options["timeout"]) for name, nb, options in asked] == [
        ("07_made_up.ipynb", True, "quick", 900), ("07_made_up.ipynb", False, "demo", 5),
    ]  # fmt: skip


@pytest.mark.parametrize("arguments, said", [
    (("99",), "there is no notebook '99'; there are: 07_made_up"),
    (("07", "nowhere.ipynb"), "is no notebook that can be read"),
    (("07", "--solutions", "--saved"), "give neither files nor --saved"),
])  # fmt: skip
def test_check_refuses_what_is_not_there(run, class_folder, arguments, said):
    status, out, err = run("check", *arguments)
    assert status == 2 and out == "" and said in err and err.count("\n") == 1


def test_exercises_are_handed_out_and_nothing_is_lost(run, class_folder):
    out = class_folder / "out"
    assert run("exercises", out)[0] == 0
    handed = (out / "07_made_up.ipynb").read_text(encoding="utf-8")
    assert "Solution" not in handed and exercises.HIDDEN in handed
    (out / "07_made_up.ipynb").write_text("mine", encoding="utf-8")
    status, _, err = run("exercises", out)
    assert status == 2 and "is there already" in err
    assert (out / "07_made_up.ipynb").read_text(encoding="utf-8") == "mine"
    assert run("exercises", out, "--force")[0] == 0 and (out / "07_made_up.ipynb").stat().st_size > 100
    status, _, err = run("exercises", cli.NOTEBOOKS, "--force")
    assert status == 2 and "the folder of the notebooks themselves" in err
    assert "Solution" in (cli.NOTEBOOKS / "07_made_up.ipynb").read_text(encoding="utf-8")


def test_an_interrupt_has_a_status_of_its_own(run, class_folder, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(exercises, "run", interrupted)
    assert run("check", "07")[0] == 130


def test_an_unsupported_model_is_refused_in_a_line(run, tmp_path):
    folder = tmp_path / "model"
    save_tiny(folder)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    (folder / "config.json").write_text(json.dumps(config | {"num_labels": 0, "id2label": {}}), encoding="utf-8")
    (folder / "model.safetensors").write_bytes(b"cut short")
    status, _, err = run("explain", "a", "--model", folder, "--quiet")
    assert status == 1 and err.startswith("error: ") and err.count("\n") == 1


def test_attribute_fills_a_folder(run, model, tmp_path):
    (tmp_path / "texts.txt").write_text("a good film\n\nit is dull\n", encoding="utf-8")
    call = ["attribute", tmp_path / "texts.txt", tmp_path / "scores", "--model", model, "--quiet", "--steps"]
    assert run(*call, 3)[0] == 0
    assert [a.text for a in open_dataset(tmp_path / "scores")] == ["a good film", "it is dull"]
    status, _, problem = run(*call, 4)
    assert status == 1 and "steps: 3 there, 4 now" in problem
    assert run("attribute", tmp_path / "none.txt", tmp_path / "other")[0] == 2


# ---- what is refused before a model is loaded ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options, said",
    [
        (["--arrow", "there", "--force"], "there is a folder"),
        (["--html", "there", "--force"], "there is a folder"),
        (["--save", "file.txt", "--force"], "file.txt is a file"),
        (["--html", "one", "--json", "one"], "written over by another"),
        (["--links", "0"], "--links is 0"),
    ],
)
def test_outputs_that_can_not_be_are_refused_first(run, tmp_path, monkeypatch, options, said):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there").mkdir()
    (tmp_path / "file.txt").write_text("mine")
    status, _, err = run("explain", "good", "--model", "no such model", *options)
    assert (status, err.count("\n")) == (2, 1) and said in err
    assert (tmp_path / "file.txt").read_text() == "mine"


def test_a_text_a_line_whatever_else_a_line_may_hold(run, model, tmp_path):
    """A form feed or U+2028 inside a line ends no text."""
    (tmp_path / "texts.txt").write_bytes("\ufeffa good\x0cfilm\u2028.\r\n\r\ndull\r\n".encode())
    status, _, err = run("attribute", tmp_path / "texts.txt", tmp_path / "out", "--model", model, "--steps", "1")
    assert status == 0, err
    assert [a.text for a in open_dataset(tmp_path / "out")] == ["a good\x0cfilm\u2028.", "dull"]


@pytest.mark.parametrize("content", [b"caf\xe9\n", "a good film".encode("utf-16")])
def test_a_file_that_is_not_utf_8(run, model, tmp_path, content):
    """The message has the command that mends it."""
    (tmp_path / "texts.txt").write_bytes(content)
    status, _, err = run("explain", "--file", tmp_path / "texts.txt", "--model", model)
    assert status == 2 and "texts.txt is not UTF-8" in err
    assert ("it looks like UTF-16" in err) == content.startswith((b"\xff\xfe", b"\xfe\xff"))
    subprocess.run([sys.executable, "-c", err.partition("run in Python: ")[2]], check=True)
    assert (tmp_path / "texts.utf8.txt").read_text(encoding="utf-8") in ("caf\u00e9\n", "a good film")


def test_a_class_that_only_looks_like_a_number(run, model):
    status, _, err = run("explain", "good", "--model", model, "--steps", "1", "--target", "²")
    assert status == 1 and "There is no class '²'" in err


def test_a_page_and_numbers_where_the_gap_was_not_measured():
    nothing = np.full(3, np.nan)
    a = sample(gap=nothing, start=nothing)
    assert "Whether the scores add up was not measured" in report.page([a], np.array([[0.02, 0.98]]))
    table = pd.DataFrame({"share": [np.inf, np.nan], "day": [pd.NaT, pd.Timestamp("2020-01-02")]})
    found = report.content([a], np.array([[0.02, 0.98]]), parts=[report.Part("One", table=table)])
    json.dumps(found, allow_nan=False)
    assert found["texts"][0]["layers"][0] == {"layer": 0, "start": None, "gap": None, "points": 6}
    assert found["parts"][0]["table"][0] == {"share": None, "day": None}
    with pytest.raises(ValueError, match="No attribution was given"):
        report.links_table([])
