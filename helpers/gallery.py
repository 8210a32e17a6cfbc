"""Executed notebooks as web pages that need neither the network nor a kernel.

nbconvert's own page fetches plotly.js, require.js and MathJax from other hosts, so that an offline
reader sees blanks. Here one copy of plotly.js, taken from the installed package, lies next to the
pages; formulas become MathML, which browsers draw themselves; controls say that they need a kernel.
"""

from __future__ import annotations

import html
import logging
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
import nbformat
from latex2mathml.converter import convert
from markupsafe import Markup
from nbconvert.exporters.html import HTMLExporter
from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath
from nbconvert.preprocessors import Preprocessor
from pygments.formatters.html import HtmlFormatter

logger = logging.getLogger(__name__)
PAGES = Path(__file__).with_name("pages")
PLOTLY = "application/vnd.plotly.v1+json"
WIDGET = "application/vnd.jupyter.widget-view+json"
HARMLESS = re.compile(
    r"(</?(?:details|summary|br|hr|p|div|span|small|sub|sup|kbd|mark|b|i|em|strong|code|pre|ul|ol|li|table|thead|tbody|tr|th|td)"
    r"(?:\s+open|\s+class=\"[\w -]*\"|\s+align=\"\w+\")*\s*/?>|<!--[^>]*-->)"
)
NEEDS_KERNEL = (
    '<p class="needs-kernel">A control stands here that needs a running kernel: open the notebook with '
    "<code>make lab</code> to use it.</p>"
)


@dataclass(frozen=True)
class Entry:
    """One notebook in the gallery.

    Attributes:
        name: file name without ``.ipynb``.
        executed: the executed notebook, or None where no run has finished.
        status: one phrase on the last run, such as ``"profile demo"`` or ``"has not run yet"``.
        seconds: what the run took; None where no run has finished.
        results: name -> value, published, unit, note; see :func:`helpers.records.record`.
    """

    name: str
    title: str
    summary: str = ""
    minutes: str = ""
    executed: Path | None = None
    status: str = ""
    seconds: float | None = None
    results: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def page(self) -> str:
        """The file name of its page; empty where there is none."""
        return f"{self.name}.html" if self.executed else ""


def build_gallery(folder: Path, entries: Sequence[Entry], *, title: str = "Attention attribution, executed") -> Path:
    """Write index, results and one page for each notebook that ran; return the index.

    Args:
        folder: where the pages go; pages of notebooks that are no longer listed are removed.
        entries: the notebooks in reading order.
        title: heading of the index.
    """
    assets = folder / "assets"
    assets.mkdir(parents=True, exist_ok=True)
    (assets / "gallery.css").write_text(_styles(), encoding="utf-8")
    shown = [entry for entry in entries if entry.executed]
    figures = [_write_page(folder, shown, number) for number in range(len(shown))]
    if any(figures):
        _copy_plotly(assets)
    for stale in set(folder.glob("*.html")) - {folder / entry.page for entry in shown}:
        stale.unlink()
    for name, heading in (("results", "Results, beside published ones where there are any"), ("index", title)):
        page = _template(f"{name}.html.j2").render(title=heading, entries=entries, figures=False)
        (folder / f"{name}.html").write_text(page, encoding="utf-8")
    return folder / "index.html"


def _write_page(folder: Path, shown: Sequence[Entry], number: int) -> bool:
    """Write one notebook's page; return whether plotly.js has to draw on it."""
    entry = shown[number]
    assert entry.executed is not None
    body = render(nbformat.read(entry.executed, as_version=4))
    figures = 'class="plotly-figure"' in body
    page = _template("page.html.j2").render(
        title=entry.title,
        body=Markup(body),  # made by nbconvert from a notebook of this repository
        figures=figures,
        previous=shown[number - 1] if number else None,
        next=shown[number + 1] if number + 1 < len(shown) else None,
    )
    (folder / entry.page).write_text(page, encoding="utf-8")
    return figures


def render(notebook: nbformat.NotebookNode) -> str:
    """Return an executed notebook as HTML without head: code, text with MathML, outputs."""
    exporter = _Exporter(template_name="basic", exclude_input_prompt=True, exclude_output_prompt=True)
    exporter.register_preprocessor(_Offline, enabled=True)
    return exporter.from_notebook_node(notebook)[0]


