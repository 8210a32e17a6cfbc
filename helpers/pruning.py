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
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

import numpy as np
import torch
from scipy import stats
from torch import Tensor, nn
from tqdm.auto import tqdm

from helpers.attention import gate_heads, touch
from helpers.attribution import Attribution, attribute
from helpers.inputs import Encoded, Text, encode
from helpers.outputs import logits_of

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
    model, tokenizer, texts: Sequence[Text], target=None, *, reduce: str = "max", at_once: int = 32, **options
) -> tuple[Importance, Importance]:
    """Return the importance by attribution, I_h = mean_x max(Attr_h(A)), and by attention, from the same passes.

    Args:
        target: the class to explain, one for all or one a text: the gold label for an order that has seen it, None for
            the predicted class, which asks nothing of the data but texts.
        reduce: "max" (the paper's) or "sum" of a head's matrix. Attention always takes the maximum.
        at_once: texts whose matrices are kept at a time.
        options: of :func:`helpers.attribution.attribute`.
    """
    _known(reduce, REDUCE, "reduce")
    start, texts = time.perf_counter(), list(texts)
    targets = None if target is None or isinstance(target, str | int) else list(target)
    scores, attention, forward, backward = [], [], 0.0, 0.0
    for first in range(0, len(texts), at_once):
        part = slice(first, first + at_once)
        chosen = target if targets is None else targets[part]
        explained = cast(list[Attribution], attribute(model, tokenizer, texts[part], target=chosen, **options))
        for found in explained:
            scores.append(REDUCE[reduce](found.scores))
            attention.append(REDUCE["max"](found.attention))
            forward, backward = forward + _passes(found)[0], backward + _passes(found)[1]
    seconds = time.perf_counter() - start
    return (
        Importance(f"attribution ({reduce})", np.stack(scores), forward, backward, seconds),
        Importance("attention", np.stack(attention), len(texts), 0.0, seconds),
    )


def _passes(found) -> tuple[float, float]:
    """Forward and backward passes of the whole network that one attribution took; the layers below run once."""
    behind = 1 - np.asarray(found.layers) / found.scores.shape[0]
    return 1 + float(((found.steps + 1) * behind).sum()), float((found.steps * behind).sum())


