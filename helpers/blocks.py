"""Begin a forward pass at a layer: what lies below it has run once and is not run again.

The path of layer l (paper section 3) changes nothing below l. :class:`Blocks` watches one pass, notes which
module held each attention call and what it gave out, and can then replay the pass from any layer for
copies of the batch. It relies on nothing but torch: a block is a member of an ``nn.ModuleList`` whose call
holds exactly one attention call, and whose output goes unchanged into the next block and is all that it leaves behind.
Where a model is built otherwise, ``complete`` is False and passes run in full, at a higher price and with the same
result.

Of the last block a classifier mostly reads one row a text. :meth:`Blocks.narrow` finds out, and proves it; then the
last block runs for that row only (:mod:`helpers._row`). A head that reads more, a mean over tokens say, gets all rows.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from transformers import Cache

from helpers._row import run_at_row
from helpers.attention import Touch, count_call


@dataclass
class _Call:
    """One call of a block: attention calls before and after it, its arguments, what it gave out."""

    module: nn.Module
    before: int
    after: int
    inputs: tuple[tuple, dict]
    output: Tensor | tuple
    version: int | None  # of the output when it was given out; a later change in place raises it
    wrote: bool  # into a dictionary or list among its arguments

    @property
    def given(self) -> Tensor | None:
        """The hidden states that it got."""
        return _tensor(*self.inputs)


@dataclass
class Blocks:
    """The blocks of a model in call order, one a layer, as seen in one watched pass."""

    model: nn.Module
    session: Touch
    calls: list[_Call] = field(default_factory=list)
    row: Tensor | None = None  # the one row of the last block that is read, [batch]; None: all may be

    @property
    def states(self) -> list[Tensor]:
        """The hidden states that each block gave out."""
        return [state for call in self.calls if (state := _hidden(call.output)) is not None]

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Note the blocks of the forward pass that runs inside."""
        seen: list[_Call] = []

        def note(module: nn.Module, forward: Callable, args: tuple, kwargs: dict) -> Tensor | tuple:
            shared = [value for value in (*args, *kwargs.values()) if isinstance(value, dict | list)]
            kept, before = [_items(value) for value in shared], self.session.calls
            output = forward(*args, **kwargs)
            wrote = [_items(value) for value in shared] != kept
            version = getattr(_hidden(output), "_version", None)
            seen.append(_Call(module, before, self.session.calls, (args, kwargs), output, version, wrote))
            return output

        members = {id(m): m for m_list in self.model.modules() if isinstance(m_list, nn.ModuleList) for m in m_list}
        with _forwards(members, note):
            yield
        found = [call for call in seen if call.after == call.before + 1]
        inner = {call.before: call for call in reversed(found)}  # of blocks in blocks the inner ones end first
        outer = {call.before: call for call in found}
        chains = ([layers[layer] for layer in sorted(layers)] for layers in (inner, outer))
        self.calls = next((chain for chain in chains if self._sound(chain)), [])

    def _sound(self, chain: Sequence[_Call]) -> bool:
        """True if there is a block a layer, and nothing goes from one to the next but the hidden states."""
        states = [_hidden(call.output) for call in chain]
        if len(chain) != self.session.calls or any(state is None for state in states):
            return False
        own = {id(weights) for weights in self.session.attention.values()}
        rest = [part for call in chain if isinstance(call.output, tuple) for part in call.output[1:]]
        return (
            all(state is call.given for state, call in zip(states, chain[1:], strict=False))
            and not any(call.wrote or call.version != getattr(_hidden(call.output), "_version", None) for call in chain)
            and all(part is None or isinstance(part, Cache) or id(part) in own for part in rest)
        )

    @property
    def complete(self) -> bool:
        """True if every layer has its block, so that a pass can begin anywhere."""
        return bool(self.calls)

    @property
    def familiar(self) -> bool:
        """True if all of the model is torch's or transformers' own: their blocks keep nothing from one to the next."""
        return all(type(module).__module__.startswith(("torch.", "transformers.")) for module in self.model.modules())

    def narrow(self, run: Callable[[], Tensor], logits: Tensor) -> None:
        """Set ``row`` if what follows the last block reads but one row of it for every text.

        Args:
            run: runs the model on the watched inputs and returns its logits.
            logits: what it returned when it was watched, [batch, class].
        """
        try:
            self.row = self._row_read(run, logits) if self.complete else None
            if self.row is not None:  # the last block itself, once: it might mix tokens elsewhere than in its attention
                with torch.no_grad(), self.begin_at(len(self.calls) - 1, _every(logits)):
                    self.row = self.row if close(run(), logits) else None
        except (RuntimeError, ValueError, IndexError):  # a block or head that one row, or a slope, can't pass through
            self.row = None

    def _row_read(self, run: Callable[[], Tensor], logits: Tensor) -> Tensor | None:
        """Return the one row of the last block that the head reads of every text, [batch]; None where it reads more."""
        last = self.states[-1].detach().requires_grad_()
        with torch.enable_grad(), self.begin_at(len(self.calls), _every(logits), last=last):
            different = torch.arange(1, logits.shape[-1] + 1, device=logits.device)  # so that classes don't cancel
            slope = torch.autograd.grad((run() * different).sum(), last)[0]
        row = (slope != 0).any(-1).int().argmax(-1)
        # A row without a slope here may have one elsewhere: the proof is that nan in all other rows reaches no output.
        unread = torch.ones(last.shape[:2], dtype=torch.bool, device=last.device).scatter(1, row[:, None], False)
        poisoned = last.detach().masked_fill(unread[..., None], torch.nan)
        with torch.no_grad(), self.begin_at(len(self.calls), _every(logits), last=poisoned):
            return row if close(run(), logits) else None

    @contextmanager
    def begin_at(
        self,
        layers: int | Sequence[int],
        rows: Tensor,
        *,
        contexts: Mapping[int, Tensor] | None = None,
        last: Tensor | None = None,
    ) -> Iterator[None]:
        """Let forward passes inside begin at a layer, for the given rows of the watched batch [row].

        Args:
            layers: where to begin, one for all rows, or one a row, in ascending order.
            contexts: by layer, what takes the place of A V there, for the rows that begin there
                [row, head, query, dim].
            last: what takes the place of the last block's hidden states, where that block is not run.

        Raises:
            ValueError: rows that begin at several layers, where :attr:`complete` is False.
        """
        first = [layers] * len(rows) if isinstance(layers, int) else list(layers)
        before, self.session.contexts = self.session.contexts, dict(contexts or {})
        try:
            if self.complete:
                pass_ = _Pass(self, first, rows, dict(contexts or {}), last)
                self.session.contexts = {}
                with _forwards({id(call.module): call.module for call in self.calls}, pass_.run):
                    yield
            elif len(set(first)) > 1:
                raise ValueError("This model's layers can't be begun at, so one pass can't begin at several of them.")
            else:
                yield
        finally:
            self.session.contexts = before


