"""Explanations of one answer by eight methods, called and measured in the same way.

| method | score of a link, A: attention [layer, head, query, key] | source |
| --- | --- | --- |
| attention | A | |
| rollout | probability that a walk down the layers takes the link | Abnar & Zuidema 2020; the links are ours |
| flow | (tokens only) largest flow through the layers | Abnar & Zuidema 2020 |
| gradient x attention | A * dF/dA | the path of "attribution" at its end |
| value norms | A * norm of the value after the output projection, by head | Kobayashi et al. 2020 |
| integrated gradients | (tokens only) on word embeddings, from [MASK] | Sundararajan et al. 2017, by captum |
| attribution | A * integral of dF(aA)/dA da | Hao et al. 2021 (:mod:`helpers.attribution`) |
| random | uniform numbers | |

Where a method scores links, a token's score is **what all tokens take from it**: the sum over heads and queries,
averaged over layers, since each layer of an attribution is an account of its own; in the last layer only what the
classifier's token takes, as nothing comes of the rest. Rollout, flow and integrated gradients score tokens themselves.
Attention, rollout, flow and norms know nothing of the class that is explained; the gradients do. All but the gradients
are told which token the classifier reads (``terminal``).

Then :func:`token_faithfulness` and :func:`link_faithfulness` remove and restore, best first, whatever was scored
best, and :func:`rank_of_words` looks for planted words (:func:`helpers.planted.rank_of_link` for their link).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch
from transformers import PreTrainedModel

from helpers._explain_graph import flow, mixed, rollout
from helpers._explain_measure import (
    MEASURES,
    Faithfulness,
    link_faithfulness,
    own_tokens,
    rank_of_words,
    token_faithfulness,
    with_masked,
)
from helpers._explain_vectors import baseline_ids, integrated_gradients, projections, value_norms
from helpers.attention import check_model, touch
from helpers.attribution import attribute, target_numbers
from helpers.inputs import Encoded, Text, Word, check_texts, encode, is_text
from helpers.outputs import logits_of
from helpers.quadrature import check_steps

__all__ = [
    "MEASURES", "METHODS", "WITH_LINKS", "Explanation", "Faithfulness", "explain", "from_links", "link_faithfulness",
    "own_tokens", "rank_of_words", "token_faithfulness", "with_masked",
]  # fmt: skip

WITH_LINKS = ("attribution", "gradient x attention", "value norms", "attention", "rollout", "random")
METHODS = (*WITH_LINKS[:-1], "flow", "integrated gradients", "random")


@dataclass(frozen=True, eq=False)
class Explanation:
    """One method's scores of one text.

    Attributes:
        method: its name, one of :data:`METHODS`.
        tokens: the model's tokens, padding cropped.
        words: the words as written, as spans of tokens.
        target: the class explained.
        token_scores: float64 [token], larger for what counts more.
        links: float64 [layer, head, query, key], or [layer, query, key] where heads were merged; None where the
            method scores tokens alone.
        gap: where the method promises a sum, how far the scores miss it (the largest of the layers), in the unit of F;
            nan where it promises none.
    """

    method: str
    tokens: tuple[str, ...]
    words: tuple[Word, ...]
    target: int
    token_scores: np.ndarray
    links: np.ndarray | None = None
    gap: float = np.nan

    def layer_links(self) -> np.ndarray:
        """Return the links' scores summed over heads, [layer, query, key]."""
        if self.links is None:
            raise ValueError(f"{self.method!r} scores tokens and no links: use one of {', '.join(WITH_LINKS)}.")
        return self.links.sum(axis=1) if self.links.ndim == 4 else self.links