def by_class(
    model, tokenizer, texts: Sequence[Text], *, steps: int = 6, rule: str = "gauss", at_once: int = 32, **options
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
    if (classes := model.config.num_labels) < 2 or isinstance(steps, str) or "output" in options:
        raise ValueError(
            f"The classes' scores add up to 0 for the probabilities of two classes or more and a fixed number of "
            f"points; this model has {classes}, and steps={steps!r}, {options} was given. Otherwise use by_attribution."
        )
    start, texts = time.perf_counter(), list(texts)
    scores: list[list[np.ndarray]] = [[] for _ in range(classes)]
    attention, forward, backward = [], 0.0, 0.0
    for first in range(0, len(texts), at_once):
        part = texts[first : first + at_once]
        asked = [
            attribute(model, tokenizer, part, target=target, steps=steps, rule=rule, **options)
            for target in range(classes - 1)
        ]
        for same_text in zip(*asked, strict=True):
            matrices = [found.scores for found in same_text]
            for kept, matrix in zip(scores, [*matrices, -sum(matrices)], strict=True):
                kept.append(REDUCE["max"](matrix))
            attention.append(REDUCE["max"](same_text[0].attention))
            passes = np.sum([_passes(found) for found in same_text], axis=0)
            forward, backward = forward + passes[0], backward + passes[1]
    cost = (float(forward), float(backward), time.perf_counter() - start)
    named = zip(model.config.id2label.values(), scores, strict=True)
    return (
        tuple(Importance(f"attribution for {name}", np.stack(kept), *cost) for name, kept in named),
        Importance("attention", np.stack(attention), len(texts), 0.0, cost[-1]),
    )


def by_attention(model, tokenizer, texts: Sequence[Text], *, batch_size: int = 32) -> Importance:
    """Return the importance by attention, I_h = mean_x max(A_h)."""
    start, found = time.perf_counter(), {}
    encoded = encode(model, tokenizer, texts)
    for rows in encoded.rows_by_length(batch_size):
        with touch(model, record=True) as seen, torch.no_grad():
            inputs = encoded.batch(rows)
            model(**inputs)
            real = inputs["attention_mask"].bool()[:, None, :, None]  # rows of padding don't count
            largest = [(a * real).amax(dim=(2, 3)) for _, a in sorted(seen.attention.items())]
        found.update(zip(rows, torch.stack(largest, dim=1).float().cpu().numpy(), strict=True))
    return Importance("attention", _in_order(found), len(found), 0.0, time.perf_counter() - start)


def by_taylor(
    model, tokenizer, texts: Sequence[Text], target: Sequence[int], *, form: str = "plain", batch_size: int = 32
) -> Importance:
    """Return the first-order importance, I_h = mean_x |<A_h, dL/dA_h>|, L the cross-entropy of the target.

    A factor g on the attention of a head gives dL/dg = <A_h, dL/dA_h> at g = 1, and one factor a query its part
    from that token; so nothing of size [query, key] is differentiated.

    Args:
        target: a class number for every text.
        form: "plain", or "normalised" as in the code of Michel et al.: the size of every token's part, added up, and
            every layer's heads scaled to a Euclidean norm of 1.
    """
    _known(form, TAYLOR, "form")
    start, found = time.perf_counter(), {}
    encoded, gold = encode(model, tokenizer, texts), torch.as_tensor(np.asarray(target))
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
    model, tokenizer, texts: Sequence[Text], gold: Sequence[int], *, batch_size: int = 32, progress: bool = False
) -> Importance:
    """Return the accuracy difference, accuracy with all heads - accuracy without the head, for every head."""
    start = time.perf_counter()
    layers, heads = shape_of(model, encode(model, tokenizer, [*texts][:1]))
    settings = np.ones((layers * heads + 1, layers, heads))
    settings[1:].reshape(layers * heads, -1)[np.diag_indices(layers * heads)] = 0
    logits = gated_logits(model, tokenizer, texts, settings, batch_size=batch_size, progress=progress)
    right = logits.argmax(-1) == np.asarray(gold)  # setting, text
    fall = right[0].astype(float) - right[1:].astype(float)
    examples = fall.T.reshape(len(texts), layers, heads)
    return Importance("accuracy difference", examples, right.size, 0.0, time.perf_counter() - start)


def at_random(shape: tuple[int, int], *, seed: int) -> Importance:
    """Return a number between 0 and 1 for every head of a model of shape (layers, heads)."""
    return Importance(f"random ({seed})", np.random.default_rng(seed).random((1, *shape)))


# ---- orders and gates ------------------------------------------------------------------------------------------------


def gates_overall(importance: np.ndarray, counts: Iterable[int], *, first: str = "smallest") -> np.ndarray:
    """Return gates, 1 kept and 0 removed, with so many heads of the whole model removed.

    Args:
        importance: [layer, head], or [text, layer, head] for an order of its own for every text.
        counts: how many heads to remove, one setting each.
        first: which heads go first: "smallest" or "largest" importance. Of equal ones the first in the model.

    Returns:
        [setting, layer, head] or [setting, text, layer, head].
    """
    flat = importance.reshape(*importance.shape[:-2], -1)
    return _gates(flat, counts, first).reshape(-1, *importance.shape)


def gates_per_layer(importance: np.ndarray, counts: Iterable[int], *, first: str = "smallest") -> np.ndarray:
    """Return gates with so many heads removed in every layer; otherwise as :func:`gates_overall`."""
    return _gates(importance, counts, first)


