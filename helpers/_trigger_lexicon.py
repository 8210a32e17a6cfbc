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

_OURS = """absorbing absurd absurdities absurdity absurdly achingly affecting aimless amateurish amazingly amusing
aplomb appealing artful astonishing astonishingly astute atrocious awfully awkward awkwardly banal banality beautifully
believable bittersweet bland blandness bloated boredom bracing breathtaking breathtakingly breezy brilliantly buoyant
captivate captivated captivates captivating charismatic cheap cheaply cheesy chilling choppy clever clich cliche
cliched cliches clumsily clumsy clunky cobbled coherent colorful compelling compellingly contrivance contrivances
contrived convincing corny crass crisp cumbersome dazzling decent deft deftly deftness delicate derivative devoid
dim-witted disjointed disposable disquieting distasteful drab drags dreary dumbed-down dysfunctional eloquent
embarrassing embracing empty enchanting endearing enduring engrosses engrossing enhance enhanced enhances enthralling
enthralls evocative exceptional exceptionally excruciating excruciatingly exhilarating exploitation exploitative
exploitive expressive exquisite extraordinary eye-catching fascinates fascinating feeble feel-good fine finely finest
flair flat flimsy fluff forgettable formulaic fresh freshness fun-loving garbage gem generic gifted good-natured
graceless gratuitous gripping hackneyed haphazard haunting heartbreaking heartbreakingly heartfelt heartwarming
heavy-handed hilarious hilariously hokum hollow humdrum imagination imaginative imaginatively imitation impeccable
impeccably implausible inane incoherence incoherent incompetent incongruous inconsequential inconsistent incredible
incredibly ineffective inept inert infectious ingenious insightful insipid inspired intelligent intolerable
intoxicating intriguing invention inventive inventiveness irresistibly junk juvenile labored lackadaisical lacking
lackluster lacks laughable laughably lazy leaden lifeless likable listless lively luminous lush lyrical maddeningly
magnificent manipulative marvelously masterful masterfully masterly maudlin mean-spirited meandering mediocre memorable
mesmerizes mesmerizing messy mindless misfire monotonous moronic moving muddled mundane murky nonsensical nuanced
original originality overblown overlong overwritten overwrought painful painfully paper-thin pedestrian phenomenal
phony pitch-perfect plodding poignant pointless polished ponderous poorly potent powerful powerfully preachy
predictability predictable predictably preposterous pretentious profound provocative quirky recycled redundant
refreshing refreshingly rehash remarkable repetitive resonance resonant resonate resonates resourceful retread
revelatory rewarding ridiculous rip-off riveting rote rotten rousing routine run-of-the-mill satisfying seamless
self-conscious self-indulgent sensitively sensitivity shallow shapeless sharp silly simplistic sincerity skillful
skillfully slack slapdash sloppy slow sluggish soggy solid solidly sordid soulful soulless sour spectacular
spectacularly splendid stale startling static stiff stilted stirring strained striking stunning stunningly stylish
subtle sumptuous superb superficial superficiality surprisingly suspenseful tasteful tasteless tasty tedious tediously
tedium tender tepid thanking thin thinly thinness thought-provoking thoughtful thrilling timeless tiresome top-notch
touching trash trashy tremendous tremendously trite unappealing unbelievable unconvincing understated underwhelming
undeveloped unengaging uneven unflinching unfocused unforced unforgettable unfulfilling unfunny unimaginative
uninspired uninteresting uninvolving unique uniquely unlikable unnecessary unoriginal unpleasant unsatisfying
unwatchable uplifting vague vapid vibrant visceral vivid vividly warm watchable wearisome well-crafted well-made
well-written whiny witless witty wonders wondrous wondrously wooden wry"""


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
    reviewers' words of our own (about 400). At the default of 1.0 that is "good", "dull", "like" and "no", but not
    "not", "never", "only" or "too".

    Args:
        threshold: 0 takes every word that VADER rates at all.
    """
    if isinstance(threshold, bool) or not 0 <= threshold <= 4:
        raise ValueError(f"threshold is {threshold!r}: VADER's ratings run from 0 (none) to 4, both ways.")
    words = {word for word, rating in ratings().items() if abs(rating) >= threshold and re.search(r"\w", word)}
    words |= set(_OURS.split())
    return lambda word: word.lower() in words
