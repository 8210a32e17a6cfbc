"""The best tree there is under the algorithm's constraints, by integer programming, and the best part of a given tree.

Private to :mod:`helpers.tree`.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from numbers import Real

import networkx as nx
import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_array

from helpers._tree_growth import build, grown
from helpers._tree_problem import Edge, Problem

SCALES = ("score", "share")


@dataclass(frozen=True, eq=False)
class Optimum:
    """The best tree found, and how good any tree can be.

    Attributes:
        tree: the best tree, as :func:`helpers.tree.attribution_tree` returns one.
        value: its objective.
        bound: no allowed tree has a larger objective than this.
        gap: bound - value, in the unit of the objective; 0 where ``exact``.
        exact: whether the tree is proved best (to 1e-6 of its largest edge).
        rounds: how many integer programmes were solved; more than one where loops had to be forbidden.
    """

    tree: nx.DiGraph
    value: float
    bound: float
    gap: float
    exact: bool
    rounds: int


def check_objective(penalty: float, scale: str) -> None:
    """Raise a ValueError unless they make an objective."""
    if isinstance(penalty, bool) or not isinstance(penalty, Real) or not 0 <= float(penalty) < math.inf:
        raise ValueError(
            f"penalty (lambda) is {penalty!r}: it is the price of an edge in the unit of {scale}, 0 or more."
        )
    if scale not in SCALES:
        raise ValueError(f'scale is {scale!r}: give "score", or "share" of the layer\'s maximum.')


def objective(tree: nx.DiGraph, penalty: float, scale: str) -> float:
    """Return the sum over edges of their score or share, less the penalty for each."""
    check_objective(penalty, scale)
    return float(math.fsum(edge[scale] for *_, edge in tree.edges(data=True)) - penalty * tree.number_of_edges())


def pruned(tree: nx.DiGraph, penalty: float, scale: str) -> nx.DiGraph:
    """Return the part of a tree with the largest objective: leaves first, what costs more than it brings goes."""
    check_objective(penalty, scale)
    small, top, terminal = tree.copy(), tree.graph["top"], tree.graph["terminal"]
    if top is None:
        return small
    links = nx.DiGraph([(i, j) for i, j, kind in tree.edges(data="kind") if kind == "link"])
    links.add_node(top)
    worth: dict[int, float] = {}
    children: dict[int, list[int]] = {}
    for node in nx.dfs_postorder_nodes(links, top):
        gain, passes = _reading(tree, node, penalty, scale)
        children[node] = [child for child in links.successors(node) if worth[child] > 0]
        needs_one = node in tree.graph["separators"] or (node == top and not passes)
        if needs_one and not children[node]:  # then the child that costs least
            children[node] = sorted(links.successors(node), key=lambda child: -worth[child])[:1]
        worth[node] = math.fsum(worth[child] for child in children[node])
        worth[node] += gain if node == top else max(0.0, gain)
        if node != top:
            worth[node] += tree.edges[next(links.predecessors(node)), node][scale] - penalty
            if passes and gain <= 0:
                small.remove_edge(terminal, node)
        if needs_one and not children[node]:
            worth[node] = -math.inf
    kept, waiting = set(), [top] if worth[top] > 0 else []
    while waiting:
        kept.add(node := waiting.pop())
        waiting += children[node]
    small.remove_nodes_from([node for node in links if node not in kept])
    return _settled(tree, small, kept)


def _reading(tree: nx.DiGraph, node: int, penalty: float, scale: str) -> tuple[float, bool]:
    """Return what the terminal's link to a node brings less its penalty, and whether it passes; 0 without one."""
    edge = tree.edges.get((tree.graph["terminal"], node), {})
    if edge.get("kind") != "terminal":
        return 0.0, False
    return edge[scale] - penalty, edge["share"] > tree.graph["last_tau"]


def _settled(tree: nx.DiGraph, small: nx.DiGraph, kept: set[int]) -> nx.DiGraph:
    """Put the graph's own entries in order after nodes were taken away."""
    terminal = tree.graph["terminal"]
    if not kept:
        name = tree.graph["labels"][tree.graph["starts"].index(terminal)]
        if terminal not in small:
            small.add_node(terminal, token=name, word=name, segment=None, received=0.0)
        small.nodes[terminal].update(role="terminal", layer=None)
        small.graph.update(top=None, note="No edge is worth its penalty.")
        small.remove_edges_from(list(small.edges))
    if small.nodes.get(terminal, {}).get("role") == "terminal":
        small.nodes[terminal]["score"] = math.fsum(edge["score"] for *_, edge in small.out_edges(terminal, data=True))
    return small


