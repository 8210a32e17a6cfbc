"""How good a classifier is on labelled texts, and whether its labels are in the order that one thinks (section 4.1).

Everything is compared by the labels' names, never by their numbers: a model may order its logits as it likes.
``evaluate`` takes anything with ``predict`` and ``labels``, such as :class:`helpers.models.Classifier`, and a
table as :func:`helpers.data.load` or :func:`helpers.data.read` returns it.

    python -m helpers.evaluate --glue FOLDER    # the four tasks: GLUE dev, bundled dev and published, as one table
"""

from __future__ import annotations

import argparse
import html
import logging
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pandas as pd
from scipy.stats import binomtest
from tqdm.auto import tqdm

from helpers import data
from helpers._card import measures
from helpers._labels import LabelOrderError, check_order, check_table, match, plain

__all__ = ["Evaluation", "LabelOrderError", "check_labels", "evaluate", "markdown", "table", "wilson"]

PUBLISHED = {"sst2": 0.9232, "mnli": 0.8391, "mnli mismatched": 0.8410, "rte": 0.6570, "mrpc": 0.8407}
"""Accuracy on GLUE dev of bert-base-cased fine-tuned in full, one seed, at most 128 tokens: :data:`SOURCE`."""
SOURCE = "github.com/huggingface/transformers, examples/pytorch/text-classification/README.md"
# Devlin et al. (2019, table 1) report BERT-base on GLUE's hidden test sets, MRPC as F1: not comparable with dev.

ROUNDING = 1e-2  # how far probabilities may be from adding up to 1: half precision is as coarse

_TABLE = {"sst2": ("sst2", "dev"), "mnli": ("mnli", "dev"), "mnli mismatched": ("mnli", "dev_mismatched"),
          "rte": ("rte", "dev"), "mrpc": ("mrpc", "dev")}  # fmt: skip


class Predictor(Protocol):
    """What can be measured: ``labels``, names in the order of the logits, and ``predict``."""

    @property
    def labels(self) -> Sequence[str]: ...  # noqa: D102

    def predict(self, texts: Any, *, batch_size: int | None = None) -> np.ndarray: ...  # noqa: D102


@dataclass(frozen=True, eq=False, repr=False)
class Evaluation:
    """A classifier measured on a table of labelled texts.

    Attributes:
        name: of the classifier.
        examples: how many texts.
        right: how many of them got the class that the table states.
        accuracy: ``right / examples``.
        interval: of the accuracy, 95 %, after Wilson.
        cross_entropy: mean of -ln of the probability of the right class.
        calibration_error: expected calibration error, 10 bins.
        confusion: counts; rows are the gold label, columns the predicted one, both by name.
        labels: by gold label: examples, right, accuracy, low, high (of the interval).
        phenomena: the same by phenomenon, hardest first; empty where the table states none.
        rows: a row a text, with the index of the table: gold, predicted, probability of the predicted class, right.
    """

    name: str
    examples: int
    right: int
    accuracy: float
    interval: tuple[float, float]
    cross_entropy: float
    calibration_error: float
    confusion: pd.DataFrame
    labels: pd.DataFrame
    phenomena: pd.DataFrame
    rows: pd.DataFrame

    def __repr__(self) -> str:
        low, high = self.interval
        return (
            f"Evaluation({self.name}: {self.right:,} of {self.examples:,} right, {self.accuracy:.1%}, 95 % interval "
            f"{low:.1%} to {high:.1%}; cross-entropy {self.cross_entropy:.3f}, "
            f"calibration error {self.calibration_error:.3f})"
        )

    def __str__(self) -> str:
        tables = [self.confusion.to_string()] + ([self._shown().to_string()] if len(self.phenomena) else [])
        return "\n\n".join([repr(self), *tables])

    def _repr_html_(self) -> str:
        tables = [self.confusion.to_html()] + ([self._shown().to_html()] if len(self.phenomena) else [])
        return f"<p>{html.escape(repr(self))}</p>" + "".join(tables)

    def _shown(self) -> pd.DataFrame:
        return self.phenomena.assign(**{c: self.phenomena[c].map("{:.0%}".format) for c in ("accuracy", "low", "high")})


