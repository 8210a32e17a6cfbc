"""helpers.records: results are merged by name, plain, and never half written."""

import json
import math

import numpy as np
import pytest
import torch

from helpers.records import read_json, record, write_json
from helpers.suite import record as record_for_notebooks


def stored(build, notebook="01_x"):
    return json.loads((build / "results" / f"{notebook}.json").read_text(encoding="utf-8"))


def test_notebooks_import_it_from_the_suite():
    assert record_for_notebooks is record


def test_results_merge_by_name(build):
    record("01_x", "accuracy", 0.5, published=0.6, unit="share", note="small model")
    record("01_x", "count", 3)
    record("01_x", "accuracy", 0.75)
    assert stored(build) == {
        "accuracy": {"value": 0.75, "published": None, "unit": "", "note": ""},
        "count": {"value": 3, "published": None, "unit": "", "note": ""},
    }


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (np.float32(0.5), 0.5),
        (np.int64(7), 7),
        (np.array([2.0]), 2.0),
        (torch.tensor(0.25), 0.25),
        (np.bool_(True), True),
        ("none of them", "none of them"),
        (None, None),
    ],
)
def test_values_become_pythons_own(build, value, plain):
    record("01_x", "v", value)
    found = stored(build)["v"]["value"]
    assert found == plain and type(found) is type(plain)


@pytest.mark.parametrize(
    "value", [math.nan, math.inf, -math.inf, [1, 2], np.array([1, 2]), torch.zeros(0), {"a": 1}, 1j]
)
def test_other_values_are_refused_and_nothing_is_written(build, value):
    with pytest.raises(ValueError, match="'v' is .*record a finite number, a string, or None"):
        record("01_x", "v", value)
    with pytest.raises(ValueError, match="finite number"):
        record("01_x", "v", 1, published=value)
    assert not (build / "results").exists() or not list((build / "results").iterdir())


@pytest.mark.parametrize("name", ["../01_x", "a/b", "", "01_x.ipynb", "01 x"])
def test_a_name_that_is_no_notebook_is_refused(name):
    with pytest.raises(ValueError, match="file name without folder"):
        record(name, "v", 1)


def test_a_result_needs_a_name():
    with pytest.raises(ValueError, match="what was measured"):
        record("01_x", " ", 1)


@pytest.mark.parametrize("content", ["", '{"a": ', "[1]", "\x00\xff"])
def test_a_damaged_file_counts_as_empty(build, content):
    path = build / "results" / "01_x.json"
    path.parent.mkdir(parents=True)
    path.write_text(content, encoding="utf-8")
    assert read_json(path) == {}
    record("01_x", "v", 1)
    assert stored(build)["v"]["value"] == 1


def test_a_write_that_fails_leaves_the_old_file_and_no_litter(tmp_path):
    path = tmp_path / "x.json"
    write_json(path, {"a": 1})
    with pytest.raises(ValueError):
        write_json(path, {"a": math.nan})
    assert read_json(path) == {"a": 1}
    assert [file.name for file in tmp_path.glob("*") if file.is_file()] == ["x.json"]
