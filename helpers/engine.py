"""The engine behind :func:`helpers.attribution.attribute`: tensors in, tensors out (paper section 3).

One pass records A and V of every layer. Then, layer by layer, copies of the input run with the layer's
contexts replaced by points on the straight path from C0 to C = A V, and their gradients G(a_k) = dF/dC
are summed with the weights of the quadrature rule before they meet the values:

    Attr_h(A) = (A_h - A0_h) * ((sum_k w_k G_h(a_k)) V_h^T)

A0 is the baseline, 0 by default. No [query, key] gradient is made a step, weights get no gradients, and
the layers below run once, and the last layer for the one row that the classifier reads (:mod:`helpers.blocks`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from helpers.attention import Touch, UnsupportedModelError, check_model, touch
from helpers.blocks import Blocks
from helpers.outputs import log_probabilities, logits_of, probabilities
from helpers.quadrature import check_steps, points_and_weights

OUTPUTS = ("probability", "logit", "log-probability")
BASELINES = ("zero", "mean")
AUTO_STEPS = (6, 12, 24, 48, 96, 192)  # Gauss points tried in turn
BATCH_TOKENS = 4096
FLOOR = 1e-4  # a gap below this is not chased: it is of the size of float32 noise in F


@dataclass(frozen=True)
class Scores:
    """The attribution of a batch of model inputs, padding included, in the model's precision (at least float32).

    scores, attention [batch, layer, head, query, key]; value, probability, target, predicted [batch];
    start, gap, steps [batch, layer], start and gap nan where no gap was asked for; layers: the layer numbers. See
    :class:`Attribution` for what they mean.
    """

    scores: Tensor
    attention: Tensor
    value: Tensor
    probability: Tensor
    target: Tensor
    predicted: Tensor
    start: Tensor
    gap: Tensor
    steps: Tensor
    layers: tuple[int, ...]


def attribute_inputs(
    model: PreTrainedModel,
    inputs: Mapping[str, Tensor],
    *,
    target: Tensor | None = None,
    steps: int | str = "auto",
    rule: str | None = None,
    output: str = "probability",
    layers: Sequence[int] | None = None,
    baseline: str = "zero",
    tolerance: float = 0.01,
    floor: float = FLOOR,
    gap: bool = True,
    batch_tokens: int = BATCH_TOKENS,
    read: Callable[[Any], Tensor] | None = None,
) -> Scores:
    """Attribute as :func:`attribute` does, for a batch of ready-made model inputs padded on either side.

    Args:
        inputs: what ``model(**inputs)`` takes, tensors [batch, token].
        target: class indices [batch]; None for the predicted classes.
        read: what to explain of a model that is no classifier of texts: a function from the model's outputs to logits
            [batch, class], over which ``output`` and ``target`` are taken. ``lambda o: o.start_logits`` explains where
            an answer starts, ``lambda o: o.logits[:, 5]`` the label of token 5. None: the classifier's logits.

    The other arguments, and what is raised: see :func:`attribute`.
    """
    plan = plan_of(steps, rule, output, baseline, tolerance, floor, gap, batch_tokens)
    check_model(model)
    wrong = [name for name, value in inputs.items() if not isinstance(value, Tensor) or value.ndim < 2]
    if wrong or len({len(value) for value in inputs.values()}) != 1:
        shapes = {name: tuple(getattr(value, "shape", ())) for name, value in inputs.items()}
        raise ValueError(f"inputs have the shapes {shapes}: tensors [batch, token] with one batch size are needed.")
    return attribute_planned(model, dict(inputs), target, layers, plan, read or logits_of)


@dataclass(frozen=True)
class Plan:
    """The checked settings of one call; ``levels`` are the numbers of points to try in turn."""

    levels: tuple[int, ...]
    rule: str
    output: str
    baseline: str
    tolerance: float
    floor: float
    gap: bool
    batch_tokens: int


def plan_of(steps, rule, output, baseline, tolerance, floor, gap, batch_tokens) -> Plan:
    """Check the settings and return them as a :class:`Plan`; ValueError for what is unknown or out of range."""
    if output not in OUTPUTS:
        raise ValueError(f"The output {output!r} is not known: use one of {', '.join(OUTPUTS)}.")
    if baseline not in BASELINES:
        raise ValueError(f"The baseline {baseline!r} is not known: use one of {', '.join(BASELINES)}.")
    if not (tolerance > 0 and floor >= 0):
        raise ValueError(f"tolerance is {tolerance!r} and floor {floor!r}: positive numbers are needed.")
    check_steps(batch_tokens, "batch_tokens")
    if steps == "auto":
        if not gap:
            raise ValueError("steps='auto' goes by the gap: for gap=False give a number of points.")
        if rule not in (None, "gauss"):
            raise ValueError(f"steps='auto' raises the number of Gauss points; for the rule {rule!r} give a number.")
        return Plan(AUTO_STEPS, "gauss", output, baseline, tolerance, floor, True, batch_tokens)
    if isinstance(steps, str):
        raise ValueError(f"steps is {steps!r}: give a whole number of points, or 'auto'.")
    rule = "right" if rule is None else rule
    points_and_weights(rule, steps)  # raises before any work
    return Plan((int(steps),), rule, output, baseline, tolerance, floor, bool(gap), batch_tokens)


def attribute_planned(
    model, inputs: dict[str, Tensor], target: Tensor | None, layers, plan: Plan, read: Callable[[Any], Any] = logits_of
) -> Scores:
    """Attribute one batch by a checked plan; see :func:`attribute_inputs`."""

    def logits_at(inputs: Mapping[str, Tensor]) -> Tensor:
        return _checked(read(model(**inputs)))

    with torch.inference_mode(False), touch(model, record=True) as session, _frozen(model):
        blocks = Blocks(model, session)
        with torch.no_grad(), blocks.watch():
            logits = logits_at(inputs)
        _check_finite(logits)
        attention, values = dict(session.attention), dict(session.values)
        layers = _layers(layers, session.calls)
        _check_square(attention)
        session.record = False
        blocks.narrow(lambda: logits_at(inputs), logits)
        predicted = logits.argmax(-1)
        target = predicted if target is None else _class_indices(target, logits)
        path = _Path(logits_at, session, blocks, inputs, target, _function(model, plan.output), plan.batch_tokens)
        value = path.function(logits, target)
        parts = [_layer(path, layer, attention[layer], values[layer], value, plan) for layer in layers]
    scores, start, gap, steps = (torch.stack(part, dim=1) for part in zip(*parts, strict=True))
    probability = _function(model, "probability")(logits, target)
    if logits.shape[-1] == 1:
        probability = torch.full_like(probability, torch.nan)
    kept = torch.stack([attention[layer] for layer in layers], dim=1)
    return Scores(scores, kept, value, probability, target, predicted, start, gap, steps, layers)


@contextmanager
def _frozen(model: nn.Module) -> Iterator[None]:
    """No gradients for weights: the graph begins at the contexts, and nothing below them is kept."""
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    for parameter in trained:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in trained:
            parameter.requires_grad_(True)


def _checked(logits: object) -> Tensor:
    if not isinstance(logits, Tensor) or logits.ndim != 2:
        raise UnsupportedModelError(
            "The model gives no class logits [batch, class]: load it with AutoModelForSequenceClassification, or say "
            f"with `read` what of its outputs to explain ({tuple(getattr(logits, 'shape', ()))} is what it gave)."
        )
    return logits


def _check_finite(logits: Tensor) -> None:
    wrong = (~logits.isfinite().all(-1)).nonzero()[:, 0].tolist()
    if wrong:
        raise ValueError(
            f"The model's outputs are not finite for rows {wrong[:5]} of the batch: its weights hold nan or inf, or "
            "overflow in half precision. Load it again in float32."
        )


def _class_indices(target, logits: Tensor) -> Tensor:
    """Return the classes to explain as a tensor [batch]; ValueError where they don't fit the logits."""
    indices = torch.as_tensor(target, device=logits.device)
    fits = not (indices.is_floating_point() or indices.dtype == torch.bool) and indices.shape == logits.shape[:1]
    if not fits or ((indices < 0) | (indices >= logits.shape[-1])).any():
        raise ValueError(
            f"target is {target!r}: one class number a row is needed, here {len(logits)} numbers from 0 to "
            f"{logits.shape[-1] - 1}."
        )
    return indices.long()


