"""Heat maps of attention and attribution, [query, key]: a head, a layer, or every head at once.

Private to :mod:`helpers.plots`.
"""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go

from helpers import _display as show


def head_maps(a, layer: int, head: int) -> go.Figure:
    """Return the heat maps of one head: its attention weights beside its attribution scores.

    Args:
        a: an Attribution.
        layer: a layer number out of ``a.layers``.
        head: a head number, from 0.

    Raises:
        ValueError: there is no such layer or head; the message names those that are there.
    """
    at, head = show.position(a, layer), show.check_head(a, head)
    where = f"layer {layer}, head {head}"
    return _pair(a, a.attention[at, head], a.scores[at, head], where, "attention", "attribution")


def layer_maps(a, layer: int) -> go.Figure:
    """Return the heat maps of one layer: attention, the mean over heads, beside attribution, the sum over heads.

    Raises:
        ValueError: there is no such layer; the message names those that are there.
    """
    at = show.position(a, layer)
    count = a.scores.shape[1]
    where = f"layer {layer}, its {count} heads together" if count > 1 else f"layer {layer}, its only head"
    means, sums = a.attention[at].mean(axis=0), a.scores[at].sum(axis=0)
    return _pair(a, means, sums, where, "mean attention", "summed attribution")


def head_choice(a, layer: int, head: int) -> go.Figure:
    """Return every head as one square, in the colour of its strongest score, the chosen head framed.

    The first trace is the heat map: x is the head, y the place of the layer in ``a.layers``. The first shape is the
    frame; see :func:`frame`.

    Raises:
        ValueError: there is no such layer or head; the message names those that are there.
    """
    position, chosen = show.position(a, layer), show.check_head(a, head)
    flat = np.nan_to_num(a.scores.reshape(*a.scores.shape[:2], -1), nan=0.0)  # layer, head, link
    best = np.abs(flat).argmax(axis=-1)
    strongest = np.take_along_axis(flat, best[..., None], axis=-1)[..., 0]
    layers, heads = strongest.shape
    names = [show.literal(name) for name in show.labels(a)]
    query, key = np.divmod(best, len(names))
    said = [
        [
            f"layer {number}, head {h}<br>{names[query[i, h]]} ← {names[key[i, h]]}<br>{show.signed(strongest[i, h])}"
            for h in range(heads)
        ]
        for i, number in enumerate(a.layers)
    ]
    cell, top = 28, show.largest(strongest)
    wide, high = max(heads * cell, 220), layers * cell
    axis = dict(tickmode="array", showgrid=False, zeroline=False, ticks="", fixedrange=True, tickfont=dict(size=11))
    figure = go.Figure(
        layout=show.layout(
            a,
            "The strongest score of every head",
            width=64 + wide + max(20, 400 - wide - 64),
            height=112 + high + 40,
            margin=dict(l=64, t=112, r=max(20, 400 - wide - 64), b=40),
            xaxis=axis | dict(title=_axis("head"), tickvals=list(range(heads)), range=[-0.5, heads - 0.5]),
            yaxis=axis
            | dict(
                title=_axis("layer"),
                tickvals=list(range(layers)),
                ticktext=[str(number) for number in a.layers],
                range=[layers - 0.5, -0.5],
            ),
            shapes=[frame(position, chosen)],
        )
    )
    figure.add_heatmap(
        x=list(range(heads)),
        y=list(range(layers)),
        z=strongest,
        text=said,
        xgap=2,
        ygap=2,
        zmin=-top,
        zmax=top,
        colorscale=show.scale(show.ATTRIBUTION),
        colorbar=_bar(f"strongest score ({show.unit(a)})", 0, min(1, 220 / wide)) | dict(xanchor="left"),
        hovertemplate="%{text}<extra></extra>",
    )
    return figure.update_layout(plot_bgcolor=show.RULE)


def frame(position: int, head: int) -> dict:
    """Return the shape that marks the chosen square of :func:`head_choice`."""
    x, y = head, position
    square = dict(type="rect", x0=x - 0.5, x1=x + 0.5, y0=y - 0.5, y1=y + 0.5)
    return square | dict(line=dict(color=show.INK, width=3), fillcolor="rgba(0,0,0,0)")


def _axis(name: str) -> dict:
    return dict(text=name, font=dict(size=12, color=show.FAINT), standoff=6)


