"""What triggers do to predictions: accuracy before and after, flips, intervals (part of :mod:`helpers.triggers`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from torch import Tensor
from tqdm.auto import tqdm

from helpers._trigger import Trigger, as_list, check_class
from helpers._trigger_insertion import Inserted, Victims, check_victims, insert
from helpers.evaluate import wilson
from helpers.inputs import batches_by_length
from helpers.outputs import logits_of, probabilities
from helpers.pruning import interval

Predict = Callable[[dict[str, Tensor]], np.ndarray]
UNASKED = -1
LEAST_TEXTS = 4  # first texts that a class must have for pairs on one of them to stay together
ATTEMPTS = 50  # to deal the texts so that every class is in both halves


def predictor(model) -> Predict:
    """Return the model as a function from its inputs, tensors [row, token], to probabilities, float array [row, class].

    It runs in eval mode, and the model is left in the mode it was in.
    """

    def predict(inputs: dict[str, Tensor]) -> np.ndarray:
        training = model.training
        model.eval()
        try:
            with torch.inference_mode():
                return probabilities(logits_of(model(**inputs)), model.config).cpu().numpy()
        finally:
            model.train(training)

    return predict


@dataclass(frozen=True, eq=False)
class Attack:
    """Predictions before and after; see :func:`attack`.

    Attributes:
        triggers: what was inserted, in the order of axis 0 of ``attacked``.
        labels: the class names.
        rows: the victims' numbers, int [victim].
        gold: their right classes, int [victim].
        clean: their classes as predicted before, int [victim].
        attacked: as predicted with the trigger, int [trigger, victim]; -1 where it was not asked.
        passes: forward passes of the network that it took, counted in texts.
    """

    triggers: list[Trigger]
    labels: tuple[str, ...]
    rows: np.ndarray
    gold: np.ndarray
    clean: np.ndarray
    attacked: np.ndarray
    passes: int

    def __repr__(self) -> str:
        right = int((self.clean == self.gold).sum())
        return f"Attack({len(self.triggers)} triggers on {len(self.rows)} victims, {right} right before; see table())"

    @property
    def lost(self) -> np.ndarray:
        """1 where a right answer became wrong, -1 the other way, 0 else, nan if not asked; float [trigger, victim]."""
        lost = (self.clean == self.gold).astype(float) - (self.attacked == self.gold)
        return np.where(self.attacked == UNASKED, np.nan, lost)

    def table(self, rows: Iterable[int] | None = None, *, seed: int = 0) -> pd.DataFrame:
        """Return one row a trigger and class of victims.

        Columns: number (of the trigger), trigger, target (the class it pushes to), victim (the class attacked),
        examples, before and after (accuracy, 0 to 1), after_low and after_high (Wilson's 95 % interval), drop (before -
        after), drop_low and drop_high (95 %, bootstrap over the victims, the same ones before and after), and for every
        class "to <label>": how many of the victims that were right before get that label now, their own included.

        Args:
            rows: victims to count, by their numbers; None: all attacked.
            seed: of the bootstrap.

        Raises:
            ValueError: none of the victims was attacked, or the rows are a mask.
        """
        given = self.rows if rows is None else np.asarray(list(rows))
        if given.dtype == bool:
            raise ValueError("The rows are True and False: give the victims' numbers, those of np.flatnonzero(mask).")
        counted = np.isin(self.rows, given)
        lines = []
        for number, trigger in enumerate(self.triggers):
            for victim, name in enumerate(self.labels):
                which = np.flatnonzero(counted & (self.gold == victim) & (self.attacked[number] != UNASKED))
                if len(which):
                    about = {"number": number, "trigger": str(trigger), "target": trigger.label, "victim": name}
                    lines.append({**about, **self._measured(number, which, victim, seed)})
        if not lines:
            raise ValueError("None of these victims was attacked, so there is nothing to count: give others.")
        return pd.DataFrame(lines)

    def _measured(self, number: int, which: np.ndarray, victim: int, seed: int) -> dict[str, float]:
        before, after = self.clean[which] == victim, self.attacked[number, which] == victim
        low, high = wilson(int(after.sum()), len(which))
        drop = before.astype(float) - after
        drop_low, drop_high = bounds(drop, seed)
        flips = self.attacked[number, which][before]
        return {
            "examples": len(which), "before": before.mean(), "after": after.mean(), "after_low": low,
            "after_high": high, "drop": drop.mean(), "drop_low": drop_low, "drop_high": drop_high,
        } | {f"to {label}": int((flips == i).sum()) for i, label in enumerate(self.labels)}  # fmt: skip


def bounds(values: np.ndarray, seed: int, classes: np.ndarray | None = None) -> tuple[float, float]:
    """Return the 95 % interval of a mean by bootstrap, within each class if given, (low, high); nan of a single one."""
    low, high = interval(values, seed=seed, strata=classes) if len(values) > 1 else (np.nan, np.nan)
    return float(low), float(high)


def check_asked(predict: object, victims: object) -> None:
    """Refuse a model in place of a function, and texts in place of victims."""
    if isinstance(predict, torch.nn.Module) or not callable(predict):
        raise ValueError(
            f"A {type(predict).__name__} was given in place of a function that predicts: give "
            "triggers.predictor(model)."
        )
    check_victims(victims)


def attack(
    predict: Predict,
    victims: Victims,
    triggers: Sequence[Trigger],
    *,
    rows: Iterable[int] | None = None,
    own_class: bool = True,
    clean: np.ndarray | None = None,
    where: str = "relative",
    seed: int = 0,
    batch_size: int | None = None,
    progress: bool = False,
) -> Attack:
    """Return the victims' predicted classes before and after each trigger.

    It costs (1 + triggers) forward passes a victim, fewer without the own class and with ``clean``.

    Args:
        predict: the model's inputs to one number a class, see :func:`predictor`; the largest is what it predicts.
        rows: which victims; None: all.
        own_class: whether a trigger is also put into victims of the class it pushes to.
        clean: the classes predicted before, int [victim in rows], where they are known.
        where, seed: of :func:`insert`.
        batch_size: texts that go through the model at once; None: as many as suit the machine.

    Raises:
        ValueError: no trigger or no victim, or a trigger that can't be inserted, or one whose class has another number
            here; not one class number a victim in ``clean``, or not one number a class of ``predict``.
    """
    check_asked(predict, victims)
    chosen, triggers = victims.chosen(rows), as_list(triggers)
    if not triggers or not len(chosen):
        raise ValueError(
            f"{len(triggers)} triggers were given for {len(chosen)} victims: at least one of each is needed."
        )
    for trigger in triggers:
        check_class(trigger, victims.labels)
    if clean is not None and (np.shape(clean) != chosen.shape or np.asarray(clean).dtype.kind not in "iu"):
        raise ValueError(
            f"clean has the shape {np.shape(clean)} and type {np.asarray(clean).dtype} for {len(chosen)} victims: give "
            "one class each, by its number."
        )
    gold = victims.gold[chosen]
    asked = [own_class | (gold != trigger.target) for trigger in triggers]
    count = sum(int(which.sum()) for which in asked) + (len(chosen) if clean is None else 0)
    attacked = np.full((len(triggers), len(chosen)), UNASKED)
    with tqdm(total=count, disable=not progress, desc="attack", unit="text") as bar:
        if clean is None:
            clean = untouched(predict, victims, rows=chosen, batch_size=batch_size)
        bar.update(count - sum(int(which.sum()) for which in asked))
        for number, (trigger, which) in enumerate(zip(triggers, asked, strict=True)):
            if which.any():
                inserted = insert(victims, trigger, rows=chosen[which], where=where, seed=seed)
                found = attacked_outputs(predict, inserted, batch_size)
                attacked[number, which] = found.argmax(axis=1)
                bar.update(len(found))
    return Attack(triggers, victims.labels, chosen, gold, np.asarray(clean), attacked, count)


def untouched(
    predict: Predict, victims: Victims, *, rows: Iterable[int] | None = None, batch_size: int | None = None
) -> np.ndarray:
    """Return the classes predicted with no trigger, int [victim]."""
    check_asked(predict, victims)
    return untouched_outputs(predict, victims, victims.chosen(rows), batch_size).argmax(axis=1)


def untouched_outputs(predict: Predict, victims: Victims, rows: np.ndarray, batch_size: int | None) -> np.ndarray:
    """Return what ``predict`` says with no trigger, float [victim, class]."""
    chosen = rows.tolist()
    lengths = [len(victims.encoded.tokens[row]) for row in chosen]

    def batch(which: Sequence[int]) -> dict[str, Tensor]:
        return victims.encoded.batch([chosen[i] for i in which])

    return outputs(predict, batch, lengths, victims, batch_size)


def attacked_outputs(predict: Predict, inserted: Inserted, batch_size: int | None = None) -> np.ndarray:
    """Return what ``predict`` says with the trigger, float [row, class]."""
    lengths = [len(ids) for ids in inserted.inputs["input_ids"]]
    return outputs(predict, inserted.batch, lengths, inserted.victims, batch_size)


def outputs(
    predict: Predict, batch: Callable, lengths: Sequence[int], victims: Victims, batch_size: int | None
) -> np.ndarray:
    """Return what ``predict`` says, float [text, class]; texts of like length share a batch."""
    labels, found = victims.labels, np.empty((len(lengths), len(victims.labels)))
    for which in batches_by_length(lengths, batch_size, on_cpu=victims.encoded.on_cpu):
        output = np.asarray(predict(batch(which)))
        if output.shape != (len(which), len(labels)) or not np.isfinite(output).all():
            raise ValueError(
                f"predict returned {output.shape} for {len(which)} texts and {len(labels)} classes, or numbers that "
                "are not finite: one finite number a text and class is needed."
            )
        found[which] = output
    return found


def halves(victims: Victims, *, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return rows to choose triggers on and rows to report on: every class halved at random, no text in both.

    Pairs on one first text, such as MNLI's three on each premise, stay together, or a trigger would be chosen on the
    very text that it is reported on; where a class has fewer than four first texts (one topic, say), equal pairs do.
    Classes are halved as evenly as that allows.

    Raises:
        ValueError: a class has too few texts for two halves.
    """
    counts, group = _grouped(victims)
    rng = np.random.default_rng(seed)
    for _ in range(ATTEMPTS):
        reports = _dealt(counts, rng.permutation(len(counts)))
        in_both = counts[reports].any(axis=0) & counts[~reports].any(axis=0)
        if (in_both == counts.any(axis=0)).all():
            return np.flatnonzero(~reports[group]), np.flatnonzero(reports[group])
    few = victims.labels[int(np.where(counts.any(0), (counts > 0).sum(0), len(counts) + 1).argmin())]
    raise ValueError(
        f"The class {few!r} has too few different texts to choose triggers on some and to report on others: give more."
    )


def _grouped(victims: Victims) -> tuple[np.ndarray, np.ndarray]:
    """Return how many victims of every class share a text, int [group, class], and each victim's group."""
    lines = victims.lines["input_ids"]
    firsts = [tuple(ids[gaps[0][0] : gaps[0][-1]]) for ids, gaps in zip(lines, victims.spans, strict=True)]
    for keys in (firsts, [tuple(ids) for ids in lines]):
        number: dict[tuple[int, ...], int] = {}
        group = np.array([number.setdefault(key, len(number)) for key in keys])
        counts = np.zeros((len(number), len(victims.labels)), dtype=int)
        np.add.at(counts, (group, victims.gold), 1)
        if ((counts > 0).sum(0)[counts.any(0)] >= LEAST_TEXTS).all():
            break
    return counts, group


def _dealt(counts: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Return which groups go to the second half: dealt one by one, each to where it evens out the classes."""
    ahead, second = np.zeros(counts.shape[1], dtype=int), np.zeros(len(counts), dtype=bool)
    for one in order[np.argsort(-counts[order].sum(axis=1), kind="stable")]:  # large ones first, single ones even out
        second[one] = ahead @ counts[one] <= 0
        ahead += counts[one] if second[one] else -counts[one]
    return second
