"""Controls around the figures of :mod:`helpers.plots`: choose and look, or type a sentence and see it explained.

With its own parts (_widget_parts, _tree_explorer) the only module that uses ipywidgets. Figures change through
``observe``, never through ``interact`` or an Output widget: both can hang a notebook that runs headless. Where the
environment variable ``ATTATTR_HEADLESS`` is 1 there is nobody to operate controls, and a function returns its static
twin, the figure of the first choice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import ipywidgets
import numpy as np
import plotly.graph_objects as go

from helpers import _display as show
from helpers import _widget_parts as parts
from helpers import plots
from helpers._links import strongest
from helpers._tree_explorer import PENALTIES, TreeExplorer, check_choice, tree_picture
from helpers._widget_parts import STATIC, Text, headless, static

__all__ = [
    "STATIC", "Explorer", "PruningSlider", "SentenceBox", "TreeExplorer", "explorer", "headless", "pruning_slider",
    "sentence_box", "static", "tree_explorer",
]  # fmt: skip

VIEWS = ("links, all layers", "links, one layer", "one head", "one layer", "all heads")
NEEDS_LAYER = {"links, one layer", "one head", "one layer"}


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


def tree_explorer(
    attributions,
    *,
    tau: float = 0.4,
    penalty: float = 0.0,
    penalties: Sequence[float] = PENALTIES,
    variant: str = "paper",
    merge: bool = True,
) -> TreeExplorer | go.Figure:
    """Return controls for tau, lambda and the variant, above the tree that they give and its objective.

    tau decides what the algorithm grows; lambda, the price of an edge, cuts branches that cost more than they bring
    (:func:`helpers.tree.pruned`).

    Args:
        attributions: an Attribution or a list of them.
        tau: the threshold at first, 0 to 1.
        penalty: lambda at first, one of ``penalties``.
        penalties: what lambda can be, in the unit of the scores, rising.
        variant: one of :data:`helpers.tree.VARIANTS`.
        merge: make words the nodes rather than their pieces.

    Returns:
        A widget to end a cell with; with ``ATTATTR_HEADLESS=1`` the tree of the first example.

    Raises:
        ValueError: there is no attribution, or a setting to start from that is not among those offered.
    """
    many = [attributions] if hasattr(attributions, "scores") else list(attributions)
    if not many:
        raise ValueError("There is no attribution to explore: pass one, or a list of at least one.")
    check_choice(tau, penalty, penalties, variant)
    if headless():
        return static(tree_picture(many[0], tau=tau, penalty=penalty, variant=variant, merge=merge)[0])
    return TreeExplorer(many, penalties, (tau, penalty, variant), merge)


class Explorer(ipywidgets.VBox):
    """The widget that :func:`explorer` returns. Its controls: ``example``, ``view``, ``layer``, ``head``."""

    def __init__(self, attributions: Sequence, k: int):
        self._attributions, self._k = attributions, k
        examples = [(f"{i}: {parts.shown(a.text, 70)}", i) for i, a in enumerate(attributions)]
        self.example = parts.dropdown("Example", examples, width="32rem")
        self.view = parts.dropdown("View", VIEWS)
        self.layer = parts.dropdown("Layer", attributions[0].layers, width="10rem")
        self.head = parts.dropdown("Head", range(attributions[0].scores.shape[1]), width="10rem")
        self.message = parts.message()
        self._waiting = False
        controls = ipywidgets.HBox(
            [self.example, self.view, self.layer, self.head], layout=ipywidgets.Layout(flex_flow="row wrap")
        )
        self._place = parts.scrolled()
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


class SentenceBox(ipywidgets.VBox):
    """The widget that :func:`sentence_box` returns: ``fields``, ``button``, ``message`` and ``figures``."""

    def __init__(self, explain: Callable[[Text], Any], start_text: Text, k: int):
        self._explain, self._k = explain, k
        self.attribution: Any = None
        texts = start_text if isinstance(start_text, tuple) else (start_text,)
        names = ("First text", "Second text") if len(texts) == 2 else ("Sentence",)
        self.fields = [parts.field(name, text) for name, text in zip(names, texts, strict=True)]
        self.button = ipywidgets.Button(description="Explain", button_style="primary", tooltip="Explain this text")
        self.message = parts.message()
        self._place = parts.scrolled()
        inside = [*self.fields, self.button, self.message, self._place]
        super().__init__(inside, layout=ipywidgets.Layout(max_width="100%"))
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
        self.message.value = parts.line("Explaining…")
        try:
            done = parts.attempt(self.message, lambda: self._answer(texts if len(texts) == 2 else texts[0]))
            self._place.layout.display = None if done else "none"  # an old answer under a new question would mislead
        finally:
            self.button.disabled, self.button.description = False, "Explain"

    def _answer(self, text: Text) -> str:
        a = self._explain(text)
        layer, head = next(((link.layer, link.head) for link in strongest(a, 1)), (a.layers[0], 0))
        parts.put(self._place, plots.sentence_links(a, k=self._k), plots.head_maps(a, layer, head))
        self.attribution = a
        return _verdict(a)


class PruningSlider(ipywidgets.VBox):
    """The widget that :func:`pruning_slider` returns. Its controls: ``score``, ``count``, ``text``."""

    def __init__(self, state: _State, start: int):
        self._state = state
        self.score = parts.dropdown("Score", state.curves)
        self.count = ipywidgets.SelectionSlider(
            description="Heads pruned",
            tooltip="how many heads are off",
            options=state.settings(self.score.value),
            index=start,
            layout=ipywidgets.Layout(width="28rem", max_width="100%"),
            style={"description_width": "7rem"},
        )
        self.text = parts.dropdown(
            "Text", [(f"{i}: {parts.shown(text, 90)}", i) for i, text in enumerate(state.texts)], width="44rem"
        )
        self.message = parts.message()
        self._place = parts.scrolled()
        controls = ipywidgets.HBox([self.score, self.count], layout=ipywidgets.Layout(flex_flow="row wrap"))
        inside = [controls, self.text, self.message, self._place]
        super().__init__(inside, layout=ipywidgets.Layout(max_width="100%"))
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
        return f"“{parts.shown(text, 90)}”\nThe model says {said}, with all heads {before}{stated}."


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
