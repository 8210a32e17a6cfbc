"""helpers.outline: what is asked for is checked before anything runs."""

import json

import pytest
from made_up import PARAMETERS, notebook

from helpers.outline import UsageError, find, read, settings


def test_outline_of_a_notebook(tmp_path):
    text = "See **the [paper](x.html)**: snake_case stays.\n\nIt takes 5-10 min"
    opening = f"# Attention *against* `attribution`\n\n| a | table |\n\n{text}"
    found = read(notebook(tmp_path, "01_a", "1 + 1", opening=opening))
    assert found.name == "01_a"
    assert found.title == "Attention against attribution"
    assert found.summary == "See the paper: snake_case stays."
    assert found.minutes == "5-10"
    assert found.parameters == {"profile": "demo", "limit": 3, "rate": 0.5}
    assert [kind for kind, _ in found.sources] == ["markdown", "code", "code"]


def test_a_bare_notebook_has_a_name_for_its_title(tmp_path):
    found = read(notebook(tmp_path, "02_bare", "1", opening="no heading", parameters=""))
    assert (found.title, found.minutes, found.parameters) == ("02_bare", "", {})


@pytest.mark.parametrize(
    "content", ["", "{", "[]", '{"cells": 3, "metadata": {}}', '{"nbformat": 3, "worksheets": []}']
)
def test_a_file_that_is_no_notebook(tmp_path, content):
    path = tmp_path / "00_a.ipynb"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(UsageError, match="00_a.ipynb is no notebook that can be read"):
        read(path)


def test_another_kernel_is_refused(tmp_path):
    with pytest.raises(UsageError, match="00_a.ipynb asks for the kernel 'julia'; set it to 'python3'"):
        read(notebook(tmp_path, "00_a", "1", kernel="julia"))


def test_a_notebook_without_kernelspec_is_taken_as_python(tmp_path):
    path = notebook(tmp_path, "00_a", "1")
    content = json.loads(path.read_text(encoding="utf-8"))
    content["metadata"] = {}
    path.write_text(json.dumps(content), encoding="utf-8")
    assert read(path).name == "00_a"


@pytest.mark.parametrize("source", ["limit = 1 + x", "limit = [", "import os\nlimit = os.cpu_count()"])
def test_parameters_must_be_literals(tmp_path, source):
    with pytest.raises(UsageError, match="'parameters' must hold literals only"):
        read(notebook(tmp_path, "00_a", "1", parameters=source))


def test_find_in_order_and_by_the_start_of_the_name(tmp_path):
    for name in ("01_b", "00_a", "10_c", "scratch"):
        notebook(tmp_path, name, "1")
    assert [n.name for n in find(tmp_path)] == ["00_a", "01_b", "10_c"]
    assert [n.name for n in find(tmp_path, ["10", "00_a.ipynb"])] == ["00_a", "10_c"]
    with pytest.raises(UsageError, match="no notebook '07'; there are: 00_a, 01_b, 10_c"):
        find(tmp_path, ["00", "07"])
    with pytest.raises(UsageError, match="no notebook NN_name.ipynb"):
        find(tmp_path / "none")


@pytest.fixture
def two(tmp_path):
    more = PARAMETERS + 'text = "a film"\nlayers = [0, 1]\nseed = None\nexact = False\n'
    return [read(notebook(tmp_path, "00_a", "1")), read(notebook(tmp_path, "01_b", "1", parameters=more))]


def test_settings_take_the_type_of_the_default(two):
    given = {"limit": "5", "rate": "1e-3", "text": "no", "layers": "[2, 3]", "seed": "7", "exact": "true"}
    first, second = settings(two, {"profile": "quick", **given})
    assert first == {"profile": "quick", "limit": 5, "rate": 0.001}
    assert second == {**first, "text": "no", "layers": [2, 3], "seed": 7, "exact": True}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"limt": "5"}, "no parameter 'limt' in 00_a, 01_b; there are: exact, layers, limit"),
        ({"source": "bundled"}, "no parameter 'source'"),
        ({"profile": "fast"}, "no profile 'fast'; there are: quick, demo, paper"),
        ({"limit": "5.5"}, "'limit' of 00_a is int .* not '5.5'"),
        ({"limit": "true"}, "'limit' of 00_a is int"),
        ({"rate": "fast"}, "'rate' of 00_a is float"),
        ({"layers": "3"}, "'layers' of 01_b is list"),
        ({"layers": "[3"}, "'layers' of 01_b is list"),
        ({"exact": "1"}, "'exact' of 01_b is bool"),
    ],
)
def test_what_no_notebook_takes_is_refused(two, given, message):
    with pytest.raises(UsageError, match=message):
        settings(two, given)


def test_profile_may_be_missing_from_a_notebook(tmp_path):
    assert settings([read(notebook(tmp_path, "00_a", "1", parameters="x = 1"))], {"profile": "quick"}) == [{}]
