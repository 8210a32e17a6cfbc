"""A tree as a picture, as text for other tools, and as a file that can be read again.

Private to :mod:`helpers.tree`. A token may hold anything a reader typed: in every format it is shown
as it is and never read as markup, a formula or a command.
"""

from __future__ import annotations

import io
import json
import math
import os
import re
import textwrap
import warnings
from numbers import Real
from pathlib import Path

import matplotlib
import networkx as nx
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch

FORMAT, VERSION = "attattr-tree", 1
ROLES, KINDS = ("terminal", "top", "joined"), ("link", "terminal")  # of nodes, of edges
INK, FAINT, RULE = "#1f2430", "#6b7280", "#d5d8dd"
STYLE = {"font.family": "DejaVu Sans", "svg.fonttype": "none", "svg.hashsalt": "attattr", "figure.facecolor": "white"}
LONGEST = 18
# control characters, marks that turn the reading direction, halves of a surrogate pair: no file can hold or show them
_UNSHOWN = re.compile("[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")


def clean(text: str, longest: int | None = None) -> str:
    """Return a text on one line, with \N{REPLACEMENT CHARACTER} for what can't be shown, cut where too long."""
    text = _UNSHOWN.sub("\N{REPLACEMENT CHARACTER}", " ".join(text.split()))
    return text if longest is None or len(text) <= longest else text[: longest - 1] + "…"


def layout(tree: nx.DiGraph) -> dict[int, tuple[float, float]]:
    """Return every node's (x, y): x the word's place in reading order, y 1 for the first layer, 2 for the second ..."""
    place = {start: float(x) for x, start in enumerate(tree.graph["starts"])}
    height = {layer: float(y + 1) for y, layer in enumerate(tree.graph["layers"])}
    above = len(tree.graph["layers"]) + 1.0
    return {node: (place[node], above if layer is None else height[layer]) for node, layer in tree.nodes(data="layer")}


def draw(tree: nx.DiGraph, *, title: str = "") -> Figure:
    """Return the tree as a matplotlib figure; see :func:`helpers.tree.draw`."""
    count, floors = len(tree.graph["labels"]), len(tree.graph["layers"])
    below = min(LONGEST, max(map(len, tree.graph["labels"])))
    size = (max(5.0, 1.6 + 0.42 * count), 1.4 + 0.42 * floors + 0.09 * below)
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=size, dpi=110, layout="constrained")
        axes = figure.add_subplot()
        heights = [0.0, *(y + 1.0 for y in range(floors)), floors + 1.0]
        names = ["", *(f"layer {layer}" for layer in tree.graph["layers"]), "read by the classifier"]
        axes.set(xlim=(-0.8, count - 0.2), ylim=(0.4, floors + 1.6))
        axes.set_yticks(heights[1:], names[1:], fontsize=8, color=FAINT)
        _words(axes, tree)
        _edges(axes, tree, _colors(floors))
        axes.set_title(clean(title), loc="left", fontsize=11, fontweight="bold", parse_math=False)
        if tree.graph["note"]:
            said = textwrap.fill(clean(tree.graph["note"]), 40)
            axes.text(0.5, 0.5, said, transform=axes.transAxes, ha="center", va="center", color=INK, parse_math=False)
        axes.spines[:].set_visible(False)
        axes.tick_params(length=0)
    return figure


def _colors(floors: int) -> list[str]:
    """One colour a layer, the first one dark; the last entry is for the terminal."""
    return [to_hex(matplotlib.colormaps["viridis"](0.78 * y / max(1, floors - 1))) for y in range(floors)] + [INK]


def _words(axes: Axes, tree: nx.DiGraph) -> None:
    inside = {tree.graph["starts"].index(node) for node in tree}
    names = [clean(label, LONGEST) for label in tree.graph["labels"]]
    axes.set_xticks(range(len(names)), names, rotation=90, fontsize=9, parse_math=False)
    for x, label in enumerate(axes.get_xticklabels()):
        label.set(color=INK if x in inside else FAINT, fontweight="bold" if x in inside else "normal")
    for place, height in layout(tree).values():
        axes.plot([place, place], [0.4, height], color=RULE, lw=0.8, ls=":", zorder=0)


