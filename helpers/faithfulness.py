"""What a chosen set of attention edges carries: the answer with only these edges, and without them.

Whatever chose the edges, an attribution tree, the largest scores, attention or chance, is measured in the same way:

    sufficiency        p(whole) - p(only these edges)       small: they are enough
    comprehensiveness  p(whole) - p(without these edges)    large: they are needed

and, while ever more edges go (deletion) or come (insertion), best first, the probability and the area under it.

An edge that is gone has its weight set to 0 **after** the softmax; the weights that are left stay as they are and
are not normalised again, as in :func:`helpers.attention.keep_edges`. So no value flows along it, and no other edge
grows in its place. Two things to know: a token with few edges left reads less in all than it ever did in training; and
a token nobody reads has still had its share of every softmax, which made the other weights smaller.

Edges are bool arrays [layer, query, key], for all heads alike, or [layer, head, query, key]; query receives from key.
Each text has its own, over its own tokens without padding; a leading axis holds several settings. Those of a tree are
``tree.mask(t, self_edges=False)``: with its self-edges, removing a tree of words would take the words apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from helpers._edges import from_tokens, like, live, ramp
from helpers._gates import known
from helpers.attention import check_model, touch
from helpers.attribution import target_numbers
from helpers.inputs import Encoded, Text, encode
from helpers.outputs import logits_of, probabilities
from helpers.pruning import Curve, interval

__all__ = [
    "Carried", "carried", "deletion", "from_tokens", "insertion", "like", "live", "paired", "ramp", "with_only",
    "without",
]  # fmt: skip


# ---- running with some edges -----------------------------------------------------------------------------------------


def with_only(
    model, tokenizer, texts: Text | Iterable[Text], edges: Sequence[np.ndarray], *, self_edges: bool = True,
    max_length: int | None = None, batch_size: int | None = None,
) -> np.ndarray:  # fmt: skip
    """Return the class probabilities with only the given edges kept, [setting, text, class].

    Args:
        edges: one array a text, [setting, layer, query, key] or [setting, layer, head, query, key], True keeps; all
            texts have equally many settings.
        self_edges: True (the default) keeps what every token reads from itself, whatever ``edges`` say.
        max_length: as it was for whatever chose the edges; see :func:`helpers.inputs.encode`.
        batch_size: texts that go through the model together; None (the default): as many as come to 512 tokens on a
            CPU, which is up to twice as fast as many at once (:func:`helpers.inputs.batches_by_length`).

    Raises:
        ValueError: edges that don't fit the texts' tokens or the model's layers and heads; outputs that are nan.
    """
    check_model(model)
    encoded = encode(model, tokenizer, texts, max_length=max_length)
    return _outputs(model, encoded, _checked(edges, encoded), self_edges, batch_size)


def without(
    model, tokenizer, texts: Text | Iterable[Text], edges: Sequence[np.ndarray], *, self_edges: bool = True,
    max_length: int | None = None, batch_size: int | None = None,
) -> np.ndarray:  # fmt: skip
    """Return the class probabilities with the given edges removed, [setting, text, class].

    Arguments as for :func:`with_only`, True removes; ``self_edges=True`` (the default) never removes a self-edge.
    """
    check_model(model)
    encoded = encode(model, tokenizer, texts, max_length=max_length)
    return _outputs(model, encoded, [~each for each in _checked(edges, encoded)], self_edges, batch_size)


def _outputs(
    model, encoded: Encoded, kept: Sequence[np.ndarray], self_edges: bool, batch_size: int | None
) -> np.ndarray:
    """Return the probabilities [setting, text, class] with the edges that each setting keeps."""
    layers = kept[0].shape[1]
    found: dict[int, np.ndarray] = {}
    for rows in encoded.rows_by_length(batch_size):
        inputs, outputs = encoded.batch(rows), []
        with touch(model) as seen, torch.no_grad():
            for setting in range(len(kept[0])):
                edges = [kept[row][setting] for row in rows]
                seen.factors = dict(enumerate(_padded(edges, inputs["input_ids"].shape[1], self_edges)))
                logits = logits_of(model(**inputs))
                if seen.calls != layers:
                    raise ValueError(
                        f"The edges cover {layers} layers and the model has {seen.calls}: give every layer its edges, "
                        "or those left out would keep all of theirs."
                    )
                outputs.append(probabilities(logits, model.config).cpu().numpy())
        if not np.isfinite(outputs).all():
            raise ValueError("The model's outputs are not finite numbers: load it again, in float32.")
        found.update(zip(rows, np.stack(outputs, axis=1), strict=True))
    return np.stack([found[row] for row in range(len(kept))], axis=1)


def _checked(edges: Sequence[np.ndarray], encoded: Encoded, axes: str = "setting, layer") -> list[np.ndarray]:
    arrays = [np.asarray(each) for each in edges]
    if len(arrays) != len(encoded.tokens) or isinstance(edges, np.ndarray):
        raise ValueError(
            f"Edges were given for {len(arrays)} texts of {len(encoded.tokens)}: a list with one array a text is "
            "needed, [edges] for one text."
        )
    count = len(axes.split())
    for position, (array, tokens) in enumerate(zip(arrays, encoded.tokens, strict=True)):
        n = len(tokens)
        fits = array.dtype == bool and array.ndim - count in (2, 3) and array.shape[-2:] == (n, n)
        if not fits or not len(array):
            raise ValueError(
                f"The edges of text {position} are {array.dtype} {array.shape}: bool [{axes}, query, key] or "
                f"[{axes}, head, query, key] is needed, with one {axes.split(',')[0]} or more and {n} tokens. A text "
                "that was cut to a length needs the same max_length here."
            )
    if len({array.shape[:-2] for array in arrays}) > 1:
        raise ValueError("The texts' edges differ in the number of settings, layers or heads: give equally many.")
    return arrays


def _padded(kept: Sequence[np.ndarray], width: int, self_edges: bool) -> list[Tensor]:
    """Return each layer's factor, [row, head or 1, width, width]; padding, which the model masks, is left as it is."""
    heads = 1 if kept[0].ndim == 3 else kept[0].shape[1]
    out = np.ones((len(kept), len(kept[0]), heads, width, width), dtype=bool)
    for row, each in zip(out, kept, strict=True):
        n = each.shape[-1]
        row[..., :n, :n] = each.reshape(len(each), heads, n, n)
        if self_edges:
            row[..., range(n), range(n)] = True
    return list(torch.from_numpy(out.swapaxes(0, 1)))