def _gates(values: np.ndarray, counts: Iterable[int], first: str) -> np.ndarray:
    _known(first, ("smallest", "largest"), "first")
    if not np.isfinite(values).all():
        raise ValueError("The importance holds nan or inf, which have no place in an order: compute it again.")
    place = np.argsort(np.argsort(values if first == "smallest" else -values, axis=-1, kind="stable"), axis=-1)
    counts = list(counts)
    if wrong := [n for n in counts if not 0 <= n <= values.shape[-1]]:
        raise ValueError(f"{wrong[0]} heads can't be removed: there are {values.shape[-1]} to choose from.")
    return np.stack([(place >= count).astype(np.float32) for count in counts])


def counts_of(shares: Iterable[float], heads: int) -> list[int]:
    """Return how many of the heads a share of them is, rounded half up; shares lie between 0 and 1."""
    shares = list(shares)
    if wrong := [s for s in shares if not 0 <= s <= 1]:
        raise ValueError(f"A share of {wrong[0]} heads was asked for: shares lie between 0 and 1.")
    return [int(np.floor(share * heads + 0.5)) for share in shares]


# ---- running with heads off ------------------------------------------------------------------------------------------


def gated_logits(
    model, tokenizer, texts: Sequence[Text], gates: np.ndarray, *, batch_size: int = 32, progress: bool = False
) -> np.ndarray:
    """Return the raw outputs with heads off, float32 [setting, text, class].

    Args:
        gates: [setting, layer, head], or [setting, text, layer, head] where each text has its own.
    """
    encoded = encode(model, tokenizer, texts)
    shape, count = shape_of(model, encoded), len(encoded.tokens)
    gates = np.asarray(gates, dtype=np.float32)
    if gates.shape[-2:] != shape or gates.ndim not in (3, 4) or (gates.ndim == 4 and gates.shape[1] != count):
        raise ValueError(
            f"gates have the shape {gates.shape}: [setting, layer, head] or [setting, text, layer, head] is needed, "
            f"with {count} texts and {shape[0]} layers of {shape[1]} heads."
        )
    found: dict[int, np.ndarray] = {}
    with tqdm(total=count * len(gates), disable=not progress, desc="heads off", unit="pass") as bar:
        for rows in encoded.rows_by_length(batch_size):
            inputs, outputs = encoded.batch(rows), []
            for setting in gates:
                with touch(model, factors=_factors(setting, rows)), torch.no_grad():
                    outputs.append(logits_of(model(**inputs)).float().cpu().numpy())
                bar.update(len(rows))
            found.update(zip(rows, np.stack(outputs, axis=1), strict=True))
    return _in_order(found).swapaxes(0, 1)


def _factors(gates: np.ndarray, rows: Sequence[int]) -> Mapping[int, Tensor]:
    """The factors of one setting; a layer that keeps all its heads is left alone."""
    if gates.ndim == 2:
        return {layer: gate for layer, gate in gate_heads(gates).items() if not (gate == 1).all()}
    return {i: torch.from_numpy(layer)[..., None, None] for i, layer in enumerate(gates[list(rows)].swapaxes(0, 1))}


def shape_of(model, encoded: Encoded) -> tuple[int, int]:
    """Return how many layers and heads a model has, as seen in one pass."""
    with touch(model, record=True) as seen, torch.no_grad():
        model(**encoded.batch([0]))
        return len(seen.attention), seen.attention[0].shape[1]


