"""A block run for the one row a text that is read behind it, with the keys and values of all rows.

A classifier reads one token of the last layer, [CLS] or the last one. That token's query needs the keys and values of
every token, but the output projection and the feed-forward part, three quarters of a layer, need its row alone.
Nothing is assumed about how a block is written, but that its attention ends in torch's
``scaled_dot_product_attention``: a first run is stopped there with queries, keys and values in hand, and a second
run, of the one row, is answered from them.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import Context

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode


class NotFusedError(RuntimeError):
    """The block's attention was not computed by ``scaled_dot_product_attention``, so it can't be answered for."""


class _Stop(Exception):
    """Ends a run at its attention; its arguments are those of the attention."""


class _Answered(TorchFunctionMode):
    """Lets ``answer`` stand in for ``scaled_dot_product_attention`` inside the block."""

    def __init__(self, answer: Callable[..., Tensor]) -> None:
        super().__init__()
        self.answer, self.asked = answer, False

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func is not functional.scaled_dot_product_attention:
            return func(*args, **(kwargs or {}))
        self.asked = True
        return self.answer(*args, **(kwargs or {}))


def run_at_row(
    run: Callable, args: tuple, kwargs: dict, hidden: Tensor, at: Tensor, contexts: Tensor | None = None
) -> Tensor | tuple:
    """Return what a block gives out where only one row a text counts; the other rows of its output are 0.

    Args:
        run, args, kwargs: the block's forward and what it is given.
        hidden: the hidden states among the arguments, [text, token, dim].
        at: the row that counts, [text].
        contexts: the block's contexts [text, head, query, dim], where they are given and not to be computed.

    Raises:
        NotFusedError: the attention can't be answered for.
    """
    text = torch.arange(len(hidden), device=hidden.device)
    if contexts is None:
        query, key, value, mask, scale = _until_attention(run, args, kwargs)
        if mask is not None:
            mask = mask.expand(len(hidden), *mask.shape[1:])
            mask = mask if mask.shape[2] == 1 else mask[text, :, at][:, :, None]

        def answer(*_: object, **__: object) -> Tensor:
            return functional.scaled_dot_product_attention(
                query[text, :, at][:, :, None], key, value, attn_mask=mask, scale=scale
            )
    else:

        def answer(*_: object, **__: object) -> Tensor:
            return contexts[text, :, at][:, :, None]

    row = hidden[text, at][:, None]
    with _Answered(answer) as mode:
        output = run(*(row if a is hidden else a for a in args), **_replaced(kwargs, hidden, row))
    if not mode.asked:
        raise NotFusedError
    first = output if isinstance(output, Tensor) else output[0]
    whole = first.new_zeros((*hidden.shape[:2], first.shape[-1])).index_put((text, at), first[:, 0])
    return whole if isinstance(output, Tensor) else (whole, *output[1:])


def _until_attention(run: Callable, args: tuple, kwargs: dict) -> tuple:
    """Return query, key, value, mask and scale with which a block's forward calls its attention."""

    def answer(query, key, value, attn_mask=None, *_, scale=None, **__):
        raise _Stop(query, key, value, attn_mask, scale)

    try:
        with _Answered(answer):
            Context().run(run, *args, **kwargs)  # an empty context: no open touch counts this call
    except _Stop as stop:
        return stop.args
    raise NotFusedError


def _replaced(kwargs: dict, old: Tensor, new: Tensor) -> dict:
    return {name: new if value is old else value for name, value in kwargs.items()}
