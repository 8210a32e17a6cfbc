"""Adversarial triggers: a few words, found by attribution, that turn predictions when put into other texts.

1. Find: in each training example the links with the largest attribution join a few tokens, the trigger; its score is
   the mean of their scores (:func:`extract`).
2. Insert: into other texts, at the same relative positions (:func:`prepare`, :func:`insert`).
3. Attack: accuracy before and after, class by class (:func:`attack`); the best are chosen on one half of the victims
   and reported on the other (:func:`contest`), as are those of other methods with as many tokens (:func:`at_random`,
   :func:`by_frequency`, :func:`by_gradient`, and the most attended pairs, which :func:`extract` finds on the way).
4. Harden: the attacked texts with their right labels, to train on (:func:`hardening_set`).

With c from :func:`helpers.models.load`:

    >>> E = extract(c.model, c.tokenizer, texts, gold)
    >>> V = prepare(c.model, c.tokenizer, other_texts, their_gold)
    >>> A = attack(predictor(c.model), V, E.triggers[:3])
    >>> A.table()

All but :func:`extract`, :func:`by_gradient` and the tokenising need no model, only a function from its inputs to
probabilities, see :func:`predictor`. Triggers show what a model leans on. They also fool it: use them on models that
are yours to test.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

import numpy as np
import pandas as pd

from helpers._labels import check_columns
from helpers._trigger import Link, Trigger, as_list, check_class, load, moved, save, unique
from helpers._trigger_attack import Attack, attack, attacked_outputs, halves, predictor, untouched
from helpers._trigger_baselines import at_random, by_frequency, by_gradient, whole_words
from helpers._trigger_contest import Contest, contest
from helpers._trigger_insertion import Inserted, Victims, insert, prepare
from helpers._trigger_lexicon import evident_sentiment
from helpers._trigger_search import Extraction, extract
from helpers.quadrature import check_steps

__all__ = [
    "Attack", "Contest", "Extraction", "Inserted", "Link", "Trigger", "Victims", "at_random", "attack", "by_frequency",
    "by_gradient", "contest", "evident_sentiment", "extract", "halves", "hardening_set", "insert", "load", "moved",
    "predictor", "prepare", "save", "unique", "untouched", "whole_words",
]  # fmt: skip

logger = logging.getLogger(__name__)


def hardening_set(
    model,
    tokenizer,
    frame: pd.DataFrame,
    triggers: Sequence[Trigger],
    *,
    per_example: int = 1,
    tries: int = 1,
    where: str = "relative",
    seed: int = 0,
    same_ids_only: bool = True,
) -> pd.DataFrame:
    """Return attacked examples with their right labels, in the columns of the table given.

    Every example gets triggers drawn from those that push away from its label, or from all if there are none. Its text
    is written as a reader would; ``phenomenon`` says "trigger: " and which; label, split and all else stay.

    Args:
        frame: labelled examples, as :func:`helpers.data.load` returns; ``label`` by a name that the model has.
        per_example: how many attacked texts to make of each, with different triggers.
        tries: how many triggers to draw for each of them; the one that leaves the right class the least probability
            is kept (adversarial training, Madry et al. 2018). 1: none is asked, so no trigger prefers a class.
        where, seed: see :func:`insert`; the seed also draws.
        same_ids_only: leave out texts of which the tokenizer makes other tokens than those of the attack, such as with
            a lone piece "##ly", or where a text was cut within a word. Their number is logged.

    Raises:
        ValueError: no trigger, fewer than ``per_example``, or one whose class has another number here; no example, or
            none that is left; a table without the columns first, second and label.
    """
    for name, value in (("per_example", per_example), ("tries", tries)):
        check_steps(value, name)
    check_columns(frame, ("first", "second", "label"))
    triggers = as_list(triggers)
    if per_example > len(triggers):
        raise ValueError(
            f"{len(triggers)} triggers were given, and per_example is {per_example}: give as many at least."
        )
    single = (frame["second"] == "").all()
    texts = frame["first"].tolist() if single else list(zip(frame["first"], frame["second"], strict=True))
    victims = prepare(model, tokenizer, texts, frame["label"].tolist())
    for trigger in triggers:
        check_class(trigger, victims.labels)
    drawn = _drawn(victims, triggers, per_example * tries, np.random.default_rng(seed))
    parts = []
    for number, rows in drawn.items():
        inserted = insert(victims, triggers[number], rows=rows, where=where, seed=seed)
        written, same = inserted.texts()
        part = frame.iloc[rows].copy()
        part["first"] = written if single else [text[0] for text in written]
        part["second"] = "" if single else [text[1] for text in written]
        part["phenomenon"] = f"trigger: {triggers[number]}"
        right: float | np.ndarray = 0.0
        if tries > 1:
            right = attacked_outputs(predictor(model), inserted)[np.arange(len(rows)), victims.gold[rows]]
        parts.append(part.assign(_row=rows, _right=right, _same=same | (not same_ids_only)))
    made = pd.concat(parts)
    if tries > 1:
        made = made.sort_values(["_same", "_right"], ascending=[False, True], kind="stable")
        made = made.groupby("_row", sort=False).head(per_example)
    return _kept(made)


def _kept(made: pd.DataFrame) -> pd.DataFrame:
    """Return the attacked examples that are tokenised as they were attacked, in the order of the examples."""
    made = made.sort_values("_row", kind="stable")
    kept = made[made["_same"]].drop(columns=["_row", "_right", "_same"]).reset_index(drop=True)
    if len(kept) < len(made):
        logger.warning(
            "%d of %d attacked texts are tokenised otherwise and were left out", len(made) - len(kept), len(made)
        )
    if kept.empty:
        raise ValueError(
            "No attacked text is tokenised as it was attacked: give other triggers, or same_ids_only=False."
        )
    return kept


def _drawn(victims: Victims, triggers: Sequence[Trigger], count: int, rng: np.random.Generator) -> dict[int, list[int]]:
    """Return for every trigger drawn the rows that it goes into."""
    drawn: dict[int, list[int]] = {}
    for row, gold in enumerate(victims.gold):
        away = [i for i, trigger in enumerate(triggers) if trigger.target != gold]
        order = [*rng.permutation(away), *rng.permutation([i for i in range(len(triggers)) if i not in set(away)])]
        for number in order[:count]:
            drawn.setdefault(int(number), []).append(row)
    return dict(sorted(drawn.items()))
