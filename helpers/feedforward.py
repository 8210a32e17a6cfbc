"""What the feed-forward blocks carry, which a map of attention leaves out: the same path integral on their output.

A layer has two parts, each added to the residual stream. Give each a gate g in [0, 1]:

    h = x + g_a * Attention(x)          y = h + g_f * FF(h)          (normalization where the family has it)

At g_a = g_f = 1 this is the model. The paper's path (section 3) turns up g_a alone, at g_f = 1. Here there are three:

    scaled="attention"      F(a, 1): the paper's, the scores of :func:`helpers.attribution.attribute`
    scaled="feed-forward"   F(1, a): the block's output at token p, FF_p, gets  integral of dF/d(a FF_p) . FF_p da
    scaled="both"           F(a, a): one path for the two, so that their scores share one account

By the fundamental theorem the scores of a path add up to F(1, 1) minus F at its start, whatever the network. On the
path "both" that is attention **and** feed-forward against a layer that does nothing at all; what attention sends
through the layer's feed-forward block, which reads h, is divided by how each gate moves F on the way. The scores of
the first two paths don't add up to it: each of them is an account with the other part in place.

``at_once`` turns up the gates of all layers together: one account for the whole network, so that layers compare.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from helpers.attention import Touch, UnsupportedModelError, check_model, touch
from helpers.attribution import target_numbers
from helpers.engine import Plan, check_outer, plan_of
from helpers.inputs import Text, encode, is_text
from helpers.outputs import logits_of, probabilities
from helpers.quadrature import points_and_weights

SCALED = ("attention", "feed-forward", "both")
# The module whose output is the block's, before the residual is added: BERT, RoBERTa, XLM-R, ELECTRA (and MiniLM,
# which is a BERT); DistilBERT; ALBERT; ModernBERT; GPT-2.
_OUTLET = re.compile(r"(\.layer\.\d+\.output\.dense|\.layer\.\d+\.ffn|\.ffn_output|\.layers\.\d+\.mlp|\.h\.\d+\.mlp)$")


@dataclass(frozen=True)
class BlockScores:
    """What the parts of every layer carry of one text's output, in the unit of F (probability of the target).

    Attributes:
        scaled: which parts the path turns up, one of :data:`SCALED`; a part that it doesn't has scores of 0.
        tokens: the model's tokens, padding cropped.
        attention: float64 [layer, head, query, key].
        feedforward: float64 [layer, token].
        target: the class explained.
        value: F of the model as it is.
        start: F where the path starts, float64 [layer]; [1] where all layers were turned up at once.
        gap: sum of an account's scores minus (value - start), same shape; 0 for an exact integral.
        steps: points used, same shape.
    """

    scaled: str
    tokens: tuple[str, ...]
    attention: np.ndarray
    feedforward: np.ndarray
    target: int
    value: float
    start: np.ndarray
    gap: np.ndarray
    steps: np.ndarray

    @property
    def parts(self) -> np.ndarray:
        """Sums of scores by layer and part, [layer, 2]: attention, feed-forward."""
        return np.stack([self.attention.sum(axis=(1, 2, 3)), self.feedforward.sum(axis=1)], axis=1)


def attribute_blocks(
    model: PreTrainedModel,
    tokenizer,
    texts: Text | Iterable[Text],
    *,
    scaled: str = "feed-forward",
    at_once: bool = False,
    target: int | str | Iterable[int | str] | None = None,
    steps: int | str = "auto",
    rule: str | None = None,
    tolerance: float = 0.01,
    floor: float = 1e-4,
    max_length: int | None = None,
    batch_tokens: int = 2048,
) -> BlockScores | list[BlockScores]:
    """Attribute F to the parts of every layer: integral over a of dF/d(a part) . part, along one path.

    F is the probability of the target; a model with one output is explained by that output.

    Args:
        model: BERT, RoBERTa, XLM-R, ELECTRA, MiniLM, DistilBERT, ALBERT, ModernBERT or GPT-2, with a classifier.
        tokenizer: the model's.
        texts: a text, a (first, second) pair, or a list of either.
        scaled: what the path turns up from nothing: "attention", "feed-forward", or "both" by the same a.
        at_once: False: a path a layer, other layers run on what they receive. True: one path for all layers.
        target: the class, by index or name, one for all or one a text; None for the predicted one.
        steps, rule, tolerance, floor: as for :func:`helpers.attribution.attribute`; the rule "left" is not for here,
            since its first point is a = 0, where what is scaled can't be told from what it is scaled to.
        max_length: cut texts to so many tokens.
        batch_tokens: at most about so many tokens go through the model at once.

    Raises:
        ValueError: an unknown part, class or rule; outputs that are nan.
        UnsupportedModelError: the attention or the feed-forward blocks can't be reached.
    """
    if scaled not in SCALED:
        raise ValueError(f"scaled is {scaled!r}: use one of {', '.join(SCALED)}.")
    plan = plan_of(steps, rule, "probability", "zero", tolerance, floor, True, batch_tokens)
    if plan.rule == "left":
        raise ValueError("The rule 'left' starts at a = 0, where no part can be measured: use 'gauss' or 'right'.")
    check_model(model)
    encoded = encode(model, tokenizer, texts, max_length=max_length)
    given = target_numbers(target, len(encoded.tokens), model)
    results: dict[int, BlockScores] = {}
    for rows in encoded.rows_by_length():
        wanted = None if given is None else torch.tensor([given[row] for row in rows])
        for row, found in zip(rows, _batch(model, encoded.batch(rows), wanted, scaled, at_once, plan), strict=True):
            results[row] = _cropped(found, encoded.tokens[row], scaled)
    ordered = [results[row] for row in range(len(encoded.tokens))]
    return ordered[0] if is_text(texts) else ordered


def _cropped(found: dict, tokens: tuple[str, ...], scaled: str) -> BlockScores:
    n = len(tokens)  # encode() pads on the right
    attention, feedforward = found.pop("attention")[..., :n, :n], found.pop("feedforward")[..., :n]
    return BlockScores(scaled=scaled, tokens=tokens, attention=attention, feedforward=feedforward, **found)


# ---- the gates -------------------------------------------------------------------------------------------------------


@dataclass
class _Gates:
    """Gates at the feed-forward blocks of a model; the layer is known from the attention calls before."""

    session: Touch
    factor: Mapping[int, Tensor] = field(default_factory=dict)  # layer -> [row]
    raw: dict[int, Tensor] = field(default_factory=dict)  # what the block gave, [row, token, dim]
    scaled: dict[int, Tensor] = field(default_factory=dict)  # what goes on
    calls: int = 0

    def __call__(self, _module: nn.Module, _args: tuple, output: Tensor) -> Tensor | None:
        layer, self.calls = self.session.calls - 1, self.calls + 1
        if layer not in self.factor:
            return None
        self.raw[layer], self.scaled[layer] = output, output * self.factor[layer].to(output.dtype).view(-1, 1, 1)
        return self.scaled[layer]


@contextmanager
def _gated(model: PreTrainedModel, session: Touch) -> Iterator[_Gates]:
    outlets = [module for name, module in model.named_modules() if _OUTLET.search(name)]
    if not outlets:
        raise UnsupportedModelError(
            f"The feed-forward blocks of {type(model).__name__} are not known here: use BERT, RoBERTa, XLM-R, ELECTRA, "
            "DistilBERT, ALBERT, ModernBERT or GPT-2, or add the module that gives their output to "
            "helpers/feedforward.py."
        )
    gates = _Gates(session)
    hooks = [module.register_forward_hook(gates) for module in outlets]
    try:
        yield gates
    finally:
        for hook in hooks:
            hook.remove()


@dataclass
class _Run:
    """A batch of texts in a gated model."""

    model: PreTrainedModel
    session: Touch
    gates: _Gates
    inputs: dict[str, Tensor]
    scaled: str
    target: Tensor

    def output(self, layers: Iterable[int], a: Tensor, rows: Tensor) -> Tensor:
        """Return F with the gates of the layers at a, [row]; a has one entry a row."""
        gated = dict.fromkeys(layers, a)
        by_row = {layer: a.view(-1, 1, 1, 1) for layer in layers}
        self.session.factors = {} if self.scaled == "feed-forward" else by_row
        self.session.record = frozenset(self.session.factors)
        self.gates.factor = gated if self.scaled != "attention" else {}
        self.gates.calls, self.gates.raw, self.gates.scaled = 0, {}, {}
        logits = logits_of(self.model(**{name: tensor[rows] for name, tensor in self.inputs.items()}))
        return probabilities(logits, self.model.config).gather(-1, self.target[rows, None])[:, 0]

    def slopes(self, layers: tuple[int, ...], a: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return dF/d(a part) * part: by link [row, layer, head, query, key], and by token [row, layer, token]."""
        with torch.enable_grad():
            value = self.output(layers, a.requires_grad_(), rows)
            weights = [self.session.attention[layer] for layer in layers if layer in self.session.factors]
            blocks = [self.gates.scaled[layer] for layer in layers if layer in self.gates.factor]
            slopes = torch.autograd.grad(value.sum(), [*weights, *blocks], materialize_grads=True)
        links = [s * (w / a.view(-1, 1, 1, 1)) for s, w in zip(slopes, weights, strict=False)]
        raw = [self.gates.raw[layer] for layer in layers if layer in self.gates.factor]
        parts = [(s * r).sum(-1) for s, r in zip(slopes[len(weights) :], raw, strict=True)]
        nothing = torch.zeros(len(rows), len(layers), dtype=value.dtype, device=value.device)
        return (
            torch.stack(links, dim=1).detach() if links else nothing[..., None, None, None],
            torch.stack(parts, dim=1).detach() if parts else nothing[..., None],
        )


