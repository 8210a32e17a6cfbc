"""The explorer that ``make app`` serves, in a browser: a page by Voila, from the notebook and the template that ship.

The server and the browser are on loopback; a request for any other host fails the test.
"""

import shutil

import pytest
from browser import POLL, browser_page, click_square, free_port, needs_browser, server, titled

from helpers.records import ROOT

pytestmark = needs_browser
VOILA = "--template=attattr", "--Voila.ip=127.0.0.1"


@pytest.fixture(scope="module")
def app(tmp_path_factory):
    """The page once the model has answered for its first text."""
    folder = tmp_path_factory.mktemp("app")
    shutil.copy(ROOT / "helpers" / "pages" / "app.ipynb", folder)
    with server(folder, "voila", "app.ipynb", *VOILA, f"--port={free_port()}") as address, browser_page() as page:
        page.goto(address)
        page.get_by_text("The model says").wait_for()
        yield page


def everything(app):
    return app.locator("body")


def written(app, word):
    """Wait until a figure has this word in its sentence."""
    there = """(word) => [...document.querySelectorAll(".js-plotly-plot")].some(
      (figure) => figure.layout?.annotations?.some((note) => note.text === word))"""
    app.wait_for_function(there, arg=word, polling=POLL)


def test_a_square_and_the_keys_choose_the_head(app):
    grid = titled(app, everything(app), "every head")
    click_square(app, grid, 5, 2)
    titled(app, everything(app), "Layer 2, head 5")
    titled(app, everything(app), "links of layer 2, head 5")
    app.get_by_label("Head", exact=True).focus()
    app.keyboard.press("ArrowDown")
    titled(app, everything(app), "Layer 2, head 6")


def test_a_text_that_is_typed_is_explained(app):
    app.get_by_label("Sentence", exact=True).fill("A dull film, and I love it.")
    app.keyboard.press("Enter")
    written(app, "dull")


def test_a_row_of_a_file_and_what_is_wrong_with_it(app, tmp_path):
    mine = tmp_path / "mine.tsv"
    mine.write_text("label\tsentence\n1\tWarm and funny.\n0\tSlow <b>and</b> bleak.\n", encoding="utf-8")
    app.get_by_label("Explain", exact=True).select_option(label="a row of my file")
    path = app.get_by_label("File", exact=True)
    path.fill(str(tmp_path / "none.tsv"))
    path.press("Enter")
    alert = app.get_by_role("alert")
    alert.get_by_text("There is no file").wait_for()
    path.fill(str(mine))
    path.press("Enter")
    alert.wait_for(state="detached")
    app.get_by_label("Row", exact=True).fill("3")
    app.keyboard.press("Tab")
    alert.get_by_text("its rows are 1 to 2").wait_for()
    app.get_by_label("Row", exact=True).fill("2")
    app.keyboard.press("Tab")
    alert.wait_for(state="detached")
    written(app, "bleak")


def test_the_tree_grows_with_the_slider(app):
    app.get_by_label("the tree", exact=True).check()
    titled(app, everything(app), "tau 0.4")
    app.get_by_role("slider", name="tau").press("Home")
    titled(app, everything(app), "tau 0,")


def test_nothing_went_wrong_and_nobody_else_was_asked(app):
    assert app.troubles == []
