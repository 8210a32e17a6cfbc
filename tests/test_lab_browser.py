"""The controls as one finds them in a real JupyterLab: a browser runs a notebook, moves a slider, and reads the page.

The server and the browser are on loopback; a request for any other host fails the test.
"""

import os
import re
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from browser import BROWSER, needs_browser
from made_up import notebook
from playwright.sync_api import sync_playwright
from sample import sample

from helpers.records import ROOT
from helpers.tree import attribution_tree, objective

pytestmark = needs_browser

SLIDER = """
import numpy as np
from helpers import widgets
from helpers.pruning import Curve, counts_of, gates_overall

heads = {name: np.random.default_rng(n).random((2, 3)) for n, name in enumerate(("attribution", "random"))}
gates = {name: gates_overall(found, counts_of((0, 0.5, 1), 6)) for name, found in heads.items()}
right = np.arange(20) < np.array([[15], [10], [5]])
curves = {name: Curve(name, np.array([0, 0.5, 1]), right) for name in heads}
widgets.pruning_slider(
    curves, heads, gates, ["a slow start", "one < two"], labels=("no", "yes"),
    predict=lambda text, gates: np.array([1 - gates.mean() / 2, gates.mean() / 2]),
)
"""
EXPLORER = """
import sys
sys.path.insert(0, TESTS)
from sample import sample

widgets.explorer([sample(), sample(("so", "good"))])
"""
TREE = "widgets.tree_explorer(sample())"


@contextmanager
def server(folder: Path):
    """A JupyterLab on loopback that knows nothing of the user's own settings, as its address."""
    own = {f"JUPYTER_{name}_DIR": str(folder / "own" / name) for name in ("CONFIG", "DATA", "RUNTIME")}
    own |= {"IPYTHONDIR": str(folder / "own" / "ipython"), "JUPYTER_PREFER_ENV_PATH": "1", "JUPYTER_PATH": ""}
    own |= {"JUPYTERLAB_SETTINGS_DIR": str(folder / "own" / "settings"), "PYTHONPATH": str(ROOT)}
    own |= {"JUPYTERLAB_WORKSPACES_DIR": str(folder / "own" / "spaces")}
    settings = {"IdentityProvider.token": "''", "ServerApp.port": "0", "ServerApp.root_dir": str(folder)}
    settings |= {"LabApp.expose_app_in_browser": "True", "LabApp.news_url": "None"}
    settings |= {"LabApp.check_for_updates_class": "jupyterlab.NeverCheckForUpdate"}
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", "--ip=127.0.0.1"]
    environment = {name: value for name, value in os.environ.items() if name != "ATTATTR_HEADLESS"} | own
    said = folder / "server.log"
    with open(said, "wb") as log:
        running = subprocess.Popen(
            [*command, *(f"--{name}={value}" for name, value in settings.items())],
            cwd=folder, env=environment, stdout=log, stderr=log,
        )  # fmt: skip
    try:
        yield _address(running, said)
    finally:
        running.terminate()
        running.wait(30)


def _address(running: subprocess.Popen, said: Path) -> str:
    for _ in range(600):
        found = re.search(r"http://127\.0\.0\.1:\d+/", said.read_text(errors="replace"))
        if found or running.poll() is not None:
            break
        time.sleep(0.1)
    assert found and running.poll() is None, said.read_text(errors="replace")
    return found[0]


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """The page of a JupyterLab in which all cells of a small notebook have run; what went wrong is in ``troubles``."""
    folder = tmp_path_factory.mktemp("lab")
    cells = SLIDER, EXPLORER.replace("TESTS", repr(str(ROOT / "tests"))), TREE
    notebook(folder, "controls", *cells, parameters="")
    with server(folder) as address, sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=BROWSER, args=["--no-sandbox", "--disable-dev-shm-usage"])
        page = browser.new_page(viewport={"width": 1300, "height": 1000})
        page.set_default_timeout(90_000)
        page.troubles = []
        page.on("pageerror", lambda error: page.troubles.append(str(error)))
        page.on("console", lambda line: page.troubles.append(line.text) if line.type == "error" else None)
        page.on("request", lambda asked: _stays(page, asked.url))
        page.goto(f"{address}lab/tree/controls.ipynb?reset")
        _run_all(page)
        yield page
        browser.close()


