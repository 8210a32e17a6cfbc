"""Labelled sentences as one tidy table: the four GLUE tasks of section 4.1, bundled, from a folder or from the hub.

``load("sst2")`` reads this project's own sentences (see data/README.md), ``load("mnli", "path/to/glue")``
the real ones from a folder, and ``load("rte", "hub")`` downloads them with ``datasets``. Whatever the
source, a row is an example and the columns are those of :data:`COLUMNS`. A file of your own is read
with :func:`read`. Files are UTF-8, tab-separated and unquoted: a ``"`` is an ordinary character, as in
GLUE. What is wrong with a file is told with its line numbers.
"""

from __future__ import annotations

import logging
import os
import re
import warnings
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import pandas as pd

logger = logging.getLogger(__name__)

PROJECT = Path(__file__).resolve().parent.parent
BUNDLED = PROJECT / "data" / "corpora"

COLUMNS = ("first", "second", "label", "label_id", "split", "phenomenon", "pair")
"""The columns of every table: the text ``first``, and ``second`` ("" for a single sentence); ``label`` by name
and ``label_id``, its number in GLUE's order; ``split``; and for the bundled sentences the ``phenomenon`` that
makes one hard and the ``pair`` of near-twins it belongs to ("" where there is none)."""

_TEXT_COLUMNS = {
    "single": (("sentence",),),
    "pair": (("sentence1", "sentence2"), ("premise", "hypothesis"), ("#1 String", "#2 String")),
}
_LABEL_COLUMNS = ("gold_label", "label", "Quality")
_EXTRA_COLUMNS = ("phenomenon", "pair")
_USUAL_COLUMNS = {"text", "review", "stars", "class", "score", "rating", "id", "index"}
_USUAL_COLUMNS |= {name.casefold() for choices in _TEXT_COLUMNS.values() for names in choices for name in names}
_USUAL_COLUMNS |= {name.casefold() for name in (*_LABEL_COLUMNS, *COLUMNS)}
_NO_GOLD = "-"  # MNLI's annotators did not agree


@dataclass(frozen=True)
class Task:
    """A GLUE task.

    Attributes:
        name: as :func:`load` takes it.
        columns: the text columns in GLUE's files; other usual names are understood too.
        labels: label names in GLUE's order: a label's number is its index here.
        folders: names that the folder with the task's files goes by.
        files: the file of a split in GLUE's folder, where that is not ``<split>.tsv``.
        hub_splits: the hub's name of each split.
        hub_id: dataset on the hub; its configuration is ``name``, its commit ``revision``.
    """

    name: str
    columns: tuple[str, ...]
    labels: tuple[str, ...]
    folders: tuple[str, ...]
    files: Mapping[str, str] = field(default_factory=dict, hash=False)
    hub_splits: Mapping[str, str] = field(
        default_factory=lambda: {"train": "train", "dev": "validation", "test": "test"}, hash=False
    )
    hub_id: str = "nyu-mll/glue"
    revision: str = "bcdcba79d07bc864c1c254ccfcedcce55bcc9a8c"

    @property
    def kind(self) -> Literal["single", "pair"]:
        """Whether an example is one sentence or a pair of them."""
        return "single" if len(self.columns) == 1 else "pair"


_MNLI_ON_HUB = {
    "train": "train",
    "dev": "validation_matched",
    "dev_mismatched": "validation_mismatched",
    "test": "test_matched",
}
_TASKS = (
    Task("sst2", ("sentence",), ("negative", "positive"), ("sst2", "SST-2")),
    Task(
        "mnli",
        ("sentence1", "sentence2"),
        ("entailment", "neutral", "contradiction"),
        ("mnli", "MNLI"),
        files={"dev": "dev_matched.tsv", "test": "test_matched.tsv"},
        hub_splits=_MNLI_ON_HUB,
    ),
    Task("rte", ("sentence1", "sentence2"), ("entailment", "not_entailment"), ("rte", "RTE")),
    Task(
        "mrpc",
        ("#1 String", "#2 String"),
        ("not_equivalent", "equivalent"),
        ("mrpc", "MRPC"),
        files={"test": "msr_paraphrase_test.txt"},  # as first released: GLUE's own test.tsv has no labels
    ),
)
TASKS: Mapping[str, Task] = {task.name: task for task in _TASKS}


