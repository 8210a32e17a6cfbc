"""Where everything in the picture of a tree stands: words along the bottom, nodes above them, links between.

Private to :mod:`helpers._tree_view`. Along the text lengths are pixels; upwards the unit is one layer.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import networkx as nx
import numpy as np
from matplotlib import colormaps
from matplotlib.colors import to_hex

from helpers import _display as show
from helpers._tree_problem import SEPARATORS

SIZE = 12.5  # of the words, in pixels
WIDEST = 810  # pixels that words may take side by side; longer texts are slanted, then upright
APART = 34  # pixels between a first and a second text


class Link(NamedTuple):
    """``query`` receives from ``key`` in ``layer``; kind is "link", "terminal", or "top": a node that has no link."""

    layer: int
    query: int | None
    key: int
    score: float
    share: float
    kind: str


class Stage(NamedTuple):
    """What one picture of the algorithm adds: its name, what happens, links that enter, nodes that go again."""

    name: str
    said: str
    enter: tuple[Link, ...]
    leave: tuple[int, ...] = ()


def links(t: nx.DiGraph) -> tuple[Link, ...]:
    """Return the top node and the links of a tree; what comes later is drawn on top."""
    found = [Link(e["layer"], i, j, e["score"], e["share"], e["kind"]) for i, j, e in t.edges(data=True)]
    top = [] if t.graph["top"] is None else [Link(t.graph["layers"][-1], None, t.graph["top"], 0.0, 0.0, "top")]
    return tuple([*top, *sorted(found, key=lambda link: (link.kind == "link", abs(link.share)))])


def stages(steps: Iterable, t: nx.DiGraph) -> list[Stage]:
    """Return the algorithm's steps by layer: the top node, every layer downwards, what is dropped, the last links."""
    steps, layers = list(steps), t.graph["layers"]
    if not steps:
        return [Stage("nothing", "no edge passes", ())]
    names = dict(zip(t.graph["starts"], t.graph["labels"], strict=True))
    first = Link(layers[-1], None, steps[0].key, 0.0, 0.0, "top")
    found = [Stage("top node", f"“{show.cut(names[first.key])}” is the top node", (first,))]
    for layer in layers[-2::-1]:
        here = [step for step in steps if step.layer == layer and step.action in ("join", "skip")]
        joined = _linked(here, "join", "link")
        said = f"{len(joined)} of {len(here)} candidates join" if here else "no candidate"
        found.append(Stage(f"layer {layer}", said, joined))
    if dropped := tuple(step.key for step in steps if step.action == "drop"):
        found.append(Stage("leaves", f"separators that are leaves go: {len(dropped)}", (), dropped))
    if last := _linked(steps, "gather", "terminal"):
        found.append(Stage(f"layer {layers[-1]}", f"{names[t.graph['terminal']]} reads {len(last)} of them", last))
    if t.graph["note"]:
        found.append(Stage("nothing", "no edge passes", (), tuple({first.key} | _joined(steps))))
    return found


def heading(stage: Stage) -> str:
    """Return what stands above the picture of a stage."""
    text = stage.said if stage.name in ("top node", "nothing", "leaves") else f"{stage.name}: {stage.said}"
    return text[:1].upper() + text[1:]


def breadth(link: Link) -> float:
    """Return how wide a link is drawn, by its share of the layer's largest score, in pixels."""
    share = min(1.0, abs(link.share))
    return 0.8 + 1.6 * share if link.kind == "terminal" else 1 + 4.5 * share


def _linked(steps: Iterable, action: str, kind: str) -> tuple[Link, ...]:
    return tuple(Link(s.layer, s.query, s.key, s.score, s.share, kind) for s in steps if s.action == action)


def _joined(steps: Iterable) -> set[int]:
    return {step.key for step in steps if step.action == "join"}


def inside(found: Sequence[Stage]) -> set[int]:
    """Return the nodes that are there after the last of these stages."""
    ends = {end for stage in found for link in stage.enter for end in (link.query, link.key) if end is not None}
    return ends - {node for stage in found for node in stage.leave}


class Words(NamedTuple):
    """The words along the bottom: their middles, the whole width, how they are turned, how deep they reach.

    Lengths are pixels. ``second`` is where the second text begins and ends, or None.
    """

    x: np.ndarray
    width: float
    angle: int
    depth: float
    second: tuple[float, float] | None


