"""Small random models of every supported family, and the plain reference algorithm they are compared with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from transformers import (
    AlbertConfig,
    AttentionInterface,
    AttentionMaskInterface,
    AutoModelForImageClassification,
    AutoModelForSequenceClassification,
    BertConfig,
    DistilBertConfig,
    ElectraConfig,
    GPT2Config,
    ModernBertConfig,
    RobertaConfig,
    ViTConfig,
    XLMRobertaConfig,
)
from transformers.masking_utils import eager_mask

VOCABULARY = 60
_COMMON = {"vocab_size": VOCABULARY, "initializer_range": 0.3, "num_labels": 3, "pad_token_id": 0}
_SIZES = {"hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 32}
CONFIGS = {
    "bert": BertConfig(**_COMMON, **_SIZES, max_position_embeddings=40),
    "roberta": RobertaConfig(**_COMMON, **_SIZES, max_position_embeddings=40, bos_token_id=1, eos_token_id=2),
    "xlm-roberta": XLMRobertaConfig(**_COMMON, **_SIZES, max_position_embeddings=40, bos_token_id=1, eos_token_id=2),
    "electra": ElectraConfig(**_COMMON, **_SIZES, embedding_size=16, max_position_embeddings=40),
    "distilbert": DistilBertConfig(**_COMMON, dim=24, n_layers=3, n_heads=4, hidden_dim=32, max_position_embeddings=40),
    "albert": AlbertConfig(**_COMMON, **_SIZES, embedding_size=16, max_position_embeddings=40),
    "gpt2": GPT2Config(**_COMMON, n_embd=24, n_layer=3, n_head=4, n_positions=40, bos_token_id=1, eos_token_id=2),
    "modernbert": ModernBertConfig(
        **_COMMON,
        **_SIZES,
        initializer_cutoff_factor=2.0,
        classifier_pooling="mean",  # a left-padded batch has no [CLS] in front
        max_position_embeddings=40,
        local_attention=10,  # a window in which every row of padding sees a token: else the model itself gives nan
        global_attn_every_n_layers=2,
        bos_token_id=1,
        eos_token_id=2,
        cls_token_id=1,
        sep_token_id=2,
    ),
}
FAMILIES = tuple(CONFIGS)  # of texts
CONFIGS["vit"] = ViTConfig(**_SIZES, image_size=12, patch_size=4, num_channels=2, initializer_range=0.3, num_labels=3)
EVERY = tuple(CONFIGS)


def make(
    family: str, *, implementation: str = "eager", dtype=torch.float64, seed: int = 0, head: Any = None, **changes
):
    """A random model whose attributions are far from linear in a; the same weights for the same seed.

    ``head`` is a class of transformers such as AutoModelForTokenClassification; by default the family's classifier.
    """
    config = type(CONFIGS[family])(**{**CONFIGS[family].to_dict(), **changes})
    default = AutoModelForImageClassification if family == "vit" else AutoModelForSequenceClassification
    torch.manual_seed(seed)
    model = (head or default).from_config(config, attn_implementation=implementation)
    return model.to(dtype).eval()


def pictures(count: int = 3, seed: int = 1, dtype=torch.float64) -> dict[str, torch.Tensor]:
    """Random pictures for "vit": nine patches and [CLS], so ten tokens."""
    generator = torch.Generator().manual_seed(seed)
    return {"pixel_values": torch.randn(count, 2, 12, 12, generator=generator, dtype=torch.float64).to(dtype)}


def inputs(side: str | None = "right", lengths=(9, 5, 7), seed: int = 1) -> dict[str, torch.Tensor]:
    """Token ids of a batch with padding on the given side (None: one text, no padding)."""
    generator = torch.Generator().manual_seed(seed)
    lengths = lengths[:1] if side is None else lengths
    ids = torch.zeros(len(lengths), max(lengths), dtype=torch.long)
    mask = torch.zeros_like(ids)
    for row, length in enumerate(lengths):
        place = slice(0, length) if side != "left" else slice(max(lengths) - length, None)
        ids[row, place] = torch.randint(3, VOCABULARY, (length,), generator=generator)
        mask[row, place] = 1
    return {"input_ids": ids, "attention_mask": mask}


class _State:
    """What the reference attention function is to do in the next forward pass."""

    layers: tuple[int, ...] = ()  # which are moved
    a, call, together, start = 1.0, 0, False, None
    moved: list[torch.Tensor] = []
    weights: list[torch.Tensor] = []


def _reference_attention(module, query, key, value, attention_mask, scaling=None, **kwargs):
    scaling = query.shape[-1] ** -0.5 if scaling is None else scaling
    groups = query.shape[1] // key.shape[1]  # a decoder may share keys and values between heads
    key, value = key.repeat_interleave(groups, dim=1), value.repeat_interleave(groups, dim=1)
    weights = torch.matmul(query, key.transpose(2, 3)) * scaling
    if attention_mask is not None:
        weights = weights + attention_mask
    weights = weights.softmax(-1)
    _State.weights.append(weights.detach())
    if _State.call in _State.layers:
        start = torch.zeros_like(weights) if _State.start is None else _State.start(weights.detach())
        if _State.together:
            weights = start + _State.a * (weights - start)
        else:  # the layers below do not move: their output is a constant
            weights = (start + _State.a * (weights.detach() - start)).requires_grad_()
        _State.moved.append(weights)
    _State.call += 1
    return torch.matmul(weights, value).transpose(1, 2).contiguous(), weights


AttentionInterface.register("reference", _reference_attention)
AttentionMaskInterface.register("reference", eager_mask)


def reference(
    model, batch, target, points, weights, *, read: Callable | None = None, squash: Callable | None = None,
    start: Callable | None = None, together: bool = False,
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """The plain algorithm: for every layer and point run the whole network, take dF/d(aA), sum, times A.

    Args:
        read: from the outputs to logits [batch, class]; the classifier's by default.
        squash: from logits to what is explained; a softmax by default.
        start: from A to where the path begins, 0 by default.
        together: all layers move at once, each by what it attends to then.

    Returns scores and attention [batch, layer, head, query, key] in the model's precision.
    """
    before = model.config._attn_implementation
    model.set_attn_implementation("reference")
    read, squash = read or (lambda outputs: outputs.logits), squash or (lambda logits: logits.softmax(-1))

    def output(layers, a):
        _State.layers, _State.a, _State.call, _State.weights, _State.moved = layers, a, 0, [], []
        _State.start, _State.together = start, together
        values = squash(read(model(**batch)))
        return values[torch.arange(len(target)), target].sum()

    output((), 1.0)
    attention = torch.stack(_State.weights, dim=1)
    count = attention.shape[1]
    scores = torch.zeros_like(attention)
    for layers in [tuple(range(count))] if together else [(layer,) for layer in range(count)]:
        for a, w in zip(points, weights, strict=True):
            gradients = torch.autograd.grad(output(layers, float(a)), _State.moved)
            for layer, gradient in zip(layers, gradients, strict=True):
                whole = _State.weights[layer]
                begin = 0 if start is None else start(whole)
                scores[:, layer] += w * gradient * (whole - begin)
    model.set_attn_implementation(before)
    return scores.cpu().numpy(), attention.cpu().numpy()


def difference(ours: torch.Tensor, theirs: np.ndarray) -> float:
    """The largest difference, padding included, relative to the largest score of the layer."""
    scale = np.abs(theirs).max(axis=(2, 3, 4), keepdims=True)
    assert (scale > 1e-6).all(), "the reference is trivial"
    return float(np.abs((ours.numpy() - theirs) / scale).max())
