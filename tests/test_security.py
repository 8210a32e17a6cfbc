"""Nothing that is read is run, no text becomes markup, nothing is written elsewhere, and no network is asked."""

from __future__ import annotations

import ast
import html
import io
import json
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import ipywidgets
import matplotlib.pyplot as plt
import nbformat
import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest
import torch
from families import make
from made_up import notebook
from sample import sample
from texts import tokenizer_for

from helpers import gallery, interop, plots, records, report, triggers, widgets, widgets_triggers
from helpers import tree as trees
from helpers.pruning import Curve
from helpers.result import Attribution

ROOT = Path(__file__).resolve().parents[1]
OFFLINE = ROOT / "tests" / "offline"
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))

# ---- what is read is not run -----------------------------------------------------------------------------------------

RUNS_WHAT_IT_READS = {"pickle", "cPickle", "dill", "cloudpickle", "shelve", "marshal", "jsonpickle"}
# It sends a model to processes of the same run, and reads nothing whose hash is not the one that it was told.
ALLOWED = {("_worker.py", "pickle"), ("_worker.py", "cloudpickle")}
BY_NAME = {
    "torch.load",
    "joblib.load",
    "joblib.dump",
    "joblib.Memory",
    "np.load",
    "numpy.load",
    "pd.read_pickle",
    "pandas.read_pickle",
    "yaml.load",
    "yaml.unsafe_load",
    "yaml.full_load",
    "os.system",
    "os.popen",
    "eval",
    "exec",
    "compile",
    "__import__",
}


def problems(source: str, name: str = "x.py") -> list[str]:
    """What in a Python source runs, or lets run, what it has read."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            roots = (
                {a.name.split(".")[0] for a in node.names}
                if isinstance(node, ast.Import)
                else {node.module.split(".")[0]}
            )
            found += [f"import {root}" for root in roots & RUNS_WHAT_IT_READS if (name, root) not in ALLOWED]
        elif isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            options = {k.arg: ast.unparse(k.value) for k in node.keywords}
            if called in BY_NAME:
                found.append(called)
            if options.get("trust_remote_code", "False") != "False" or options.get("shell", "False") != "False":
                found.append(f"{called}({options})")
            if options.get("allow_pickle", "False") != "False" or options.get("use_safetensors", "True") != "True":
                found.append(f"{called}({options})")
            if called.split(".")[0].startswith("Auto") and called.endswith(("from_pretrained", "from_config")):
                found += [] if "trust_remote_code" in options else [f"{called} without trust_remote_code=False"]
    return found


def code_of(path: Path) -> str:
    cells = nbformat.read(path, as_version=4).cells
    return "\n".join(cell.source for cell in cells if cell.cell_type == "code")


PYTHON = [*sorted((ROOT / "helpers").glob("*.py")), *sorted((ROOT / "benchmarks").glob("*.py"))]


@pytest.mark.parametrize("path", [*PYTHON, *NOTEBOOKS], ids=lambda path: path.name)
def test_no_helper_runs_what_it_reads(path):
    source = code_of(path) if path.suffix == ".ipynb" else path.read_text(encoding="utf-8")
    if path.suffix == ".ipynb" or path.parent.name == "benchmarks":  # they may show how the libraries are called
        found = [p for p in problems(source, path.name) if "without trust_remote_code" not in p]
    else:
        found = problems(source, path.name)
    assert found == []


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "from dill import loads",
        "torch.load(p)",
        "eval(text)",
        "subprocess.run(c, shell=True)",
        "yaml.load(f)",
        "AutoModel.from_pretrained(p)",
        "AutoModel.from_pretrained(p, trust_remote_code=True)",
        "np.load(p, allow_pickle=True)",
        "x.from_pretrained(p, use_safetensors=False)",
        "joblib.Memory(p)",
        "exec(code)",
    ],
)
def test_what_would_run_is_noticed(source):
    assert problems(source)


def test_no_shell_of_a_notebook():
    for path in NOTEBOOKS:
        assert not re.search(r"^\s*[!%]", code_of(path), re.MULTILINE), f"{path.name} has a line of shell or magic"


# ---- no text becomes markup ------------------------------------------------------------------------------------------

SCRIPT = "<script>hacked=1</script>"
MARKS = (
    SCRIPT,
    "<img src=x onerror=hacked=1>",
    '"><svg/onload=hacked=1>',
    "javascript:hacked=1",
    "</title><b>",
    "&lt;b&gt;",
)
# Tags that plotly makes of its own text format; everything else of a text has to stay a text.
PLOTLY_TAGS = {"b", "br", "i", "em", "sup", "sub", "span", "extra"}


class Tags(HTMLParser):
    """The tags and attributes that a browser would make of a text."""

    def __init__(self, text: str):
        super().__init__(convert_charrefs=True)
        self.found: list[tuple[str, dict]] = []
        self.text = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.found.append((tag, dict(attributes)))

    def handle_data(self, data):
        self.text += data


def evil(**changes):
    """An explanation in which every text that a user can choose is markup."""
    return sample(MARKS, labels=("<i>no</i>", SCRIPT), **changes)


def strings(value):
    """Every string in a nest of lists and dicts."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from (s for v in value.values() for s in strings(v))
    elif isinstance(value, list | tuple):
        yield from (s for v in value for s in strings(v))


