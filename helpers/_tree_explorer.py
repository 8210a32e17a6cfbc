"""Controls for an attribution tree: tau, lambda and the variant, with the objective and the number of edges.

Private to :mod:`helpers.widgets`.
"""

from __future__ import annotations

from collections.abc import Sequence

import networkx as nx
import plotly.graph_objects as go

from helpers import _display as show
from helpers import _widget_parts as parts
from helpers import plots
from helpers._browser_parts import NamedSlider, Panel
from helpers.tree import VARIANTS, attribution_tree, objective, pruned

PENALTIES = (0.0, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1)


def check_choice(tau: float, penalty: float, penalties: Sequence[float], variant: str) -> None:
    """Raise a ValueError unless the first setting is among those offered."""
    if isinstance(tau, bool) or not 0 <= tau <= 1:
        raise ValueError(f"tau is {tau!r}: it is a share of the layer's maximum, from 0 to 1.")
    if penalty not in penalties:
        offered = ", ".join(f"{value:g}" for value in penalties)
        raise ValueError(f"penalty is {penalty!r}, which is not offered: give one of {offered}, or other penalties.")
    if variant not in VARIANTS:
        raise ValueError(f"There is no variant {variant!r}: give {', '.join(VARIANTS)}.")


def tree_picture(
    a, *, tau: float, penalty: float, variant: str, merge: bool, counted: bool = True
) -> tuple[go.Figure, str]:
    """Return the tree for a setting, cut by lambda, and its numbers in words; counted: the figure has them too."""
    whole = attribution_tree(a, tau=tau, variant=variant, merge=merge)
    kept = pruned(whole, penalty)
    said = f"objective {objective(kept, penalty):.3f} ({show.unit(a)}), {_edges(kept)}"
    if kept.number_of_edges() < whole.number_of_edges():
        said += f"; before lambda cut it: {objective(whole, penalty):.3f}, {_edges(whole)}"
    lines = [show.explained(a), *([said] if counted else []), f"tau {tau:g}, lambda {penalty:g}, {variant} variant"]
    return plots.tree(kept, note="\n".join(lines)), said


def _edges(t: nx.DiGraph) -> str:
    count = t.number_of_edges()
    return f"{count} edge{'' if count == 1 else 's'}"


class TreeExplorer(Panel):
    """The widget that ``tree_explorer`` returns. Its controls: ``example``, ``tau``, ``penalty``, ``variant``."""

    def __init__(
        self, attributions: Sequence, penalties: Sequence[float], first: tuple[float, float, str], merge: bool
    ):
        self._attributions, self._merge, self._waiting = attributions, merge, False
        tau, penalty, variant = first
        self.example = parts.dropdown("Example", parts.numbered([a.text for a in attributions]), width="44rem")
        # a tree is drawn anew at every stop: not at those that the slider only passes
        taus = sorted({tau, *(n / 20 for n in range(21))})
        self.tau = NamedSlider(
            [(f"{value:.3g}", value) for value in taus], value=tau, description="tau",
            tooltip="the share of its layer's largest score that a link has to exceed",
        )  # fmt: skip
        self.penalty = NamedSlider(
            [(f"{value:g}", value) for value in penalties], value=penalty, description="lambda",
            tooltip="the price of an edge: what it has to bring to stay",
        )  # fmt: skip
        self.variant = parts.dropdown("Variant", VARIANTS)
        self.variant.value = variant
        self.message = parts.message()
        self._place = parts.scrolled()
        inside = [self.example, parts.row(self.tau, self.penalty, self.variant), self.message, self._place]
        super().__init__(inside)
        for control in (self.example, self.tau, self.penalty, self.variant):
            control.observe(lambda _: None if self._waiting else self._draw(), "value")
        self._draw()

    @property
    def figure(self) -> go.FigureWidget:
        """The figure shown now."""
        return self._place.children[0]

    def show(self, attributions: Sequence) -> None:
        """Show the trees of other attributions, the first of them at once, with the settings as they are."""
        self._attributions, self._waiting = list(attributions), True
        parts.refill(self.example, parts.numbered([a.text for a in self._attributions]))
        self._waiting = False
        self._draw()

    def _draw(self) -> None:
        done = parts.attempt(self.message, self._answer)
        self._place.layout.display = None if done else "none"  # an old tree beside new settings would mislead

    def _answer(self) -> str:
        figure, said = tree_picture(
            self._attributions[self.example.value], tau=self.tau.value, penalty=self.penalty.value,
            variant=self.variant.value, merge=self._merge, counted=False,
        )  # fmt: skip
        parts.put(self._place, figure)
        return show.literal(said[0].upper() + said[1:] + ".")