def _layers(layers, count: int) -> tuple[int, ...]:
    if layers is None:
        return tuple(range(count))
    chosen = tuple(layers) if isinstance(layers, Iterable) else (layers,)
    if not chosen or any(
        isinstance(n, bool) or not isinstance(n, int | np.integer) or not 0 <= n < count for n in chosen
    ):
        raise ValueError(f"layers is {layers!r}: give numbers from 0 to {count - 1}, or None for all.")
    return tuple(int(n) for n in chosen)


def _check_square(attention: dict[int, Tensor]) -> None:
    shapes = {tuple(weights.shape) for weights in attention.values()}
    if len(shapes) > 1 or any(shape[-1] != shape[-2] for shape in shapes):
        raise UnsupportedModelError(
            f"The layers' attention [batch, head, query, key] differs in shape ({sorted(shapes)}): encoder-decoder "
            "models and layers of unequal width are not supported."
        )


def _function(model: PreTrainedModel, output: str) -> Callable[[Tensor, Tensor], Tensor]:
    """Return F: (logits [row, class], target [row]) -> the explained output of every row, at least float32."""

    def function(logits: Tensor, target: Tensor) -> Tensor:
        if output == "logit":
            values = logits.to(torch.promote_types(logits.dtype, torch.float32))
        else:
            values = (probabilities if output == "probability" else log_probabilities)(logits, model.config)
        return values.gather(-1, target[:, None])[:, 0]

    return function


