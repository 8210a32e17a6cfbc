"""The exercises of a notebook: found, written without their solutions, and checked in the copies of a class.

An exercise is a statement ``**Exercise N (M minutes)...**`` in a text, cells for the answer, a cell whose check says
"not attempted" as long as there is none, and a fold ``<details><summary>Solution``. What a check says counts as
right if it begins with "right" or "done" after the exercise's number.
"""

from __future__ import annotations

import ast
import copy
import html
import itertools
import logging
import re
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode

from helpers.outline import UsageError, read
from helpers.runs import Job, explain, kernel_environment, run_notebook

logger = logging.getLogger(__name__)
STATEMENT = re.compile(r"\*\*Exercise (\d+) \((\d+) min[^)]*\)(.*?)\*\*\s*(.*?)(?=\n\s*\n|\Z)", re.DOTALL)
FOLD = re.compile(r"<details>\s*<summary>\s*Solution.*?</details>", re.DOTALL)
CODE = re.compile(r"```python\n(.*?)```", re.DOTALL)
HIDDEN = "*The solution is in the teacher's copy.*"
NOT_ATTEMPTED = "not attempted"
MARKER = "papermill-error-cell-tag"  # of a cell that papermill puts before one that failed
KINDS = ("right", "not yet", NOT_ATTEMPTED, "error", "not run", "missing")


@dataclass(frozen=True)
class Exercise:
    """Where an exercise stands in its notebook.

    Attributes:
        number, minutes, title: as the statement has them.
        statement, check: positions of the two cells; those between them are for the answer.
        solution: the code in the fold; may be empty.
    """

    number: int
    minutes: int
    title: str
    statement: int
    check: int
    solution: str


@dataclass(frozen=True)
class Verdict:
    """What became of one exercise: ``kind`` is one of :data:`KINDS`, ``said`` what the check or the error says."""

    number: int
    minutes: int
    title: str
    kind: str
    said: str


def read_notebook(path: Path) -> NotebookNode:
    """Read a notebook.

    Raises:
        UsageError: there is none, or it can't be read.
    """
    read(path)  # names what is wrong in one line
    return nbformat.read(path, as_version=4)


def write_notebook(notebook: NotebookNode, path: Path) -> None:
    """Write a notebook as those of the project are written."""
    nbformat.write(notebook, path)


def read_copy(original: Path, path: Path) -> NotebookNode:
    """Read somebody's copy of a notebook.

    Raises:
        UsageError: it can't be read, or is a copy of another notebook.
    """
    found, wanted = read_notebook(path), read(original)
    if read(path).title != wanted.title:
        raise UsageError(f"{path} is no copy of {original.name}: its title is not {wanted.title!r}")
    return found


def find_exercises(notebook: NotebookNode) -> list[Exercise]:
    """Return a notebook's exercises in order; a statement without a check is none."""
    places = [(i, m) for i, cell in enumerate(notebook.cells) if cell.cell_type == "markdown"
              for m in STATEMENT.finditer(FOLD.sub("", cell.source))]  # fmt: skip
    found = []
    for n, (start, match) in enumerate(places):
        stop = places[n + 1][0] + 1 if n + 1 < len(places) else len(notebook.cells)
        cells = range(start + 1, stop)
        check = next((i for i in cells if _code(notebook.cells[i]) and NOT_ATTEMPTED in notebook.cells[i].source), None)
        if check is not None:
            folds = [m[0] for i in cells if i > check for m in FOLD.finditer(notebook.cells[i].source)]
            code = CODE.search(folds[0]) if folds else None
            title = _title(match[3].strip(" .:\n") or match[4])
            found.append(Exercise(int(match[1]), int(match[2]), title, start, check, code[1] if code else ""))
    return found


def _title(text: str) -> str:
    sentence = " ".join(text.split())
    return re.split(r"(?<=[.?!])\s", sentence, maxsplit=1)[0].rstrip(".")[:70]


def _code(cell: NotebookNode) -> bool:
    return cell.cell_type == "code"


