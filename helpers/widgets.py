"""Controls around the figures of :mod:`helpers.plots`: choose and look, or name a text and see it explained.

With their parts (``_widget_parts``, ``_head_grid``, ...) the only modules that use ipywidgets. Figures change through
``observe``, never through ``interact`` or an Output widget: both can hang a notebook that runs headless. Every control
has a name and answers to the keyboard; what goes wrong is said inside. Where the environment variable
``ATTATTR_HEADLESS`` is 1 there is nobody to operate controls, and a function returns its static twin, the figure of the
first choice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import numpy as np
import plotly.graph_objects as go

from helpers import models, plots
from helpers._browser_parts import NamedSlider
from helpers._example_picker import ExamplePicker
from helpers._explorer import Explorer, SentenceBox
from helpers._head_grid import HeadGrid, first_choice
from helpers._pruning_slider import PruningSlider, State, check_settings
from helpers._tree_explorer import PENALTIES, TreeExplorer, check_choice, tree_picture
from helpers._widget_parts import STATIC, Text, headless, listed, static
from helpers._workbench import MODELS, Workbench, examples_of
from helpers.attribution import Attribution, attribute
from helpers.widgets_triggers import TriggerBench, trigger_bench

__all__ = [
    "STATIC", "ExamplePicker", "Explorer", "HeadGrid", "NamedSlider", "PruningSlider", "SentenceBox", "TreeExplorer",
    "TriggerBench", "Workbench", "explorer", "head_grid", "headless", "pruning_slider", "sentence_box", "static",
    "tree_explorer", "trigger_bench", "workbench",
]  # fmt: skip


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
    many = listed(attributions)
    return static(plots.sentence_links(many[0], k=k)) if headless() else Explorer(many, k)


def head_grid(attributions, *, k: int = 8) -> HeadGrid | go.Figure:
    """Return every head as a square: a click shows its attention beside its attribution, and its links in the sentence.

    Two dropdowns do the same without a mouse.

    Args:
        attributions: an Attribution or a list of them; their layers and heads may differ.
        k: how many links to draw.
        at_once: False waits with the first model until a page shows the widget, as a page by Voila needs.

    Returns:
        A widget to end a cell with; with ``ATTATTR_HEADLESS=1`` the maps of the head with the strongest score.

    Raises:
        ValueError: the list is empty.
    """
    many = listed(attributions)
    return static(plots.head_maps(many[0], *first_choice(many[0]))) if headless() else HeadGrid(many, k)


def sentence_box(
    explain: Callable[[Text], Any], *, start_text: Text, examples: Sequence[Text] = (), k: int = 8
) -> SentenceBox | go.Figure:
    """Return controls that name a text, which is explained at the press of a button or of Enter.

    It is one that you type, one of the examples, or a row of a tab-separated file.

    Args:
        explain: takes the text and returns its Attribution, for instance
            ``lambda text: attribute(model, tokenizer, text)``.
        start_text: what stands in the field at first, and is explained at once; a pair makes two fields.
        examples: texts to choose from, of the same kind.
        k: how many links to draw.

    Returns:
        A widget to end a cell with; with ``ATTATTR_HEADLESS=1`` the links of the start text.
    """
    if headless():
        return static(plots.sentence_links(explain(start_text), k=k))
    return SentenceBox(explain, start_text, examples, k)


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
    check_settings(curves, importances, gates, texts, gold, start)
    state = State(curves, importances, gates, texts, predict, labels, gold)
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
    many = listed(attributions)
    check_choice(tau, penalty, penalties, variant)
    if headless():
        return static(tree_picture(many[0], tau=tau, penalty=penalty, variant=variant, merge=merge)[0])
    return TreeExplorer(many, penalties, (tau, penalty, variant), merge)


def workbench(names: Sequence[str] = MODELS, *, k: int = 8, at_once: bool = True) -> Workbench | go.Figure:
    """Return the whole explorer: choose a model and a text, and see its heads, its links, its tree, or attack it.

    Args:
        names: models in :data:`helpers.registry.REGISTRY`, the one shown first in front.
        k: how many links to draw.

    Returns:
        A widget to end a cell with; with ``ATTATTR_HEADLESS=1`` the maps of the head with the strongest score, for the
        first bundled text of the first model's task.

    Raises:
        ValueError: no name, or one that is not in the registry.
    """
    names = list(names)
    if not names:
        raise ValueError(f"There is no model to choose: give at least one, such as {MODELS[0]!r}.")
    texts = [examples_of(name)[0][0] for name in names]
    if not headless():
        return Workbench(names, k, at_once=at_once)
    classifier = models.load(names[0])
    a = cast(Attribution, attribute(classifier.model, classifier.tokenizer, texts[0]))
    return static(plots.head_maps(a, *first_choice(a)))
