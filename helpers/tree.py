"""Attribution trees: which few links carry the information from the words to the prediction (Algorithm 1 of the paper).

A tree is a ``networkx.DiGraph``. A node is the position of a token (an int, so that a repeated word is two
nodes), an edge (i, j) says that token i receives from token j in one layer: parents receive, children give, and
information flows from the leaves to the terminal, the class token that the classifier reads.

    graph   labels, starts, stops (of all tokens: as a reader knows them, and their positions), layers,
            separators, terminal, top, tau, last_tau, variant, merged,
            note ("" or, in plain words, why there is no edge: the tree is then the terminal alone)
    nodes   token, word, segment, role ("terminal", "top" or "joined"), layer (through whose edge the token
            joined; None for the terminal), score (of that edge; for the terminal the sum of its edges),
            received (the sum of its scores as query, by which the top node is chosen)
    edges   layer, score (a^l_ij), share (a^l_ij / max(a^l)), kind ("link", or "terminal" for those of the
            last layer), query and key (the two tokens as text)

Arrays and tokens in, no model: the scores may come from anywhere.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from numbers import Real
from pathlib import Path

import networkx as nx
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from helpers import _tree_export as files
from helpers import _tree_optimum as best
from helpers._tree_export import KINDS, layout, to_dot, to_json, to_mermaid
from helpers._tree_growth import Step, build, grown, steps
from helpers._tree_optimum import Optimum
from helpers._tree_problem import VARIANTS, Rules, prepare

__all__ = [
    "VARIANTS", "Optimum", "Rules", "Step", "attribution_tree", "draw", "edges", "export", "layout", "load", "mask",
    "objective", "optimum", "overlap", "pruned", "reach", "save", "stability", "sweep", "to_dot", "to_json",
    "to_mermaid", "trace",
]  # fmt: skip


def attribution_tree(
    scores,
    tokens: Sequence[str] | None = None,
    *,
    words: Sequence | None = None,
    layers: Sequence[int] | None = None,
    tau: float = 0.4,
    last_tau: float = 0.0,
    variant: str | Rules = "paper",
    terminal: int | None = None,
    merge: bool = False,
) -> nx.DiGraph:
    """Return the attribution tree, grown from the last layer down.

    With a^l the scores summed over heads, an edge (i, j), i != j, of a layer below the last is a candidate when
    a^l_ij / max(a^l) > tau. The top node is the token other than the class token that receives most from others.
    Then, layer by layer downwards, a candidate joins when i is in the tree and j is not: so every token has one
    parent, and neither repeated nor reversed edges occur. At the end the class token is linked, through the last
    layer, to the top node and to every other token whose link exceeds last_tau there; a [SEP] that is a leaf is
    left out. These last links (kind "terminal") come on top of the one parent each token has.

    "paper" takes a layer's candidates largest first. "released" is what the published code does, for any number
    of layers: maximum over the rows other than the class token's, the top node by positive sums, only the top
    node receives in the layer below the last, then candidates by position; the class token may be a leaf, [SEP]
    too, and no last links are made. :class:`Rules` mixes the two.

    Args:
        scores: [layer, head, query, key], or summed over heads [layer, query, key], in any unit; or an
            Attribution, which brings tokens, words and layers along.
        tokens: one a row of the scores; their positions if None.
        words: (text, first token, token after the last, segment) one after another; needed to merge.
        layers: the layers' numbers; 0, 1, ... if None. The largest is taken for the model's last. If an
            Attribution's largest is read at other tokens too (a classifier that takes the mean over tokens, or layers
            that end below the last), the tree shows what one token receives, and a warning says so.
        tau: threshold below the last layer, 0 to 1.
        last_tau: threshold of the links to the class token.
        variant: "paper", "released" or Rules.
        terminal: the position of the token that the classifier reads. None: the first; or the last, where no
            token receives from a later one (GPT-2).
        merge: make words the nodes: scores are summed over the pieces on both sides. Where a rare word is cut into
            pieces, these can fill the tree: then merge=True.

    Raises:
        ValueError: shapes, tokens or words that don't fit, scores that are not finite, thresholds outside 0 to 1.

    >>> tree = attribution_tree(attribute(model, tokenizer, "A slow start, but a wonderful end."))
    >>> [(i, j, edge["layer"]) for i, j, edge in tree.edges(data=True)]
    """
    p = prepare(
        scores, tokens, words=words, layers=layers, tau=tau, last_tau=last_tau, variant=variant, terminal=terminal,
        merge=merge,
    )  # fmt: skip
    return build(p, *grown(p))


def trace(scores, tokens: Sequence[str] | None = None, **options) -> list[Step]:
    """Return every step of the algorithm in order; arguments as for :func:`attribution_tree`."""
    return list(steps(prepare(scores, tokens, **options)))


def objective(tree: nx.DiGraph, penalty: float = 0.0, *, scale: str = "score") -> float:
    """Return the tree's objective, sum of the scores of its edges - penalty * number of its edges.

    The sum runs over all edges, the last layer's among them, as in the paper.

    Args:
        penalty: the paper's lambda, what an edge must bring to pay; in the unit of the scores (of probability,
            if the scores are), or of shares.
        scale: "score": a^l_ij as it is, as in the paper; "share": a^l_ij / max(a^l), so that layers weigh alike.
    """
    return best.objective(tree, penalty, scale)


def pruned(tree: nx.DiGraph, penalty: float, *, scale: str = "score") -> nx.DiGraph:
    """Return the part of the tree with the largest objective: branches that cost more than they bring are cut.

    What is left hangs together and obeys the same rules. If nothing pays, the terminal alone is left.
    """
    return best.pruned(tree, penalty, scale)


def optimum(
    scores,
    tokens: Sequence[str] | None = None,
    *,
    penalty: float = 0.0,
    scale: str = "score",
    top: int | None = None,
    time_limit: float = 10.0,
    **options,
) -> Optimum:
    """Return the allowed tree with the largest :func:`objective`, or the best found and a bound.

    Allowed is: the terminal alone; or any top node other than the class token, and candidates of
    layers below the last, such that every token joins at most once, through one edge; an edge (i, j)
    of a layer is taken only if i is the top node or joined in that layer or a later one, without loops
    (with Rules(chain=False): in a later one); the class token joins nothing; no [SEP] is a leaf. The
    class token is linked to the top node, and to whichever other joined tokens pass last_tau. A top
    node alone needs a link that passes. What the algorithm grows is always among these (it links every
    token that passes, wanted or not), so no heuristic tree is better.

    Solved with HiGHS through scipy: a 0/1 variable for every candidate and every possible top node;
    loops within a layer are forbidden when a solution has one, and the programme is solved again.

    Args:
        penalty, scale: as for :func:`objective`.
        top: the position of the top node to use; None: the best one.
        time_limit: seconds, for all rounds together.
        options: as for :func:`attribution_tree`.
    """
    p = prepare(scores, tokens, **options)
    unit = None if top is None else next((u for u, start in enumerate(p.starts) if start == top), None)
    if top is not None and unit in (None, p.terminal):
        raise ValueError(f"top is {top!r}: give the position of a token other than the class token, or None.")
    return best.optimum(p, penalty=penalty, scale=scale, top=unit, time_limit=time_limit)


def edges(tree: nx.DiGraph, kind: str | None = None) -> set[tuple[int, int, int]]:
    """Return the tree's edges as (layer, query, key); of one kind, "link" or "terminal", or of both."""
    _check_kind(kind)
    return {(e["layer"], i, j) for i, j, e in tree.edges(data=True) if kind in (None, e["kind"])}


