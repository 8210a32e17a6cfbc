"""Every head as a square one can click, and the head chosen in full (part of :mod:`helpers.widgets`)."""

from __future__ import annotations

from collections.abc import Sequence

import ipywidgets
import plotly.graph_objects as go

from helpers import _widget_parts as parts
from helpers import plots
from helpers._browser_parts import Panel
from helpers._heatmaps import frame
from helpers._links import strongest

LINKS = {"of this head": "head", "of its layer": "layer", "of all heads": "all"}


def first_choice(a) -> tuple[int, int]:
    """Return layer and head of the strongest score; the first ones where every score is 0."""
    return next(((link.layer, link.head) for link in strongest(a, 1)), (a.layers[0], 0))


class HeadGrid(Panel):
    """The widget that ``head_grid`` returns.

    Its controls: the squares of ``grid``, ``example``, ``layer``, ``head``, ``links``. The dropdowns of layer and head
    do without a mouse what a click does.
    """

    def __init__(self, attributions: Sequence, k: int):
        self._k, self._waiting = k, False
        self.example = parts.dropdown("Example", [], width="44rem")
        self.layer = parts.dropdown("Layer", [], width="9rem")
        self.head = parts.dropdown("Head", [], width="9rem")
        self.links = parts.dropdown("Links", LINKS.items(), width="14rem")
        self.message = parts.message()
        self._choice, self._maps, self._sentence = (parts.scrolled() for _ in range(3))
        wide = ipywidgets.Layout(max_width="100%")
        hint = ipywidgets.HTML("Click a square, or choose a layer and a head.")
        chooser = ipywidgets.VBox([hint, parts.row(self.layer, self.head), self._choice], layout=wide)
        beside = ipywidgets.VBox([self.links, self._sentence], layout=wide)
        self._place = ipywidgets.VBox([parts.row(chooser, beside), self._maps], layout=wide)
        super().__init__([self.example, self.message, self._place])
        self.show(attributions)
        self.example.observe(lambda _: None if self._waiting else self._draw_all(), "value")
        for control in (self.layer, self.head):
            control.observe(lambda _: None if self._waiting else self._try(self._draw_head), "value")
        self.links.observe(lambda _: self._try(self._draw_links), "value")

    @property
    def grid(self) -> go.FigureWidget:
        """The squares; its first shape frames the chosen one."""
        return self._choice.children[0]

    @property
    def maps(self) -> go.FigureWidget:
        """Attention beside attribution of the chosen head."""
        return self._maps.children[0]

    @property
    def sentence(self) -> go.FigureWidget:
        """The sentence with its links."""
        return self._sentence.children[0]

    @property
    def attribution(self):
        """The Attribution shown now."""
        return self._attributions[self.example.value]

    def show(self, attributions: Sequence) -> None:
        """Show other attributions, the first of them at once; the strongest head is chosen."""
        self._attributions, self._waiting = list(attributions), True
        try:
            parts.refill(self.example, parts.numbered([a.text for a in self._attributions]))
        finally:
            self._waiting = False
        self.example.layout.display = None if len(self._attributions) > 1 else "none"
        self._draw_all()

    def _try(self, draw) -> None:
        done = parts.attempt(self.message, draw)
        self._place.layout.display = None if done else "none"

    def _draw_all(self) -> None:
        a, self._waiting = self.attribution, True
        try:
            self.layer.options, self.head.options = a.layers, range(a.scores.shape[1])
            self.layer.value, self.head.value = first_choice(a)
        finally:
            self._waiting = False
        self._try(self._fill)

    def _fill(self) -> None:
        a = self.attribution
        parts.put(self._choice, plots.head_choice(a, self.layer.value, self.head.value))
        self.grid.data[0].on_click(self._clicked)
        self._draw_head()

    def _clicked(self, trace, points, state) -> None:
        if not points.xs:
            return
        self._waiting = True  # one click, one figure
        try:
            self.layer.value, self.head.value = self.attribution.layers[int(points.ys[0])], int(points.xs[0])
        finally:
            self._waiting = False
        self._try(self._draw_head)

    def _draw_head(self) -> None:
        a, layer, head = self.attribution, self.layer.value, self.head.value
        self.grid.layout.shapes = [frame(a.layers.index(layer), head)]
        parts.put(self._maps, plots.head_maps(a, layer, head))
        self._draw_links()

    def _draw_links(self) -> None:
        layer = None if self.links.value == "all" else self.layer.value
        head = self.head.value if self.links.value == "head" else None
        parts.put(self._sentence, plots.sentence_links(self.attribution, k=self._k, layer=layer, head=head))
