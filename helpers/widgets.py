"""Controls around the figures of :mod:`helpers.plots`: choose and look, or type a sentence and see it explained.

The only module that uses ipywidgets. Figures change through ``observe``, never through ``interact`` or an
Output widget: both can hang a notebook that runs headless. Where the environment variable
``ATTATTR_HEADLESS`` is 1 there is nobody to operate controls, and a function returns its static twin, the
figure of the first choice.
"""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ipywidgets
import numpy as np
import plotly.graph_objects as go

from helpers import _display as show
from helpers import plots
from helpers._links import strongest

logger = logging.getLogger(__name__)

Text = str | tuple[str, str]

VIEWS = ("links, all layers", "links, one layer", "one head", "one layer", "all heads")
NEEDS_LAYER = {"links, one layer", "one head", "one layer"}
STATIC = "Static picture: the controls need a running kernel."


def headless() -> bool:
    """Return whether notebooks run with nobody to operate controls."""
    return os.environ.get("ATTATTR_HEADLESS") == "1"


def explorer(attributions, *, k: int = 8) -> Explorer | go.Figure:
    """Return controls that choose an example, a view, a layer and a head, above the figure they choose.

    Args:
        attributions: an Attribution or a list of them; their layers and heads may differ.
        k: how many links the sentence views draw.

    Returns:
        A widget to end a cell with; with ``ATTATTR_HEADLESS=1`` the plain figure of the first choice.

    Raises:
        ValueError: the list is empty.
    """
    many = [attributions] if hasattr(attributions, "scores") else list(attributions)
    if not many:
        raise ValueError("There is no attribution to explore: pass one, or a list of at least one.")
    return static(plots.sentence_links(many[0], k=k)) if headless() else Explorer(many, k)


def sentence_box(explain: Callable[[Text], Any], *, start_text: Text, k: int = 8) -> SentenceBox | go.Figure:
    """Return a text field whose sentence is explained at the press of a button or of Enter.

    Args:
        explain: takes the text and returns its Attribution, for instance
            ``lambda text: attribute(model, tokenizer, text)``.
        start_text: what stands in the field at first, and is explained at once; a pair makes two fields.
        k: how many links to draw.

    Returns:
        A widget to end a cell with; with ``ATTATTR_HEADLESS=1`` the links of the start text.
    """
    if headless():
        return static(plots.sentence_links(explain(start_text), k=k))
    return SentenceBox(explain, start_text, k)


def pruning_slider(
    curves: Mapping[str, Any],
    importances: Mapping[str, np.ndarray],
    gates: Mapping[str, np.ndarray],
    texts: Sequence[Text],
    predict: Callable[[Text, np.ndarray], np.ndarray],
    *,
    labels: Sequence[str],
    gold: Sequence[int] | None = None,
    start: int = 0,
) -> PruningSlider | go.Figure:
    """Return a slider of heads pruned: it moves along the curve, crosses heads out and asks the model about a text.

    Accuracies come from the curves. Only the chosen text goes through the model: with heads off, and with all of them.

    Args:
        curves: score -> :class:`helpers.pruning.Curve`, measured before.
        importances: score -> importance of every head by it, [layer, head].
        gates: score -> what the settings of its curve switch off, [setting, layer, head], 0 for a head that is off.
        texts: what the model can be asked about.
        predict: takes a text and gates [layer, head] and returns the probabilities of the classes, for instance
            one forward pass inside ``touch(model, factors=gate_heads(gates))``.
        labels: names of the classes.
        gold: the class that the data state for every text.
        start: the setting shown first.

    Returns:
        A widget to end a cell with; with ``ATTATTR_HEADLESS=1`` the figure of the first score, text and setting.

    Raises:
        ValueError: there is no score or text, the scores or the numbers of settings differ, or no such setting.
    """
    texts = list(texts)
    _check_settings(curves, importances, gates, texts, gold, start)
    state = _State(curves, importances, gates, texts, predict, labels, gold)
    if headless():
        score = next(iter(curves))
        return static(state.figure(score, start, note=state.verdict(score, start, 0)))
    return PruningSlider(state, start)


def static(figure: go.Figure) -> go.Figure:
    """Add to a figure the line that says why it has no controls, and return it."""
    low = figure.layout.margin.b
    figure.update_layout(height=figure.layout.height + 28, margin_b=low + 28)
    return figure.add_annotation(show.caption(STATIC), x=0, xanchor="left", y=0, yshift=-low - 4, yanchor="top")