class _Table(NamedTuple):
    """Columns as found, with the number that the file or dataset gives every row."""

    source: str
    unit: str
    numbers: Sequence[int]
    header: Sequence[str]
    columns: Mapping[str, Sequence[str]]


class ColumnError(ValueError):
    """A file lacks the column ``column``; None where any of several would have done."""

    def __init__(self, message: str, column: str | None = None) -> None:
        super().__init__(message)
        self.column = column


def load(
    task: str, source: str | os.PathLike = "bundled", *, split: str = "dev", limit: int | None = None, seed: int = 0
) -> pd.DataFrame:
    """Return a split of a task as a table with the columns :data:`COLUMNS`, in the order of its file.

    Args:
        task: a name in :data:`TASKS`.
        source: ``"bundled"``, ``"hub"``, or a folder: the task's own, or one that holds a folder per task,
            as GLUE comes (``SST-2/dev.tsv``) or by task name (``sst2/dev.tsv``). A relative folder is
            looked for from the working directory, then from the project's root.
        split: ``"train"``, ``"dev"`` or ``"test"``; for MNLI ``"dev"`` is the matched one, and there is
            ``"dev_mismatched"``. In a folder any other ``<split>.tsv`` can be asked for by name.
        limit: at most so many rows, see :func:`sample`; all if None.
        seed: of the sample.

    Raises:
        ValueError: the task, the limit or the content is not as it should be.
        FileNotFoundError: no such folder, no files of the task in it, or no such split.
        ConnectionError: the hub could not be read; the message names the choices without a network.

    Example:
        >>> load("sst2", limit=100)["label"].tolist().count("positive")
        50
    """
    if task not in TASKS:
        raise ValueError(f"There is no task {task!r}. Tasks: {', '.join(TASKS)}.")
    if not isinstance(source, str | os.PathLike) or not os.fspath(source).strip():
        raise ValueError(f'source is {source!r}: give "bundled", "hub", or the path of a folder.')
    _check_sample(limit, seed)
    known = TASKS[task]
    choices = _TEXT_COLUMNS[known.kind]
    if source == "hub":
        table, labelled = _from_hub(known, split), [name for name in known.hub_splits if name != "test"]
    else:
        folder = _task_folder(known, source)
        wanted = {*_LABEL_COLUMNS, *_EXTRA_COLUMNS}.union(*choices)
        table, labelled = _from_file(_split_file(known, folder, split), wanted), _labelled(folder)
    names = next((names for names in choices if set(names) <= set(table.columns)), None)
    if names is None:
        raise _no_column(table, f"the text of {task}: {' or '.join(' and '.join(names) for names in choices)}")
    label = next((name for name in _LABEL_COLUMNS if name in table.columns), None)
    if label is None or set(table.columns[label]) <= {"-1", ""}:
        raise ValueError(
            f"{table.source} has no labels (GLUE keeps those of its test sets to itself). "
            f"Splits with labels here: {', '.join(labelled) or 'none'}."
        )
    frame = _tidy(table, names, label, known.labels, skip=_NO_GOLD if task == "mnli" else None)
    return sample(frame.assign(split=split), limit, seed=seed)


