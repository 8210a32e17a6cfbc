"""An error of ours in a notebook is the cell's own line and a sentence; any other keeps its stack."""

from __future__ import annotations

import re

import pytest
from IPython.core.interactiveshell import InteractiveShell

from helpers import _errors

ANSI = re.compile(r"\x1b\[[0-9;]*m")
OURS = "from helpers.inputs import check_texts\nmy_own_line = check_texts(['good', ''])"


@pytest.fixture
def run(monkeypatch):
    """A shell that keeps what it would show of an error."""
    shell, shown = InteractiveShell(), []
    monkeypatch.setattr(
        shell, "_showtraceback", lambda kind, error, lines: shown.append(ANSI.sub("", "\n".join(lines)))
    )
    _errors.shorten(shell)

    def cell(source):
        shown.clear()
        result = shell.run_cell(source)
        return shown[-1] if shown else "", result.error_in_exec

    yield cell
    shell.reset()


def test_a_cell_shows_its_own_line_and_the_sentence(run):
    shown, error = run(OURS)
    assert "my_own_line = check_texts" in shown
    assert "ValueError: Text 1 is empty or blank: give it at least one word, or drop it from the batch." in shown
    assert "inputs.py" not in shown and "_check_text" not in shown and len(shown.splitlines()) < 12
    assert isinstance(error, ValueError), "the kernel, and papermill with it, still know of the error"


def test_a_cause_inside_a_library_is_not_shown_but_kept(run, tmp_path):
    path = tmp_path / "one.safetensors"
    path.write_bytes(b"no such thing")
    shown, error = run(f"from helpers.result import Attribution\nAttribution.load({str(path)!r})")
    assert "is damaged or no attribution file" in shown and "direct cause" not in shown and "result.py" not in shown
    assert error.__cause__ is not None


@pytest.mark.parametrize(
    "source",
    [
        "int('x')",
        "def f():\n    return len(3)\nf()",
        "1 / 0",
        "from helpers.quadrature import points_and_weights\npoints_and_weights()",
    ],
)
def test_errors_that_are_not_ours_are_shown_as_always(run, source):
    shown, error = run(source)
    assert source.splitlines()[-1] in shown and type(error).__name__ in shown


def test_an_error_from_deep_inside_a_library_keeps_its_stack(run):
    shown, _ = run("import torch\nfrom helpers.outputs import probabilities\nprobabilities('no tensor', None)")
    assert "outputs.py" in shown


def test_the_whole_stack_on_request(run, monkeypatch):
    monkeypatch.setenv("ATTATTR_TRACEBACK", "full")
    assert "_check_text" in run(OURS)[0]