# ---- the path --------------------------------------------------------------------------------------------------------


def _batch(model, inputs: dict[str, Tensor], target, scaled: str, at_once: bool, plan: Plan) -> list[dict]:
    """Return the fields of :class:`BlockScores` for every row, scores with their padding."""
    with torch.inference_mode(False), touch(model) as session, _gated(model, session) as gates:
        check_outer(session)
        with torch.no_grad():
            logits = logits_of(model(**inputs))
        if gates.calls != session.calls:
            raise UnsupportedModelError(
                f"{type(model).__name__} calls its attention {session.calls} times and its feed-forward blocks "
                f"{gates.calls} times in one pass: they can't be told apart. Set config.chunk_size_feed_forward to 0."
            )
        if not logits.isfinite().all():
            raise ValueError("The model's outputs are not finite numbers: load it again, in float32.")
        device = logits.device
        target = logits.argmax(-1) if target is None else target.to(device)
        value = probabilities(logits, model.config).gather(-1, target[:, None])[:, 0].double()
        run = _Run(model, session, gates, inputs, scaled, target)
        depth, heads = session.calls, _heads(model, session, inputs)
        accounts = [tuple(range(depth))] if at_once else [(layer,) for layer in range(depth)]
        n, texts = inputs["input_ids"].shape[1], len(target)
        attention = torch.zeros(texts, depth, heads, n, n, dtype=torch.float64, device=device)
        feedforward = torch.zeros(texts, depth, n, dtype=torch.float64, device=device)
        found = [_account(run, layers, value, attention, feedforward, plan) for layers in accounts]
    start, gap, steps = (torch.stack(part, dim=1).cpu().numpy() for part in zip(*found, strict=True))
    return [
        dict(attention=attention[row].cpu().numpy(), feedforward=feedforward[row].cpu().numpy(),
             target=int(target[row]), value=float(value[row]), start=start[row], gap=gap[row], steps=steps[row])
        for row in range(texts)
    ]  # fmt: skip