def _stays(page, url: str) -> None:
    where = urlsplit(url)
    if where.scheme in ("http", "https", "ws", "wss") and where.hostname != "127.0.0.1":
        page.troubles.append(f"asked {url}")


def _run_all(page) -> None:
    page.wait_for_function("window.jupyterapp?.shell?.currentWidget?.sessionContext?.isReady")
    page.evaluate("async () => { await jupyterapp.shell.currentWidget.sessionContext.session.kernel.info; }")
    page.evaluate("() => jupyterapp.commands.execute('notebook:run-all-cells')")
    page.wait_for_selector(".jp-OutputArea-output .js-plotly-plot .main-svg >> nth=0")


def cell(page, number: int):
    """The output of a code cell; scrolled to, since those out of sight are not in the page."""
    page.evaluate("(n) => jupyterapp.shell.currentWidget.content.scrollToItem(n)", number)
    found = page.locator(f'.jp-Notebook .jp-Cell[data-windowed-list-index="{number}"] .jp-OutputArea')
    found.locator(".js-plotly-plot .main-svg").first.wait_for()
    return found


SHOWN = "(f) => JSON.stringify([f.layout.title.text, f.data.map((line) => [line.name, line.x, line.y, line.z])])"


def drawn(output) -> str:
    """The title and the lines that an output's first figure shows."""
    return output.locator(".js-plotly-plot").first.evaluate(SHOWN)


def changed(page, output, before: str) -> str:
    """Wait until the figure is another one, whole (title and lines come one after the other), and return it."""
    handle = output.locator(".js-plotly-plot").first.element_handle()
    whole = f"([figure, old]) => figure.data.length > 0 && ({SHOWN})(figure) !== old"
    page.wait_for_function(whole, arg=[handle, before])
    return drawn(output)


def becomes(page, output, wanted: str) -> None:
    """Wait until the figure is the wanted one."""
    handle = output.locator(".js-plotly-plot").first.element_handle()
    page.wait_for_function(f"([figure, wanted]) => ({SHOWN})(figure) === wanted", arg=[handle, wanted])


def test_the_pruning_slider_moves_the_figure_and_asks_the_model(lab):
    output = cell(lab, 1)
    first = drawn(output)
    output.get_by_text("The model says no (0.500), with all heads").wait_for()
    handle = output.locator(".widget-slider", has_text="Heads pruned").get_by_role("slider")
    handle.focus()
    handle.press("ArrowRight")
    changed(lab, output, first)
    output.get_by_text("The model says no (0.750), with all heads").wait_for()
    handle.press("ArrowLeft")
    becomes(lab, output, first)


def test_the_choices_can_be_made_by_their_names(lab):
    output = cell(lab, 1)
    first = drawn(output)
    output.get_by_label("Score", exact=True).select_option("random")
    changed(lab, output, first)
    output.get_by_label("Text", exact=True).select_option("1: one < two")
    output.get_by_text("“one < two”").wait_for()


def test_the_explorer_shows_what_is_chosen(lab):
    output = cell(lab, 2)
    first = drawn(output)
    output.get_by_label("View", exact=True).select_option(label="all heads")
    changed(lab, output, first)


def test_tau_grows_another_tree_with_its_objective_and_edges(lab):
    output = cell(lab, 3)
    first = drawn(output)
    wanted = {tau: attribution_tree(sample(), tau=tau, merge=True) for tau in (0.4, 0)}
    said = {
        tau: f"Objective {objective(t):.3f} (probability), {t.number_of_edges()} edges." for tau, t in wanted.items()
    }
    assert said[0] != said[0.4]
    output.get_by_text(said[0.4], exact=True).wait_for()
    slider = output.locator(".widget-slider", has_text="tau")
    assert "largest score" in slider.locator(".widget-label").get_attribute("title"), "what the label says on hovering"
    slider.get_by_role("slider").press("Home")
    second = changed(lab, output, first)
    output.get_by_text(said[0], exact=True).wait_for()
    assert "tau 0," in second and f"{len(wanted[0]) - 1} of" in second


def test_nothing_went_wrong_and_nobody_else_was_asked(lab):
    assert lab.troubles == []
