"""Scores for the viewers of others: bertviz draws attribution where it would draw attention, captum colours words.

Neither has to be installed: what comes back are the arguments that they take. bertviz's pages fetch scripts from
another host, so they stay empty without a network.
"""

from __future__ import annotations

import html
from typing import Any

import numpy as np
import torch

SIGNS = ("raises", "lowers", "either")
SCALES = ("layer", "all", "head")


def bertviz_arguments(a, *, sign: str = "raises", scale: str = "layer") -> dict[str, Any]:
    """Return what bertviz's ``head_view`` and ``model_view`` take, with |score| / largest |score| as the attention.

    A line of bertviz is as dark as a number between 0 and 1, and has no sign: draw what raises the output and what
    lowers it one after the other.

    Args:
        a: an Attribution.
        sign: "raises": scores above 0; "lowers": those below 0, by their size; "either": all, by their size.
        scale: what the darkest line stands for: the largest |score| of the "layer" (its scores are an account of
            their own), of "all" layers (to compare layers), or of the "head". It doesn't depend on ``sign``.

    Returns:
        attention: a list over layers of float32 tensors [1, head, query, key] in 0 to 1; layers that were not
            attributed are 0. tokens. sentence_b_start: the first token of the second text, None for one text.
            include_layers: the layers that were attributed.

    Raises:
        ValueError: no such sign or scale, or a score is not a number.

    >>> from bertviz import head_view
    >>> head_view(**bertviz_arguments(attribute(model, tokenizer, "A slow start, but a wonderful end.")))
    """
    if sign not in SIGNS or scale not in SCALES:
        raise ValueError(
            f"sign is {sign!r} and scale {scale!r}: give a sign of {', '.join(SIGNS)}, and a scale of "
            f"{', '.join(SCALES)}."
        )
    scores = _finite(a.scores)
    part = {"raises": scores.clip(min=0), "lowers": -scores.clip(max=0), "either": np.abs(scores)}[sign]
    axes = {"all": None, "layer": (1, 2, 3), "head": (2, 3)}[scale]
    drawn = _shares(part, np.abs(scores).max(axis=axes, keepdims=True))
    nothing = torch.zeros(1, *drawn.shape[1:])
    attention = [nothing] * (max(a.layers) + 1)
    for layer, values in zip(a.layers, drawn, strict=True):
        attention[layer] = torch.from_numpy(values[None])
    second = [word.start for word in a.words if word.segment == 1]
    return {
        "attention": attention,
        "tokens": list(a.tokens),
        "sentence_b_start": min(second) if second else None,
        "include_layers": [int(layer) for layer in a.layers],
    }


def captum_arguments(a, *, layer: int | None = None, by: str = "key", true_class: str = "") -> dict[str, Any]:
    """Return what captum's ``VisualizationDataRecord`` takes: one number a token, its scores in one layer added up.

    The numbers are divided by the largest |number|, as captum colours from -1 to 1. Texts are escaped, which captum
    doesn't do.

    Args:
        a: an Attribution.
        layer: the layer that is added up over heads (layers are accounts of their own); None: the one whose
            attention moves the output most.
        by: "key": what others took from the token; "query": what the token took in.
        true_class: what the data say, to show beside the prediction.

    Returns:
        word_attributions float32 [token], pred_prob (nan where another class than the predicted one is explained:
        its probability is all that is known), pred_class, true_class, attr_class, attr_score (sum of the layer's
        scores), raw_input_ids (the tokens) and convergence_score (the layer's gap).

    Raises:
        ValueError: no such layer, another ``by``, or a score is not a number.

    >>> from captum.attr import visualization
    >>> visualization.visualize_text([visualization.VisualizationDataRecord(**captum_arguments(a))])
    """
    if by not in ("key", "query"):
        raise ValueError(f"by is {by!r}: give 'key' or 'query'.")
    if layer is None:
        layer = a.layers[int(np.abs(a.value - np.asarray(a.start)).argmax())]
    if layer not in a.layers:
        raise ValueError(f"There is no layer {layer!r}: this attribution holds {', '.join(map(str, a.layers))}.")
    at = a.layers.index(layer)
    scores = _finite(a.scores)[at].sum(axis=0)
    values = scores.sum(axis=0 if by == "key" else 1)
    raw = a.output == "raw"
    return {
        "word_attributions": _shares(values, np.abs(values).max(keepdims=True)),
        "pred_prob": float(a.value if raw else a.probability if a.predicted == a.target else np.nan),
        "pred_class": html.escape("raw output" if raw else a.labels[a.predicted]),
        "true_class": html.escape(true_class),
        "attr_class": html.escape("raw output" if raw else a.labels[a.target]),
        "attr_score": float(scores.sum()),
        "raw_input_ids": [html.escape(token) for token in a.tokens],
        "convergence_score": float(a.gap[at]),
    }


def _finite(scores: np.ndarray) -> np.ndarray:
    if not np.isfinite(scores).all():
        raise ValueError("Some scores are not numbers (NaN or infinite): compute the attribution again in float32.")
    return scores


def _shares(values: np.ndarray, largest: np.ndarray) -> np.ndarray:
    """Return values / largest, and 0 where the largest is 0."""
    return np.divide(values, largest, out=np.zeros_like(values, dtype=np.float32), where=largest > 0)
