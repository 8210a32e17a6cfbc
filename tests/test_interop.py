"""helpers.interop against the shapes that bertviz and captum document, and the files for Binder and Colab."""

import dataclasses
import os
import re
import subprocess
import sys
import tomllib

import nbformat
import numpy as np
import pytest
import torch
import yaml
from packaging.requirements import Requirement
from sample import HARD, sample

from helpers.inputs import Word
from helpers.interop import SCALES, SIGNS, bertviz_arguments, captum_arguments
from helpers.records import ROOT

# ---- bertviz ---------------------------------------------------------------------------------------------------------


def pair(**changes):
    """A sample whose last words are a second text."""
    one = sample(**changes)
    words = tuple(Word(*word[:3], 1) if word.segment == 0 and word.start >= 4 else word for word in one.words)
    return dataclasses.replace(one, words=words)


@pytest.mark.parametrize("sign", SIGNS)
@pytest.mark.parametrize("scale", SCALES)
def test_bertviz_gets_what_it_documents(sign, scale):
    a = sample()
    given = bertviz_arguments(a, sign=sign, scale=scale)
    assert set(given) == {"attention", "tokens", "sentence_b_start", "include_layers"}
    assert len(given["attention"]) == len(a.layers) and given["include_layers"] == [0, 1, 2]
    for layer in given["attention"]:
        assert layer.dtype == torch.float32 and layer.shape == (1, *a.scores.shape[1:])
        assert float(layer.min()) >= 0 and float(layer.max()) <= 1
    assert given["tokens"] == list(a.tokens) and given["sentence_b_start"] is None
    # what bertviz does with it
    stacked = torch.stack([layer.squeeze(0) for layer in given["attention"]]).tolist()
    assert np.shape(stacked) == a.scores.shape


def test_shares_are_of_the_layer_of_all_or_of_the_head():
    a = sample()
    size = np.abs(a.scores)
    largest = {"layer": size.max((1, 2, 3), keepdims=True), "all": size.max(), "head": size.max((2, 3), keepdims=True)}
    for scale, divisor in largest.items():
        for sign, part in (
            ("raises", a.scores * (a.scores > 0)),
            ("lowers", -a.scores * (a.scores < 0)),
            ("either", size),
        ):
            drawn = torch.cat(bertviz_arguments(a, sign=sign, scale=scale)["attention"]).numpy()
            assert np.allclose(drawn, part / divisor, atol=1e-6)
    both = sum(torch.cat(bertviz_arguments(a, sign=sign)["attention"]) for sign in ("raises", "lowers"))
    assert torch.allclose(both, torch.cat(bertviz_arguments(a, sign="either")["attention"]))


def test_scores_are_left_as_they_are():
    a = sample()
    before = a.scores.copy()
    for layer in bertviz_arguments(a, sign="either")["attention"]:
        layer += 1
    assert np.array_equal(a.scores, before)


def test_the_second_text_starts_where_bertviz_cuts():
    a = pair()
    start = bertviz_arguments(a)["sentence_b_start"]
    assert start == 4 == min(word.start for word in a.words if word.segment == 1)


def test_layers_keep_their_numbers():
    a = sample(layers=(1, 4))
    given = bertviz_arguments(a)
    assert given["include_layers"] == [1, 4] and len(given["attention"]) == 5
    chosen = [given["attention"][layer] for layer in given["include_layers"]]
    assert all(float(layer.max()) > 0 for layer in chosen)
    assert all(not given["attention"][layer].any() and given["attention"][layer].shape == chosen[0].shape
               for layer in (0, 2, 3))  # fmt: skip


def test_no_score_at_all_and_no_number():
    a = sample()
    a.scores[1] = 0
    assert not bertviz_arguments(a)["attention"][1].any()
    a.scores[0, 0, 0, 0] = np.nan
    for call in (bertviz_arguments, captum_arguments):
        with pytest.raises(ValueError, match="not numbers"):
            call(a)


def test_bertviz_options_are_named_in_errors():
    for options in ({"sign": "both"}, {"scale": "layers"}):
        with pytest.raises(
            ValueError, match=f"{next(iter(options.values()))}.*raises, lowers, either.*layer, all, head"
        ):
            bertviz_arguments(sample(), **options)


def test_bertviz_itself_takes_it():
    head_view = pytest.importorskip("bertviz", reason="bertviz is not installed").head_view
    page = head_view(**bertviz_arguments(pair()), html_action="return").data
    assert "Sentence A -> Sentence B" in page


# ---- captum ----------------------------------------------------------------------------------------------------------


def test_captum_gets_one_number_a_token():
    a = sample()
    for by, axis in (("key", 0), ("query", 1)):
        given = captum_arguments(a, layer=1, by=by, true_class="negative")
        sums = a.scores[1].sum(axis=0).sum(axis=axis)
        assert np.allclose(given["word_attributions"], sums / np.abs(sums).max(), atol=1e-6)
        assert given["word_attributions"].shape == (len(a.tokens),) and np.abs(given["word_attributions"]).max() == 1
        assert given["attr_score"] == pytest.approx(float(a.scores[1].sum()), abs=1e-6)
        assert given["convergence_score"] == a.gap[1]
        names = ("pred_class", "true_class", "attr_class", "raw_input_ids")
        assert [given[n] for n in names] == ["positive", "negative", "positive", list(a.tokens)]
    assert given["pred_prob"] == 0.98


