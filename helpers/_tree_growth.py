"""Algorithm 1 itself, step by step, and the graph made of what it kept.

Private to :mod:`helpers.tree`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import networkx as nx

from helpers._tree_problem import Edge, Problem

ABSENT, PRESENT, SETTLED = "absent", "present", "settled"


@dataclass(frozen=True)
class Step:
    """One step of the algorithm.

    Attributes:
        action: "top" (the top node is chosen), "join" (an edge is added), "skip" (a candidate is passed
            over), "drop" (a [SEP] that is a leaf is left out), "gather" (the terminal is linked).
        layer: the layer's number; None for "top" and "drop".
        query, key: token positions; query is None for "top" and "drop", where key is the token concerned.
        score, share: of the edge, and as a share of the layer's maximum; for "top" what the token receives, and 0.
        why: the reason, in words.
        states: "absent", "present" or "settled" after the step, one for every token (or word, where merged).
    """

    action: str
    layer: int | None
    query: int | None
    key: int
    score: float
    share: float
    why: str
    states: tuple[str, ...] = ()


def grow(p: Problem, top: int) -> Iterator[tuple[Edge, str]]:
    """Yield every candidate below the last layer in the order it is taken, and why it is passed over ("": it joins)."""
    joined = {top: len(p.layers)}  # unit -> where on axis 0 it joined
    for layer in range(len(p.layers) - 2, -1, -1):
        first = p.rules.first_from_top and layer == len(p.layers) - 2
        for edge in p.candidates(layer):
            since = joined.get(edge.query, -1)
            if edge.key in joined:
                why = "the token is in the tree already"
            elif since < layer:
                why = "the token that receives is not in the tree"
            elif since == layer and not p.rules.chain:
                why = "the token that receives joined in this very layer"
            elif first and edge.query != top:
                why = "in this layer only the top node receives"
            else:
                why = ""
                joined[edge.key] = layer
            yield edge, why


def leaf_separators(p: Problem, top: int, links: Iterable[Edge]) -> list[int]:
    """Return the separators to leave out, in the order they become leaves."""
    if not p.rules.drop_separators:
        return []
    kept = list(links)
    dropped: list[int] = []
    inside = {top, *(edge.key for edge in kept)}
    while leaves := sorted((inside & p.separators) - {edge.query for edge in kept}):
        dropped += leaves
        inside -= set(leaves)
        kept = [edge for edge in kept if edge.key not in leaves]
    return dropped


def gathered(p: Problem, top: int, links: Iterable[Edge]) -> list[int]:
    """Return the units that the terminal is linked to: the top node always, others where their link passes."""
    if p.rules.gather == "none":
        return []
    others = sorted(edge.key for edge in links) if p.rules.gather == "all" else []
    return [top, *(unit for unit in others if p.is_read(unit))]


def grown(p: Problem) -> tuple[int | None, list[Edge], list[int]]:
    """Return what the algorithm ends with: the top node (None: no edge passes), its links, the units gathered."""
    top = p.top()
    if top is None:
        return None, [], []
    links = [edge for edge, why in grow(p, top) if not why]
    dropped = set(leaf_separators(p, top, links))
    links = [edge for edge in links if edge.key not in dropped]
    if top in dropped or not (links or p.is_read(top)):
        return None, [], []
    return top, links, gathered(p, top, links)


def steps(p: Problem) -> Iterator[Step]:
    """Yield the algorithm's steps, each with the states after it."""
    top = p.top()
    if top is None:
        return
    states = [ABSENT] * len(p.labels)

    def step(action: str, edge: Edge, why: str) -> Step:
        score, share = float(p.scores[edge]), p.share(edge)
        return Step(
            action, p.layers[edge.layer], p.starts[edge.query], p.starts[edge.key], score, share, why, tuple(states)
        )

    states[top] = PRESENT
    received = float(p.received()[top])
    why = "of all tokens but the class token it receives most from others, over all layers"
    yield Step("top", None, None, p.starts[top], received, 0.0, why, tuple(states))
    links = []
    for edge, why in grow(p, top):
        if not why:
            states[edge.query], states[edge.key] = SETTLED, PRESENT
            links.append(edge)
        yield step("skip" if why else "join", edge, why or "it passes, and the token that receives is in the tree")
    *_, read = grown(p)
    for unit in leaf_separators(p, top, links):
        states[unit] = ABSENT
        yield Step("drop", None, None, p.starts[unit], 0.0, 0.0, "a separator that is a leaf", tuple(states))
    for unit in read:
        passes = "its link to the terminal passes in the last layer"
        yield step("gather", p.reading(unit), passes if p.is_read(unit) else "it holds the tree to the terminal")


