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
from browser import browser_page, dump, needs_browser
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


# Text is compared with the nearest ground under it; WCAG asks for 4.5, and for 3 where it is large.
FAINT = """() => {
  const rgba = (color) => color.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((c) => c / 255)
    .map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const ground = (e) => {
    for (; e; e = e.parentElement) {
      const color = rgba(getComputedStyle(e).backgroundColor);
      if (color.length < 4 || color[3] > 0.5) return color;
    }
    return [255, 255, 255];
  };
  const found = [];
  for (const e of document.querySelectorAll("main *, nav *")) {
    const own = [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
    if (!own || e.closest("svg, style, script, details:not([open])")) continue;
    const style = getComputedStyle(e), [a, b] = [light(rgba(style.color)), light(ground(e))].sort((x, y) => y - x);
    const large = parseFloat(style.fontSize) >= 24;
    if ((a + 0.05) / (b + 0.05) < (large ? 3 : 4.5) || parseFloat(style.fontSize) < 11)
      found.push(`${e.tagName}: ${e.textContent.trim().slice(0, 30)} (${style.fontSize}, ${style.color})`);
  }
  return [...new Set(found)].slice(0, 20);
}"""


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


def built(folder: Path) -> Path:
    """The gallery to look at: a copy of the one that is named, or a small one."""
    given = os.environ.get("ATTATTR_GALLERY")
    return Path(shutil.copytree(given, folder / "given")) if given else made_up(folder)


@pytest.fixture(scope="module")
def opened(tmp_path_factory):
    """Open every page; return what was counted on each, by its name, and what the browser complained of."""
    folder = tmp_path_factory.mktemp("a gallery")
    gallery = built(folder)
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


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_text_can_be_read_on_a_phone_by_day_and_by_night(tmp_path, scheme):
    gallery = built(tmp_path)
    with browser_page(viewport={"width": PHONE, "height": 844}, color_scheme=scheme) as page:
        for path in sorted(gallery.glob("*.html")):
            page.goto(path.as_uri())
            paper = page.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)")
            assert (sum(paper) / 3 > 200) == (scheme == "light"), path.name
            assert (path.name, page.evaluate(FAINT)) == (path.name, [])
        assert page.troubles == []
