"""What ipywidgets leaves out in the browser (part of :mod:`helpers.widgets`): a slider's name, and keys of one's own.

The handle of an ipywidgets slider has no accessible name: a screen reader says "slider", and not which one.
:class:`NamedSlider` is ``<input type="range">``: it has its label, says the value of its stop, and moves by the arrow
keys, Home and End. And JupyterLab takes keys such as the arrows for itself, as if a cell were chosen, although a
dropdown has the focus: :class:`Panel` keeps them. The scripts are the texts below; nothing is fetched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import anywidget
import ipywidgets
import traitlets

SCRIPT = """
function render({ model, el }) {
  const make = (tag) => document.createElement(tag);
  const label = make("label"), name = make("span"), input = make("input"), said = make("span");
  name.textContent = model.get("description");
  label.title = model.get("tooltip");
  input.type = "range";
  input.min = 0;
  said.className = "said";
  label.append(name, input);
  el.classList.add("named-slider");
  el.append(label, said);
  const say = () => {
    said.textContent = model.get("stops")[input.value];
    input.setAttribute("aria-valuetext", said.textContent);
  };
  const show = () => {
    input.max = model.get("stops").length - 1;
    input.value = model.get("index");
    say();
  };
  const send = () => {
    model.set("index", Number(input.value));
    model.save_changes();
  };
  input.addEventListener("input", () => { say(); if (model.get("follows")) send(); });
  input.addEventListener("change", send);
  model.on("change:index", show);
  model.on("change:stops", show);
  show();
}
export default { render };
"""
LOOKS = """
.named-slider { display: flex; flex-wrap: wrap; align-items: center; gap: 0 8px; margin: 2px; max-width: 100%;
  color: var(--jp-widgets-label-color, inherit); font-size: var(--jp-widgets-font-size, 13px); min-height: 28px; }
.named-slider label { display: flex; align-items: center; gap: 8px; }
.named-slider label > span { min-width: 4.5rem; text-align: right; white-space: nowrap; }
.named-slider input { width: 13rem; max-width: 50vw; accent-color: var(--jp-brand-color1, #1976d2); }
.named-slider .said { min-width: 3.5rem; font-variant-numeric: tabular-nums; }
"""

KEYS = """
const own = ({ target }) => {
  const kept = target.matches("select, button, input:not([type=text])");
  if (kept) target.setAttribute("data-lm-suppress-shortcuts", "true");
};
function render({ model, el }) {
  model.send("shown");
  el.style.display = "none";
  let tries = 0;  // the element is put into the page after this
  const listen = () => {
    const output = el.closest(".jp-OutputArea-output");
    if (output) output.addEventListener("focusin", own);
    else if (++tries < 600) requestAnimationFrame(listen);
  };
  listen();
}
export default { render };
"""


class Keys(anywidget.AnyWidget):
    """Nothing to see: keys pressed in a control, in the output that it is in, don't reach JupyterLab."""

    _esm = KEYS


class Panel(ipywidgets.VBox):
    """Controls and figures one below the other, never wider than the page, where keys go to the control in focus."""

    def __init__(self, children: Iterable[ipywidgets.Widget]):
        self._keys = Keys()
        super().__init__([*children, self._keys], layout=ipywidgets.Layout(max_width="100%"))

    def once_shown(self, work: Callable[[], object]) -> None:
        """Do the work when a page shows the panel for the first time.

        Voila shows a page while its cells still run, and a figure that is made in between may stay as it was first.
        """
        waiting = [work]

        def shown(*_: object) -> None:
            if waiting:
                waiting.pop()()

        self._keys.on_msg(shown)


class NamedSlider(anywidget.AnyWidget):
    """A slider over a few stops.

    Attributes:
        options: (what a stop shows, its value), in order.
        value: the value chosen.
        description: its name.
        tooltip: what it means, in a sentence.
        follows: whether the value changes while the handle is dragged, or only where it is let go.
    """

    _esm = SCRIPT
    _css = LOOKS
    description = traitlets.Unicode().tag(sync=True)
    tooltip = traitlets.Unicode().tag(sync=True)
    follows = traitlets.Bool(False).tag(sync=True)
    stops = traitlets.List(traitlets.Unicode()).tag(sync=True)
    index = traitlets.Int(0).tag(sync=True)
    value = traitlets.Any()

    def __init__(self, options: Iterable[tuple[str, Any]], *, value: Any = None, **given: Any):
        self.options = list(options)
        self._values = [stop for _, stop in self.options]
        start = self._values[0] if value is None else value
        super().__init__(
            stops=[said for said, _ in self.options], index=self._values.index(start), value=start, **given
        )

    @traitlets.observe("index")
    def _moved(self, change) -> None:
        self.value = self._values[change["new"]]

    @traitlets.validate("index")
    def _there(self, proposal) -> int:
        return min(max(0, proposal["value"]), len(self._values) - 1)

    @traitlets.observe("value")
    def _chosen(self, change) -> None:
        self.index = self._values.index(change["new"])

    @traitlets.validate("value")
    def _offered(self, proposal) -> Any:
        if proposal["value"] not in self._values:
            offered = ", ".join(said for said, _ in self.options)
            raise traitlets.TraitError(f"{self.description} has no stop {proposal['value']!r}: there are {offered}.")
        return proposal["value"]