class Explorer(ipywidgets.VBox):
    """The widget that :func:`explorer` returns. Its controls: ``example``, ``view``, ``layer``, ``head``."""

    def __init__(self, attributions: Sequence, k: int):
        self._attributions, self._k = attributions, k
        examples = [(f"{i}: {_shown(a.text, 70)}", i) for i, a in enumerate(attributions)]
        self.example = _dropdown("Example", examples, width="32rem")
        self.view = _dropdown("View", VIEWS)
        self.layer = _dropdown("Layer", attributions[0].layers, width="10rem")
        self.head = _dropdown("Head", range(attributions[0].scores.shape[1]), width="10rem")
        self.message = _message()
        self._waiting = False
        controls = ipywidgets.HBox(
            [self.example, self.view, self.layer, self.head], layout=ipywidgets.Layout(flex_flow="row wrap")
        )
        self._place = _scrolled()
        super().__init__([controls, self.message, self._place], layout=ipywidgets.Layout(max_width="100%"))
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
                _offer(self.layer, self.attribution.layers)
                _offer(self.head, range(self.attribution.scores.shape[1]))
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
        _attempt(self.message, lambda: _put(self._place, draw()))


class SentenceBox(ipywidgets.VBox):
    """The widget that :func:`sentence_box` returns: ``fields``, ``button``, ``message`` and ``figures``."""

    def __init__(self, explain: Callable[[Text], Any], start_text: Text, k: int):
        self._explain, self._k = explain, k
        self.attribution: Any = None
        texts = start_text if isinstance(start_text, tuple) else (start_text,)
        names = ("First text", "Second text") if len(texts) == 2 else ("Sentence",)
        self.fields = [_field(name, text) for name, text in zip(names, texts, strict=True)]
        self.button = ipywidgets.Button(description="Explain", button_style="primary", tooltip="Explain this text")
        self.message = _message()
        self._place = _scrolled()
        parts = [*self.fields, self.button, self.message, self._place]
        super().__init__(parts, layout=ipywidgets.Layout(max_width="100%"))
        self.button.on_click(lambda _: self.run())
        for field in self.fields:
            field.on_msg(self._entered)
        self.run()

    def _entered(self, _, content, buffers) -> None:
        if content.get("event") == "submit":
            self.run()

    @property
    def figures(self) -> tuple[go.FigureWidget, ...]:
        """The figures shown now: the links, and the heat maps of the head with the strongest one."""
        return self._place.children

    def run(self) -> None:
        """Explain the text in the field and show the answer, or what went wrong."""
        texts = tuple(field.value for field in self.fields)
        self.button.disabled, self.button.description = True, "Explaining…"
        self.message.value = _line("Explaining…")
        try:
            done = _attempt(self.message, lambda: self._answer(texts if len(texts) == 2 else texts[0]))
            self._place.layout.display = None if done else "none"  # an old answer under a new question would mislead
        finally:
            self.button.disabled, self.button.description = False, "Explain"

    def _answer(self, text: Text) -> str:
        a = self._explain(text)
        layer, head = next(((link.layer, link.head) for link in strongest(a, 1)), (a.layers[0], 0))
        _put(self._place, plots.sentence_links(a, k=self._k), plots.head_maps(a, layer, head))
        self.attribution = a
        return _verdict(a)


class PruningSlider(ipywidgets.VBox):
    """The widget that :func:`pruning_slider` returns. Its controls: ``score``, ``count``, ``text``."""

    def __init__(self, state: _State, start: int):
        self._state = state
        self.score = _dropdown("Score", state.curves)
        self.count = ipywidgets.SelectionSlider(
            description="Heads pruned",
            options=state.settings(self.score.value),
            index=start,
            layout=ipywidgets.Layout(width="28rem", max_width="100%"),
            style={"description_width": "7rem"},
        )
        self.text = _dropdown(
            "Text", [(f"{i}: {_shown(text, 90)}", i) for i, text in enumerate(state.texts)], width="44rem"
        )
        self.message = _message()
        self._place = _scrolled()
        controls = ipywidgets.HBox([self.score, self.count], layout=ipywidgets.Layout(flex_flow="row wrap"))
        parts = [controls, self.text, self.message, self._place]
        super().__init__(parts, layout=ipywidgets.Layout(max_width="100%"))
        for control in (self.score, self.count):
            control.observe(lambda _: self._draw(), "value")
        self.text.observe(lambda _: self._ask(), "value")
        self._draw()

    @property
    def figure(self) -> go.FigureWidget:
        """The figure shown now."""
        return self._place.children[0]

    def _draw(self) -> None:
        _put(self._place, self._state.figure(self.score.value, self.count.value))
        self._ask()

    def _ask(self) -> None:
        asked = self.score.value, self.count.value, self.text.value
        _attempt(self.message, lambda: show.literal(self._state.verdict(*asked)).replace("\n", "<br>"))


