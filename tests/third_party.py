"""Whose work this project stands on: every package that it may install, with its licence, as the packages state it.

python tests/third_party.py     writes THIRD_PARTY.md; `make lock` calls it
"""

from __future__ import annotations

import importlib.metadata
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "THIRD_PARTY.md"
SPELLINGS = {  # what packages say -> the name of the SPDX list
    "BSD License": "BSD",
    "MIT License": "MIT",
    "Apache Software License": "Apache-2.0",
    "Apache 2.0": "Apache-2.0",
    "Apache 2.0 License": "Apache-2.0",
    "Apache License, Version 2.0": "Apache-2.0",
    "ISC License (ISCL)": "ISC",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Python Software Foundation License": "PSF-2.0",
}
HEAD = """# Third-party software

Every package that `make` may install, with the licence that the package itself states. None of it is in this
repository; it comes from the package index, is checked by hash (`requirements.lock`) and stays under its own licence.
`python tests/third_party.py` writes this page from what is installed, and a test compares the two.

Models and sentences are listed with their licences in [data/README.md](data/README.md) and `helpers/registry.py`.
The pages of the gallery and the report carry a copy of plotly.js (MIT), which comes with the package plotly.

"""


def pinned() -> dict[str, str]:
    """Name -> version of constraints.txt."""
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    return dict(line.split("==") for line in lines if line and not line.startswith("#"))


def licence(name: str) -> str:
    """The licence that an installed package states; empty where it states none."""
    about = importlib.metadata.metadata(name)
    stated = about.get("License-Expression") or ""
    if not stated:
        kinds = [
            line.split("::")[-1].strip() for line in about.get_all("Classifier") or [] if line.startswith("License")
        ]
        kinds = [kind for kind in kinds if kind != "OSI Approved"]
        stated = " OR ".join(SPELLINGS.get(kind, kind) for kind in dict.fromkeys(kinds))
    stated = stated or (about.get("License") or "").strip().split("\n")[0]
    return SPELLINGS.get(stated, stated)


def home(name: str) -> str:
    """The package's home page as it states it; empty where it states none."""
    about = importlib.metadata.metadata(name)
    links = dict(re.split(r",\s*", line, maxsplit=1) for line in about.get_all("Project-URL") or [])
    named = {key.lower(): url for key, url in links.items() if "pypi" not in url}  # the index is no home
    for key in ("homepage", "home", "source", "source code", "repository", "github"):
        if key in named:
            return named[key]
    return about.get("Home-page") or next(iter(named.values()), "")


def page() -> str:
    """The page, one line a package."""
    rows = [f"| {name} | {version} | {licence(name)} | {home(name)} |" for name, version in pinned().items()]
    return "\n".join([HEAD + "| package | version | licence | home |", "| --- | --- | --- | --- |", *rows]) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
