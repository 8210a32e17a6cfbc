"""Measure a fine-tuned classifier and describe it: the model card that lies beside an adapter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np


def calibration_error(probabilities: np.ndarray, gold: np.ndarray, *, bins: int = 10) -> float:
    """Expected calibration error: over bins of confidence, the mean of |accuracy - confidence|, by share.

    Args:
        probabilities: [text, class].
        gold: right class of every text.
        bins: equal bins of the confidence, 0 to 1.
    """
    confidence, right = probabilities.max(1), probabilities.argmax(1) == gold
    place = np.minimum((confidence * bins).astype(int), bins - 1)
    gaps = [abs(right[place == b].sum() - confidence[place == b].sum()) for b in range(bins)]
    return float(sum(gaps) / len(gold))


def measures(logits: np.ndarray, gold: np.ndarray) -> dict:
    """Accuracy, cross-entropy, calibration error and confusion counts [gold, predicted]."""
    shifted = logits.astype(np.float64) - logits.max(1, keepdims=True)
    log_probabilities = shifted - np.log(np.exp(shifted).sum(1, keepdims=True))
    probabilities = np.exp(log_probabilities)
    predicted = logits.argmax(1)
    confusion = np.zeros((logits.shape[1], logits.shape[1]), dtype=int)
    np.add.at(confusion, (gold, predicted), 1)
    return {
        "examples": len(gold),
        "accuracy": float((predicted == gold).mean()),
        "loss": float(-log_probabilities[np.arange(len(gold)), gold].mean()),
        "calibration_error": calibration_error(probabilities, gold),
        "confusion": confusion.tolist(),
    }


def _cell(name: str) -> str:
    """A name as it can stand in a Markdown table."""
    return " ".join(name.split()).replace("|", "\\|")


def _row(split: str, m: Mapping) -> str:
    right = sum(m["confusion"][i][i] for i in range(len(m["confusion"])))
    return (
        f"| {_cell(split)} | {m['examples']:,} | **{m['accuracy']:.2%}** ({right} right) | {m['loss']:.3f} "
        f"| {m['calibration_error']:.3f} |"
    )


def _confusion(m: Mapping, labels: Sequence[str]) -> str:
    head = "| gold \\ predicted | " + " | ".join(map(_cell, labels)) + " |\n|---|" + "---:|" * len(labels)
    rows = [
        f"| {_cell(name)} | " + " | ".join(map(str, counts)) + " |"
        for name, counts in zip(labels, m["confusion"], strict=True)
    ]
    return "\n".join([head, *rows])


GLUE_LICENCE = """this adapter comes under the project's licence; the base has its own. The training data were published
  for research under their own terms: no sentence of them is in this file, but whoever wants more than research and
  teaching should read those terms first."""
OWN_LICENCE = "your data and the base have licences of their own, which decide what may be done with this adapter."


def _began(training: Mapping) -> str:
    name = training.get("from_adapter")
    return f"- Trained on from the adapter `{name}`, which gives the rank.\n" if name else ""


def card(training: Mapping) -> str:
    """The model card, in Markdown, of what ``training.json`` records."""
    labels, settings = training["labels"], training["settings"]
    splits = {name: training[name] for name in training.get("measured", ("dev", "test")) if name in training}
    kinds = {"dev": "dev (chosen on)"}
    rows = [_row(kinds.get(name, f"{name} (looked at once)"), found) for name, found in splits.items()]
    looks = "\n".join(f"| {h['step']:,} | {h['accuracy']:.2%} | {h['loss']:.3f} |" for h in training["history"])
    tables = "\n\n".join(
        f"Confusion on {_cell(name)}:\n\n{_confusion(found, labels)}" for name, found in splits.items()
    )
    options = ", ".join(f"{name} {value}" for name, value in settings.items())
    return f"""---
base_model: {training["base"]}
library_name: peft
pipeline_tag: text-classification
---

# {training["name"]}

A LoRA adapter and a classifier for `{training["base"]}` on {training["task"]}; labels in the order of the logits:
{", ".join(f"{i} = {name}" for i, name in enumerate(labels))}.
`helpers.models.load` merges it into a plain classifier; the numbers below are those of that merged float32 model,
made from this very file.

| split | examples | accuracy | cross-entropy | calibration error |
|---|---:|---:|---:|---:|
{chr(10).join(rows)}

Calibration error: expected calibration error over 10 equal bins of confidence.

{tables}

## How it was made

    {training["command"]}

- Data: {training["data"]}. Training examples: {training["train_examples"]:,}.
- Base: frozen; SHA-256 of its `model.safetensors`: `{training["base_sha256"] or "not recorded"}`.
{_began(training)}- {training["trained_parameters"]:,} trained weights; the file has {training["bytes"] / 1e6:.2f} MB
  in float16, SHA-256 `{training["adapter_sha256"]}`.
- Settings: {options}.
- {training["steps"]:,} steps in {training["seconds"] / 60:.0f} minutes on {training["machine"]};
  {training["versions"]}.
  The same seed, versions, processor and number of threads give the same weights; other machines may round otherwise.
- The weights kept are those of step {training["best_step"]:,}, the best of {len(training["history"])} looks at dev:

| step | dev accuracy | dev cross-entropy |
|---:|---:|---:|
{looks}

## Limits

- Chosen on dev, so its dev accuracy is a little flattering; judge by test where it is given.
- It knows the kind of text it was trained on. English only; it has an answer for every text, also for one that
  has no class. It takes over the habits and biases of its base and of its training data.
- Licence: {training.get("licence") or GLUE_LICENCE}
"""
