"""Copies of a batch along the paths of many layers at once, and the slopes of what the model gives out for them.

The path of layer l (paper section 3) changes nothing below l. So a copy for layer l joins the pass at l, and one pass
from the lowest layer up carries the copies of all of them (:mod:`helpers.blocks`): six calls of a block for six
layers, not twenty-one.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from helpers.blocks import Blocks, close


@dataclass
class Sweep:
    """The straight paths of the layers' contexts for the rows of a batch, and the rest of the model behind them.

    A pair is one row's path in one layer: pair p is row p % batch in layer layers[p // batch]. Copies of many pairs go
    through the model together, each from its own layer on (:mod:`helpers.blocks`).

    start, change: C0 and C - C0, [pair, head, query, dim].
    """

    logits_at: Callable[[Mapping[str, Tensor]], Tensor]
    blocks: Blocks
    inputs: dict[str, Tensor]
    target: Tensor
    function: Callable[[Tensor, Tensor], Tensor]
    batch_tokens: int
    precision: str
    layers: tuple[int, ...]
    start: Tensor
    change: Tensor

    def prove(self) -> None:
        """Have whole passes made where copies fare otherwise in them: a model may keep things between its blocks.

        Of models whose parts are all torch's and transformers' own that is not so.
        """
        if not self.blocks.complete or self.blocks.familiar:
            return
        last, calls = len(self.layers) - 1, self.blocks.calls
        pairs = torch.tensor(sorted({0, last // 2, last}), device=self.start.device) * len(self.target)
        contexts = self.start[pairs] + self.change[pairs] / 2
        with torch.no_grad():
            try:
                found = self._logits(pairs, contexts)
            except Exception:  # whatever a block says that misses what another left for it
                found = None
            self.blocks.calls = []
            whole = torch.cat([self._logits(*one) for one in zip(pairs[:, None], contexts[:, None], strict=True)])
        if found is not None and close(found, whole):
            self.blocks.calls = calls

    def outputs_at_start(self) -> Tensor:
        """Return F at the start of every path, [pair]."""
        pairs, found = torch.arange(len(self.start), device=self.start.device), []
        with torch.no_grad():
            self._in_parts(pairs, lambda part: found.append(self._outputs(pairs[part], self.start[part])))
        return torch.cat(found)

    def gradients(self, pairs: Tensor, points: np.ndarray, weights: np.ndarray) -> Tensor:
        """Return sum_k w_k dF/dC at C0 + a_k (C - C0) of some pairs, for several rules: [rule, pair, head, query, dim].

        Args:
            pairs: their numbers in ascending order.
            points, weights: a_k [point] and w_k [rule, point].
        """
        exact = torch.promote_types(self.start.dtype, torch.float32)
        a = torch.tensor(points, dtype=self.start.dtype, device=pairs.device)
        w = torch.tensor(weights, dtype=exact, device=pairs.device)
        total = self.start.new_zeros((len(w), len(pairs), *self.start.shape[1:]), dtype=exact)
        which = torch.arange(len(pairs), device=pairs.device).repeat_interleave(len(a))  # of every copy, its pair
        k = torch.arange(len(a), device=pairs.device).repeat(len(pairs))  # and its point

        def add(part: slice) -> None:
            copies = pairs[which[part]]
            contexts = (self.start[copies] + a[k[part], None, None, None] * self.change[copies]).requires_grad_()
            with torch.enable_grad(), self._autocast():
                outputs = self._outputs(copies, contexts)
                slopes = torch.autograd.grad(outputs.sum(), contexts, materialize_grads=True)[0]
            some = slice(int(which[part][0]), int(which[part][-1]) + 1)
            belongs = which[part] == torch.arange(some.start, some.stop, device=pairs.device)[:, None]
            total[:, some] += torch.einsum("rc,pc,chqd->rphqd", w[:, k[part]], belongs.to(exact), slopes.to(exact))

        self._in_parts(pairs[which], add)
        return total

    def _outputs(self, pairs: Tensor, contexts: Tensor) -> Tensor:
        """Return F of one copy a pair whose layer has the given contexts, [pair]; pairs in ascending order."""
        return self.function(self._logits(pairs, contexts), self.target[pairs % len(self.target)])

    def _logits(self, pairs: Tensor, contexts: Tensor) -> Tensor:
        rows, first = pairs % len(self.target), self._layers(pairs)
        counts = Counter(first)
        parts = dict(zip(counts, contexts.split(list(counts.values())), strict=True))
        with self.blocks.begin_at(first, rows, contexts=parts):
            return self.logits_at({name: tensor[rows] for name, tensor in self.inputs.items()})

    def _autocast(self) -> AbstractContextManager:
        half = self.precision == "bfloat16"
        return torch.autocast(self.start.device.type, torch.bfloat16) if half else nullcontext()

    def _layers(self, pairs: Tensor) -> list[int]:
        return [self.layers[i] for i in (pairs // len(self.target)).tolist()]

    def _in_parts(self, pairs: Tensor, work: Callable[[slice], None]) -> None:
        """Call ``work`` for parts of the copies that fit the budget, and for smaller ones once memory runs out."""
        layers, first = self._layers(pairs), 0
        while first < len(layers):
            stop = min(len(layers), first + max(1, self.batch_tokens // self.start.shape[-2]))
            if not self.blocks.complete:
                stop = min(stop, bisect_right(layers, layers[first]))  # a pass in full changes one layer
            elif stop - first == len(self.target) and layers[first] < layers[stop - 1]:
                stop -= 1  # blocks tells a copy's share of the arguments by their number
            try:
                work(slice(first, stop))
            except RuntimeError as error:
                if stop - first == 1 or not _out_of_memory(error):
                    raise
                self.batch_tokens = (stop - first) // 2 * self.start.shape[-2]
                continue
            first = stop


def _out_of_memory(error: RuntimeError) -> bool:
    """True if a device or, in torch's own words, the processor's memory was full."""
    return isinstance(error, torch.OutOfMemoryError) or "can't allocate memory" in str(error)
