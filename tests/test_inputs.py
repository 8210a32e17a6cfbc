"""Texts in: what is refused, what is cut, and which words the tokens stand for."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from families import make
from texts import tokenizer_for

from helpers.inputs import batches_by_length, check_texts, encode, length_limit


@pytest.fixture(scope="module")
def model():
    return make("bert")


@pytest.fixture(scope="module")
def tokenizer():
    return tokenizer_for("bert")


@pytest.mark.parametrize(
    "texts, message",
    [
        ("", "Text 0 is empty or blank"),
        (" \t\n", "Text 0 is empty or blank"),
        (["good", "  "], "Text 1 is empty or blank"),
        (("good", ""), r"Text 0 \(second of the pair\) is empty"),
        ([("a", "b"), ("", "b")], r"Text 1 \(first of the pair\) is empty"),
        ([], "No text was given"),
        ([None], "Text 0 is NoneType None"),
        ([float("nan")], "Text 0 is float nan"),
        ([["good", "bad"]], r"Text 0 is list"),
        (("a", "b", "c"), "tuple of 3 items"),
        (["good", ("a", "b")], "mixes single texts and"),
        (["good", "\ud800"], "Text 1 holds half of a surrogate pair"),
        ({"first": "good"}, r"A dict was given: pass its texts"),
        (pd.DataFrame({"first": ["good"]}), r"data.texts\(frame\)"),
        (None, "The texts are None"),
        (3, "The texts are 3"),
    ],
)
def test_bad_texts_are_refused_with_their_position(texts, message):
    with pytest.raises(ValueError, match=message):
        check_texts(texts)


def test_good_texts():
    assert check_texts("good") == ["good"]
    assert check_texts(("a", "b")) == [("a", "b")]
    assert check_texts(text for text in ("a", "b")) == ["a", "b"]
    assert check_texts(pd.Series(["a", "b"])) == check_texts(np.array(["a", "b"])) == ["a", "b"]


def test_words_are_shown_as_written(model, tokenizer):
    encoded = encode(model, tokenizer, "An unbelievably 🙂 GOOD film!")
    words = encoded.words[0]
    assert [w.text for w in words] == ["[CLS]", "An", "unbelievably", "🙂", "GOOD", "film", "!", "[SEP]"]
    assert encoded.tokens[0][words[3].start] == "[UNK]"
    pieces = words[2]
    assert pieces.stop - pieces.start > 1, "a word of several pieces is one word"
    assert [w.segment for w in words] == [None, 0, 0, 0, 0, 0, 0, None]
    assert [(w.start, w.stop) for w in words][0] == (0, 1)
    assert all(a.stop == b.start for a, b in zip(words, words[1:], strict=False)), "the spans cover every token once"
    assert words[-1].stop == len(encoded.tokens[0])


def test_a_pair_has_two_segments(model, tokenizer):
    encoded = encode(model, tokenizer, ("good film", "film"))
    assert [w.segment for w in encoded.words[0]] == [None, 0, 0, None, 1, None]
    assert encoded.words[0][2].text == encoded.words[0][4].text == "film"


def test_byte_level_tokens_keep_the_written_words():
    encoded = encode(make("gpt2"), tokenizer_for("gpt2"), "a good film")
    assert [w.text for w in encoded.words[0]] == ["a", "good", "film"]


@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_is_on_the_right_whatever_the_tokenizer_does(model, tokenizer, side):
    tokenizer.padding_side = side
    tensors = encode(model, tokenizer, ["good", "a good film"]).tensors
    assert tensors["attention_mask"].tolist() == [[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]]
    assert tokenizer.padding_side == side


def test_too_long_a_text_is_cut_with_one_warning_that_gives_both_counts(model, tokenizer):
    with pytest.warns(UserWarning, match="1 of 2 texts are longer than 40 tokens .* text 1, has 62 tokens") as seen:
        encoded = encode(model, tokenizer, ["good", "good " * 60])
    assert len(seen) == 1
    assert encoded.tensors["input_ids"].shape == (2, 40)
    assert encoded.tokens[1][-1] == "[SEP]"


def test_the_position_table_decides_where_the_tokenizer_does_not_know(model, tokenizer):
    tokenizer.model_max_length = int(1e30)
    assert length_limit(model, tokenizer) == 40
    tokenizer.model_max_length = 12
    assert length_limit(model, tokenizer) == 12
    tokenizer.model_max_length = int(1e30)
    roberta = make("roberta", pad_token_id=1)
    assert length_limit(roberta, tokenizer) == 38, "RoBERTa keeps the positions up to the padding index for itself"
    with torch.no_grad():  # and 38 tokens do run
        roberta(input_ids=torch.full((1, 38), 5), attention_mask=torch.ones(1, 38, dtype=torch.long))


@pytest.mark.parametrize("wrong", [0, 2, -1, 7.5, "8", True])
def test_bad_max_length(model, tokenizer, wrong):
    with pytest.raises(ValueError, match="max_length is"):
        encode(model, tokenizer, "good", max_length=wrong)


def test_batches_hold_texts_of_like_length_up_to_a_number_of_tokens():
    lengths = [3, 300, 7, 600, 100, 90, 4]
    assert list(batches_by_length(lengths)) == [[3], [1], [4, 5, 2, 6, 0]]
    assert list(batches_by_length(lengths, on_cpu=False)) == [[3, 1, 4, 5, 2, 6, 0]]
    assert list(batches_by_length(lengths, 3)) == [[3, 1, 4], [5, 2, 6], [0]]
    assert list(batches_by_length([5] * 205)) == [list(range(102)), list(range(102, 204)), [204]]
    assert list(batches_by_length([])) == []
    with pytest.raises(ValueError, match="batch_size is 0"):
        list(batches_by_length(lengths, 0))


def test_segment_ids_go_only_to_models_that_take_them(model, tokenizer):
    assert "token_type_ids" in encode(model, tokenizer, "good").tensors
    assert "token_type_ids" not in encode(make("distilbert"), tokenizer, "good").tensors


def test_no_padding_token_names_the_cure():
    model, tokenizer = make("gpt2", pad_token_id=None), tokenizer_for("gpt2")
    tokenizer.pad_token = None
    with pytest.raises(ValueError, match="tokenizer.pad_token = tokenizer.eos_token"):
        encode(model, tokenizer, "good")


@pytest.mark.parametrize("texts", [["good", "\u200b"], ["good", "\x01\x02"]])
def test_a_text_that_shows_nothing_is_refused_with_its_position(model, tokenizer, texts):
    with pytest.raises(ValueError, match="Of text 1, .*the tokenizer keeps no token"):
        encode(model, tokenizer, texts)


def test_a_pair_of_which_one_text_is_cut_away_is_refused(model, tokenizer):
    with pytest.raises(ValueError, match="within 4 tokens"), pytest.warns(UserWarning, match="were cut"):
        encode(model, tokenizer, ("a good film", "it is"), max_length=4)


def test_padding_that_the_model_would_take_for_text_is_refused():
    """A GPT-2 classifier looks for the last token that is not padding: with another id it would read padding."""
    model, tokenizer = make("gpt2"), tokenizer_for("gpt2")
    tokenizer.pad_token = "<|unk|>"
    with pytest.raises(ValueError, match="model.config.pad_token_id = tokenizer.pad_token_id"):
        encode(model, tokenizer, ["a bad", "a good film"])


def test_the_tokenizer_of_another_model_is_refused(tokenizer):
    with pytest.raises(ValueError, match="the model knows 20"):
        encode(make("bert", vocab_size=20), tokenizer, "we love and hate it")