def build(p: Problem, top: int | None, links: Iterable[Edge], read: Iterable[int]) -> nx.DiGraph:
    """Return the graph of a top node, its links, and the units that the terminal is linked to."""
    links, read = list(links), list(read)
    tree = nx.DiGraph(**_about(p, top))
    if top is None or p.rules.gather != "none":
        _add(tree, p, p.terminal, "terminal", None, float(sum(p.scores[p.reading(unit)] for unit in read)))
    if top is not None:
        _add(tree, p, top, "top", p.layers[-1], float(p.scores[p.reading(top)]) if read else 0.0)
        for edge in links:
            _add(tree, p, edge.key, "joined", p.layers[edge.layer], float(p.scores[edge]))
    for edge, kind in [(edge, "link") for edge in links] + [(p.reading(unit), "terminal") for unit in read]:
        tree.add_edge(
            p.starts[edge.query],
            p.starts[edge.key],
            layer=p.layers[edge.layer],
            score=float(p.scores[edge]),
            share=p.share(edge),
            kind=kind,
            query=p.tokens[edge.query],
            key=p.tokens[edge.key],
        )
    return tree


def _about(p: Problem, top: int | None) -> dict[str, object]:
    """The graph's own entries."""
    return dict(
        variant=p.variant,
        tau=p.tau,
        last_tau=p.last_tau,
        merged=p.merged,
        layers=p.layers,
        labels=p.labels,
        starts=p.starts,
        stops=p.stops,
        separators=tuple(p.starts[unit] for unit in sorted(p.separators)) if p.rules.drop_separators else (),
        terminal=p.starts[p.terminal],
        top=None if top is None else p.starts[top],
        note="" if top is not None else _nothing(p),
    )


def _add(tree: nx.DiGraph, p: Problem, unit: int, role: str, layer: int | None, score: float) -> None:
    tree.add_node(
        p.starts[unit],
        token=p.tokens[unit],
        word=p.words[unit],
        segment=p.segments[unit],
        role=role,
        layer=layer,
        score=score,
        received=float(p.received()[unit]),
    )


def _nothing(p: Problem) -> str:
    """Return why there is no edge."""
    top, grows = p.top(), grown(p)[0] is not None
    if top is None:
        return "No edge is there to choose: the text has no token but the one that the classifier reads."
    if not (p.peaks > 0).any():
        return "No edge is above the threshold: no score is positive in any layer."
    if grows:
        return "No edge is worth its penalty: no allowed tree has an objective above 0."
    links = [edge for edge, why in grow(p, top) if not why]
    dropped = leaf_separators(p, top, links)
    if top in dropped:
        return (
            f"No edge is left: the top node is a separator, {p.labels[top]}, to which no link from a word passes, and "
            "such separators are left out."
        )
    if dropped:
        said = "No edge is left: the links to the top node that pass come from separators that are leaves"
    else:
        said = "No edge is above the threshold: none through which the top node receives exceeds "
        said += f"{p.tau:g} of its layer's maximum"
    if p.rules.gather == "none":
        return f"{said}."
    return f"{said}, and the class token's link to it does not pass in the last layer."