def evaluate(
    classifier: Predictor,
    frame: pd.DataFrame,
    *,
    labels: Sequence[str] | Mapping[str, str] | None = None,
    batch_size: int | None = None,
    check: bool = True,
    progress: bool = False,
) -> Evaluation:
    """Measure a classifier on labelled texts; label names are matched whatever their order, case, "-" and "_".

    Args:
        classifier: has ``predict`` (probabilities [text, class]) and ``labels``.
        frame: a table with the columns first, second, label and label_id.
        labels: what the classes are called in the table, where the model says otherwise: all names in the order
            of the logits, or ``{name in the model: name in the table}`` for those that differ. Classes that get
            the same name are merged, their probabilities added.
        batch_size: texts a forward pass; None: as many as suit the machine.
        check: raise an error where the accuracy is under 1/classes by more than chance explains (p < 0.01, exact
            binomial test), or where another order of the names would be right in 15 % more of the texts, as when
            two of three are swapped (p < 0.01, sign test). So 3 right of 8 pass, with a warning that this is
            under 1/2, and 0 of 8 do not. Say False for texts made to fool the model.
        progress: show a progress bar on stderr.

    Raises:
        ValueError: the table has no rows, columns or labels, or names that the model does not have; or what the
            model returns are no probabilities.
        LabelOrderError: see ``check``; it shows the order of the labels that fits best.

    Example:
        >>> evaluate(load("minilm-sst2"), data.load("sst2")).confusion.columns.tolist()
        ['negative', 'positive']
    """
    check_table(frame)
    classes, column = match(classifier.labels, frame, labels)
    found = _predict(classifier, data.texts(frame), batch_size, progress)
    _check_output(found, len(frame), list(classifier.labels))
    probabilities = np.zeros((len(found), len(classes)))
    np.add.at(probabilities.T, column, found.T)
    gold = np.array([classes.index(name) for name in frame["label"]])
    m = measures(np.log(np.maximum(probabilities, np.finfo(np.float32).tiny)), gold)
    if check:
        check_order(np.array(m["confusion"]), classes, column)
    rows = pd.DataFrame({"gold": frame["label"], "predicted": np.take(classes, probabilities.argmax(1))})
    rows = rows.assign(probability=probabilities.max(1), right=rows["gold"] == rows["predicted"])
    names, right = [pd.Index(classes, name=side) for side in ("gold", "predicted")], int(rows["right"].sum())
    phenomenon = frame["phenomenon"] if "phenomenon" in frame else pd.Series("", index=frame.index, name="phenomenon")
    return Evaluation(
        name=str(getattr(classifier, "name", type(classifier).__name__)),
        examples=len(rows),
        right=right,
        accuracy=m["accuracy"],
        interval=wilson(right, len(rows)),
        cross_entropy=m["loss"],
        calibration_error=m["calibration_error"],
        confusion=pd.DataFrame(m["confusion"], *names),
        labels=_by(rows["gold"], rows).reindex([c for c in classes if c in set(frame["label"])]),
        phenomena=_by(phenomenon[phenomenon != ""], rows).sort_values(["accuracy", "phenomenon"]),
        rows=rows,
    )


def check_labels(
    classifier: Predictor,
    frame: pd.DataFrame,
    *,
    labels: Sequence[str] | Mapping[str, str] | None = None,
    limit: int = 200,
    seed: int = 0,
) -> Evaluation:
    """Make sure on a sample, before long work, that a model's label names fit the table and its answers.

    Args:
        classifier: see :func:`evaluate`.
        frame: labelled texts; a sample of at most ``limit`` is used, each label in its share.
        labels: see :func:`evaluate`.
        limit: size of the sample; 200 are enough for any usual model, under 20 rarely show anything.
        seed: of the sample.

    Returns:
        The measurement on the sample.

    Raises:
        ValueError: see :func:`evaluate`; :class:`LabelOrderError` where the order is wrong.
    """
    check_table(frame)
    match(classifier.labels, frame, labels)  # names that the sample may happen to lack
    return evaluate(classifier, data.sample(frame, limit, seed=seed), labels=labels)