@dataclass
class _Path:
    """The straight path of one layer's contexts from C0 to C, and the rest of the model behind it."""

    logits_at: Callable[[Mapping[str, Tensor]], Tensor]
    session: Touch
    blocks: Blocks
    inputs: dict[str, Tensor]
    target: Tensor
    function: Callable[[Tensor, Tensor], Tensor]
    batch_tokens: int

    def _outputs(self, layer: int, contexts: Tensor, rows: Tensor, copies: int) -> Tensor:
        """Return F where the layer's contexts are the given ones: ``copies`` times the given rows."""
        self.session.contexts = {layer: contexts}
        rows = rows.repeat(copies)
        with self.blocks.begin_at(layer, rows):
            logits = self.logits_at({name: tensor[rows] for name, tensor in self.inputs.items()})
        return self.function(logits, self.target[rows])

    def start(self, layer: int, contexts: Tensor) -> Tensor:
        """Return F at the start of the path, [batch]."""
        with torch.no_grad():
            return self._outputs(layer, contexts, torch.arange(len(contexts), device=contexts.device), 1)

    def gradient(self, layer: int, start: Tensor, end: Tensor, rows: Tensor, rule: str, steps: int) -> Tensor:
        """Return sum_k w_k dF/dC at C0 + a_k (C - C0) for the given rows, [row, head, query, dim]."""
        points, weights = points_and_weights(rule, steps)
        exact = torch.promote_types(start.dtype, torch.float32)
        start, change = start[rows], (end - start)[rows]
        total = torch.zeros_like(start, dtype=exact)
        first = 0
        while first < steps:
            at_once = max(1, self.batch_tokens // (len(rows) * start.shape[-2]))
            part = slice(first, first + at_once)
            a = torch.tensor(points[part], dtype=start.dtype, device=start.device).view(-1, 1, 1, 1, 1)
            try:
                contexts = (start + a * change).flatten(0, 1).requires_grad_()
                with torch.enable_grad():
                    outputs = self._outputs(layer, contexts, rows, len(a))
                    gradient = torch.autograd.grad(outputs.sum(), contexts, materialize_grads=True)[0]
            except RuntimeError as error:
                if len(a) == 1 or not _out_of_memory(error):
                    raise
                self.batch_tokens = len(a) // 2 * len(rows) * start.shape[-2]
                continue
            w = torch.tensor(weights[part], dtype=exact, device=start.device)
            total += torch.einsum("k,krhqd->rhqd", w, gradient.view(len(a), *start.shape).to(exact))
            first += at_once
        return total


def _out_of_memory(error: RuntimeError) -> bool:
    """True if a device or, in torch's own words, the processor's memory was full."""
    return isinstance(error, torch.OutOfMemoryError) or "can't allocate memory" in str(error)


def _layer(path: _Path, layer: int, attention: Tensor, values: Tensor, value: Tensor, plan: Plan) -> tuple[Tensor, ...]:
    """Return scores [batch, head, query, key], start, gap and steps [batch] of one layer."""
    zero = torch.zeros_like(attention)
    baseline = zero if plan.baseline == "zero" else zero + attention.mean(dim=1, keepdim=True)
    begin, end = baseline @ values, attention @ values
    start = path.start(layer, begin) if plan.gap else torch.full_like(value, torch.nan)
    change = (value - start).double()
    allowed = (plan.tolerance * change.abs()).clamp(min=plan.floor)
    scores = torch.zeros_like(attention, dtype=value.dtype)
    gap, steps = torch.zeros_like(change), torch.zeros_like(path.target)
    rows = torch.arange(len(attention), device=attention.device)
    for level in plan.levels:
        gradient = path.gradient(layer, begin, end, rows, plan.rule, level)
        difference, keys = (attention - baseline)[rows].to(value.dtype), values[rows].to(value.dtype)
        scores[rows] = difference * (gradient @ keys.transpose(-1, -2)).to(value.dtype)
        gap[rows] = scores[rows].double().sum((1, 2, 3)) - change[rows]
        steps[rows] = level
        rows = rows[~(gap[rows].abs() <= allowed[rows])]
        if not (plan.gap and len(rows)):
            break
    return scores, start.double(), gap, steps
