"""Texts cut into pieces, each of which becomes a shard; what is on disk already is compared and passed over."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice, repeat
from typing import Any

from transformers import PreTrainedModel

from helpers._shards import Shard, digest
from helpers._worker import LOCK
from helpers.inputs import Text, check_texts, length_limit

SHARD_BYTES = (
    2**28
)  # of scores and attention, however many texts a shard was asked to hold; a long text may have its own

Piece = tuple[int, list[Text], Any]  # where it starts, its texts, and one class for all, one a text, or None


def one_for_all(target: object) -> bool:
    """True if a target is meant for every text."""
    return isinstance(target, str) or not isinstance(target, Iterable) or getattr(target, "ndim", 1) == 0


def _rows(texts: Iterable[Text], target: Any) -> Iterator[tuple[Text, Any]]:
    """Yield the texts, each with its target or None."""
    targets = repeat(None) if one_for_all(target) else iter(target)
    nothing = object()
    count = 0
    for count, text in enumerate(texts, 1):  # noqa: B007
        if (one := next(targets, nothing)) is nothing:
            raise ValueError(f"There are {count - 1} targets and more texts: give one for all, or one a text.")
        yield text, one
    if not one_for_all(target) and next(targets, nothing) is not nothing:
        raise ValueError(f"There are {count} texts and more targets: give one for all, or one a text.")


class Pieces:
    """The texts that no shard holds yet, as (start, texts, target).

    Attributes:
        held: how many texts the shards hold.
        total: how many texts there were, once all are seen.
        problem: what went wrong with the texts. It is kept and not raised: joblib may ask for the next piece in a
            thread of its own, where an error would get lost and leave the call waiting.
    """

    def __init__(
        self,
        texts: Iterable[Text],
        target: Any,
        shards: dict[int, Shard],
        size: int,
        bytes_of: Callable[[Sequence[Text]], Sequence[int]],
    ):
        self._rows = _rows(texts, target)
        self._target = target
        self._shards = shards
        self._size = size
        self._bytes_of = bytes_of
        self.held = sum(shard.size for shard in shards.values())
        self.total = 0
        self.problem: Exception | None = None

    def __iter__(self) -> Iterator[Piece]:
        try:
            yield from self._pieces()
        except Exception as error:
            self.problem = error

    def _pieces(self) -> Iterator[Piece]:
        starts = sorted(self._shards)
        while True:
            shard = self._shards.get(self.total)
            later = starts[bisect_right(starts, self.total) :][:1]
            count = shard.size if shard else min([self._size, *(start - self.total for start in later)])
            rows = list(islice(self._rows, count))
            texts, targets = [text for text, _ in rows], [target for _, target in rows]
            if shard and digest(texts, None if one_for_all(self._target) else targets) != shard.digest:
                raise self._other_texts(shard, len(texts))
            if not rows:
                break
            if shard is None:
                yield from self._cut(texts, targets)
            self.total += len(rows)
        if starts and starts[-1] >= self.total:
            raise self._other_texts(self._shards[starts[-1]], 0)

    def _cut(self, texts: list[Text], targets: list) -> Iterator[Piece]:
        try:
            check_texts(texts)
        except ValueError as error:
            raise ValueError(f"In the texts from number {self.total} on, counted from 0: {error}") from error
        begin, held = 0, 0
        for i, size in enumerate([*self._bytes_of(texts), SHARD_BYTES + 1]):
            if i > begin and held + size > SHARD_BYTES:
                part = self._target if one_for_all(self._target) else targets[begin:i]
                yield self.total + begin, texts[begin:i], part
                begin, held = i, 0
            held += size

    def _other_texts(self, shard: Shard, given: int) -> ValueError:
        fewer = given < shard.size
        what = "more texts than were given" if fewer else "other texts, or other targets"
        return ValueError(
            f"The folder holds {what}: see its texts {shard.start} to {shard.start + shard.size - 1}, counted from 0. "
            "Give the same texts, with more behind them if you like, or another folder."
        )


def sizes(model: PreTrainedModel, tokenizer, layers: Sequence[int] | None, max_length: int | None):
    """Return a function from texts to the bytes that the scores and attention of each take."""
    limit = min(length_limit(model, tokenizer), max_length or 10**9)
    count = model.config.num_hidden_layers if layers is None else len(layers)
    each = 2 * 4 * count * model.config.num_attention_heads

    def bytes_of(texts: Sequence[Text]) -> list[int]:
        columns = list(zip(*texts, strict=True)) if isinstance(texts[0], tuple) else [texts]
        with LOCK:  # a tokenizer can't be used by two threads at once
            found = tokenizer(*(list(column) for column in columns), verbose=False)["input_ids"]
        return [each * min(len(ids), limit) ** 2 for ids in found]

    return bytes_of
