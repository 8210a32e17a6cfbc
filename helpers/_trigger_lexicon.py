"""Which words say by themselves whether a text is positive or negative (part of :mod:`helpers.triggers`).

On SST-2 a trigger must not hold such a word: that "awful" makes a review negative is no discovery. The list is that
of VADER (Hutto and Gilbert 2014, a file of the package vaderSentiment, MIT), in which people rated about 7,500 words
from -4 to 4. It was made for short messages and lacks many a word of reviewers, hence a list of our own beside it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

PACKAGE, FILE = "vadersentiment", "vader_lexicon.txt"

_OURS = """absorbing absurd affecting aimless amateurish amusing appealing artful astonishing astute atrocious banal
beautifully bland bloated breathtaking breezy brilliantly captivating charismatic cheesy clever cliche cliched cliches
clumsy clunky coherent contrived convincing crisp cumbersome dazzling deft delicate derivative disjointed dreary
drab drags eloquent embarrassing enchanting endearing engrossing enthralling evocative excruciating exhilarating
exquisite extraordinary eye-catching fascinating feeble flat flimsy forgettable formulaic fresh generic gem gifted
gripping hackneyed haphazard haunting heartbreaking heartbreakingly heartfelt heartwarming hilarious hollow humdrum
imaginative incoherent incompetent ineffective inept inert infectious ingenious insightful insipid inspired intelligent
intoxicating intriguing inventive juvenile lacking lackluster lacks laughable laughably lazy leaden lifeless listless
lively luminous lush lyrical magnificent manipulative masterful masterfully masterly meandering mediocre memorable
mesmerizing messy mindless monotonous moronic moving muddled mundane nuanced original overblown overlong
overwrought painful painfully pedestrian plodding poignant pointless polished ponderous poorly powerful predictable
preachy pretentious profound provocative quirky refreshing refreshingly remarkable repetitive resonant rewarding
ridiculous riveting rotten routine rousing satisfying seamless shallow shapeless sharp skillful skillfully sloppy
sluggish soulful soulless spectacular splendid stale static stilted stirring strained striking stunning stylish
superficial superb surprisingly suspenseful tasteless tasty tedious tender thin thoughtful thrilling timeless tiresome
touching trite unappealing unconvincing underwhelming unengaging uneven unfocused unforgettable unfunny unimaginative
uninspired uninteresting uninvolving unique unlikable unnecessary unoriginal unpleasant unsatisfying unwatchable
uplifting vapid vibrant visceral vivid vividly watchable wearisome witless witty wooden wry"""


@cache
def ratings() -> dict[str, float]:
    """Return VADER's mean rating of every word, -4 (most negative) to 4.

    Raises:
        ModuleNotFoundError: the package is not installed.
    """
    try:
        path = next(file for file in files(PACKAGE) or () if file.name == FILE)
    except (PackageNotFoundError, StopIteration):
        raise ModuleNotFoundError(
            f"The word list {FILE} of the package vaderSentiment is not here. Type: pip install vadersentiment"
        ) from None
    lines = Path(str(path.locate())).read_text(encoding="utf-8").splitlines()
    return {word: float(rating) for word, rating, *_ in (line.split("\t") for line in lines if "\t" in line)}


def evident_sentiment(threshold: float = 1.0) -> Callable[[str], bool]:
    """Return a function that says of a whole word, in any case, whether its sentiment is evident.

    It is where VADER rates the word at least ``threshold`` from 0 on a scale of -4 to 4, or where it is on a list of
    reviewers' words of our own (about 200). At the default of 1.0 that is "good", "dull", "like" and "no", but not
    "not", "never", "only" or "too".

    Args:
        threshold: 0 takes every word that VADER rates at all.
    """
    if isinstance(threshold, bool) or not 0 <= threshold <= 4:
        raise ValueError(f"threshold is {threshold!r}: VADER's ratings run from 0 (none) to 4, both ways.")
    words = {word for word, rating in ratings().items() if abs(rating) >= threshold and re.search(r"\w", word)}
    words |= set(_OURS.split())
    return lambda word: word.lower() in words