def read(
    path: str | os.PathLike,
    *,
    first: str,
    second: str | None = None,
    label: str | None = None,
    labels: Sequence[str] | None = None,
) -> pd.DataFrame:
    """Read a tab-separated file of your own into the same table as :func:`load`.

    Warns where texts look quoted, as spreadsheets write them: the quotes are kept.

    Args:
        path: a UTF-8 file with a header line, unquoted. A relative path is looked for from the working directory, then
            from the project's root.
        first: the column with the text.
        second: the column with the second text of a pair.
        label: the column with the label; without it ``label`` is "" and ``label_id`` is -1.
        labels: label names in order; a number in the file is an index into them. If None, the names found
            in the file, sorted.

    Raises:
        ValueError: the content is not as it should be, with line numbers: among others a column that is missing or
            there twice, a label that is empty, or commas instead of tabs.
        FileNotFoundError: no such file; the message names the places looked in.
    """
    names = (first,) if second is None else (first, second)
    table = _from_file(own_file(path), {*names, label, *_EXTRA_COLUMNS})
    for name in (*names, label):
        if name is not None and name not in table.columns:
            raise _no_column(table, repr(name), name)
    _warn_of_quotes(table)
    if label is not None and labels is None:
        labels = sorted(set(table.columns[label]) - {""})
    return _tidy(table, names, label, labels or ()).assign(split=Path(path).stem)


def texts(frame: pd.DataFrame) -> list[str] | list[tuple[str, str]]:
    """Return what ``attribute`` and ``predict`` take: the sentences, or the (first, second) pairs, in row order.

    Raises:
        ValueError: some rows are pairs and others are not.
    """
    paired = frame["second"] != ""
    if not paired.any():
        return frame["first"].tolist()
    if not paired.all():
        raise ValueError(f"{(~paired).sum()} of {len(frame)} rows have no second text: give one kind at a time.")
    return list(zip(frame["first"], frame["second"], strict=True))


def sample(frame: pd.DataFrame, limit: int | None, *, seed: int = 0) -> pd.DataFrame:
    """Draw ``limit`` rows at random, each label in its share, and keep their order; all of them if ``limit`` is None.

    Each label's rows are shuffled and spread evenly over [0, 1), and the first ``limit`` of all are
    kept. So a smaller sample with the same seed is part of a larger one.

    Raises:
        ValueError: ``limit`` is not a whole number above 0, or ``seed`` not one from 0 on.
    """
    _check_sample(limit, seed)
    if limit is None or limit >= len(frame):
        return frame
    shuffled = np.random.default_rng(seed).permutation(len(frame))
    labels = frame["label_id"].iloc[shuffled].reset_index(drop=True)
    same = labels.groupby(labels)
    position = (same.cumcount() + 0.5) / same.transform("size")
    kept = shuffled[np.argsort(position, kind="stable")[:limit]]
    return frame.iloc[np.sort(kept)].reset_index(drop=True)


def _check_sample(limit: int | None, seed: int) -> None:
    for name, value, least in (("limit", 1 if limit is None else limit, 1), ("seed", seed, 0)):
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
            raise ValueError(f"{name} is {value!r}: give a whole number of at least {least}.")


def _tidy(
    table: _Table, names: Sequence[str], label: str | None, labels: Sequence[str], *, skip: str | None = None
) -> pd.DataFrame:
    """Check texts and labels and give the columns their names; rows labelled ``skip`` are left out."""
    blank = [""] * len(table.numbers)
    found = dict(zip(("first", "second"), (table.columns[name] for name in names), strict=False))
    found |= {name: table.columns[name] for name in _EXTRA_COLUMNS if name in table.columns}
    frame = pd.DataFrame({name: found.get(name, blank) for name in COLUMNS})
    for column, name in zip(("first", "second"), names, strict=False):
        if (empty := frame[column] == "").any():
            raise ValueError(f"{_at(table, empty)}: column {name!r} is empty. Fill it in or take the row out.")
    if label is None:
        return frame.assign(label_id=-1)
    given = pd.Series(table.columns[label])
    if (empty := given == "").any():
        raise ValueError(
            f"{_at(table, empty)}: label column {label!r} is empty. Fill it in, take the row out, or read the table "
            "without its labels."
        )
    ids = {name: number for number, name in enumerate(labels)}
    number = given.map({str(i): i for i in ids.values()} | ids)  # a name that looks like a number is a name
    unknown = number.isna() & (given != skip)
    if unknown.any():
        raise ValueError(
            f"{_at(table, unknown)}: unknown label {given[unknown.idxmax()]!r}. Labels: "
            f"{', '.join(f'{name} or {i}' for name, i in ids.items())}."
        )
    kept = number.notna()
    if not kept.all():
        logger.warning("%s: left out %d rows whose label is %r, none agreed", table.source, (~kept).sum(), skip)
    number = number[kept].to_numpy(dtype=np.int64)
    return frame[kept].assign(label=np.take(labels, number), label_id=number).reset_index(drop=True)