def _check_kind(kind: object) -> None:
    if kind not in (None, *KINDS):
        raise ValueError(f"kind is {kind!r}: give {' or '.join(map(repr, KINDS))}, or None for both.")


def mask(tree: nx.DiGraph, *, self_edges: bool = True) -> np.ndarray:
    """Return which attention edges the tree keeps, bool [layer, query, key] over tokens.

    For a tree of words an edge stands for all edges between their tokens. To count the edges, or to remove them, give
    ``self_edges=False``.

    Args:
        self_edges: keep what a token (or a word) reads from itself, in every layer.

    Raises:
        ValueError: the tree doesn't cover all layers from 0 on.
    """
    layers, spans = tree.graph["layers"], dict(zip(tree.graph["starts"], tree.graph["stops"], strict=True))
    if layers != tuple(range(len(layers))):
        raise ValueError(f"The tree covers layers {layers}: attribute all layers, or others would lose all attention.")
    kept = np.zeros((len(layers), tree.graph["stops"][-1], tree.graph["stops"][-1]), dtype=bool)
    for layer, query, key in edges(tree):
        kept[layer, query : spans[query], key : spans[key]] = True
    for start, stop in spans.items() if self_edges else ():
        kept[:, start:stop, start:stop] = True
    return kept


def reach(tree: nx.DiGraph, kind: str | None = "link") -> pd.DataFrame:
    """Return the receptive field, one row an edge: layer, query, key, distance, across, score, share.

    distance counts tokens (words, where merged); across is True from one segment to the other, False within
    one, and None (missing) where one end is a special token.
    """
    _check_kind(kind)
    place = {start: x for x, start in enumerate(tree.graph["starts"])}
    rows = []
    for i, j, edge in tree.edges(data=True):
        ends = [tree.nodes[node]["segment"] for node in (i, j)]
        across = None if None in ends else ends[0] != ends[1]
        if kind in (None, edge["kind"]):
            rows.append((edge["layer"], i, j, abs(place[i] - place[j]), across, edge["score"], edge["share"]))
    table = pd.DataFrame(rows, columns=["layer", "query", "key", "distance", "across", "score", "share"])
    table["across"] = table["across"].astype("boolean")
    return table.sort_values(["layer", "query", "key"], ascending=[False, True, True], ignore_index=True)


