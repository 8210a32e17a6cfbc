"""The engine behind :func:`helpers.attribution.attribute`: tensors in, tensors out (paper section 3).

One pass records A and V of every layer. Then copies of the input run with a layer's contexts replaced by points
on the straight path from C0 to C = A V, copies for many layers at once (:mod:`helpers._sweep`), and their gradients
G(a_k) = dF/dC are summed with the weights of the quadrature rule before they meet the values:

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

from helpers._sweep import Sweep
from helpers.attention import _OPEN, Touch, UnsupportedModelError, check_model, touch
from helpers.blocks import Blocks
from helpers.inputs import TOKENS_AT_ONCE
from helpers.outputs import log_probabilities, logits_of, probabilities
from helpers.quadrature import NESTED, check_steps, points_and_weights, stages

OUTPUTS = ("probability", "logit", "log-probability")
BASELINES = ("zero", "mean")
PRECISIONS = ("float32", "bfloat16")
AUTO_STEPS = (*NESTED, 192)  # points tried in turn; 192 are Gauss points, with none of those before
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
    batch_tokens: int | None = None,
    precision: str = "float32",
    read: Callable[[Any], Tensor] | None = None,
) -> Scores:
    """Attribute as :func:`attribute` does, for a batch of ready-made model inputs padded on either side.

    Args:
        inputs: what ``model(**inputs)`` takes, tensors [batch, token].
        target: class indices [batch]; None for the predicted classes.
        read: what to explain of a model that is no classifier of texts: a function from the model's outputs to logits
            [batch, class], over which ``output`` and ``target`` are taken. ``lambda o: o.start_logits`` explains where
            an answer starts, ``lambda o: o.logits[:, 5]`` the label of token 5. It is called with copies of the rows,
            any number of them, and has to treat all rows alike. None: the classifier's logits.

    The other arguments, and what is raised: see :func:`attribute`.
    """
    plan = plan_of(steps, rule, output, baseline, tolerance, floor, gap, batch_tokens, precision)
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
    batch_tokens: int | None
    precision: str = "float32"

    @property
    def rules(self) -> list[tuple[str, int]]:
        """(rule, points) to try in turn."""
        return [("gauss" if self.rule == "nested" and n not in NESTED else self.rule, n) for n in self.levels]


def plan_of(
    steps, rule, output, baseline, tolerance, floor, gap, batch_tokens=None, precision: str = "float32"
) -> Plan:
    """Check the settings and return them as a :class:`Plan`; ValueError for what is unknown or out of range."""
    if output not in OUTPUTS:
        raise ValueError(f"The output {output!r} is not known: use one of {', '.join(OUTPUTS)}.")
    if baseline not in BASELINES:
        raise ValueError(f"The baseline {baseline!r} is not known: use one of {', '.join(BASELINES)}.")
    if not (tolerance > 0 and floor >= 0):
        raise ValueError(f"tolerance is {tolerance!r} and floor {floor!r}: positive numbers are needed.")
    if precision not in PRECISIONS:
        raise ValueError(f"The precision {precision!r} is not known: use one of {', '.join(PRECISIONS)}.")
    if batch_tokens is not None:
        check_steps(batch_tokens, "batch_tokens")
    if steps == "auto":
        if not gap:
            raise ValueError("steps='auto' goes by the gap: for gap=False give a number of points.")
        if rule not in (None, "nested"):
            raise ValueError(f"steps='auto' adds points by the nested rule; for the rule {rule!r} give a number.")
        if precision != "float32":
            raise ValueError(f"steps='auto' goes by a gap finer than {precision} resolves: give a number of points.")
        return Plan(AUTO_STEPS, "nested", output, baseline, tolerance, floor, True, batch_tokens)
    if isinstance(steps, str):
        raise ValueError(f"steps is {steps!r}: give a whole number of points, or 'auto'.")
    rule = "right" if rule is None else rule
    points_and_weights(rule, steps)  # raises before any work
    return Plan((int(steps),), rule, output, baseline, tolerance, floor, bool(gap), batch_tokens, precision)


def attribute_planned(
    model, inputs: dict[str, Tensor], target: Tensor | None, layers, plan: Plan, read: Callable[[Any], Any] = logits_of
) -> Scores:
    """Attribute one batch by a checked plan; see :func:`attribute_inputs`."""
    if plan.precision == "bfloat16" and model.dtype not in (torch.float32, torch.bfloat16):
        raise ValueError(
            f"precision='bfloat16' is for models in float32, and this one is in {model.dtype}: leave precision out, or "
            "call model.float() first."
        )

    def logits_at(inputs: Mapping[str, Tensor]) -> Tensor:
        return _checked(read(model(**inputs)), len(next(iter(inputs.values()))))

    inputs = {name: tensor.clone() if tensor.is_inference() else tensor for name, tensor in inputs.items()}
    exact = torch.autocast(model.device.type, enabled=False)  # a caller's autocast would move the scores unsaid
    with torch.inference_mode(False), exact, touch(model, record=True) as session, frozen(model):
        check_outer(session)
        blocks = Blocks(model, session)
        with torch.no_grad(), blocks.watch():
            logits = logits_at(inputs)
        _check_finite(logits)
        attention, values = dict(session.attention), dict(session.values)
        layers = chosen_layers(layers, session.calls)
        _check_square(attention, len(logits))
        session.record = False
        blocks.narrow(lambda: logits_at(inputs), logits)
        predicted = logits.argmax(-1)
        target = predicted if target is None else _class_indices(target, logits)
        function = function_of(model, plan.output)
        value = function(logits, target)
        asked = tuple(sorted(set(layers)))
        weights, keys = (torch.cat([found[layer] for layer in asked]) for found in (attention, values))
        base = weights.mean(dim=1, keepdim=True) if plan.baseline == "mean" else torch.zeros_like(weights[:, :1])
        difference = weights - base
        start = base.expand_as(weights) @ keys
        paths = Sweep(
            logits_at,
            blocks,
            inputs,
            target,
            function,
            plan.batch_tokens or TOKENS_AT_ONCE[weights.device.type == "cpu"],
            plan.precision,
            asked,
            start,
            difference @ keys,
        )
        paths.prove()
        found = (*_integrate(paths, difference, keys, value, plan), weights)
    order = [asked.index(layer) for layer in layers]
    scores, begin, gap, steps, kept = (part.unflatten(0, (len(asked), -1))[order].transpose(0, 1) for part in found)
    probability = function_of(model, "probability")(logits, target)
    if logits.shape[-1] == 1:
        probability = torch.full_like(probability, torch.nan)
    return Scores(scores, kept, value, probability, target, predicted, begin, gap, steps, layers)


@contextmanager
def frozen(model: nn.Module) -> Iterator[None]:
    """No gradients for weights: the graph begins at the contexts, and nothing below them is kept."""
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    for parameter in trained:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in trained:
            parameter.requires_grad_(True)


def check_outer(session: Touch) -> None:
    """Refuse what a touch around this one changes for some rows of the batch: copies of a row would not know theirs."""
    outer = [one for one in _OPEN.get() if one is not session and session.modules & one.modules]
    by_row = any(factor.ndim > 3 and len(factor) > 1 for one in outer for factor in one.factors.values())
    if by_row or any(one.contexts for one in outer):
        raise ValueError(
            "The model is inside touch(...) with contexts, or with factors that differ between the rows of the batch: "
            "give factors that are the same for all rows, [1, head, query, key], and attribute one row at a time."
        )


def _checked(logits: object, rows: int) -> Tensor:
    if not isinstance(logits, Tensor) or logits.ndim != 2:
        raise UnsupportedModelError(
            "The model gives no class logits [batch, class]: load it with AutoModelForSequenceClassification, or say "
            f"with `read` what of its outputs to explain ({tuple(getattr(logits, 'shape', ()))} is what it gave)."
        )
    if len(logits) != rows:
        raise ValueError(
            f"`read` gave {len(logits)} rows of logits for {rows} rows of inputs. It is given copies of the rows, any "
            "number of them, so it must treat all alike: o.logits[:, 5], not o.logits[[0, 1], [5, 7]]."
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


def chosen_layers(layers, count: int) -> tuple[int, ...]:
    """Return the layers asked for, all for None; ValueError where there is no such layer."""
    if layers is None:
        return tuple(range(count))
    chosen = tuple(layers) if isinstance(layers, Iterable) else (layers,)
    if not chosen or any(
        isinstance(n, bool) or not isinstance(n, int | np.integer) or not 0 <= n < count for n in chosen
    ):
        raise ValueError(f"layers is {layers!r}: give numbers from 0 to {count - 1}, or None for all.")
    return tuple(int(n) for n in chosen)


def _check_square(attention: dict[int, Tensor], batch: int) -> None:
    shapes = {tuple(weights.shape) for weights in attention.values()}
    if len(shapes) > 1 or any(shape[-1] != shape[-2] for shape in shapes):
        raise UnsupportedModelError(
            f"The layers' attention [batch, head, query, key] differs in shape ({sorted(shapes)}): encoder-decoder "
            "models and layers of unequal width are not supported."
        )
    if any(shape[0] != batch for shape in shapes):
        raise UnsupportedModelError(
            f"The layers' attention has the shapes {sorted(shapes)} for a batch of {batch}: this model attends within "
            "parts of its input, so one list of tokens can't name the links. Take one whose tokens all see each other."
        )


def function_of(model: PreTrainedModel, output: str) -> Callable[[Tensor, Tensor], Tensor]:
    """Return F: (logits [row, class], target [row]) -> the explained output of every row, at least float32."""

    def function(logits: Tensor, target: Tensor) -> Tensor:
        if output == "logit":
            values = logits.to(torch.promote_types(logits.dtype, torch.float32))
        else:
            values = (probabilities if output == "probability" else log_probabilities)(logits, model.config)
        return values.gather(-1, target[:, None])[:, 0]

    return function


def _integrate(paths: Sweep, difference: Tensor, values: Tensor, value: Tensor, plan: Plan) -> tuple[Tensor, ...]:
    """Return scores [pair, head, query, key], start, gap and steps [pair].

    Args:
        difference, values: A - A0 [pair, head, query, key] and V [pair, head, key, dim].
        value: F, [batch].
    """
    count, exact = len(difference), value.dtype
    start = paths.outputs_at_start() if plan.gap else value.new_full((count,), torch.nan)
    change = (value.repeat(len(paths.layers)) - start).double()
    allowed = (plan.tolerance * change.abs()).clamp(min=plan.floor)
    scores = torch.zeros_like(difference, dtype=exact)
    gap, steps = torch.zeros_like(change), paths.target.new_zeros(count)
    pairs, sums = torch.arange(count, device=difference.device), None
    for (_, level), (points, weights) in zip(plan.rules, stages(plan.rules), strict=True):
        added = paths.gradients(pairs, points, weights)
        sums = added if sums is None else sums + added
        keys = values[pairs].to(exact).transpose(-1, -2)
        scores[pairs] = difference[pairs].to(exact) * (sums[0].to(exact) @ keys)
        gap[pairs] = scores[pairs].sum((1, 2, 3), dtype=torch.float64) - change[pairs]
        steps[pairs] = level
        left = ~(gap[pairs].abs() <= allowed[pairs])
        if not (plan.gap and left.any()):
            break
        pairs, sums = pairs[left], sums[1:, left]
    return scores, start.double(), gap, steps
