"""The picture of the idea for paper and README: one head by weight and by attribution, and the strongest links.

Private to :mod:`helpers.plots`. Lengths are pixels on a canvas 1000 wide, so that labels always find room.
"""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

from helpers import _display as show
from helpers._links import Line, Link, arcs, extent, lay_out, strongest

WIDTH, EDGE, GAP = 1000, 24, 40
POINTS = 0.72  # one pixel of the canvas in points


def cover(a, *, layer: int | None = None, head: int | None = None, k: int = 6) -> Figure:
    """Return one picture of the idea: a head's attention beside its attribution, and below them the strongest links.

    Args:
        a: an Attribution, best of a sentence of at most 20 tokens.
        layer: the layer of the head to show; with None for either, the head with the largest single |score|.
        head: the head to show.
        k: how many links to draw, by |score| over all layers and heads.

    Raises:
        ValueError: no such layer or head, or no score other than 0 to choose a head by.
    """
    links = strongest(a, k)
    if layer is None or head is None:
        if not links:
            raise ValueError("Every score is 0, so no head stands out: name a layer and a head.")
        layer, head = links[0].layer, links[0].head
    at, head = show.position(a, layer), show.check_head(a, head)
    line = lay_out(a, links, longest=WIDTH - 2 * EDGE)
    curves = arcs(links, line)
    up, down = (room + 10 for room in extent(curves, line))
    zoom = min(1.3, (WIDTH - 2 * EDGE) / line.width)

    names = show.labels(a)
    left = max(show.text_width(name, 12) for name in names) + EDGE + 30
    side = (WIDTH - left - EDGE - GAP) / 2
    size = float(np.clip(side / len(names) - 1, 6, 12))
    below = max(show.text_width(name, size) for name in names) + 34
    maps, sentence = 148 + side + below, 62 + (up + down) * zoom
    height = maps + sentence
    with plt.rc_context(show.PAPER):
        figure = plt.figure(figsize=(WIDTH / 100, height / 100), dpi=100)

        def place(x: float, y: float, wide: float, high: float) -> Axes:
            return figure.add_axes((x / WIDTH, 1 - (y + high) / height, wide / WIDTH, high / height))

        def write(x: float, y: float, text: str, size: float, **style) -> None:
            figure.text(x / WIDTH, 1 - y / height, text, fontsize=size * POINTS, va="top", parse_math=False, **style)

        write(EDGE, 20, "Where a head looks, and what that contributes", 20, weight="bold")
        write(EDGE, 50, f"layer {layer}, head {head} · {show.explained(a)}", 14, color=show.FAINT)
        for x, values, title, signed in (
            (left, a.attention[at, head], "attention (weight)", False),
            (left + side + GAP, a.scores[at, head], f"attribution ({show.unit(a)})", True),
        ):
            axes, bar = place(x, 148, side, side), place(x, 120, side, 8)
            _map(axes, bar, values, names, size, signed=signed)
            write(x, 90, title, 14)
        axes.set_yticks([])
        write(EDGE - 4, 148, "query (receives)", 12, color=show.FAINT, rotation=90)
        write(left, 148 + side + below - 22, "key (is attended to)", 12, color=show.FAINT)
        write(EDGE, maps + 14, f"The {len(links)} strongest links over all layers and heads", 16, weight="bold")
        _legend(write, maps + 40, a, links)
        _sentence(
            place(EDGE, maps + 62, WIDTH - 2 * EDGE, (up + down) * zoom), a, links, curves, line, (-down, up), zoom
        )
    plt.close(figure)
    return figure


def _map(axes: Axes, bar: Axes, values: np.ndarray, names: list[str], size: float, *, signed: bool) -> None:
    top = show.largest(values)
    colors = LinearSegmentedColormap.from_list("map", show.ATTRIBUTION if signed else show.ATTENTION, bad=show.RULE)
    shown = np.ma.masked_invalid(values)
    cells = axes.pcolormesh(shown, cmap=colors, vmin=-top if signed else 0, vmax=top, edgecolors=show.RULE, lw=0.5)
    axes.invert_yaxis()
    places = np.arange(len(names)) + 0.5
    axes.set_xticks(places, names, rotation=90, parse_math=False, fontsize=size * POINTS)
    axes.set_yticks(places, names, parse_math=False, fontsize=size * POINTS)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    scale = axes.figure.colorbar(cells, cax=bar, orientation="horizontal")
    scale.outline.set_visible(False)
    scale.locator = plt.MaxNLocator(4)
    bar.tick_params(length=0, labelsize=11 * POINTS, pad=3)


def _legend(write, y: float, a, links: list[Link]) -> None:
    x = float(EDGE)
    for sign, verb, color in ((1, "above: raises", show.RAISES), (-1, "below: lowers", show.LOWERS)):
        if any(link.score * sign > 0 for link in links):
            text = f"{verb} {show.function(a)}"
            write(x, y, text, 13, color=color)
            x += show.text_width(text, 13) + 20
    write(x, y, "arrow: to the token that receives", 13, color=show.FAINT)


def _sentence(axes: Axes, a, links: list[Link], curves, line: Line, ends: tuple[float, float], zoom: float) -> None:
    """Draw the tokens and their links; the data units are the layout's pixels, ``zoom`` canvas pixels each."""
    axes.set(xlim=(0, (WIDTH - 2 * EDGE) / zoom), ylim=ends)
    axes.axis("off")
    largest = max((abs(link.score) for link in links), default=1.0)
    for link, curve in reversed(list(zip(links, curves, strict=True))):
        strength = abs(link.score) / largest
        style = dict(color=show.RAISES if link.score > 0 else show.LOWERS, alpha=0.4 + 0.6 * strength)
        length = 8 + 4 * strength
        tip = curve[-1]
        kept = curve[np.hypot(*(curve - tip).T) >= length - 2]
        along = (tip - kept[-1]) / np.hypot(*(tip - kept[-1]))
        across = np.array([-along[1], along[0]]) * length * 0.45
        base = tip - along * length
        axes.plot(*kept.T, lw=(1 + 4 * strength) * zoom * POINTS, solid_capstyle="butt", **style)
        axes.fill(*np.array([tip, base + across, base - across]).T, lw=0, **style)
    pale = show.special(a)
    for i, name in enumerate(show.labels(a)):
        color = show.FAINT if i in pale else show.INK
        style = dict(ha="center", va="center", rotation=90 if line.turned else 0, parse_math=False)
        axes.text(line.centres[i], 0, name, fontsize=line.size * zoom * POINTS, color=color, **style)
