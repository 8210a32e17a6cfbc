"""One attention link, as figures and triggers name it."""

from typing import NamedTuple


class Link(NamedTuple):
    """The attention link of one head by which the token at ``query`` receives from the token at ``key``."""

    layer: int
    head: int
    query: int
    key: int
    score: float
