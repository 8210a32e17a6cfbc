"""Begin a forward pass at a layer: what lies below it has run once and is not run again.

The path of layer l (paper section 3) changes nothing below l. :class:`Blocks` watches one pass, notes which
module held each attention call and what it gave out, and can then replay the pass from any layer for
copies of the batch. It relies on nothing but torch: a block is a member of an ``nn.ModuleList`` whose call
holds exactly one attention call and whose output goes unchanged into the next block. Where a model is built
otherwise, ``complete`` is False and passes run in full, at a higher price and with the same result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from torch import Tensor, nn

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

    @contextmanager
    def begin_at(self, layer: int, rows: Tensor) -> Iterator[None]:
        """Let forward passes inside begin at ``layer``, for the given rows of the watched batch [row]."""
        if layer == 0 or not self.complete:
            yield
            return
        modules = {id(call.module): call.module for call in self.calls}
        states, count = self.states, 0

        def replay(module: nn.Module) -> Callable:
            run = module.forward

            def forward(*args: object, **kwargs: object) -> object:
                nonlocal count
                number, count = count % len(self.calls), count + 1
                if number >= layer:
                    return run(*args, **kwargs)
                count_call(module)
                output = self.calls[number].output
                hidden = states[number][rows]  # of every block: a head may read them all
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


def _hidden(output: object) -> Tensor | None:
    """The hidden states in a block's output: the output itself, or its first part."""
    first = output[0] if isinstance(output, tuple) and output else output
    return first if isinstance(first, Tensor) else None


def _tensor(args: tuple, kwargs: dict) -> Tensor | None:
    """The first tensor that a block was given: its hidden states."""
    return next((value for value in (*args, *kwargs.values()) if isinstance(value, Tensor)), None)
