"""What can be done without opening a notebook: ``python -m helpers --help``.

``explain`` explains texts and writes a page, ``attribute`` explains any number of them onto disk, ``check`` says which
exercises of a notebook are solved, ``exercises`` writes the notebooks without their solutions. All of it is the
helpers' own functions.
"""

from __future__ import annotations

import argparse
import csv
import importlib.metadata
import io
import logging
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from helpers.outline import PROFILES, UsageError, find
from helpers.records import ROOT, write_json

logger = logging.getLogger("helpers.cli")
NOTEBOOKS = ROOT / "notebooks"
EXPLAIN = """\
examples:
  python -m helpers explain "A slow start, but a wonderful end." --html one.html
  python -m helpers explain "It rained all day." --pair "The day was dry." --model minilm-mnli --json one.json
  python -m helpers explain --file texts.tsv --text-column sentence --html many.html --save scores/

A file is a table, tab-separated, with a header (.tsv), or one text a line (any other name).
The strongest links are printed; with --quiet not where a file is written.
Exit status: 0 done, 1 it failed, 2 wrong arguments, or no such file.
"""
ATTRIBUTE = """\
examples:
  python -m helpers attribute texts.tsv scores/ --text-column sentence --jobs 2
  python -m helpers attribute sentences.txt scores/ --model minilm-sst2 --steps 6 --rule gauss

The file is read as by explain. The same line again, after a kill or with more texts at the end of the file, does what
is left. helpers.stream.open_dataset("scores/") reads the results; notebooks/CLUSTER.md says how to use a cluster.
"""
CHECK = """\
examples:
  python -m helpers check 03                            the copy in notebooks/
  python -m helpers check 03 hand-ins/*.ipynb           many copies, one after the other
  python -m helpers check 03 hand-ins/*.ipynb --saved   what their last runs say; nothing is run

Checking runs the notebook of this project with the answers from the copy put in, so what else was changed in the copy
doesn't matter. It runs the code of whoever wrote the answers, on this machine: --saved doesn't, and believes
the file. Exit status: 0 all exercises right, 1 not all, 2 wrong arguments, or no such file.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return 0, 1 for what failed, 2 for what was asked wrongly, 130 if interrupted."""
    options = _parser().parse_args(argv)
    logging.basicConfig(format="%(message)s", stream=sys.stderr)
    logging.getLogger("helpers").setLevel(logging.WARNING if getattr(options, "quiet", False) else logging.INFO)
    os.environ.setdefault("MPLBACKEND", "Agg")  # pictures go into files
    try:
        return options.run(options)
    except UsageError as error:
        return _complain(error, 2)
    except KeyboardInterrupt:
        return _complain("interrupted", 130)
    except Exception as error:  # whatever failed: a line says more here than a page of Python
        logger.debug("%s failed", options.command, exc_info=True)
        return _complain(error if str(error).strip() else type(error).__name__, 1)


def _complain(problem: object, status: int) -> int:
    sys.stderr.write(f"error: {' '.join(str(problem).split())}\n")
    return status


# ---- explain ---------------------------------------------------------------------------------------------------------


def explain(options: argparse.Namespace) -> int:
    """Explain the texts and write what was asked for."""
    outputs = _free([options.html, options.json, options.arrow], [options.save], force=options.force)
    if options.links < 1:
        raise UsageError(f"--links is {options.links}: give a whole number of at least 1")
    _check_steps(options.steps)
    texts, left_out = _texts(options)
    _check_model(options.model, texts)
    logger.info("loading %s", options.model)
    with _warnings_as_lines():
        from helpers.attribution import attribute
        from helpers.models import load

        classifier = load(options.model, device=options.device, revision=options.revision)
        many: Any = attribute(
            classifier.model,
            classifier.tokenizer,
            texts,
            target=_number_or_name(options.target),
            steps=_number_or_name(options.steps),
            rule=options.rule,
            output=options.output,
            progress=not options.quiet,
        )
        probabilities = classifier.predict(texts)
        if left_out:
            logger.info("explained are the first %d texts of %d; --limit takes more", len(texts), len(texts) + left_out)
        _write(options, many, probabilities)
    if not outputs or not options.quiet:
        sys.stdout.write(_listing(many, options.links))
    for path in outputs:
        logger.info("written: %s", path)
    return 0