# ---- what they carry -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Carried:
    """What several choices of edges carry over the same texts.

    Attributes:
        names: of the choices.
        target: the class whose probability is followed, int [text].
        whole: probabilities with all edges, [text, class].
        only: with nothing but the chosen edges, [choice, text, class].
        less: with the chosen edges removed, [choice, text, class].
    """

    names: tuple[str, ...]
    target: np.ndarray
    whole: np.ndarray
    only: np.ndarray
    less: np.ndarray

    def probability(self, where: str = "only") -> pd.DataFrame:
        """Return the target's probability with "only" or "less" the chosen edges, a row a text, a column a choice."""
        found = self._with(where)[:, np.arange(len(self.target)), self.target]
        return pd.DataFrame(found.T, columns=list(self.names))

    @property
    def start(self) -> np.ndarray:
        """The target's probability with all edges, [text]."""
        return self.whole[np.arange(len(self.target)), self.target]

    @property
    def sufficiency(self) -> pd.DataFrame:
        """p(whole) - p(only the chosen edges); small where they are enough."""
        return self.start[:, None] - self.probability("only")

    @property
    def comprehensiveness(self) -> pd.DataFrame:
        """p(whole) - p(without the chosen edges); large where they are needed."""
        return self.start[:, None] - self.probability("less")

    def answers(self, where: str = "only", gold: Sequence[int] | np.ndarray | None = None) -> pd.DataFrame:
        """Return whether the answer is the whole model's, or the gold one where class numbers are given."""
        if self.whole.shape[1] < 2:
            raise ValueError("A model with one output gives no answer to keep: take probability().")
        wanted = self.whole.argmax(axis=-1) if gold is None else np.asarray(gold)
        if wanted.shape != self.target.shape or wanted.dtype.kind not in "iu":
            raise ValueError(f"gold is {gold!r:.80}: one class number a text is needed (pruning.class_numbers).")
        return pd.DataFrame((self._with(where).argmax(axis=-1) == wanted).T, columns=list(self.names))

    def _with(self, where: str) -> np.ndarray:
        known(where, ("only", "less"), "where")
        return self.only if where == "only" else self.less


