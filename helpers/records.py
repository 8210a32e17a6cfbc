"""What notebooks find, kept as numbers: one JSON file a notebook in the build folder.

A notebook calls :func:`record` for every figure that it states, with the paper's figure beside it
where there is one. :mod:`helpers.suite` merges what finished runs recorded into ``results.json``,
and :mod:`helpers.gallery` shows it as a table.
"""

from __future__ import annotations

import json
import math
import os
import re
from numbers import Integral, Real
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
Value = float | int | str | None


def build_folder(*parts: str) -> Path:
    """Return a folder for what runs make, and make it: ``build/`` in the repository, or ``$ATTATTR_BUILD``."""
    folder = Path(os.environ.get("ATTATTR_BUILD") or ROOT / "build").joinpath(*parts)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def record(notebook: str, name: str, value: Value, *, published: Value = None, unit: str = "", note: str = "") -> None:
    """Keep one result of a notebook; a second call with the same name replaces the first.

    Args:
        notebook: the notebook's file name without ``.ipynb``, such as ``"01_attention_vs_attribution"``.
        name: what was measured, in a few words.
        value: a finite number, a string, or None where there is no answer.
        published: what the paper reports for the same quantity, if it does.
        unit: unit of ``value``, such as ``"probability"``.
        note: what a reader must know to compare the two.

    Raises:
        ValueError: a value is NaN, infinite, or neither number nor string; or the notebook's name is
            no file name.

    Example:
        >>> record("02_effectiveness", "accuracy, all heads", 0.914, unit="accuracy")  # doctest: +SKIP
    """
    if not re.fullmatch(r"[\w.-]+", notebook) or notebook.endswith(".ipynb"):
        raise ValueError(f"The notebook is named {notebook!r}: give its file name without folder and without .ipynb.")
    if not isinstance(name, str) or not name.strip():
        raise ValueError(f"The result is named {name!r}: say in a few words what was measured.")
    entry = {"value": _plain(name, value), "published": _plain(name, published), "unit": unit, "note": note}
    path = build_folder("results") / f"{notebook}.json"
    write_json(path, {**read_json(path), name: entry})


def _plain(name: str, value: Any) -> Value:
    """Return a value as JSON knows it: numbers of NumPy and torch become Python's own."""
    plain = value
    if hasattr(value, "item") and math.prod(getattr(value, "shape", ())) == 1:
        plain = value.item()
    if plain is None or isinstance(plain, str | bool):
        return plain
    if isinstance(plain, Real) and math.isfinite(plain):
        return int(plain) if isinstance(plain, Integral) else float(plain)
    raise ValueError(f"{name!r} is {value!r}: record a finite number, a string, or None where there is no answer.")


def read_json(path: Path) -> dict[str, Any]:
    """Return the object in a JSON file, or an empty one where the file is missing, cut short or no object."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def write_json(path: Path, content: Any) -> None:
    """Write JSON so that a reader finds the old file or the new one, never half of one."""
    text = json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    half = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    half.write_text(text + "\n", encoding="utf-8")
    os.replace(half, path)
