"""The gallery as a browser without a network shows it: figures drawn, formulas laid out, nothing wider than a phone.

``ATTATTR_GALLERY`` names a gallery that was built before; without it a small one is made up here.
"""

import json
import os
import re
import shutil
from pathlib import Path
from typing import NamedTuple

import nbformat
import plotly.graph_objects as go
import pytest
from browser import dump, needs_browser
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from helpers.gallery import Entry, build_gallery

pytestmark = needs_browser
PHONE = 390
# Each page is opened in a frame as wide as a phone; what it holds is written down once everything is drawn.
PROBE = """<!DOCTYPE html><body><script>
const pages = %s;
const fetched = (window) => window.performance.getEntriesByType("resource").map((r) => r.name)
  .filter((url) => !/^(file|data):/.test(url));
for (const name of pages) {
  const frame = document.createElement("iframe");
  frame.style = "width: %dpx; height: 900px; border: 0";
  frame.src = name;
  frame.onload = () => setTimeout(() => {
    const page = frame.contentDocument, all = (css) => page.querySelectorAll(css).length;
    const line = document.createElement("pre");
    const shapes = [...page.querySelectorAll(".plotly-graph-div")].filter((f) => f.querySelector(".main-svg"));
    line.textContent = ["PAGE", name, all(".plotly-graph-div"), shapes.length, all("math"),
      [...page.querySelectorAll("math")].filter((m) => m.getBoundingClientRect().width > 1).length,
      all("code.tex"), fetched(frame.contentWindow).length, page.documentElement.scrollWidth,
      getComputedStyle(page.querySelector("nav")).display].join("|");
    document.body.append(line);
  }, 1500);
  document.body.append(frame);
}
</script></body>"""


class Page(NamedTuple):
    """What was counted on a page; ``fetched`` are the files asked of another host."""

    figures: int
    drawn: int
    formulas: int
    laid_out: int
    left_as_source: int
    fetched: int
    width: int
    nav: str


def figure(title):
    data = go.Figure(go.Heatmap(z=[[1, 2], [3, 4]]), layout={"title": {"text": title}}).to_plotly_json()
    return new_code_cell("fig", outputs=[new_output("display_data", data={"application/vnd.plotly.v1+json": data})])


def made_up(folder: Path) -> Path:
    text = (
        "# Formulas\n\n$$A_h \\odot \\int_0^1 \\frac{\\partial F}{\\partial A_h} d\\alpha$$\n\nand $x$; " + "wide" * 60
    )
    wide = new_code_cell("x = " + "1 + " * 200 + "1")
    executed = folder / "00_made_up.ipynb"
    nbformat.write(new_notebook(cells=[new_markdown_cell(text), figure("first"), figure("second"), wide]), executed)
    results = {"a quantity": {"value": 0.5, "published": None, "unit": "share", "note": "a long note " * 20}}
    return build_gallery(
        folder / "gallery", [Entry("00_made_up", "Made up", executed=executed, results=results)]
    ).parent


@pytest.fixture(scope="module")
def opened(tmp_path_factory):
    """Open every page; return what was counted on each, by its name, and what the browser complained of."""
    folder = tmp_path_factory.mktemp("a gallery")
    given = os.environ.get("ATTATTR_GALLERY")
    gallery = folder / "given" if given else made_up(folder)
    if given:
        shutil.copytree(given, gallery)
    names = sorted(path.name for path in gallery.glob("*.html"))
    (gallery / "probe.html").write_text(PROBE % (json.dumps(names), PHONE), encoding="utf-8")
    done = dump(gallery / "probe.html", folder / "profile")
    pages = {}
    for line in re.findall(r"PAGE\|([^<]+)", done.stdout):
        name, *counts, display = line.split("|")
        pages[name] = Page(*map(int, counts), display)
    assert sorted(pages) == names, done.stderr[-2000:]
    return pages, done.stderr


def test_every_figure_is_drawn(opened):
    pages, _ = opened
    assert sum(page.figures for page in pages.values()) > 0
    assert {name: page.drawn for name, page in pages.items()} == {name: page.figures for name, page in pages.items()}


def test_every_formula_is_laid_out(opened):
    pages, _ = opened
    assert sum(page.formulas for page in pages.values()) > 0
    for name, page in pages.items():
        assert (name, page.laid_out, page.left_as_source) == (name, page.formulas, 0)


def test_no_page_is_wider_than_a_phone_and_the_styles_are_there(opened):
    for name, page in opened[0].items():
        assert page.width <= PHONE and page.nav == "flex", name


def test_nothing_was_asked_of_another_host_and_no_script_failed(opened):
    pages, complaints = opened
    assert {name: page.fetched for name, page in pages.items()} == dict.fromkeys(pages, 0)
    assert [line for line in complaints.splitlines() if "CONSOLE" in line] == []
