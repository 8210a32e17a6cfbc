"""Transformers built by hand, so that scores are known in closed form: which axioms does the score of a link obey?

A toy is a BERT classifier whose weights are set, not learned. A token's vector is one-hot; layer norms and feed-forward
parts are switched off; what a head attends to depends on the kind of the token that is read alone; and a function of
one's own, ``readout``, takes the hidden state of [CLS] to the logits. So with links x1, x2, ... into [CLS]

    F = readout(x1 * w1 + x2 * w2 + ...)

and the path integral can be done with a pencil: the docstrings state F and what comes out.

    >>> attribute_inputs(agree(), tokens(A, B), output="logit").scores[0, 0, 0, 0]  # [CLS] receives 0, 1/2, 1/2
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from transformers import BertConfig, BertForSequenceClassification

CLS, A, B, SINK = range(4)  # kinds of tokens: ids, and the directions of their vectors
ONE, TWO, PASSED = 4, 5, 6  # directions that heads write to
KINDS, DIM = 4, 8
NEVER = -1e4  # a number before the softmax that leaves an attention of exactly 0


@dataclass(frozen=True)
class Head:
    """What a head attends to, and what it writes.

    Attributes:
        attends: kind of token -> a number before the softmax, the same for every query; NEVER where not named.
        writes: direction that is read -> (direction that is written, how much of it).
    """

    attends: dict[int, float] = field(default_factory=dict)
    writes: dict[int, tuple[int, float]] = field(default_factory=dict)


class _Readout(nn.Module):
    """A function of the hidden state of [CLS], where the pooler has its activation."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, hidden: Tensor) -> Tensor:
        return self.function(hidden)


def build(layers: Sequence[Sequence[Head]], *logits: Callable[[Tensor], Tensor]) -> BertForSequenceClassification:
    """Return a toy in float64.

    Args:
        layers: the heads of each layer, equally many in all.
        logits: a function a class, from the hidden state of [CLS] [..., dim] to its logit [...].
    """
    heads = len(layers[0])
    config = BertConfig(
        vocab_size=KINDS, hidden_size=DIM * heads, num_hidden_layers=len(layers), num_attention_heads=heads,
        intermediate_size=1, max_position_embeddings=8, type_vocab_size=1, num_labels=len(logits), pad_token_id=None,
    )  # fmt: skip
    model = BertForSequenceClassification(config).double().eval()
    for parameter in model.parameters():
        parameter.data.zero_()
    model.bert.embeddings.word_embeddings.weight.data[:, :KINDS] = torch.eye(KINDS)
    model.bert.embeddings.LayerNorm = nn.Identity()
    for layer, wanted in zip(model.bert.encoder.layer, layers, strict=True):
        layer.attention.output.LayerNorm = layer.output.LayerNorm = nn.Identity()
        for number, head in enumerate(wanted):
            _set(layer.attention, number * DIM, head)
    model.bert.pooler.dense.weight.data.copy_(torch.eye(DIM * heads))
    model.bert.pooler.activation = _Readout(lambda hidden: torch.stack([f(hidden) for f in logits], dim=-1))
    model.classifier = nn.Identity()
    return model


def _set(attention: nn.Module, first: int, head: Head) -> None:
    """Write a head's weights into its rows of a layer's attention."""
    parts = attention.self
    parts.query.bias.data[first] = math.sqrt(DIM)  # the query is the same for every token; it undoes the scaling
    for kind in range(KINDS):
        parts.key.weight.data[first, kind] = head.attends.get(kind, NEVER)
    parts.value.weight.data[first : first + DIM, :DIM] = torch.eye(DIM)
    for read, (written, amount) in head.writes.items():
        attention.output.dense.weight.data[written, first + read] = amount


def tokens(*kinds: int) -> dict[str, Tensor]:
    """Return the inputs of one text: [CLS], then tokens of the given kinds."""
    ids = torch.tensor([[CLS, *kinds]])
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def every_text(length: int) -> dict[str, Tensor]:
    """Return all texts that have ``length`` tokens of the kinds A, B and SINK after [CLS], as one batch."""
    rows = torch.cartesian_prod(*[torch.tensor([A, B, SINK])] * length).reshape(-1, length)
    ids = torch.cat([torch.full((len(rows), 1), CLS), rows], dim=1)
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


# ---- functions of what [CLS] has received ----------------------------------------------------------------------------


def both(hidden: Tensor) -> Tensor:
    """x1 * x2."""
    return hidden[..., ONE] * hidden[..., TWO]


def either(hidden: Tensor) -> Tensor:
    """1 - (1 - x1) * (1 - x2): one of the two is enough."""
    return 1 - (1 - hidden[..., ONE]) * (1 - hidden[..., TWO])


def against(hidden: Tensor) -> Tensor:
    """x1 * (x2 - 1/2)."""
    return hidden[..., ONE] * (hidden[..., TWO] - 0.5)


def first(hidden: Tensor) -> Tensor:
    """x1."""
    return hidden[..., ONE]


# ---- the toys --------------------------------------------------------------------------------------------------------

_EQUALLY = {A: 0.0, B: 0.0}
# attention is a half each in the text "A B", and the head writes twice as much
_PAIR = Head(_EQUALLY, {A: (ONE, 2.0), B: (TWO, 2.0)})
_READS_A, _IDLE = Head({A: 0.0}, {A: (ONE, 1.0)}), Head(_EQUALLY)


def pair(*logits: Callable[[Tensor], Tensor]) -> BertForSequenceClassification:
    """One layer in which [CLS] receives x1 from A and x2 from B, both 1 in the text "A B".

    Scores of the two links: ``both`` 1/2 and 1/2; ``either`` 1/2 and 1/2; ``against`` 0 and 1/2; ``first`` 1 and 0.
    """
    return build([[_PAIR]], *logits)


def relay() -> BertForSequenceClassification:
    """Layer 0 brings A to B, layer 1 brings from B what B received: F = x * y, one link in each layer.

    One layer at a time: 1 for each link, 2 in all, and F is 1. Together: 1/2 each.
    """
    carries = Head({A: 0.0}, {A: (PASSED, 1.0)}), Head({B: 0.0}, {PASSED: (ONE, 1.0)})
    return build([[carries[0]], [carries[1]]], first)


def twice() -> BertForSequenceClassification:
    """Each of two layers brings A to [CLS], and one is enough: F = 1 - (1 - x) * (1 - y).

    One layer at a time: 0 for every link, and F falls from 1 to 0 without both. Together: 1/2 each.
    """
    return build([[_READS_A], [Head({A: 0.0}, {A: (TWO, 1.0)})]], either)


def sink() -> BertForSequenceClassification:
    """Three quarters of the attention go to a token that gives nothing: in "A SINK" F = 1/4, and 1 without SINK."""
    return build([[Head({A: 0.0, SINK: math.log(3)}, {A: (ONE, 1.0)})]], first)


def early() -> BertForSequenceClassification:
    """[CLS] reads A in layer 0; layer 1 does nothing. The same function of the text as :func:`late`."""
    return build([[_READS_A], [_IDLE]], first)


def late() -> BertForSequenceClassification:
    """[CLS] reads A in layer 1; layer 0 does nothing. The same function of the text as :func:`early`."""
    return build([[_IDLE], [_READS_A]], first)


def cancelling(amount: float = 0.0) -> BertForSequenceClassification:
    """[CLS] reads A in head 0; heads 1 and 2 write ``amount`` and minus as much: one function, for any amount."""
    heads = [_READS_A, *(Head({A: 0.0}, {A: (ONE, sign * amount)}) for sign in (1, -1))]
    return build([heads], first)
