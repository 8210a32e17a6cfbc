"""An attribution looked at from all sides, and a text explained as it is named (part of :mod:`helpers.widgets`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import plotly.graph_objects as go

from helpers import _widget_parts as parts
from helpers import plots
from helpers._browser_parts import Panel
from helpers._example_picker import ExamplePicker
from helpers._head_grid import first_choice
from helpers._widget_parts import Text

VIEWS = ("links, all layers", "links, one layer", "one head", "one layer", "all heads")
NEEDS_LAYER = {"links, one layer", "one head", "one layer"}


class Explorer(Panel):
    """The widget that ``explorer`` returns. Its controls: ``example``, ``view``, ``layer``, ``head``."""

    def __init__(self, attributions: Sequence, k: int):
        self._attributions, self._k = attributions, k
        self.example = parts.dropdown("Example", parts.numbered([a.text for a in attributions], 70), width="32rem")
        self.view = parts.dropdown("View", VIEWS)
        self.layer = parts.dropdown("Layer", attributions[0].layers, width="10rem")
        self.head = parts.dropdown("Head", range(attributions[0].scores.shape[1]), width="10rem")
        self.message = parts.message()
        self._waiting = False
        self._place = parts.scrolled()
        inside = [parts.row(self.example, self.view, self.layer, self.head), self.message, self._place]
        super().__init__(inside)
        for control in (self.example, self.view, self.layer, self.head):
            control.observe(self._changed, "value")
        self._draw()

    @property
    def figure(self) -> go.FigureWidget:
        """The figure shown now."""
        return self._place.children[0]

    @property
    def attribution(self):
        """The Attribution shown now."""
        return self._attributions[self.example.value]

    def _changed(self, change) -> None:
        if self._waiting:
            return
        if change.owner is self.example:
            self._waiting = True  # new options would each draw a figure on their way
            try:
                parts.offer(self.layer, self.attribution.layers)
                parts.offer(self.head, range(self.attribution.scores.shape[1]))
            finally:
                self._waiting = False
        self._draw()

    def _draw(self) -> None:
        a, view = self.attribution, self.view.value
        self.layer.disabled, self.head.disabled = view not in NEEDS_LAYER, view != "one head"
        draw = {
            "links, all layers": lambda: plots.sentence_links(a, k=self._k),
            "links, one layer": lambda: plots.sentence_links(a, k=self._k, layer=self.layer.value),
            "one head": lambda: plots.head_maps(a, self.layer.value, self.head.value),
            "one layer": lambda: plots.layer_maps(a, self.layer.value),
            "all heads": lambda: plots.heads_overview(a),
        }[view]
        parts.attempt(self.message, lambda: parts.put(self._place, draw()))


class SentenceBox(Panel):
    """The widget that ``sentence_box`` returns: ``picker`` names the text, ``figures`` show the answer."""

    def __init__(self, explain: Callable[[Text], Any], start_text: Text, examples: Sequence[Text], k: int):
        self._explain, self._k = explain, k
        self.attribution: Any = None
        self._place = parts.scrolled()
        self.picker = ExamplePicker(self._answer, start_text=start_text, examples=examples, place=self._place)
        super().__init__([self.picker, self._place])
        self.picker.run()

    @property
    def figures(self) -> tuple[go.FigureWidget, ...]:
        """The figures shown now: the links, and the heat maps of the head with the strongest one."""
        return self._place.children

    def _answer(self, text: Text) -> str:
        a = self._explain(text)
        parts.put(self._place, plots.sentence_links(a, k=self._k), plots.head_maps(a, *first_choice(a)))
        self.attribution = a
        return parts.verdict(a)
