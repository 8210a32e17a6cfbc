"""One text with and without a trigger, in full: what the model says, and why (part of :mod:`helpers.widgets_triggers`).

No controls: a :class:`Bench` answers, the widget asks.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple, cast

import torch
from transformers import PreTrainedModel

from helpers import triggers
from helpers.attribution import attribute, attribute_inputs
from helpers.inputs import Word
from helpers.result import Attribution

STEPS, RULE = 4, "gauss"


class Seen(NamedTuple):
    """A text before and after: attributions of the class predicted in each, and the text with the trigger in it."""

    before: Attribution
    after: Attribution
    inserted: triggers.Inserted

    @property
    def right(self) -> str:
        """The text's right class."""
        return self.before.labels[int(self.inserted.victims.gold[self.inserted.rows[0]])]


@dataclass(frozen=True, eq=False)
class Bench:
    """A model, its victims, and triggers found; see :meth:`answer`."""

    model: PreTrainedModel
    victims: triggers.Victims
    found: list[triggers.Trigger]
    before: dict[int, Attribution] = field(default_factory=dict, repr=False)  # by victim, as far as asked for

    def __post_init__(self) -> None:
        if not self.found or not len(self.victims):
            raise ValueError(
                f"{len(self.found)} triggers were given for {len(self.victims)} victims: give one or more of each."
            )

    def trigger(self, text: str, number: int | None = None) -> triggers.Trigger:
        """Return the trigger that a text stands for: the found one of that number, if it reads so, or typed words.

        ``|`` stands before the words for the second text. Typed words go to the middle of their text.
        """
        if number is not None and str(self.found[number]) == text.strip():
            return self.found[number]
        parts = [part.split() for part in text.split("|")]
        pairs = isinstance(self.victims.texts[0], tuple)
        if len(parts) > 1 + pairs:
            raise ValueError(
                f"“{text.strip()}” has words for {len(parts)} texts, and the victims have {1 + pairs}: "
                + ("put one | before the words for the second text." if pairs else "leave the | out.")
            )
        segments = [segment for segment, words in enumerate(parts) for _ in words]
        words = " ".join(word for words in parts for word in words)
        return triggers.Trigger.from_text(self.victims.tokenizer, words, positions=0.5, segments=segments)

    def answer(self, trigger: triggers.Trigger, row: int, where: str = "relative") -> Seen:
        """Return a victim without and with the trigger; where: see :func:`helpers.triggers.insert`."""
        inserted = triggers.insert(self.victims, trigger, rows=[row], where=where)
        if row not in self.before:
            text, limit = self.victims.texts[row], self.victims.limit
            before = attribute(self.model, self.victims.tokenizer, text, max_length=limit, steps=STEPS, rule=RULE)
            self.before[row] = cast(Attribution, before)
        return Seen(self.before[row], explain_inserted(self.model, inserted), inserted)


def explain_inserted(model, inserted: triggers.Inserted, which: int = 0, *, target: int | None = None) -> Attribution:
    """Return the attribution of a text with a trigger in it, token by token as it is attacked.

    The text as one would write it may be tokenised otherwise, so the ids go in as they are. Every token of the
    trigger is a word of its own.

    Args:
        which: which of the texts.
        target: the class to explain; None: the one predicted.
    """
    inputs = inserted.batch([which])
    asked = None if target is None else torch.tensor([target])
    raw = attribute_inputs(model, inputs, target=asked, steps=STEPS, rule=RULE)
    return Attribution(
        scores=raw.scores[0].float().cpu().numpy(),
        attention=raw.attention[0].float().cpu().numpy(),
        layers=raw.layers,
        text=inserted.texts()[0][which],
        tokens=inserted.tokens[which],
        words=_words(inserted, which),
        labels=inserted.victims.labels,
        target=int(raw.target[0]),
        predicted=int(raw.predicted[0]),
        probability=float(raw.probability[0]),
        value=float(raw.value[0]),
        output="probability",
        start=raw.start[0].cpu().numpy(),
        gap=raw.gap[0].cpu().numpy(),
        steps=raw.steps[0].cpu().numpy(),
        rule=RULE,
        precision=str(model.dtype).removeprefix("torch."),
    )


def _words(inserted: triggers.Inserted, which: int) -> tuple[Word, ...]:
    """Return the words of a text with a trigger in it: those of the text moved along, and the trigger's tokens."""
    tokens, trigger = inserted.tokens[which], inserted.trigger
    places = dict(zip(inserted.places[which], trigger.segments, strict=True))
    added = [Word(tokens[place], place, place + 1, segment) for place, segment in places.items()]
    own = inserted.victims.encoded.words[int(inserted.rows[which])]
    moved = [place for place in range(len(tokens)) if place not in places]
    if inserted.trimmed[which]:  # what was cut is not said: every token that is left stands for itself
        tokenizer, second = inserted.victims.tokenizer, False
        marks = set(tokenizer.all_special_tokens) - {tokenizer.unk_token, tokenizer.mask_token}  # words, in a text
        words = []
        for place in moved:
            special = tokens[place] in marks
            words.append(Word(tokens[place], place, place + 1, None if special else int(second)))
            second |= special and place > 0
    else:
        words = [Word(w.text, moved[w.start], moved[w.stop - 1] + 1, w.segment) for w in own]
    return tuple(sorted([*words, *added], key=lambda word: word.start))