@dataclass
class _Pass:
    """Forward passes whose rows begin each at its own layer."""

    blocks: Blocks
    first: list[int]
    rows: Tensor
    contexts: dict[int, Tensor]
    last: Tensor | None
    count: int = 0

    def run(self, module: nn.Module, forward: Callable, args: tuple, kwargs: dict) -> Tensor | tuple:
        """Stand in for a block's forward: run it for the rows that have begun; what the others get is known."""
        number = self.count % len(self.blocks.calls)
        self.count += 1
        begun, own = bisect_left(self.first, number), bisect_right(self.first, number)
        if number not in self.contexts:  # those that begin here are like those that have begun
            begun = own
        found = [self._part(number, forward, args, kwargs, slice(0, begun), None)] if begun else []
        if own > begun:
            if begun:
                count_call(module, -1)  # the second call of one layer
            found.append(self._part(number, forward, args, kwargs, slice(begun, own), self.contexts[number]))
        if not own:
            count_call(module)
        if len(found) == 1 and own == len(self.rows):
            return found[0]
        output = self.blocks.calls[number].output
        hidden = [h for part in found if (h := _hidden(part)) is not None]
        if own < len(self.rows):  # of every block: a head may read them all
            hidden.append(self._known(number, self.rows[own:]))
        whole = hidden[0] if len(hidden) == 1 else torch.cat(hidden)
        if isinstance(output, Tensor):
            return whole
        return (whole, *(None if isinstance(part, Tensor) else part for part in output[1:]))  # weights of another pass

    def _known(self, number: int, rows: Tensor) -> Tensor:
        """What a block gave out when it was watched."""
        at_end = number == len(self.blocks.calls) - 1
        return self.last if at_end and self.last is not None else self.blocks.states[number][rows]

    def _part(self, number, forward, args, kwargs, part: slice, contexts: Tensor | None) -> Tensor | tuple:
        """Run a block for some of the rows."""
        if len(self.rows) > part.stop - part.start:
            seen = self.blocks.calls[number].inputs
            args, kwargs = (self._share(value, then, part) for value, then in zip((args, kwargs), seen, strict=True))
        if self.blocks.row is not None and number == len(self.blocks.calls) - 1:
            row = self.blocks.row[self.rows[part]]
            return run_at_row(forward, args, kwargs, _tensor(args, kwargs), row, contexts)
        session = self.blocks.session
        session.contexts = {} if contexts is None else {number: contexts}
        try:
            return forward(*args, **kwargs)
        finally:
            session.contexts = {}

    def _share(self, value: Any, seen: Any, part: slice) -> Any:
        """The share that some rows have of a block's argument.

        A tensor is cut that holds one entry a row now, and did so when it was seen with the watched batch.
        """
        if isinstance(value, Tensor):
            by_row = value.ndim > 0 and len(value) == len(self.rows)
            seen_by_row = isinstance(seen, Tensor) and len(seen) == len(self.blocks.states[0])
            return value[part] if by_row and seen_by_row else value
        if isinstance(value, dict):
            return {name: self._share(one, seen.get(name), part) for name, one in value.items()}
        if isinstance(value, tuple | list):
            return type(value)(self._share(one, then, part) for one, then in zip(value, seen, strict=True))
        return None if isinstance(value, Cache) else value  # a cache would keep the keys of some rows for others


