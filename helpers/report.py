"""Explanations as one file that needs neither a network nor a kernel: a page with the figures in it, JSON, or a table.

Before the texts a page can tell of all of them together, in parts (:class:`Part`). It holds plotly.js, its styles and
its pictures, and tells the browser to load nothing from anywhere.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
import networkx as nx
import numpy as np
import pandas as pd
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from helpers import _display as show
from helpers import plots, tree

PAGES = Path(__file__).with_name("pages")
FORMAT, VERSION = "attattr-explanation", 1
LIMITS = (
    "Only attention is explained: what the feed-forward blocks and the residual stream do is in no score. Each layer "
    "is an account of its own: scores of different layers lie in one picture, but may not be added up. A score is a "
    "share of the change that the layer's attention makes, not a forecast of what happens when the link is cut. And an "
    "explanation says what moved the model: it is no evidence that the answer is right, nor about who wrote the text."
)
LONGEST = 64  # tokens of a text whose heads are all drawn: the figure grows with their square, 4 MB at 64 tokens
COLUMNS = ("layer", "head", "receives (query)", "is heard (key)", "score", "attention")


@dataclass(frozen=True, eq=False)
class Part:
    """A part of a page about many texts.

    Attributes:
        title: its heading.
        text: plain paragraphs.
        figure: of plotly or matplotlib, or None.
        table: shown as it is, without its index; numbers with 3 digits. None: no table.
    """

    title: str
    text: Sequence[str] = ()
    figure: Any = None
    table: pd.DataFrame | None = None


def page(
    attributions: Sequence,
    probabilities: np.ndarray,
    *,
    title: str = "Attention attribution",
    facts: str = "",
    k: int = 8,
    parts: Sequence[Part] = (),
    longest: int = LONGEST,
) -> str:
    """Return a self-contained HTML page: for every text the prediction, links, heads, tree and how exact it is.

    Args:
        attributions: one Attribution a text.
        probabilities: of every class, [text, class], as ``Classifier.predict`` returns them.
        title: heading of the page.
        facts: a line under it, such as the model's name.
        k: how many links to draw and to list.
        parts: what to say of all texts together, before each of them.
        longest: tokens of a text up to which all its heads are drawn.

    Raises:
        ValueError: there is no attribution, or not one row of probabilities for each.
    """
    _check(attributions, probabilities)
    environment = jinja2.Environment(loader=jinja2.FileSystemLoader(PAGES), autoescape=True, trim_blocks=True)
    styles = (PAGES / "gallery.css").read_text(encoding="utf-8")
    rows = enumerate(zip(attributions, probabilities, strict=True), 1)
    texts = [_section(a, row, k, i, longest) for i, (a, row) in rows]
    return environment.get_template("report.html.j2").render(
        title=title,
        facts=facts,
        parts=[_drawn(part, number) for number, part in enumerate(parts, 1)],
        texts=texts,
        limits=LIMITS,
        styles=Markup(styles),  # of this package
        plotly=Markup(get_plotlyjs()),  # of the installed plotly
    )


def content(
    attributions: Sequence,
    probabilities: np.ndarray,
    *,
    about: Mapping[str, Any] | None = None,
    k: int = 8,
    parts: Sequence[Part] = (),
) -> dict[str, Any]:
    """Return the same as numbers, ready for JSON: what the model says, the k largest scores, the tree, the gaps.

    All scores are in what ``Attribution.save`` writes, and in :func:`links_table`.

    Args:
        attributions, probabilities, k, parts: as for :func:`page`.
        about: what else a reader must know: model, versions, options.

    Raises:
        ValueError: there is no attribution, or not one row of probabilities for each.
    """
    _check(attributions, probabilities)
    texts = [_numbers(a, row, k) for a, row in zip(attributions, probabilities, strict=True)]
    told = [_told(part) for part in parts]
    return {"format": FORMAT, "version": VERSION, **(about or {}), **({"parts": told} if told else {}), "texts": texts}


def links_table(attributions: Sequence) -> pd.DataFrame:
    """Return every score of every text, a row a link, largest score of a text first; ``to_feather`` makes it Arrow.

    Columns: text (its number, from 0), layer, head, query, key (positions), query_token, key_token, score, attention.
    """
    if not len(attributions):
        raise ValueError("No attribution was given: give at least one.")
    frames = []
    for number, a in enumerate(attributions):
        table = a.top_links(a.scores.size)
        frames.append(table.assign(text=number)[["text", *table.columns]])
    whole = pd.concat(frames, ignore_index=True)
    numbers = {name: np.int32 for name in ("text", "layer", "head", "query", "key")}
    return whole.astype(numbers | {"query_token": "category", "key_token": "category"})


def _check(attributions: Sequence, probabilities: np.ndarray) -> None:
    if not len(attributions) or len(attributions) != len(probabilities):
        raise ValueError(
            f"{len(attributions)} attributions and {len(probabilities)} rows of probabilities were given: give at "
            "least one attribution, and one row for each."
        )


def summary(a) -> str:
    """Return in a few words what the model says."""
    if a.output == "raw":
        return f"{a.value:.4f} (the raw output)"
    if a.predicted != a.target:
        return f"{a.labels[a.predicted]} ({a.labels[a.target]} has a probability of {a.probability:.4f})"
    return f"{a.labels[a.predicted]} (probability {a.probability:.4f})"


def completeness(a) -> str:
    """Return in a sentence how exactly the scores add up."""
    if not np.isfinite(a.gap).any():
        return f"Whether the scores add up was not measured; {int(a.steps.max())} points, rule “{a.rule}”."
    worst = int(np.nanargmax(np.abs(a.gap)))
    return (
        f"The scores of a layer add up to what its attention changes, but for {abs(a.gap[worst]):.2g} at most (layer "
        f"{a.layers[worst]}, where the change is {a.value - a.start[worst]:+.3g}); {int(a.steps.max())} points, rule "
        f"“{a.rule}”."
    )


def links(a, k: int = 8) -> list[tuple[int, int, str, str, float, float]]:
    """Return the k largest scores: layer, head, query and key as a reader knows them, score, attention."""
    names, table = show.labels(a), a.top_links(k)
    return [
        (int(row.layer), int(row.head), names[row.query], names[row.key], float(row.score), float(row.attention))
        for row in table.itertuples()
    ]


def _drawn(part: Part, number: int) -> dict[str, Any]:
    table = part.table
    return {
        "title": part.title,
        "text": part.text,
        "figure": _picture(part.figure, f"part-figure-{number}", part.title),
        "columns": [] if table is None else list(table.columns),
        "rows": [] if table is None else [[_cell(v) for v in row] for row in table.itertuples(index=False)],
    }


def _picture(figure, name: str, title: str) -> Markup:
    """Return a figure of plotly, or of matplotlib as a picture that can be made larger without loss."""
    if figure is None or hasattr(figure, "to_html"):
        return Markup("") if figure is None else _figure(figure, name)
    stream = io.BytesIO()
    figure.savefig(stream, format="svg")
    coded = base64.b64encode(stream.getvalue()).decode()
    return Markup('<img src="data:image/svg+xml;base64,{}" alt="{}">').format(coded, title)


def _cell(value: Any) -> str:
    if isinstance(value, float | np.floating):
        return "" if np.isnan(value) else f"{value:.3g}"
    return str(value)


def _told(part: Part) -> dict[str, Any]:
    table = [] if part.table is None else part.table.astype(object).where(part.table.notna(), None).to_dict("records")
    plain = [{str(k): _json(v.item() if isinstance(v, np.generic) else v) for k, v in row.items()} for row in table]
    return {"title": part.title, "text": list(part.text), "table": plain}


def _json(value: Any) -> Any:
    """Return a value as JSON knows it: None where a number is not finite, text where it is no plain value."""
    if isinstance(value, float):
        return value if np.isfinite(value) else None
    return value if value is None or isinstance(value, str | int) else str(value)


def _section(a, probabilities: np.ndarray, k: int, number: int, longest: int) -> dict[str, Any]:
    grown, note = _tree(a)
    return {
        "short": show.cut(" | ".join(_parts(a)), 80),
        "parts": _parts(a),
        "said": summary(a),
        "explained": f"{show.function(a)}, {a.value:.4g}",
        "classes": [] if a.output == "raw" else list(zip(a.labels, map(float, probabilities), strict=True)),
        "links": _figure(plots.sentence_links(a, k=k), f"links-{number}"),
        "heads": _figure(plots.heads_overview(a), f"heads-{number}") if len(a.tokens) <= longest else "",
        "no_heads": f"This text has {len(a.tokens)} tokens. All heads are drawn for texts of up to {longest}, or the "
        "page would become too large; in a notebook, plots.heads_overview(a) draws them.",
        "columns": COLUMNS,
        "rows": [(*row[:4], show.signed(row[4]), f"{row[5]:.3f}") for row in links(a, k)],
        "tree": _figure(plots.tree(grown), f"tree-{number}") if grown is not None and grown.edges else "",
        "tree_note": note,
        "check": completeness(a),
    }


def _parts(a) -> list[str]:
    return [a.text] if isinstance(a.text, str) else list(a.text)


def _tree(a) -> tuple[nx.DiGraph | None, str]:
    """Return the tree of words with a line about it; None where the scores of the layers don't allow one."""
    try:
        grown = tree.attribution_tree(a, merge=True)
    except ValueError as error:
        return None, f"There is no tree. {error}"
    if not grown.edges:
        return grown, f"There is no tree. {grown.graph['note'].rstrip('.')}."
    return grown, (
        "Which few links carry information up to the token that the classifier reads (Algorithm 1 of the paper, tau = "
        f"{grown.graph['tau']:g}). Read it from the bottom up."
    )


