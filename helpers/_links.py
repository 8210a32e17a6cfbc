"""A sentence with its strongest attention links drawn as arcs: which links, where they run, and the figure.

Private to :mod:`helpers.plots`. All lengths are pixels, so that labels and arcs know of each other.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import plotly.graph_objects as go

from helpers import _display as show
from helpers._link import Link


def strongest(a, k: int, layer: int | None = None, head: int | None = None) -> list[Link]:
    """Return the k links with the largest |score|, of every head, a layer or a head; zeros and NaN are no links."""
    if isinstance(k, bool) or not isinstance(k, int | np.integer) or k < 1:
        raise ValueError(f"k is {k!r}: give the number of links, at least 1.")
    if layer is None and head is not None:
        raise ValueError(f"head is {head!r} without a layer: every layer has heads of that number, so name both.")
    first = 0 if layer is None else show.position(a, layer)
    start = 0 if head is None else show.check_head(a, head)
    scores = a.scores if layer is None else a.scores[first : first + 1]
    scores = scores if head is None else scores[:, start : start + 1]
    size = np.nan_to_num(np.abs(scores), nan=0.0)
    order = np.argsort(-size, axis=None, kind="stable")[:k]
    found = zip(*np.unravel_index(order, size.shape), strict=True)
    return [
        Link(int(a.layers[first + i]), int(start + h), int(q), int(j), float(scores[i, h, q, j]))
        for i, h, q, j in found
        if size[i, h, q, j] > 0
    ]


class Line(NamedTuple):
    """Tokens laid out along a line, in pixels.

    centres, widths and reach (half the height a label takes) have one entry a token; turned says whether
    labels stand upright; size is that of the font.
    """

    centres: np.ndarray
    widths: np.ndarray
    reach: np.ndarray
    turned: bool
    width: float
    size: float


def lay_out(a, links: list[Link], *, size: float = 13, shortest: float = 520, longest: float = 900) -> Line:
    """Lay the tokens out in reading order, each wide enough for the links that end at it.

    The pieces of a word stand closer together than words do. Labels stand upright where the sentence
    would be wider than ``longest`` pixels, and words move apart where it would be narrower than ``shortest``.
    """
    names = show.labels(a)
    lengths = np.array([show.text_width(name, size) for name in names])
    counts = np.zeros((2, len(names)))
    for link in links:
        counts[int(link.score > 0), [link.query, link.key]] += 1 + (link.query == link.key)
    needed = 11 * counts.max(axis=0)
    first = np.isin(np.arange(len(names)), [word.start for word in a.words])
    widths, gaps = np.maximum(lengths, needed), np.where(first, 14.0, 3.0)
    turned = bool(widths.sum() + gaps.sum() > longest)
    if turned:
        widths, gaps = np.maximum(size * 1.35, needed), np.where(first, size * 0.35, 0.0)
    else:
        spare = shortest - widths.sum() - gaps.sum()
        gaps += first * np.clip(spare / first.sum(), 0, 40)
    right = np.cumsum(gaps + widths)
    reach = (lengths if turned else np.full(len(names), size * 1.1)) / 2 + 5
    return Line(right - widths / 2, widths, reach, turned, float(right[-1]) + 14, size)


def arcs(links: list[Link], line: Line) -> list[np.ndarray]:
    """Return a curve [point, (x, y)] for every link, from its key to its query: above the line if positive.

    Curves that meet at a token are spread over its width, the shorter ones inside, so that they nest.
    """
    ends = _ends(links, line)
    t = np.linspace(0, 1, 81)[:, None]
    curves, inside = [], {}
    for n in range(len(links))[::-1]:  # of links that join the same tokens, the first is the outermost
        link = links[n]
        side = 1 if link.score > 0 else -1
        same = (side, *sorted((link.query, link.key)))
        rank = inside[same] = inside.get(same, -1) + 1
        x0, x1 = ends[n, "key"], ends[n, "query"]
        foot = line.reach[link.key] * (1 - t) + line.reach[link.query] * t
        if link.query == link.key:
            wide, high = 8 + 4 * rank, (38 + 16 * rank) * 4 / 3
            x = (1 - t) ** 3 * x0 + 3 * t * (1 - t) ** 2 * (x0 - wide) + 3 * t**2 * (1 - t) * (x1 + wide) + t**3 * x1
            y = 3 * t * (1 - t) * high
        else:
            x = (x0 + x1) / 2 - (x1 - x0) / 2 * np.cos(np.pi * t)
            high = 14 + 250 * (1 - np.exp(-abs(x1 - x0) / 700)) + 5 * rank
            y = high * np.sin(np.pi * t)
        curves.append(np.hstack([x, side * (foot + y)]))
    return curves[::-1]


def _ends(links: list[Link], line: Line) -> dict[tuple[int, str], float]:
    """Return the x of both ends of every link, keyed by (link, "query" or "key").

    From left to right at a token: links from the left, the shortest first; loops; links to the right, the
    longest first. Equals are ordered so that the earlier link lies outside.
    """
    at: dict[tuple[bool, int], list] = {}
    for n, link in enumerate(links):
        for end, here, there in (("query", link.query, link.key), ("key", link.key, link.query)):
            if here == there:
                order = (1, 0, n) if end == "key" else (2, 0, -n)
            else:
                order = (0, here - there, -n) if there < here else (3, here - there, n)
            at.setdefault((link.score > 0, here), []).append((order, n, end))
    ends = {}
    for (_, token), found in at.items():
        step = min(12.0, line.widths[token] / len(found))
        for place, (_, n, end) in enumerate(sorted(found)):
            ends[n, end] = line.centres[token] + step * (place - (len(found) - 1) / 2)
    return ends


def extent(curves: list[np.ndarray], line: Line) -> tuple[float, float]:
    """Return how far labels and curves reach above and below the line."""
    band = float(line.reach.max())
    heights = np.concatenate([[band, -band], *(curve[:, 1] for curve in curves)])
    return float(heights.max()), float(-heights.min())


def sentence_links(a, *, k: int = 8, layer: int | None = None, head: int | None = None) -> go.Figure:
    """Return the sentence and its k strongest links as arcs, with an arrow at the token that receives (the query).

    Arcs above the sentence raise the output explained, arcs below lower it; width and opacity follow |score|.
    A token that attends to itself carries a loop. The list below the sentence names every link.

    Args:
        a: an Attribution.
        k: how many links, by |score| over all heads.
        layer: only links of this layer; None for all.
        head: only links of this head of the layer; None for all its heads.

    Raises:
        ValueError: k below 1, no such layer or head, or a head without its layer.
    """
    links = strongest(a, k, layer, head)
    line = lay_out(a, links)
    curves = arcs(links, line)
    up, down = extent(curves, line)
    up, down = up + 26, down + 26
    width, listed = max(line.width, 560), 22 * len(links) + 12
    where = "over all layers and heads" if layer is None else f"of layer {layer}"
    where += "" if head is None else f", head {head}"
    chosen = a.scores if layer is None else a.scores[show.position(a, layer)]
    heading = {0: "No link", 1: "The strongest link"}.get(len(links), f"The {len(links)} strongest links")
    figure = go.Figure(
        layout=show.layout(
            a,
            f"{heading} {where}",
            show.note(chosen if head is None else chosen[head]),
            width=width + 48,
            height=78 + up + down + listed,
            margin=dict(l=24, r=24, t=78, b=listed),
            xaxis=dict(range=[0, width], visible=False, fixedrange=True),
            yaxis=dict(range=[-down, up], visible=False, fixedrange=True),
            legend=dict(x=0, y=0, xanchor="left", yanchor="top", traceorder="reversed"),
            hovermode="closest",
            hoverdistance=12,
        )
    )
    _write(figure, a, line)
    largest = max((abs(link.score) for link in links), default=1.0)
    names = [show.literal(name) for name in show.labels(a)]
    ordered = reversed(list(zip(links, curves, strict=True)))  # the strongest lies on top
    figure.add_traces([_arc(a, names, link, curve, abs(link.score) / largest) for link, curve in ordered])
    for raises, verb, y, anchor in ((True, "raises", up, "top"), (False, "lowers", -down, "bottom")):
        if any((link.score > 0) is raises for link in links):
            color = show.RAISES if raises else show.LOWERS
            note = show.caption(f"{verb} {show.literal(show.function(a))}", color)
            figure.add_annotation(note, x=0, xanchor="left", y=y, yref="y", yanchor=anchor)
    return figure


def _arc(a, names: list[str], link: Link, curve: np.ndarray, strength: float) -> go.Scatter:
    color = show.RAISES if link.score > 0 else show.LOWERS
    score, at = show.signed(link.score), f"layer {link.layer}, head {link.head}"
    query, key = names[link.query], names[link.key]
    arrow = np.zeros(len(curve))
    arrow[-1] = 10 + 4 * strength
    return go.Scatter(
        x=curve[:, 0],
        y=curve[:, 1],
        mode="lines+markers",
        line=dict(color=color, width=1 + 4 * strength, simplify=False),
        marker=dict(
            symbol="triangle-up",
            angleref="previous",
            size=arrow,
            standoff=arrow / 2,
            color=color,
            opacity=1,
            line_width=0,
        ),
        opacity=0.4 + 0.6 * strength,
        name=f"{score:\u2007<10}{query} ← {key}   <span style='color:{show.FAINT}'>{at}</span>",
        hovertext=f"{at}<br>query (receives): {query}<br>key (is attended to): {key}<br>{score} ({show.unit(a)})",
        hoverinfo="text",
    )


def _write(figure: go.Figure, a, line: Line) -> None:
    """Write the tokens on the line, the pieces of a word on one ground, special tokens paler."""
    shapes, notes = [], []  # all at once: plotly checks the whole list anew at every single addition
    for word in a.words:
        if word.stop - word.start > 1:
            inside = slice(word.start, word.stop)
            x, half, reach = line.centres[inside], line.widths[inside] / 2, float(line.reach[inside].max()) - 3
            ends = dict(x0=x[0] - half[0] - 2, x1=x[-1] + half[-1] + 2, y0=-reach, y1=reach)
            shapes.append(dict(type="rect", **ends, fillcolor="#eef0f3", line_width=0, layer="below"))
    pale = show.special(a)
    for i, name in enumerate(show.labels(a)):
        color = show.FAINT if i in pale else show.INK
        note = show.caption(show.literal(name), color, line.size)
        note.update(x=line.centres[i], xref="x", y=0, yref="y", textangle=-90 if line.turned else 0)
        notes.append(note)
    figure.update_layout(shapes=shapes, annotations=notes)
