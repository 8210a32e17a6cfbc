"""Texts in, model inputs out: the one place where a text is checked, cut to length, tokenised and padded.

A text is a string, or a ``(first, second)`` tuple for a sentence pair; a batch is a list of texts.
Prediction (:mod:`helpers.models`) and attribution (:mod:`helpers.attribution`) both come through
here, so that they see the same tokens.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from numbers import Integral
from typing import NamedTuple

import torch
from torch import Tensor, nn

Text = str | tuple[str, str]
TOKENS_AT_ONCE = {True: 512, False: 16_384}  # on a CPU, and elsewhere


class Word(NamedTuple):
    """A word as the reader wrote it and the tokens ``start <= i < stop`` that stand for it.

    ``segment`` is 0 or 1 for the first or second text, and None for a special token such as [CLS].
    """

    text: str
    start: int
    stop: int
    segment: int | None


@dataclass(frozen=True)
class Encoded:
    """A batch of texts as the model takes it, and as a reader sees it.

    Attributes:
        tensors: what ``model(**tensors)`` takes, padded on the right, [batch, token].
        tokens: the tokens of every text, padding left out.
        words: the words of every text, as word spans over ``tokens``.
    """

    tensors: dict[str, Tensor]
    tokens: tuple[tuple[str, ...], ...]
    words: tuple[tuple[Word, ...], ...]

    def batch(self, rows: Sequence[int]) -> dict[str, Tensor]:
        """Return the tensors of some of the texts, no wider than the longest of them."""
        width = max(len(self.tokens[row]) for row in rows)
        return {name: tensor[rows, :width] for name, tensor in self.tensors.items()}

    def rows_by_length(self, batch_size: int | None = None) -> Iterator[list[int]]:
        """Yield the rows of batches as :func:`batches_by_length` makes them."""
        return batches_by_length([len(tokens) for tokens in self.tokens], batch_size, on_cpu=self.on_cpu)

    @property
    def device(self) -> torch.device:
        """Where the tensors are."""
        return next(iter(self.tensors.values())).device

    @property
    def on_cpu(self) -> bool:
        """Whether the tensors are in the processor's memory."""
        return self.device.type == "cpu"