def to_disk(options: argparse.Namespace) -> int:
    """Attribute all texts of a file into a folder."""
    _check_steps(options.steps)
    texts = _read(options)
    _check_model(options.model, texts)
    with _warnings_as_lines():
        from helpers.stream import attribute_dataset

        stored = attribute_dataset(
            options.model,
            None,
            texts,
            options.folder,
            target=_number_or_name(options.target),
            steps=_number_or_name(options.steps),
            rule=options.rule,
            output=options.output,
            shard=options.shard,
            n_jobs=options.jobs,
            progress=not options.quiet,
        )
    logger.info("%s", stored)
    return 0


def _free(files: Sequence[Path | None], folders: Sequence[Path | None] = (), *, force: bool) -> list[Path]:
    """Return the files and folders that were asked for; an error where one is there already or can't be written."""
    asked = [path for path in (*files, *folders) if path is not None]
    if len({path.absolute() for path in asked}) < len(asked):
        raise UsageError(f"{', '.join(map(str, asked))}: one of them would be written over by another")
    for path in asked:
        if path.exists() and path.is_dir() == (path in files):
            raise UsageError(f"{path} is a {'folder' if path.is_dir() else 'file'}: give another name")
        if path.exists() and not force:
            raise UsageError(f"{path} is there already: give another name, or --force to write over it")
        if not path.absolute().parent.is_dir():
            raise UsageError(f"there is no folder {path.absolute().parent} to write {path.name} into")
    return asked


def _texts(options: argparse.Namespace) -> tuple[list[Any], int]:
    """Return the texts to explain, and how many more there were."""
    if bool(options.text) == bool(options.file):
        raise UsageError("give either texts or --file")
    if len(options.text) == 1 and not options.text[0].strip():
        raise UsageError("The text is empty or blank")
    if options.pair is not None and len(options.text) != 1:
        raise UsageError("--pair goes with one text; for many pairs give --file and --pair-column")
    if options.pair is not None:
        return [(options.text[0], options.pair)], 0
    texts = list(options.text) if options.text else _read(options)
    limit = len(texts) if options.text else options.limit
    if limit < 1:
        raise UsageError(f"--limit is {limit}: give a whole number of at least 1")
    return texts[:limit], max(0, len(texts) - limit)


def _check_steps(steps: str) -> None:
    number = _number_or_name(steps)
    if number != "auto" and (isinstance(number, str) or number < 1):
        raise UsageError(f"--steps is {steps}: give auto or a whole number of at least 1")


def _check_model(model: str, texts: Sequence[Any]) -> None:
    """An error where there is no such model, or a registered one of pairs is given single texts or vice versa."""
    from helpers.data import TASKS
    from helpers.registry import REGISTRY

    if model not in REGISTRY and "/" not in model and not (model and Path(model).is_dir()):
        raise UsageError(f"There is no model {model!r}: give a folder, a hub id, or one of {', '.join(REGISTRY)}.")
    task = REGISTRY[model].task if model in REGISTRY else None
    pairs = sum(not isinstance(text, str) for text in texts)
    if task and TASKS[task].kind == "pair" and pairs < len(texts):
        raise UsageError(f"{model} was trained on pairs of texts: give the second one with --pair, or --pair-column")
    if task and TASKS[task].kind == "single" and pairs:
        raise UsageError(f"{model} was trained on single texts: leave out --pair and --pair-column")


def _read(options: argparse.Namespace) -> list[Any]:
    from helpers import data

    if not options.file.is_file():
        raise UsageError(f"there is no file {options.file}")
    if options.file.suffix.lower() in (".csv", ".json", ".xlsx", ".ods", ".parquet"):
        raise UsageError(
            f"{options.file} is neither tab-separated (.tsv) nor one text a line: save it as one of these"
            f"{_as_tabs(options.file)}"
        )
    if options.file.suffix.lower() == ".tsv":
        return _from_table(options)
    try:
        lines = [line.strip() for line in options.file.read_text(encoding="utf-8-sig").split("\n")]
    except UnicodeDecodeError as error:
        raise UsageError(f"{options.file} is not UTF-8{data.guess_encoding(options.file)}") from error
    if not any(lines):
        raise UsageError(f"{options.file} holds no text")
    return [line for line in lines if line]


def _from_table(options: argparse.Namespace) -> list[Any]:
    from helpers import data

    try:
        with _warnings_as_lines():
            return data.texts(data.read(options.file, first=options.text_column, second=options.pair_column))
    except data.ColumnError as error:
        pair = error.column != options.text_column
        option, example = ("--pair-column", "answer") if pair else ("--text-column", "review")
        raise ValueError(f"{option} names the column, as in {option} {example}. {error}") from error