def check_markup(text: str) -> None:
    """Markup holds no tag, no handler and no address of the text's own."""
    for tag, attributes in Tags(text).found:
        assert tag not in {"script", "img", "iframe", "object", "embed", "svg", "link", "meta", "base"}, text
        assert not [name for name in attributes if name.startswith("on")], text
        assert not [v for v in attributes.values() if v and v.strip().lower().startswith("javascript")], text


def check_figure(figure) -> None:
    for text in strings(json.loads(go.Figure(figure).to_json())):
        check_markup(text)
        assert {tag for tag, _ in Tags(text).found} <= PLOTLY_TAGS, text


def check_widget(box) -> None:
    """Whatever a widget shows as HTML is free of a text's markup; plain fields show it as it is."""
    if isinstance(box, go.FigureWidget):
        check_figure(box)
    elif isinstance(box, ipywidgets.HTML | ipywidgets.HTMLMath):
        check_markup(box.value)
    for child in getattr(box, "children", ()):
        check_widget(child)


def figures(a):
    """Every public figure of one explanation, by name."""
    tree = trees.attribution_tree(a, tau=0.1)
    steps = trees.trace(a, tau=0.1)
    return {
        "head_maps": lambda: plots.head_maps(a, a.layers[0], 0),
        "layer_maps": lambda: plots.layer_maps(a, a.layers[0]),
        "heads_overview": lambda: plots.heads_overview(a),
        "attention": lambda: plots.heads_overview(a, "attention"),
        "sentence_links": lambda: plots.sentence_links(a),
        "completeness": lambda: plots.completeness(a),
        "tree": lambda: plots.tree(tree, title=SCRIPT, note=SCRIPT),
        "tree_steps": lambda: plots.tree_steps(steps, tree, title=SCRIPT),
        "tree_strip": lambda: plots.tree_strip(steps, tree),
        "cover": lambda: plots.cover(a),
    }


@pytest.mark.parametrize("name", figures(evil()))
def test_no_output_holds_markup_of_a_text(name):
    figure = figures(evil())[name]()
    if isinstance(figure, go.Figure):
        check_figure(figure)
    else:
        check_picture(figure)


def check_picture(figure) -> None:
    """An SVG of matplotlib holds the texts as text, and nothing that runs."""
    with plt.rc_context({"svg.fonttype": "none"}):
        figure.savefig(stream := io.BytesIO(), format="svg")
    root = ElementTree.fromstring(stream.getvalue())
    assert not {element.tag.rpartition("}")[2] for element in root.iter()} & {"script", "foreignObject", "a"}
    addresses = [value for element in root.iter() for name, value in element.attrib.items() if name.endswith("href")]
    assert all(address.startswith(("#", "data:image/png;")) for address in addresses)  # a heat map is a picture in it
    assert not [name for element in root.iter() for name in element.attrib if name.startswith("on")]
    plt.close(figure)


def test_no_figure_of_heads_or_of_many_texts_holds_markup():
    heads = {SCRIPT: np.ones((2, 2)), "b": np.ones((2, 2))}
    curves = {name: Curve(name, np.array([0, 0.5, 1]), np.eye(3, 4) > 0) for name in heads}
    check_figure(plots.pruning_state(curves, heads[SCRIPT], np.eye(2), score=SCRIPT, setting=1, note=SCRIPT))
    check_picture(plots.pruning_curves({SCRIPT: curves}, measure=SCRIPT))
    check_picture(plots.head_grids({SCRIPT: heads}))
    check_picture(plots.concentration({SCRIPT: [evil().scores]}, title=SCRIPT))
    errors = pd.DataFrame(
        {"rule": [SCRIPT] * 2, "steps": [1, 2], "error": [0.1, 0.01], "example": [0, 0], "layer": [0, 0]}
    )
    check_picture(plots.convergence(errors))


