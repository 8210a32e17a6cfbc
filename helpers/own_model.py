"""What can be asked of a model and a table that nobody here has seen: examples, heads, triggers.

All start from :func:`helpers.checkup.examine`. What is chosen (an order of heads, a trigger) is chosen on one half of
the texts and reported on the other.

    found = examine("path/to/model", read_texts("mine.tsv", first="text", label="label"))
    study_heads(found).curves["attribution"].removable(0.02)
    search_triggers(found).summary()
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
import pandas as pd

from helpers import data, pruning, triggers
from helpers.checkup import Checked
from helpers.learning import check as check_table

SHARES = (0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1)
LEAST = 6  # texts of every class: three to choose a trigger on, three to report on


def pick(found: Checked, count: int, *, seed: int = 0) -> pd.DataFrame:
    """Return rows to explain: half of them wrong, the surest first, the others right; where that isn't known, any.

    The index is that of ``found.frame``, so that ``found.probabilities[rows.index]`` is what the model says.
    """
    numbered = found.frame.reset_index(drop=True)
    if found.measured is None:
        return data.sample(numbered.assign(row=numbered.index), count, seed=seed).set_index("row")
    rows = found.measured.rows.set_axis(numbered.index)
    wrong = rows[~rows["right"]].sort_values("probability", ascending=False, kind="stable").index
    right = rows.index[rows["right"]]
    right = np.random.default_rng(seed).permutation(right)
    few = min(len(wrong), max(count // 2, count - len(right)))
    chosen = [*wrong[:few], *right[: count - few]]
    return numbered.loc[chosen].assign(right=rows.loc[chosen, "right"])


@dataclass(frozen=True, eq=False)
class Heads:
    """Which heads matter on one half of the texts, and what the other half says without them.

    Attributes:
        importances: score -> [layer, head], on the first half.
        curves: score -> curve on the other half, the least important heads off first.
        measure: what the curves count: "accuracy", or "answers kept" where there are no labels.
        chosen_on, reported_on: how many texts.
    """

    importances: dict[str, np.ndarray]
    curves: dict[str, pruning.Curve]
    measure: str
    chosen_on: int
    reported_on: int


def why_no_curve(found: Checked) -> str:
    """Return why there can be no curve of heads switched off, or "" where there can."""
    if len(found.frame) < 4:
        return f"{len(found.frame)} texts were given, and half of them are needed to choose on: give at least 4."
    try:
        pruning.class_numbers(found.require().model, [0], 1)
    except ValueError as error:
        return str(error)
    return ""


def study_heads(found: Checked, *, rows: int = 120, steps: int = 4, seed: int = 0, progress: bool = False) -> Heads:
    """Return the importance of every head on half of the texts, and the curve of the other half as heads are cut.

    Importance is by attribution for the predicted class, which asks nothing of the labels, by attention, and drawn by
    lot. Without labels the curve counts the answers that stay as they were.

    Args:
        rows: at most so many texts, both halves together.
        steps: Gauss points of the path.

    Raises:
        ValueError: there can be none, see :func:`why_no_curve`.
    """
    classifier, some = found.require(), _sampled(found, rows, seed)
    if reason := why_no_curve(found):
        raise ValueError(reason)
    texts, parts = list(data.texts(some)), np.random.default_rng(seed).permutation(len(some))
    first, second = ([texts[i] for i in half] for half in np.array_split(parts, 2))
    said = found.probabilities[some.index].argmax(axis=1)
    gold = some["label"].tolist() if found.labelled else said.tolist()
    attribution, attention = pruning.by_attribution(
        classifier.model, classifier.tokenizer, first, steps=steps, rule="gauss", progress=progress
    )
    lot = pruning.at_random(attribution.heads.shape, seed=seed)
    scores = {"attribution": attribution.heads, "attention": attention.heads, "random": lot.heads}
    counts = pruning.counts_of(SHARES, attribution.heads.size)
    gates = {name: pruning.gates_overall(heads, counts) for name, heads in scores.items()}
    right = [gold[i] for i in np.array_split(parts, 2)[1]]
    curves = pruning.curves(classifier.model, classifier.tokenizer, second, right, gates, progress=progress)
    measure = "accuracy" if found.labelled else "answers kept"
    return Heads(scores, curves, measure, len(first), len(second))


def why_no_triggers(found: Checked) -> str:
    """Return why there can be no search for triggers, or "" where there can."""
    if missing := found.without_labels():
        return missing
    if not found.require().tokenizer.is_fast:
        return "This tokenizer does not tell words from pieces, so no word can be put into a text: load a fast one."
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of quotes: not about triggers
            check_table(found.frame.drop_duplicates(["first", "second", "label"]), least=LEAST)
    except ValueError as error:
        return str(error)
    return ""


def search_triggers(
    found: Checked, *, rows: int = 120, searched: int = 40, pool: int = 8, top: int = 2, seed: int = 0, **options
) -> triggers.Contest:
    """Return what a small search for triggers finds, beside words by lot and words typical of a class.

    Of the texts, half are for finding and choosing, in equal classes, and the other half for reporting. A model that
    gives way to so few texts gives way; one that doesn't may still give way to more.

    Args:
        rows: at most so many texts, both halves together.
        searched: of the choosing half, at most so many are explained to find triggers in.
        pool: candidates of each method for a class.
        top: triggers reported for a class.
        options: of :func:`helpers.triggers.extract`.

    Raises:
        ValueError: there can be none, see :func:`why_no_triggers`; or no link joins a word.
    """
    if reason := why_no_triggers(found):
        raise ValueError(reason)
    classifier, some = found.require(), _sampled(found, rows, seed).reset_index(drop=True)
    model, tokenizer = classifier.model, classifier.tokenizer
    victims = triggers.prepare(model, tokenizer, data.texts(some), some["label"].tolist())
    choosing, _ = triggers.halves(victims, seed=seed)  # as the contest halves them
    half = some.loc[choosing].reset_index(drop=True)
    few = data.sample(half, searched, seed=seed)
    extracted = triggers.extract(
        model, tokenizer, data.texts(few), few["label"].tolist(), **{"steps": 4, "rule": "gauss", **options}
    )
    unique = triggers.unique(extracted.triggers)
    best = [one for n in range(len(victims.labels)) for one in [t for t in unique if t.target == n][:pool]]
    texts, gold = data.texts(half), victims.gold[choosing]
    words = triggers.whole_words(tokenizer, texts=texts)
    candidates = {
        "attribution": best,
        "random words": triggers.at_random(tokenizer, best, seed=seed, words=words),
        "typical words": triggers.by_frequency(tokenizer, texts, gold, best),
    }
    return triggers.contest(triggers.predictor(model), victims, candidates, top=top, seed=seed)


def _sampled(found: Checked, rows: int, seed: int) -> pd.DataFrame:
    """Return some of the texts; the index is the row of ``found.probabilities``."""
    numbered = found.frame.reset_index(drop=True)
    return data.sample(numbered.assign(row=numbered.index), rows, seed=seed).set_index("row")