def _figure(figure, name: str) -> Markup:
    drawn = figure.to_html(full_html=False, include_plotlyjs=False, div_id=name, config={"displaylogo": False})
    return Markup(drawn)  # made by plotly of figures whose texts are escaped


def _numbers(a, probabilities: np.ndarray, k: int) -> dict[str, Any]:
    grown, note = _tree(a)
    raw = a.output == "raw"
    return {
        "text": a.text if isinstance(a.text, str) else list(a.text),
        "tokens": list(a.tokens),
        "labels": list(a.labels),
        "output": a.output,
        "value": a.value,
        "predicted": None if raw else a.labels[a.predicted],
        "explained": None if raw else a.labels[a.target],
        "probabilities": None if raw else [float(p) for p in probabilities],
        "layers": [
            {"layer": int(layer), "start": _json(float(start)), "gap": _json(float(gap)), "points": int(points)}
            for layer, start, gap, points in zip(a.layers, a.start, a.gap, a.steps, strict=True)
        ],
        "rule": a.rule,
        "links": [
            dict(zip(("layer", "head", "query", "key", "score", "attention"), row, strict=True)) for row in links(a, k)
        ],
        "tree": {"note": note, "edges": [] if grown is None else _edges(grown)},
    }


def _edges(grown: nx.DiGraph) -> list[dict[str, Any]]:
    names = ("layer", "query", "key", "score", "kind")
    return [{name: edge[name] for name in names} for *_, edge in grown.edges(data=True)]
