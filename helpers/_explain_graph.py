"""Attention as a graph in which information moves: rollout and flow (a part of :mod:`helpers.explanations`).

Abnar & Zuidema, *Quantifying Attention Flow in Transformers*, ACL 2020. Both begin with the mean over heads, mixed
with what the residual stream carries past the attention (share r, theirs is 0.5), and made to add up to 1 again:

    M_l = (1 - r) mean_h A_lh + r I,  rows divided by their sums

Plain arrays, attention [layer, head, query, key]; no torch.
"""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_flow

UNIT = 1 << 26  # scipy's flows are whole numbers: a capacity of 1 is so many, so a flow is right to about 1e-7 an edge


def mixed(attention: np.ndarray, residual: float = 0.5) -> np.ndarray:
    """Return M [layer, query, key]: attention's mean over heads with the residual share, rows that add up to 1."""
    if not 0 <= residual <= 1:
        raise ValueError(f"residual is {residual!r}: it is a share, from 0 to 1.")
    one = (1 - residual) * attention.mean(axis=1, dtype=float) + residual * np.eye(attention.shape[-1])
    return one / one.sum(axis=-1, keepdims=True)


def rollout(mixing: np.ndarray, readers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return what of each token reaches the readers when attention is multiplied through, [token], and by link.

        tokens = w M_L ... M_2 M_1

    Read from the top, it is a walk that starts at a reader and steps from query to key with probability M. A link's
    score is the probability that the walk takes it, [layer, query, key]; the paper gives none for links.

    Args:
        mixing: M of :func:`mixed`.
        readers: w, weights of the tokens that the classifier reads, [token], sum 1.
    """
    place, links = np.asarray(readers, dtype=float), np.zeros_like(mixing)
    for layer in reversed(range(len(mixing))):
        links[layer] = place[:, None] * mixing[layer]
        place = links[layer].sum(axis=0)
    return place, links


def flow(mixing: np.ndarray, readers: np.ndarray) -> np.ndarray:
    """Return for each token the largest flow from the readers to it, [token], where M are the capacities.

    Layer l's query i is joined to layer l-1's key j by a pipe of width M_l[i, j]; between two layers more can't pass
    than the narrowest place lets through. A token's flow is found for it alone, so flows don't add up to 1.
    """
    layers, n, _ = mixing.shape
    top = layers * n
    layer, query, key = np.nonzero(mixing)
    starts, ends = (layer + 1) * n + query, layer * n + key
    capacity = np.rint(mixing[layer, query, key] * UNIT).astype(np.int32)
    read = np.flatnonzero(readers)
    source = top + n  # one more node, which feeds every token that is read
    starts, ends = np.append(starts, np.full(len(read), source)), np.append(ends, top + read)
    capacity = np.append(capacity, np.rint(np.asarray(readers, dtype=float)[read] * UNIT).astype(np.int32))
    graph = csr_array((capacity, (starts, ends)), shape=(source + 1, source + 1))
    return np.array([maximum_flow(graph, source, token).flow_value for token in range(n)]) / UNIT
