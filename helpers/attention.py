"""The one way to touch a model: read its attention, or change it, for the length of a ``with`` block.

Attribution (paper section 3), head pruning (4.2 and the first use case) and the masking of edges all
need the same few things: the weights A, the values V and the contexts C = A V of a layer, a factor on
A, or another C. :func:`touch` offers them through transformers' own switch, an attention function
registered together with its mask function (without the mask function the model gets no mask at all,
and padding is attended to in silence).

Layers are numbered 0, 1, ... by the order in which attention is called in one forward pass: ALBERT
calls one shared module again and again, and DistilBERT's modules carry no number.

Shapes: weights [batch, head, query, key], values [batch, head, key, dim], contexts
[batch, head, query, dim].

    >>> with touch(model, record=True) as seen:
    ...     model(**inputs)
    >>> seen.attention[0].shape  # layer 0: batch, head, query, key
    >>> with touch(model, factors=gate_heads(gates)):
    ...     model(**inputs)      # heads whose gate is 0 are off
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from threading import RLock
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.masking_utils import eager_mask

NAME = "attattr"
# What a model may ask of its attention beyond softmax(q k^T * scaling + mask) v: not done here, so refused.
_REFUSED = ("softcap", "s_aux", "sinks", "position_bias", "head_mask")


class UnsupportedModelError(TypeError):
    """The model's attention can't be reached, so any answer about it would be wrong."""


@dataclass
class Touch:
    """What one :func:`touch` block reads and changes. The four fields may be changed between forward passes.

    Attributes:
        record: layers to read: True for all, or a collection of layer numbers.
        factors: layer -> what A is multiplied by after the softmax, any shape that broadcasts to
            [batch, head, query, key]. Rows are not normalised again: a factor of 0 means that no token
            attends to any other, the start of the attribution path.
        contexts: layer -> a tensor [batch, head, query, dim] that takes the place of A V.
        attention: layer -> A as used in the last forward pass, factors included.
        values: layer -> V of the last forward pass.
        calls: how many attention layers the last forward pass had.
    """

    record: bool | frozenset[int] = False
    factors: Mapping[int, Tensor] = field(default_factory=dict)
    contexts: Mapping[int, Tensor] = field(default_factory=dict)
    attention: dict[int, Tensor] = field(default_factory=dict)
    values: dict[int, Tensor] = field(default_factory=dict)
    calls: int = 0
    modules: frozenset[int] = frozenset()

    def records(self, layer: int) -> bool:
        """True if this block reads the layer."""
        return self.record is True or (self.record is not False and layer in self.record)

    def context(self, layer: int) -> Tensor:
        """Return C = A V of a recorded layer, [batch, head, query, dim]."""
        return self.attention[layer] @ self.values[layer]

    def _begin(self, *_: object) -> None:
        self.calls = 0
        self.attention.clear()
        self.values.clear()

    def _end(self, *_: object) -> None:
        if self.calls == 0:
            raise UnsupportedModelError(
                "The model ran without calling the attention function that was set, so its attention can't be read or "
                "changed. Use a model whose attention goes through transformers' AttentionInterface "
                "(BERT, RoBERTa, ELECTRA, DistilBERT, ALBERT, XLM-R, ModernBERT, GPT-2, ...)."
            )
        named = {*self.factors, *self.contexts, *(self.record if isinstance(self.record, frozenset) else ())}
        wrong = sorted(layer for layer in named if not 0 <= layer < self.calls)
        if wrong:
            raise ValueError(f"Layers {wrong} were named, but this model's layers are 0 to {self.calls - 1}.")


# Two threads in one model would see each other's changes: the second waits. Blocks of one thread nest.
_LOCK = RLock()
_LOCKS: WeakKeyDictionary[PreTrainedModel, AbstractContextManager] = WeakKeyDictionary()
_OPEN: ContextVar[tuple[Touch, ...]] = ContextVar("open_touches", default=())


@contextmanager
def touch(
    model: PreTrainedModel,
    *,
    record: bool | set[int] | list[int] = False,
    factors: Mapping[int, Tensor] | None = None,
    contexts: Mapping[int, Tensor] | None = None,
) -> Iterator[Touch]:
    """Switch a model to the readable attention for the block, in eval mode, and restore it afterwards.

    Blocks nest: an inner block reads what the outer one has already changed, so attribution inside a
    ``touch(model, factors=gate_heads(...))`` explains the pruned model. Gradients flow through recorded
    tensors. A layer that is neither read nor scaled runs on the fused (sdpa) kernel. A second thread that asks for
    the same model waits. Don't copy or pickle a model inside the block: the copy would keep the switch.

    Args:
        record, factors, contexts: see :class:`Touch`.

    Raises:
        UnsupportedModelError: the model ignores the switch (DeBERTa-v2, for one), or asks its attention
            for something that is not done here.
        ValueError: a layer that the model lacks, or a shape that does not fit.
    """
    check_model(model)
    with _LOCK:
        lock = _LOCKS.setdefault(model, RLock())
    with lock, _touched(model, record, factors, contexts) as session:
        yield session


@contextmanager
def _touched(model, record, factors, contexts) -> Iterator[Touch]:
    session = Touch(
        record if isinstance(record, bool) else frozenset(record),
        dict(factors or {}),
        dict(contexts or {}),
        modules=frozenset(id(module) for module in model.modules()),
    )
    before = [(m, m.config._attn_implementation) for m in model.modules() if isinstance(m, PreTrainedModel)]
    modes = [(module, module.training) for module in model.modules()]
    hooks = [model.register_forward_pre_hook(session._begin), model.register_forward_hook(session._end)]
    token = _OPEN.set((*_OPEN.get(), session))
    try:
        _switch(model)
        model.eval()
        yield session
    finally:
        _OPEN.reset(token)
        for hook in hooks:
            hook.remove()
        for module, implementation in before:
            if module.config._attn_implementation != implementation:
                module.set_attn_implementation(implementation)
        for module, training in modes:
            module.training = training


def check_model(model: object) -> None:
    """Raise UnsupportedModelError, saying what to do, unless it is a transformers model of one encoder or decoder."""
    if isinstance(model, PreTrainedModel):
        if model.config.is_encoder_decoder:
            raise UnsupportedModelError(
                f"{type(model).__name__} is an encoder-decoder model: its attention layers read different tokens, so "
                "one list of tokens can't name them. Take an encoder (BERT, RoBERTa, ...) or a decoder (GPT-2)."
            )
        return
    cure = "load it with AutoModelForSequenceClassification.from_pretrained(...)"
    if hasattr(model, "tokenizer") and hasattr(model, "model"):
        cure = "pass its .model and its .tokenizer"
    elif hasattr(model, "get_base_model"):
        cure = "pass model.merge_and_unload() or model.get_base_model()"
    elif hasattr(model, "_orig_mod"):
        cure = "pass the model that was compiled (model._orig_mod)"
    elif hasattr(model, "module"):
        cure = "pass the model inside (model.module)"
    raise UnsupportedModelError(f"A transformers model is needed and {type(model).__name__} was given: {cure}.")


def _switch(model: PreTrainedModel) -> None:
    if model.config._attn_implementation == NAME:  # a nested block
        return
    model.set_attn_implementation(NAME)
    if model.config._attn_implementation != NAME:
        raise UnsupportedModelError(
            f"{type(model).__name__} computes attention in its own code and ignores the attention switch, so nothing "
            "could be attributed. DeBERTa is such a family; BERT, RoBERTa, ELECTRA, DistilBERT, ALBERT, XLM-R, "
            "ModernBERT and GPT-2 work."
        )


def _attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    **kwargs: object,
) -> tuple[Tensor, Tensor | None]:
    """C = (factor * softmax(q k^T * scaling + mask)) V, read and changed as the open blocks ask."""
    refused = [name for name in _REFUSED if kwargs.get(name) is not None]
    if refused:
        raise UnsupportedModelError(
            f"{type(module).__name__} needs {', '.join(refused)} in its attention: not supported."
        )
    sessions = [(session, session.calls) for session in _OPEN.get() if id(module) in session.modules]
    count_call(module)
    groups = query.shape[1] // key.shape[1]
    key, value = (t.repeat_interleave(groups, dim=1) if groups > 1 else t for t in (key, value))
    replaced = [session.contexts[layer] for session, layer in sessions if layer in session.contexts]
    if replaced:
        context, weights = _fitting(replaced[-1], query, value), None
    elif any(session.records(layer) or layer in session.factors for session, layer in sessions):
        weights = _weights(query, key, attention_mask, scaling, sessions, value)
        context = weights @ value
    else:
        mask = None if attention_mask is None else attention_mask[..., : key.shape[-2]]
        context = functional.scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=scaling)
        weights = None
    return context.transpose(1, 2).contiguous(), weights


def count_call(module: nn.Module, calls: int = 1) -> None:
    """Count attention calls of a module (or of a block that holds it) in every open block, done or left out.

    -1 takes one back: a layer that runs in two parts, for some rows and then for others, is one layer.
    """
    for session in _OPEN.get():
        if id(module) in session.modules:
            session.calls += calls


def _weights(query, key, mask, scaling, sessions, value) -> Tensor:
    scaling = query.shape[-1] ** -0.5 if scaling is None else scaling
    scores = query @ key.transpose(-1, -2) * scaling
    if mask is not None:
        scores = scores + mask
    exact = torch.promote_types(scores.dtype, torch.float32)  # half precision: the softmax is taken in float32
    weights = functional.softmax(scores, dim=-1, dtype=exact).to(query.dtype)
    for session, layer in sessions:
        if layer in session.factors:
            weights = _scaled(weights, session.factors[layer], layer)
        if session.records(layer):
            session.attention[layer], session.values[layer] = weights, value
    return weights


def _scaled(weights: Tensor, factor: Tensor, layer: int) -> Tensor:
    try:
        scaled = weights * factor.to(weights.device, weights.dtype)
    except RuntimeError:
        scaled = None
    if scaled is None or scaled.shape != weights.shape:
        raise ValueError(
            f"The factor of layer {layer} has shape {tuple(factor.shape)}, which does not broadcast to "
            f"[batch, head, query, key] = {tuple(weights.shape)}."
        )
    return scaled


def _fitting(context: Tensor, query: Tensor, value: Tensor) -> Tensor:
    expected = (*query.shape[:3], value.shape[-1])
    if tuple(context.shape) != expected:
        raise ValueError(
            f"A context of shape {tuple(context.shape)} was given where [batch, head, query, dim] = {expected}."
        )
    return context


def scale_layer(layer: int, factor: float | Tensor) -> dict[int, Tensor]:
    """Return factors that multiply all heads of one layer by ``factor``, a number or one a batch row."""
    # float64: a number has as many digits in Python, and a model in float64 shall see them all
    return {layer: torch.as_tensor(factor, dtype=torch.float64).reshape(-1, 1, 1, 1)}


def gate_heads(gates: np.ndarray | Tensor) -> dict[int, Tensor]:
    """Return factors that multiply every head by its gate: gates [layer, head], 1 keeps a head, 0 removes it."""
    gates = torch.as_tensor(gates)
    if gates.ndim != 2:
        raise ValueError(f"Gates have shape {tuple(gates.shape)}: [layer, head] is needed.")
    return {layer: row.reshape(1, -1, 1, 1) for layer, row in enumerate(gates)}


def keep_edges(edges: np.ndarray | Tensor) -> dict[int, Tensor]:
    """Return factors that keep only the given edges: [layer, query, key] or [layer, head, query, key], True keeps."""
    edges = torch.as_tensor(edges)
    if edges.ndim not in (3, 4):
        raise ValueError(
            f"Edges have shape {tuple(edges.shape)}: [layer, query, key] or [layer, head, query, key] is needed."
        )
    return {layer: matrix.reshape(1, -1, *matrix.shape[-2:]) for layer, matrix in enumerate(edges)}


AttentionInterface.register(NAME, _attention)
AttentionMaskInterface.register(NAME, eager_mask)