def without_solutions(notebook: NotebookNode) -> NotebookNode:
    """Return a copy in which a line stands where solutions were folded away."""
    hidden = copy.deepcopy(notebook)
    for cell in hidden.cells:
        if cell.cell_type == "markdown":
            cell.source = FOLD.sub(HIDDEN, cell.source)
    return hidden


def with_answers(original: NotebookNode, answers: NotebookNode | None) -> tuple[NotebookNode, set[int]]:
    """Return the original up to its last check with the answers of a copy put in, and the exercises not found there.

    Cells are matched by what is in them, or by id where that was changed. A copy's other cells are left aside. An
    error in an answer doesn't stop the notebook. The functions of a check come before the answer, too: whoever
    answers has run the check by then, and may have used them.

    Args:
        original: the notebook as the project has it.
        answers: somebody's copy; None: the solutions in the original's own folds.
    """
    merged, exercises, missing = copy.deepcopy(original), find_exercises(original), set()
    del merged.cells[exercises[-1].check + 1 :]
    for exercise in exercises[::-1]:  # from the end, so that positions before it stay
        between = slice(exercise.statement + 1, exercise.check)
        own = _between(original, exercise, answers)
        if own is None:
            missing.add(exercise.number)
            own = merged.cells[between]
        check = merged.cells[exercise.check]
        cells = [nbformat.v4.new_code_cell(_definitions(check.source)), *copy.deepcopy(own), check]
        for cell in cells:
            cell.metadata["tags"] = [*cell.metadata.get("tags", []), "raises-exception"]
        merged.cells[exercise.statement + 1 : exercise.check + 1] = cells
    for n, cell in enumerate(merged.cells):
        cell["id"] = f"cell-{n}"  # a copy's new cells may bear an id that is taken
        if _code(cell):
            cell.outputs, cell.execution_count = [], None
    return merged, missing


def _definitions(source: str) -> str:
    """Return the functions and imports of a cell, without what it does."""
    kinds = ast.FunctionDef | ast.ClassDef | ast.Import | ast.ImportFrom
    return "\n\n".join(ast.unparse(node) for node in ast.parse(source).body if isinstance(node, kinds))


def _between(original: NotebookNode, exercise: Exercise, answers: NotebookNode | None) -> list[NotebookNode] | None:
    """Return the code cells in which an exercise is answered; None where a copy has lost its place."""
    if answers is None:
        cells = original.cells[exercise.statement + 1 : exercise.check]
        return [*cells, nbformat.v4.new_code_cell(exercise.solution)]
    start, stop = (_place(answers, original.cells[i]) for i in (exercise.statement, exercise.check))
    if start is None or stop is None or stop <= start:
        return None
    return [cell for cell in answers.cells[start + 1 : stop] if _code(cell)]


def _place(notebook: NotebookNode, wanted: NotebookNode) -> int | None:
    """Return where a cell of the original stands in a copy."""
    same = [i for i, cell in enumerate(notebook.cells) if cell.cell_type == wanted.cell_type]
    by_id = [i for i in same if notebook.cells[i].get("id") == wanted.get("id")]
    texts = {wanted.source.strip(), FOLD.sub(HIDDEN, wanted.source).strip()}
    by_source = [i for i in same if notebook.cells[i].source.strip() in texts]
    return next(iter(by_source + by_id), None)


