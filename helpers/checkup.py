"""What fits and what doesn't, before a model and texts that nobody here has seen are explained.

frame = read_texts("mine.tsv", first="text", label="label")    # or read_texts(sentences=["...", "..."])
found = examine("path/to/model", frame)
found.table()      # a row a check: what was found, and what to do about it
found.require()    # stops in a sentence where nothing can be explained
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from safetensors import safe_open
from scipy.optimize import linear_sum_assignment

from helpers import data
from helpers._labels import LabelOrderError, match
from helpers.attention import UnsupportedModelError
from helpers.evaluate import Evaluation, evaluate
from helpers.inputs import Text, check_texts, encode
from helpers.models import Classifier, load
from helpers.pruning import class_numbers, shape_of

FINE, NOTE, PROBLEM = "fine", "note", "problem"
FAILS = (ValueError, OSError, KeyError, ImportError, RuntimeError)  # what a folder that doesn't fit may raise
ONE_ANSWER = 0.95  # the share of the answers that one class has where that is worth a note
FORMATS = {"F16": "float16", "BF16": "bfloat16", "F8_E4M3": "float8", "F8_E5M2": "float8"}


class Finding(NamedTuple):
    """What one check found: ``kind`` is "fine", "note" (works, but know this) or "problem" (doesn't work)."""

    about: str
    kind: str
    said: str


@dataclass(frozen=True, eq=False)
class Checked:
    """A model and texts, with what is known about both.

    Attributes:
        name: of the model, as given.
        classifier: the model, its classes named as the table names them; None where nothing can be explained.
        frame: the texts used, in the columns of :func:`helpers.data.read`.
        probabilities: what the model says, [text, class]; raw outputs where it has one output.
        measured: how well it does; None where the texts have no labels, or none that fit.
        labelled: whether every text's ``label`` is one of the model's classes, so that right and wrong are known.
        findings: what was checked, in order.
    """

    name: str
    classifier: Classifier | None
    frame: pd.DataFrame
    probabilities: np.ndarray
    measured: Evaluation | None
    labelled: bool
    findings: tuple[Finding, ...]

    @property
    def texts(self) -> list[Text]:
        """The texts as ``attribute`` takes them."""
        return [*data.texts(self.frame)]

    def table(self) -> pd.DataFrame:
        """Return the findings, a row each: check, verdict, what was found."""
        return pd.DataFrame(self.findings, columns=["check", "verdict", "what was found"])

    def require(self) -> Classifier:
        """Return the classifier.

        Raises:
            ValueError: nothing can be explained; the message says why, and what to do.
        """
        if self.classifier is None:
            raise ValueError(next(found.said for found in self.findings if found.kind == PROBLEM))
        return self.classifier

    def without_labels(self) -> str:
        """Return why what needs labels is left out, or "" where nothing is."""
        if self.labelled:
            return ""
        found = [f.said for f in self.findings if f.about in ("outputs", "labels") and f.kind != FINE]
        return found[-1] if found else "The texts have no labels."


def read_texts(
    path: str = "", *, first: str = "text", second: str = "", label: str = "", sentences: Sequence = ()
) -> pd.DataFrame:
    """Return a table of texts, from a file or as typed.

    Args:
        path: a tab-separated file with a header; a relative path is looked for from the working directory, then from
            the project's root.
        first, second, label: names of its columns; "" for what it doesn't have.
        sentences: texts, or (first, second) pairs, instead of a file.

    Raises:
        ValueError: neither or both are given; or the table is not as it should be, see :func:`helpers.data.read`.
        FileNotFoundError: there is no such file; the message names the places looked in.
    """
    if bool(path) == bool(len(sentences)):
        raise ValueError("Give either a table or sentences: the path of a .tsv file, or a list of texts.")
    if path:
        return data.read(path, first=first, second=second or None, label=label or None)
    batch = check_texts([tuple(text) if isinstance(text, list) else text for text in sentences])
    pairs = [(text, "") if isinstance(text, str) else text for text in batch]
    frame = pd.DataFrame(pairs, columns=["first", "second"])
    return frame.assign(label="", label_id=-1, split="typed", phenomenon="", pair="")


def examine(
    model: str,
    frame: pd.DataFrame,
    *,
    labels: str | Sequence[str] | Mapping[str, str] = "",
    rows: int | None = 1000,
    seed: int = 0,
    device: str = "auto",
) -> Checked:
    """Return a model and texts with what was found about them: family, format, outputs, lengths, labels, accuracy.

    What can't work is a finding, not an error. Where the labels don't fit, what needs none still works.

    Args:
        model: as :func:`helpers.models.load` takes it: a name, a folder or a hub id.
        frame: as :func:`read_texts` returns it.
        labels: what the classes are called in the table, where the model says otherwise: "negative, positive", all in
            the order of the logits, or "LABEL_0=negative, LABEL_1=positive", those that differ; or as
            :func:`helpers.evaluate.evaluate` takes it.
        rows: use at most so many of the texts, each label in its share; None for all.
        seed: of that sample.
    """
    sample = data.sample(frame, rows, seed=seed)
    nothing = Checked(str(model), None, sample, np.zeros((0, 0)), None, False, ())
    try:
        classifier = load(model, device=device)
    except FAILS as error:
        return replace(nothing, findings=(Finding("model", PROBLEM, _one_line(error)),))
    texts: list[Text] = [*data.texts(sample)]
    findings = [_about(classifier), *_format(classifier)]
    try:
        findings.append(_reached(classifier, texts))
        probabilities, lengths = _asked(classifier, texts)
    except (UnsupportedModelError, *FAILS) as error:
        about = "attention" if isinstance(error, UnsupportedModelError) else "texts"
        return replace(nothing, findings=(*findings, Finding(about, PROBLEM, _one_line(error))))
    findings += [lengths, *_outputs(classifier, probabilities)]
    found = replace(nothing, classifier=classifier, probabilities=probabilities, findings=tuple(findings))
    if (sample["label"] == "").all():
        return _with(found, Finding("labels", NOTE, "The texts have no labels: what needs them is left out."))
    if any(f.about == "outputs" and f.kind == NOTE for f in findings):
        return found
    return _measure(found, _stated(labels))


def _with(found: Checked, *more: Finding, **changes) -> Checked:
    return replace(found, findings=(*found.findings, *more), **changes)


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def _about(classifier: Classifier) -> Finding:
    size = sum(weight.numel() for weight in classifier.model.parameters())
    said = f"{type(classifier.model).__name__}, {size / 1e6:,.1f} million weights, on {classifier.device}."
    return Finding("model", FINE, said)


def _format(classifier: Classifier) -> list[Finding]:
    """Say where the file holds numbers in half precision: they are computed with in float32 here."""
    files = sorted(Path(classifier.model.name_or_path).glob("*.safetensors"))
    stored = set()
    for path in files:
        with safe_open(path, "numpy") as file:
            stored |= {file.get_slice(name).get_dtype() for name in file.keys()}  # noqa: SIM118
    halves = sorted({FORMATS[name] for name in stored & set(FORMATS)})
    said = (
        f"The file holds {' and '.join(halves)}; here it runs in float32, so that sums are exact. Where the model is "
        "used in half precision, answers close to call may differ."
    )
    return [Finding("number format", NOTE, said)] if halves else []


def _reached(classifier: Classifier, texts: list[Text]) -> Finding:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of long texts: said below, for all of them
        layers, heads = shape_of(classifier.model, encode(classifier.model, classifier.tokenizer, texts[:1]))
    return Finding("attention", FINE, f"{layers} layers of {heads} heads can be read and changed.")


def _asked(classifier: Classifier, texts: list[Text]) -> tuple[np.ndarray, Finding]:
    """Ask the model about all texts; return what it says, and what there is to say about their lengths."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        said = classifier.predict(texts)
    cut = [str(w.message) for w in caught if "longer than" in str(w.message)]
    if cut:
        return said, Finding(
            "texts", NOTE, f"{' '.join(cut)} Shorten them, or read what follows as of their beginning."
        )
    return said, Finding("texts", FINE, f"{len(texts):,} texts, none longer than the model can read.")


def _outputs(classifier: Classifier, probabilities: np.ndarray) -> list[Finding]:
    model, names = classifier.model, ", ".join(classifier.labels)
    if model.config.num_labels == 1:
        said = "One output, a score (regression): the raw output is explained. Accuracy and triggers need classes."
        return [Finding("outputs", NOTE, said)]
    try:
        class_numbers(model, [0], 1)
    except ValueError:
        said = f"Every class has a yes or no of its own ({names}): each probability can be explained; accuracy and "
        return [Finding("outputs", NOTE, said + "triggers need a model that chooses one class of several.")]
    counts = np.bincount(probabilities.argmax(1), minlength=len(classifier.labels))
    most = int(counts.argmax())
    if len(probabilities) > 9 and counts[most] >= ONE_ANSWER * len(probabilities):
        said = f"It says {classifier.labels[most]!r} for {counts[most]} of {len(probabilities)} texts. Is it trained, "
        return [Finding("answers", NOTE, said + "and are these texts of the kind that it was made for?")]
    return [Finding("outputs", FINE, f"It chooses one of {len(classifier.labels)} classes: {names}.")]


# ---- labels ----------------------------------------------------------------------------------------------------------


def _stated(labels) -> Sequence[str] | Mapping[str, str] | None:
    """Return labels as ``evaluate`` takes them; a text is split at commas, and at = where every part has one."""
    if not isinstance(labels, str):
        return labels or None
    parts = [part.strip() for part in labels.split(",") if part.strip()]
    if parts and all("=" in part for part in parts):
        return dict([side.strip() for side in part.split("=", 1)] for part in parts)
    return parts or None


@dataclass(frozen=True)
class _Known:
    """What a model has said already, as ``evaluate`` takes it."""

    name: str
    labels: Sequence[str]
    probabilities: np.ndarray

    def predict(self, texts: Sequence, *, batch_size: int | None = None) -> np.ndarray:
        return self.probabilities


def _measure(found: Checked, labels) -> Checked:
    """Add the accuracy, and name the model's classes as the table does; or say why the labels don't fit."""
    classifier = found.require()
    names = _names(classifier.labels, labels)
    frame, notes = _numbered(found.frame, names)
    labels = names if notes else labels
    known = _Known(found.name, classifier.labels, found.probabilities)
    try:
        classes, column = match(classifier.labels, frame, labels)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            measured = evaluate(known, frame, labels=labels)
    except LabelOrderError as error:
        said = f"{_one_line(error)} In the notebook: labels = {', '.join(error.labels)!r}."
        return _with(found, *notes, Finding("labels", PROBLEM, said))
    except ValueError as error:
        return _with(found, *notes, Finding("labels", PROBLEM, _one_line(error) + _suggested(found)))
    notes += [Finding("labels", NOTE, str(w.message)) for w in caught]
    names = [classes[i] for i in column]
    (low, high), most = measured.interval, frame["label"].value_counts(normalize=True)
    said = f"{measured.right:,} of {measured.examples:,} right, {measured.accuracy:.1%} (95 % interval {low:.1%} to "
    said += f"{high:.1%}); always saying {most.index[0]!r} would get {most.iloc[0]:.1%}."
    notes.append(Finding("accuracy", FINE if low > most.iloc[0] else NOTE, said))
    if len(set(names)) < len(names):
        said = f"Classes were merged ({', '.join(names)}), so what needs one label a class of the model is left out."
        return _with(found, *notes, Finding("labels", NOTE, said), frame=frame, measured=measured)
    named = f"The table's labels are the model's classes, in its order: {', '.join(names)}."
    renamed = _renamed(classifier, names)
    return _with(
        found, *notes, Finding("labels", FINE, named), classifier=renamed, frame=frame, measured=measured, labelled=True
    )


def _names(own: Sequence[str], labels: Sequence[str] | Mapping[str, str] | None) -> list[str]:
    """Return the names of the classes, the model's own or those stated; ``match`` refuses what doesn't fit."""
    if isinstance(labels, Mapping):
        return [labels.get(name, name) for name in own]
    return list(own) if labels is None or len(labels) != len(own) else list(labels)


def _numbered(frame: pd.DataFrame, own: Sequence[str]) -> tuple[pd.DataFrame, list[Finding]]:
    """Take numbers in the table for the model's class numbers, where it has so many classes and other names."""
    given = set(frame["label"])
    if given <= set(own) or not given <= {str(i) for i in range(len(own))}:
        return frame, []
    number = frame["label"].astype(int)
    said = "The table's labels are numbers, taken for the model's: " + ", ".join(
        f"{i} is {n}" for i, n in enumerate(own)
    )
    frame = frame.assign(label=np.take(own, number), label_id=number)
    return frame, [
        Finding(
            "labels", NOTE, f"{said}. The accuracy shows whether that order is right, but not whether the names are."
        )
    ]


def _suggested(found: Checked) -> str:
    """Say which naming of the classes would fit the answers best, where the table has no more labels than the model."""
    own = list(found.require().labels)
    gold = sorted(set(found.frame["label"]))
    if len(gold) > len(own):
        return ""
    numbers = found.frame["label"].map(gold.index)
    counts = np.zeros((len(gold), len(own)))
    np.add.at(counts, (numbers.to_numpy(), found.probabilities.argmax(1)), 1)
    fits = dict(zip(*linear_sum_assignment(counts.T, maximize=True), strict=True))
    names = [gold[fits[i]] if i in fits else name for i, name in enumerate(own)]
    right = int(sum(counts[label, i] for i, label in fits.items()))
    return (
        f" The answers themselves fit labels = {', '.join(names)!r} best, with {right} of {len(numbers)} right: ask "
        "whoever made the model whether that is what its classes mean."
    )


def _renamed(classifier: Classifier, names: Sequence[str]) -> Classifier:
    """Return the classifier with other names for its classes; its model's config says the same."""
    classifier.model.config.id2label = dict(enumerate(names))
    classifier.model.config.label2id = {name: i for i, name in enumerate(names)}
    return replace(classifier, labels=tuple(names))
