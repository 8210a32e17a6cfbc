"""helpers.gallery: pages that need no network, and that show texts as texts."""

import re

import nbformat
import plotly.graph_objects as go
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from helpers.gallery import Entry, build_gallery, mathml, render

EVIL = "<script>alert(1)</script> & <b>bold</b>"


def rendered(*cells):
    return render(new_notebook(cells=list(cells)))


def showing(**data):
    """A cell whose one output has the given MIME types, ``text_html`` for ``text/html``."""
    mimes = {kind.replace("__", ".").replace("_", "/", 1): value for kind, value in data.items()}
    return new_code_cell("show()", outputs=[new_output("display_data", data=mimes)])


def figure(title):
    data = go.Figure(go.Heatmap(z=[[1, 2], [3, 4]]), layout={"title": {"text": title}}).to_plotly_json()
    output = new_output("display_data", data={"application/vnd.plotly.v1+json": data, "text/plain": "Figure()"})
    return new_code_cell("fig", outputs=[output])


def external(page):
    """What a page would fetch from elsewhere when it is opened."""
    return [url for url in re.findall(r"""<(?:script|link|img|iframe|source)\b[^>]*?(?:src|href)=["']([^"']+)""", page)
            if re.match(r"(?:\w+:)?//", url)]  # fmt: skip


def test_figures_are_drawn_by_the_one_local_script(tmp_path):
    executed = tmp_path / "00_a.ipynb"
    nbformat.write(new_notebook(cells=[figure("one"), figure("</script><script>alert(1)</script>")]), executed)
    plain = tmp_path / "01_b.ipynb"
    nbformat.write(new_notebook(cells=[new_markdown_cell("# Plain")]), plain)
    index = build_gallery(tmp_path / "g", [Entry("00_a", "A", executed=executed), Entry("01_b", "B", executed=plain)])
    page = (index.parent / "00_a.html").read_text(encoding="utf-8")
    assert page.count("Plotly.newPlot") == 2 and page.count("assets/plotly.min.js") == 1
    assert "<script>alert(1)" not in page
    assert "plotly" not in (index.parent / "01_b.html").read_text(encoding="utf-8")
    assert [external(path.read_text(encoding="utf-8")) for path in index.parent.glob("*.html")] == [[]] * 4


def test_names_texts_and_results_are_escaped(tmp_path):
    executed = tmp_path / "00_a.ipynb"
    nbformat.write(new_notebook(cells=[]), executed)
    results = {EVIL: {"value": EVIL, "published": EVIL, "unit": EVIL, "note": EVIL}}
    entries = [
        Entry("00_a", EVIL, summary=EVIL, minutes=EVIL, executed=executed, status=EVIL, results=results),
        Entry("01_b", EVIL, status=EVIL),
    ]
    index = build_gallery(tmp_path / "g", entries, title=EVIL)
    for path in index.parent.glob("*.html"):
        page = path.read_text(encoding="utf-8")
        assert "<script>alert" not in page and "<b>bold" not in page
    assert index.read_text(encoding="utf-8").count("&lt;script&gt;alert(1)&lt;/script&gt; &amp; &lt;b&gt;") >= 6


def test_neighbours_are_linked_and_pages_of_former_notebooks_removed(tmp_path):
    paths = [tmp_path / f"0{n}_n.ipynb" for n in range(3)]
    for path in paths:
        nbformat.write(new_notebook(cells=[]), path)
    entries = [Entry(path.stem, f"Title {path.stem}", executed=path) for path in paths]
    folder = build_gallery(tmp_path / "g", [*entries, Entry("03_n", "not run")]).parent
    middle = (folder / "01_n.html").read_text(encoding="utf-8")
    assert 'href="00_n.html" rel="prev"' in middle and 'href="02_n.html" rel="next"' in middle
    assert "03_n" not in middle and "not run" in (folder / "index.html").read_text(encoding="utf-8")
    build_gallery(folder, entries[:2])
    assert {path.name for path in folder.glob("*.html")} == {"00_n.html", "01_n.html", "index.html", "results.html"}
    assert 'rel="next"' not in (folder / "01_n.html").read_text(encoding="utf-8")


