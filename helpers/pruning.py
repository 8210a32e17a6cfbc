"""Which heads matter, and what is left without the others (paper sections 4.2 and 5.1).

The importance of head h over examples x, as [layer, head]:

    attribution   I_h = mean_x max(Attr_h(A))             the paper's; the sum of Attr_h instead on request
    taylor        I_h = mean_x |<A_h, dL/dA_h>|           Michel et al. 2019, first order; also as their code has it
    accuracy      I_h = accuracy - accuracy without h     one head off at a time
    attention     I_h = mean_x max(A_h)                   (a mean of A_h itself would be 1 / length for every head)
    random        a number drawn at random

Heads are then switched off in some order by a factor of 0 on their attention (:func:`helpers.attention.gate_heads`),
with one order for all examples or one for each, and :func:`curve` follows the accuracy. :mod:`helpers.surgery`
cuts such heads out of the weights.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
from torch import Tensor, nn
from tqdm.auto import tqdm

from helpers._curves import Comparison, Curve, compare, interval
from helpers._gates import counts_of, gates_overall, gates_per_layer, known
from helpers.attention import Touch, UnsupportedModelError, gate_heads, touch
from helpers.attribution import Attribution, attribute, labels_of, target_numbers
from helpers.blocks import Blocks
from helpers.inputs import Encoded, Text, check_texts, encode
from helpers.outputs import logits_of
from helpers.quadrature import check_steps

__all__ = [
    "Comparison",
    "Curve",
    "Importance",
    "at_random",
    "by_accuracy",
    "by_attention",
    "by_attribution",
    "by_class",
    "by_taylor",
    "class_numbers",
    "compare",
    "counts_of",
    "curve",
    "curves",
    "gated_logits",
    "gates_overall",
    "gates_per_layer",
    "interval",
    "shape_of",
]

REDUCE = {"max": lambda a: a.max(axis=(-2, -1)), "sum": lambda a: a.sum(axis=(-2, -1))}
TAYLOR = ("plain", "normalised")


@dataclass(frozen=True)
class Importance:
    """How much each head matters, and what it cost to find out.

    Attributes:
        name: of the score.
        examples: the score of every head on every example, float [example, layer, head]; where a score has no
            meaning on one example (random), a single row.
        forward, backward: passes through the whole network that it took, counted in examples.
        seconds: on the clock.
    """

    name: str
    examples: np.ndarray
    forward: float = 0.0
    backward: float = 0.0
    seconds: float = 0.0

    @property
    def heads(self) -> np.ndarray:
        """The importance of every head: the mean over the examples, [layer, head]."""
        return self.examples.mean(axis=0)


# ---- the five scores -------------------------------------------------------------------------------------------------


def by_attribution(
    model, tokenizer, texts: Text | Iterable[Text], target=None, *, reduce: str = "max", at_once: int = 32, **options
) -> tuple[Importance, Importance]:
    """Return the importance by attribution, I_h = mean_x max(Attr_h(A)), and by attention, from the same passes.

    Args:
        target: the class to explain by number or name, one for all or one a text: the gold label for an order that has
            seen it, None for the predicted class, which asks nothing of the data but texts.
        reduce: "max" (the paper's) or "sum" of a head's matrix. Attention always takes the maximum.
        at_once: texts whose matrices are kept at a time.
        options: of :func:`helpers.attribution.attribute`; with a number of steps the gap is left out unless asked for.
    """
    known(reduce, REDUCE, "reduce")
    check_steps(at_once, "at_once")
    start, texts = time.perf_counter(), check_texts(texts)
    targets = target_numbers(target, len(texts), model)
    scores, attention, forward, backward = {}, {}, 0.0, 0.0
    options = without_gap(options)
    for part in _parts(texts, at_once):
        chosen = None if targets is None else [targets[i] for i in part]
        explained = attribute(model, tokenizer, [texts[i] for i in part], target=chosen, **options)
        for i, found in zip(part, cast(list[Attribution], explained), strict=True):
            scores[i], attention[i] = REDUCE[reduce](found.scores), REDUCE["max"](found.attention)
            passes = _passes(found, model)
            forward, backward = forward + passes[0], backward + passes[1]
    seconds = time.perf_counter() - start
    return (
        Importance(f"attribution ({reduce})", _in_order(scores), forward, backward, seconds),
        Importance("attention", _in_order(attention), len(texts), 0.0, seconds),
    )


def _parts(texts: Sequence[Text], at_once: int) -> Iterator[list[int]]:
    """Yield rows of texts, so many at a time; texts of like length together, for little padding."""
    order = sorted(range(len(texts)), key=lambda i: len("".join(texts[i])))
    yield from (order[first : first + at_once] for first in range(0, len(texts), at_once))


def without_gap(options: dict) -> dict:
    """Leave out the passes that only the gap needs: no importance has a use for it, and only "auto" goes by it."""
    return options if isinstance(options.get("steps", "auto"), str) else {"gap": False} | options


def _passes(found, model) -> tuple[float, float]:
    """Forward and backward passes of the whole network that one attribution took; the layers below run once."""
    behind = 1 - np.asarray(found.layers) / model.config.num_hidden_layers
    starts = np.isfinite(found.start)  # where F at the start was asked for
    return 1 + float(((found.steps + starts) * behind).sum()), float((found.steps * behind).sum())


def by_class(
    model, tokenizer, texts: Text | Iterable[Text], *, steps: int = 6, rule: str = "gauss", at_once: int = 32, **options
) -> tuple[tuple[Importance, ...], Importance]:
    """Return the importance by attribution for every class, max(Attr_h(A)), in the logits' order, and by attention.

    Probabilities add up to 1 at every point of the path, so a link's scores for all classes add up to 0: the last
    class comes for nothing, and two classes cost as much as one. That holds for a fixed number of points only.

    Args:
        steps, rule, options: of :func:`helpers.attribution.attribute`; the output is the probability.
        at_once: texts whose matrices are kept at a time.

    Returns:
        One :class:`Importance` a class, each with the passes and seconds of all of them, and the one by attention.
    """
    classes = model.config.num_labels
    if not _chooses(model) or isinstance(steps, str) or "output" in options:
        raise ValueError(
            f"The classes' scores add up to 0 for the probabilities of two classes or more that exclude each other, "
            f"and a fixed number of points; this model has {classes} (problem_type {model.config.problem_type!r}), and "
            f"steps={steps!r}, {options} was given. Otherwise use by_attribution."
        )
    check_steps(at_once, "at_once")
    start, texts = time.perf_counter(), check_texts(texts)
    scores: list[dict[int, np.ndarray]] = [{} for _ in range(classes)]
    attention, forward, backward = {}, 0.0, 0.0
    options = without_gap({"steps": steps, "rule": rule} | options)
    for part in _parts(texts, at_once):
        asked = [
            attribute(model, tokenizer, [texts[i] for i in part], target=target, **options)
            for target in range(classes - 1)
        ]
        for i, same_text in zip(part, zip(*asked, strict=True), strict=True):
            matrices = [found.scores for found in same_text]
            for kept, matrix in zip(scores, [*matrices, -sum(matrices)], strict=True):
                kept[i] = REDUCE["max"](matrix)
            attention[i] = REDUCE["max"](same_text[0].attention)
            passes = np.sum([_passes(found, model) for found in same_text], axis=0)
            forward, backward = forward + passes[0], backward + passes[1]
    cost = (float(forward), float(backward), time.perf_counter() - start)
    named = zip(labels_of(model), scores, strict=True)
    return (
        tuple(Importance(f"attribution for {name}", _in_order(kept), *cost) for name, kept in named),
        Importance("attention", _in_order(attention), len(texts), 0.0, cost[-1]),
    )


def by_attention(model, tokenizer, texts: Text | Iterable[Text], *, batch_size: int | None = None) -> Importance:
    """Return the importance by attention, I_h = mean_x max(A_h)."""
    start, found = time.perf_counter(), {}
    encoded = encode(model, tokenizer, texts)
    for rows in encoded.rows_by_length(batch_size):
        with touch(model, record=True) as seen, torch.no_grad():
            inputs = encoded.batch(rows)
            model(**inputs)
            _even(seen)
            real = inputs["attention_mask"].bool()[:, None, :, None]  # rows of padding don't count
            largest = [(a * real).amax(dim=(2, 3)) for _, a in sorted(seen.attention.items())]
        found.update(zip(rows, torch.stack(largest, dim=1).float().cpu().numpy(), strict=True))
    return Importance("attention", _in_order(found), len(found), 0.0, time.perf_counter() - start)


def by_taylor(
    model,
    tokenizer,
    texts: Text | Iterable[Text],
    target: Iterable[int | str],
    *,
    form: str = "plain",
    batch_size: int | None = None,
) -> Importance:
    """Return the first-order importance, I_h = mean_x |<A_h, dL/dA_h>|, L the cross-entropy of the target.

    A factor g on the attention of a head gives dL/dg = <A_h, dL/dA_h> at g = 1, and one factor a query its part
    from that token; so nothing of size [query, key] is differentiated.

    Args:
        target: the class of every text, by number or by name.
        form: "plain", or "normalised" as in the code of Michel et al.: the size of every token's part, added up, and
            every layer's heads scaled to a Euclidean norm of 1.
    """
    known(form, TAYLOR, "form")
    start, found = time.perf_counter(), {}
    encoded = encode(model, tokenizer, texts)
    gold = torch.from_numpy(class_numbers(model, target, len(encoded.tokens), "target"))
    layers, heads = shape_of(model, encoded)
    for rows in encoded.rows_by_length(batch_size):
        inputs = encoded.batch(rows)
        like = inputs["input_ids"]
        gates = [torch.ones(len(rows), heads, like.shape[1], 1, device=like.device) for _ in range(layers)]
        with torch.enable_grad(), touch(model, factors={i: gate.requires_grad_() for i, gate in enumerate(gates)}):
            logits = logits_of(model(**inputs)).float()
            loss = nn.functional.cross_entropy(logits, gold[rows].to(logits.device), reduction="sum")
            parts = torch.stack(torch.autograd.grad(loss, gates), dim=1)[..., 0]  # text, layer, head, query
        size = parts.sum(-1).abs() if form == "plain" else parts.abs().sum(-1)
        found.update(zip(rows, size.cpu().numpy(), strict=True))
    examples = _in_order(found)
    if form == "normalised":
        examples = examples / np.maximum(np.linalg.norm(examples.mean(axis=0), axis=-1), 1e-20)[:, None]
    return Importance(f"Taylor ({form})", examples, len(found), len(found), time.perf_counter() - start)


def by_accuracy(
    model,
    tokenizer,
    texts: Text | Iterable[Text],
    gold: Iterable[int | str],
    *,
    batch_size: int | None = None,
    progress: bool = False,
) -> Importance:
    """Return the accuracy difference, accuracy with all heads - accuracy without the head, for every head.

    Args:
        gold: the class of every text, by number or by name.
    """
    start, texts = time.perf_counter(), check_texts(texts)
    numbers = class_numbers(model, gold, len(texts))
    layers, heads = shape_of(model, encode(model, tokenizer, texts[:1]))
    settings = np.ones((layers * heads + 1, layers, heads))
    settings[1:].reshape(layers * heads, -1)[np.diag_indices(layers * heads)] = 0
    logits = gated_logits(model, tokenizer, texts, settings, batch_size=batch_size, progress=progress)
    right = logits.argmax(-1) == numbers  # setting, text
    fall = right[0].astype(float) - right[1:].astype(float)
    examples = fall.T.reshape(len(texts), layers, heads)
    return Importance("accuracy difference", examples, right.size, 0.0, time.perf_counter() - start)


def at_random(shape: tuple[int, int], *, seed: int) -> Importance:
    """Return a number between 0 and 1 for every head of a model of shape (layers, heads)."""
    return Importance(f"random ({seed})", np.random.default_rng(seed).random((1, *shape)))


def class_numbers(model, given: Iterable[int | str], count: int, name: str = "gold") -> np.ndarray:
    """Return the class of every text as a number, int64 [text], from numbers and names that the model knows.

    Raises:
        ValueError: not one class a text, a class that the model lacks, or a model that doesn't choose one class.
    """
    if not _chooses(model):
        raise ValueError(
            f"This model does not choose one class of several ({model.config.num_labels} outputs, problem_type "
            f"{model.config.problem_type!r}), so it has no right answer. Take by_attribution or by_attention."
        )
    several = isinstance(given, Iterable) and not isinstance(given, str) and getattr(given, "ndim", 1) > 0
    classes = list(given) if several else []
    if not several or len(classes) != count:
        said = f"has {len(classes)} classes" if several else f"is {given!r}"
        raise ValueError(f"{name} {said} for {count} texts: give the class of every text, by its number or its name.")
    return np.array(target_numbers(classes, count, model), dtype=np.int64)


def _chooses(model) -> bool:
    """Return whether the model chooses one of its classes, so that their probabilities add up to 1."""
    return model.config.num_labels > 1 and model.config.problem_type in (None, "single_label_classification")


# ---- running with heads off ------------------------------------------------------------------------------------------


def gated_logits(
    model,
    tokenizer,
    texts: Text | Iterable[Text],
    gates: np.ndarray,
    *,
    batch_size: int | None = None,
    progress: bool = False,
) -> np.ndarray:
    """Return the raw outputs with heads off, float32 [setting, text, class].

    Args:
        gates: [setting, layer, head], or [setting, text, layer, head] where each text has its own.
    """
    encoded = encode(model, tokenizer, texts)
    shape, count = shape_of(model, encoded), len(encoded.tokens)
    gates = np.asarray(gates, dtype=np.float32)
    fits = gates.shape[-2:] == shape and gates.ndim in (3, 4) and (gates.ndim == 3 or gates.shape[1] == count)
    if not fits or not len(gates):
        raise ValueError(
            f"gates have the shape {gates.shape}: [setting, layer, head] or [setting, text, layer, head] is needed, "
            f"with one setting or more, {count} texts and {shape[0]} layers of {shape[1]} heads."
        )
    found: dict[int, np.ndarray] = {}
    with tqdm(total=count * len(gates), disable=not progress, desc="heads off", unit="pass") as bar:
        for rows in encoded.rows_by_length(batch_size):
            logits = _under(model, encoded.batch(rows), [_factors(setting, rows) for setting in gates])
            found.update(zip(rows, logits.float().cpu().numpy(), strict=True))
            bar.update(len(rows) * len(gates))
    return _in_order(found).swapaxes(0, 1)


def _under(model, inputs: dict[str, Tensor], settings: Iterable[dict[int, Tensor]]) -> Tensor:
    """Return the logits [text, setting, class]; the layers below a setting's first factor are run once for all."""
    with torch.no_grad(), touch(model) as session:
        blocks = Blocks(model, session)
        with blocks.watch():
            untouched = logits_of(model(**inputs))
        every, found = torch.arange(len(untouched), device=untouched.device), []
        for session.factors in settings:
            with blocks.begin_at(min(session.factors, default=0), every):
                found.append(logits_of(model(**inputs)) if session.factors else untouched)
        return torch.stack(found, dim=1)


def _factors(gates: np.ndarray, rows: Sequence[int]) -> dict[int, Tensor]:
    """The factors of one setting; a layer that keeps all its heads is left alone."""
    if gates.ndim == 2:
        factors = gate_heads(gates)
    else:
        layers = enumerate(gates[list(rows)].swapaxes(0, 1))
        factors = {layer: torch.from_numpy(gate)[..., None, None] for layer, gate in layers}
    return {layer: gate for layer, gate in factors.items() if not (gate == 1).all()}


def shape_of(model, encoded: Encoded) -> tuple[int, int]:
    """Return how many layers and heads a model has, as seen in one pass; its layers must have equally many heads."""
    with touch(model, record=True) as seen, torch.no_grad():
        model(**encoded.batch([0]))
        return _even(seen)


def _even(seen: Touch) -> tuple[int, int]:
    """Return how many layers a pass had, and how many heads each."""
    heads = [weights.shape[1] for _, weights in sorted(seen.attention.items())]
    if len(set(heads)) > 1:
        raise UnsupportedModelError(
            f"The layers have {heads} heads, and scores and gates need equally many in each. If helpers.surgery cut "
            "this model, take the whole one and its gates: touch(model, factors=gate_heads(gates))."
        )
    return len(heads), heads[0]


# ---- curves ----------------------------------------------------------------------------------------------------------


def curve(
    name: str, model, tokenizer, texts: Text | Iterable[Text], gold: Iterable[int | str], gates: np.ndarray, **options
) -> Curve:
    """Return how many examples stay right over the settings of the gates.

    Args:
        gold: the class of every text, by number or by name.
        gates, options: of :func:`gated_logits`.
    """
    gates, texts = np.asarray(gates), check_texts(texts)
    numbers = class_numbers(model, gold, len(texts))
    logits = gated_logits(model, tokenizer, texts, gates, **options)
    shares = 1 - gates.reshape(len(gates), -1).mean(axis=1)
    return Curve(name, shares, logits.argmax(-1) == numbers)


def curves(
    model,
    tokenizer,
    texts: Text | Iterable[Text],
    gold: Iterable[int | str],
    gates: Mapping[str, np.ndarray],
    **options,
) -> dict[str, Curve]:
    """Return one curve a named set of gates, as :func:`curve`; a setting that several share, such as all on, runs once.

    Args:
        gold: the class of every text, by number or by name.
        gates: by name, [setting, layer, head] or [setting, text, layer, head], in any mixture.
        options: of :func:`gated_logits`.
    """
    texts = check_texts(texts)
    numbers = class_numbers(model, gold, len(texts))
    wanted: dict[bytes, np.ndarray] = {}
    keys: dict[str, list[bytes]] = {}
    for name, settings in gates.items():
        keys[name] = []
        for setting in np.asarray(settings, dtype=np.float32):
            alike = setting.ndim == 3 and (setting == setting[:1]).all()
            setting = setting[0] if alike else setting
            key = hashlib.sha256(setting.tobytes()).digest()  # the bytes themselves would double the memory
            keys[name].append(key)
            wanted.setdefault(key, setting)
    right: dict[bytes, np.ndarray] = {}
    for axes in {setting.ndim for setting in wanted.values()}:
        run = {key: setting for key, setting in wanted.items() if setting.ndim == axes}
        logits = gated_logits(model, tokenizer, texts, np.stack(list(run.values())), **options)
        right.update(zip(run, logits.argmax(-1) == numbers, strict=True))
    return {
        name: Curve(
            name, 1 - np.reshape(gates[name], (len(found), -1)).mean(axis=1), np.stack([right[k] for k in found])
        )
        for name, found in keys.items()
    }


def _in_order(found: Mapping[int, np.ndarray]) -> np.ndarray:
    return np.stack([found[row] for row in sorted(found)])
