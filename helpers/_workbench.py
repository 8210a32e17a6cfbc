"""A model, a text, and what the model made of it, on one page (part of :mod:`helpers.widgets`).

The only control that loads models: it is the whole explorer, as ``make app`` serves it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ipywidgets

from helpers import _widget_parts as parts
from helpers import data, models, triggers
from helpers._browser_parts import Panel
from helpers._example_picker import ExamplePicker
from helpers._head_grid import HeadGrid
from helpers._tree_explorer import PENALTIES, TreeExplorer
from helpers._trigger_bench import Bench
from helpers._widget_parts import Text
from helpers.attribution import attribute
from helpers.registry import REGISTRY
from helpers.widgets_triggers import TriggerBench

MODELS = ("minilm-sst2", "minilm-mnli", "minilm-rte", "minilm-mrpc")
SHOWN = {"heads and links": "heads", "the tree": "tree", "a trigger": "trigger"}
WORDS = ("but", "not", "never", "no one", "nothing but", "in the end")  # to begin with; none of them was searched for
EXAMPLES = 30  # sentences on offer, and texts to attack


def examples_of(name: str) -> tuple[list[Text], list[str]]:
    """Return bundled texts of a model's task, and their labels."""
    task = REGISTRY[name].task if name in REGISTRY else None
    if not task:
        raise ValueError(f"{name} has no task with bundled texts: give one of {', '.join(MODELS)}.")
    frame = data.load(task, limit=EXAMPLES)
    return list(data.texts(frame)), frame["label"].tolist()


class Workbench(Panel):
    """The widget that ``workbench`` returns.

    Its controls: ``model``, ``picker``, ``view``, and those of ``shown``, which is a HeadGrid, a TreeExplorer or a
    TriggerBench; ``attribution`` is the last answer.
    """

    def __init__(self, names: Sequence[str], k: int, *, at_once: bool = True):
        self._k = k
        self._parts: dict[str, Any] = {}  # view -> its widget, made when it is first asked for
        self._fresh: set[str] = set()  # the views that show this text
        self.attribution: Any = None
        self.model = parts.dropdown("Model", names)
        self.view = ipywidgets.RadioButtons(
            description="Show", options=list(SHOWN.items()), orientation="horizontal",
            style={"description_width": "4.5rem"}, layout=ipywidgets.Layout(width="auto"),
        )  # fmt: skip
        self.message = parts.message()
        self._place = ipywidgets.VBox(layout=ipywidgets.Layout(max_width="100%"))
        texts, _ = examples_of(names[0])
        self.picker = ExamplePicker(self._explain, start_text=texts[0], examples=texts, place=self._place)
        super().__init__([self.model, self.message, self.picker, self.view, self._place])
        if at_once:
            self._load()
        else:
            self.message.value = parts.line(f"Loading {self.model.value}…")
            self.once_shown(self._load)
        self.model.observe(lambda _: self._load(), "value")
        self.view.observe(lambda _: parts.attempt(self.message, self._show), "value")

    @property
    def shown(self) -> HeadGrid | TreeExplorer | TriggerBench:
        """The part that is shown now."""
        return self._parts[self.view.value]

    def _load(self) -> None:
        self.message.value = parts.line(f"Loading {self.model.value}…")
        if parts.attempt(self.message, self._open):
            self.picker.run()
        else:
            self._place.layout.display = "none"

    def _open(self) -> None:
        classifier = models.load(self.model.value)
        texts, labels = examples_of(self.model.value)
        self._classifier, self._victims = classifier, (texts, labels)
        if bench := self._parts.pop("trigger", None):  # it attacks the model before
            self._place.children = list(self._parts.values())
            bench.close()
            self._fresh.discard("trigger")
        self.picker.offer(texts[0], texts)

    def _explain(self, text: Text) -> str:
        self.attribution = attribute(self._classifier.model, self._classifier.tokenizer, text)
        self._fresh &= {"trigger"}
        self._show()
        return parts.verdict(self.attribution)

    def _show(self) -> None:
        """Put the chosen view in its place, showing this text; the others are brought up to date when they are."""
        view = self.view.value
        self.picker.layout.display = "none" if view == "trigger" else None  # a bench has its own texts
        for name, part in self._parts.items():  # out of sight, not gone: a figure made anew brings its megabytes
            part.layout.display = None if name == view else "none"
        if view not in self._parts:
            self._parts[view] = self._make(view)
            self._place.children = list(self._parts.values())
        elif view not in self._fresh:
            self._parts[view].show([self.attribution])
        self._fresh.add(view)

    def _make(self, view: str) -> HeadGrid | TreeExplorer | TriggerBench:
        if view == "heads":
            return HeadGrid([self.attribution], self._k)
        if view == "tree":
            return TreeExplorer([self.attribution], PENALTIES, (0.4, 0.0, "paper"), merge=True)
        texts, labels = self._victims
        model, tokenizer = self._classifier.model, self._classifier.tokenizer
        found = [triggers.Trigger.from_text(tokenizer, words, positions=0.5) for words in WORDS]
        bench = Bench(model, triggers.prepare(model, tokenizer, texts, labels), found)
        return TriggerBench(bench, range(len(texts)), self._k)
