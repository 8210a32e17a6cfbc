"""Other ways to come by a trigger, in the same budget of tokens (part of :mod:`helpers.triggers`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor, nn
from tqdm.auto import tqdm

from helpers._trigger import MARKS, Trigger, as_list, check_class
from helpers._trigger_insertion import Inserted, Victims, insert
from helpers.inputs import Text, check_texts
from helpers.outputs import log_probabilities, logits_of
from helpers.quadrature import check_steps

Exclude = Callable[[str], bool]


def whole_words(
    tokenizer, exclude: Exclude | None = None, *, texts: Text | Iterable[Text] | None = None, least: int = 1
) -> np.ndarray:
    """Return the ids of tokens that are a whole word of letters, two or more, which a reader can type; int [word].

    Args:
        exclude: words to leave out, see :func:`extract`.
        texts, least: only words that at least so many of these texts hold; None: of the whole vocabulary.
    """
    known = _vocabulary(tokenizer, len(tokenizer))
    ids = np.array([i for i, word in known if not (exclude and exclude(word.lower()))], dtype=int)
    if texts is None:
        return ids
    check_steps(least, "least")
    counted = Counter[int]()
    batch = [" ".join(text) if isinstance(text, tuple) else text for text in check_texts(texts)]
    for line in tokenizer(batch, add_special_tokens=False, verbose=False)["input_ids"]:
        counted.update(set(line))
    return np.array([i for i in ids.tolist() if counted[i] >= least], dtype=int)


@lru_cache(maxsize=8)
def _vocabulary(tokenizer, size: int) -> tuple[tuple[int, str], ...]:
    """Return id and text of every whole word; ``size`` tells a vocabulary from itself with words added."""
    ids = sorted(set(tokenizer.get_vocab().values()) - set(tokenizer.all_special_ids))
    tokens = tokenizer.convert_ids_to_tokens(ids)
    marked = any(token.startswith(MARKS) for token in tokens)
    found = []
    for i, token in zip(ids, tokens, strict=True):
        word = token.strip("".join(MARKS))
        if (not marked or token.startswith(MARKS)) and len(word) > 1 and word.isalpha():
            found.append((i, word))
    again = tokenizer([f" {word}" for _, word in found], add_special_tokens=False)["input_ids"] if found else []
    return tuple(one for one, ids in zip(found, again, strict=True) if list(ids) == [one[0]])


def _allowed(tokenizer, exclude: Exclude | None, words: Iterable[int] | None) -> np.ndarray:
    """Return the ids of whole words to draw from or to search in, [word]."""
    ids = whole_words(tokenizer, exclude)
    ids = ids if words is None else ids[np.isin(ids, list(words))]
    if not len(ids):
        raise ValueError("No word of the vocabulary is left to draw from: exclude fewer, or allow more.")
    return ids


def _filled(tokenizer, like: Trigger, ids: Sequence[int], source: str) -> Trigger:
    """Return a trigger of the same places and class with other tokens."""
    tokens = tuple(tokenizer.convert_ids_to_tokens([int(i) for i in ids]))
    words = tuple(token.strip("".join(MARKS)) for token in tokens)
    return replace(
        like, tokens=tokens, ids=tuple(map(int, ids)), words=words, source=source, score=0.0, row=-1, links=(),
        places=(), support=1,
    )  # fmt: skip


def at_random(
    tokenizer,
    like: Iterable[Trigger],
    *,
    seed: int = 0,
    exclude: Exclude | None = None,
    words: Iterable[int] | None = None,
) -> list[Trigger]:
    """Return for each trigger one with as many tokens at the same places: whole words drawn at random.

    Args:
        exclude: words that must not be drawn, see :func:`extract`.
        words: token ids to draw from, such as those of :func:`whole_words` with texts; None: the whole vocabulary,
            rare and rude words and names of peoples among them.
    """
    rng, ids = np.random.default_rng(seed), _allowed(tokenizer, exclude, words)
    return [_filled(tokenizer, one, rng.choice(ids, len(one.ids)), "random") for one in as_list(like)]


def by_frequency(
    tokenizer,
    texts: Text | Iterable[Text],
    gold: Sequence[int],
    like: Sequence[Trigger],
    *,
    exclude: Exclude | None = None,
) -> list[Trigger]:
    """Return for each trigger one of the words that are most typical of its class, at the same places.

    A word w is typical of class c by z = (log odds of w in texts of c - log odds elsewhere) / its standard error,
    counted by texts, with one text added on either side; for pairs, in the first and second texts apart. The first
    trigger of a class takes the most typical words, the next the following ones, and so on.

    Args:
        texts, gold: the training examples and the number of their class.
        exclude: words that must not be taken, see :func:`extract`.

    Raises:
        ValueError: not one class number a text, a single trigger, or one with a second text where there is none.
    """
    batch, classes, like = check_texts(texts), np.asarray(gold), as_list(like)
    if classes.shape != (len(batch),) or classes.dtype.kind not in "iu":
        raise ValueError(
            f"gold has the shape {classes.shape} and type {classes.dtype} for {len(batch)} texts: give the class of "
            "every text by its number, such as labels.index(name)."
        )
    columns = list(zip(*batch, strict=True)) if isinstance(batch[0], tuple) else [batch]
    if second := [one for one in like if max(one.segments) >= len(columns)]:
        raise ValueError(f"The trigger '{second[0]}' has tokens for a second text, and these are single: give pairs.")
    ids = whole_words(tokenizer, exclude)
    ranked = {}
    for segment, column in enumerate(columns):
        lines = tokenizer(list(column), add_special_tokens=False, verbose=False)["input_ids"]
        for target in {one.target for one in like}:
            ranked[segment, target] = ids[_typical(lines, classes == target, ids)]
    taken: Counter[tuple[int, int]] = Counter()
    made = []
    for one in like:
        chosen = []
        for segment in one.segments:
            words = ranked[segment, one.target]
            chosen.append(words[taken[segment, one.target] % len(words)])
            taken[segment, one.target] += 1
        made.append(_filled(tokenizer, one, chosen, "frequent"))
    return made


def _typical(lines: Sequence[Sequence[int]], inside: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """Return the order of the words, the most typical of the texts ``inside`` first."""
    within, without = Counter(), Counter()
    for line, own in zip(lines, inside, strict=True):
        (within if own else without).update(set(line))
    n = np.array([inside.sum(), (~inside).sum()])[:, None]
    counts = np.array([[within[i] for i in ids], [without[i] for i in ids]]) + 1.0
    odds = np.log(counts / (n + 2 - counts))
    error = np.sqrt((1 / counts + 1 / (n + 2 - counts)).sum(axis=0))
    return np.argsort(-(odds[0] - odds[1]) / error, kind="stable")


def by_gradient(
    model,
    victims: Victims,
    like: Sequence[Trigger],
    *,
    rows: Iterable[int],
    rounds: int = 2,
    tries: int = 20,
    sample: int = 32,
    where: str = "relative",
    seed: int = 0,
    exclude: Exclude | None = None,
    words: Iterable[int] | None = None,
    progress: bool = False,
) -> list[Trigger]:
    """Return for each trigger one searched by gradients, at the same places (Wallace et al. 2019, after HotFlip).

    From random words on, one token after the other is replaced: with L the mean cross-entropy of the target class over
    a sample of victims of other classes and g = dL/de at the token's embedding e, the ``tries`` words w with the least
    (e_w - e) g are put in, and the one with the least L stays, if it is less than before. It costs about rounds *
    tokens * (tries + 2) * sample passes a trigger. Unlike the others it needs the model's weights.

    Args:
        rows: the victims it may look at: those to choose on, never those to report on.
        rounds: times that every token is gone over; it ends before if nothing got better.
        sample: victims for a trigger, drawn anew for each.
        where: see :func:`insert`.
        exclude: words that must not be taken, see :func:`extract`.
        words: token ids to search in; None: all whole words of the vocabulary.

    Raises:
        ValueError: a trigger of no class, or of one with another number here, or with no victims of another class.
    """
    for name, value in (("rounds", rounds), ("tries", tries), ("sample", sample)):
        check_steps(value, name)
    like = as_list(like)
    _check_targets(like, victims.labels)
    allowed = _allowed(victims.tokenizer, exclude, words)
    starts = at_random(victims.tokenizer, like, seed=seed, words=allowed)
    rng, looked = np.random.default_rng(seed), victims.chosen(rows)
    training, found = model.training, []
    model.eval()
    try:
        for start in tqdm(starts, disable=not progress, desc="gradient search", unit="trigger"):
            others = looked[victims.gold[looked] != start.target]
            if not len(others):
                name = victims.labels[start.target]
                raise ValueError(f"There is no victim of another class than {name!r} to search on: give more.")
            chosen = rng.permutation(others)[:sample]
            inserted = insert(victims, start, rows=chosen, where=where, seed=seed)
            ids = _Search(model, inserted, allowed, tries).run(rounds)
            found.append(_filled(victims.tokenizer, start, ids, "gradient"))
    finally:
        model.train(training)
    return found


def _check_targets(like: Sequence[Trigger], labels: Sequence[str]) -> None:
    """Refuse triggers without a class to search for."""
    for one in like:
        check_class(one, labels)
        if not 0 <= one.target < len(labels):
            raise ValueError(
                f"The trigger '{one}' pushes to class {one.target}, and the search needs one of 0 to "
                f"{len(labels) - 1}: take dataclasses.replace(trigger, target=...)."
            )


class _Search:
    """One trigger's search: the texts stay, the ids at its places change."""

    def __init__(self, model, inserted: Inserted, allowed: np.ndarray, tries: int) -> None:
        self.model, self.inputs, self.tries = model, inserted.batch(), tries
        self.embedding: nn.Module = model.get_input_embeddings()
        device = self.inputs["input_ids"].device
        self.places = torch.tensor(inserted.places, device=device)  # text, token
        self.texts = torch.arange(len(inserted.places), device=device)
        self.allowed = torch.from_numpy(allowed).to(device)
        self.ids = list(inserted.trigger.ids)
        self.target = torch.full_like(self.texts, inserted.trigger.target)

    def run(self, rounds: int) -> list[int]:
        with torch.inference_mode(False):
            least = self._loss(self.ids)
            for _ in range(rounds):
                before = least
                for place in range(len(self.ids)):
                    for word in self._promising(place):
                        tried = [*self.ids[:place], word, *self.ids[place + 1 :]]
                        loss = self._loss(tried)
                        if loss < least:
                            least, self.ids = loss, tried
                if least == before:
                    break
        return self.ids

    def _inputs(self, ids: list[int]) -> dict[str, Tensor]:
        changed = self.inputs["input_ids"].clone()
        changed[self.texts[:, None], self.places] = torch.tensor(ids, device=changed.device)
        return {**self.inputs, "input_ids": changed}

    def _losses(self, ids: list[int]) -> Tensor:
        logs = log_probabilities(logits_of(self.model(**self._inputs(ids))), self.model.config)
        return -logs[self.texts, self.target].mean()

    def _loss(self, ids: list[int]) -> float:
        with torch.no_grad():
            return float(self._losses(ids))

    def _promising(self, place: int) -> list[int]:
        """Return the words with the least linearised loss at a place."""
        kept: list[Tensor] = []

        def keep(module: nn.Module, args: tuple, output: Tensor) -> Tensor:
            kept.append(output.detach().requires_grad_())
            return kept[-1]

        hook = self.embedding.register_forward_hook(keep)
        try:
            with torch.enable_grad():
                gradient = torch.autograd.grad(self._losses(self.ids), kept[0])[0]
        finally:
            hook.remove()
        slope = gradient[self.texts, self.places[:, place]].sum(dim=0)
        change = self.embedding.weight.detach()[self.allowed] @ slope  # less the same e g for all
        best = self.allowed[change.topk(min(self.tries, len(self.allowed)), largest=False).indices]
        return [int(word) for word in best if int(word) != self.ids[place]]
