"""How faithful an explanation is, by taking away what it names (a part of :mod:`helpers.explanations`).

Tokens or links go in the order of an explanation, best first; p is the probability of the class explained:

    comprehensiveness  mean over shares q of  p(whole) - p(without the best q)     large: they are needed
    sufficiency        mean over shares q of  p(whole) - p(with only the best q)   small: they are enough
    deletion           area under p while ever more go, best first                 small
    insertion          area under p while ever more come, best first               large

The first two are DeYoung et al., *ERASER*, ACL 2020, section 4 (their shares of tokens: 1, 5, 10, 20, 50 %).

Links are cut as in :mod:`helpers.faithfulness`. Tokens go in one of two ways. **hidden** (the default): no other token
attends to them any more, in any layer: the intervention is the one used for links, nothing new is written into the
text, and the model's input stays as long as it was. It is also near to what attention attribution itself starts from.
**masked**: their embedding is that of [MASK], which is what integrated gradients start from here. Measure with both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch

from helpers._edges import from_tokens, live, ramp
from helpers.attention import check_model, touch
from helpers.faithfulness import paired, with_only, without
from helpers.inputs import Word, encode
from helpers.outputs import logits_of, probabilities
from helpers.pruning import interval

TOKEN_SHARES = (0.0, 0.05, 0.1, 0.2, 0.5, 1.0)  # the paper's 1 % is one token of a short text, as 5 % is
LINK_SHARES = (0.0, 0.01, 0.02, 0.05, 0.1, 0.2)
MEASURES = {"comprehensiveness": 1, "sufficiency": -1, "deletion": -1, "insertion": 1}  # 1: large is good
WAYS = ("hidden", "masked")


@dataclass(frozen=True, eq=False)
class Faithfulness:
    """The probability of the class explained while what each method scored best goes, or comes.

    Attributes:
        methods: their names.
        shares: of tokens or links, from 0, [setting].
        deleted: with the best share gone, [method, setting, text].
        inserted: with only the best share, [method, setting, text].
        whole: with everything, [text].
    """

    methods: tuple[str, ...]
    shares: np.ndarray
    deleted: np.ndarray
    inserted: np.ndarray
    whole: np.ndarray

    def measured(self, name: str) -> pd.DataFrame:
        """Return one of :data:`MEASURES`, a row a text, a column a method."""
        if name not in MEASURES:
            raise ValueError(f"There is no measure {name!r}: use one of {', '.join(MEASURES)}.")
        gone = name in ("comprehensiveness", "deletion")
        values = self.deleted if gone else self.inserted
        if name in ("deletion", "insertion"):
            width = self.shares[-1] - self.shares[0]
            found = np.trapezoid(values, self.shares, axis=1) / width
        else:
            inside = (self.shares > 0) & (self.shares < 1)
            found = (self.whole - values[:, inside]).mean(axis=1)
        return pd.DataFrame(found.T, columns=list(self.methods))

    def table(self, against: str, *, level: float = 0.95, seed: int = 0) -> pd.DataFrame:
        """Return mean and interval of every measure and method, and how far ahead of it ``against`` is, by text.

        Columns: measure, method, mean, low, high; lead, lead_low, lead_high: above 0 where ``against`` is better,
        whichever way the measure points. Intervals are bootstraps over texts.
        """
        lines = []
        for name, sign in MEASURES.items():
            values = self.measured(name)
            for method in self.methods:
                low, high = interval(values[method], level=level, seed=seed)
                lead = paired(sign * values[against], sign * values[method], level=level, seed=seed)
                lines.append((name, method, values[method].mean(), low, high, *lead))
        return pd.DataFrame(
            lines, columns=["measure", "method", "mean", "low", "high", "lead", "lead_low", "lead_high"]
        )


def link_faithfulness(
    model, tokenizer, texts, found: Mapping[str, Sequence], *, shares: Sequence[float] = LINK_SHARES,
    terminal: int | None = 0, causal: bool = False, max_length: int | None = None,
) -> Faithfulness:  # fmt: skip
    """Measure methods by the links that they score best, the same share in every layer, heads added up.

    Args:
        found: by method, one Explanation a text, all of the same classes.
        shares: of a layer's links, rising from 0.
        terminal, causal: which links can matter; see :func:`helpers.faithfulness.live`.
        max_length: as for :func:`helpers.explanations.explain`.
    """
    _check(found, shares)

    def order(each) -> np.ndarray:
        scores = each.layer_links()
        return ramp(scores, shares, allowed=live(*scores.shape[:2], terminal=terminal, causal=causal))

    ramps = {name: [order(each) for each in some] for name, some in found.items()}
    gone = _runs(lambda edges: without(model, tokenizer, texts, edges, max_length=max_length), ramps, shares)
    left = _runs(lambda edges: with_only(model, tokenizer, texts, edges, max_length=max_length), ramps, shares)
    return _gathered(found, shares, gone, left)


def token_faithfulness(
    model, tokenizer, texts, found: Mapping[str, Sequence], *, shares: Sequence[float] = TOKEN_SHARES,
    how: str = "hidden", max_length: int | None = None,
) -> Faithfulness:  # fmt: skip
    """Measure methods by the tokens that they score best; [CLS] and other marks always stay.

    Arguments as for :func:`link_faithfulness`; ``how`` is "hidden" or "masked", see the head of this module.
    """
    if how not in WAYS:
        raise ValueError(f"how is {how!r}: use one of {', '.join(WAYS)}.")
    _check(found, shares)
    own = {name: [own_tokens(each.words) for each in some] for name, some in found.items()}
    best = {
        name: [ramp(e.token_scores[None], shares, allowed=o[None])[:, 0] for e, o in zip(some, own[name], strict=True)]
        for name, some in found.items()
    }
    rest = {name: [o & ~b for o, b in zip(own[name], best[name], strict=True)] for name in found}
    layers = model.config.num_hidden_layers

    def run(chosen: list[np.ndarray]) -> np.ndarray:
        if how == "masked":
            return with_masked(model, tokenizer, texts, chosen, max_length=max_length)
        edges = [np.stack([from_tokens(setting, layers) for setting in each]) for each in chosen]
        return without(model, tokenizer, texts, edges, max_length=max_length)

    return _gathered(found, shares, _runs(run, best, shares), _runs(run, rest, shares))


def _runs(run: Callable, choices: Mapping[str, list[np.ndarray]], shares: Sequence[float]) -> np.ndarray:
    """Return what runs give, [method, setting, text, class]; shares of 0 and 1 are alike for all and run once."""
    alike = np.isin(shares, (0, 1))
    stacked = [
        np.concatenate([some[0][alike], *(each[~alike] for each in some)])
        for some in zip(*choices.values(), strict=True)
    ]
    found = run(stacked)
    out = np.empty((len(choices), len(alike), *found.shape[1:]))
    out[:, alike] = found[: alike.sum()]
    out[:, ~alike] = found[alike.sum() :].reshape(len(choices), -1, *found.shape[1:])
    return out


def _gathered(found, shares, gone: np.ndarray, left: np.ndarray) -> Faithfulness:
    targets = np.array([each.target for each in next(iter(found.values()))])
    text = np.arange(len(targets))
    deleted, inserted = gone[:, :, text, targets], left[:, :, text, targets]
    return Faithfulness(tuple(found), np.asarray(shares, dtype=float), deleted, inserted, deleted[0, 0])


def _check(found: Mapping[str, Sequence], shares: Sequence[float]) -> None:
    if len({tuple(each.target for each in some) for some in found.values()}) != 1:
        raise ValueError(
            "The methods explain different texts or classes, or none was given: give every method one Explanation a "
            "text, all made with the same target."
        )
    if len(shares) < 2 or shares[0] != 0 or (np.diff(shares) <= 0).any():
        raise ValueError(f"The shares are {list(shares)}: two or more are needed that rise from 0, with nothing gone.")


def own_tokens(words: Sequence[Word]) -> np.ndarray:
    """Return which tokens belong to the text, bool [token]: marks such as [CLS] do not."""
    own = np.zeros(max(word.stop for word in words), dtype=bool)
    for word in words:
        own[word.start : word.stop] = word.segment is not None
    return own


def with_masked(model, tokenizer, texts, chosen: Sequence[np.ndarray], *, max_length: int | None = None) -> np.ndarray:
    """Return the class probabilities with the chosen tokens replaced by the mask token, [setting, text, class].

    Args:
        chosen: one array a text, bool [setting, token], True replaces.
        max_length: as it was for whatever chose them.

    Raises:
        ValueError: the tokenizer has no mask token, or the choice doesn't fit the tokens.
    """
    check_model(model)
    if tokenizer.mask_token_id is None:
        raise ValueError("The tokenizer has no mask token: measure with how='hidden', or set tokenizer.mask_token.")
    encoded, out = encode(model, tokenizer, texts, max_length=max_length), []
    for row, (tokens, each) in enumerate(zip(encoded.tokens, chosen, strict=True)):
        if np.shape(each)[1:] != (len(tokens),):
            raise ValueError(
                f"The choice for text {row} is {np.shape(each)}: [setting, {len(tokens)} tokens] is needed."
            )
        inputs = {name: tensor.expand(len(each), -1) for name, tensor in encoded.batch([row]).items()}
        blank = torch.as_tensor(each, device=inputs["input_ids"].device)
        inputs["input_ids"] = inputs["input_ids"].masked_fill(blank, tokenizer.mask_token_id)
        with touch(model), torch.no_grad():  # in eval mode
            out.append(probabilities(logits_of(model(**inputs)), model.config).cpu().numpy())
    return np.stack(out, axis=1)


def rank_of_words(scores: np.ndarray, words: Sequence[Word], planted: tuple[Word, Word]) -> int:
    """Return how many other words score as much as the lower of the two planted ones, plus one: 1, both are on top.

    A word's score is the largest of its pieces. Marks such as [CLS] are no words here. A tie counts against them.

    Args:
        scores: [token].
        words: of the text.
        planted: the two, of :func:`helpers.planted.find_words`.
    """

    def of(word: Word) -> float:
        return float(np.max(scores[word.start : word.stop]))

    lower = min(of(word) for word in planted)
    return 1 + sum(of(word) >= lower for word in words if word.segment is not None and word not in planted)
