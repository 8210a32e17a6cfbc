"""The controls as one finds them in a real JupyterLab: a browser runs a notebook, moves a slider, and reads the page.

The server and the browser are on loopback; a request for any other host fails the test.
"""

import pytest
from browser import POLL, browser_page, click_square, needs_browser, server, titled
from made_up import notebook
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


GRID = "widgets.head_grid(sample())"
LAB = {
    "IdentityProvider.token": "''", "ServerApp.port": "0", "ip": "127.0.0.1", "LabApp.expose_app_in_browser": "True",
    "LabApp.news_url": "None", "LabApp.check_for_updates_class": "jupyterlab.NeverCheckForUpdate",
}  # fmt: skip


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """The page of a JupyterLab in which all cells of a small notebook have run; what went wrong is in ``troubles``."""
    folder = tmp_path_factory.mktemp("lab")
    cells = SLIDER, EXPLORER.replace("TESTS", repr(str(ROOT / "tests"))), TREE, GRID
    notebook(folder, "controls", *cells, parameters="")
    settings = [f"--{name}={value}" for name, value in {**LAB, "ServerApp.root_dir": str(folder)}.items()]
    with server(folder, "jupyterlab", "--allow-root", *settings) as address, browser_page() as page:
        page.goto(f"{address}lab/tree/controls.ipynb?reset")
        _run_all(page)
        yield page


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
    page.wait_for_function(whole, arg=[handle, before], polling=POLL)
    return drawn(output)


def becomes(page, output, wanted: str) -> None:
    """Wait until the figure is the wanted one."""
    handle = output.locator(".js-plotly-plot").first.element_handle()
    page.wait_for_function(f"([figure, wanted]) => ({SHOWN})(figure) === wanted", arg=[handle, wanted], polling=POLL)


def test_the_pruning_slider_moves_the_figure_and_asks_the_model(lab):
    output = cell(lab, 1)
    first = drawn(output)
    output.get_by_text("The model says no (0.500), with all heads").wait_for()
    handle = output.get_by_role("slider", name="Heads pruned")
    assert handle.get_attribute("aria-valuetext") == "0 of 6"
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
    slider = output.get_by_role("slider", name="tau")
    assert "largest score" in slider.locator("..").get_attribute("title"), "what the label says on hovering"
    slider.press("Home")
    second = changed(lab, output, first)
    output.get_by_text(said[0], exact=True).wait_for()
    assert "tau 0," in second and f"{len(wanted[0]) - 1} of" in second


def test_a_click_on_a_square_chooses_the_head_and_so_do_the_keys(lab):
    output = cell(lab, 4)
    grid = titled(lab, output, "every head")
    for layer, head in ((0, 1), (2, 0)):
        click_square(lab, grid, head, layer)
        titled(lab, output, f"Layer {layer}, head {head}")
        titled(lab, output, f"links of layer {layer}, head {head}")
        chosen = [output.get_by_label(name, exact=True).input_value() for name in ("Layer", "Head")]
        assert chosen == [str(layer), str(head)]
        frame = "([f, x, y]) => { const s = f.layout.shapes[0]; return s.x0 === x - 0.5 && s.y0 === y - 0.5; }"
        lab.wait_for_function(frame, arg=[grid, head, layer], polling=POLL)
    output.get_by_label("Layer", exact=True).focus()
    lab.keyboard.press("ArrowUp")
    titled(lab, output, "Layer 1, head 0")


def test_every_control_has_a_name(lab):
    for number in range(1, 5):
        unnamed = """(place) => [...place.querySelectorAll("input, select, textarea, button, [role=slider]")]
          .filter((e) => e.offsetParent && !e.ariaLabel && !e.labels?.length && !e.textContent.trim())
          .map((e) => e.outerHTML)"""
        assert cell(lab, number).first.evaluate(unnamed) == []


def test_nobody_is_asked_about_news(lab):
    settings = lab.evaluate(
        """async () => (await (await fetch("/lab/api/settings/@jupyterlab/apputils-extension:notification")).json())"""
    )
    assert settings["schema"]["properties"]["fetchNews"]["default"] == "false"
    assert lab.locator(".Toastify__toast").count() == 0


def test_nothing_went_wrong_and_nobody_else_was_asked(lab):
    assert lab.troubles == []