def _at(table: _Table, wrong: Iterable[bool]) -> str:
    """Say which rows are wrong: the file and their first few line numbers."""
    return _lines(table.source, table.unit, [n for n, bad in zip(table.numbers, wrong, strict=True) if bad])


def _lines(source: str | os.PathLike, unit: str, numbers: Sequence[int]) -> str:
    more = f" and {len(numbers) - 5} more" if len(numbers) > 5 else ""
    return f"{source}, {unit}{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers[:5]))}{more}"


def _no_column(table: _Table, wanted: str, column: str | None = None) -> ColumnError:
    found = ", ".join(map(repr, table.header))
    told = f"{table.source} has no column for {wanted}. Columns found, split at tabs: {found}."
    if table.unit != "line":
        return ColumnError(told, column)
    names = {name.strip(' "').casefold() for cell in table.header for name in re.split("[,;]", cell)}
    if not names & _USUAL_COLUMNS:
        told += " If that is a row of yours, add a header line first, such as: review<TAB>label."
    if any(len(name) > 1 and name[0] == name[-1] == '"' for name in table.header):
        told += _unquote(table.source)
    told += _no_tabs(table.source, table.header)
    return ColumnError(told, column)


def _no_tabs(source: str | os.PathLike, header: Sequence[str]) -> str:
    """Say what separates the columns, where it isn't tabs, and how to write the file with tabs; "" where it is."""
    kinds = {",": "comma", ";": "semicolon"}
    mark = next((mark for mark in kinds if len(header) == 1 and mark in header[0]), None)
    if mark is None:
        return ""
    return (
        f" The header has {kinds[mark]}s and no tab, so the file looks {kinds[mark]}-separated. To save it "
        f"tab-separated and unquoted, run in Python: {command_for_tabs(source, mark)}"
    )


def _unquote(source: str | os.PathLike) -> str:
    return (
        " If a spreadsheet quoted it, then to write it unquoted into another file run in Python: "
        f"{command_for_tabs(source, chr(9), ending='.plain.tsv')}"
    )


def command_for_tabs(source: str | os.PathLike, mark: str, *, ending: str = ".tabs.tsv") -> str:
    """Return a line of Python that writes a quoted file, split at ``mark``, tab-separated and unquoted into another."""
    options = f"sep={mark!r}, dtype=str, keep_default_na=False"  # "NA" and 007 are texts too
    return (
        f"import pandas; pandas.read_csv({os.fspath(source)!r}, {options})"
        rf".replace(r'\s+', ' ', regex=True).to_csv({os.fspath(Path(source).with_suffix(ending))!r}, sep='\t', "
        "index=False, quoting=3)"
    )


def guess_encoding(path: str | os.PathLike) -> str:
    """Say what a file that isn't UTF-8 may be, with a line of Python that writes it as UTF-8 into another file."""
    path = Path(path)
    with path.open("rb") as file:
        wide = file.read(2) in (b"\xff\xfe", b"\xfe\xff")
    told = ": it looks like UTF-16. To" if wide else ". If it comes from Windows in a Western European language, to"
    return (
        f"{told} save it as UTF-8 run in Python: from pathlib import Path; "
        f"Path({os.fspath(path.with_suffix(f'.utf8{path.suffix}'))!r}).write_bytes(Path({os.fspath(path)!r})"
        f".read_bytes().decode({'utf-16' if wide else 'cp1252'!r}).encode())"
    )