def _pair(a, attention: np.ndarray, scores: np.ndarray, where: str, left: str, right: str) -> go.Figure:
    names = show.labels(a)
    n = len(names)
    cell = float(np.clip(380 // n, 9, 34))
    side, gap = max(n * cell, 190), 40
    size = float(np.clip(cell, 8, 13))
    room = max(show.text_width(name, size) for name in names)
    margin = dict(l=room + 46, t=126, b=room + 42)
    margin["r"] = max(24, 620 - margin["l"] - 2 * side - gap)
    share = side / (2 * side + gap)
    heading = where[0].upper() + where[1:]
    figure = go.Figure(
        layout=show.layout(
            a,
            heading,
            show.note(scores),
            width=margin["l"] + 2 * side + gap + margin["r"],
            height=margin["t"] + side + margin["b"],
            margin=margin,
            xaxis=_tokens(names, size, domain=[0, share], tickangle=-90),
            xaxis2=_tokens(names, size, domain=[1 - share, 1], tickangle=-90, matches="x"),
            yaxis=_tokens(names, size, range=[n - 0.5, -0.5]),
        )
    )
    grid = 1 if cell >= 10 else 0
    for values, name, measure, axis, middle in (
        (attention, left, "weight", "x", share / 2),
        (scores, right, show.unit(a), "x2", 1 - share / 2),
    ):
        signed = axis == "x2"
        top = show.largest(values)
        figure.add_heatmap(
            z=values,
            xaxis=axis,
            name=name,
            xgap=grid,
            ygap=grid,
            zmin=-top if signed else 0,
            zmax=top,
            colorscale=show.scale(show.ATTRIBUTION if signed else show.ATTENTION),
            colorbar=_bar(f"{name} ({measure})", middle, share),
            hovertemplate=f"{where}<br>query: %{{y}}<br>key: %{{x}}<br>{name}: %{{z:.3g}}<extra></extra>",
        )
        figure.add_annotation(
            show.caption("key (is attended to)"), x=middle, xanchor="center", y=0, yshift=-room - 14, yanchor="top"
        )
    figure.add_annotation(
        show.caption("query (receives)"), x=0, xshift=-room - 14, xanchor="right", y=1, yanchor="top", textangle=-90
    )
    return figure.update_layout(plot_bgcolor=show.RULE)


def _tokens(names: list[str], size: float, **axis) -> dict:
    """Return an axis with a label for every position, so that a token that comes twice has two rows."""
    return (
        dict(
            tickmode="array",
            tickvals=list(range(len(names))),
            ticktext=[show.literal(name) for name in names],
            tickfont=dict(size=size),
            ticklabelstandoff=4,
            showgrid=False,
            zeroline=False,
            ticks="",
            range=[-0.5, len(names) - 0.5],
        )
        | axis
    )


def _bar(title: str, middle: float, length: float) -> dict:
    """Return a colour bar that lies on its panel and is its heading."""
    return dict(
        orientation="h",
        x=middle,
        xanchor="center",
        len=length,
        y=0.9999,  # at 1 plotly pushes the figure's title out of the figure
        yanchor="bottom",
        ypad=6,
        xpad=0,
        thickness=10,
        outlinewidth=0,
        nticks=5,
        tickfont=dict(size=11),
        title=dict(text=show.literal(title), side="top", font=dict(size=13)),
    )


def heads_overview(a, what: str = "scores") -> go.Figure:
    """Return every head of every layer as a small heat map, on one colour range.

    The maps lie in one mosaic, so that a large model is one picture and not hundreds. A few scores are far
    larger than all others, so the colours of scores end where the largest 0.5 % begin; the title says so.

    Args:
        a: an Attribution.
        what: "scores" (attribution) or "attention".

    Raises:
        ValueError: ``what`` is something else.
    """
    if what not in ("scores", "attention"):
        raise ValueError(f"There is no overview of {what!r}: ask for 'scores' or 'attention'.")
    signed = what == "scores"
    values = getattr(a, what)
    layers, heads, n, _ = values.shape
    cell = _pixels(heads * (n + 1), n)
    step = n + max(1, round(4 / cell))
    mosaic, totals = (
        _mosaic(values, step),
        _mosaic(np.broadcast_to(values.sum((2, 3))[..., None, None], values.shape), step),
    )
    name, measure = ("attribution", show.unit(a)) if signed else ("attention", "weight")
    top, note = _end_of_scale(values) if signed else (show.largest(values), "")
    high, wide = (length * cell for length in mosaic.shape)
    right = max(24, 560 - wide)
    figure = go.Figure(
        layout=show.layout(
            a,
            f"Every head: {name}",
            note,
            show.note(values),
            scored=signed,
            width=70 + wide + right,
            height=150 + high + 14,
            margin=dict(l=70, t=150, r=right, b=14),
            xaxis=_panels("head", "key", a, range(heads), step),
            yaxis=_panels("layer", "query", a, a.layers, step) | dict(range=[mosaic.shape[0] - 0.5, -0.5]),
        )
    )
    total = "<br>sum of this head: %{customdata:.3g}" if signed else ""
    figure.add_heatmap(
        z=mosaic,
        customdata=totals if signed else None,
        zmin=-top if signed else 0,
        zmax=top,
        colorscale=show.scale(show.ATTRIBUTION if signed else show.ATTENTION),
        colorbar=_bar(f"{name} ({measure})", 0, min(1, 260 / wide)) | dict(xanchor="left", ypad=30),
        hoverongaps=False,
        hovertemplate=f"%{{y}}<br>%{{x}}<br>{name}: %{{z:.3g}}{total}<extra></extra>",
    )
    _number(figure, a.layers, heads, n, step, cell)
    return figure.update_layout(plot_bgcolor=show.RULE)


def _pixels(columns: int, n: int) -> int:
    """Return the side of a cell: whole pixels, or rows would differ in height; as many as a page has room for."""
    return max(1, min(2, 1130 // columns), min(860 // columns, 120 // n))


def _mosaic(values: np.ndarray, step: int) -> np.ndarray:
    """Return [layer, head, query, key] as one matrix, every head ``step`` from the next and NaN between them."""
    layers, heads, n, _ = values.shape
    laid = np.full((layers, step, heads, step), np.nan, dtype=np.float32)
    laid[:, :n, :, :n] = values.swapaxes(1, 2)
    return laid.reshape(layers * step, heads * step)[: n - step or None, : n - step or None]


def _end_of_scale(values: np.ndarray) -> tuple[float, str]:
    """Return where the colours of scores end, and the note that says so."""
    largest = show.largest(values)
    sizes = np.abs(values[np.isfinite(values) & (values != 0)])
    end = float(np.quantile(sizes, 0.995)) if sizes.size else largest
    if end > largest / 2:
        return largest, ""
    strongest = values.flat[np.nanargmax(np.abs(values))]
    return end, f"colours end at ±{end:.2g}, the strongest score is {show.signed(strongest)}"


def _number(figure: go.Figure, layers, heads: int, n: int, step: int, cell: int) -> None:
    """Write layer numbers to the left of the rows and head numbers above the columns."""
    for i, layer in enumerate(layers):
        middle = i * step + (n - 1) / 2
        figure.add_annotation(show.caption(f"layer {layer}"), x=0, xshift=-8, xanchor="right", y=middle, yref="y")
    short = n * cell < 50
    for head in range(heads):
        text, middle = str(head) if short else f"head {head}", head * step + (n - 1) / 2
        figure.add_annotation(show.caption(text), x=middle, xref="x", y=1, yshift=3, yanchor="bottom")
    if short:
        figure.add_annotation(show.caption("head"), x=0, xshift=-8, xanchor="right", y=1, yshift=3, yanchor="bottom")


def _panels(kind: str, role: str, a, numbers, step: int) -> dict:
    """Return an axis without visible labels, whose hidden ones name the panel and the token for the hover text."""
    names = [show.literal(name) for name in show.labels(a)]
    places = [
        (i * step + j, f"{kind} {number}, {role}: {name}")
        for i, number in enumerate(numbers)
        for j, name in enumerate(names)
    ]
    vals, texts = zip(*places, strict=True)
    length = len(numbers) * step - (step - len(names))
    return dict(
        tickmode="array",
        tickvals=list(vals),
        ticktext=list(texts),
        showticklabels=False,
        ticks="",
        showgrid=False,
        zeroline=False,
        range=[-0.5, length - 0.5],
    )
