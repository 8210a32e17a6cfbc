"""Other starts and other paths for the integral (paper section 3 takes 0, one layer at a time).

The score of a link is an integral along a path that its attention takes. Two choices are in it. **Where does it
start?** The paper lets a layer's attention grow from 0. :func:`attribute_from` starts where one likes,

    Attr_h(A) = (A_h - A0_h) * integral over a in [0, 1] of dF/dA_h at A0 + a (A - A0) da

such as at a uniform A0: every token reads all the tokens that it may read, equally. **What moves along?** The paper
moves one layer and lets the others run. :func:`attribute_together` multiplies several layers by a at once,

    Attr^l_h(A) = integral of A^l_h(a) * dF/d(a A^l_h)(a) da

where A^l(a) is what layer l attends to when all layers are multiplied by a. With one layer this is the paper's score;
with all of them the scores of **all layers together** add up to F(A) - F(0 everywhere). The gradient goes to every link
of every layer at every point, as in the plain algorithm: for small models and short texts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from helpers.attention import UnsupportedModelError, touch
from helpers.engine import OUTPUTS, chosen_layers, frozen, function_of
from helpers.outputs import logits_of
from helpers.quadrature import points_and_weights

Start = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Moved:
    """Scores along a path.

    Attributes:
        scores: [batch, layer, head, query, key], in the unit of F.
        attention: A, same shape.
        value: F(A), [batch].
        start: F where the path begins: [batch, layer], or [batch, 1] where all layers move together.
        gap: the sum of the scores that share a path minus (value - start), same shape as ``start``.
        target: the class explained, [batch].
        layers: the layer numbers.
    """

    scores: Tensor
    attention: Tensor
    value: Tensor
    start: Tensor
    gap: Tensor
    target: Tensor
    layers: tuple[int, ...]


def zero(attention: Tensor) -> Tensor:
    """Return the paper's start: no token attends to any other."""
    return torch.zeros_like(attention)


def mean(attention: Tensor) -> Tensor:
    """Return the mean head's attention, for every head."""
    return attention.mean(dim=1, keepdim=True).expand_as(attention)


def uniform(attention: Tensor) -> Tensor:
    """Return equal attention to every token that may be read: attention is 0 on padding and, in a decoder, ahead."""
    # a token that may be read has a weight above 0 in some head: a softmax gives 0 only where all digits are used up
    readable = (attention > 0).any(dim=1, keepdim=True).expand_as(attention).to(attention.dtype)
    return readable / readable.sum(dim=-1, keepdim=True).clamp(min=1)


def attribute_from(
    model: PreTrainedModel, inputs: Mapping[str, Tensor], start: Start = uniform, *, target: Tensor | None = None,
    steps: int = 12, rule: str = "gauss", output: str = "probability", layers: Sequence[int] | None = None,
    read: Callable[[Any], Tensor] = logits_of,
) -> Moved:  # fmt: skip
    """Attribute with a start of one's own, one layer at a time.

    Args:
        start: from a layer's attention [batch, head, query, key] to where its path begins, same shape:
            ``zero``, ``mean``, ``uniform``, or a function of your own.
        target, steps, rule, output, layers, read: see :func:`helpers.engine.attribute_inputs`.

    Raises:
        ValueError: an unknown rule, output, layer or class, steps below 1, or a start of another shape.
    """
    points, weights = _points(rule, steps, output)
    with _running(model, inputs, target, output, read) as run:
        layers = chosen_layers(layers, len(run.attention))
        parts = []
        for layer in layers:
            attention, values = run.attention[layer], run.values[layer]
            first = start(attention)
            if first.shape != attention.shape:
                raise ValueError(f"The start has shape {tuple(first.shape)}: {tuple(attention.shape)} is needed.")
            begin, change = first @ values, (attention - first) @ values
            gradient = torch.zeros_like(begin)
            for a, w in zip(points, weights, strict=True):
                context = (begin + float(a) * change).requires_grad_()
                value = run.output(contexts={layer: context})
                gradient += float(w) * torch.autograd.grad(value.sum(), context, materialize_grads=True)[0]
            with torch.no_grad():
                at_start = run.output(contexts={layer: begin})
            parts.append(((attention - first) * (gradient @ values.transpose(-1, -2)), at_start))
    scores, starts = (torch.stack(part, dim=1) for part in zip(*parts, strict=True))
    gap = scores.sum((2, 3, 4)) - (run.value[:, None] - starts)
    return run.moved(scores, starts, gap, tuple(layers))