def run(
    original: Path, answers: NotebookNode | None, *, profile: str = "quick", timeout: int = 900, progress: bool = False
) -> list[Verdict]:
    """Run a notebook with somebody's answers in it, in a scratch folder, and return what its checks say.

    Args:
        original: the notebook as the project has it.
        answers: a copy read by :func:`read_copy`; None: the solutions in the original's own folds.
        profile: the size of the run, where the notebook has sizes.
        timeout: seconds that one cell may take.
        progress: say that it runs.
    """
    source = read_notebook(original)
    merged, missing = with_answers(source, answers)
    with tempfile.TemporaryDirectory(prefix="exercises-") as folder:
        path = Path(folder) / original.name
        write_notebook(merged, path)
        outline = read(path)
        parameters = {"profile": profile} if "profile" in outline.parameters else {}
        job = Job(outline, parameters, Path(folder) / "build", timeout)
        problem = ""
        if progress:
            logger.info("running %s%s", original.stem, f" (profile {profile})" if parameters else "")
        try:
            with kernel_environment(job.build, online=False):
                run_notebook(job, {})
        except Exception as error:  # papermill, nbclient and the kernel raise what they like; answers may too
            problem = explain(job, error)
        ran = next((p for p in (job.executed, job.beside("failed")) if p.exists()), path)
        executed = nbformat.read(ran, as_version=4)
    executed.cells = [c for c in executed.cells if MARKER not in c.metadata.get("tags", [])]
    changed = set() if answers is None else _changed(source, answers)
    return [_verdict(e, source.cells[e.check], executed, e.number in missing, e.number in changed, problem)
            for e in find_exercises(source)]  # fmt: skip


def saved(original: Path, answers: NotebookNode) -> list[Verdict]:
    """Return what the checks said when a copy was last run and saved; nothing is run."""
    source, verdicts = read_notebook(original), []
    changed = _changed(source, answers)
    for exercise in find_exercises(source):
        missing = _between(source, exercise, answers) is None
        check = source.cells[exercise.check]
        place = _place(answers, check)
        at = check if place is None else answers.cells[place]
        verdicts.append(_verdict(exercise, at, answers, missing, exercise.number in changed, "no output is saved"))
    return verdicts


def _changed(original: NotebookNode, answers: NotebookNode) -> set[int]:
    """Return the exercises whose check cell was changed in a copy."""
    found = set()
    for exercise in find_exercises(original):
        check = original.cells[exercise.check]
        place = _place(answers, check)
        if place is not None and answers.cells[place].source.strip() != check.source.strip():
            found.add(exercise.number)
    return found


def _verdict(
    exercise: Exercise, check: NotebookNode, executed: NotebookNode, missing: bool, changed: bool, problem: str
) -> Verdict:
    about = exercise.number, exercise.minutes, exercise.title
    if missing:
        return Verdict(*about, "missing", "its statement or its check is not in the file")
    at = next((n for n, cell in enumerate(executed.cells) if _code(cell) and cell.source == check.source), None)
    said = [] if at is None else list(_said(executed.cells[at].outputs))
    if at is None or not said:
        return Verdict(*about, "not run", problem)
    kind, text = said[-1]
    if kind == "said":
        text = re.sub(rf"^Exercise {exercise.number}\b\W*", "", text)
        kind = "right" if re.match(r"(right|done)\b", text) else "not yet"
        kind = NOT_ATTEMPTED if text.startswith(NOT_ATTEMPTED) else kind
    own = _errors(executed.cells[:at])
    if own and kind in ("error", NOT_ATTEMPTED):
        kind, text = "error", own[0]  # the check only complains of what follows from it
    return Verdict(*about, kind, text + (" (the check in the file is not the original)" if changed else ""))


def _errors(cells: Sequence[NotebookNode]) -> list[str]:
    """Return the errors of the code cells at the end of a list."""
    own = list(itertools.takewhile(_code, reversed(cells)))[::-1]
    return [text for cell in own for kind, text in _said(cell.outputs) if kind == "error"]


def _said(outputs: Sequence[Any]) -> Iterator[tuple[str, str]]:
    """Yield what a cell's outputs say: ("said", text) or ("error", text)."""
    for output in outputs:
        if output.output_type == "error":
            yield "error", f"{output.ename}: {output.evalue}"
            continue
        data = output.get("data", {})
        text = data.get("text/markdown") or data.get("text/plain") or output.get("text", "")
        if output.output_type == "execute_result" and text[:1] in ("'", '"') and "text/markdown" not in data:
            text = str(ast.literal_eval(text))  # a string as a cell's last value
        if text.strip():
            yield "said", html.unescape(" ".join(text.split()))