def _warn_of_quotes(table: _Table) -> None:
    """Warn of fields in quotes with every quote inside doubled; plain quotes at both ends are part of a text."""
    found = set()
    for values in table.columns.values():
        for number, value in zip(table.numbers, values, strict=True):
            inside = value[1:-1]
            if '""' in inside and value[0] == value[-1] == '"' and '"' not in inside.replace('""', ""):
                found.add(number)
    if found:
        warnings.warn(
            f"{_lines(table.source, table.unit, sorted(found))}: text in quotes, with those inside doubled. All quotes "
            f"are kept as text.{_unquote(table.source)}",
            UserWarning,
            stacklevel=3,
        )


def own_file(path: str | os.PathLike) -> Path:
    """Find a file of one's own, from the working directory or the project's root."""
    given = Path(path).expanduser()
    places = given, PROJECT / given
    found = next((place for place in places if place.is_file()), None)
    if found is None:
        folder = " It is a folder: give the file in it." if any(place.is_dir() for place in places) else ""
        looked = dict.fromkeys(str(place.absolute()) for place in places)  # an absolute path is one place
        raise FileNotFoundError(f"There is no file {os.fspath(path)}.{folder} Looked at {' and at '.join(looked)}.")
    return found


def _from_file(path: Path, wanted: Container[str | None]) -> _Table:
    """Read the wanted columns of a file, blank lines left out.

    Not by :mod:`pandas`, which fills up short rows in silence and ends a line at a stray carriage return.
    """
    numbers: list[int] = []
    wrong: dict[int, list[bytes]] = {}
    with path.open("rb") as file:
        header = _decode(path, 1, file.readline().removeprefix(b"\xef\xbb\xbf").split(b"\t"))
        if twice := [name for name in header if name in wanted and header.count(name) > 1]:
            raise ValueError(f"{path} has {header.count(twice[0])} columns named {twice[0]!r}: rename all but one.")
        places = {name: header.index(name) for name in header if name in wanted}
        columns: dict[str, list[str]] = {name: [] for name in places}
        for number, line in enumerate(file, start=2):
            if not (line := line.rstrip(b"\r\n")):
                continue
            fields = line.split(b"\t")
            if len(fields) != len(header):
                wrong[number] = fields
                continue
            numbers.append(number)
            values = _decode(path, number, [fields[place] for place in places.values()])
            for column, value in zip(columns.values(), values, strict=True):
                column.append(value)
    if wrong:
        raise ValueError(
            f"{path}, {_wrong_widths(wrong)}; the header has {len(header)}: {', '.join(header)}."
            f"{_no_tabs(path, header) or _quotes_in(path, wrong)}"
        )
    if not numbers:
        raise ValueError(f"{path} has no rows: it is empty, or a header line alone.")
    return _Table(str(path), "line", numbers, header, columns)


def _wrong_widths(wrong: Mapping[int, Sequence[bytes]]) -> str:
    told = [f"line {n}: {len(row)} field{'s' if len(row) > 1 else ''}" for n, row in list(wrong.items())[:5]]
    return ", ".join(told) + (f" and {len(wrong) - 5} more lines" if len(wrong) > 5 else "")


def _quotes_in(path: Path, wrong: Mapping[int, Sequence[bytes]]) -> str:
    """How to mend a quoted file, whose fields may hold tabs and line ends; "" where no row begins with a quote mark."""
    return _unquote(path) if any(row[0].startswith(b'"') for row in wrong.values()) else ""


