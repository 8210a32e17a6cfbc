"""What the controls share: fields, the place for figures, and the line that says what happened.

Private to :mod:`helpers.widgets`.
"""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Callable, Iterable

import ipywidgets
import numpy as np
import plotly.graph_objects as go

from helpers import _display as show

logger = logging.getLogger(__name__)

Text = str | tuple[str, str]

STATIC = "Static picture: the controls need a running kernel."


def headless() -> bool:
    """Return whether notebooks run with nobody to operate controls."""
    return os.environ.get("ATTATTR_HEADLESS") == "1"


def static(figure: go.Figure) -> go.Figure:
    """Add to a figure the line that says why it has no controls, and return it."""
    low = figure.layout.margin.b
    figure.update_layout(height=figure.layout.height + 28, margin_b=low + 28)
    return figure.add_annotation(show.caption(STATIC), x=0, xanchor="left", y=0, yshift=-low - 4, yanchor="top")


def attempt(message: ipywidgets.HTML, work: Callable[[], str | None]) -> bool:
    """Do the work, show in the message what it returns, its warnings or its error, and return whether it went well."""
    done = True
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            said = line(work() or "")
        except Exception as error:  # a widget's callback has nowhere else to show it
            logger.exception("A widget could not do what was asked")
            done, said = False, line(f"<b>{type(error).__name__}</b>: {show.literal(str(error))}", role="alert")
    seen = {str(w.message): None for w in caught if issubclass(w.category, UserWarning)}
    message.value = said + "".join(line(f"Note: {show.literal(text)}") for text in seen)
    return done


def line(inner: str, role: str = "status") -> str:
    mark = "border-left:4px solid #c0392b;padding-left:8px;" if role == "alert" else ""
    return f'<div role="{role}" style="{mark}line-height:1.5;margin:4px 0">{inner}</div>' if inner else ""


def put(place: ipywidgets.VBox, *figures: go.Figure) -> None:
    """Show figures in a place: as widgets the first time, then as the new content of the same widgets.

    A figure widget brings plotly's whole JavaScript with it, so it is made once, from a finished figure, and
    filled anew.
    """
    place.layout.display = None  # before it is filled: what is out of sight can't be measured
    if not place.children:
        place.children = [go.FigureWidget(without_nan(figure)) for figure in figures]
        return
    for widget, figure in zip(place.children, figures, strict=True):
        gone = set(widget.layout.to_plotly_json()) - set(figure.layout.to_plotly_json())
        widget.data = ()  # views differ in their traces and axes: nothing of the old one stays
        widget.plotly_relayout(dict.fromkeys(gone))
        widget.layout = figure.layout
        widget.add_traces(without_nan(figure).data)


def without_nan(figure: go.Figure) -> go.Figure:
    """Return the figure with None for NaN, which is no JSON and leaves a widget blank."""
    for trace in figure.select_traces(dict(type="heatmap")):
        for name in ("z", "customdata"):
            if trace[name] is not None:
                values = np.asarray(trace[name], dtype=object)
                trace[name] = np.where(np.isfinite(values.astype(float)), values, None)
    return figure


def offer(dropdown: ipywidgets.Dropdown, options) -> None:
    """Give a dropdown new options and keep its value where that is still one of them."""
    kept, options = dropdown.value, tuple(options)
    dropdown.options = options
    dropdown.value = kept if kept in options else options[0]


def refill(dropdown: ipywidgets.Dropdown, options) -> None:
    """Give a dropdown new options and choose the first; an empty one would stay without a choice."""
    dropdown.options = list(options)
    dropdown.index = 0 if dropdown.options else None


def listed(attributions) -> list:
    """Return one attribution or many as a list, which must not be empty."""
    many = [attributions] if hasattr(attributions, "scores") else list(attributions)
    if not many:
        raise ValueError("There is no attribution to explore: pass one, or a list of at least one.")
    return many


def numbered(texts: Iterable[Text], longest: int = 90) -> list[tuple[str, int]]:
    """Return the options of a dropdown that chooses a text: what it shows, and the number of the text."""
    return [(f"{i}: {shown(text, longest)}", i) for i, text in enumerate(texts)]


def shown(text: Text, longest: int) -> str:
    return show.cut(" | ".join(text) if isinstance(text, tuple) else text, longest)


def dropdown(name: str, options, *, width: str = "16rem") -> ipywidgets.Dropdown:
    layout = ipywidgets.Layout(width=width, max_width="100%")
    return ipywidgets.Dropdown(
        description=name, options=list(options), layout=layout, style={"description_width": "4.5rem"}
    )


def field(name: str, text: str) -> ipywidgets.Text:
    layout = ipywidgets.Layout(width="100%", max_width="60rem")
    wide = "4.5rem" if len(name) <= 10 else "initial"  # short names stand in one column with those of dropdowns
    return ipywidgets.Text(description=name, value=text, layout=layout, style={"description_width": wide})


def row(*controls: ipywidgets.Widget) -> ipywidgets.HBox:
    """Return controls side by side, on as many lines as they need."""
    return ipywidgets.HBox(list(controls), layout=ipywidgets.Layout(flex_flow="row wrap", max_width="100%"))


def verdict(a) -> str:
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


def scrolled() -> ipywidgets.VBox:
    """Return the place for figures: one wider than the page scrolls, and leaves the controls where they are."""
    return ipywidgets.VBox(layout=ipywidgets.Layout(max_width="100%", overflow="auto"))


def message() -> ipywidgets.HTML:
    return ipywidgets.HTML(layout=ipywidgets.Layout(max_width="60rem"))
