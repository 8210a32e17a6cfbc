"""A slider of heads pruned, with the curves, the heads and what the model says of a text (part of widgets)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import plotly.graph_objects as go

from helpers import _display as show
from helpers import _widget_parts as parts
from helpers import plots
from helpers._browser_parts import NamedSlider, Panel
from helpers._widget_parts import Text


class PruningSlider(Panel):
    """The widget that ``pruning_slider`` returns. Its controls: ``score``, ``count``, ``text``."""

    def __init__(self, state: State, start: int):
        self._state = state
        self.score = parts.dropdown("Score", state.curves)
        self.count = NamedSlider(
            state.settings(self.score.value), value=start, description="Heads pruned",
            tooltip="how many heads are off", follows=True,
        )  # fmt: skip
        self.text = parts.dropdown("Text", parts.numbered(state.texts), width="44rem")
        self.message = parts.message()
        self._place = parts.scrolled()
        inside = [parts.row(self.score, self.count), self.text, self.message, self._place]
        super().__init__(inside)
        for control in (self.score, self.count):
            control.observe(lambda _: self._draw(), "value")
        self.text.observe(lambda _: self._ask(), "value")
        self._draw()

    @property
    def figure(self) -> go.FigureWidget:
        """The figure shown now."""
        return self._place.children[0]

    def _draw(self) -> None:
        parts.put(self._place, self._state.figure(self.score.value, self.count.value))
        self._ask()

    def _ask(self) -> None:
        asked = self.score.value, self.count.value, self.text.value
        parts.attempt(self.message, lambda: show.literal(self._state.verdict(*asked)).replace("\n", "<br>"))


@dataclass(frozen=True)
class State:
    """What ``pruning_slider`` was given, and what it shows for a choice."""

    curves: Mapping[str, Any]
    importances: Mapping[str, np.ndarray]
    gates: Mapping[str, np.ndarray]
    texts: Sequence[Text]
    predict: Callable[[Text, np.ndarray], np.ndarray]
    labels: Sequence[str]
    gold: Sequence[int] | None

    def settings(self, score: str) -> list[tuple[str, int]]:
        """Return what the slider shows at every setting."""
        off = (np.asarray(self.gates[score]) == 0).sum(axis=(1, 2))
        return [(f"{count} of {np.asarray(self.gates[score])[0].size}", i) for i, count in enumerate(off)]

    def figure(self, score: str, setting: int, *, note: str = "") -> go.Figure:
        """Return the curves with the marker, and the heads."""
        gates = self.gates[score][setting]
        return plots.pruning_state(self.curves, self.importances[score], gates, score=score, setting=setting, note=note)

    def verdict(self, score: str, setting: int, number: int) -> str:
        """Return in plain words what the model says of a text with heads off, and with all of them."""
        text, gates = self.texts[number], np.asarray(self.gates[score][setting])
        now, whole = (self.predict(text, g) for g in (gates, np.ones_like(gates)))
        said, before = (f"{self.labels[p.argmax()]} ({p.max():.3f})" for p in (now, whole))
        stated = "" if self.gold is None else f"; the data say {self.labels[self.gold[number]]}"
        return f"“{parts.shown(text, 90)}”\nThe model says {said}, with all heads {before}{stated}."


def check_settings(curves, importances, gates, texts, gold, start: int) -> None:
    """Raise a ValueError unless the scores, their settings and the texts fit together."""
    if not curves or not texts:
        raise ValueError("There is nothing to choose from: give at least one score and one text.")
    if not list(curves) == list(importances) == list(gates):
        raise ValueError(
            f"The scores differ: curves of {', '.join(curves)}, importances of {', '.join(importances)}, gates of "
            f"{', '.join(gates)}. Give the same, in the same order."
        )
    off = {tuple((np.asarray(found) == 0).sum(axis=(1, 2))) for found in gates.values()}
    settings = {len(curve.shares) for curve in curves.values()} | set(map(len, off))
    if len(off) > 1 or len(settings) > 1 or not 0 <= start < min(settings):
        raise ValueError(
            f"Curves and gates have {', '.join(map(str, sorted(settings)))} settings and the first to show is {start}: "
            "every score needs the same settings, as many heads off in each, and start is one of them, counted from 0."
        )
    if gold is not None and len(gold) != len(texts):
        raise ValueError(f"{len(gold)} gold labels were given for {len(texts)} texts: give one a text.")
