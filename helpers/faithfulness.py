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
Each text has its own, over its own tokens without padding; a leading axis holds several settings.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from helpers.attention import touch
from helpers.attribution import target_numbers
from helpers.inputs import Encoded, Text, check_texts, encode
from helpers.outputs import logits_of, probabilities
from helpers.pruning import Curve, counts_of, interval

__all__ = [
    "Carried", "carried", "deletion", "from_tokens", "insertion", "like", "live", "paired", "ramp", "with_only",
    "without",
]  # fmt: skip


# ---- running with some edges -----------------------------------------------------------------------------------------


def with_only(model, tokenizer, texts: Text | Iterable[Text], edges: Sequence[np.ndarray], **options) -> np.ndarray:
    """Return the class probabilities with only the given edges kept, [setting, text, class].

    Args:
        edges: one array a text, [setting, layer, query, key] or [setting, layer, head, query, key], True keeps; all
            texts have equally many settings.
        self_edges: True (the default) keeps what every token reads from itself, whatever ``edges`` say.
        max_length: as it was for whatever chose the edges; see :func:`helpers.inputs.encode`.
        batch_size: texts that go through the model together.

    Raises:
        ValueError: edges that don't fit the texts' tokens or the model's layers and heads.
    """
    return _run(model, tokenizer, texts, edges, flip=False, **options)


def without(model, tokenizer, texts: Text | Iterable[Text], edges: Sequence[np.ndarray], **options) -> np.ndarray:
    """Return the class probabilities with the given edges removed, [setting, text, class].

    Arguments as for :func:`with_only`, True removes; ``self_edges=True`` (the default) never removes a self-edge.
    """
    return _run(model, tokenizer, texts, edges, flip=True, **options)


def _run(
    model, tokenizer, texts, edges, *, flip: bool, self_edges: bool = True, max_length: int | None = None,
    batch_size: int = 32,
) -> np.ndarray:  # fmt: skip
    texts = check_texts(texts)
    encoded = encode(model, tokenizer, texts, max_length=max_length)
    edges = _checked(edges, encoded)
    found: dict[int, np.ndarray] = {}
    for rows in encoded.rows_by_length(batch_size):
        inputs, outputs = encoded.batch(rows), []
        for setting in range(len(edges[0])):
            kept = _padded([edges[row][setting] ^ flip for row in rows], inputs["input_ids"].shape[1], self_edges)
            with touch(model, factors=dict(enumerate(kept))) as seen, torch.no_grad():
                logits = logits_of(model(**inputs))
            if seen.calls != len(kept):
                raise ValueError(
                    f"The edges cover {len(kept)} layers and the model has {seen.calls}: give every layer its edges, "
                    "or those left out would keep all of theirs."
                )
            outputs.append(probabilities(logits, model.config).cpu().numpy())
        found.update(zip(rows, np.stack(outputs, axis=1), strict=True))
    return np.stack([found[row] for row in range(len(texts))], axis=1)


def _checked(edges: Sequence[np.ndarray], encoded: Encoded) -> list[np.ndarray]:
    arrays = [np.asarray(each) for each in edges]
    if len(arrays) != len(encoded.tokens):
        raise ValueError(
            f"Edges were given for {len(arrays)} texts of {len(encoded.tokens)}: one array a text is needed."
        )
    for position, (array, tokens) in enumerate(zip(arrays, encoded.tokens, strict=True)):
        n = len(tokens)
        if array.dtype != bool or array.ndim not in (4, 5) or array.shape[-2:] != (n, n) or not len(array):
            raise ValueError(
                f"The edges of text {position} are {array.dtype} {array.shape}: bool [setting, layer, query, key] or "
                f"[setting, layer, head, query, key] is needed, with one setting or more and {n} tokens. A text that "
                "was cut to a length needs the same max_length here."
            )
    if len({(array.ndim, *array.shape[:-2]) for array in arrays}) > 1:
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


# ---- choosing edges --------------------------------------------------------------------------------------------------


def live(layers: int, tokens: int, *, terminal: int | None = 0) -> np.ndarray:
    """Return the edges that join two tokens and can matter, bool [layer, query, key].

    Self-edges are left out. In the last layer only the token that the classifier reads receives anything that
    counts, so there only its row is in; ``terminal=None`` for a model that reads all tokens.
    """
    joined = np.broadcast_to(~np.eye(tokens, dtype=bool), (layers, tokens, tokens)).copy()
    if terminal is not None:
        joined[-1, np.arange(tokens) != terminal % tokens] = False
    return joined


def from_tokens(chosen: np.ndarray, layers: int) -> np.ndarray:
    """Return all edges that other tokens receive from the chosen ones, bool [layer, query, key].

    Removing them removes the tokens from every other token's sight: what a choice of tokens is measured by.

    Args:
        chosen: bool [token].
    """
    chosen = np.asarray(chosen, dtype=bool)
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
    allowed = np.ones(reference.shape, dtype=bool) if allowed is None else allowed
    return _largest(scores, reference.reshape(len(reference), -1).sum(axis=1).tolist(), allowed)


