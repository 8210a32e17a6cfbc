"""Notebooks and documents to hand out: openings complete, links that lead somewhere, words spelt right, licences."""

from __future__ import annotations

import ast
import importlib.metadata
import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote

import nbformat
import pytest
import third_party
from made_up import notebook

from helpers import outline

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb"))
DOCUMENTS = sorted(
    path for path in [*ROOT.glob("*.md"), *(ROOT / "notebooks").glob("*.md"), *(ROOT / "data").rglob("*.md")]
)
every = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
KINDS = (str, int, float, bool, list, type(None))


def cells(path: Path, kind: str) -> list[str]:
    return [cell.source for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == kind]


# ---- openings and parameters -----------------------------------------------------------------------------------------


def opening_problems(path: Path) -> list[str]:
    """What the first cell of a notebook lacks."""
    text = cells(path, "markdown")[0]
    number = path.stem[:2]
    wanted = {
        f"a title '# {number} · ...'": rf"^# {number} · \S",
        "the question in bold": r"^\*\*[^*]+\?[^*]*\*\*",
        "the paper with its arXiv number": r"^Paper: [^\n]*(\n[^\n]+)*2004\.11207",
        "the section of the paper": r"2004\.11207\)(, |\s)[^|]*(section|Algorithm|use case)",
        "at least three objectives": r"you can\n\n1\. .*(\n.*)*\n2\. .*(\n.*)*\n3\. ",
        "what one needs to know": r"^\| you need to know \| time \| memory \|",
        "minutes to read, for the exercises and to run": r"minutes to read.*for the exercises.*to run.*CPU cores",
        "memory in GB": r"\| [\d.]+ GB \|",
    }
    return [what for what, pattern in wanted.items() if not re.search(pattern, text, re.MULTILINE)]


@every
def test_an_opening_is_complete(path):
    assert opening_problems(path) == []


def test_what_an_opening_lacks_is_noticed(tmp_path):
    bare = notebook(tmp_path, "00_bare", "1")
    assert len(opening_problems(bare)) == 8


@every
def test_parameters_are_of_a_kind_that_a_command_line_can_set(path):
    found = outline.read(path).parameters
    assert {name for name, value in found.items() if not isinstance(value, KINDS)} == set()
    assert found["profile"] in outline.PROFILES
    for name, value in found.items():
        if isinstance(value, str | int | float) and not isinstance(value, bool):
            assert outline.typed(outline.read(path), name, str(value)) == value
        assert name.islower() and len(name) > 1, f"{name}: parameters have names in words"


@every
def test_cells_are_short_and_no_cell_is_empty(path):
    book = nbformat.read(path, as_version=4)
    assert [n for n, cell in enumerate(book.cells) if not cell.source.strip()] == []
    assert [n for n, cell in enumerate(book.cells) if cell.cell_type == "markdown" and len(cell.source) > 2500] == []
    assert len({cell.id for cell in book.cells}) == len(book.cells)
    assert set(book.metadata) <= {"kernelspec", "language_info"}


@every
def test_no_absolute_path_and_no_working_directory_in_code(path):
    for source in cells(path, "code"):
        texts = [
            n.value for n in ast.walk(ast.parse(source)) if isinstance(n, ast.Constant) and isinstance(n.value, str)
        ]
        assert [t for t in texts if re.match(r"(/[a-z]+/|~/|[A-Z]:\\)", t)] == []
        assert "os.chdir" not in source and "os.getcwd" not in source


# ---- links -----------------------------------------------------------------------------------------------------------


def links(text: str) -> list[str]:
    """Addresses of Markdown links and pictures, code left out."""
    text = re.sub(r"```.*?```|`[^`\n]*`", "", text, flags=re.DOTALL)
    return [
        a or b for a, b in re.findall(r"\]\(\s*<?([^)\s>]+)>?[^)]*\)|<(?:a|img)[^>]+(?:href|src)=\"([^\"]+)\"", text)
    ]


