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
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import pandas as pd
from scipy.optimize import minimize
from scipy.sparse import coo_matrix, csr_matrix
from scipy.sparse.csgraph import connected_components
from scipy.special import log_softmax, softmax

from helpers import data
from helpers._labels import plain

Text = str | tuple[str, str]
SHARES: Mapping[str, float] = MappingProxyType({"train": 0.6, "dev": 0.2, "test": 0.2})
CLOSE = 0.6  # two texts that have this share of their words in common are near-duplicates
ROWS = 250  # texts compared with all others at a time: bounds the memory


def check(frame: pd.DataFrame, *, least: int = 10, labels: Iterable[str] = ()) -> None:
    """Refuse a table that can't be split, learned from and measured on; warn of a spreadsheet's quotes.

    Args:
        frame: as :func:`helpers.data.read` gives it, with labels.
        least: rows that every class must have.
        labels: classes that must be there, where the table is a sample of a larger one.

    Raises:
        ValueError: there are no labels, fewer than two classes, too few rows of one, or one spelt in two ways.
    """
    if (frame["label_id"] < 0).any():
        raise ValueError("The table has no labels: name the column that holds them, data.read(..., label=...).")
    found = frame["label"].value_counts()
    counts = found.reindex(sorted({*found.index, *labels}), fill_value=0)
    _check_spelling(counts)
    _warn_of_quotes(frame)
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
            f"chosen on and tested: label more, join classes, take a larger sample, or leave these out.{hint}"
        )


def _check_spelling(counts: pd.Series) -> None:
    for _, alike in counts.groupby([plain(name) for name in counts.index]):
        if len(alike) > 1:
            named = " and ".join(f"{name!r} ({count} rows)" for name, count in alike.items())
            raise ValueError(
                f'The labels {named} differ in nothing but case, "-", "_" or spaces: they would be learned as '
                f"{len(alike)} classes. Spell them alike if they are one, or else give them names of their own."
            )


def _warn_of_quotes(frame: pd.DataFrame) -> None:
    every = [text for column in ("first", "second") for text in frame[column] if text]
    quoted = [text for text in every if len(text) > 1 and text[0] == text[-1] == '"']
    if len(quoted) > len(every) / 2:  # those with doubled quotes inside are told by data.read
        warnings.warn(
            f"{len(quoted)} of {len(every)} texts stand in quotes, such as {quoted[0][:40]!r}, as a spreadsheet writes "
            "them; here a quote is a sign like any other and stays in the text. To write the file without: "
            'pandas.read_csv("old.tsv", sep="\\t").to_csv("new.tsv", sep="\\t", index=False, quoting=3).',
            stacklevel=3,
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

    Texts without a word, such as "..." or an emoji, are so where they are equal.

    Args:
        texts: as :func:`helpers.data.texts` gives them.
        bound: least share of the words of the two that both have, above 0 and up to 1.
    """
    return [pair for block in _close(texts, bound) for pair in zip(*(side.tolist() for side in block), strict=True)]


def _close(texts: Iterable[Text], bound: float) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the pairs of :func:`near_duplicates` in their order, those of ROWS first texts at a time."""
    if not 0 < bound <= 1:
        raise ValueError(f"bound is {bound}: give a share of words above 0 and up to 1.")
    rows = [words(text) or [str(text)] for text in texts]
    bags = _bags(rows, _numbered(rows))
    sizes, others = np.asarray(bags.sum(axis=1)).ravel(), bags.T.tocsr()
    for start in range(0, len(rows), ROWS):
        shared = coo_matrix(bags[start : start + ROWS] @ others[:, start:])
        i, j, both = shared.row + start, shared.col + start, shared.data
        close = (i < j) & (both >= bound * (sizes[i] + sizes[j] - both))
        i, j = i[close], j[close]
        order = np.lexsort((j, i))
        yield i[order], j[order]


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

    Raises:
        ValueError: a class has no row in one of the splits.
    """
    if not shares or not min(shares.values()) > 0 or abs(sum(shares.values()) - 1) > 1e-9:
        raise ValueError(f"The shares are {dict(shares)}: they must be above 0 and add up to 1.")
    groups = _together(frame, bound)
    classes, labels = np.unique(frame["label_id"], return_inverse=True)
    need = np.outer(list(shares.values()), np.bincount(labels))  # split, class
    order = np.random.default_rng(seed).permutation(groups.max() + 1)
    order = order[np.argsort(-np.bincount(groups)[order], kind="stable")]  # the large ones while there is room
    members = np.split(np.argsort(groups, kind="stable"), np.cumsum(np.bincount(groups))[:-1])
    chosen = np.empty(len(frame), dtype=int)
    for group in order:
        rows = members[group]
        counts = np.bincount(labels[rows], minlength=len(classes))
        place = int((need @ counts).argmax())
        need[place] -= counts
        chosen[rows] = place
    _check_parts(frame, groups, np.array(list(shares))[chosen], list(shares), bound)
    return {name: frame[chosen == n].assign(split=name).reset_index(drop=True) for n, name in enumerate(shares)}


def _check_parts(frame: pd.DataFrame, groups: np.ndarray, places: np.ndarray, parts: list[str], bound: float) -> None:
    """Refuse a deal that leaves a split without a class, and say what held its rows together."""
    counts = pd.crosstab(frame["label"].to_numpy(), places).reindex(columns=parts, fill_value=0)
    lacking = [(label, part) for label, row in counts.iterrows() for part in parts if not row[part]]
    if not lacking:
        return
    label, part = lacking[0]
    held = pd.Series(groups)[frame["label"].to_numpy() == label]
    named = "pair" in frame and (frame["pair"].notna() & (frame["pair"] != "")).any()
    raise ValueError(
        f"No row of {label!r} is in the part {part!r}. Texts that share {bound:.0%} of their words, directly or in a "
        f"chain{', and rows with the same name in the column pair,' if named else ''} stay in one part, and so the "
        f"{len(held)} rows of this class are {held.nunique()} "
        f"{'groups' if held.nunique() > 1 else 'group'}, the largest of {held.value_counts().max()}. "
        + (
            'If the column pair does not say which rows belong together, drop it: frame.assign(pair=""). '
            if named
            else ""
        )
        + f"If the texts follow a template, bound=0.9 joins only those that are closer (bound is {bound:g}); or add "
        "texts of this class that are worded differently."
    )


def _together(frame: pd.DataFrame, bound: float) -> np.ndarray:
    """Return a group number for each row; rows joined by a chain of near-duplicates or names have the same."""
    rows = np.arange(len(frame))
    pairs = frame["pair"].astype(object).fillna("").to_numpy() if "pair" in frame else np.full(len(frame), "")
    first = pd.Series(rows).groupby(pairs).transform("first").to_numpy()  # the first row that has the same name
    linked = np.where(pairs == "", rows, first)
    for i, j in _close(data.texts(frame), bound):
        ends = np.concatenate([rows, i]), np.concatenate([linked, j])
        graph = coo_matrix((np.ones(len(ends[0])), ends), shape=(len(rows), len(rows)))
        groups = connected_components(graph, directed=False)[1]
        linked = np.unique(groups, return_index=True)[1][groups]  # what was found so far, as one link a row
    return np.unique(linked, return_inverse=True)[1]


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

    def predict(self, texts: Iterable[Text], *, batch_size: int | None = None) -> np.ndarray:
        """Return probabilities [text, class]; ``batch_size`` is taken, as models take it, and not needed."""
        return softmax(_bags([words(text) for text in texts], self.vocabulary) @ self.weights + self.bias, axis=1)