def _edges(axes: Axes, tree: nx.DiGraph, colors: list[str]) -> None:
    place, floor = layout(tree), {layer: y for y, layer in enumerate(tree.graph["layers"])}
    largest: dict[str, float] = {}  # of each kind: the last layer's scores dwarf the others
    for *_, edge in tree.edges(data=True):
        largest[edge["kind"]] = max(largest.get(edge["kind"], 1e-300), abs(edge["score"]))
    for query, key, edge in tree.edges(data=True):
        gap = place[query][0] - place[key][0]
        # between nodes on one level an arch above it, as high for far words as for near ones
        bend = -math.copysign(min(0.35, 0.9 / abs(gap)), gap) if place[query][1] == place[key][1] else 0.0
        axes.add_patch(
            FancyArrowPatch(
                place[key],  # information flows from key to query
                place[query],
                arrowstyle="-|>",
                mutation_scale=9,
                shrinkA=4,
                shrinkB=4,
                lw=0.8 + 3.2 * abs(edge["score"]) / largest[edge["kind"]],
                color=colors[floor[edge["layer"]]],
                alpha=0.45 if edge["kind"] == "terminal" else 0.9,
                ls="--" if edge["score"] < 0 else "-",
                connectionstyle=f"arc3,rad={bend}",
            )
        )
    for node, layer in tree.nodes(data="layer"):
        color = colors[-1 if layer is None else floor[layer]]
        axes.plot(*place[node], "o", ms=7, color=color, mec="white", mew=0.8, zorder=3)