def _largest(scores: np.ndarray, counts: Sequence[int], allowed: np.ndarray) -> np.ndarray:
    if scores.shape != allowed.shape or len(counts) != len(scores) or np.isnan(scores).any():
        raise ValueError(
            f"Scores {scores.shape} and edges {allowed.shape} in {len(counts)} layers don't fit, or a score is nan: "
            "the same shape is needed."
        )
    chosen = np.zeros(scores.shape, dtype=bool)
    for layer, count in enumerate(counts):
        open_ones = np.flatnonzero(allowed[layer])
        if count > len(open_ones):
            raise ValueError(f"{count} edges are wanted in layer {layer}, where {len(open_ones)} are allowed.")
        order = np.argsort(-scores[layer].ravel()[open_ones], kind="stable")
        chosen[layer].reshape(-1)[open_ones[order[:count]]] = True
    return chosen


def ramp(scores: np.ndarray, fractions: Sequence[float], *, allowed: np.ndarray | None = None) -> np.ndarray:
    """Return the edges with the largest scores, ever more of them, the same share in every layer: bool [setting, ...].

    Args:
        scores: [layer, query, key] or [layer, head, query, key].
        fractions: of every layer's allowed edges, 0 to 1, one setting each.
        allowed: as for :func:`like`.
    """
    allowed = np.ones(scores.shape, dtype=bool) if allowed is None else allowed
    sizes = allowed.reshape(len(allowed), -1).sum(axis=1)
    counts = np.array([counts_of(fractions, int(size)) for size in sizes])  # layer, setting
    return np.stack([_largest(scores, row, allowed) for row in counts.T.tolist()])


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
        found = getattr(self, where)[:, np.arange(len(self.target)), self.target]
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

    def answers(self, where: str = "only", gold: np.ndarray | None = None) -> pd.DataFrame:
        """Return whether the answer is the whole model's, or the gold one where class numbers are given."""
        wanted = self.whole.argmax(axis=-1) if gold is None else np.asarray(gold)
        return pd.DataFrame((getattr(self, where).argmax(axis=-1) == wanted).T, columns=list(self.names))


def carried(
    model,
    tokenizer,
    texts: Text | Iterable[Text],
    choices: Mapping[str, Sequence[np.ndarray]],
    target: Iterable[int | str] | None = None,
    **options,
) -> Carried:
    """Return what the edges of each choice carry: the outputs with nothing else, and without them.

    Args:
        choices: by name, one array of edges a text, [layer, query, key] or [layer, head, query, key].
        target: the class to follow, by number or name, one a text; None for the one answered with all edges.
        options: of :func:`with_only`.
    """
    texts = check_texts(texts)
    if not choices or len({len(edges) for edges in choices.values()}) > 1:
        raise ValueError("Give one choice of edges or more, each with one array a text.")
    edges = [np.stack(each) for each in zip(*choices.values(), strict=True)]
    nothing = [np.zeros_like(each[:1]) for each in edges]
    whole = without(model, tokenizer, texts, nothing, **options)[0]
    given = target_numbers(None if target is None else list(target), len(texts), model)
    return Carried(
        names=tuple(choices),
        target=whole.argmax(axis=-1) if given is None else np.array(given),
        whole=whole,
        only=with_only(model, tokenizer, texts, edges, **options),
        less=without(model, tokenizer, texts, edges, **options),
    )


def deletion(name: str, model, tokenizer, texts, edges: Sequence[np.ndarray], target, fractions, **options) -> Curve:
    """Return the target's probability while ever more edges are removed; a good order makes it fall early.

    Args:
        edges: of :func:`ramp`, one array a text.
        target: the class number of every text.
        fractions: as given to :func:`ramp`, rising.

    Returns:
        A curve whose ``right`` holds probabilities, [setting, text], so that ``accuracy`` is the mean probability.
    """
    return _curve(name, without(model, tokenizer, texts, edges, **options), target, fractions)


def insertion(name: str, model, tokenizer, texts, edges: Sequence[np.ndarray], target, fractions, **options) -> Curve:
    """Return the target's probability while ever more edges are let in, from none on; a good order makes it rise early.

    Arguments as for :func:`deletion`.
    """
    return _curve(name, with_only(model, tokenizer, texts, edges, **options), target, fractions)


def _curve(name: str, found: np.ndarray, target: Sequence[int], fractions: Sequence[float]) -> Curve:
    return Curve(name, np.asarray(fractions, dtype=float), found[:, np.arange(found.shape[1]), np.asarray(target)])


def paired(first: np.ndarray, second: np.ndarray, *, level: float = 0.95, seed: int = 0) -> tuple[float, float, float]:
    """Return mean(first - second) over texts, and its bounds by bootstrap: both were measured on the same texts."""
    difference = np.asarray(first, dtype=float) - np.asarray(second, dtype=float)
    low, high = interval(difference, level=level, seed=seed)
    return float(difference.mean()), float(low), float(high)