def write(labels: Sequence[str]) -> Words:
    """Return where the words stand: side by side where they fit, else slanted, in a very long text upright."""
    lengths = np.array([show.text_width(show.cut(label), SIZE * 1.1) for label in labels])  # bold ones are wider
    start = second_text(labels)
    room = lengths + 14
    each = (WIDEST - APART) / len(labels)
    angle = 0 if room.sum() + APART * (start is not None) <= WIDEST else -45 if each >= 18.4 else -90
    if angle:
        room = np.full(len(labels), min(each, 30) if angle == -45 else max(each, 16))
    room = room * max(1.0, 560 / room.sum())
    before = np.zeros(len(labels))
    if start is not None:
        before[start] = APART
    right = np.cumsum(room + before)
    x = right - room / 2
    depth = {0: SIZE * 1.6, -45: lengths.max() * 0.72 + 16, -90: lengths.max() + 8}[angle]
    second = None if start is None else (float(right[start] - room[start] - APART / 2), float(right[-1]))
    return Words(x, float(right[-1]), angle, float(depth), second)


def second_text(labels: Sequence[str]) -> int | None:
    """Return the number of the first word of a second text: what follows separators and is none."""
    ends = [label in SEPARATORS for label in labels]
    return next((i for i in range(1, len(labels)) if ends[i - 1] and not ends[i]), None)


@dataclass(frozen=True)
class Place:
    """A tree laid out.

    Attributes:
        t: the tree.
        words: along the bottom.
        spots: node -> (x, height), also of nodes that join and are dropped again.
        heights: layer -> height, from 1; None for the terminal.
        colors: layer -> colour, the first dark; None for the terminal.
    """

    t: nx.DiGraph
    words: Words
    spots: dict[int, tuple[float, float]]
    heights: dict[int | None, float]
    colors: dict[int | None, str]

    @classmethod
    def of(cls, t: nx.DiGraph, found: Sequence[Stage]) -> Place:
        """Lay out everything that enters in these stages."""
        layers, words = t.graph["layers"], write(t.graph["labels"])
        shades = [to_hex(colormaps["viridis"](0.78 * y / max(1, len(layers) - 1))) for y in range(len(layers))]
        heights = {layer: y + 1.0 for y, layer in enumerate(layers)} | {None: len(layers) + 1.0}
        x = dict(zip(t.graph["starts"], words.x.tolist(), strict=True))
        spots = {link.key: (x[link.key], heights[link.layer]) for stage in found for link in stage.enter
                 if link.kind != "terminal"}  # fmt: skip
        spots.setdefault(t.graph["terminal"], (x[t.graph["terminal"]], heights[None]))
        return cls(t, words, spots, heights, dict(zip(layers, shades, strict=True)) | {None: show.INK})

    def layer(self, node: int) -> int | None:
        """Return the layer at whose height a node stands, None for the terminal."""
        return next(layer for layer, height in self.heights.items() if height == self.spots[node][1])

    def label(self, node: int) -> str:
        """Return a node's word, cut where it is long."""
        return show.cut(self.t.graph["labels"][self.t.graph["starts"].index(node)])

    def curve(self, link: Link, points: int = 30) -> np.ndarray:
        """Return the way of a link from its key to its query, [point, (x, height)].

        Straight up from the key, where no other node stands, then over to the query just below it. Between nodes on one
        level it is an arch.
        """
        (x0, y0), (x1, y1) = self.spots[link.key], self.spots[link.key if link.query is None else link.query]
        if y0 == y1:
            high = y0 + 0.35 + 0.5 * abs(x1 - x0) / self.words.width
            return _bezier([(x0, y0), (x0 + 0.1 * (x1 - x0), high), (x1 - 0.1 * (x1 - x0), high), (x1, y1)], points)
        x0 += 3 * (link.kind == "terminal")  # beside the word's own link, not on it
        bend = max(y0, y1 - 1)
        up = [(x0, y) for y in np.arange(y0, bend, 0.5)]
        over = [(x0, bend), (x0, bend + 0.7 * (y1 - bend)), (x1, y1 - 0.7 * (y1 - bend)), (x1, y1)]
        if link.kind == "terminal":
            over[2] = (x0 + 0.3 * (x1 - x0), y1)
        return np.vstack([*up, _bezier(over, points)])


def _bezier(ends: Sequence[tuple[float, float]], points: int) -> np.ndarray:
    s = np.linspace(0, 1, points)[:, None]
    a, b, c, d = (np.array(end, dtype=float) for end in ends)
    return (1 - s) ** 3 * a + 3 * s * (1 - s) ** 2 * b + 3 * s**2 * (1 - s) * c + s**3 * d
