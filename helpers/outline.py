"""What can be known of a notebook before it runs: its title, its minutes, and the parameters it takes.

papermill only warns about a parameter that a notebook does not have, and then runs for minutes with
the wrong settings. Here names and types are checked first.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

KERNEL = "python3"
PROFILES = ("quick", "demo", "paper")
SOURCES = ("bundled", "hub")


class UsageError(ValueError):
    """What was asked for can't be done, and nothing has been started; the message is one line."""


@dataclass(frozen=True)
class Notebook:
    """A notebook as its file shows it.

    Attributes:
        path: the file.
        title: its first heading, as plain text.
        summary: the first paragraph under the heading, as plain text; may be empty.
        minutes: what the first cell says about its time, such as ``"5"`` or ``"5-10"``; may be empty.
        parameters: name -> default, from the cell tagged ``parameters``.
        sources: (cell type, source) of every cell, in order.
    """

    path: Path
    title: str
    summary: str
    minutes: str
    parameters: dict[str, Any]
    sources: tuple[tuple[str, str], ...]

    @property
    def name(self) -> str:
        """The file's name without ``.ipynb``."""
        return self.path.stem


def find(folder: Path, only: Sequence[str] = ()) -> list[Notebook]:
    """Return the notebooks ``NN_*.ipynb`` of a folder in order, or those whose name starts with one of ``only``.

    Raises:
        UsageError: there is no such notebook, or a notebook can't be read or run; see :func:`read`.
    """
    paths = sorted(folder.glob("[0-9][0-9]_*.ipynb"))
    if not paths:
        raise UsageError(f"there is no notebook NN_name.ipynb in {folder}")
    for start in only:
        if not any(path.stem.startswith(start.removesuffix(".ipynb")) for path in paths):
            raise UsageError(f"there is no notebook {start!r}; there are: {', '.join(path.stem for path in paths)}")
    starts = tuple(start.removesuffix(".ipynb") for start in only) or ("",)
    return [read(path) for path in paths if path.stem.startswith(starts)]


def read(path: Path) -> Notebook:
    """Read a notebook's outline.

    Raises:
        UsageError: the file is no notebook, asks for another kernel, or its parameters are no literals.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        cells = [(cell["cell_type"], "".join(cell["source"]), cell["metadata"]) for cell in content["cells"]]
        kernel = content["metadata"].get("kernelspec", {}).get("name", KERNEL)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(f"{path} is no notebook that can be read ({type(error).__name__}: {error})") from error
    if kernel != KERNEL:
        raise UsageError(
            f"{path.name} asks for the kernel {kernel!r}; set it to {KERNEL!r}, the only one there is here"
        )
    tagged = [source for kind, source, meta in cells if kind == "code" and "parameters" in meta.get("tags", [])]
    opening = next((source for kind, source, _ in cells if kind == "markdown"), "")
    minutes = re.search(r"(\d+(?:\s*(?:-|–|to)\s*\d+)?)\s*min", opening)
    return Notebook(
        path=path,
        title=_title(opening) or path.stem,
        summary=_summary(opening),
        minutes=minutes[1] if minutes else "",
        parameters=_parameters(path, tagged[0]) if tagged else {},
        sources=tuple((kind, source) for kind, source, _ in cells),
    )


def _parameters(path: Path, source: str) -> dict[str, Any]:
    """Read ``name = literal`` and ``name: type = literal`` from the cell tagged ``parameters``."""
    found: dict[str, Any] = {}
    try:
        for node in ast.parse(source).body:
            target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
            if isinstance(target, ast.Name) and getattr(node, "value", None) is not None:
                found[target.id] = ast.literal_eval(node.value)  # type: ignore[attr-defined]
    except (SyntaxError, ValueError) as error:
        raise UsageError(f"{path.name}: the cell tagged 'parameters' must hold literals only ({error})") from error
    return found


def _title(opening: str) -> str:
    heading = re.search(r"^#+\s+(.+?)\s*#*$", opening, re.MULTILINE)
    return _plain(heading[1]) if heading else ""


def _summary(opening: str) -> str:
    blocks = (block.strip() for block in re.split(r"\n\s*\n", opening))
    return next((_plain(block) for block in blocks if block and not block.startswith(("#", "|", "-", "<"))), "")


def _plain(markdown: str) -> str:
    """Drop the marks of links, emphasis and code, and keep the words."""
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", markdown)
    return " ".join(re.sub(r"\*\*|(?<!\w)[*_](?=\w)|(?<=[\w.,;:!?])[*_](?!\w)|`", "", text).split())


def settings(notebooks: Sequence[Notebook], given: dict[str, str]) -> list[dict[str, Any]]:
    """Return the parameters to set in each notebook: those of ``given`` that it has, typed as its own.

    ``profile`` may be missing from a notebook; any other name must be known to at least one of them.

    Raises:
        UsageError: there is no such profile, no notebook has a parameter of that name, or a value has another
            type than the default.
    """
    if given.get("profile", PROFILES[0]) not in PROFILES:
        raise UsageError(f"there is no profile {given['profile']!r}; there are: {', '.join(PROFILES)}")
    for name in given:
        if name != "profile" and not any(name in notebook.parameters for notebook in notebooks):
            known = sorted({known for notebook in notebooks for known in notebook.parameters})
            names = ", ".join(notebook.name for notebook in notebooks)
            raise UsageError(f"there is no parameter {name!r} in {names}; there are: {', '.join(known) or 'none'}")
    return [
        {name: typed(notebook, name, text) for name, text in given.items() if name in notebook.parameters}
        for notebook in notebooks
    ]


def typed(notebook: Notebook, name: str, text: str) -> Any:
    """Return what was typed for a parameter as a value of the type of its default.

    A text stays as it was typed, so that ``no`` and ``1e5`` are texts; everything else is YAML.

    Raises:
        UsageError: the value has another type than the default.
    """
    default = notebook.parameters[name]
    if isinstance(default, str):
        return text
    try:
        value = float(text) if isinstance(default, float) else yaml.safe_load(text)
    except (ValueError, yaml.YAMLError):
        value = text
    if default is None or value is None or type(value) is type(default):
        return value
    if isinstance(default, tuple) and isinstance(value, list):
        return value
    kind = type(default).__name__
    raise UsageError(f"the parameter {name!r} of {notebook.name} is {kind} (such as {default!r}), not {text!r}")