def explain(
    method: str, model: PreTrainedModel, tokenizer, texts: Text | Iterable[Text], *,
    target: int | str | Iterable[int | str] | None = None, steps: int | None = None, residual: float = 0.5,
    terminal: int | None = 0, seed: int = 0, max_length: int | None = None,
) -> Explanation | list[Explanation]:  # fmt: skip
    """Explain the probability of a class by one of :data:`METHODS`; every method takes the same arguments.

    Args:
        method: its name.
        model: a transformers sequence classifier whose attention can be switched.
        tokenizer: the model's.
        texts: a text, a (first, second) pair, or a list of either.
        target: the class, by index or name, one for all or one a text; None for the predicted one. Methods that know
            of no class note it and don't use it.
        steps: Gauss points of a path; None: as many as are needed ("attribution"), 32 ("integrated gradients").
        residual: the share of the residual stream in rollout and flow.
        terminal: the position of the token that the classifier reads, negative from the end: 0 for BERT, -1 for
            GPT-2; None for a classifier that reads the mean of all.
        seed: of "random"; each text has numbers of its own, whatever other texts come with it.
        max_length: cut texts to so many tokens.

    Raises:
        ValueError: no such method or class, or steps below 1.
        UnsupportedModelError: the attention, or what the method needs beside it, can't be reached.

    >>> explain("rollout", model, tokenizer, "A slow start, but a wonderful end.").token_scores
    """
    if method not in METHODS:
        raise ValueError(f"There is no method {method!r}: use one of {', '.join(METHODS)}.")
    if steps is not None:
        check_steps(steps)
    check_model(model)
    batch = check_texts(texts)
    with torch.inference_mode(False):  # so that a slope can be taken behind them
        encoded = encode(model, tokenizer, batch, max_length=max_length)
    given = target_numbers(target, len(encoded.tokens), model)
    if method in ("attribution", "gradient x attention"):
        found = _by_attribution(method, model, tokenizer, batch, given, steps, terminal, max_length)
    else:
        with torch.inference_mode(False):
            found = _by_itself(method, model, tokenizer, encoded, given, steps or 32, residual, terminal, seed)
    return found[0] if is_text(texts) else found


def from_links(links: np.ndarray, readers: np.ndarray) -> np.ndarray:
    """Return what all tokens take from each, the sum over heads and queries, mean over layers, [token].

    Args:
        links: [layer, head, query, key] or [layer, query, key].
        readers: how much of each token the classifier reads, [token]; other rows of the last layer don't count.
    """
    taken = links.sum(axis=1, dtype=float) if links.ndim == 4 else links.astype(float)
    return np.concatenate([taken[:-1].sum(axis=1), taken[-1:, readers > 0].sum(axis=1)]).mean(axis=0)


def _by_attribution(method, model, tokenizer, batch, given, steps, terminal, max_length) -> list[Explanation]:
    whole = method == "attribution"
    points, rule = ((steps, "gauss") if steps else ("auto", None)) if whole else (1, "right")
    found = attribute(model, tokenizer, batch, target=given, max_length=max_length, gap=whole, steps=points, rule=rule)
    return [
        Explanation(
            method=method,
            tokens=a.tokens,
            words=a.words,
            target=a.target,
            token_scores=from_links(a.scores, _readers(len(a.tokens), terminal)),
            links=a.scores.astype(float),
            gap=float(np.abs(a.gap).max()) if whole else np.nan,
        )
        for a in (found if isinstance(found, list) else [found])
    ]


def _by_itself(method, model, tokenizer, encoded: Encoded, given, steps, residual, terminal, seed) -> list[Explanation]:
    """Explain text by text, without padding: rollout and flow are made for one matrix size, captum for one target."""
    out = []
    for row, (tokens, words) in enumerate(zip(encoded.tokens, encoded.words, strict=True)):
        inputs, readers = encoded.batch([row]), _readers(len(tokens), terminal)
        with touch(model, record=True) as seen, torch.no_grad():
            logits = logits_of(model(**inputs))
        target = int(logits.argmax()) if given is None else given[row]
        links, scores, gap = None, None, np.nan
        attention = np.stack([seen.attention[layer][0].double().cpu().numpy() for layer in range(seen.calls)])
        if method == "attention":
            links = attention
        elif method == "value norms":
            weights = projections(model, seen.calls)
            norms = [value_norms(seen.values[layer], weights[layer])[0] for layer in range(seen.calls)]
            links = attention * torch.stack(norms).detach().double().cpu().numpy()[:, :, None]
        elif method == "random":
            links = np.random.default_rng([seed, row]).random(attention[:, 0].shape)
        elif method == "integrated gradients":
            baseline = baseline_ids(inputs["input_ids"], tokenizer)
            scores, gap = integrated_gradients(model, inputs, baseline, target, steps)
        elif method == "rollout":
            scores, links = rollout(mixed(attention, residual), readers)
        else:
            scores = flow(mixed(attention, residual), readers)
        scores = from_links(links, readers) if scores is None else scores
        out.append(Explanation(method, tokens, words, target, scores, links, gap))
    return out


def _readers(tokens: int, terminal: int | None) -> np.ndarray:
    """Return how much of each token the classifier reads, [token], sum 1."""
    if terminal is None:
        return np.full(tokens, 1 / tokens)
    if not -tokens <= terminal < tokens:
        raise ValueError(f"terminal is {terminal} and there are {tokens} tokens: give the place of one of them.")
    return np.eye(tokens)[terminal]