def carried(
    model, tokenizer, texts: Text | Iterable[Text], choices: Mapping[str, Sequence[np.ndarray]],
    target: int | str | Iterable[int | str] | None = None, *, self_edges: bool = True, max_length: int | None = None,
    batch_size: int | None = None,
) -> Carried:  # fmt: skip
    """Return what the edges of each choice carry: the outputs with nothing else, and without them.

    Args:
        choices: by name, one array of edges a text, [layer, query, key] or [layer, head, query, key].
        target: the class to follow, by number or name, one for all or one a text; None for the one that is answered
            with all edges.
        self_edges, max_length, batch_size: as for :func:`with_only`.
    """
    check_model(model)
    encoded = encode(model, tokenizer, texts, max_length=max_length)
    given = target_numbers(target, len(encoded.tokens), model)
    checked = [_checked(edges, encoded, "layer") for edges in choices.values()]
    if len({edges[0].shape[:-2] for edges in checked}) != 1:
        raise ValueError("Give one choice of edges or more, all with equally many layers and heads.")
    chosen = [np.stack(each) for each in zip(*checked, strict=True)]  # text by text: choice, layer, ...
    kept = [np.concatenate([np.ones_like(each[:1]), each, ~each]) for each in chosen]
    whole, *rest = _outputs(model, encoded, kept, self_edges, batch_size)
    return Carried(
        names=tuple(choices),
        target=whole.argmax(axis=-1) if given is None else np.array(given),
        whole=whole,
        only=np.stack(rest[: len(choices)]),
        less=np.stack(rest[len(choices) :]),
    )


def deletion(name: str, model, tokenizer, texts, edges: Sequence[np.ndarray], target, fractions, **options) -> Curve:
    """Return the target's probability while ever more edges are removed; a good order makes it fall early.

    Args:
        edges: of :func:`ramp`, one array a text.
        target: the class to follow, by number or name, one for all or one a text.
        fractions: as given to :func:`ramp`, rising.
        options: of :func:`with_only`.

    Returns:
        A curve whose ``right`` holds probabilities, [setting, text], so that ``accuracy`` is the mean probability.
    """
    return _curve(without, name, model, tokenizer, texts, edges, target, fractions, options)


def insertion(name: str, model, tokenizer, texts, edges: Sequence[np.ndarray], target, fractions, **options) -> Curve:
    """Return the target's probability while ever more edges are let in, from none on; a good order makes it rise early.

    Arguments as for :func:`deletion`.
    """
    return _curve(with_only, name, model, tokenizer, texts, edges, target, fractions, options)


def _curve(run: Callable, name, model, tokenizer, texts, edges, target, fractions, options) -> Curve:
    numbers, shares = target_numbers(target, len(edges), model), np.asarray(fractions, dtype=float)
    if numbers is None or shares.shape != np.shape(edges[0])[:1] or (np.diff(shares) < 0).any():
        raise ValueError(
            f"target is {target!r:.40} and the fractions are {fractions}: give the class to follow, and the fractions "
            f"of the {len(edges[0])} settings, rising."
        )
    found = run(model, tokenizer, texts, edges, **options)
    return Curve(name, shares, found[:, np.arange(len(numbers)), numbers])


def paired(first: np.ndarray, second: np.ndarray, *, level: float = 0.95, seed: int = 0) -> tuple[float, float, float]:
    """Return mean(first - second) over texts, and its bounds by bootstrap: both were measured on the same texts.

    Raises:
        ValueError: not one finite number a text in both, or fewer than two texts.
    """
    one, other = np.asarray(first, dtype=float), np.asarray(second, dtype=float)
    if one.ndim != 1 or one.shape != other.shape or not np.isfinite([one, other]).all():
        raise ValueError(
            f"{one.shape} and {other.shape} values can't be paired, or one is nan: one number a text is needed in both."
        )
    low, high = interval(one - other, level=level, seed=seed)
    return float((one - other).mean()), float(low), float(high)
