"""helpers.exercises: what an exercise is, notebooks without solutions, and what a copy's answers amount to."""

import copy
import re

import nbformat
import pytest
from made_up import TITLE, notebook
from nbformat.v4 import new_code_cell, new_markdown_cell, new_output

from helpers import exercises
from helpers.outline import UsageError, find
from helpers.records import ROOT

TEACHING = ROOT / "notebooks" / "TEACHING.md"
FOLD = "<details><summary>Solution</summary>\n\n```python\n{}\n```\n\nBecause {} is half.\n\n</details>"
CHECK = """def check_{n}(value):
    if value is None:
        return "Exercise {n}: not attempted."
    return "Exercise {n}: {good}, it's {{}} & all.".format(value) if value == {n} * base else "Exercise {n}: not yet."


{call}(check_{n}(answer_{n}))"""
SHOWN = """from IPython.display import Markdown, display

def say(text):
    display(Markdown(text.replace('&', '&amp;')))"""
STATEMENTS = (
    "## 5. Exercises\n\n**Exercise 1 (5 minutes): one. Or so.** Say it.",
    FOLD.format("answer_1 = base", "one")
    + "\n\n**Exercise 2 (15 minutes, two of them to run).** Which number\nis it? Say.",
    FOLD.format("answer_2 = 2 * base", "two")
    + "\n\n**Exercise 3 (2 minutes): three.** Say.\n\n<details><summary>Data</summary>kept</details>",
    FOLD.format("answer_3 = undefined", "three"),
)  # fmt: skip


def made(folder):
    """Write a notebook with three exercises; return its path."""
    path = notebook(folder, "07_made_up", SHOWN, "base = 1 if profile == 'quick' else 7")
    nb = nbformat.read(path, as_version=4)
    for n in (1, 2, 3):
        nb.cells.append(new_markdown_cell(STATEMENTS[n - 1]))
        nb.cells.append(new_code_cell(f"answer_{n} = None  # your number"))
        good, call = ("right", "str") if n != 2 else ("done", "say")
        nb.cells.append(new_code_cell(CHECK.format(n=n, good=good, call=call)))
    nb.cells += [new_markdown_cell(STATEMENTS[3]), new_code_cell("raise SystemError('after the exercises')")]
    for number, cell in enumerate(nb.cells):
        cell["id"] = str(number)
    nbformat.write(nb, path)
    return path


def answered(path, target, *, ids=True, **answers):
    """Write a copy with answers, by the number of the exercise; without ids, as some programmes leave it."""
    nb = exercises.without_solutions(nbformat.read(path, as_version=4))
    nb.cells[3].source = "base = 100  # played with"
    for cell in nb.cells:
        for name, code in answers.items():
            if cell.source.startswith(name):
                cell.source = code
    if not ids:
        for cell in nb.cells:
            cell["id"] = f"new-{cell['id']}"
    nbformat.write(nb, target)
    return exercises.read_copy(path, target)


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    return made(tmp_path_factory.mktemp("notebooks"))


def test_exercises_are_found_with_minutes_titles_and_solutions(original):
    found = exercises.find_exercises(exercises.read_notebook(original))
    assert [(e.number, e.minutes, e.title) for e in found] == [
        (1, 5, "one"), (2, 15, "Which number is it?"), (3, 2, "three"),
    ]  # fmt: skip
    assert [e.solution.strip() for e in found] == ["answer_1 = base", "answer_2 = 2 * base", "answer_3 = undefined"]


@pytest.mark.parametrize("path", find(ROOT / "notebooks"), ids=lambda n: n.name)
def test_every_notebook_has_exercises_that_can_be_checked(path):
    found = exercises.find_exercises(exercises.read_notebook(path.path))
    stated = sum(source.count("**Exercise ") for kind, source in path.sources if kind == "markdown")
    assert len(found) == stated >= 2
    assert [e.number for e in found] == list(range(1, stated + 1))
    assert all(e.solution.strip() for e in found)


def test_a_hand_out_hides_solutions_and_nothing_else(original):
    before = exercises.read_notebook(original)
    after = exercises.without_solutions(before)
    text = "\n".join(cell.source for cell in after.cells)
    assert "answer_1 = base" not in text and "Because" not in text
    assert text.count(exercises.HIDDEN) == 3 and "<summary>Data</summary>kept" in text and "**Exercise 3" in text
    assert [c.id for c in before.cells] == [c.id for c in after.cells]
    assert [c.source for c in before.cells if c.cell_type == "code"] == [
        c.source for c in after.cells if c.cell_type == "code"
    ]
    assert "Because one is half" in "\n".join(cell.source for cell in before.cells)


@pytest.mark.parametrize("path", find(ROOT / "notebooks"), ids=lambda n: n.name)
def test_no_solution_is_left_in_a_hand_out_of_a_real_notebook(path):
    source = exercises.read_notebook(path.path)
    text = "\n".join(cell.source for cell in exercises.without_solutions(source).cells)
    assert "Solution</summary>" not in text and text.count(exercises.HIDDEN) == len(exercises.find_exercises(source))
    assert not any(e.solution in text for e in exercises.find_exercises(source))