def test_results_stand_beside_the_published_ones(tmp_path):
    results = {
        "share": {"value": 0.123456, "published": 0.1, "unit": "share", "note": "small model"},
        "count": {"value": 123456, "published": None, "unit": "", "note": ""},
    }
    build_gallery(tmp_path, [Entry("00_a", "A", results=results)])
    page = (tmp_path / "results.html").read_text(encoding="utf-8")
    cells = re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", page)[5:]
    assert cells == ["share", "0.1235", "0.1", "share", "small model", "count", "123456", "–", "", ""]
    build_gallery(tmp_path, [])
    assert "No notebook has recorded a result yet" in (tmp_path / "results.html").read_text(encoding="utf-8")


def test_formulas_become_mathml_and_text_between_dollars_stays():
    text = "Inline $A_h < 1$, and\n\n$$\\sum_{k=1}^m w_k$$\n\n\\begin{align}a &= b\\end{align}\n\nat 5 dollars."
    page = rendered(new_markdown_cell(text))
    assert page.count("<math") == 3 and page.count('display="block"') == 2
    assert "$" not in page and "<mtable" in page and "at 5 dollars." in page
    assert "<math" in rendered(showing(text_latex="$\\displaystyle x^2$"))


@pytest.mark.parametrize("tex", [r"\frac{", r"\nosuchmacro{x} < y"])
def test_a_formula_that_cannot_be_converted_shows_its_source_and_warns(tex, caplog):
    assert mathml(tex) == f'<code class="tex">{tex.replace("<", "&lt;")}</code>'
    assert "can't be shown as MathML" in caplog.text


@pytest.mark.parametrize(
    "text",
    [
        "# Title <script>alert(1)</script>",
        "<script src='x.js'>alert(1)</script>",
        "<details open><summary>s</summary>\n\n<img src=x onerror=alert(1)>\n\n</details>",
        '<p onclick="alert(1)">p</p>',
        '<div class="a" style="position:fixed">d</div>',
        "[link](javascript:alert(1))",
        "a <iframe src='//x'></iframe> <svg onload=alert(1)>",
    ],
)
def test_no_text_of_a_markdown_cell_or_output_can_run(text):
    page = rendered(new_markdown_cell(text), showing(text_markdown=text))
    assert not re.search(r"<(?!/?(?:div|h1|a|p|pre|span|em|details|summary)\b)\w", page)
    assert not re.search(r"<[^>]*\b(?:on\w+|style|src)=", page) and "javascript:" not in page


def test_folds_and_simple_markup_stay():
    page = rendered(new_markdown_cell("<details open>\n<summary>Solution <b>1</b></summary>\n\n`x`<br>\n\n</details>"))
    assert "<details open=" in page and "<summary>Solution <b>1</b></summary>" in page and "<br/>" in page


def test_a_control_says_that_it_needs_a_kernel_and_fetches_nothing():
    cell = new_code_cell("w", outputs=[new_output("display_data", data={
        "application/vnd.jupyter.widget-view+json": {"model_id": "x"}, "text/plain": "IntSlider()"})])  # fmt: skip
    state = {"application/vnd.jupyter.widget-state+json": {"state": {"x": {}}, "version_major": 2, "version_minor": 0}}
    page = render(new_notebook(cells=[cell], metadata={"widgets": state}))
    assert "needs a running kernel" in page and not external(page) and "<script" not in page


def test_pictures_have_a_text_in_their_place(caplog):
    picture = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
    cell = new_code_cell("plot", outputs=[new_output("display_data", data={"image/png": picture})])
    assert 'alt="Figure in: Second"' in rendered(new_markdown_cell("# First\n\n## Second"), cell)


def test_an_error_in_an_output_is_shown_as_text():
    output = new_output("error", ename="ValueError", evalue="x", traceback=["\x1b[31m<b>bad</b>\x1b[0m"])
    page = rendered(new_code_cell("1", outputs=[output]))
    assert "&lt;b&gt;bad&lt;/b&gt;" in page and 'class="ansi-red-fg"' in page
