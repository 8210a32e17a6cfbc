"""Run the notebooks headless, side by side where there is room, and build the gallery: ``python -m helpers.suite run``.

A notebook is skipped when nothing that it depends on has changed since its last good run. What runs
make goes to the build folder: ``notebooks/`` (executed), ``figures/``, ``results/``, ``state/``,
``results.json`` and ``gallery/``.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import logging
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from helpers._abreast import how_many, run_abreast
from helpers.outline import KERNEL, PROFILES, SOURCES, Notebook, UsageError, find, settings
from helpers.records import ROOT, build_folder, record, write_json
from helpers.runs import Job, explain, inputs, kernel_environment, read_state, reason_to_run, run_notebook

__all__ = ["build_folder", "main", "record"]
logger = logging.getLogger("helpers.suite")


@dataclass
class Outcome:
    """How one notebook went: ``status`` is done, up to date, failed, interrupted or not reached."""

    name: str
    status: str = "not reached"
    seconds: float | None = None
    problem: str = ""


def plan(
    folder: Path,
    *,
    only: Sequence[str] = (),
    profile: str = "demo",
    source: str | None = None,
    given: Sequence[str] = (),
    timeout: int = 3600,
) -> list[Job]:
    """Check everything that was asked for, and return the runs that it amounts to.

    Args:
        folder: where the notebooks are.
        only: the notebooks to run, by the start of their names; all if empty.
        profile: one of :data:`helpers.outline.PROFILES`.
        source: ``"bundled"``, ``"hub"``, a folder of data, or None for what each notebook has.
        given: further parameters as ``name=value``.
        timeout: seconds that one cell may take.

    Raises:
        UsageError: anything is unknown, missing or of the wrong type; nothing has been started.
    """
    if importlib.util.find_spec("ipykernel") is None:
        raise UsageError(
            f"there is no kernel {KERNEL!r}: install ipykernel with {sys.executable} -m pip install ipykernel"
        )
    if timeout < 1:
        raise UsageError(f"--timeout is {timeout}: give the seconds that a cell may take, at least 1")
    notebooks = find(folder, only)
    named = {"profile": profile, **_named(given)}
    data = None
    if source is not None and source not in SOURCES:
        data = Path(source).resolve()
        if not data.is_dir():
            raise UsageError(f"the source {source!r} is no folder; give {', '.join(SOURCES)} or a folder of data")
        source = os.path.relpath(data, folder.resolve())  # as the notebook sees it, and true on any machine
    if source is not None:
        named["source"] = source
    build = build_folder().resolve()
    return [
        Job(notebook, parameters, build, timeout, data if "source" in parameters else None)
        for notebook, parameters in zip(notebooks, settings(notebooks, named), strict=True)
    ]


def _named(given: Sequence[str]) -> dict[str, str]:
    named: dict[str, str] = {}
    for item in given:
        name, equals, value = item.partition("=")
        if not equals or not name.strip().isidentifier():
            raise UsageError(f"-p {item!r} is no name=value")
        if name.strip() in ("profile", "source"):
            raise UsageError(f"give {name.strip()} with --{name.strip()}, not with -p")
        named[name.strip()] = value.strip()
    return named


def run_all(jobs: Sequence[Job], *, fresh: bool = False, online: bool = False, at_once: int = 1) -> list[Outcome]:
    """Run the notebooks: one that fails doesn't stop the next, an interrupt stops them all.

    With ``at_once`` above 1 so many run side by side, each from a process of its own, the longest first.
    """
    outcomes = [Outcome(job.notebook.name) for job in jobs]
    if at_once > 1 and len(jobs) > 1:
        return _side_by_side(jobs, outcomes, fresh=fresh, online=online, at_once=at_once)
    for number, (job, outcome) in enumerate(zip(jobs, outcomes, strict=True), 1):
        try:
            _run(job, outcome, f"[{number}/{len(jobs)}] {outcome.name}", fresh=fresh, online=online)
        except KeyboardInterrupt:
            outcome.status = "interrupted"
            break
    return outcomes


def _side_by_side(
    jobs: Sequence[Job], outcomes: list[Outcome], *, fresh: bool, online: bool, at_once: int
) -> list[Outcome]:
    order = [i for i in range(len(jobs)) if fresh or reason_to_run(jobs[i], inputs(jobs[i]))]
    for i in sorted({*range(len(jobs))} - {*order}):
        _run(jobs[i], outcomes[i], f"[{i + 1}/{len(jobs)}] {outcomes[i].name}", fresh=False, online=online)
    order = sorted(order, key=lambda i: -float(jobs[i].notebook.minutes.partition("-")[0] or 0))
    asked = [
        json.dumps({
            "folder": str(jobs[i].notebook.path.parent.resolve()), "name": jobs[i].notebook.name,
            "parameters": jobs[i].parameters, "build": str(jobs[i].build), "timeout": jobs[i].timeout,
            "source": jobs[i].source and str(jobs[i].source), "title": f"[{i + 1}/{len(jobs)}] {jobs[i].notebook.name}",
            "fresh": fresh, "online": online,
        })
        for i in order
    ]  # fmt: skip
    lines = "from helpers.suite import run_one; run_one()"
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r}); {lines}"]
    try:
        for number, status, output in run_abreast(command, asked, at_once):
            outcome = outcomes[order[number]]
            try:
                outcome.__dict__.update(json.loads(output.splitlines()[-1]))
            except (IndexError, ValueError):
                outcome.status, outcome.problem = "failed", f"its process ended with status {status}, saying nothing"
    except KeyboardInterrupt:
        if all(outcome.status != "interrupted" for outcome in outcomes):  # before any had begun, or after all had ended
            next((o for o in outcomes if o.status == "not reached"), outcomes[-1]).status = "interrupted"
    return outcomes


def run_one() -> None:
    """Run the one notebook that standard input describes, and print its outcome: a process of :func:`run_all`."""
    _listen()
    asked = json.load(sys.stdin)
    notebook = next(n for n in find(Path(asked["folder"]), [asked["name"]]) if n.name == asked["name"])
    source = asked["source"] and Path(asked["source"])
    job = Job(notebook, asked["parameters"], Path(asked["build"]), asked["timeout"], source)
    outcome = Outcome(notebook.name)
    try:
        _run(job, outcome, asked["title"], fresh=asked["fresh"], online=asked["online"])
    except KeyboardInterrupt:
        outcome.status = "interrupted"
    sys.stdout.write(json.dumps(asdict(outcome)) + "\n")


def _listen() -> None:
    """Log to standard error, and take a request to end like one at the keyboard: what is finished is kept."""
    logging.basicConfig(format="%(message)s")
    logging.getLogger("helpers").setLevel(logging.INFO)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)


def _run(job: Job, outcome: Outcome, title: str, *, fresh: bool, online: bool) -> None:
    wanted = inputs(job)
    reason = "--fresh" if fresh else reason_to_run(job, wanted)
    if not reason:
        outcome.status, outcome.seconds = "up to date", read_state(job)["seconds"]
        logger.info("%s is up to date (--fresh runs it all the same)", title)
        return
    logger.info("%s runs (%s)", title, reason)
    try:
        with kernel_environment(job.build, online=online):
            outcome.seconds = run_notebook(job, wanted)
        outcome.status = "done"
        logger.info("%s done in %.1f s", title, outcome.seconds)
    except Exception as error:  # papermill, nbclient and the kernel raise what they like
        outcome.status, outcome.problem = "failed", explain(job, error)
        logger.error("%s failed: %s", title, outcome.problem)


def write_results(jobs: Sequence[Job], build: Path) -> Path:
    """Merge what the good runs recorded into ``results.json``.

    ``results`` is the same after every run with the same inputs; what differs from run to run
    (times, machine) is under ``runs``.
    """
    states = {job.notebook.name: state for job in jobs if (state := read_state(job))}
    kept = ("parameters", "seconds", "finished", "machine")
    content = {
        "format": 1,
        "results": {name: state["results"] for name, state in states.items()},
        "runs": {name: {key: state[key] for key in kept} for name, state in states.items()},
    }
    path = build / "results.json"
    write_json(path, content)
    return path


def write_gallery(jobs: Sequence[Job], outcomes: Sequence[Outcome], build: Path) -> Path:
    """Build the pages of all notebooks that have run, now or before, and list the others."""
    from helpers.gallery import Entry, build_gallery

    problems = {outcome.name: f"failed: {outcome.problem}" for outcome in outcomes if outcome.problem}
    entries = []
    for job in jobs:
        notebook, state = job.notebook, read_state(job)
        profile = state.get("parameters", {}).get("profile")
        status = f"profile {profile}" if profile else "executed"
        entry = Entry(
            name=notebook.name,
            title=notebook.title,
            summary=notebook.summary,
            minutes=notebook.minutes,
            executed=job.executed if state else None,
            status=problems.get(notebook.name) or (status if state else "has not run yet"),
            seconds=state.get("seconds"),
            results=state.get("results", {}),
        )
        entries.append(entry)
    return build_gallery(build / "gallery", entries)


def summary(outcomes: Sequence[Outcome]) -> str:
    """Return the outcomes as a table, with what went wrong under it."""
    width = max(len(outcome.name) for outcome in outcomes)
    lines = [f"{'notebook':<{width}}  {'status':<11}  seconds"]
    for outcome in outcomes:
        seconds = "" if outcome.seconds is None else f"{outcome.seconds:7.1f}"
        lines.append(f"{outcome.name:<{width}}  {outcome.status:<11}  {seconds}".rstrip())
    lines += [f"{outcome.name}: {outcome.problem}" for outcome in outcomes if outcome.problem]
    return "\n".join(lines)


def _listing(notebooks: Sequence[Notebook]) -> str:
    lines = []
    for notebook in notebooks:
        lines.append(f"{notebook.name}  {notebook.title}")
        lines += [f"    {name} = {default!r}" for name, default in notebook.parameters.items()]
    return "\n".join(lines)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m helpers.suite", description="Run the notebooks headless.")
    run = parser.add_subparsers(dest="command", required=True).add_parser(
        "run", help="run notebooks and build build/gallery/index.html"
    )
    run.add_argument("--list", action="store_true", help="only show the notebooks and their parameters")
    run.add_argument("--notebooks", type=Path, default=ROOT / "notebooks", metavar="FOLDER")
    run.add_argument("--only", nargs="+", default=[], metavar="NN", help="such as: --only 00 01")
    run.add_argument("--profile", default="demo", help=f"{', '.join(PROFILES)} (default: demo)")
    run.add_argument("--source", metavar="S", help="bundled, hub, or a folder of data (default: each notebook's)")
    run.add_argument("-p", action="append", default=[], metavar="NAME=VALUE", help="set a notebook's parameter")
    run.add_argument("--fresh", action="store_true", help="run also what is up to date")
    run.add_argument("--online", action="store_true", help="let notebooks reach the model hub")
    run.add_argument(
        "--jobs", type=int, default=int(os.environ.get("ATTATTR_JOBS") or how_many()), metavar="N",
        help="notebooks to run side by side (default here: %(default)s)",
    )  # fmt: skip
    run.add_argument("--timeout", type=int, default=3600, metavar="SECONDS", help="for one cell (default: 3600)")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return 0, 1 if a notebook failed, 2 if asked for what isn't there, 130 if interrupted."""
    options = _parser().parse_args(argv)
    logging.basicConfig(format="%(message)s")
    logging.getLogger("helpers").setLevel(logging.INFO)
    if options.jobs < 1:
        sys.stderr.write(f"error: --jobs is {options.jobs}: give how many notebooks to run side by side, at least 1\n")
        return 2
    try:
        if options.list:
            sys.stdout.write(_listing(find(options.notebooks, options.only)) + "\n")
            return 0
        everything = plan(options.notebooks)
        jobs = plan(
            options.notebooks,
            only=options.only,
            profile=options.profile,
            source=options.source,
            given=options.p,
            timeout=options.timeout,
        )
    except UsageError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    online = options.online or options.source == "hub"
    outcomes = run_all(jobs, fresh=options.fresh, online=online, at_once=options.jobs)
    build = jobs[0].build
    results = write_results(everything, build)
    index = write_gallery(everything, outcomes, build)
    sys.stdout.write(f"{summary(outcomes)}\n\nresults: {_shown(results)}\ngallery: {_shown(index)}\n")
    statuses = {outcome.status for outcome in outcomes}
    return 130 if "interrupted" in statuses else int("failed" in statuses)


def _shown(path: Path) -> Any:
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


if __name__ == "__main__":
    _listen()  # both stop the kernel and keep what is finished
    try:
        status = main()
    except KeyboardInterrupt:
        status = 130
    sys.exit(status)