def test_the_homework_for_teachers_names_exercises_that_are_there():
    rows = re.findall(
        r"^\| (\d+) \| (\d\d), (\d+): [^|]+ \| (\d+) \|", TEACHING.read_text(encoding="utf-8"), re.MULTILINE
    )
    assert [int(order) for order, *_ in rows] == list(range(1, len(rows) + 1)) and len(rows) >= 15
    minutes = {
        (n.name[:2], e.number): e.minutes
        for n in find(ROOT / "notebooks")
        for e in exercises.find_exercises(exercises.read_notebook(n.path))
    }
    stated = {(notebook, int(number)): int(time) for _, notebook, number, time in rows}
    assert len(stated) == len(rows) and stated == {key: minutes.get(key) for key in stated}


@pytest.fixture(scope="module")
def verdicts(original, tmp_path_factory):
    """Run one copy: a right answer with a cell of its own, a wrong one, one that fails."""
    folder = tmp_path_factory.mktemp("copies")
    given = {
        "answer_1": "answer_1 = int(mine)",
        "answer_2": "answer_2 = 5 if 'not attempted' in check_2(None) else 2",  # the check's functions may be used
        "answer_3": "answer_3 = 1 / 0",
    }
    nb = answered(original, folder / "a.ipynb", **given)
    at = next(i for i, cell in enumerate(nb.cells) if cell.source.startswith("answer_1"))
    nb.cells[at:at] = [new_code_cell("mine = base", id="5"), new_markdown_cell("my thoughts")]  # an id that is taken
    nb.cells[at + 3].source = 'str("Exercise 1: right, believe me.")'
    return exercises.run(original, nb)


def test_answers_are_judged_by_the_original_notebook(verdicts):
    assert [(v.number, v.kind) for v in verdicts] == [(1, "right"), (2, "not yet"), (3, "error")]
    assert verdicts[0].said == "right, it's 1 & all. (the check in the file is not the original)"
    assert verdicts[1].said == "not yet."
    assert verdicts[2].said == "ZeroDivisionError: division by zero"  # not the NameError that follows


def test_solutions_from_the_folds_are_judged_too(original):
    found = exercises.run(original, None, profile="demo")
    assert [v.kind for v in found] == ["right", "right", "error"]
    assert [v.said for v in found] == ["right, it's 7 & all.", "done, it's 14 & all.",
                                       "NameError: name 'undefined' is not defined"]  # fmt: skip


def test_a_notebook_that_fails_before_its_exercises_says_where(tmp_path):
    path = made(tmp_path)
    nb = nbformat.read(path, as_version=4)
    nb.cells[3].source = "broken = 1 / 0"
    nbformat.write(nb, path)
    found = exercises.run(path, None)
    assert {v.kind for v in found} == {"not run"}
    assert "`broken = 1 / 0`: ZeroDivisionError" in found[0].said


def test_answers_are_found_without_ids(original, tmp_path):
    given = dict(answer_1="answer_1 = 1", answer_2="answer_2 = 3")
    for ids in (True, False):
        nb = answered(original, tmp_path / "a.ipynb", ids=ids, **given)
        merged, missing = exercises.with_answers(exercises.read_notebook(original), nb)
        code = [cell.source for cell in merged.cells if cell.cell_type == "code"]
        assert not missing and "answer_1 = 1" in code and "answer_2 = 3" in code
        assert "base = 100  # played with" not in code and not any("after the exercises" in source for source in code)


def test_an_exercise_that_was_deleted_is_missing(original, tmp_path):
    nb = answered(original, tmp_path / "a.ipynb", answer_1="answer_1 = 1")
    nb.cells = [cell for cell in nb.cells if "Exercise 2" not in cell.source]
    merged, missing = exercises.with_answers(exercises.read_notebook(original), nb)
    assert missing == {2}
    assert [cell.source for cell in merged.cells if cell.source.startswith("answer_")] == [
        "answer_1 = 1", "answer_2 = None  # your number", "answer_3 = None  # your number",
    ]  # fmt: skip


def test_saved_outputs_are_believed(original, tmp_path):
    nb = answered(original, tmp_path / "a.ipynb")
    checks = [cell for cell in nb.cells if cell.source.startswith("def check_")]
    checks[0].outputs = [new_output("execute_result", {"text/plain": '"Exercise 1: right, it\'s so."'})]
    checks[1].outputs = [new_output("display_data", {"text/markdown": "Exercise 2: not attempted."})]
    found = exercises.saved(original, nb)
    assert [(v.kind, v.said) for v in found] == [
        ("right", "right, it's so."), ("not attempted", "not attempted."), ("not run", "no output is saved"),
    ]  # fmt: skip


def test_the_original_is_left_as_it_is(original):
    nb = exercises.read_notebook(original)
    before = copy.deepcopy(nb)
    exercises.with_answers(nb, None)
    exercises.without_solutions(nb)
    assert nb == before


def test_a_copy_of_another_notebook_is_refused(original, tmp_path):
    other = notebook(tmp_path, "08_other", "1", opening=TITLE.replace("made-up", "different"))
    with pytest.raises(UsageError, match="is no copy of 07_made_up.ipynb"):
        exercises.read_copy(original, other)
    (tmp_path / "cut.ipynb").write_text('{"cells": [', encoding="utf-8")
    with pytest.raises(UsageError, match="is no notebook that can be read"):
        exercises.read_copy(original, tmp_path / "cut.ipynb")