@pytest.mark.parametrize("kind", ["explorer", "head_grid", "tree_explorer"])
def test_no_widget_of_explanations_holds_markup(kind, monkeypatch):
    monkeypatch.delenv("ATTATTR_HEADLESS", raising=False)
    box = getattr(widgets, kind)([evil(), evil(seed=1)])
    check_widget(box)
    if hasattr(box, "example"):
        box.example.value = 1
        check_widget(box)


def test_no_widget_that_asks_a_model_holds_markup(monkeypatch):
    monkeypatch.delenv("ATTATTR_HEADLESS", raising=False)
    check_widget(widgets.sentence_box(lambda text: evil(), start_text=" ".join(MARKS)))

    def fails(text):
        raise ValueError(f"{SCRIPT} is no text")

    box = widgets.sentence_box(fails, start_text=SCRIPT)
    check_widget(box)
    model, tokenizer = make("bert", dtype=torch.float32), tokenizer_for("bert")
    model.config.id2label = {0: SCRIPT, 1: "<b>", 2: "c"}
    victims = triggers.prepare(model, tokenizer, [f"{SCRIPT} a good film", "bad <b>film</b>"], [0, 1])
    found = [triggers.Trigger.from_text(tokenizer, "< script > good", positions=1.0)]
    check_widget(widgets_triggers.trigger_bench(model, victims, found))


def test_no_page_holds_markup_of_a_text(tmp_path):
    page = report.page([evil()], np.array([[0.02, 0.98]]), title=SCRIPT, facts=SCRIPT)
    body = page.split("</head>")[1]
    assert "<script>hacked" not in page and not [a for _, a in Tags(body).found if {"onload", "onerror"} & set(a)]
    executed = tmp_path / "00_a.ipynb"
    outputs = [
        nbformat.v4.new_output("stream", text=" ".join(MARKS)),
        nbformat.v4.new_output("execute_result", data={"text/plain": " ".join(MARKS)}),
        nbformat.v4.new_output("error", ename=SCRIPT, evalue=SCRIPT, traceback=[SCRIPT]),
    ]
    cell = nbformat.v4.new_code_cell(f"x = {SCRIPT!r}", outputs=outputs)
    nbformat.write(nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell(f"# {SCRIPT}"), cell]), executed)
    results = {SCRIPT: {"value": SCRIPT, "published": None, "unit": SCRIPT, "note": SCRIPT}}
    entry = gallery.Entry(
        "00_a", SCRIPT, summary=SCRIPT, minutes=SCRIPT, executed=executed, status=SCRIPT, results=results
    )
    for path in gallery.build_gallery(tmp_path / "g", [entry], title=SCRIPT).parent.glob("*.html"):
        page = path.read_text(encoding="utf-8")
        assert "<script>hacked" not in page and "<img src=x" not in page and "<svg/onload" not in page


def test_no_table_or_export_holds_markup_of_a_text(tmp_path):
    a = evil()
    tree = trees.attribution_tree(a, tau=0.0)
    root = ElementTree.fromstring(trees.export(tree, tmp_path / "t.svg", title=SCRIPT).read_bytes())
    assert not {element.tag.rpartition("}")[2] for element in root.iter()} & {"script", "foreignObject", "a", "image"}
    for end in ("dot", "mmd", "json"):
        text = trees.export(tree, tmp_path / f"t.{end}", title=SCRIPT).read_text(encoding="utf-8")
        assert "<" not in text and SCRIPT in html.unescape(
            re.sub(r"#(\d+);", r"&#\1;", text.encode().decode("unicode_escape"))
        )
    check_markup(a.top_links(50)._repr_html_())
    parts = interop.captum_arguments(a)
    assert "<script" not in "".join(map(str, parts.get("raw_input_ids", ())))


# ---- what is read is whole -------------------------------------------------------------------------------------------


def attribution_file(path):
    sample().save(path)
    return Attribution.load


def tree_file(path):
    trees.save(trees.attribution_tree(sample()), path)
    return trees.load


def results_file(path):
    records.write_json(path, {"a": 1})
    return lambda file: pytest.fail("taken for whole") if records.read_json(file) else (_ for _ in ()).throw(ValueError)