@dataclass(frozen=True)
class _State:
    """What :func:`pruning_slider` was given, and what it shows for a choice."""

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
        return f"“{_shown(text, 90)}”\nThe model says {said}, with all heads {before}{stated}."


def _check_settings(curves, importances, gates, texts, gold, start: int) -> None:
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


def _attempt(message: ipywidgets.HTML, work: Callable[[], str | None]) -> bool:
    """Do the work, show in the message what it returns, its warnings or its error, and return whether it went well."""
    done = True
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            said = _line(work() or "")
        except Exception as error:  # a widget's callback has nowhere else to show it
            logger.exception("A widget could not do what was asked")
            done, said = False, _line(f"<b>{type(error).__name__}</b>: {show.literal(str(error))}", role="alert")
    seen = {str(w.message): None for w in caught if issubclass(w.category, UserWarning)}
    message.value = said + "".join(_line(f"Note: {show.literal(text)}") for text in seen)
    return done


def _line(inner: str, role: str = "status") -> str:
    mark = "border-left:4px solid #c0392b;padding-left:8px;" if role == "alert" else ""
    return f'<div role="{role}" style="{mark}line-height:1.5;margin:4px 0">{inner}</div>' if inner else ""


def _verdict(a) -> str:
    """Return the prediction in words, as HTML."""
    predicted = show.literal(a.labels[a.predicted])
    if a.output == "raw":
        return f"The model answers <b>{a.value:.3g}</b>."
    if a.predicted == a.target:
        return f"The model says <b>{predicted}</b>, with probability <b>{a.probability:.3g}</b>."
    target = show.literal(a.labels[a.target])
    return (
        f"The model says <b>{predicted}</b>; explained is <b>{target}</b>, with probability <b>{a.probability:.3g}</b>."
    )


def _put(place: ipywidgets.VBox, *figures: go.Figure) -> None:
    """Show figures in a place: as widgets the first time, then as the new content of the same widgets.

    A figure widget brings plotly's whole JavaScript with it, so it is made once, from a finished figure, and
    filled anew.
    """
    if not place.children:
        place.children = [go.FigureWidget(_without_nan(figure)) for figure in figures]
        return
    for widget, figure in zip(place.children, figures, strict=True):
        gone = set(widget.layout.to_plotly_json()) - set(figure.layout.to_plotly_json())
        widget.data = ()  # views differ in their traces and axes: nothing of the old one stays
        widget.plotly_relayout(dict.fromkeys(gone))
        widget.layout = figure.layout
        widget.add_traces(_without_nan(figure).data)


def _without_nan(figure: go.Figure) -> go.Figure:
    """Return the figure with None for NaN, which is no JSON and leaves a widget blank."""
    for trace in figure.select_traces(dict(type="heatmap")):
        for name in ("z", "customdata"):
            if trace[name] is not None:
                values = np.asarray(trace[name], dtype=object)
                trace[name] = np.where(np.isfinite(values.astype(float)), values, None)
    return figure


def _offer(dropdown: ipywidgets.Dropdown, options) -> None:
    """Give a dropdown new options and keep its value where that is still one of them."""
    kept, options = dropdown.value, tuple(options)
    dropdown.options = options
    dropdown.value = kept if kept in options else options[0]


def _shown(text: Text, longest: int) -> str:
    return show.cut(" | ".join(text) if isinstance(text, tuple) else text, longest)


def _dropdown(name: str, options, *, width: str = "16rem") -> ipywidgets.Dropdown:
    layout = ipywidgets.Layout(width=width, max_width="100%")
    return ipywidgets.Dropdown(
        description=name, options=list(options), layout=layout, style={"description_width": "4.5rem"}
    )


def _field(name: str, text: str) -> ipywidgets.Text:
    layout = ipywidgets.Layout(width="100%", max_width="60rem")
    return ipywidgets.Text(description=name, value=text, layout=layout, style={"description_width": "initial"})


def _scrolled() -> ipywidgets.VBox:
    """Return the place for figures: one wider than the page scrolls, and leaves the controls where they are."""
    return ipywidgets.VBox(layout=ipywidgets.Layout(max_width="100%", overflow="auto"))


def _message() -> ipywidgets.HTML:
    return ipywidgets.HTML(layout=ipywidgets.Layout(max_width="60rem"))