def image(tree: nx.DiGraph, kind: str, title: str) -> bytes:
    """Return the figure as an SVG or PNG file; texts in an SVG stay text."""
    stream = io.BytesIO()
    with matplotlib.rc_context(STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing from")  # an emoji is drawn as a box
        metadata = {"Date": None} if kind == "svg" else {"Software": None}
        draw(tree, title=title).savefig(stream, format=kind, metadata=metadata)
    return stream.getvalue()


def _labels(tree: nx.DiGraph) -> dict[int, str]:
    names = dict(zip(tree.graph["starts"], tree.graph["labels"], strict=True))
    return {node: names[node] for node in tree}


def to_dot(tree: nx.DiGraph) -> str:
    """Return the tree for Graphviz: ``dot -Tsvg tree.dot``."""
    lines = ["digraph tree {", "  rankdir=BT; node [shape=box, style=rounded]; edge [dir=forward];"]
    for node, label in _labels(tree).items():
        bold = ", style=bold" if tree.nodes[node]["role"] != "joined" else ""
        lines.append(f'  n{node} [label="{_dot(label)}"{bold}];')
    for query, key, edge in tree.edges(data=True):
        style = ", style=dashed" if edge["kind"] == "terminal" else ""
        lines.append(f'  n{key} -> n{query} [label="layer {edge["layer"]}: {edge["score"]:.3g}"{style}];')
    return "\n".join([*lines, "}"]) + "\n"


def _dot(text: str) -> str:
    # Graphviz reads &name; in a label as that character, and \N, \l, ... as commands
    text = clean(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return text.replace("\\", "\\\\").replace('"', '\\"')


def to_mermaid(tree: nx.DiGraph) -> str:
    """Return the tree as a Mermaid flowchart, for Markdown pages that draw one."""
    lines = ["flowchart BT"]
    lines += [f'  n{node}["{_mermaid(label)}"]' for node, label in _labels(tree).items()]
    for query, key, edge in tree.edges(data=True):
        arrow = "-.->" if edge["kind"] == "terminal" else "-->"
        lines.append(f'  n{key} {arrow}|"layer {edge["layer"]}: {edge["score"]:.3g}"| n{query}')
    return "\n".join(lines) + "\n"


def _mermaid(text: str) -> str:
    # every mark goes as its number: quotes, `markdown`, $$formulas$$, fa:icons and %%{directives}%% mean something
    return "".join(c if c.isalnum() or c == " " or ord(c) > 127 else f"#{ord(c)};" for c in clean(text))


def to_json(tree: nx.DiGraph) -> str:
    """Return the tree as node-link JSON, which ``networkx.node_link_graph`` reads; safe inside a <script> element."""
    content = {"format": FORMAT, "version": VERSION, **nx.node_link_data(tree, edges="edges")}
    text = json.dumps(content, indent=1, allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026") + "\n"


def write(path: str | Path, content: bytes) -> Path:
    """Write a file whole or not at all, and return its path."""
    path = Path(path).expanduser()
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        unfinished.write_bytes(content)
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)
    return path


def read(path: str | Path) -> nx.DiGraph:
    """Read what :func:`to_json` made; see :func:`helpers.tree.load`."""
    path = Path(path).expanduser()
    if not path.is_file():
        raise FileNotFoundError(f"There is no tree file at {path}.")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        known = (content.get("format"), content.get("version"))
    except (ValueError, AttributeError, RecursionError) as error:
        if path.suffix.lower() != ".json":
            raise ValueError(f"{path} holds no tree: load reads .json files, written by save or export.") from None
        raise ValueError(f"{path} is damaged or no tree file ({error}): make the tree again.") from error
    if known != (FORMAT, VERSION):
        raise ValueError(
            f"{path} holds {known[0]!r} version {known[1]!r}; this version reads {FORMAT!r} version {VERSION}. "
            "Make the tree again."
        )
    try:
        tree = nx.node_link_graph(content, edges="edges")
        tree.graph = {name: tuple(v) if isinstance(v, list) else v for name, v in tree.graph.items()}
        _check(tree)
    except (nx.NetworkXError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise ValueError(f"{path} is damaged ({error!r}): make the tree again.") from error
    return tree


_GRAPH = {
    "tau", "last_tau", "variant", "merged", "starts", "stops", "labels", "layers", "separators", "terminal", "top",
    "note",
}  # fmt: skip
_NODE = {"word", "segment", "role", "layer", "received"}
_EDGE = {"kind", "query", "key"}


def _check(tree: nx.DiGraph) -> None:
    """Raise unless the graph is one that this module could have written."""
    if not isinstance(tree, nx.DiGraph) or tree.is_multigraph():
        raise TypeError("the graph is not a simple directed one")
    _check_graph(tree)
    layers = set(tree.graph["layers"])
    for _, node in tree.nodes(data=True):
        texts = not _NODE - set(node) and all(isinstance(node[name], str) for name in ("token", "word"))
        whole = node.get("segment") is None or isinstance(node["segment"], int)
        if not texts or not whole or node["role"] not in ROLES or not math.isfinite(node["score"] + node["received"]):
            raise ValueError("entries of a node are missing or of another kind")
        if node["layer"] is not None and node["layer"] not in layers:
            raise ValueError("a node's layer is not one of the graph's")
    for *_, edge in tree.edges(data=True):
        known = not _EDGE - set(edge) and edge["kind"] in KINDS and edge["layer"] in layers
        texts = known and all(isinstance(edge[name], str) for name in ("query", "key"))
        if not texts or not math.isfinite(edge["score"] + edge["share"]):
            raise ValueError("entries of an edge are missing or of another kind")
    if not nx.is_directed_acyclic_graph(tree):
        raise ValueError("the edges go round in a loop")


def _check_graph(tree: nx.DiGraph) -> None:
    """Raise unless the graph's own entries are there and fit each other and the nodes."""
    if _GRAPH - set(tree.graph):
        raise KeyError(*sorted(_GRAPH - set(tree.graph)))
    starts, stops, layers, labels, separators = (
        tree.graph[name] for name in ("starts", "stops", "layers", "labels", "separators")
    )
    if not all(type(number) is int for number in (*starts, *stops, *layers, *separators)):
        raise TypeError("a position or a layer is no whole number")
    if not all(isinstance(label, str) for label in (*labels, tree.graph["note"])):
        raise TypeError("a label is no text")
    if not all(isinstance(tree.graph[name], Real) for name in ("tau", "last_tau")):
        raise TypeError("a threshold is no number")
    spans = len(stops) == len(labels) and starts == (0, *stops[:-1]) and list(stops) == sorted(set(stops) - {0})
    inside = {tree.graph["terminal"], *separators, *tree} <= set(starts)
    top = tree.graph["top"]
    top_fits = not tree.edges if top is None else top in tree
    if not (spans and inside and top_fits and layers and list(layers) == sorted(set(layers))):
        raise ValueError("entries of the graph don't fit each other")