def optimum(p: Problem, *, penalty: float, scale: str, top: int | None, time_limit: float) -> Optimum:
    """Solve the integer programme of :func:`helpers.tree.optimum`; ``top`` is a unit, or None for any."""
    check_objective(penalty, scale)
    if isinstance(time_limit, bool) or not isinstance(time_limit, Real) or not time_limit > 0:
        raise ValueError(f"time_limit is {time_limit!r}: give seconds, more than 0.")
    programme = _Programme(p, penalty, scale, top)
    begun, rounds, bound = time.monotonic(), 0, programme.ceiling
    while True:
        left = time_limit - (time.monotonic() - begun)
        chosen, limit, proved = programme.solve(max(left, 0.01))
        rounds += 1
        bound = min(bound, limit)
        loops = programme.loops(chosen)
        if not loops or not proved or left <= 0:
            break
        programme.forbid(loops)
    tree = programme.tree(chosen)
    guess = pruned(build(p, *grown(p)), penalty, scale)
    fits = top is None or guess.graph["top"] in (None, p.starts[top])
    tree = max([tree, *([guess] if fits else [])], key=lambda t: objective(t, penalty, scale))
    value = objective(tree, penalty, scale)
    exact = proved and not loops or bound - value <= programme.tolerance
    return Optimum(tree, value, value if exact else bound, 0.0 if exact else bound - value, exact, rounds)


