"""Orders of heads and the gates that switch them off (a part of :mod:`helpers.pruning`)."""

from __future__ import annotations

from collections.abc import Iterable
from numbers import Integral

import numpy as np


def gates_overall(importance: np.ndarray, counts: Iterable[int], *, first: str = "smallest") -> np.ndarray:
    """Return gates, 1 kept and 0 removed, with so many heads of the whole model removed.

    Args:
        importance: [layer, head], or [text, layer, head] for an order of its own for every text.
        counts: how many heads to remove, one setting each, as whole numbers; for shares see :func:`counts_of`.
        first: which heads go first: "smallest" or "largest" importance. Of equal ones the first in the model.

    Returns:
        [setting, layer, head] or [setting, text, layer, head].
    """
    flat = importance.reshape(*importance.shape[:-2], -1)
    return _gates(flat, counts, first).reshape(-1, *importance.shape)


def gates_per_layer(importance: np.ndarray, counts: Iterable[int], *, first: str = "smallest") -> np.ndarray:
    """Return gates with so many heads removed in every layer; otherwise as :func:`gates_overall`."""
    return _gates(importance, counts, first)


def _gates(values: np.ndarray, counts: Iterable[int], first: str) -> np.ndarray:
    known(first, ("smallest", "largest"), "first")
    if not np.isfinite(values).all():
        raise ValueError("The importance holds nan or inf, which have no place in an order: compute it again.")
    place = np.argsort(np.argsort(values if first == "smallest" else -values, axis=-1, kind="stable"), axis=-1)
    counts = list(counts)
    if strange := [n for n in counts if isinstance(n, bool) or not isinstance(n, Integral)]:
        raise ValueError(
            f"{strange[0]!r} heads can't be removed: counts are whole numbers of heads. For shares of them give "
            "counts_of(shares, heads)."
        )
    if wrong := [n for n in counts if not 0 <= n <= values.shape[-1]]:
        raise ValueError(f"{wrong[0]} heads can't be removed: there are {values.shape[-1]} to choose from.")
    return np.stack([(place >= count).astype(np.float32) for count in counts])


def counts_of(shares: Iterable[float], heads: int) -> list[int]:
    """Return how many of the heads a share of them is, rounded half up; shares lie between 0 and 1."""
    shares = list(shares)
    if wrong := [s for s in shares if not 0 <= s <= 1]:
        raise ValueError(f"A share of {wrong[0]} heads was asked for: shares lie between 0 and 1.")
    return [int(np.floor(share * heads + 0.5)) for share in shares]


def known(value: str, allowed: Iterable[str], name: str) -> None:
    """Refuse a value that is none of those allowed."""
    if value not in allowed:
        raise ValueError(f"{name} is {value!r}: use one of {', '.join(allowed)}.")