def attribute_together(
    model: PreTrainedModel, inputs: Mapping[str, Tensor], *, target: Tensor | None = None, steps: int = 12,
    rule: str = "gauss", output: str = "probability", layers: Sequence[int] | None = None,
    read: Callable[[Any], Tensor] = logits_of,
) -> Moved:  # fmt: skip
    """Attribute along the path on which the attention of several layers is multiplied by a at once, from 0 to 1.

    Args:
        layers: the layers that move together; None for all.
        target, steps, rule, output, read: see :func:`helpers.engine.attribute_inputs`.

    Raises:
        ValueError: an unknown rule, output, layer or class, or steps below 1.
    """
    points, weights = _points(rule, steps, output)
    with _running(model, inputs, target, output, read) as run:
        layers = chosen_layers(layers, len(run.attention))
        scores = [torch.zeros_like(run.attention[layer]) for layer in layers]
        for a, w in zip(points, weights, strict=True):
            # one factor a link, all of them a: the slope along it is A(a) * dF/d(a A(a))
            factors = {n: torch.full_like(run.attention[n], float(a)).requires_grad_() for n in layers}
            value = run.output(factors=factors)
            slopes = torch.autograd.grad(value.sum(), list(factors.values()), materialize_grads=True)
            scores = [score + float(w) * slope for score, slope in zip(scores, slopes, strict=True)]
        with torch.no_grad():
            start = run.output(factors={n: torch.zeros(1, 1, 1, 1) for n in layers})[:, None]
    total = torch.stack(scores, dim=1)
    return run.moved(total, start, total.sum((1, 2, 3, 4))[:, None] - (run.value[:, None] - start), layers)


def _points(rule: str, steps: int, output: str):
    if output not in OUTPUTS:
        raise ValueError(f"The output {output!r} is not known: use one of {', '.join(OUTPUTS)}.")
    return points_and_weights(rule, steps)


@dataclass
class _Run:
    """One batch under one model: its attention and values as they are, and F when something is changed."""

    model: PreTrainedModel
    inputs: Mapping[str, Tensor]
    read: Callable[[Any], Tensor]
    function: Callable[[Tensor, Tensor], Tensor]
    attention: dict[int, Tensor]
    values: dict[int, Tensor]
    target: Tensor
    value: Tensor

    def output(
        self, *, factors: Mapping[int, Tensor] | None = None, contexts: Mapping[int, Tensor] | None = None
    ) -> Tensor:
        """Return F under changes as :func:`touch` takes them, [batch]."""
        with touch(self.model, factors=factors, contexts=contexts):
            return self.function(self.read(self.model(**self.inputs)), self.target)

    def moved(self, scores: Tensor, start: Tensor, gap: Tensor, layers: tuple[int, ...]) -> Moved:
        """Return the scores with what goes with them."""
        kept = torch.stack([self.attention[layer] for layer in layers], dim=1)
        return Moved(scores, kept, self.value, start, gap, self.target, layers)


@contextmanager
def _running(model, inputs, target, output, read) -> Iterator[_Run]:
    with torch.inference_mode(False):
        inputs = {name: tensor.clone() if tensor.is_inference() else tensor for name, tensor in inputs.items()}
        with _run(model, inputs, target, output, read) as run:
            yield run


@contextmanager
def _run(model, inputs, target, output, read) -> Iterator[_Run]:
    with touch(model, record=True) as seen, torch.no_grad():
        logits = read(model(**inputs))
    if any(len(attention) != len(logits) for attention in seen.attention.values()):
        raise UnsupportedModelError(
            f"{type(model).__name__} attends within parts of its input, so one list of tokens can't name the links. "
            "Take a model whose tokens may all read each other (ViT, BERT, ...)."
        )
    target = logits.argmax(-1) if target is None else target
    if target.shape != logits.shape[:1] or not ((target >= 0) & (target < logits.shape[-1])).all():
        raise ValueError(f"target is {target!r}: a class from 0 to {logits.shape[-1] - 1} is needed for every row.")
    function = function_of(model, output)
    value = function(logits, target)
    with frozen(model), torch.enable_grad():
        yield _Run(model, inputs, read, function, dict(seen.attention), dict(seen.values), target, value)