def overlap(first: nx.DiGraph, second: nx.DiGraph, *, by: str = "edges", kind: str | None = None) -> float:
    """Return the Jaccard overlap of two trees, 1 for the same edges and for two trees without any.

    Args:
        by: "edges": layer, query and key must agree; "pairs": the two tokens, in any layer.
        kind: "link", "terminal", or None for both.

    Raises:
        ValueError: an unknown choice, or trees over other tokens: an edge's name is the positions of its tokens.
    """
    if by not in ("edges", "pairs"):
        raise ValueError(f'by is {by!r}: give "edges" or "pairs".')
    if any(first.graph[name] != second.graph[name] for name in ("starts", "stops")):
        raise ValueError(
            f"The trees are over {len(first.graph['starts'])} and {len(second.graph['starts'])} tokens or words that "
            "lie elsewhere: compare trees of one text, both of tokens or both of words."
        )
    one, two = ({edge if by == "edges" else edge[1:] for edge in edges(tree, kind)} for tree in (first, second))
    return len(one & two) / len(one | two) if one | two else 1.0


def stability(trees: Iterable[nx.DiGraph], *, by: str = "edges", kind: str | None = None) -> float:
    """Return the mean :func:`overlap` over all pairs of two or more trees of the same tokens."""
    pairs = list(itertools.combinations(trees, 2))
    if not pairs:
        raise ValueError("Give at least two trees to compare.")
    return float(np.mean([overlap(one, two, by=by, kind=kind) for one, two in pairs]))


def sweep(
    scores,
    tokens: Sequence[str] | None = None,
    *,
    taus: Iterable[float] = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9),
    penalties: Iterable[float] = (0.0,),
    scale: str = "score",
    reference: nx.DiGraph | None = None,
    **options,
) -> pd.DataFrame:
    """Return how the tree changes with tau and lambda, one row a pair of them.

    Columns: tau, penalty; nodes, links and edges of the tree as grown, depth (links from the top node to the
    deepest leaf) and objective; kept_edges and kept_objective of its :func:`pruned` part, since growing
    itself knows no lambda; overlap of the pruned part's edges with the reference's.

    Args:
        taus, penalties: lists, every tau with every penalty.
        scale: as for :func:`objective`.
        reference: the tree to compare with; the one with the default tau if None.
        options: as for :func:`attribution_tree`, without tau.

    Raises:
        ValueError: one number where a list is needed; or see :func:`attribution_tree`.
    """
    if "tau" in options:
        raise ValueError(f"A sweep goes over several tau: give taus=[{options['tau']!r}] instead of tau.")
    # lists: a generator would be empty from the second tau on
    taus, penalties = _listed("taus", taus), _listed("penalties", penalties)
    reference = attribution_tree(scores, tokens, **options) if reference is None else reference
    rows = []
    for tau in taus:
        tree = attribution_tree(scores, tokens, tau=tau, **options)
        links = nx.DiGraph(edge[1:] for edge in edges(tree, "link"))
        depth = nx.dag_longest_path_length(links) if links else 0
        shape = (tree.number_of_nodes(), links.number_of_edges(), tree.number_of_edges(), depth)
        for penalty in penalties:
            part = pruned(tree, penalty, scale=scale)
            both = (objective(tree, penalty, scale=scale), objective(part, penalty, scale=scale))
            rows.append((tau, penalty, *shape, both[0], part.number_of_edges(), both[1], overlap(part, reference)))
    size = ["nodes", "links", "edges", "depth", "objective"]
    return pd.DataFrame(rows, columns=["tau", "penalty", *size, "kept_edges", "kept_objective", "overlap"])


def _listed(name: str, values: Iterable[float]) -> list[float]:
    if isinstance(values, Real):
        raise ValueError(f"{name} is {values!r}: give a list, {name}=[{values!r}].")
    return list(values)


def draw(tree: nx.DiGraph, *, title: str = "") -> Figure:
    """Return the tree as a matplotlib figure.

    The text runs along the bottom, words of the tree in bold. A node stands above its word, at the height of the
    layer through which it joined. An arrow points to the token that receives, its colour is the layer, its width
    the score relative to the largest of its kind (dashed if negative); the last links, to the token that the
    classifier reads, are pale.
    """
    return files.draw(tree, title=title)


def export(tree: nx.DiGraph, path: str | Path, *, title: str = "") -> Path:
    """Write the tree in the format that the file's name ends with, and return its path.

    .svg and .png are pictures (with the title), .dot and .gv for Graphviz, .mmd for Mermaid, .json node-link JSON.
    """
    kind = Path(path).suffix.lower().lstrip(".")
    writers = {"json": to_json, "dot": to_dot, "gv": to_dot, "mmd": to_mermaid, "mermaid": to_mermaid}
    if kind in ("svg", "png"):
        return files.write(path, files.image(tree, kind, title))
    if kind not in writers:
        raise ValueError(
            f"{str(path)!r} ends with {kind!r}: give a name that ends with .svg, .png, .json, .dot or .mmd."
        )
    return files.write(path, writers[kind](tree).encode("utf-8"))


def save(tree: nx.DiGraph, path: str | Path) -> Path:
    """Write the tree as node-link JSON, which :func:`load` reads, and return its path."""
    return files.write(path, to_json(tree).encode("utf-8"))


def load(path: str | Path) -> nx.DiGraph:
    """Read what :func:`save` wrote.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is no tree, is damaged, or comes from another version.
    """
    return files.read(path)