@contextmanager
def _forwards(modules: dict[int, nn.Module], run: Callable) -> Iterator[None]:
    """Let ``run(module, forward, args, kwargs)`` stand in for the modules' forward."""

    def replaced(module: nn.Module) -> Callable:
        forward = module.forward
        return lambda *args, **kwargs: run(module, forward, args, kwargs)

    before = {key: module.__dict__.get("forward") for key, module in modules.items()}
    try:
        for module in modules.values():
            module.forward = replaced(module)
        yield
    finally:
        for key, module in modules.items():
            del module.forward
            if before[key] is not None:
                module.forward = before[key]


def _items(value: dict | list) -> list:
    """What a dictionary or list holds, by identity: tensors don't compare to one truth."""
    return [(key, id(one)) for key, one in (value.items() if isinstance(value, dict) else enumerate(value))]


def _every(logits: Tensor) -> Tensor:
    return torch.arange(len(logits), device=logits.device)


def close(found: Tensor, expected: Tensor) -> bool:
    """True if logits are equal but for rounding; nan is equal to nothing."""
    return torch.allclose(
        found, expected, rtol=0, atol=torch.finfo(expected.dtype).eps ** 0.5 * float(expected.abs().max())
    )


def _hidden(output: object) -> Tensor | None:
    """The hidden states in a block's output: the output itself, or its first part."""
    first = output[0] if isinstance(output, tuple) and output else output
    return first if isinstance(first, Tensor) else None


def _tensor(args: tuple, kwargs: dict) -> Tensor | None:
    """The first tensor that a block was given: its hidden states."""
    return next((value for value in (*args, *kwargs.values()) if isinstance(value, Tensor)), None)