def wilson(right: int, examples: int) -> tuple[float, float]:
    """Return Wilson's 95 % interval of a share, (low, high)."""
    interval = binomtest(right, examples).proportion_ci(method="wilson")
    return float(interval.low), float(interval.high)


def _predict(classifier: Predictor, texts: Sequence, batch_size: int | None, progress: bool) -> np.ndarray:
    options = {} if batch_size is None else {"batch_size": batch_size}
    chunk = 16 * (batch_size or 32) if progress else len(texts)  # in one piece, texts of like length meet more often
    name = str(getattr(classifier, "name", "texts"))
    with tqdm(total=len(texts), disable=not progress, desc=name, unit="text", file=sys.stderr, leave=False) as bar:
        found = []
        for start in range(0, len(texts), chunk):
            found.append(np.asarray(classifier.predict(texts[start : start + chunk], **options)))
            bar.update(len(found[-1]))
    return np.concatenate(found)


def _check_output(found: np.ndarray, examples: int, labels: list[str]) -> None:
    """Refuse what are no probabilities [text, class] of which each text's add up to 1."""
    if found.ndim != 2 or found.shape[1] != len(labels):
        raise ValueError(
            f"The model has {len(labels)} labels, {labels}, and its outputs have shape {list(found.shape)}: it takes "
            "one for each label."
        )
    if len(found) != examples:
        raise ValueError(f"The model was asked about {examples} texts, and predict returned {len(found)} rows.")
    bad = ~np.isfinite(found).all(axis=1)
    if bad.any():
        raise ValueError(
            f"The model's outputs for {bad.sum()} of {examples} texts are not finite, the first {found[bad][0]}: look "
            "for NaN in its weights, or for a number format that is too small."
        )
    off = (found < -ROUNDING).any(axis=1) | (np.abs(found.sum(axis=1) - 1) > ROUNDING)
    if off.any():
        raise ValueError(
            f"The model's outputs for {off.sum()} of {examples} texts are no probabilities that add up to 1, the first "
            f"{found[off][0]}. Logits need a softmax first (scipy.special.softmax(logits, axis=1)); a model that gives "
            "a score, or several labels at once, can't be measured by one label a text."
        )


def _by(groups: pd.Series, rows: pd.DataFrame) -> pd.DataFrame:
    """Examples, right, accuracy and its interval in each group."""
    table = rows.loc[groups.index, "right"].groupby(groups).agg(examples="size", right="sum")
    bounds = [wilson(int(r), int(n)) for r, n in zip(table["right"], table["examples"], strict=True)]
    low, high = zip(*bounds, strict=True) if bounds else ((), ())
    return table.assign(accuracy=table["right"] / table["examples"], low=low, high=high)


# ---- the table of the four tasks -------------------------------------------------------------------------------------


def table(
    models: Sequence[str], *, glue: str | None = None, limit: int | None = None, progress: bool = True
) -> list[dict]:
    """Measure models on GLUE dev and on the bundled dev sentences of their tasks; what is missing is noted.

    Args:
        models: names as :func:`helpers.models.load` takes them.
        glue: a folder with GLUE's files, or ``"hub"``; None leaves GLUE out.
        limit: at most so many examples of each set.
        progress: show a progress bar on stderr.

    Returns:
        A dict a row: task, model, glue and bundled (None, or what was measured), published, notes.
    """
    rows = []
    for name in models:
        classifier, task, note = _open(name)
        measured = [row for row, (of, _) in _TABLE.items() if of == task] if classifier else []
        rows += [_row(classifier, row, glue, limit, progress) for row in measured]
        if not measured:
            nothing = {"glue": None, "bundled": None, "published": PUBLISHED.get(task), "notes": [note]}
            rows.append({"task": task or "?", "model": name, **nothing})
    return rows


def _open(name: str) -> tuple[Any, str, str]:
    """The classifier, None where it cannot be had; its task, "" where none fits; and what to say where either fails."""
    from helpers.models import load
    from helpers.registry import REGISTRY

    try:
        classifier = load(name)
    except (ValueError, OSError, RuntimeError, KeyError) as error:
        return None, (REGISTRY[name].task or "") if name in REGISTRY else "", str(error)
    own = {plain(label) for label in classifier.labels}
    task = next((t.name for t in data.TASKS.values() if {plain(label) for label in t.labels} == own), "")
    tasks = ", ".join(f"{t.name} {list(t.labels)}" for t in data.TASKS.values())
    return classifier, task, f"the labels of {name}, {list(classifier.labels)}, are those of no task here: {tasks}."


