"""A table of labelled texts made ready for a fair trial: checked, split without leaks, with a simple rival.

What has to be right before a classifier is fine-tuned on data of one's own; the paper has GLUE's ready-made splits
(section 4.1). Tables are those of :func:`helpers.data.read`; nothing here needs torch.

    frame = data.read("mine.tsv", first="text", label="label")
    check(frame)
    parts = split(frame, seed=0)                # {"train": ..., "dev": ..., "test": ...}
    rival = BagOfWords.fit(parts["train"])
    evaluate(rival, parts["dev"]).interval      # helpers.evaluate: what it gets right, with its 95 % interval
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import pandas as pd
from scipy.optimize import minimize
from scipy.sparse import coo_matrix, csr_matrix
from scipy.sparse.csgraph import connected_components
from scipy.special import log_softmax, softmax

from helpers import data

Text = str | tuple[str, str]
SHARES: Mapping[str, float] = MappingProxyType({"train": 0.6, "dev": 0.2, "test": 0.2})
CLOSE = 0.6  # two texts that have this share of their words in common are near-duplicates


def check(frame: pd.DataFrame, *, least: int = 10) -> None:
    """Refuse a table that can't be split, learned from and measured on.

    Args:
        frame: as :func:`helpers.data.read` gives it, with labels.
        least: rows that every class must have.

    Raises:
        ValueError: there are no labels, fewer than two classes, or too few rows of one.
    """
    if (frame["label_id"] < 0).any():
        raise ValueError("The table has no labels: name the column that holds them, data.read(..., label=...).")
    counts = frame["label"].value_counts().sort_index()
    if len(counts) < 2:
        raise ValueError(
            f"All {len(frame)} rows have the label {counts.index[0]!r}: there is nothing to tell apart. Add rows of "
            "another class, or name another column as the label."
        )
    few = counts[counts < least]
    if len(few):
        named = ", ".join(f"{name!r} has {count}" for name, count in few.head(5).items())
        more = f" and {len(few) - 5} more" if len(few) > 5 else ""
        hint = " Is this the column of the labels?" if len(few) > 10 else ""
        raise ValueError(
            f"{len(few)} of {len(counts)} classes have fewer than {least} rows: {named}{more}. Each class is learned, "
            f"chosen on and tested: label more, join classes, or leave these out.{hint}"
        )


def words(text: Text) -> list[str]:
    """The words of a text in lower case, with ``?`` and ``!``; those of a second text begin with a bar.

    Example:
        >>> words("Isn't it late?")
        ["isn't", 'it', 'late', '?']
    """
    if isinstance(text, tuple):
        return words(text[0]) + [f"|{word}" for word in words(text[1])]
    return re.findall(r"[^\W_]+(?:['’][^\W_]+)*|[?!]", text.lower())


def _numbered(rows: Sequence[Sequence[str]]) -> dict[str, int]:
    return {word: number for number, word in enumerate(sorted({word for row in rows for word in row}))}


def _bags(rows: Sequence[Sequence[str]], vocabulary: Mapping[str, int]) -> csr_matrix:
    """Which words occur in which row, 0 or 1; words that the vocabulary lacks are passed over."""
    places = [sorted({vocabulary[word] for word in row if word in vocabulary}) for row in rows]
    ends = np.cumsum([0, *map(len, places)])
    columns = np.array([place for row in places for place in row], dtype=int)
    return csr_matrix((np.ones(len(columns)), columns, ends), shape=(len(rows), len(vocabulary)))


def near_duplicates(texts: Iterable[Text], *, bound: float = CLOSE) -> list[tuple[int, int]]:
    """Return the places i < j of texts that are nearly the same, the same words in another order among them.

    Args:
        texts: as :func:`helpers.data.texts` gives them.
        bound: least share of the words of the two that both have, above 0 and up to 1.
    """
    rows = [words(text) for text in texts]
    bags = _bags(rows, _numbered(rows))
    shared = coo_matrix(bags @ bags.T)
    sizes = np.asarray(bags.sum(axis=1)).ravel()
    i, j, both = shared.row, shared.col, shared.data
    close = (i < j) & (both >= bound * (sizes[i] + sizes[j] - both))
    return sorted(zip(i[close].tolist(), j[close].tolist(), strict=True))


def split(
    frame: pd.DataFrame, shares: Mapping[str, float] = SHARES, *, seed: int = 0, bound: float = CLOSE
) -> dict[str, pd.DataFrame]:
    """Deal rows out at random, each class in its share, and near-duplicates to one and the same split.

    Rows that have the same name in the column ``pair`` stay together too.

    Args:
        frame: a table of :func:`helpers.data.read`.
        shares: share of the rows that each split gets, adding up to 1.
        seed: of the deal.
        bound: see :func:`near_duplicates`.
    """
    if min(shares.values()) <= 0 or abs(sum(shares.values()) - 1) > 1e-9:
        raise ValueError(f"The shares are {dict(shares)}: they must be above 0 and add up to 1.")
    groups = _together(frame, near_duplicates(data.texts(frame), bound=bound))
    classes, labels = np.unique(frame["label_id"], return_inverse=True)
    need = np.outer(list(shares.values()), np.bincount(labels))  # split, class
    order = np.random.default_rng(seed).permutation(groups.max() + 1)
    order = order[np.argsort(-np.bincount(groups)[order], kind="stable")]  # the large ones while there is room
    chosen = np.empty(len(frame), dtype=int)
    for group in order:
        rows = np.flatnonzero(groups == group)
        counts = np.bincount(labels[rows], minlength=len(classes))
        place = int((need @ counts).argmax())
        need[place] -= counts
        chosen[rows] = place
    return {name: frame[chosen == n].assign(split=name).reset_index(drop=True) for n, name in enumerate(shares)}


def _together(frame: pd.DataFrame, pairs: Sequence[tuple[int, int]]) -> np.ndarray:
    """Return a group number for each row; rows joined by a chain of pairs have the same."""
    named = frame.reset_index(drop=True).query("pair != ''").groupby("pair").groups.values()
    links = [*pairs, *((int(rows[0]), int(row)) for rows in named for row in rows[1:])]
    i, j = np.array(links, dtype=int).reshape(-1, 2).T
    graph = coo_matrix((np.ones(len(i)), (i, j)), shape=(len(frame), len(frame)))
    return connected_components(graph, directed=False)[1]


@dataclass(frozen=True, eq=False)
class BagOfWords:
    """A logistic regression on which words occur, whatever their order: the rival to beat.

    Attributes:
        labels: class names.
        vocabulary: the words that it has met, and the row of each in ``weights``.
        weights: [word, class].
        bias: [class].
        name: for :func:`helpers.evaluate.evaluate`, which takes it as it takes a model.
    """

    labels: tuple[str, ...]
    vocabulary: Mapping[str, int]
    weights: np.ndarray
    bias: np.ndarray
    name: str = "bag of words"

    @classmethod
    def fit(cls, frame: pd.DataFrame, *, labels: Sequence[str] = (), penalty: float = 1.0) -> BagOfWords:
        """Learn from a table.

        Args:
            frame: a table of :func:`helpers.data.read`.
            labels: all class names, where the table may lack one.
            penalty: half of it times the sum of the squared weights is added to the summed loss.
        """
        labels = tuple(labels) or tuple(sorted(set(frame["label"])))
        rows = [words(text) for text in data.texts(frame)]
        vocabulary = _numbered(rows)
        bags = _bags(rows, vocabulary)
        wanted = (frame["label"].to_numpy()[:, None] == np.array(labels)).astype(float)  # text, class

        def loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
            weights, bias = np.split(flat.reshape(-1, len(labels)), [-1])
            scores = bags @ weights + bias
            value = penalty / 2 * (weights**2).sum() - (wanted * log_softmax(scores, axis=1)).sum()
            off = softmax(scores, axis=1) - wanted
            return float(value), np.vstack([bags.T @ off + penalty * weights, off.sum(axis=0)]).ravel()

        start = np.zeros((len(vocabulary) + 1) * len(labels))
        best = minimize(loss, start, jac=True, method="L-BFGS-B").x.reshape(-1, len(labels))
        return cls(labels, vocabulary, best[:-1], best[-1])

    def predict(self, texts: Iterable[Text], *, batch_size: int = 32) -> np.ndarray:
        """Return probabilities [text, class]; ``batch_size`` is taken, as models take it, and not needed."""
        return softmax(_bags([words(text) for text in texts], self.vocabulary) @ self.weights + self.bias, axis=1)