def batches_by_length(
    lengths: Sequence[int], batch_size: int | None = None, *, on_cpu: bool = True
) -> Iterator[list[int]]:
    """Yield the rows of batches of texts of like length, the longest first: too large a batch fails at once.

    Args:
        lengths: of the texts, in tokens.
        batch_size: texts a batch; None: as many as come to 512 tokens on a CPU, whose cache then holds what a layer
            works on (twice as fast as 32 long pairs at once), and to 16,384 elsewhere.

    Raises:
        ValueError: the batch size is no whole number of at least 1.
    """
    whole = isinstance(batch_size, Integral) and not isinstance(batch_size, bool)
    if batch_size is not None and not (whole and batch_size >= 1):
        raise ValueError(f"batch_size is {batch_size!r}: it must be a whole number of at least 1, or None.")
    order = sorted(range(len(lengths)), key=lambda row: -lengths[row])
    while order:
        count = batch_size or max(1, TOKENS_AT_ONCE[on_cpu] // max(1, lengths[order[0]]))
        rows, order = order[:count], order[count:]
        yield rows


def is_text(value: object) -> bool:
    """True for one text (a string or a tuple), False for a batch of texts."""
    return isinstance(value, str | tuple)


def check_texts(texts: Text | Iterable[Text]) -> list[Text]:
    """Return the texts as a list of strings or of (first, second) pairs.

    Raises:
        ValueError: a text is blank, is no string or pair, or single texts and pairs are mixed; the
            message gives the position in the batch. Or the batch is a set, a table, or bytes.
    """
    if isinstance(texts, Mapping) or hasattr(texts, "columns"):
        raise ValueError(
            f"A {type(texts).__name__} was given: pass its texts, a list of strings or of (first, second) tuples; "
            "for a table of helpers.data that is data.texts(frame)."
        )
    if isinstance(texts, bytes | bytearray):
        raise ValueError("The text is given as bytes: decode it first, such as text.decode('utf-8').")
    if isinstance(texts, Set):
        raise ValueError("The texts are a set, which has no order to answer in: pass sorted(texts).")
    if not isinstance(texts, Iterable) or getattr(texts, "ndim", 1) == 0:
        raise ValueError(f"The texts are {texts!r}: pass a string, a (first, second) tuple, or a list of either.")
    batch = [texts] if isinstance(texts, str | tuple) else list(texts)
    if not batch:
        raise ValueError("No text was given: pass a string, a (first, second) tuple, or a list of either.")
    for position, text in enumerate(batch):
        _check_text(text, position)
    if len({isinstance(text, tuple) for text in batch}) > 1:
        raise ValueError("The batch mixes single texts and (first, second) pairs: give one kind at a time.")
    return batch


def _check_text(text: object, position: int) -> None:
    parts = text if isinstance(text, tuple) else (text,)
    if isinstance(text, tuple) and len(text) != 2:
        raise ValueError(f"Text {position} is a tuple of {len(text)} items: a pair is (first, second).")
    for part, which in zip(parts, ("first", "second"), strict=False):
        where = f"Text {position}" + (f" ({which} of the pair)" if len(parts) == 2 else "")
        if not isinstance(part, str):
            raise ValueError(
                f"{where} is {type(part).__name__} {part!r}: a text is a string, or a tuple of two strings for a pair."
            )
        if not part.strip():
            raise ValueError(f"{where} is empty or blank: give it at least one word, or drop it from the batch.")
        if any("\ud800" <= letter <= "\udfff" for letter in part):
            raise ValueError(f"{where} holds half of a surrogate pair: decode the file it comes from as UTF-8.")


def length_limit(model: nn.Module, tokenizer) -> int:
    """The most tokens the model can read: the smaller of the tokenizer's limit and the position table's.

    RoBERTa and its relatives keep the positions up to the padding index for themselves, so their
    table of 514 holds 512 tokens.
    """
    limits = [int(tokenizer.model_max_length)]  # 1e30 where the tokenizer does not know
    positions = getattr(model.config, "max_position_embeddings", None)
    if positions:
        limits.append(int(positions))
    for name, module in model.named_modules():
        if name.endswith("position_embeddings") and isinstance(module, nn.Embedding):
            reserved = 0 if module.padding_idx is None else module.padding_idx + 1
            limits.append(module.num_embeddings - reserved)
    return min(limits)


def encode(model: nn.Module, tokenizer, texts: Text | Iterable[Text], *, max_length: int | None = None) -> Encoded:
    """Tokenise texts for a model: cut to the length limit with a warning, padded on the right.

    Padding goes on the right whatever the tokenizer's own habit is: a model with absolute positions
    would otherwise read the same sentence at other positions.

    Args:
        texts: a text or a list of texts, see :data:`Text`.
        max_length: at most so many tokens a text, special tokens included; the model's limit if None.

    Raises:
        ValueError: see :func:`check_texts`; ``max_length`` below 3; no padding token is known; or the
            tokenizer turned a text into no token at all.
    """
    batch = check_texts(texts)
    limit = length_limit(model, tokenizer)
    if max_length is not None:
        if isinstance(max_length, bool) or not isinstance(max_length, Integral) or max_length < 3:
            raise ValueError(f"max_length is {max_length!r}: it must be a whole number of at least 3 tokens.")
        limit = min(limit, max_length)
    if model.config.pad_token_id is None or tokenizer.pad_token_id is None:
        raise ValueError(
            "The model or its tokenizer has no padding token, which copies of a text in one batch need. Type: "
            "tokenizer.pad_token = tokenizer.eos_token; model.config.pad_token_id = tokenizer.pad_token_id"
        )
    if model.config.pad_token_id != tokenizer.pad_token_id:
        raise ValueError(
            f"The tokenizer pads with token {tokenizer.pad_token_id}, the model takes {model.config.pad_token_id} for "
            "padding: padded texts would be misread. Type: model.config.pad_token_id = tokenizer.pad_token_id"
        )
    columns = list(zip(*batch, strict=True)) if isinstance(batch[0], tuple) else [batch]
    columns = [list(column) for column in columns]
    encoding = tokenizer(*columns, verbose=False)
    lengths = [len(ids) for ids in encoding["input_ids"]]
    if max(lengths) > limit:
        _warn_cut(lengths, limit)
        encoding = tokenizer(*columns, truncation=True, max_length=limit, verbose=False)
    _check_tokens(encoding, batch, model, limit)
    tokens = tuple(tuple(tokenizer.convert_ids_to_tokens(ids)) for ids in encoding["input_ids"])
    words = tuple(_words(encoding, i, batch[i], tokens[i]) for i in range(len(batch)))
    padded = tokenizer.pad(encoding, padding=True, padding_side="right", return_tensors="pt")
    return Encoded(_accepted(model, padded), tokens, words)


def _check_tokens(encoding, batch: Sequence[Text], model: nn.Module, limit: int) -> None:
    """Every text must have a token of its own left, and every token a row in the model's table."""
    rows = model.get_input_embeddings().num_embeddings
    for position, ids in enumerate(encoding["input_ids"]):
        parts = set(range(2 if isinstance(batch[position], tuple) else 1))
        bare = encoding.is_fast and not parts <= set(encoding[position].sequence_ids)
        if bare or not ids:
            raise ValueError(
                f"Of text {position}, {batch[position]!r:.80}, the tokenizer keeps no token within {limit} tokens: "
                "it has nothing to show, or was cut away. Give it a word, or raise max_length."
            )
        if max(ids) >= rows:
            raise ValueError(
                f"Text {position} has token {max(ids)}, and the model knows {rows}: take the tokenizer made for it."
            )


def _warn_cut(lengths: Sequence[int], limit: int) -> None:
    cut = [(i, n) for i, n in enumerate(lengths) if n > limit]
    position, length = max(cut, key=lambda pair: pair[1])
    warnings.warn(
        f"{len(cut)} of {len(lengths)} texts are longer than {limit} tokens and were cut to {limit}; the longest, "
        f"text {position}, has {length} tokens. What was cut off has no attribution.",
        stacklevel=4,  # the caller of attribute() or predict()
    )


def _accepted(model: nn.Module, tensors) -> dict[str, Tensor]:
    """Keep what the model can take and move it to its device.

    DistilBERT has no segment ids, and RoBERTa a table of one: where a model cannot tell two texts apart by
    them, they are left out.
    """
    names = set(inspect.signature(model.forward).parameters)
    if (getattr(model.config, "type_vocab_size", None) or 0) < 2:
        names.discard("token_type_ids")
    device = next(model.parameters()).device
    if device.type == "meta":
        raise ValueError(
            "The model is on the meta device, which holds shapes and no weights: load it with from_pretrained(...) "
            "and device_map='cpu', or fill it with model.to_empty(device='cpu') and its weights."
        )
    return {name: tensor.to(device) for name, tensor in tensors.items() if name in names}


def _words(encoding, index: int, text: Text, tokens: Sequence[str]) -> tuple[Word, ...]:
    """Group the tokens of one text into words, each shown as the reader wrote it."""
    if not encoding.is_fast:  # no offsets: every token is its own word
        return tuple(Word(token, i, i + 1, None) for i, token in enumerate(tokens))
    entry = encoding[index]
    parts = text if isinstance(text, tuple) else (text,)
    words: list[Word] = []
    spans: dict[tuple[int, int], list[int]] = {}  # (segment, word) -> where it begins and ends in the text
    for i, (word, segment, (begin, end)) in enumerate(
        zip(entry.word_ids, entry.sequence_ids, entry.offsets, strict=True)
    ):
        if word is None or segment is None:
            words.append(Word(tokens[i], i, i + 1, None))
            continue
        known = (segment, word) in spans
        span = spans.setdefault((segment, word), [begin, end])
        span[1] = max(span[1], end)
        written = parts[segment][slice(*span)].strip() or tokens[i]
        if known:
            words[-1] = Word(written, words[-1].start, i + 1, segment)
        else:
            words.append(Word(written, i, i + 1, segment))
    return tuple(words)
