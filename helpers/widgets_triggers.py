"""Controls for triggers: type one or pick one, choose a text, and see the prediction, the links and the tree change.

As in :mod:`helpers.widgets`, figures change through ``observe``, and ``ATTATTR_HEADLESS=1`` returns a static twin.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import ipywidgets
import plotly.graph_objects as go

from helpers import _display as show
from helpers import _widget_parts as parts
from helpers import plots
from helpers._browser_parts import Panel
from helpers._trigger_bench import Bench, Seen
from helpers.tree import attribution_tree
from helpers.triggers import Trigger, Victims

WHERE = {"as found": "relative", "front": "front", "end": "end", "at random": "random"}
MARKED = "background:#fbd9b4;color:#1f2430;border-radius:3px;padding:0 3px"


def trigger_bench(
    model, victims: Victims, found: Sequence[Trigger], *, rows: Iterable[int] | None = None, k: int = 6
) -> TriggerBench | go.Figure:
    """Return a bench on which one text is attacked with one trigger: picked from those found, or typed.

    Args:
        model: the model attacked, which is also explained: twice a text, so an answer takes about a second.
        victims: what :func:`helpers.triggers.prepare` returned.
        found: triggers to pick from, the one shown first in front.
        rows: which victims to offer, the one shown first in front; None: the first 40.
        k: how many links to draw.

    Returns:
        A widget to end a cell with; with ``ATTATTR_HEADLESS=1`` the links of the first text, with the first trigger.

    Raises:
        ValueError: there is no trigger or no victim, or a victim's number is none.
    """
    offered = [int(row) for row in (range(min(40, len(victims))) if rows is None else rows)]
    bench = Bench(model, victims, list(found))
    if not offered or not all(0 <= row < len(victims) for row in offered):
        raise ValueError(f"The victims to offer are {offered}: give numbers from 0 to {len(victims) - 1}.")
    if parts.headless():
        seen = bench.answer(bench.found[0], offered[0])
        figure = plots.sentence_links(seen.after, k=k)
        about = figure.layout.title.text.partition("<br>")[2]
        about = about.replace("explains", f"before: {_said(seen.before)}; explains", 1)
        now = f"With “{show.literal(show.cut(str(seen.inserted.trigger), 30))}”: {_said(seen.after)}"
        figure.layout.title.text = f"<b>{now}</b><br>{about}"
        return parts.static(figure)
    return TriggerBench(bench, offered, k)


class TriggerBench(Panel):
    """The widget that :func:`trigger_bench` returns.

    Its controls: ``found``, ``typed``, ``where``, ``victim``, ``button``; what it shows: ``message``, ``figures``;
    ``seen`` holds the last answer.
    """

    def __init__(self, bench: Bench, rows: Sequence[int], k: int):
        self._bench, self._k = bench, k
        self.seen: Seen | None = None
        named = [(f"{t} → {t.label}" if t.label else str(t), i) for i, t in enumerate(bench.found)]
        self.found = parts.dropdown("Found", named, width="26rem")
        self.typed = parts.field("Trigger", str(bench.found[0]))
        self.where = parts.dropdown("Where", WHERE.items(), width="14rem")
        labels, gold = bench.victims.labels, bench.victims.gold
        texts = [(f"{row} ({labels[gold[row]]}): {parts.shown(bench.victims.texts[row], 80)}", row) for row in rows]
        self.victim = parts.dropdown("Text", texts, width="44rem")
        self.button = ipywidgets.Button(description="Attack", button_style="primary", tooltip="Insert the trigger")
        self.message, self._place = parts.message(), parts.scrolled()
        inside = [parts.row(self.found, self.where), self.typed, self.victim, self.button, self.message, self._place]
        super().__init__(inside)
        self.button.on_click(lambda _: self.run())
        self.typed.on_msg(self._entered)
        self.found.observe(self._picked, "value")
        for control in (self.where, self.victim):
            control.observe(lambda _: self.run(), "value")
        self.run()

    def _entered(self, _, content, buffers) -> None:
        if content.get("event") == "submit":
            self.run()

    def _picked(self, change) -> None:
        self.typed.value = str(self._bench.found[change["new"]])
        self.run()

    @property
    def figures(self) -> tuple[go.FigureWidget, ...]:
        """The figures shown now: links before and after, trees before and after."""
        return self._place.children

    def run(self) -> None:
        """Insert the trigger and show what changed, or what went wrong."""
        self.button.disabled, self.button.description = True, "Attacking…"
        self.message.value = parts.line("Attacking…")
        try:
            done = parts.attempt(self.message, self._answer)
            self._place.layout.display = None if done else "none"  # an old answer under a new question would mislead
        finally:
            self.button.disabled, self.button.description = False, "Attack"

    def _answer(self) -> str:
        trigger = self._bench.trigger(self.typed.value, self.found.value)
        seen = self._bench.answer(trigger, self.victim.value, self.where.value)
        links = [plots.sentence_links(a, k=self._k) for a in (seen.before, seen.after)]
        trees = [plots.tree(attribution_tree(a, merge=True), note=show.explained(a)) for a in (seen.before, seen.after)]
        for figures in (links, trees):
            for figure, when in zip(figures, ("Before", "With the trigger"), strict=True):
                figure.layout.title.text = figure.layout.title.text.replace("<b>", f"<b>{when}: ", 1)
        parts.put(self._place, *links, *trees)
        self.seen = seen
        return _verdict(seen)


def _said(a) -> str:
    """Return the class predicted and its probability, as HTML."""
    return f"{show.literal(a.labels[a.predicted])} ({a.probability:.2f})"


def _verdict(seen: Seen) -> str:
    """Return the predictions in words and the text with the trigger marked, as HTML."""
    flipped = seen.before.predicted != seen.after.predicted
    said = "The answer <b>flips</b>." if flipped else "The answer stays."
    trimmed = int(seen.inserted.trimmed[0])
    cut = f" {trimmed} tokens were cut from the text to make room." if trimmed else ""
    tokens, places = seen.inserted.tokens[0], set(seen.inserted.places[0])
    marked = " ".join(
        f'<b style="{MARKED}">{show.literal(token)}</b>' if place in places else show.literal(token)
        for place, token in enumerate(tokens)
    )
    what = f"Before: <b>{_said(seen.before)}</b>; with the trigger: <b>{_said(seen.after)}</b>."
    return f"{what} The data say {show.literal(seen.right)}. {said}{cut}<br>{marked}"
