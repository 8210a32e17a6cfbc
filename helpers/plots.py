"""Figures of attention and attribution (paper sections 3 and 4.1): arrays in, a figure out.

Nothing is shown and nothing is changed. What one hovers over is a plotly figure, what sums up a data
set a matplotlib figure. Rows are queries (the token that receives), columns are keys (the token that
is attended to), in reading order from the top and from the left. Every figure is white, so that it
reads the same on a dark page and on paper.

``a`` is an :class:`helpers.result.Attribution` everywhere; layers are named by its ``layers``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import plotly.graph_objects as go
import seaborn as sns
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from helpers import _display as show
from helpers._cover import cover
from helpers._heatmaps import head_choice, head_maps, heads_overview, layer_maps
from helpers._links import sentence_links
from helpers._pruning_view import head_grids, pruning_curves, pruning_state
from helpers._tree_strip import tree_strip
from helpers._tree_view import tree, tree_steps

__all__ = [
    "completeness",
    "concentration",
    "convergence",
    "cover",
    "head_choice",
    "head_grids",
    "head_maps",
    "heads_overview",
    "layer_maps",
    "pruning_curves",
    "pruning_state",
    "sentence_links",
    "share_of_mass",
    "tree",
    "tree_steps",
    "tree_strip",
]

RULES = {"left": "#cc79a7", "right": "#d55e00", "midpoint": "#009e73", "gauss": "#0072b2"}


def completeness(a) -> go.Figure:
    """Return, layer by layer, F(A) - F(start) beside the sum of the layer's scores, and below them the gap.

    The gap is drawn as a share of F(A) - F(start), on a logarithmic axis, with a line at the 1 % that steps="auto"
    allows; an exact integral has none.
    """
    change = a.value - np.asarray(a.start, dtype=float)
    gap = np.asarray(a.gap, dtype=float)
    share = np.divide(np.abs(gap), np.abs(change), out=np.full_like(gap, np.nan), where=change != 0)
    drawn = np.maximum(share, 1e-9)  # a gap of exactly 0 has no place on a logarithmic axis
    decades = np.log10(drawn[np.isfinite(drawn)])
    difference = f"F(A) - F({'0' if a.baseline == 'zero' else 'mean'})"
    names = [str(layer) for layer in a.layers]
    hover = [
        f"layer {layer}, {points} points ({a.rule})<br>{difference}: {c:.3g}<br>sum of its scores: {c + g:.3g}"
        f"<br>gap: {g:.3g}, {100 * s:.2g} % of the difference"
        for layer, points, c, g, s in zip(a.layers, a.steps, change, gap, share, strict=True)
    ]
    axis = dict(gridcolor=show.RULE, zerolinecolor=show.FAINT)
    lower = [min([-3, *decades]) - 0.4, max([-1.6, *decades]) + 0.4]
    figure = go.Figure(
        layout=show.layout(
            a,
            f"Completeness: do the scores add up to {difference}?",
            width=max(800, 170 + 36 * len(names)),  # narrower, the toolbar covers the title
            height=470,
            margin=dict(l=90, r=84, t=112, b=50),
            bargap=0.35,
            legend=dict(orientation="h", x=0, y=1.02, xanchor="left", yanchor="bottom"),
            xaxis=dict(title=_small("layer"), type="category", anchor="y2", showgrid=False),
            yaxis=axis | dict(title=_small(show.unit(a)), domain=[0.42, 1]),
            yaxis2=axis | dict(title=_small("gap / difference"), domain=[0, 0.32], type="log", dtick=2, range=lower),
        )
    )
    same = dict(x=names, hovertext=hover, hoverinfo="text")
    figure.add_bar(**same, y=change, name=difference, marker=dict(color="#c9ced6"))
    figure.add_bar(**same, y=change + gap, name="sum of the layer's scores", marker=dict(color=show.RAISES))
    figure.add_scatter(
        **same, y=drawn, yaxis="y2", mode="markers", showlegend=False, marker=dict(color=show.INK, size=9)
    )
    figure.update_yaxes(tickformat="~%", selector=dict(type="log"))
    figure.add_shape(
        type="line",
        xref="paper",
        x0=0,
        x1=1,
        yref="y2",
        y0=0.01,
        y1=0.01,
        line=dict(color=show.FAINT, width=1, dash="dot"),
    )
    # on a logarithmic axis a shape is placed by its value, a note by the logarithm
    note = dict(xref="paper", x=1.01, xanchor="left", yref="y2", y=-2, showarrow=False, align="left")
    figure.add_annotation(**note, **_small("1 %<br>allowed"))
    return figure


def _small(text: str) -> dict:
    return dict(text=text, font=dict(size=12, color=show.FAINT))


def share_of_mass(values: np.ndarray, fractions: Sequence[float]) -> np.ndarray:
    """Return what share of sum |values| the largest ones hold, for each fraction of their number.

    >>> share_of_mass(np.array([6, 2, -1, 1]), [0.25, 0.5, 1])
    array([0.6, 0.8, 1. ])
    """
    sizes = -np.sort(-np.abs(np.asarray(values, dtype=np.float64).ravel()))
    total = sizes.sum()
    if not total > 0:
        raise ValueError("The values are all 0 or not numbers: there is no mass to share out.")
    held = np.concatenate([[0], np.cumsum(sizes) / total])
    return np.interp(np.asarray(fractions) * len(sizes), np.arange(len(held)), held)


def concentration(
    values: Mapping[str, Sequence[np.ndarray]],
    *,
    mark: float = 0.01,
    title: str = "",
    colors: Mapping[str, str] | None = None,
) -> Figure:
    """Return how few links hold how much: the share of the mass against the share of links, largest links first.

    A line is the median over examples, its band the middle 80 %. The dotted line is equal shares.

    Args:
        values: name -> one array per example, of any shape (its |values| are ranked), for instance
            {"attention": [a.attention for a in many], "attribution": [a.scores for a in many]}.
        mark: the share of links at which the figure states the numbers.
        title: what is drawn; the number of examples is added.
        colors: name -> colour, where it shall not be the usual one.

    Raises:
        ValueError: there is nothing to draw, or an example whose values are all 0.
    """
    if not values or not all(len(arrays) for arrays in values.values()):
        raise ValueError("There is nothing to draw: give every name at least one example's array.")
    fractions = np.unique(np.append(np.logspace(-4, 0, 121), mark))
    others = iter(sns.color_palette(["#cc79a7", "#7f7f7f", "#0072b2"], len(values)).as_hex())
    named = {"attention": show.ATTENTION[-3], "attribution": show.RAISES, **(colors or {})}
    colors = {name: named.get(name) or next(others) for name in values}
    with plt.rc_context(show.PAPER):
        figure, axes = plt.subplots(figsize=(7.2, 4.9), layout="constrained")
        for name, arrays in values.items():
            curves = np.array([share_of_mass(array, fractions) for array in arrays])
            low, middle, high = np.quantile(curves, [0.1, 0.5, 0.9], axis=0)
            axes.fill_between(fractions, low, high, color=colors[name], alpha=0.18, lw=0)
            at = middle[np.searchsorted(fractions, mark)]
            label = f"{name}: {100 * mark:.3g} % of links hold {100 * at:.0f} %"
            axes.plot(fractions, middle, color=colors[name], lw=2.2, label=label)
            axes.plot([mark], [at], "o", color=colors[name], ms=6)
        axes.plot(fractions, fractions, color=show.FAINT, lw=1, ls=":", label="equal shares")
        axes.set(
            xscale="log",
            xlim=(1e-4, 1),
            ylim=(0, 1),
            xlabel="share of all links, largest first",
            ylabel="share of the total",
        )
        counted = f"{len(arrays)} examples: median and middle 80 %"
        axes.set_title(f"{title} ({counted})" if title else counted, fontsize=11, pad=10)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{100 * x:.4g} %"))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{100 * y:.0f} %"))
        figure.legend(frameon=False, loc="outside lower center", ncol=2)  # inside it would lie on the bands
        sns.despine(figure)
    plt.close(figure)
    return figure


def convergence(errors: pd.DataFrame, *, tolerance: float = 0.01) -> Figure:
    """Return the error of the scores against the number of points, one line a rule: median and middle 80 %.

    Args:
        errors: tidy, one row a measurement: rule, steps, error (relative), example, layer.
        tolerance: where to draw the line below which an error is taken as small.
    """
    missing = {"rule", "steps", "error"} - set(errors.columns)
    if missing:
        raise ValueError(
            f"The table has no column {', '.join(sorted(missing))}: give rule, steps and error, one row a measurement."
        )
    shown = errors.assign(error=errors["error"].clip(lower=1e-9))
    rules = [rule for rule in RULES if rule in set(shown["rule"])]
    with plt.rc_context(show.PAPER):
        figure, axes = plt.subplots(figsize=(7.2, 4.6), layout="constrained")
        sns.lineplot(
            shown,
            x="steps",
            y="error",
            hue="rule",
            style="rule",
            hue_order=rules,
            style_order=rules,
            palette=RULES,
            markers=True,
            dashes={rule: (4, 2) if rule == "left" else "" for rule in rules},
            estimator="median",
            errorbar=("pi", 80),
            lw=2,
            ms=7,
            ax=axes,
        )
        axes.axhline(tolerance, color=show.FAINT, lw=1, ls=":")
        axes.annotate(
            f"{100 * tolerance:.3g} %",
            (1.01, tolerance),
            xycoords=("axes fraction", "data"),
            va="center",
            annotation_clip=False,
            color=show.FAINT,
        )
        axes.set(xscale="log", yscale="log", xlabel="number of points", ylabel="relative error of a layer's scores")
        steps = sorted(shown["steps"].unique())
        axes.set_xticks(steps, [str(n) for n in steps])
        axes.minorticks_off()
        axes.grid(axis="y")
        units = [n for n in ("example", "layer") if n in shown]
        counted = " x ".join(f"{shown[n].nunique()} {n}s" for n in units)
        axes.set_title(
            f"{counted}: median and middle 80 %" if counted else "Median and middle 80 %", fontsize=11, pad=10
        )
        axes.legend(frameon=False, title=None)
        sns.despine(figure)
    plt.close(figure)
    return figure
