"""Small tokenizers of the two kinds that matter: word pieces with [CLS] and [SEP], and byte-level pieces."""

from __future__ import annotations

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

_SPECIAL = ("[PAD]", "[CLS]", "[SEP]", "[UNK]")
_WORDS = "a an the good bad film story is was not very but slow start end wonderful un ##bel ##iev ##ably ##ly dull it"
_REST = "i we love hate and , . ! ? ' < > / script $ & _"
PIECES = [*_SPECIAL, *_WORDS.split(), *_REST.split()]


def tokenizer_for(family: str) -> PreTrainedTokenizerFast:
    """A fresh tokenizer; ids stay under families.VOCABULARY."""
    if family == "gpt2":
        pieces = ["<|end|>", "a", "Ġa", "Ġgood", "Ġfilm", "good", "film", "Ġbad", "<|unk|>"]
        letters = [chr(c) for c in range(ord("b"), ord("z") + 1)] + ["Ġ"]
        vocabulary = {piece: i for i, piece in enumerate(dict.fromkeys(pieces + letters))}
        merges = [("Ġ", "a")]
        for word in ("good", "film", "bad"):
            known = [word[: n + 1] for n in range(len(word))]
            for left, right in zip(known, word[1:], strict=False):
                merges.append((left, right))
                vocabulary.setdefault(left + right, len(vocabulary))
            merges.append(("Ġ", word))
        backend = Tokenizer(models.BPE(vocab=vocabulary, merges=merges, unk_token="<|unk|>"))
        backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        backend.post_processor = processors.ByteLevel(trim_offsets=True)
        backend.decoder = decoders.ByteLevel()
        return PreTrainedTokenizerFast(
            tokenizer_object=backend, eos_token="<|end|>", pad_token="<|end|>", unk_token="<|unk|>"
        )
    backend = Tokenizer(models.WordPiece({piece: i for i, piece in enumerate(PIECES)}, unk_token="[UNK]"))
    backend.normalizer = normalizers.BertNormalizer(lowercase=True)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token="[PAD]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        unk_token="[UNK]",
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
    )