# ---- curves ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Curve:
    """Which examples are right while heads go.

    Attributes:
        name: of the order.
        shares: of the heads that are off, [setting], rising.
        right: bool [setting, example].
        seed: of the bootstrap.
    """

    name: str
    shares: np.ndarray
    right: np.ndarray
    seed: int = field(default=0, repr=False)

    @property
    def accuracy(self) -> np.ndarray:
        """Share of the examples that are right, [setting]."""
        return self.right.mean(axis=1)

    @property
    def area(self) -> float:
        """Area under the accuracy over the shares, by trapezoids, divided by their range: a mean accuracy."""
        return float(self._areas().mean())

    def _areas(self) -> np.ndarray:
        """The area of every example; their mean is the curve's."""
        return np.trapezoid(self.right.astype(float), self.shares, axis=0) / np.ptp(self.shares)

    def interval(self, level: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
        """Return the bounds of the accuracy, by bootstrap over examples, two arrays [setting]."""
        return interval(self.right.T, level=level, seed=self.seed)

    def removable(self, within: float = 0.01) -> float:
        """Return the largest share of heads up to which the accuracy stays ``within`` reach of its start or above."""
        kept = self.accuracy >= self.accuracy[0] - within - 1e-9
        return float(self.shares[np.argmin(kept) - 1] if not kept.all() else self.shares[-1])


def curve(name: str, model, tokenizer, texts, gold: Sequence[int], gates: np.ndarray, **options) -> Curve:
    """Return how many examples stay right over the settings of the gates; options: of :func:`gated_logits`."""
    gates = np.asarray(gates)
    logits = gated_logits(model, tokenizer, texts, gates, **options)
    shares = 1 - gates.reshape(len(gates), -1).mean(axis=1)
    return Curve(name, shares, logits.argmax(-1) == np.asarray(gold))


def curves(
    model, tokenizer, texts: Sequence[Text], gold: Sequence[int], gates: Mapping[str, np.ndarray], **options
) -> dict[str, Curve]:
    """Return one curve a named set of gates, as :func:`curve`; a setting that several share, such as all on, runs once.

    Args:
        gates: by name, [setting, layer, head] or [setting, text, layer, head], in any mixture.
        options: of :func:`gated_logits`.
    """
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
        right.update(zip(run, logits.argmax(-1) == np.asarray(gold), strict=True))
    return {
        name: Curve(
            name, 1 - np.reshape(gates[name], (len(found), -1)).mean(axis=1), np.stack([right[k] for k in found])
        )
        for name, found in keys.items()
    }


def interval(values: np.ndarray, *, level: float = 0.95, seed: int = 0, resamples: int = 2000):
    """Return the bounds of the mean over the first axis, by percentile bootstrap over that axis."""
    values = np.asarray(values, dtype=float)
    if len(values) < 2:
        raise ValueError(f"A bootstrap over {len(values)} example says nothing: give at least 2.")
    found = stats.bootstrap(
        (values,), np.mean, confidence_level=level, n_resamples=resamples, method="percentile", axis=0, vectorized=True,
        rng=np.random.default_rng(seed), batch=max(1, int(2e7 // values.size)),
    )  # fmt: skip
    return found.confidence_interval.low, found.confidence_interval.high


@dataclass(frozen=True)
class Comparison:
    """Two curves over the same examples: the difference of their areas, its interval, and the p-value of none."""

    difference: float
    low: float
    high: float
    p: float


def compare(first: Curve, second: Curve, *, level: float = 0.95, seed: int = 0) -> Comparison:
    """Return area(first) - area(second), paired by example: bootstrap interval and sign-flip permutation test."""
    if first.right.shape != second.right.shape or not np.allclose(first.shares, second.shares):
        raise ValueError(
            f"{first.name} and {second.name} were not measured on the same shares and examples "
            f"({first.right.shape} and {second.right.shape}): make both curves from the same texts and counts."
        )
    difference = first._areas() - second._areas()
    low, high = interval(difference, level=level, seed=seed)
    test = stats.permutation_test(
        (difference,), np.mean, permutation_type="samples", vectorized=True, n_resamples=4999,
        rng=np.random.default_rng(seed), batch=max(1, int(2e7 // difference.size)),
    )  # fmt: skip
    return Comparison(float(difference.mean()), float(low), float(high), float(test.pvalue))


def _in_order(found: Mapping[int, np.ndarray]) -> np.ndarray:
    return np.stack([found[row] for row in sorted(found)])


def _known(value: str, known: Iterable[str], name: str) -> None:
    if value not in known:
        raise ValueError(f"{name} is {value!r}: use one of {', '.join(known)}.")
