"""Triggers chosen on one half of the victims and measured on the other (part of :mod:`helpers.triggers`)."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd
from tqdm.auto import tqdm

from helpers._trigger import Trigger, as_list, check_class, keeping, to_dict
from helpers._trigger_attack import UNASKED, Attack, Predict, attack, bounds, check_asked, halves, untouched_outputs
from helpers._trigger_insertion import Victims
from helpers.quadrature import check_steps
from helpers.records import read_json, write_json

logger = logging.getLogger(__name__)

BY = ("victim", "target")


@dataclass(frozen=True, eq=False)
class Contest:
    """Which triggers each method's candidates came down to, and what they did; see :func:`contest`.

    Attributes:
        chosen: for every method and class the triggers chosen, best first; fewer than asked for where there are fewer.
        measured: the same triggers on the report half, as an :class:`Attack` each.
        by: what a class is: "victim", the one attacked, or "target", the one pushed to.
        choosing, reporting: the rows of the two halves.
        passes: forward passes by method, counted in texts, the choice included.
    """

    chosen: dict[str, dict[str, list[Trigger]]]
    measured: dict[str, dict[str, Attack]]
    by: str
    choosing: np.ndarray
    reporting: np.ndarray
    passes: dict[str, int]
    seed: int = field(default=0, repr=False)

    def __repr__(self) -> str:
        counts = (f"{method} {sum(map(len, classes.values()))}" for method, classes in self.chosen.items())
        halved = f"chosen on {len(self.choosing)} victims, measured on {len(self.reporting)}"
        return f"Contest(by {self.by}; triggers: {', '.join(counts)}; {halved}; see summary())"

    @property
    def table(self) -> pd.DataFrame:
        """One row a method, class, rank and class of victims, on the report half; the rest as :meth:`Attack.table`."""
        parts = []
        for method, classes in self.measured.items():
            for name, result in classes.items():
                table = result.table(seed=self.seed)
                parts.append(table.assign(method=method, **{"class": name, "rank": table["number"] + 1}))
        table = pd.concat(parts, ignore_index=True).drop(columns="number")
        first = ["method", "class", "rank"]
        return table[first + [column for column in table.columns if column not in first]]

    def summary(self) -> pd.DataFrame:
        """Return a row a method and class, and one for all classes, over the chosen triggers on the report half.

        Columns: method, class, triggers (how many), before and after (accuracy), drop, and its 95 % interval low and
        high, by bootstrap over the victims with the choice as it is. Every class weighs the same, and is resampled
        within itself; where one has a single victim the interval is nan.
        """
        lines = []
        for method, classes in self.measured.items():
            for name in [*classes, "all"]:
                values, gold, before = self._drops(method, name)
                low, high = bounds(values, self.seed, gold)
                count = sum(len(classes[one].triggers) for one in ([*classes] if name == "all" else [name]))
                about = {"method": method, "class": name, "triggers": count, "before": before}
                drop = float(values.mean())
                lines.append(about | {"after": before - drop, "drop": drop, "low": low, "high": high})
        return pd.DataFrame(lines)

    def against(self, method: str = "attribution") -> pd.DataFrame:
        """Return how much more one method's triggers take than another's, on the same victims.

        Columns: other, class ("all" too), difference (of the drops, 0 to 1), low and high (95 %, paired bootstrap
        as in :meth:`summary`). Only classes for which both have a trigger are compared.
        """
        if method not in self.measured:
            raise ValueError(f"There is no method {method!r}: give one of {', '.join(self.measured)}.")
        lines = []
        for other in self.measured:
            both = [name for name in self.measured[method] if name in self.measured[other]]
            for name in [*both, "all"] if both and other != method else []:
                (one, gold, _), (two, _, _) = (self._drops(which, name, both) for which in (method, other))
                low, high = bounds(one - two, self.seed, gold)
                found = {"difference": float((one - two).mean()), "low": low, "high": high}
                lines.append({"other": other, "class": name, **found})
        return pd.DataFrame(lines, columns=["other", "class", "difference", "low", "high"])

    def _drops(
        self, method: str, name: str, among: Sequence[str] | None = None
    ) -> tuple[np.ndarray, np.ndarray, float]:
        """Return a value a victim whose mean is the mean drop, classes weighing the same; gold; accuracy before."""
        classes = list(among or self.measured[method]) if name == "all" else [name]
        results = [self.measured[method][one] for one in classes]
        number = {row: i for i, row in enumerate(dict.fromkeys(row for r in results for row in r.rows.tolist()))}
        values, gold, before = np.zeros(len(number)), np.zeros(len(number), dtype=int), []
        for result in results:
            lost, weights = np.nanmean(result.lost, axis=0), _weights(result.gold)
            share = len(number) / (len(classes) * len(lost))
            which = [number[row] for row in result.rows.tolist()]
            values[which] += lost * weights * share  # one victim, one value
            gold[which] = result.gold
            before.append(float(((result.clean == result.gold) * weights).mean()))
        return values, gold, float(np.mean(before))


def _weights(gold: np.ndarray) -> np.ndarray:
    """Return a weight a victim, 1 on average, with which every class counts the same."""
    _, which, counts = np.unique(gold, return_inverse=True, return_counts=True)
    return len(gold) / (len(counts) * counts[which])


def contest(
    predict: Predict,
    victims: Victims,
    candidates: Mapping[str, Sequence[Trigger]],
    *,
    top: int = 3,
    screen: int = 64,
    finalists: int = 8,
    by: str = "victim",
    as_ranked: Collection[str] = (),
    where: str = "relative",
    seed: int = 0,
    batch_size: int | None = None,
    folder: str | Path | None = None,
    progress: bool = False,
) -> Contest:
    """Return what the best triggers of each method do to victims that had no part in choosing them.

    The victims are halved, see :func:`halves`. For every class, a method's candidates are put into ``screen`` victims
    of the first half, the ``finalists`` that lower the accuracy most into all of that half, and the ``top`` of these
    are measured on the second. All methods are treated alike: give each as many candidates, of as many tokens.

    Args:
        candidates: triggers by method. Each is tried on victims of other classes than the one it pushes to.
        top: how many are chosen for a class.
        by: what a class is: "victim", the class whose accuracy is to fall, as in the paper's table; or "target", the
            one that predictions are pushed to, over victims of all others, each class weighing the same.
        as_ranked: names of methods whose first ``top`` suitable candidates are measured as they come, with no look at a
            victim.
        where, seed: of :func:`insert`; the seed also halves.
        folder: keep each method's result here, and take it from there when all is the same; so must be what ``predict``
            says of the untouched victims, to the last digit.

    Raises:
        ValueError: a method without a candidate, with a single trigger in place of a list, or with none for any class;
            a trigger whose class has another number here; options out of range, or a file in the place of the folder.
    """
    for name, value in (("top", top), ("screen", screen), ("finalists", finalists)):
        check_steps(value, name)
    if by not in BY:
        raise ValueError(f"by is {by!r}: give one of {', '.join(BY)}.")
    check_asked(predict, victims)
    made = _by_method(candidates)
    ranked_ones = {as_ranked} if isinstance(as_ranked, str) else set(as_ranked)
    if unknown := ranked_ones - set(made):
        raise ValueError(f"as_ranked names {', '.join(map(repr, unknown))}: give some of {', '.join(made)}.")
    for trigger in (one for found in made.values() for one in found):
        check_class(trigger, victims.labels)
    choosing, reporting = halves(victims, seed=seed)
    said = untouched_outputs(predict, victims, victims.chosen(None), batch_size)
    attacks = 1 + 2 * len(victims.labels)  # of a method
    bar = tqdm(total=attacks * len(made), disable=not progress, desc="contest", unit="attack")
    run = _Run(predict, victims, said, by, dict(where=where, seed=seed, batch_size=batch_size), bar)
    sizes = (top, screen, max(finalists, top))
    chosen, measured, passes = {}, {}, {}
    for number, (method, found) in enumerate(made.items(), start=1):
        ranked = method in ranked_ones
        store = _Store(folder, method, run, found, (*sizes, ranked))
        kept = store.read()
        if kept is None:
            halved = (choosing, reporting)
            kept = run.ranked(found, reporting, top) if ranked else run.method(found, *halved, sizes)
            if not kept[0]:
                raise ValueError(f"No candidate of {method!r} suits a class, by {by}: give triggers with a target.")
            store.write(kept)
        measured[method], passes[method] = kept
        chosen[method] = {name: result.triggers for name, result in measured[method].items()}
        bar.update(attacks * number - bar.n)
    bar.close()
    return Contest(chosen, measured, by, choosing, reporting, passes, seed)


def _by_method(candidates: Mapping[str, Sequence[Trigger]]) -> dict[str, list[Trigger]]:
    """Return each method's candidates as a list; refuse what is no dict, and a method without any."""
    if not isinstance(candidates, Mapping):
        raise ValueError(
            f"A {type(candidates).__name__} of candidates was given: give a dict by method, such as "
            "{'attribution': triggers}."
        )
    made = {name: as_list(found) for name, found in candidates.items()}
    if not made or not all(made.values()):
        empty = [name for name, found in made.items() if not found]
        raise ValueError(
            f"There are no candidates{' for ' + ', '.join(empty) if empty else ''}: give each method some."
        )
    return made


