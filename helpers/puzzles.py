"""Tiny tasks whose answer is known to rest on certain tokens, and small transformers that learn them in seconds.

A model for another task than classifying texts is explained through ``attribute_inputs(..., read=...)``. Whether the
explanation finds what counts can be checked only where that is known. So each puzzle draws inputs, what to explain
and the tokens that the answer rests on:

    regression   every letter has a value, and the answer is their sum: all letters count, by their value
    multi-label  four letters are looked for, each has a label of its own: the letter itself counts
    question     a letter is asked for, the answer is where it stands in the context: its two places count
    tagging      the label of a token is the letter before it: that letter counts
    image        two marks stand on patches of a picture, are they of the same kind? The two patches count
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import (
    BertConfig,
    BertForQuestionAnswering,
    BertForSequenceClassification,
    BertForTokenClassification,
    PreTrainedModel,
    ViTConfig,
    ViTForImageClassification,
)

CLS, SEP, LETTERS = 1, 2, np.arange(3, 11)  # token ids; 0 is padding
LOOKED_FOR = 4  # letters that have a label in "multi-label"
SIDE, PATCH = 4, 4  # patches along a picture's side, pixels along a patch's
_KINDS = ("####|#..#|#..#|####", "#..#|.##.|.##.|#..#", "####|....|....|####")
MARKS = np.array([[[pixel == "#" for pixel in row] for row in mark.split("|")] for mark in _KINDS], dtype=np.float32)
_SIZES: dict[str, Any] = {
    "hidden_size": 32,
    "initializer_range": 0.1,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
}
_NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


@dataclass(frozen=True)
class Drawn:
    """Examples of a puzzle.

    Attributes:
        inputs: what the model takes, tensors [example, ...].
        labels: what its loss takes, tensors [example, ...].
        target: the class to explain, int64 [example].
        receiver: the token whose output is explained, int64 [example]; 0, [CLS], for a task of whole texts.
        counts: the tokens that the answer rests on, bool [example, token].
        values: what every token is worth to the answer, float [example, token]; nan where that isn't known.
    """

    inputs: dict[str, Tensor]
    labels: dict[str, Tensor]
    target: Tensor
    receiver: Tensor
    counts: np.ndarray
    values: np.ndarray


@dataclass(frozen=True)
class Puzzle:
    """A puzzle: what draws ``count`` examples, what makes an untrained model, how its outputs become logits."""

    name: str
    draw: Callable[[np.random.Generator, int], Drawn]
    model: Callable[[], PreTrainedModel]
    read: Callable[[Any, int], Tensor]  # outputs and the receiver's place -> logits [example, class]
    steps: int = 150  # updates, and examples an update, after which its answers are right
    batch: int = 32


def _text(letters: np.ndarray, *before: np.ndarray) -> np.ndarray:
    ends = np.full((len(letters), 1), CLS), np.full((len(letters), 1), SEP)
    return np.concatenate([ends[0], *before, letters, ends[1]], axis=1)


def _drawn(ids, labels, target, receiver, counts, values=None, **inputs) -> Drawn:
    none = np.full(ids.shape, np.nan)
    given = {} if inputs else {"input_ids": torch.from_numpy(ids), "attention_mask": torch.ones(ids.shape).long()}
    return Drawn(
        inputs={**given, **inputs},
        labels={name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in labels.items()},
        target=torch.from_numpy(np.asarray(target, dtype=np.int64)),
        receiver=torch.from_numpy(np.broadcast_to(receiver, len(ids)).astype(np.int64)),
        counts=counts,
        values=none if values is None else values,
    )


def _sums(rng: np.random.Generator, count: int) -> Drawn:
    ids = _text(rng.choice(LETTERS, (count, 8)))
    values = np.where(ids >= LETTERS[0], (ids - LETTERS.mean()) / 8, 0.0)
    labels = {"labels": values.sum(axis=1).astype(np.float32)}
    return _drawn(ids, labels, np.zeros(count), 0, ids >= LETTERS[0], values=values)


def _present(rng: np.random.Generator, count: int) -> Drawn:
    ids = _text(np.stack([rng.permutation(LETTERS)[:5] for _ in range(count)]))
    there = (ids[:, :, None] == LETTERS[:LOOKED_FOR]).any(axis=1)  # five of eight letters: one looked for at least
    target = np.array([rng.choice(np.flatnonzero(row)) for row in there])
    return _drawn(ids, {"labels": there.astype(np.float32)}, target, 0, ids == LETTERS[target][:, None])


def _asked(rng: np.random.Generator, count: int) -> Drawn:
    letters, at = np.stack([rng.permutation(LETTERS) for _ in range(count)]), rng.integers(0, len(LETTERS), count)
    asked = letters[np.arange(count), at][:, None]
    ids = _text(letters, asked, np.full_like(asked, SEP))
    place, labels = at + 3, {}
    for name in ("start_positions", "end_positions"):
        labels[name] = place
    return _drawn(ids, labels, place, place, (ids == asked) & (np.arange(ids.shape[1]) == 1))


def _tagged(rng: np.random.Generator, count: int) -> Drawn:
    ids = _text(rng.choice(LETTERS, (count, 8)))
    labels = np.full_like(ids, -100)
    labels[:, 2:-1] = ids[:, 1:-2] - LETTERS[0]
    receiver = rng.integers(2, ids.shape[1] - 1, count)
    counts = np.arange(ids.shape[1]) == receiver[:, None] - 1
    return _drawn(ids, {"labels": labels}, labels[np.arange(count), receiver], receiver, counts)


def _pictured(rng: np.random.Generator, count: int) -> Drawn:
    """Two marks on two patches, of the same kind in half of the pictures, in noise; token 0 is [CLS]."""
    pictures = rng.normal(0, 0.15, (count, SIDE, PATCH, SIDE, PATCH)).astype(np.float32)
    places = np.stack([rng.permutation(SIDE**2)[:2] for _ in range(count)])
    kind, same = rng.integers(0, len(MARKS), count), rng.integers(0, 2, count)
    other = (kind + rng.integers(1, len(MARKS), count)) % len(MARKS)
    for place, mark in zip(places.T, (kind, np.where(same == 1, kind, other)), strict=True):
        row, column = np.divmod(place, SIDE)
        pictures[np.arange(count), row, :, column, :] += MARKS[mark]
    counts = (np.arange(SIDE**2 + 1) == places[:, :, None] + 1).any(axis=1)
    pixels = torch.from_numpy(pictures.reshape(count, 1, SIDE * PATCH, SIDE * PATCH))
    return _drawn(counts.astype(int), {"labels": same}, same, 0, counts, pixel_values=pixels)


def _bert(cls: type[PreTrainedModel], **more) -> Callable[[], PreTrainedModel]:
    sizes = _SIZES | _NO_DROPOUT | {"vocab_size": int(LETTERS[-1]) + 1, "max_position_embeddings": 16}
    return lambda: cls(BertConfig(**sizes, **more))


def _vit() -> PreTrainedModel:
    sizes = {"image_size": SIDE * PATCH, "patch_size": PATCH, "num_channels": 1, "num_labels": 2}
    return ViTForImageClassification(ViTConfig(**_SIZES, **_NO_DROPOUT, **sizes))


def _logits(outputs: Any, _: int) -> Tensor:
    return outputs.logits


_MANY = {"num_labels": LOOKED_FOR, "problem_type": "multi_label_classification"}
PUZZLES = {
    puzzle.name: puzzle
    for puzzle in (
        Puzzle("regression", _sums, _bert(BertForSequenceClassification, num_labels=1), _logits),
        Puzzle("multi-label", _present, _bert(BertForSequenceClassification, **_MANY), _logits),
        Puzzle("question", _asked, _bert(BertForQuestionAnswering), lambda outputs, _: outputs.start_logits),
        Puzzle(
            "tagging", _tagged, _bert(BertForTokenClassification, num_labels=len(LETTERS)),
            lambda outputs, receiver: outputs.logits[:, receiver],
        ),
        Puzzle("image", _pictured, _vit, _logits, steps=250),
    )
}  # fmt: skip


def train(name: str, *, steps: int = 0, batch: int = 0, rate: float = 4e-3, seed: int = 0) -> PreTrainedModel:
    """Return a model trained on a puzzle, with fresh examples in every step, in eval mode.

    Args:
        name: "regression", "multi-label", "question", "tagging" or "image".
        steps, batch: updates, and examples an update; 0 for as many as the puzzle needs.
        rate: the largest learning rate (it rises, then falls to 0).
        seed: of weights and examples.
    """
    puzzle, rng = PUZZLES[name], np.random.default_rng(seed)
    torch.manual_seed(seed)
    model = puzzle.model().train()
    steps, batch = steps or puzzle.steps, batch or puzzle.batch
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, total_steps=steps)
    for _ in range(steps):
        drawn = puzzle.draw(rng, batch)
        model(**drawn.inputs, **drawn.labels).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
    return model.eval()


def right(name: str, model: PreTrainedModel, drawn: Drawn) -> np.ndarray:
    """Return whether the model's answers are right, bool [example]; a sum is if it is off by less than 0.25."""
    with torch.no_grad():
        outputs = model(**drawn.inputs)
    each = [PUZZLES[name].read(outputs, place)[row] for row, place in enumerate(drawn.receiver.tolist())]
    logits = torch.stack(each)
    if name == "regression":
        return ((logits[:, 0] - drawn.labels["labels"]).abs() < 0.25).numpy()
    if name == "multi-label":
        return ((logits > 0) == drawn.labels["labels"].bool()).all(-1).numpy()
    return (logits.argmax(-1) == drawn.target).numpy()