class _Programme:
    """Variables: an edge is kept (first those of the candidates), a unit is the top node. All are 0 or 1."""

    def __init__(self, p: Problem, penalty: float, scale: str, top: int | None):
        self.p = p
        self.edges = [edge for layer in range(len(p.layers) - 1) for edge in p.candidates(layer)]
        others = [unit for unit in range(len(p.labels)) if unit != p.terminal]
        self.tops = [unit for unit in others if top in (None, unit)]
        self.penalty, self.scale = penalty, scale
        joins = [self._gain(edge) + self._reading(edge.key) for edge in self.edges]
        tops = [self._gain(p.reading(unit)) if p.rules.gather != "none" else 0.0 for unit in self.tops]
        self.gains = np.array([*joins, *tops])
        self.unit = float(np.abs(self.gains).max(initial=0.0)) or 1.0  # HiGHS' tolerances are absolute
        self.tolerance = 1e-6 * self.unit
        self.rows: list[dict[int, float]] = []
        self.limits: list[float] = []
        self.into: dict[int, list[int]] = {}
        self.out: dict[int, list[int]] = {}
        for x, edge in enumerate(self.edges):
            self.into.setdefault(edge.key, []).append(x)
            self.out.setdefault(edge.query, []).append(x)
        self.is_top = {unit: len(self.edges) + k for k, unit in enumerate(self.tops)}
        best: dict[int, float] = {}
        for variable, gain in enumerate(self.gains):
            unit = self.edges[variable].key if variable < len(self.edges) else self.tops[variable - len(self.edges)]
            best[unit] = max(best.get(unit, 0.0), float(gain))
        self.ceiling = math.fsum(best.values())  # every unit at its best: a bound even when no time is left
        self._constrain()

    def _gain(self, edge: Edge) -> float:
        value = float(self.p.scores[edge]) if self.scale == "score" else self.p.share(edge)
        return value - self.penalty

    def _reading(self, unit: int) -> float:
        """What the terminal's link to a joined unit adds: it is kept where it passes and pays."""
        wanted = self.p.rules.gather == "all" and self.p.is_read(unit)
        return max(0.0, self._gain(self.p.reading(unit))) if wanted else 0.0

    def _at_most(self, row: dict[int, float], limit: float) -> None:
        self.rows.append(row)
        self.limits.append(limit)

    def _constrain(self) -> None:
        p, last = self.p, len(self.p.layers) - 2
        if self.is_top:
            self._at_most(dict.fromkeys(self.is_top.values(), 1.0), 1)
        for unit in set(self.into) | set(self.is_top):
            entry = dict.fromkeys([*self.into.get(unit, []), *self._top_of(unit)], 1.0)
            self._at_most(entry, 1)  # a token joins once
            if p.rules.drop_separators and unit in p.separators:
                self._at_most(entry | dict.fromkeys(self.out.get(unit, []), -1.0), 0)
        at = {edge: x for x, edge in enumerate(self.edges)}
        for x, edge in enumerate(self.edges):
            same = p.rules.chain and not (p.rules.first_from_top and edge.layer == last)
            first = edge.layer if same else edge.layer + 1
            parents = [y for y in self.into.get(edge.query, []) if self.edges[y].layer >= first]
            self._at_most({x: 1.0} | dict.fromkeys([*parents, *self._top_of(edge.query)], -1.0), 0)
            back = at.get(Edge(edge.layer, edge.key, edge.query))
            if back is not None and x < back:
                self._at_most({x: 1.0, back: 1.0}, 1)
        for unit, variable in self.is_top.items():  # a top node alone is a tree only if the terminal's link passes
            if not p.is_read(unit):
                self._at_most({variable: 1.0} | dict.fromkeys(self.out.get(unit, []), -1.0), 0)

    def _top_of(self, unit: int) -> list[int]:
        return [self.is_top[unit]] if unit in self.is_top else []

    def solve(self, seconds: float) -> tuple[list[int], float, bool]:
        """Return the variables that are 1, an upper bound of the objective, and whether it is reached."""
        if not len(self.gains):
            return [], 0.0, True
        ends = np.cumsum([0, *map(len, self.rows)])
        columns = np.array([column for row in self.rows for column in row], dtype=np.int64)
        values = np.array([value for row in self.rows for value in row.values()], dtype=float)
        matrix = csr_array((values, columns, ends), shape=(len(self.rows), len(self.gains)))
        result = milp(
            -self.gains / self.unit,
            integrality=np.ones(len(self.gains)),
            bounds=Bounds(0, 1),
            constraints=LinearConstraint(matrix, -np.inf, np.array(self.limits)),
            options={"time_limit": seconds, "mip_rel_gap": 0.0},
        )
        chosen = [] if result.x is None else [int(k) for k in np.flatnonzero(result.x > 0.5)]
        known = result.mip_dual_bound is not None and math.isfinite(result.mip_dual_bound)
        return chosen, -result.mip_dual_bound * self.unit if known else math.inf, result.status == 0

    def _kept(self, chosen: list[int]) -> tuple[int | None, list[Edge], nx.DiGraph]:
        """Return the top node, the edges that hang from it, and the graph of those that don't."""
        edges = [self.edges[x] for x in chosen if x < len(self.edges)]
        top = next((self.tops[x - len(self.edges)] for x in chosen if x >= len(self.edges)), None)
        graph = nx.DiGraph([(edge.query, edge.key) for edge in edges])
        reached = set() if top is None else {top} | (nx.descendants(graph, top) if top in graph else set())
        graph.remove_nodes_from(reached)
        return top, [edge for edge in edges if edge.query in reached], graph

    def loops(self, chosen: list[int]) -> list[tuple[int, set[int]]]:
        """Return the loops among the chosen edges, as (place of the layer on axis 0, units)."""
        *_, rest = self._kept(chosen)
        layer = {self.edges[x].key: self.edges[x].layer for x in chosen if x < len(self.edges)}
        # a parent joins in the same layer or a later one, so a loop lies within one layer
        return [(layer[next(iter(loop))], loop) for loop in nx.strongly_connected_components(rest) if len(loop) > 1]

    def forbid(self, loops: list[tuple[int, set[int]]]) -> None:
        """Allow fewer edges among the units of each loop, in its layer, than there are units."""
        for layer, units in loops:
            inside = [x for x, e in enumerate(self.edges) if e.layer == layer and {e.query, e.key} <= units]
            self._at_most(dict.fromkeys(inside, 1.0), len(units) - 1)

    def tree(self, chosen: list[int]) -> nx.DiGraph:
        """Return the graph of the chosen edges that hang from the top node."""
        top, links, _ = self._kept(chosen)
        if top is None or not (links or self.p.is_read(top)):
            return build(self.p, None, [], [])
        joined = sorted(edge.key for edge in links) if self.p.rules.gather == "all" else []
        read = [u for u in joined if self.p.is_read(u) and self._gain(self.p.reading(u)) > 0]
        return build(self.p, top, links, [top, *read] if self.p.rules.gather != "none" else [])