KINDS = {"one.safetensors": attribution_file, "tree.json": tree_file, "results.json": results_file}


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_of_file_cut_anywhere_is_refused_or_made_again(name, tmp_path):
    path = tmp_path / name
    load = KINDS[name](path)
    whole = path.read_bytes()
    for length in sorted({0, 1, 7, 8, 9, len(whole) // 3, len(whole) // 2, len(whole) - 2 - whole.endswith(b"\n")}):
        path.write_bytes(whole[:length])
        with pytest.raises(ValueError) as caught:
            load(path)
        assert "\n" not in str(caught.value)
    for other in (b"\x80\x04K\x01.", b"PK\x03\x04" + whole, b"\xff" * 64, b"[]", b"{}", b"null", whole[::-1]):
        path.write_bytes(other)  # a pickle first of all
        with pytest.raises(ValueError):
            load(path)


# ---- no network, and no write elsewhere ------------------------------------------------------------------------------


def offline(code: str, tmp_path: Path, **environment) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(OFFLINE), "ATTATTR_REFUSED": str(tmp_path / "refused"), **environment}
    return subprocess.run([sys.executable, "-c", code], env=env, cwd=ROOT, capture_output=True, text=True, timeout=300)


def test_a_name_or_an_address_outside_is_refused(tmp_path):
    code = """
import socket, urllib.request
for ask in (lambda: socket.create_connection(("192.0.2.1", 80), 1), lambda: socket.getaddrinfo("example.org", 80),
            lambda: socket.create_connection(("2001:db8::1", 80), 1), lambda: socket.gethostbyname("example.org"),
            lambda: socket.socket(type=socket.SOCK_DGRAM).sendto(b"x", ("192.0.2.1", 53)),
            lambda: urllib.request.urlopen("http://example.org", timeout=1)):
    try:
        ask()
    except OSError as error:
        assert "no network in this run" in str(error), error
    else:
        raise SystemExit("reached")
server = socket.create_server(("127.0.0.1", 0))
socket.create_connection(server.getsockname(), 5).close()
socket.create_connection(("localhost", server.getsockname()[1]), 5).close()
a, b = socket.socketpair()
a.sendall(b"x")
print(b.recv(1))
"""
    done = offline(code, tmp_path)
    assert (done.returncode, done.stdout) == (0, "b'x'\n"), done.stderr
    assert len((tmp_path / "refused").read_text(encoding="utf-8").splitlines()) == 6


CELLS = (
    """
from helpers import plots, suite, tree
from helpers.attribution import attribute
from helpers.models import load
c = load("minilm-sst2")
a = attribute(c.model, c.tokenizer, "A slow start.", steps=1, layers=[5])""",
    """
folder = suite.build_folder("figures")
a.save(folder / "one.safetensors")
tree.export(tree.attribution_tree(a), folder / "tree.svg")
plots.cover(a).savefig(folder / "cover.png")
plots.sentence_links(a)""",
    """
import socket
try:
    socket.create_connection(("192.0.2.1", 80), 1)
except OSError as error:
    suite.record("00_a", "network", str(error))""",
)


def test_a_run_writes_in_its_build_folder_only(tmp_path):
    notebook(tmp_path / "notebooks", "00_a", *CELLS)
    home, build, other = tmp_path / "home", tmp_path / "build", tmp_path / "tmp"
    for folder in (home, other):
        folder.mkdir()
    environment = {
        "HOME": str(home),
        "TMPDIR": str(other),
        "ATTATTR_BUILD": str(build),
        "ATTATTR_WRITES": str(tmp_path / "writes"),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    for name in ("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "MPLCONFIGDIR", "IPYTHONDIR", "JUPYTER_CONFIG_DIR",
                 "TORCHINDUCTOR_CACHE_DIR"):  # fmt: skip
        environment[name] = ""  # else they name places of whoever runs the tests
    options = ["run", "--notebooks", str(tmp_path / "notebooks")]
    done = offline(f"import sys; from helpers.suite import main; sys.exit(main({options!r}))", tmp_path, **environment)
    assert done.returncode == 0, done.stdout + done.stderr
    kept = json.loads((build / "results.json").read_text(encoding="utf-8"))["results"]["00_a"]
    assert "no network in this run" in kept["network"]["value"], "the kernel is watched as well"
    written = {Path(line) for line in (tmp_path / "writes").read_text(encoding="utf-8").splitlines()}
    assert build / "figures" / "tree.svg" in written and any(path.name == "00_a.partial.ipynb" for path in written)
    caches = (build, other, home / ".cache", home / ".config" / "matplotlib", Path("/dev"), Path("/proc"))
    elsewhere = {path for path in written if not any(path.is_relative_to(folder) for folder in caches)}
    assert {str(path) for path in elsewhere if not any(folder.is_relative_to(path) for folder in caches)} == set()
