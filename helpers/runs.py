"""One notebook's run: what it depends on, its kernel, and what is kept of it.

A run is good once every cell has run. Only then does its executed notebook get its name and its
state file get written, so that a run cut short at any moment is seen as not done.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import json
import os
import platform
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from helpers.outline import KERNEL, Notebook
from helpers.records import ROOT, read_json, write_json

STATE_FORMAT = 1
NOT_INPUTS = {
    "gallery.py",
    "cli.py",
    "__main__.py",
    "exercises.py",
}  # what only dresses the result is no reason to run again


@dataclass(frozen=True)
class Job:
    """A notebook, the parameters that it is given, and where its files go.

    ``source`` is the data folder asked for, if it is one; its files are inputs like any other.
    """

    notebook: Notebook
    parameters: dict[str, Any]
    build: Path
    timeout: int
    source: Path | None = None

    @property
    def executed(self) -> Path:
        """The executed notebook."""
        return self.build / "notebooks" / f"{self.notebook.name}.ipynb"

    def beside(self, kind: str) -> Path:
        """A file next to the executed notebook, such as ``NN_name.failed.ipynb``."""
        return self.executed.with_name(f"{self.notebook.name}.{kind}.ipynb")

    @property
    def state(self) -> Path:
        """What is kept of the last good run."""
        return self.build / "state" / f"{self.notebook.name}.json"


def inputs(job: Job) -> dict[str, str]:
    """Return a hash for each kind of thing that a notebook's outputs depend on."""
    helpers = [path for path in sorted((ROOT / "helpers").glob("*.py")) if path.name not in NOT_INPUTS]
    return {
        "notebook": _digest(json.dumps(job.notebook.sources)),
        "parameters": _digest(json.dumps(job.parameters, sort_keys=True, default=str)),
        "helpers": _digest(*helpers),
        "bundled data": _digest(*_files(ROOT / "data")),
        "source data": _digest(*_files(job.source)) if job.source else "",
        "packages": _digest(platform.python_version(), *_packages()),
    }


@cache
def _packages() -> list[str]:
    return sorted({f"{dist.name}=={dist.version}" for dist in importlib.metadata.distributions()})


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)


def _digest(*parts: str | Path) -> str:
    digest = hashlib.sha256()
    for part in parts:
        if isinstance(part, Path):
            with part.open("rb") as file:
                content = hashlib.file_digest(file, "sha256").hexdigest()
            part = f"{part.name} {content}"
        digest.update(f"{len(part)}:{part}".encode())
    return digest.hexdigest()


def reason_to_run(job: Job, wanted: dict[str, str]) -> str:
    """Say why a notebook has to run; an empty string means that its last run still stands."""
    if not job.state.exists():
        return "first run"
    state = read_state(job)
    if not state:
        return "the record of its last run can't be read"
    changed = [kind for kind, digest in wanted.items() if state["inputs"].get(kind) != digest]
    if changed:
        return f"changed: {', '.join(changed)}"
    missing = [name for name in state["figures"] if not (job.build / name).exists()]
    return f"missing: {', '.join(missing)}" if missing else ""


def read_state(job: Job) -> dict[str, Any]:
    """Return what is kept of a notebook's last good run; empty if there is none, or any of it is damaged."""
    state = read_json(job.state)
    kinds = {"inputs": dict, "results": dict, "parameters": dict, "machine": dict, "figures": list, "seconds": float}
    if state.get("format") != STATE_FORMAT or any(not isinstance(state.get(k), kind) for k, kind in kinds.items()):
        return {}
    whole = job.executed.exists() and _digest(job.executed) == state.get("executed")
    return state if whole else {}


@contextlib.contextmanager
def kernel_environment(build: Path, *, online: bool) -> Iterator[None]:
    """Set what a kernel inherits, and put everything back afterwards.

    The user's own IPython start-up files and Jupyter folders are left out: they could change results.
    """
    values = {
        "ATTATTR_HEADLESS": "1",
        "ATTATTR_BUILD": str(build),
        "PLOTLY_RENDERER": "plotly_mimetype",  # figures stay data, and the gallery draws them
        "MPLBACKEND": "module://matplotlib_inline.backend_inline",
        "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])),
        "PYTHONHASHSEED": "0",
        "IPYTHONDIR": str(build / "kernel" / "ipython"),
        "JUPYTER_RUNTIME_DIR": str(build / "kernel" / "runtime"),
    }
    if not online:
        values |= {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}
    for folder in ("IPYTHONDIR", "JUPYTER_RUNTIME_DIR"):
        Path(values[folder]).mkdir(parents=True, exist_ok=True)
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


