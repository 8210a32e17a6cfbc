"""Choosing attention edges by scores of any kind (a part of :mod:`helpers.faithfulness`).

Edges are bool arrays [layer, query, key], for all heads alike, or [layer, head, query, key]; query receives from key.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def live(layers: int, tokens: int, *, terminal: int | None = 0, causal: bool = False) -> np.ndarray:
    """Return the edges that join two tokens and can matter, bool [layer, query, key].

    Self-edges are left out. In the last layer only the token that the classifier reads receives anything that
    counts, so there only its row is in.

    Args:
        terminal: the position of that token, negative from the end: 0 for BERT, -1 for GPT-2, None for a model that
            reads all tokens; or ``graph["terminal"]`` of a tree.
        causal: whether a token reads earlier ones alone, as in GPT-2.
    """
    if terminal is not None and not -tokens <= terminal < tokens:
        raise ValueError(f"terminal is {terminal} and there are {tokens} tokens: give the place of one of them.")
    joined = np.broadcast_to(~np.eye(tokens, dtype=bool), (layers, tokens, tokens)).copy()
    if terminal is not None:
        joined[-1:, np.arange(tokens) != terminal % tokens] = False
    return joined & np.tri(tokens, dtype=bool) if causal else joined


def from_tokens(chosen: np.ndarray, layers: int) -> np.ndarray:
    """Return all edges that other tokens receive from the chosen ones, bool [layer, query, key].

    Removing them removes the tokens from every other token's sight: what a choice of tokens is measured by.

    Args:
        chosen: bool [token], one for each token of the text.
    """
    chosen = np.asarray(chosen)
    if chosen.dtype != bool or chosen.ndim != 1:
        raise ValueError(
            f"The choice is {chosen.dtype} {chosen.shape}: True or False for every token is needed. For positions: "
            "np.isin(np.arange(len(tokens)), positions)."
        )
    return live(layers, len(chosen), terminal=None) & chosen


def like(reference: np.ndarray, scores: np.ndarray, *, allowed: np.ndarray | None = None) -> np.ndarray:
    """Return in every layer as many edges as the reference has there, those with the largest scores.

    Equal scores are taken in order of position. For edges at random give random numbers as scores.

    Args:
        reference: bool [layer, query, key] or [layer, head, query, key].
        scores: of every edge, same shape.
        allowed: bool, same shape, which edges may be chosen; all if None.

    Raises:
        ValueError: the shapes differ, a score is nan, or a layer has fewer allowed edges than are to be chosen.
    """
    reference = np.asarray(reference)
    if reference.dtype != bool or reference.shape != np.shape(scores):
        raise ValueError(
            f"The reference is {reference.dtype} {reference.shape} and the scores are {np.shape(scores)}: a bool array "
            "of the scores' shape is needed."
        )
    counts = reference.reshape(len(reference), -1).sum(axis=1)
    return _largest(scores, counts.tolist(), np.ones_like(reference) if allowed is None else allowed)


def ramp(scores: np.ndarray, fractions: Sequence[float], *, allowed: np.ndarray | None = None) -> np.ndarray:
    """Return the edges with the largest scores, ever more of them, the same share in every layer: bool [setting, ...].

    A share is rounded up: where a layer has few live edges, as the last one has, 1 % would be none for long.

    Args:
        scores: [layer, query, key] or [layer, head, query, key].
        fractions: of every layer's allowed edges, 0 to 1, one setting each.
        allowed: as for :func:`like`.
    """
    allowed = np.ones(np.shape(scores), dtype=bool) if allowed is None else np.asarray(allowed)
    if wrong := [share for share in fractions if not 0 <= share <= 1]:
        raise ValueError(f"A share of {wrong[0]} was asked for: shares lie between 0 and 1.")
    if not len(fractions):
        raise ValueError("No fraction was given: give shares of the edges, from 0 to 1.")
    sizes = allowed.reshape(len(allowed), -1).sum(axis=1)
    counts = np.ceil(np.multiply.outer(fractions, sizes) - 1e-9).astype(int)  # 0.07 * 100 is a little over 7
    return np.stack([_largest(scores, row, allowed) for row in counts.tolist()])


def _largest(scores: np.ndarray, counts: Sequence[int], allowed: np.ndarray) -> np.ndarray:
    scores, allowed = np.asarray(scores, dtype=float), np.asarray(allowed)  # float: minus an unsigned number wraps
    if scores.shape != allowed.shape or allowed.dtype != bool or np.isnan(scores).any():
        raise ValueError(
            f"Scores {scores.shape} and allowed edges {allowed.dtype} {allowed.shape} don't fit, or a score is nan: "
            "numbers and bool of the same shape are needed."
        )
    chosen = np.zeros(scores.shape, dtype=bool)
    for layer, count in enumerate(counts):
        open_ones = np.flatnonzero(allowed[layer])
        if count > len(open_ones):
            raise ValueError(f"{count} edges are wanted in layer {layer}, where {len(open_ones)} are allowed.")
        order = np.argsort(-scores[layer].ravel()[open_ones], kind="stable")
        chosen[layer].reshape(-1)[open_ones[order[:count]]] = True
    return chosen