Measured = tuple[dict[str, Attack], int]


@dataclass(frozen=True, eq=False)
class _Run:
    """What all methods share."""

    predict: Predict
    victims: Victims
    said: np.ndarray  # of the untouched victims, float [victim, class]
    by: str
    options: dict
    bar: tqdm

    @cached_property
    def clean(self) -> np.ndarray:
        """The classes predicted with no trigger, int [victim]."""
        return self.said.argmax(axis=1)

    def method(self, candidates: list[Trigger], choosing: np.ndarray, reporting: np.ndarray, sizes) -> Measured:
        """Return one method's best triggers for every class, measured on the report half, and the passes."""
        top, screen, finalists = sizes
        gold, passes, measured = self.victims.gold, 0, {}
        few = np.concatenate([choosing[gold[choosing] == label][:screen] for label in range(len(self.victims.labels))])
        first = self._attack(candidates, few)
        passes += first.passes
        for number, name in enumerate(self.victims.labels):
            means = self._means(first, number)
            rows = self._rows(choosing, number)
            all_seen = np.isin(rows, few).all()
            kept = [candidates[i] for i in self._best(means, top if all_seen else finalists)]
            if not kept:
                continue
            if not all_seen:
                second = self._attack(kept, rows)
                passes += second.passes
                kept = [kept[i] for i in self._best(self._means(second, number), top)]
            measured[name] = self._attack(kept, self._rows(reporting, number))
            passes += measured[name].passes
        return measured, passes

    def ranked(self, candidates: list[Trigger], reporting: np.ndarray, top: int) -> Measured:
        """Return one method's first triggers for every class, measured on the report half, and the passes."""
        measured = {}
        for number, name in enumerate(self.victims.labels):
            fit = [one for one in candidates if (one.target != number) == (self.by == "victim")][:top]
            rows = self._rows(reporting, number)
            if fit and len(rows):
                measured[name] = self._attack(fit, rows)
        return measured, sum(result.passes for result in measured.values())

    def _rows(self, rows: np.ndarray, number: int) -> np.ndarray:
        gold = self.victims.gold[rows]
        return rows[gold == number] if self.by == "victim" else rows[gold != number]

    def _attack(self, triggers: list[Trigger], rows: np.ndarray) -> Attack:
        clean = self.clean[rows]
        self.bar.update()
        return attack(
            self.predict, self.victims, triggers, rows=rows, own_class=False, clean=clean, **self.options
        )  # fmt: skip

    def _means(self, result: Attack, number: int) -> np.ndarray:
        """Return each trigger's drop for a class, nan where it was not tried on it."""
        means = np.full(len(result.triggers), np.nan)
        here = result.gold == number if self.by == "victim" else result.gold != number
        for i, trigger in enumerate(result.triggers):
            which = here & (result.attacked[i] != UNASKED)
            if which.any() and (self.by == "victim" or trigger.target == number):
                means[i] = (result.lost[i, which] * _weights(result.gold[which])).mean()
        return means

    @staticmethod
    def _best(means: np.ndarray, count: int) -> list[int]:
        """Return the numbers of the largest, largest first; of equal ones the first, which has the larger score."""
        return [int(i) for i in np.argsort(-means, kind="stable")[:count] if np.isfinite(means[i])]