def _heads(model: PreTrainedModel, session: Touch, inputs: Mapping[str, Tensor]) -> int:
    """Return how many heads a layer has: some may have been cut out, so the config doesn't know."""
    session.record = frozenset([0])
    with torch.no_grad():
        model(**{name: tensor[:1] for name, tensor in inputs.items()})
    return session.attention[0].shape[1]


def _account(run: _Run, layers, value: Tensor, attention: Tensor, feedforward: Tensor, plan: Plan):
    """Fill in the scores of the layers of one path; return its start, gap and steps, [text]."""
    rows, batch_tokens = torch.arange(len(value), device=value.device), plan.batch_tokens or 2048
    with torch.no_grad():
        start = run.output(layers, torch.zeros(len(rows), device=value.device), rows).double()
    allowed = (plan.tolerance * (value - start).abs()).clamp(min=plan.floor)
    gap, steps = torch.zeros_like(value), torch.zeros_like(rows)
    for rule, level in plan.rules:
        links, parts = _integral(run, layers, rows, batch_tokens, rule, level)
        for place, layer in enumerate(layers):
            attention[rows, layer], feedforward[rows, layer] = links[:, place], parts[:, place]
        gap[rows] = links.sum((1, 2, 3, 4)) + parts.sum((1, 2)) - (value - start)[rows]
        steps[rows] = level
        rows = rows[~(gap[rows].abs() <= allowed[rows])]
        if not len(rows):
            break
    return start, gap, steps


def _integral(run: _Run, layers, rows: Tensor, batch_tokens: int, rule: str, level: int) -> tuple[Tensor, Tensor]:
    """Return sum_k w_k dF/d(a_k part) * part for the rows, in float64."""
    points, weights = points_and_weights(rule, level)
    width = run.inputs["input_ids"].shape[1]
    at_once = max(1, batch_tokens // (len(rows) * width))
    links, parts = torch.zeros((), dtype=torch.float64), torch.zeros((), dtype=torch.float64)
    for first in range(0, level, at_once):
        a = torch.tensor(points[first : first + at_once], device=rows.device)
        w = torch.tensor(weights[first : first + at_once], device=rows.device)
        found = run.slopes(layers, a.repeat_interleave(len(rows)), rows.repeat(len(a)))
        by_link, by_part = (torch.einsum("k,kr...->r...", w, f.double().unflatten(0, (len(a), -1))) for f in found)
        links, parts = links.to(rows.device) + by_link, parts.to(rows.device) + by_part
    return links, parts