def run_notebook(job: Job, wanted: dict[str, str]) -> float:
    """Execute a notebook; keep it and its state once every cell has run; return the seconds it took.

    A notebook that fails is left beside the others as ``NN_name.failed.ipynb`` with the error in it.

    Raises:
        Exception: whatever papermill, nbclient or the kernel raised; see :func:`explain`.
    """
    import papermill

    partial = job.beside("partial")
    partial.parent.mkdir(parents=True, exist_ok=True)
    results = job.build / "results" / f"{job.notebook.name}.json"
    results.unlink(missing_ok=True)  # names that the notebook no longer records must not live on
    job.beside("failed").unlink(missing_ok=True)
    before = _stamps(job.build)
    start = time.perf_counter()
    try:
        papermill.execute_notebook(
            job.notebook.path,
            partial,
            job.parameters,
            kernel_name=KERNEL,
            language="python",
            cwd=job.notebook.path.parent,
            progress_bar=sys.stderr.isatty(),
            start_timeout=300,  # for the kernel: a busy machine takes its time
            execution_timeout=job.timeout,
            kernel_manager_class=_own_kernel_manager(),
            extra_arguments=["--log-level=50"],  # a kernel that is stopped midway prints its own stack
        )
        seconds = round(time.perf_counter() - start, 2)
        os.replace(partial, job.executed)
    except Exception:
        job.state.unlink(missing_ok=True)
        if partial.exists():
            os.replace(partial, job.beside("failed"))
        raise
    finally:
        partial.unlink(missing_ok=True)
    figures = [name for name, stamp in _stamps(job.build).items() if before.get(name) != stamp]
    _keep(job, wanted, read_json(results), sorted(figures), seconds)
    return seconds


def _keep(job: Job, wanted: dict[str, str], results: dict[str, Any], figures: list[str], seconds: float) -> None:
    state = {
        "format": STATE_FORMAT,
        "inputs": wanted,
        "executed": _digest(job.executed),
        "parameters": {**job.notebook.parameters, **job.parameters},
        "results": results,
        "figures": figures,
        "machine": machine(),
        "seconds": seconds,
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    write_json(job.state, state)


def _stamps(build: Path) -> dict[str, int]:
    return {str(path.relative_to(build)): path.stat().st_mtime_ns for path in _files(build / "figures")}


def _own_kernel_manager() -> type:
    """Return a kernel manager that starts this very interpreter.

    A kernel named python3 in the user's home or in $JUPYTER_PATH may belong to any Python.
    """
    from jupyter_client.kernelspec import KernelSpecManager
    from jupyter_client.manager import AsyncKernelManager

    class OwnKernelManager(AsyncKernelManager):
        def _kernel_spec_manager_default(self):
            return KernelSpecManager(parent=self, kernel_dirs=[])

    return OwnKernelManager


def machine() -> dict[str, Any]:
    """Return versions and hardware, as far as they may change a result or its time."""
    import torch

    packages = ("torch", "transformers", "peft", "datasets", "numpy", "pandas", "scipy", "plotly")
    try:
        memory = round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)
    except (AttributeError, ValueError, OSError):  # not on Windows
        memory = None
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": {name: importlib.metadata.version(name) for name in packages},
        "cpus": os.cpu_count(),
        "memory_gib": memory,
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
    }


def explain(job: Job, error: Exception) -> str:
    """Say in one line in which cell a notebook stopped, and why."""
    kind = type(error).__name__
    if kind == "PapermillExecutionError":
        source, what = error.source, f"{error.ename}: {error.evalue}"  # type: ignore[attr-defined]
    else:
        source = _last_reached(job)
        known = {
            "CellTimeoutError": f"ran for more than {job.timeout} s; raise --timeout, or take --profile quick",
            "DeadKernelError": "the kernel died, most often for want of memory; take --profile quick",
        }
        what = known.get(kind, f"{kind}: {error}")
    sources = [source for _, source in job.notebook.sources]
    where = f"cell {sources.index(source) + 1} of {len(sources)}" if source in sources else "before the first cell"
    first = next((line.strip() for line in source.splitlines() if line.strip()), "")
    return f"{where}, `{first[:90]}`: {_one_line(what)}" if first else f"{where}: {_one_line(what)}"


def _last_reached(job: Job) -> str:
    """Return the source of the last cell that a failed run started."""
    cells = read_json(job.beside("failed")).get("cells", [])
    reached = [cell for cell in cells if cell["metadata"].get("papermill", {}).get("start_time")]
    return "".join(reached[-1]["source"]) if reached else ""


def _one_line(text: str, limit: int = 300) -> str:
    text = " ".join(text.split())
    return text if len(text) <= limit else text[: limit - 1] + "…"
