"""Figures of head pruning (paper section 5.1): how much each head matters, which ones are gone, what accuracy is left.

Private to :mod:`helpers.plots`. A "curve" here is anything with the fields of :class:`helpers.pruning.Curve`
(``shares``, ``right``, ``accuracy``, ``interval()``), an importance is an array [layer, head], gates are 1 for a head
that stays and 0 for one that is gone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import plotly.graph_objects as go
import seaborn as sns
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from helpers import _display as show

SCORES = {  # a score's colour, and its mark on paper
    "attribution": (show.RAISES, "o"),
    "attention": (show.ATTENTION[5], "s"),
    "taylor": ("#7b5ea7", "^"),
    "accuracy": ("#b8860b", "D"),
    "random": ("#8a8f98", ""),
}
_OTHERS = (("#0072b2", "v"), ("#cc79a7", "P"), ("#009e73", "X"), ("#7f3b08", "*"))


def looks(names: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Return every score's colour and mark, by the first word of its name; scores of another name get the rest."""
    others = iter(_OTHERS * (1 + len(names) // len(_OTHERS)))
    first = {name: name.split()[0].lower() if name.split() else "" for name in names}
    return {name: SCORES[first[name]] if first[name] in SCORES else next(others) for name in names}


def pruning_curves(curves: Mapping[str, Mapping[str, Any]], *, measure: str = "accuracy", columns: int = 2) -> Figure:
    """Return the accuracy against the share of heads that are off: a panel a task, a line a score, with its interval.

    Args:
        curves: task -> score -> curve. The dotted line is where they start, with all heads.
        measure: what the curves measure, where that is not accuracy.
        columns: panels side by side.

    Raises:
        ValueError: there is no curve.
    """
    if not curves or not all(curves.values()):
        raise ValueError("There is nothing to draw: give every task at least one curve.")
    style = looks(list(dict.fromkeys(name for found in curves.values() for name in found)))
    columns = min(columns, len(curves))
    rows = -(-len(curves) // columns)
    with plt.rc_context(show.PAPER):
        size = (4.9 * columns + 0.4 * (columns == 1), 3.5 * rows + 0.6)
        figure, panels = plt.subplots(rows, columns, figsize=size, layout="constrained", squeeze=False)
        for axes, (task, found) in zip(panels.flat, curves.items(), strict=False):
            _panel(axes, found, style)
            count = np.shape(next(iter(found.values())).right)[1]
            axes.set_title(f"{task}: {count} examples", fontsize=11, parse_math=False)
        for axes in panels.flat[len(curves) :]:
            axes.remove()
        for axes in panels[:, 0]:
            axes.set_ylabel(measure)
        handles = {line.get_label(): line for axes in figure.axes for line in axes.get_lines()}
        named = [name for name in style if name in handles]
        figure.legend([handles[n] for n in named], named, frameon=False, loc="outside lower center", ncol=len(named))
        sns.despine(figure)
    plt.close(figure)
    return figure


def _panel(axes, curves: Mapping[str, Any], style: Mapping[str, tuple[str, str]]) -> None:
    for name, curve in curves.items():
        (color, mark), (low, high) = style[name], curve.interval()
        axes.fill_between(curve.shares, low, high, color=color, alpha=0.12, lw=0)
        dashed = "--" if name.startswith("random") else "-"
        axes.plot(curve.shares, curve.accuracy, color=color, marker=mark, ms=5, lw=1.8, ls=dashed, label=name)
    axes.axhline(curve.accuracy[0], color=show.FAINT, lw=1, ls=":", label="_all heads")
    axes.xaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    axes.set(xlim=(-0.01, 1.01), xlabel="heads off")
    axes.grid(axis="y")


def head_grids(importances: Mapping[str, Mapping[str, np.ndarray]]) -> Figure:
    """Return the importance of every head: a row of grids a task, a column a score, each as a share of its largest.

    Args:
        importances: task -> score -> [layer, head]. Values below 0 are drawn as 0.

    Raises:
        ValueError: there is no importance, or the tasks have not the same scores.
    """
    names = list(next(iter(importances.values()), {}))
    if not names or any(list(found) != names for found in importances.values()):
        raise ValueError("There is nothing to draw, or the tasks have not the same scores: give each of them the same.")
    style = looks(names)
    with plt.rc_context(show.PAPER):
        size = (2.35 * len(names) + 0.5, 1.45 * len(importances) + 1.1)
        figure, grids = plt.subplots(
            len(importances), len(names), figsize=size, layout="constrained", squeeze=False, sharex=True, sharey=True
        )
        for row, (task, found) in zip(grids, importances.items(), strict=True):
            for axes, (name, values) in zip(row, found.items(), strict=True):
                drawn = np.clip(values, 0, None) / show.largest(np.clip(values, 0, None))
                shades = sns.light_palette(style[name][0], as_cmap=True)
                sns.heatmap(drawn, vmin=0, vmax=1, cmap=shades, cbar=False, ax=axes, linewidths=0.4, square=False)
                axes.tick_params(length=0, labelsize=8, labelrotation=0)
            row[0].set_ylabel(f"{task}\nlayer", parse_math=False)
        for column, name in zip(grids.T, names, strict=True):
            column[0].set_title(name, fontsize=11, color=style[name][0], parse_math=False)
            column[-1].set_xlabel("head")
            figure.colorbar(
                column[-1].collections[0], ax=column.tolist(), location="bottom", aspect=30, pad=0.02, ticks=[0, 0.5, 1]
            ).outline.set_visible(False)
        figure.supxlabel("share of the score's largest importance in that task", fontsize=9, color=show.FAINT)
    plt.close(figure)
    return figure


def pruning_state(
    curves: Mapping[str, Any], importance: np.ndarray, gates: np.ndarray, *, score: str, setting: int, note: str = ""
) -> go.Figure:
    """Return where one stands while heads go: the point on the score's curve, and the heads that are gone, crossed out.

    Args:
        curves: score -> curve, all drawn; over the same settings.
        importance: of every head by the chosen score, [layer, head].
        gates: 1 for heads that are left, 0 for heads that are gone, [layer, head].
        score: the chosen one of the curves.
        setting: which point of its curve.
        note: plain text below the heading, in one line or more.

    Raises:
        ValueError: no such score or setting, or shapes that differ.
    """
    if score not in curves:
        raise ValueError(f"There is no curve of {score!r}: choose one of {', '.join(curves)}.")
    if not 0 <= setting < len(curves[score].shares):
        raise ValueError(f"There is no setting {setting!r}: the curve has 0 to {len(curves[score].shares) - 1}.")
    if np.ndim(importance) != 2 or np.shape(importance) != np.shape(gates):
        raise ValueError(
            f"Importance has the shape {np.shape(importance)} and gates {np.shape(gates)}: both are [layer, head]."
        )
    gone = np.asarray(gates) == 0
    layers, heads = gone.shape
    figure = go.Figure(layout=_layout(_heading(curves[score], score, setting, gone), note, layers, heads))
    style = looks(list(curves))
    for name in sorted(curves, key=lambda name: name == score):  # the chosen one on top
        line = _line(name, curves[name], style[name][0], chosen=name == score)
        figure.add_trace(line.update(legendrank=list(curves).index(name)))
    figure.add_trace(_marker(curves[score], style[score][0], setting))
    values = np.asarray(importance, dtype=float)
    figure.add_trace(_grid(values, gone, score))
    ends = min(0.0, float(values.min())), float(values.max())
    figure.update_coloraxes(
        cmin=ends[0], cmax=ends[1] if ends[1] > ends[0] else 1.0, colorscale=[[0, "#f4f4f2"], [1, style[score][0]]]
    )
    for width, color in ((4, "white"), (1.6, show.INK)):  # visible on pale cells and on dark ones
        figure.add_trace(_crosses(gone, width, color))
    return figure


def _heading(curve, score: str, setting: int, gone: np.ndarray) -> str:
    whole, now = curve.accuracy[0], curve.accuracy[setting]
    off = f"{int(gone.sum())} of {gone.size} heads off by {score}" if gone.any() else "All heads on"
    return f"{off}: accuracy {now:.3f}" + (f" instead of {whole:.3f}" if gone.any() else "")


def _layout(heading: str, note: str, layers: int, heads: int) -> go.Layout:
    cell = max(14, min(30, 330 // heads))  # pixels
    gap, right = 72, cell * heads
    left = max(400, 720 - gap - right)  # in a narrow figure the toolbar would cover the heading
    below = [show.literal(line) for line in note.splitlines()]
    margin = dict(l=64, r=96, t=66 + 18 * len(below), b=104)
    height = max(420, cell * layers + margin["t"] + margin["b"])
    inner, tall = left + gap + right, cell * layers / (height - margin["t"] - margin["b"])
    title = f"<b>{show.literal(heading)}</b>"
    if below:
        title += f"<br><span style='font-size:12.5px;color:{show.FAINT}'>{'<br>'.join(below)}</span>"
    curves = dict(gridcolor=show.RULE, zeroline=False)
    grid = dict(showgrid=False, zeroline=False, dtick=1, tickfont=dict(size=11))
    legend = dict(orientation="h", x=0, y=-62 / (height - margin["t"] - margin["b"]), yanchor="top")
    return go.Layout(
        title=dict(
            text=title, font=dict(size=16), x=0, xref="container", pad=dict(l=16), y=1 - 14 / height, yanchor="top"
        ),
        width=inner + margin["l"] + margin["r"],
        height=height,
        margin=margin,
        font=dict(family=show.FONT, size=12, color=show.INK),
        paper_bgcolor="white",
        plot_bgcolor="white",
        hoverlabel=dict(
            bgcolor="white", bordercolor=show.FAINT, font=dict(color=show.INK, family=show.FONT), align="left"
        ),
        legend=legend,
        xaxis=curves | dict(title="heads off", tickformat=".0%", domain=[0, left / inner], range=[-0.03, 1.03]),
        yaxis=curves | dict(title="accuracy"),
        xaxis2=grid | dict(title="head", domain=[(left + gap) / inner, 1], anchor="y2", range=[-0.5, heads - 0.5]),
        yaxis2=grid | dict(title="layer", domain=[1 - tall, 1], anchor="x2", range=[layers - 0.5, -0.5]),
        coloraxis=dict(
            colorbar=dict(
                title=_small("importance"),
                len=max(tall, 0.5),
                nticks=5,
                y=1,
                yanchor="top",
                thickness=10,
                tickfont=dict(size=10),
                outlinewidth=0,
            )
        ),
    )


def _line(name: str, curve, color: str, *, chosen: bool) -> go.Scatter:
    return go.Scatter(
        x=list(curve.shares),
        y=list(curve.accuracy),
        name=show.literal(name),
        mode="lines+markers" if chosen else "lines",
        line=dict(color=color, width=3 if chosen else 1.5, dash="dash" if name.startswith("random") else "solid"),
        opacity=1 if chosen else 0.55,
        hovertemplate=f"{show.literal(name)}<br>%{{x:.0%}} of heads off<br>accuracy %{{y:.3f}}<extra></extra>",
    )


def _marker(curve, color: str, setting: int) -> go.Scatter:
    right = np.asarray(curve.right[setting], dtype=float)
    now, error = right.mean(), 1.96 * right.std() / len(right) ** 0.5  # a bootstrap would keep the reader waiting
    return go.Scatter(
        x=[curve.shares[setting]],
        y=[now],
        error_y=dict(
            type="data",
            symmetric=False,
            array=[min(error, 1 - now)],
            arrayminus=[min(error, now)],
            color=color,
            thickness=2,
        ),
        mode="markers",
        marker=dict(size=15, color="white", line=dict(color=color, width=4)),
        hovertemplate=f"accuracy {now:.3f}, 95 % interval ± {error:.3f}<extra></extra>",
        showlegend=False,
    )


def _grid(importance: np.ndarray, gone: np.ndarray, score: str) -> go.Heatmap:
    place = 1 + np.argsort(np.argsort(importance, axis=None, kind="stable"), kind="stable").reshape(importance.shape)
    told = np.where(gone, "off", "on").astype(object)
    hover = [
        [
            f"layer {i}, head {j}: {told[i, j]}<br>{show.literal(score)}: {importance[i, j]:.3g}"
            f"<br>number {place[i, j]} to go of {importance.size}"
            for j in range(importance.shape[1])
        ]
        for i in range(importance.shape[0])
    ]
    return go.Heatmap(
        z=importance,
        xaxis="x2",
        yaxis="y2",
        hovertext=hover,
        hoverinfo="text",
        xgap=1,
        ygap=1,
        coloraxis="coloraxis",
    )


def _small(text: str) -> dict:
    return dict(text=text, font=dict(size=11))


def _crosses(gone: np.ndarray, width: float, color: str) -> go.Scatter:
    rows, columns = np.nonzero(gone)
    return go.Scatter(
        x=columns.tolist(),
        y=rows.tolist(),
        xaxis="x2",
        yaxis="y2",
        mode="markers",
        marker=dict(symbol="x-thin", size=11, line=dict(color=color, width=width)),
        hoverinfo="skip",
        showlegend=False,
    )