def _decode(path: Path, number: int, fields: Sequence[bytes]) -> list[str]:
    try:
        return [value.decode("utf-8").strip() for value in fields]
    except UnicodeDecodeError:
        raise ValueError(f"{path}, line {number}: not UTF-8{guess_encoding(path)}") from None


def _task_folder(task: Task, source: str | os.PathLike) -> Path:
    """Find the folder with the task's files: one in the folder given, or that folder itself."""
    given = BUNDLED if source == "bundled" else Path(source).expanduser()
    root = next((place for place in (given.resolve(), (PROJECT / given).resolve()) if place.is_dir()), None)
    if root is None:
        is_file = given.is_file()
        problem = "is a file: a file of your own is read with read(path, first=...)" if is_file else "is not there"
        raise FileNotFoundError(
            f'{given.resolve()} {problem}. source is "bundled", "hub", or a folder with files as GLUE has them.'
        )
    # MRPC's files would pass for RTE's: a folder that goes by another task's name is not taken
    others = {name for other in _TASKS if other is not task for name in other.folders}
    own = [] if root.name in others else [root]
    folder = next((place for place in [root / name for name in task.folders] + own if any(place.glob("*.tsv"))), None)
    if folder is None:
        there = sorted(path.name for path in root.iterdir())
        raise FileNotFoundError(
            f"No files of {task.name} in {root}. Looked for a folder {' or '.join(task.folders)}"
            f"{', and for train.tsv or dev.tsv' if own else ' (this one is named for another task)'}. "
            f"There: {', '.join(there[:10]) or 'nothing'}{', ...' if len(there) > 10 else ''}."
        )
    return folder


def _split_file(task: Task, folder: Path, split: str) -> Path:
    names = [name for name in (task.files.get(split), f"{split}.tsv") if name]
    found = next((folder / name for name in names if (folder / name).is_file()), None)
    if found is None:
        there = ", ".join(sorted(path.stem for path in folder.glob("*.tsv")))
        raise FileNotFoundError(f"No split {split!r} of {task.name} in {folder}. Splits there: {there}.")
    return found


def _labelled(folder: Path) -> list[str]:
    """Name the splits of a folder whose header has a label column."""
    labelled = []
    for path in sorted(folder.glob("*.tsv")):
        with path.open(encoding="utf-8-sig", errors="replace") as file:
            if set(_LABEL_COLUMNS) & set(file.readline().rstrip("\r\n").split("\t")):
                labelled.append(path.stem)
    return labelled


def _from_hub(task: Task, split: str) -> _Table:
    """Read a split of GLUE from the hub or its local cache; label numbers become the names they have there."""
    if split not in task.hub_splits:
        raise ValueError(f"The hub has no split {split!r} of {task.name}. Splits: {', '.join(task.hub_splits)}.")
    from helpers.hub import fetch  # slow to import, and needed for this source alone

    name = task.hub_splits[split]
    files = f"{task.name}/{name}-*.parquet"
    bundled = ", ".join(name for name in TASKS if any((BUNDLED / name).glob("*.tsv")))
    instead = f'Without a network give source="bundled" (which has {bundled}), or the folder of your GLUE files.'
    folder = fetch(
        task.hub_id, task.revision, files=("README.md", files), needs=(files, "README.md"), instead=instead,
        kind="dataset",
    )  # fmt: skip
    from datasets import Dataset
    from datasets.info import DatasetInfosDict

    features = DatasetInfosDict.from_directory(str(folder))[task.name].features
    dataset = Dataset.from_parquet([str(path) for path in sorted(folder.glob(files))], features=features)
    values = dataset[:]
    names = getattr(dataset.features["label"], "names", None)
    if names is not None:
        values["label"] = [names[i] if i >= 0 else "-1" for i in values["label"]]
    columns = {name: [str(value).strip() for value in column] for name, column in values.items()}
    return _Table(f"{task.hub_id} {task.name} {name}", "row", range(dataset.num_rows), list(columns), columns)