def anchor(heading: str) -> set[str]:
    """How GitHub and JupyterLab name a heading."""
    plain = re.sub(r"[`*_]|\[|\]\([^)]*\)", "", heading).strip()
    return {re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-"), plain.replace(" ", "-")}


def headings(path: Path) -> set[str]:
    text = "\n\n".join(cells(path, "markdown")) if path.suffix == ".ipynb" else path.read_text(encoding="utf-8")
    own = set().union(*(anchor(found) for found in re.findall(r"^#+\s+(.+)$", text, re.MULTILINE)), set())
    return own | set(re.findall(r"(?:id|name)=\"([^\"]+)\"", text))


def broken(path: Path, text: str) -> list[str]:
    """Links of a document that lead nowhere: to a file that is not there, or a heading that it lacks."""
    found = []
    for link in links(text):
        if re.match(r"(https?|mailto):", link):
            if link.startswith("http:") and "w3.org" not in link:
                found.append(f"{link}: is not https")
            continue
        name, _, place = unquote(link).partition("#")
        target = (path.parent / name).resolve() if name else path
        made = target.is_relative_to(ROOT / "build")  # what a run makes
        if not made and (not target.is_relative_to(ROOT) or not target.exists()):
            found.append(f"{link}: is not there")
        elif place and target.suffix in (".md", ".ipynb") and place not in headings(target):
            found.append(f"{link}: has no such heading")
    return found


@pytest.mark.parametrize("path", [*DOCUMENTS, *NOTEBOOKS], ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(path):
    text = "\n\n".join(cells(path, "markdown")) if path.suffix == ".ipynb" else path.read_text(encoding="utf-8")
    assert broken(path, text) == []


def test_links_that_lead_nowhere_are_noticed(tmp_path):
    text = "[a](nowhere.md) [b](http://example.org) ![c](../../etc) [d](#no-such) `[e](code.md)` [f](<other.md>)"
    page = ROOT / "README.md"
    assert len(broken(page, text)) == 5


# ---- spelling --------------------------------------------------------------------------------------------------------

NOT_MISTAKES = "caf,pinter,wit,limt,fo,postive,atribution"  # names, and mistakes that tests make on purpose


def misspelt(*paths: Path) -> list[str]:
    command = [sys.executable, "-m", "codespell_lib", "--builtin", "clear,rare", "--ignore-words-list", NOT_MISTAKES]
    done = subprocess.run([*command, *map(str, paths)], capture_output=True, text=True, cwd=ROOT)
    return done.stdout.splitlines()


needs_codespell = pytest.mark.skipif(not importlib.util.find_spec("codespell_lib"), reason="codespell is not installed")


@needs_codespell
def test_words_are_spelt_right():
    code = [*(ROOT / "helpers").rglob("*.py"), *(ROOT / "tests").glob("*.py"), *(ROOT / "benchmarks").glob("*.py")]
    assert misspelt(*DOCUMENTS, *NOTEBOOKS, *code, *(ROOT / "helpers" / "pages").glob("*.j2"), ROOT / "Makefile") == []


@needs_codespell
def test_a_misspelt_word_is_noticed(tmp_path):
    (tmp_path / "page.md").write_text("We " + "rec" + "ieve it.", encoding="utf-8")
    assert len(misspelt(tmp_path / "page.md")) == 1


# ---- what is installed -----------------------------------------------------------------------------------------------


def test_every_file_that_may_be_installed_is_known_by_its_hash():
    text = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    entries = re.sub(r"\\\n\s*", " ", text).splitlines()
    locked = {}
    for entry in (line for line in entries if line and not line.startswith("#")):
        requirement, *hashes = entry.split()
        name, version = requirement.split("==")
        assert hashes and all(re.fullmatch(r"--hash=sha256:[0-9a-f]{64}", part) for part in hashes), name
        locked[third_party_name(name)] = version
    wanted = {third_party_name(name): version for name, version in third_party.pinned().items()}
    assert wanted.pop("torch") and locked == wanted, "type: make lock"
    assert "://" not in text, "a lock names no index"


def third_party_name(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


FREE = {
    "MIT",
    "MIT-0",
    "MIT-CMU",
    "0BSD",
    "BSD",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "Apache-2.0",
    "ISC",
    "PSF-2.0",
    "MPL-2.0",
    "Zlib",
    "CC0-1.0",
    "BSL-1.0",
    "CNRI-Python",
    "LLVM-exception",
}

RUN_ONLY = {"codespell": {"GPL-2.0-only"}}  # a program that a test runs: nothing here is built on it or ships it


def test_licences_of_all_packages_are_listed_and_let_this_be_used_freely():
    rows = re.findall(
        r"^\| (\S+) \| (\S+) \| (.+?) \| .* \|$", third_party.PAGE.read_text(encoding="utf-8"), re.MULTILINE
    )
    rows = [row for row in rows if row[0] not in ("package", "---")]
    assert {name: version for name, version, _ in rows} == third_party.pinned(), "type: make lock"
    for name, _, stated in rows:
        parts = set(re.split(r" (?:AND|OR|WITH) ", stated))
        assert parts <= FREE | RUN_ONLY.get(name, set()), (
            f"{name} states the licence {stated!r}: read it, then add it here or do without {name}"
        )


def test_the_list_of_licences_is_what_the_installed_packages_state():
    page = third_party.PAGE.read_text(encoding="utf-8")
    for name, version in third_party.pinned().items():
        try:
            here = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue  # not for this platform
        if here.partition("+")[0] == version:
            assert f"| {name} | {version} | {third_party.licence(name)} | {third_party.home(name)} |" in page