def _row(classifier, row: str, glue: str | None, limit: int | None, progress: bool) -> dict:
    task, split = _TABLE[row]
    found = {"task": row, "model": classifier.name, "glue": None, "bundled": None, "published": PUBLISHED[row]}
    notes = []
    for column, source in (("glue", glue), ("bundled", "bundled" if split == "dev" else None)):
        if source is None:
            continue
        try:
            done = evaluate(classifier, data.load(task, source, split=split, limit=limit), progress=progress)
        except (ValueError, OSError) as error:
            notes.append(f"{column} dev: {error}")
            continue
        kept = ("examples", "right", "accuracy", "interval", "cross_entropy", "calibration_error")
        found[column] = {name: getattr(done, name) for name in kept} | {
            "confusion": done.confusion.to_dict("index"), "phenomena": done.phenomena["accuracy"].to_dict()
        }  # fmt: skip
    return found | {"notes": notes}


def markdown(rows: Sequence[Mapping]) -> str:
    """Return the rows of :func:`table` as a Markdown table with its notes below."""

    def cell(m: Mapping | None) -> str:
        if m is None:
            return "–"
        low, high = m["interval"]
        return f"{m['accuracy']:.1%} ({low:.1%} to {high:.1%}; n {m['examples']:,})"

    lines = ["| task | model | GLUE dev | bundled dev | BERT-base published |", "|---|---|---|---|---|"]
    for row in rows:
        published = f"{row['published']:.1%}" if row["published"] else "–"
        lines.append(f"| {row['task']} | {row['model']} | {cell(row['glue'])} | {cell(row['bundled'])} | {published} |")
    lines += ["", "In parentheses: 95 % interval (Wilson) and number of examples. Published: accuracy on GLUE dev of "
              f"bert-base-cased fine-tuned in full, one seed ({SOURCE})."]  # fmt: skip
    notes = [f"- {row['task']}: {' '.join(note.split())}" for row in rows for note in row["notes"]]
    return "\n".join(lines + (["", "Not measured:", "", *notes] if notes else []))


def main(arguments: Sequence[str] | None = None) -> list[dict]:
    """Print the table from the command line; see ``python -m helpers.evaluate --help``."""
    from helpers.records import write_json

    parser = argparse.ArgumentParser(prog="python -m helpers.evaluate", description=__doc__.splitlines()[0])
    parser.add_argument("--glue", help="folder with GLUE's files, or 'hub' (default: the bundled sentences alone)")
    parser.add_argument(
        "--models", nargs="+", help="registry names, folders or hub ids (default: minilm-TASK for each task)"
    )
    parser.add_argument("--limit", type=int, help="at most so many examples of each set, for a first look")
    parser.add_argument("--json", type=Path, help="file for the figures, with confusion counts and phenomena")
    given = parser.parse_args(arguments)
    if given.limit is not None and given.limit < 1:
        raise ValueError(f"--limit is {given.limit}: give a whole number of at least 1.")
    if given.json and given.json.is_dir():
        raise ValueError(f"--json is {str(given.json)!r}, which is a folder: give a file.")
    if given.glue not in (None, "hub") and not any(
        (root / Path(given.glue).expanduser()).is_dir() for root in (Path(), data.PROJECT)
    ):
        raise ValueError(f"--glue is {given.glue!r}, and there is no such folder.")
    names = given.models or [f"minilm-{task}" for task in data.TASKS]
    rows = table(names, glue=given.glue, limit=given.limit)
    sys.stdout.write(markdown(rows) + "\n")
    if given.json:
        write_json(given.json, rows)
    return rows


if __name__ == "__main__":
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    try:
        done = main()
    except (ValueError, OSError) as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        sys.exit("stopped")
    sys.exit(0 if any(row["glue"] or row["bundled"] for row in done) else "error: nothing could be measured")