def _as_tabs(path: Path) -> str:
    """How to write a .csv file with tabs; "" for other kinds."""
    from helpers import data

    if path.suffix.lower() != ".csv":
        return ""
    with path.open(encoding="utf-8", errors="replace") as file:
        header = file.readline()
    mark = max(",;\t", key=header.count)
    return f". For a table with tabs run in Python: {data.command_for_tabs(path, mark)}"


def _number_or_name(value: str | None) -> Any:
    """Return a whole number where one was typed."""
    return int(value) if value is not None and value.lstrip("-").isdecimal() else value


def _write(options: argparse.Namespace, many: Sequence, probabilities) -> None:
    from helpers import report

    facts = f"model {options.model}"
    if options.html:
        options.html.write_text(report.page(many, probabilities, facts=facts, k=options.links), encoding="utf-8")
    if options.json:
        names = ("torch", "transformers", "numpy")
        about = {"model": options.model, "versions": {name: importlib.metadata.version(name) for name in names}}
        write_json(options.json, report.content(many, probabilities, about=about, k=options.links))
    if options.arrow:
        report.links_table(many).to_feather(options.arrow, compression="zstd")
    for number, a in enumerate(many) if options.save else ():
        a.save(options.save / f"{number:04d}.safetensors")


def _listing(many: Sequence, k: int) -> str:
    from helpers import report

    lines = []
    for a in many:
        text = a.text if isinstance(a.text, str) else " | ".join(a.text)
        lines += [text, f"  {report.summary(a)}"]
        lines += [
            f"  {score:+.4f}  layer {layer}, head {head}: {query} <- {key} (attention {attention:.3f})"
            for layer, head, query, key, score, attention in report.links(a, k)
        ]
        lines.append(f"  {report.completeness(a)}")
    return "\n".join(lines) + "\n"


@contextmanager
def _warnings_as_lines() -> Iterator[None]:
    """Write every warning once, as a line without the file that it comes from."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        try:
            yield
        finally:
            for text in dict.fromkeys(str(w.message) for w in caught if issubclass(w.category, UserWarning)):
                logger.warning("note: %s", " ".join(text.split()))


# ---- exercises -------------------------------------------------------------------------------------------------------


def check(options: argparse.Namespace) -> int:
    """Check the exercises of one notebook, in the project's copy or in others; print a table."""
    from tqdm.auto import tqdm

    from helpers import exercises

    notebooks = find(NOTEBOOKS, [options.notebook])
    if len(notebooks) > 1:
        raise UsageError(f"{options.notebook!r} fits {', '.join(n.name for n in notebooks)}: name one notebook")
    original = notebooks[0].path
    if options.solutions and (options.files or options.saved):
        raise UsageError("--solutions checks the project's own notebook: give neither files nor --saved with it")
    files = options.files or [original]
    _free([options.csv], force=options.force)
    copies = [exercises.read_copy(original, path) for path in files]
    wanted = exercises.find_exercises(exercises.read_notebook(original))
    if not wanted:
        raise UsageError(f"{original.name} has no exercises")
    rows = []
    for path, copy in tqdm(
        list(zip(files, copies, strict=True)), desc="checking", unit="file", disable=len(files) == 1
    ):
        if options.saved:
            found = exercises.saved(original, copy)
        else:
            found = exercises.run(
                original,
                None if options.solutions else copy,
                profile=options.profile,
                timeout=options.timeout,
                progress=len(files) == 1,
            )
        rows += [(str(path), v) for v in found]
    sys.stdout.write(_verdicts(rows))
    if options.csv:
        options.csv.write_text(_table(rows), encoding="utf-8")
    return int(any(v.kind != "right" for _, v in rows))


def _verdicts(rows: Sequence[tuple[str, Any]]) -> str:
    lines: list[str] = []
    for path in dict.fromkeys(path for path, _ in rows):
        own = [v for name, v in rows if name == path]
        right = sum(v.kind == "right" for v in own)
        lines.append(f"{path}: {right} of {len(own)} right")
        lines += [f"  {v.number}  {v.kind:<13}  {v.minutes:>2} min  {v.title}\n     {v.said}" for v in own]
    return "\n".join(lines) + "\n"


def _table(rows: Sequence[tuple[str, Any]]) -> str:
    stream = io.StringIO()
    writer = csv.writer(stream)
    writer.writerow(["file", "exercise", "title", "verdict", "said"])
    writer.writerows([path, v.number, v.title, v.kind, v.said] for path, v in rows)
    return stream.getvalue()


