"""Attributions made of given words and seeded numbers, for tests that need no model."""

from __future__ import annotations

import numpy as np

from helpers.inputs import Word
from helpers.result import Attribution

HARD = ("<script>alert(1)</script>", "$x_1$", "costs", "$5", "&amp;", "very", "very", "🤖", "%{x}")


def sample(words=("a", "slow", "but", "warm", "film"), *, layers=(0, 1, 2), heads=2, seed=0, pieces=(), **changes):
    """Return an Attribution of the words between [CLS] and [SEP]; each of ``pieces`` is cut in two, 🤖 is unknown."""
    tokens, spans = ["[CLS]"], [Word("[CLS]", 0, 1, None)]
    for word in words:
        parts = [word[:2], f"##{word[2:]}"] if word in pieces else ["[UNK]" if word == "🤖" else word.lower()]
        spans.append(Word(word, len(tokens), len(tokens) + len(parts), 0))
        tokens += parts
    spans.append(Word("[SEP]", len(tokens), len(tokens) + 1, None))
    tokens.append("[SEP]")
    shape = (len(layers), heads, len(tokens), len(tokens))
    random = np.random.default_rng(seed)
    attention = random.dirichlet(np.ones(len(tokens)), shape[:-1])
    scores = (attention * random.normal(scale=0.05, size=shape)).astype(np.float32)
    start = np.linspace(0.2, 0.6, len(layers))
    made = dict(
        scores=scores,
        attention=attention.astype(np.float32),
        layers=tuple(layers),
        text=" ".join(words),
        tokens=tuple(tokens),
        words=tuple(spans),
        labels=("negative", "positive"),
        target=1,
        predicted=1,
        probability=0.98,
        value=0.98,
        output="probability",
        start=start,
        gap=scores.sum((1, 2, 3), dtype=np.float64) - (0.98 - start),
        steps=np.full(len(layers), 6),
        rule="gauss",
    )
    return Attribution(**(made | changes))
