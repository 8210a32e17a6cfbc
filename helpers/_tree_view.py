"""Attribution trees one can hover over, and the algorithm that grows them as an animation.

Private to :mod:`helpers.plots`. A "tree" is what :func:`helpers.tree.attribution_tree` returns, "steps" are what
:func:`helpers.tree.trace` returns for the same arguments. The text runs along the bottom; a node stands above its word,
at the height of the layer through which it joined.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence

import networkx as nx
import numpy as np
import plotly.graph_objects as go

from helpers import _display as show
from helpers._tree_place import SIZE, Link, Place, Stage, breadth, heading, inside, links, stages

LEFT, RIGHT = 104, 28  # margins, in pixels
FADED = 0.6  # opacity of the links of the last layer: nearly every word of the tree has one


def tree(t: nx.DiGraph, *, title: str = "", note: str = "") -> go.Figure:
    """Return the tree as a figure that says on hovering which token received what from which, and in which layer.

    Information runs upwards from the key to the query, in the colour of the layer. A line is as wide as its score is
    large beside the largest of its layer, and dashed where it is negative. The links of the last layer, to the
    token that the classifier reads, are pale, and so are words outside the tree.

    Args:
        t: the tree.
        title: what stands above it; if "", how many words joined and which is the top node.
        note: plain text below the title, in one line or more.

    >>> tree(attribution_tree(a), note=f"predicted: {a.labels[a.predicted]}")
    """
    found = [Stage("tree" if t.edges else "nothing", "", links(t))]
    place = Place.of(t, found)
    figure = go.Figure(layout=_layout(place, title or _counted(t), note, set(t)))
    figure.add_traces([trace for trace, _ in _traces(place, found[0])])
    if t.graph["note"]:
        figure.add_annotation(_said(t.graph["note"]))
    return figure


def tree_steps(steps: Iterable, t: nx.DiGraph, *, title: str = "") -> go.Figure:
    """Return the algorithm as an animation, one picture a layer: press "Play", or move the slider.

    It needs no kernel. At rest it shows the last picture: the tree.

    Args:
        steps: of :func:`helpers.tree.trace`, for the same arguments as the tree.
        t: the tree.
        title: what stands in front of each picture's heading.
    """
    found = stages(steps, t)
    place = Place.of(t, found)
    headings = [f"{title}{': ' if title else ''}{heading(stage)}" for stage in found]
    figure = go.Figure(layout=_layout(place, headings[-1], "", inside(found), low=92))
    there: list[list[bool]] = []  # in which pictures a trace is there
    for number, stage in enumerate(found):
        for trace, node in _traces(place, stage):
            gone = next((n for n, later in enumerate(found) if n > number and node in later.leave), len(found))
            there.append([number <= n < gone for n in range(len(found))])
            figure.add_trace(trace.update(visible=there[-1][-1]))
    figure.frames = [
        go.Frame(
            name=str(n),
            data=[dict(type="scatter", visible=seen[n]) for seen in there],
            traces=list(range(len(there))),
            layout=dict(title=dict(text=_title(headings[n])), xaxis=dict(ticktext=_ticks(t, inside(found[: n + 1])))),
        )
        for n in range(len(found))
    ]
    return figure.update_layout(_controls(figure, [stage.name for stage in found]))


def _counted(t: nx.DiGraph) -> str:
    if t.graph["top"] is None:
        return "No edge passes"
    joined = sum(role != "terminal" for _, role in t.nodes(data="role"))
    what = "words" if t.graph["merged"] else "tokens"
    top = t.graph["labels"][t.graph["starts"].index(t.graph["top"])]
    return f"{joined} of {len(t.graph['labels'])} {what} are in the tree, on top “{show.cut(top)}”"


def _title(title: str, note: str = "") -> str:
    below = "<br>".join(show.literal(line) for line in note.splitlines())
    below = f"<br><span style='font-size:12.5px;color:{show.FAINT}'>{below}</span>" if below else ""
    return f"<b>{show.literal(title)}</b>{below}"


def _said(text: str) -> go.layout.Annotation:
    """A note in the middle of an empty figure."""
    lines = "<br>".join(show.literal(line) for line in textwrap.wrap(text, 60))
    return show.caption(lines, show.INK, 13).update(x=0.5, y=0.5, bgcolor="white", borderpad=6)


def _ticks(t: nx.DiGraph, there: set[int]) -> list[str]:
    """The words as the axis shows them: those of the tree bold, the others pale."""
    shown = [show.literal(show.cut(label)) for label in t.graph["labels"]]
    return [
        f"<b>{name}</b>" if start in there else f"<span style='color:{show.FAINT}'>{name}</span>"
        for start, name in zip(t.graph["starts"], shown, strict=True)
    ]


def _layout(place: Place, title: str, note: str, there: set[int], *, low: float = 0) -> go.Layout:
    words, t, floors = place.words, place.t, len(place.heights)
    row = float(np.clip(400 / floors, 32, 58))  # pixels a layer
    margin = dict(l=LEFT, r=RIGHT, t=46 + 18 * len(note.splitlines()), b=words.depth + 14 + low)
    height = row * (floors + 0.9) + margin["t"] + margin["b"]
    axis = dict(zeroline=False, fixedrange=True, ticks="")
    names = [f"<span style='color:{place.colors[layer]}'>●</span> layer {layer}" for layer in t.graph["layers"]]
    figure = go.Layout(
        title=dict(
            text=_title(title, note), font=dict(size=16), x=0, xref="container", pad=dict(l=16),
            y=1 - 14 / height, yanchor="top",
        ),
        width=max(words.width + LEFT + RIGHT, 720),
        height=height,
        margin=margin,
        font=dict(family=show.FONT, size=12, color=show.INK),
        paper_bgcolor="white",
        plot_bgcolor="white",
        showlegend=False,
        hovermode="closest",
        hoverdistance=14,
        hoverlabel=dict(
            bgcolor="white", bordercolor=show.FAINT, font=dict(color=show.INK, family=show.FONT), align="left"
        ),
        xaxis=axis | dict(
            range=[0, max(words.width, 720 - LEFT - RIGHT)], showgrid=False, tickangle=words.angle,
            tickvals=words.x.tolist(), ticktext=_ticks(t, there), tickfont=dict(size=SIZE),
        ),
        yaxis=axis | dict(
            range=[0.4, floors + 0.6], gridcolor=show.RULE, tickvals=[place.heights[layer] for layer in place.heights],
            ticktext=[*names, "the classifier<br>reads"], tickfont=dict(size=11.5),
        ),
    )  # fmt: skip
    if words.second is not None:
        figure.update(_second(*words.second))
    return figure


def _second(start: float, stop: float) -> go.Layout:
    """The ground under a second text, and the names of both."""
    shade = dict(
        type="rect", x0=start, x1=stop, y0=0, y1=1, yref="paper", fillcolor="#f3f5f8",
        line_width=0, layer="below",
    )  # fmt: skip
    notes = [
        show.caption(name, size=11).update(x=x, xref="x", xanchor="left", y=1, yanchor="top")
        for name, x in (("first text", 0), ("second text", start + 4))
    ]
    return go.Layout(shapes=[shade], annotations=notes)


def _traces(place: Place, stage: Stage) -> Iterator[tuple[go.Scatter, int]]:
    """What a stage adds, each with the node by which it goes again: links, then nodes with their plumb lines."""
    for link in stage.enter:
        if link.query is not None:
            yield _line(place, link, link.query), link.key
    shown = [link for link in stage.enter if link.kind != "terminal"]
    for link in shown:
        yield _plumb(place, link.key), link.key
    for link in shown:
        yield _dot(place, link.key), link.key
    if any(link.kind == "terminal" for link in stage.enter) or stage.name == "nothing":
        yield _dot(place, place.t.graph["terminal"]), -1


def _line(place: Place, link: Link, receiver: int) -> go.Scatter:
    way, color = place.curve(link), place.colors[link.layer]
    query, key = (show.literal(place.label(node)) for node in (receiver, link.key))
    wide = breadth(link)
    last = np.eye(1, len(way), len(way) - 1)[0]  # an arrow at the end, and there the line stops short of the node
    return go.Scatter(
        x=way[:, 0].round(2).tolist(),
        y=way[:, 1].round(4).tolist(),
        mode="lines+markers",
        line=dict(color=color, width=wide, dash="dash" if link.score < 0 else "solid", simplify=False),
        marker=dict(
            symbol="triangle-up",
            angleref="previous",
            size=((7 + wide) * last).tolist(),
            standoff=(6 * last).tolist(),
            color=color,
            opacity=1,
            line_width=0,
        ),
        opacity=FADED if link.kind == "terminal" else 0.92,
        hovertext=f"layer {link.layer}<br>query (receives): <b>{query}</b><br>key (gives): <b>{key}</b>"
        f"<br>score {show.signed(link.score)}<br>{link.share:.0%} of the layer's largest",
        hoverinfo="text",
    )


def _plumb(place: Place, node: int) -> go.Scatter:
    x, y = place.spots[node]
    return go.Scatter(
        x=[x, x], y=[0.4, y], mode="lines", line=dict(color="#b9bec7", width=1, dash="dot"), hoverinfo="skip"
    )


def _dot(place: Place, node: int) -> go.Scatter:
    entry, role = place.t.nodes.get(node, {}), place.t.nodes.get(node, {}).get("role")
    x, y = place.spots[node]
    layer = place.layer(node)
    said = [f"<b>{show.literal(place.label(node))}</b>"]
    said += {"top": ["top node"], "terminal": ["the classifier reads this token"]}.get(
        role, [f"joined in layer {layer}"]
    )
    if entry.get("word") and entry["word"] != entry["token"]:
        said.append(f"of the word {show.literal(show.cut(entry['word']))}")
    if entry:
        said.append(f"receives from others, all layers: {show.signed(entry['received'])}")
    big = role in ("top", "terminal")
    return go.Scatter(
        x=[x],
        y=[y],
        mode="markers+text" if role == "top" else "markers",
        text=[f"<b>{show.literal(place.label(node))}</b>"] if role == "top" else None,
        textposition="top right",
        marker=dict(
            size=14 if big else 10, color=place.colors[layer], line=dict(color="white", width=1.5),
            symbol="square" if role == "terminal" else "circle",
        ),
        hovertext="<br>".join(said),
        hoverinfo="text",
        zorder=1,  # in the animation arrows come later, and would cover it
    )  # fmt: skip


def _controls(figure: go.Figure, names: Sequence[str]) -> go.Layout:
    """The play button and the slider, below the words."""
    still = dict(mode="immediate", frame=dict(duration=0, redraw=True), transition=dict(duration=0))
    moving = dict(mode="immediate", fromcurrent=False, frame=dict(duration=1400, redraw=True), transition_duration=0)
    low = figure.layout.margin.b
    inner = figure.layout.height - figure.layout.margin.t - low
    level = -(low - 84) / inner
    buttons = [
        dict(label="▶ Play", method="animate", args=[None, moving]),
        dict(label="❚❚ Pause", method="animate", args=[[None], still]),
    ]
    steps = [dict(label=name, method="animate", args=[[str(n)], still]) for n, name in enumerate(names)]
    return go.Layout(
        updatemenus=[
            dict(
                type="buttons", direction="left", showactive=False, buttons=buttons, x=0, xanchor="left", y=level,
                yanchor="top", pad=dict(t=6, l=-LEFT + 16), bgcolor="white", bordercolor=show.FAINT,
            )
        ],
        sliders=[
            dict(
                active=len(names) - 1, steps=steps, x=0, xanchor="left", len=1, y=level, yanchor="top",
                pad=dict(t=4, l=84, r=8), currentvalue=dict(visible=False), font=dict(size=11), ticklen=4,
            )
        ],
    )  # fmt: skip