def hand_out(options: argparse.Namespace) -> int:
    """Write the notebooks without their solutions."""
    from helpers import exercises

    if options.folder.resolve() == NOTEBOOKS.resolve():
        raise UsageError("that is the folder of the notebooks themselves: name another, or the solutions are lost")
    notebooks = find(NOTEBOOKS, options.only)
    targets = [options.folder / n.path.name for n in notebooks]
    options.folder.mkdir(parents=True, exist_ok=True)
    _free(targets, force=options.force)
    for notebook, target in zip(notebooks, targets, strict=True):
        hidden = exercises.without_solutions(exercises.read_notebook(notebook.path))
        exercises.write_notebook(hidden, target)
        logger.info("written: %s", target)
    return 0


# ---- the parser ------------------------------------------------------------------------------------------------------


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m helpers", description="Attention attribution without a notebook.")
    commands = parser.add_subparsers(dest="command", required=True)
    _explain_options(_command(commands, "explain", explain, "explain a model's answer to texts", EXPLAIN))
    many = _command(commands, "attribute", to_disk, "explain all texts of a file, onto disk", ATTRIBUTE)
    many.add_argument("file", type=Path, metavar="FILE", help="the texts")
    many.add_argument("folder", type=Path, metavar="FOLDER", help="where the results go, or are already in part")
    many.add_argument("--jobs", type=int, metavar="N", help="processes, -1 for one a processor (default: 1)")
    many.add_argument("--shard", type=int, default=64, metavar="N", help="texts a file (default: 64)")
    many.add_argument("--quiet", action="store_true", help="no progress")
    _what_to_explain(many)
    one = _command(commands, "check", check, "say which exercises of a notebook are solved", CHECK)
    one.add_argument("notebook", metavar="NN", help="the notebook, by the start of its name, such as 03")
    one.add_argument("files", nargs="*", type=Path, metavar="COPY", help="copies of it with answers in them")
    one.add_argument("--saved", action="store_true", help="read the outputs that the copies hold, and run nothing")
    one.add_argument("--solutions", action="store_true", help="check the notebook's own solutions")
    one.add_argument("--profile", choices=PROFILES, default="quick", help="size of the run (default: quick)")
    one.add_argument("--timeout", type=int, default=900, metavar="SECONDS", help="for one cell (default: 900)")
    one.add_argument("--csv", type=Path, metavar="FILE", help="write the table as well")
    one.add_argument("--force", action="store_true", help="write over a file that is there")
    out = _command(commands, "exercises", hand_out, "write the notebooks without their solutions, for a class")
    out.add_argument("folder", type=Path, metavar="OUT_FOLDER")
    out.add_argument("--only", nargs="+", default=[], metavar="NN", help="some notebooks only, such as 00 03")
    out.add_argument("--force", action="store_true", help="write over copies that are there")
    return parser


def _command(commands, name: str, run: Callable, about: str, epilog: str = "") -> argparse.ArgumentParser:
    parser = commands.add_parser(
        name, help=about, description=about[0].upper() + about[1:] + ".", epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.set_defaults(run=run)
    return parser


def _explain_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("text", nargs="*", metavar="TEXT", help="what to explain")
    add("--pair", metavar="TEXT", help="the second text, for a model of pairs")
    add("--file", type=Path, metavar="FILE", help="read the texts from a file")
    _what_to_explain(parser)
    add("--limit", type=int, default=20, metavar="N", help="explain so many texts of a file (default: 20)")
    add("--revision", help="commit of a model on the hub")
    add("--device", default="auto", help="auto, cpu, cuda, ... (default: auto)")
    add("--links", type=int, default=8, metavar="K", help="how many links to show (default: 8)")
    add("--html", type=Path, metavar="FILE", help="write a page with all figures in it")
    add("--json", type=Path, metavar="FILE", help="write the numbers")
    add("--arrow", type=Path, metavar="FILE", help="write all scores as one Arrow table, a row a link")
    add("--save", type=Path, metavar="FOLDER", help="write all scores, a .safetensors a text")
    add("--force", action="store_true", help="write over files that are there")
    add("--quiet", action="store_true", help="no progress, and no listing where a file is written")


def _what_to_explain(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--text-column", default="text", metavar="NAME", help="column of a .tsv with the text (default: text)")
    add("--pair-column", metavar="NAME", help="column of a .tsv with the second text")
    add("--model", default="minilm-sst2", help="name, folder or hub id of a classifier (default: minilm-sst2)")
    add("--target", metavar="LABEL", help="the class to explain, by name or number (default: the predicted one)")
    add("--steps", default="auto", metavar="N", help="points on the path, or auto (default)")
    add(
        "--rule", choices=("right", "left", "midpoint", "gauss"), help="how to place them (default: right; auto: gauss)"
    )
    add("--output", choices=("probability", "logit", "log-probability"), default="probability", help="what to explain")