def test_captum_takes_the_layer_that_moves_most():
    a = sample()
    most = int(np.abs(a.value - a.start).argmax())
    assert captum_arguments(a)["attr_score"] == captum_arguments(a, layer=a.layers[most])["attr_score"]
    with pytest.raises(ValueError, match="no layer 7.*0, 1, 2"):
        captum_arguments(a, layer=7)
    with pytest.raises(ValueError, match="'key' or 'query'"):
        captum_arguments(a, by="word")


def test_captum_shows_texts_as_they_are():
    a = sample(HARD, labels=("negative", "<script>alert(1)</script>"))
    given = captum_arguments(a, true_class="<b>")
    texts = [*given["raw_input_ids"], given["pred_class"], given["attr_class"], given["true_class"]]
    assert not any("<" in text for text in texts)
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in texts


def test_captum_without_scores_with_another_class_and_with_one_output():
    a = sample(target=0)
    a.scores[:] = 0
    given = captum_arguments(a)
    assert not given["word_attributions"].any() and np.isnan(given["pred_prob"]) and given["attr_class"] == "negative"
    raw = sample(output="raw", labels=("score",), target=0, predicted=0, value=-1.5, probability=float("nan"))
    assert captum_arguments(raw)["pred_prob"] == -1.5 and captum_arguments(raw)["pred_class"] == "raw output"


def test_captum_itself_takes_it():
    visualization = pytest.importorskip("captum.attr", reason="captum is not installed").visualization
    assert visualization.VisualizationDataRecord(**captum_arguments(sample())).attr_class == "positive"


# ---- Binder and Colab ------------------------------------------------------------------------------------------------

BINDER = ROOT / ".binder"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_binder_installs_the_packages_of_the_environment_but_for_development():
    whole = (ROOT / "environment.yml").read_text(encoding="utf-8").split("# development")[0]
    binder = yaml.safe_load((BINDER / "environment.yml").read_text(encoding="utf-8"))
    python = [line for line in binder["dependencies"] if line.split()[0] == "python"]
    wanted = [line for line in yaml.safe_load(whole)["dependencies"] if line.split()[0] != "python"]
    anew = ".binder/environment.yml says in its head how it is made anew"
    assert [line for line in binder["dependencies"] if line not in python] == wanted, anew
    assert len(wanted) == len(PROJECT["dependencies"]) + 1  # and pip
    assert binder["channels"] == yaml.safe_load(whole)["channels"]
    rattler = pytest.importorskip("rattler", reason="py-rattler is not installed")
    assert rattler.MatchSpec(python[0], strict=True).name.normalized == "python"
    version = re.fullmatch(r"python =(\d+\.\d+)", python[0])  # Binder's builder looks for just this form
    assert version and f"{version[1]}.99" in Requirement(f"python{PROJECT['requires-python']}").specifier


@pytest.fixture
def stubs(tmp_path):
    """Commands that only write down how they were called; return the environment and the file."""
    written = tmp_path / "calls"
    for name in ("make", "python"):
        stub = tmp_path / "bin" / name
        stub.parent.mkdir(exist_ok=True)
        lines = (
            "#!/bin/sh",
            f'[ "$1" = - ] && exec "{sys.executable}" -',
            f'printf "%s\\n" {name} "$@" >> "{written}"',
        )
        stub.write_text("\n".join(lines) + "\n", encoding="utf-8")
        stub.chmod(0o755)
    path = f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "PYTHON": str(tmp_path / "bin" / "python")}, written


def test_binder_adds_the_model_and_the_package(stubs):
    environment, written = stubs
    subprocess.run([BINDER / "postBuild"], cwd=ROOT, env=environment, check=True)
    calls = written.read_text(encoding="utf-8").splitlines()
    assert calls[:3] == ["make", "weights", "PYTHON=python"]
    assert 'load("minilm-sst2")' in calls[-1]
    assert re.search(r"^weights:", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)


def test_colab_keeps_its_own_jupyter(stubs, tmp_path):
    environment, written = stubs
    subprocess.run(["bash", BINDER / "colab.sh"], cwd=tmp_path, env=environment, check=True, capture_output=True)
    calls = written.read_text(encoding="utf-8").splitlines()
    installed = {Requirement(line).name for line in calls if re.match(r"[\w-]+[<>=]", line) and "PYTHON=" not in line}
    declared = {Requirement(line).name for line in PROJECT["dependencies"]}
    assert {"torch", "transformers", "plotly", "ipywidgets"} <= installed <= declared
    assert declared - installed == {"papermill", "nbclient", "nbformat", "nbconvert", "ipykernel", "ipython",
                                    "jupyter_client", "jupyterlab"}  # fmt: skip
    assert "weights" in calls


@pytest.mark.parametrize("path", sorted((ROOT / "notebooks").glob("*.ipynb")), ids=lambda path: path.stem)
def test_a_notebook_needs_nothing_that_colab_keeps_to_itself(path):
    code = "\n".join(c.source for c in nbformat.read(path, as_version=4).cells if c.cell_type == "code")
    assert not re.findall(
        r"^\s*(?:from|import) (?:papermill|nbclient|nbconvert|nbformat|jupyter_client)", code, re.MULTILINE
    )
    assert not re.findall(r"helpers(?:\.| import .*\b)(?:suite|runs|gallery|exercises|cli)\b", code)
