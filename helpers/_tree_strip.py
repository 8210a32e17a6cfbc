"""The algorithm that grows an attribution tree as a strip of pictures, for paper.

Private to :mod:`helpers.plots`.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence

import matplotlib.pyplot as plt
import networkx as nx
import numpy as np
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties, findfont, get_font
from matplotlib.patheffects import withStroke

from helpers import _display as show
from helpers._tree_place import Place, Stage, breadth, heading, inside, stages

FLOOR = -0.4  # where words are marked: low enough for the names of nodes in the first layer
_HALO = [withStroke(linewidth=2, foreground="white")]


def tree_strip(steps: Iterable, t: nx.DiGraph, *, columns: int = 3) -> Figure:
    """Return the pictures of :func:`tree_steps` side by side, for paper: what is new in each is in colour and named.

    Args:
        steps, t: as for :func:`tree_steps`.
        columns: pictures in a row, fewer where the text is long.
    """
    found = stages(steps, t)
    place = Place.of(t, found)
    wide = float(np.clip(0.12 * len(t.graph["labels"]), 3.3, 10))  # inches, so that names find room
    columns = min(columns, len(found), max(1, int(10 / wide)))
    rows = -(-len(found) // columns)
    with plt.rc_context(show.PAPER):
        size = (wide * columns, (1.2 + 0.3 * len(place.heights)) * rows)
        figure, panels = plt.subplots(rows, columns, figsize=size, layout="constrained", squeeze=False)
        for number, axes in enumerate(panels.flat):
            axes.set_axis_off()
            if number < len(found):
                _panel(axes, place, found[: number + 1])
    plt.close(figure)
    return figure


def _panel(axes, place: Place, found: Sequence[Stage]) -> None:
    """One picture: what is new in colour, what was there before grey."""
    there, *before, now = inside(found), *found
    for stage in found:
        for link in stage.enter:
            if link.key in there and link.query is not None:
                color = place.colors[link.layer] if stage is now else "#c4c8cf"
                style = dict(lw=0.55 * breadth(link), ls="--" if link.score < 0 else "-", zorder=2 + (stage is now))
                axes.plot(*place.curve(link).T, color=color, **style)
    new = {link.key for link in now.enter if link.kind != "terminal"} | (there - inside(before) if before else set())
    for node in there:
        x, y = place.spots[node]
        axes.plot([x, x], [FLOOR, y], color=show.RULE, lw=0.7, ls=":", zorder=1)
        color = place.colors[place.layer(node)] if node in new else "#9aa0aa"
        axes.plot(x, y, "o", ms=5, color=color, mec="white", mew=0.7, zorder=5)
        if node in new:
            name = axes.annotate(
                _shown(place.label(node)), (x, y), xytext=(0, -5), textcoords="offset points", parse_math=False
            )
            name.set(fontsize=7.5, rotation=-60, va="top", rotation_mode="anchor", zorder=6, path_effects=_HALO)
    axes.plot(
        np.repeat(place.words.x, 3), np.tile([FLOOR - 0.2, FLOOR, np.nan], len(place.words.x)), color=show.FAINT, lw=0.7
    )
    axes.set(xlim=(-20, place.words.width + 20), ylim=(FLOOR - 0.2, len(place.heights) + 0.8))
    axes.set_title("\n".join(map(_shown, textwrap.wrap(heading(now), 44))), fontsize=9, parse_math=False)


def _shown(text: str) -> str:
    """Return the text with \N{REPLACEMENT CHARACTER} for what the font does not have: a box too, without a warning."""
    known = get_font(findfont(FontProperties(family=show.PAPER["font.family"]))).get_charmap()
    return "".join(c if ord(c) in known else "\N{REPLACEMENT CHARACTER}" for c in text)
