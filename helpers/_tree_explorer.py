"""Controls for an attribution tree: tau, lambda and the variant, with the objective and the number of edges.

Private to :mod:`helpers.widgets`.
"""

from __future__ import annotations

from collections.abc import Sequence

import ipywidgets
import networkx as nx
import plotly.graph_objects as go

from helpers import _display as show
from helpers import _widget_parts as parts
from helpers import plots
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


class TreeExplorer(ipywidgets.VBox):
    """The widget that ``tree_explorer`` returns. Its controls: ``example``, ``tau``, ``penalty``, ``variant``."""

    def __init__(
        self, attributions: Sequence, penalties: Sequence[float], first: tuple[float, float, str], merge: bool
    ):
        self._attributions, self._merge = attributions, merge
        tau, penalty, variant = first
        wide = dict(layout=ipywidgets.Layout(width="22rem", max_width="100%"), style={"description_width": "4.5rem"})
        texts = [(f"{i}: {parts.shown(a.text, 90)}", i) for i, a in enumerate(attributions)]
        self.example = parts.dropdown("Example", texts, width="44rem")
        # a tree is drawn anew at every stop: not at those that the slider only passes
        self.tau = ipywidgets.FloatSlider(
            description="tau", value=tau, min=0, max=1, step=0.05, continuous_update=False,
            tooltip="the share of its layer's largest score that a link has to exceed", **wide,
        )  # fmt: skip
        self.penalty = ipywidgets.SelectionSlider(
            description="lambda", options=[(f"{value:g}", value) for value in penalties], value=penalty,
            continuous_update=False, tooltip="the price of an edge: what it has to bring to stay", **wide,
        )  # fmt: skip
        self.variant = parts.dropdown("Variant", VARIANTS)
        self.variant.value = variant
        self.message = parts.message()
        self._place = parts.scrolled()
        row = ipywidgets.Layout(flex_flow="row wrap")
        controls = ipywidgets.HBox([self.tau, self.penalty, self.variant], layout=row)
        super().__init__(
            [self.example, controls, self.message, self._place], layout=ipywidgets.Layout(max_width="100%")
        )
        for control in (self.example, self.tau, self.penalty, self.variant):
            control.observe(lambda _: self._draw(), "value")
        self._draw()

    @property
    def figure(self) -> go.FigureWidget:
        """The figure shown now."""
        return self._place.children[0]

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