class _Store:
    """One method's result in a folder, marked by what it was made from."""

    def __init__(self, folder, method: str, run: _Run, candidates: list[Trigger], sizes: tuple[int, ...]) -> None:
        ids = run.victims.encoded.tensors["input_ids"].tolist()
        about = [4, [to_dict(t) for t in candidates], run.by, sizes, run.options, run.said.tolist(), ids]
        about += [run.victims.gold.tolist(), run.victims.limit, run.victims.spans]  # other texts may have the same ids
        self.run, self.candidates = run, candidates
        self.mark = hashlib.sha256(json.dumps(about, sort_keys=True, default=int).encode()).hexdigest()
        kept = keeping(folder)
        self.path = kept / f"contest-{self.mark[:16]}.json" if kept else None
        self.method = method

    def read(self) -> Measured | None:
        """Return what was kept, or None."""
        if self.path is None or not self.path.is_file():
            return None
        content, victims, found = read_json(self.path), self.run.victims, {}
        try:
            if content["fingerprint"] != self.mark:
                raise ValueError("made from something else")
            for name, (numbers, rows, attacked) in content["classes"].items():
                rows, attacked, triggers = np.array(rows), np.array(attacked), [self.candidates[i] for i in numbers]
                if attacked.shape != (len(triggers), len(rows)):
                    raise ValueError("not one class a trigger and victim")
                clean = self.run.clean[rows]
                found[name] = Attack(triggers, victims.labels, rows, victims.gold[rows], clean, attacked, 0)
            if not found:
                raise ValueError("no class")
            return found, int(content["passes"])
        except (AttributeError, KeyError, TypeError, ValueError, IndexError) as error:
            logger.warning("%s is damaged (%r): %s is measured again.", self.path, error, self.method)
            return None

    def write(self, kept: Measured) -> None:
        """Keep a result, whole or not at all."""
        if self.path is not None:
            number = {id(trigger): i for i, trigger in enumerate(self.candidates)}
            classes = {
                name: [[number[id(t)] for t in result.triggers], result.rows.tolist(), result.attacked.tolist()]
                for name, result in kept[0].items()
            }
            write_json(self.path, {"fingerprint": self.mark, "classes": classes, "passes": kept[1]})
