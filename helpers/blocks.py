"""Begin a forward pass at a layer: what lies below it has run once and is not run again.

The path of layer l (paper section 3) changes nothing below l. :class:`Blocks` watches one pass, notes which
module held each attention call and what it gave out, and can then replay the pass from any layer for
copies of the batch. It relies on nothing but torch: a block is a member of an ``nn.ModuleList`` whose call
holds exactly one attention call and whose output goes unchanged into the next block. Where a model is built
otherwise, ``complete`` is False and passes run in full, at a higher price and with the same result.

Of the last block a classifier mostly reads one row a text. :meth:`Blocks.narrow` finds out, and proves it; then the
last block runs for that row only (:mod:`helpers._row`). A head that reads more, a mean over tokens say, gets all rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from helpers._row import run_at_row
from helpers.attention import Touch, count_call


@dataclass
class _Call:
    """One call of a block: attention calls before and after it, the hidden states it got, what it gave out."""

    module: nn.Module
    before: int
    after: int
    given: Tensor | None
    output: Tensor | tuple


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
        begun: list[int] = []

        def begin(*_: object) -> None:
            begun.append(self.session.calls)

        def end(module: nn.Module, args: tuple, kwargs: dict, output: Tensor | tuple) -> None:
            seen.append(_Call(module, begun.pop(), self.session.calls, _tensor(args, kwargs), output))

        members = {id(m): m for m_list in self.model.modules() if isinstance(m_list, nn.ModuleList) for m in m_list}
        hooks = [module.register_forward_pre_hook(begin) for module in members.values()]
        hooks += [module.register_forward_hook(end, with_kwargs=True) for module in members.values()]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()
        layers = {call.before: call for call in seen if call.after == call.before + 1}  # the outermost ends last
        chain = [layers[layer] for layer in sorted(layers)]
        joined = all(
            two.given is not None and _hidden(one.output) is two.given
            for one, two in zip(chain, chain[1:], strict=False)
        )
        self.calls = chain if joined and len(chain) == self.session.calls else []

    @property
    def complete(self) -> bool:
        """True if every layer has its block, so that a pass can begin anywhere."""
        return bool(self.calls)

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
                    self.row = self.row if _close(run(), logits) else None
        except (RuntimeError, ValueError, IndexError):  # a block or head that one row, or a slope, can't pass through
            self.row = None

    def _row_read(self, run: Callable[[], Tensor], logits: Tensor) -> Tensor | None:
        """Return the one row of the last block that the head reads of every text, [batch]; None where it reads more."""
        last = self.states[-1].detach().requires_grad_()
        with torch.enable_grad(), self.begin_at(len(self.calls), _every(logits), last):
            different = torch.arange(1, logits.shape[-1] + 1, device=logits.device)  # so that classes don't cancel
            slope = torch.autograd.grad((run() * different).sum(), last)[0]
        row = (slope != 0).any(-1).int().argmax(-1)
        # A row without a slope here may have one elsewhere: the proof is that nan in all other rows reaches no output.
        unread = torch.ones(last.shape[:2], dtype=torch.bool, device=last.device).scatter(1, row[:, None], False)
        poisoned = last.detach().masked_fill(unread[..., None], torch.nan)
        with torch.no_grad(), self.begin_at(len(self.calls), _every(logits), poisoned):
            return row if _close(run(), logits) else None

    def _run_last(self, run: Callable, args: tuple, kwargs: dict, row: Tensor) -> Tensor | tuple:
        """Run the last block for one row a text."""
        given, self.session.contexts = self.session.contexts, {}  # the row's share of them is handed on
        try:
            contexts = given.get(len(self.calls) - 1)
            return run_at_row(run, args, kwargs, _tensor(args, kwargs), row, contexts)
        finally:
            self.session.contexts = given

    @contextmanager
    def begin_at(self, layer: int, rows: Tensor, last: Tensor | None = None) -> Iterator[None]:
        """Let forward passes inside begin at ``layer``, for the given rows of the watched batch [row].

        Args:
            last: what takes the place of the last block's hidden states, where that block is not run.
        """
        if not self.complete or (layer == 0 and self.row is None):
            yield
            return
        modules = {id(call.module): call.module for call in self.calls}
        states, row, count = self.states, self.row, 0

        def replay(module: nn.Module) -> Callable:
            run = module.forward

            def forward(*args: object, **kwargs: object) -> object:
                nonlocal count
                number, count = count % len(self.calls), count + 1
                at_end = number == len(self.calls) - 1
                if number >= layer:
                    if at_end and row is not None:
                        return self._run_last(run, args, kwargs, row[rows])
                    return run(*args, **kwargs)
                count_call(module)
                output = self.calls[number].output
                # of every block: a head may read them all
                hidden = last if at_end and last is not None else states[number][rows]
                return hidden if isinstance(output, Tensor) else (hidden, *output[1:])

            return forward

        before = {key: module.__dict__.get("forward") for key, module in modules.items()}
        try:
            for module in modules.values():
                module.forward = replay(module)
            yield
        finally:
            for key, module in modules.items():
                del module.forward
                if before[key] is not None:
                    module.forward = before[key]


def _every(logits: Tensor) -> Tensor:
    return torch.arange(len(logits), device=logits.device)


def _close(found: Tensor, expected: Tensor) -> bool:
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
