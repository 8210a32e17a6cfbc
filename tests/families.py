"""Small random models of every supported family, and the plain reference algorithm they are compared with."""

from __future__ import annotations

import numpy as np
import torch
from transformers import (
    AlbertConfig,
    AttentionInterface,
    AttentionMaskInterface,
    AutoModelForSequenceClassification,
    BertConfig,
    DistilBertConfig,
    ElectraConfig,
    GPT2Config,
    ModernBertConfig,
    RobertaConfig,
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
FAMILIES = tuple(CONFIGS)


def make(family: str, *, implementation: str = "eager", dtype=torch.float64, seed: int = 0, **changes):
    """A random model whose attributions are far from linear in a; the same weights for the same seed."""
    config = type(CONFIGS[family])(**{**CONFIGS[family].to_dict(), **changes})
    torch.manual_seed(seed)
    model = AutoModelForSequenceClassification.from_config(config, attn_implementation=implementation)
    return model.to(dtype).eval()


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

    layer, a, call = -1, 1.0, 0
    scaled = None
    weights: list[torch.Tensor] = []


def _reference_attention(module, query, key, value, attention_mask, scaling=None, **kwargs):
    weights = torch.matmul(query, key.transpose(2, 3)) * scaling
    if attention_mask is not None:
        weights = weights + attention_mask
    weights = weights.softmax(-1)
    _State.weights.append(weights.detach())
    if _State.call == _State.layer:
        weights = (_State.a * weights.detach()).requires_grad_()
        _State.scaled = weights
    _State.call += 1
    return torch.matmul(weights, value).transpose(1, 2).contiguous(), weights


AttentionInterface.register("reference", _reference_attention)
AttentionMaskInterface.register("reference", eager_mask)


def reference(model, batch, target, points, weights) -> tuple[np.ndarray, np.ndarray]:
    """The plain algorithm: for every layer and point run the whole network, take dF/d(aA), sum, times A.

    Returns scores and attention [batch, layer, head, query, key] in the model's precision.
    """
    before = model.config._attn_implementation
    model.set_attn_implementation("reference")

    def output(layer, a):
        _State.layer, _State.a, _State.call, _State.weights = layer, a, 0, []
        probabilities = model(**batch).logits.softmax(-1)
        return probabilities[torch.arange(len(target)), target].sum()

    output(-1, 1.0)
    attention = torch.stack(_State.weights, dim=1)
    scores = torch.zeros_like(attention)
    for layer in range(attention.shape[1]):
        for a, w in zip(points, weights, strict=True):
            gradient = torch.autograd.grad(output(layer, float(a)), _State.scaled)[0]
            scores[:, layer] += w * gradient * attention[:, layer]
    model.set_attn_implementation(before)
    return scores.numpy(), attention.numpy()
