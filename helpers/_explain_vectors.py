"""Explanations that need more than the attention weights (a part of :mod:`helpers.explanations`).

Norms of what is carried: Kobayashi, Kuribayashi, Yokoi, Inui, *Attention is Not Only a Weight*, EMNLP 2020.
Integrated gradients: Sundararajan, Taly, Yan, *Axiomatic Attribution for Deep Networks*, ICML 2017, by captum.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np
import torch
from captum.attr import LayerIntegratedGradients
from torch import Tensor, nn
from transformers import PreTrainedModel

from helpers.attention import UnsupportedModelError, touch
from helpers.outputs import logits_of, probabilities

TOKENS_AT_ONCE = 1024  # that go through the model together, points times length
# what the contexts of all heads go through at the end of the attention: BERT and its kin, DistilBERT, ModernBERT
_PROJECTION = re.compile(r"(\.attention\.output\.dense|\.attention\.out_lin|\.attn\.Wo)$")


def projections(model: PreTrainedModel, layers: int) -> list[Tensor]:
    """Return W_O of every layer, [hidden, head * dim].

    Raises:
        UnsupportedModelError: the family's output projection is not known here.
    """
    found = [m for name, m in model.named_modules() if _PROJECTION.search(name) and isinstance(m, nn.Linear)]
    if len(found) != layers:
        raise UnsupportedModelError(
            f"The output projections of {type(model).__name__} are not known here ({len(found)} found for {layers} "
            "layers), so the values' norms can't be told: use BERT, RoBERTa, XLM-R, ELECTRA, MiniLM, DistilBERT or "
            "ModernBERT, or another method."
        )
    return [module.weight for module in found]


def value_norms(values: Tensor, projection: Tensor) -> Tensor:
    """Return ||f_h(x_j)|| with f_h(x) = (x W_V + b_V)_h W_O,h: how long a token's contribution is, [text, head, key].

    Args:
        values: V of a layer, [text, head, key, dim].
        projection: W_O, [hidden, head * dim].
    """
    by_head = projection.unflatten(1, (values.shape[1], -1))  # hidden, head, dim
    return torch.einsum("bhkd,ohd->bhko", values, by_head.to(values.dtype)).norm(dim=-1)


def baseline_ids(ids: Tensor, tokenizer) -> Tensor:
    """Return the ids with every token of the text replaced by the mask token (or the padding token); marks stay."""
    blank = tokenizer.pad_token_id if tokenizer.mask_token_id is None else tokenizer.mask_token_id
    special = torch.isin(ids, torch.tensor(tokenizer.all_special_ids, device=ids.device))
    unknown = ids == (-1 if tokenizer.unk_token_id is None else tokenizer.unk_token_id)  # a word of the text
    return torch.where(special & ~unknown, ids, torch.full_like(ids, blank))


def integrated_gradients(
    model: PreTrainedModel, inputs: Mapping[str, Tensor], baseline: Tensor, target: int, steps: int
) -> tuple[np.ndarray, float]:
    """Return one text's scores (x - x0) . integral of dF/dx da on its word embeddings, [token], and the gap.

    x: the word embeddings of the text, x0: those of the baseline; positions and segments stay as they are. The gap
    is the sum of scores minus (F(x) - F(x0)), in the unit of F.
    """
    names = [name for name in inputs if name != "input_ids"]

    def output(ids: Tensor, *others: Tensor) -> Tensor:
        logits = logits_of(model(input_ids=ids, **dict(zip(names, others, strict=True))))
        return probabilities(logits, model.config)[:, target]

    ids, table = inputs["input_ids"], model.get_input_embeddings()
    others = tuple(inputs[name] for name in names)
    with touch(model):  # in eval mode
        scores = LayerIntegratedGradients(output, table).attribute(
            ids, baselines=baseline, additional_forward_args=others, n_steps=steps,
            internal_batch_size=max(1, TOKENS_AT_ONCE // ids.shape[1]),
        )  # fmt: skip
    scores = scores[0].sum(-1).detach().double().cpu().numpy()
    with touch(model), torch.no_grad():
        start = table(baseline)  # captum's own delta runs the baseline's ids, which RoBERTa takes its positions from
        end = output(ids, *others)
        hook = table.register_forward_hook(lambda *_: start)
        try:
            change = float(end - output(ids, *others))
        finally:
            hook.remove()
    return scores, float(scores.sum() - change)