class _Offline(Preprocessor):
    """Turn the outputs that would fetch a script into HTML that doesn't."""

    def preprocess(self, nb, resources):
        nb.metadata.pop("widgets", None)  # nbconvert would answer it with a script from another host
        self.heading = "the notebook"
        return super().preprocess(nb, resources)

    def preprocess_cell(self, cell, resources, index):
        if cell.cell_type == "markdown":
            self.heading = (re.findall(r"^#+\s+(.+)$", cell.source, re.MULTILINE) or [self.heading])[-1]
        for number, output in enumerate(cell.get("outputs", [])):
            data = output.get("data", {})
            if PLOTLY in data:
                output.data = {"text/html": _figure(data[PLOTLY], f"figure-{index}-{number}")}
            elif WIDGET in data:
                output.data = {"text/html": NEEDS_KERNEL}
            elif "text/latex" in data and "text/html" not in data:
                output.data = {"text/html": mathml(data["text/latex"].strip().strip("$"), block=True)}
            elif "image/png" in data:
                output.metadata.setdefault("image/png", {}).setdefault("alt", f"Figure in: {self.heading}")
        return cell, resources


def _figure(spec: dict[str, Any], name: str) -> str:
    from plotly.io import to_html

    spec = {"data": spec.get("data", []), "layout": spec.get("layout", {})}
    drawn = to_html(
        spec, include_plotlyjs=False, full_html=False, validate=False, div_id=name, config={"responsive": True}
    )
    return f'<div class="plotly-figure">{drawn}</div>'


class _Exporter(HTMLExporter):
    """nbconvert's exporter with formulas as MathML."""

    @jinja2.pass_context
    def markdown2html(self, context, source):
        attachments = context.get("cell", {}).get("attachments", {})
        renderer = _Renderer(escape=False, allow_harmful_protocols=False, attachments=attachments)
        return MarkdownWithMath(renderer=renderer).render(source)


class _Renderer(IPythonRenderer):
    """Formulas as MathML; of the HTML in a text, only what folds and formats it, as JupyterLab has it."""

    def inline_html(self, html):
        return _harmless(html)

    def block_html(self, html):
        return _harmless(html)

    def inline_math(self, body):
        return mathml(body)

    def block_math(self, body):
        return mathml(body, block=True)

    def latex_environment(self, name, body):
        return mathml(rf"\begin{{{name}}}{body}\end{{{name}}}", block=True)


def _harmless(text: str) -> str:
    """Show tags as text, but for a few that can't run anything."""
    return "".join(part if n % 2 else part.replace("<", "&lt;") for n, part in enumerate(HARMLESS.split(text)))


def mathml(tex: str, *, block: bool = False) -> str:
    """Return a LaTeX formula as MathML, or its source as code where it can't be converted."""
    source = re.sub(r"\{(aligned|align|split)\}", "{align*}", tex)  # the one of them that the converter knows
    try:
        converted = convert(source, display="block" if block else "inline")
    except Exception as error:  # the converter raises errors of its own and, for odd input, IndexError
        converted, reason = "", type(error).__name__
    else:
        reason = "unknown macro" if ">\\" in converted else ""
    if not reason:
        return converted
    logger.warning("The formula %r can't be shown as MathML (%s): its source is shown.", tex, reason)
    return f'<code class="tex">{html.escape(tex)}</code>'


def _styles() -> str:
    """The gallery's sheet with colours for code, light and dark: styles whose colours all stand out from the ground."""
    light = HtmlFormatter(style="xcode").get_style_defs(".highlight")
    dark = HtmlFormatter(style="github-dark").get_style_defs(".highlight")
    plain = ".highlight, .highlight pre { background: none; }"
    sheet = (PAGES / "gallery.css").read_text(encoding="utf-8")
    return f"{sheet}\n{light}\n@media (prefers-color-scheme: dark) {{\n{dark}\n}}\n{plain}\n"


def _copy_plotly(assets: Path) -> None:
    import plotly

    source = Path(plotly.__file__).with_name("package_data") / "plotly.min.js"
    target = assets / source.name
    if not target.exists() or target.stat().st_size != source.stat().st_size:
        shutil.copyfile(source, target)


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(PAGES), autoescape=True, trim_blocks=True, undefined=jinja2.ChainableUndefined
    )
    environment.filters["figure"] = _figure_text
    return environment


def _figure_text(value: Any) -> str:
    """A result as the table shows it: four digits of a fraction, all of a whole number, a dash for none."""
    if value is None:
        return "–"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _template(name: str) -> jinja2.Template:
    return _environment().get_template(name)
