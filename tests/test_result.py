"""Attributions on disk, and what they tell about themselves."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from families import make
from safetensors.numpy import load_file, save_file
from texts import tokenizer_for

from helpers.attribution import Attribution, attribute


@pytest.fixture(scope="module")
def pair():
    return attribute(make("bert"), tokenizer_for("bert"), ("a good film 🙂", "<script> & $"), steps=4, layers=[2, 0])


def test_saved_and_loaded_is_the_same(pair, tmp_path):
    path = pair.save(tmp_path / "new folder" / "one.safetensors")
    loaded = Attribution.load(path)
    for field in dataclasses.fields(Attribution):
        mine, theirs = getattr(pair, field.name), getattr(loaded, field.name)
        if isinstance(mine, np.ndarray):
            np.testing.assert_array_equal(mine, theirs)
            assert mine.dtype == theirs.dtype
        else:
            assert mine == theirs and type(mine) is type(theirs), field.name
    assert loaded.words[1].text == "a" and loaded.text[1] == "<script> & $"
    assert [p.name for p in path.parent.iterdir()] == ["one.safetensors"], "no unfinished file is left"


def test_a_single_output_has_no_probability_and_still_loads(tmp_path):
    one = attribute(make("bert", num_labels=1), tokenizer_for("bert"), "a good film", steps=4)
    loaded = Attribution.load(one.save(tmp_path / "one.safetensors"))
    assert np.isnan(one.probability) and np.isnan(loaded.probability)
    assert one.output == "raw" and one.value == loaded.value


@pytest.mark.parametrize("damage", ["cut", "empty", "text", "other version", "other file", "no scores", "no words"])
def test_what_is_no_whole_attribution_is_refused(pair, tmp_path, damage):
    path = pair.save(tmp_path / "one.safetensors")
    whole, arrays = path.read_bytes(), load_file(path)
    header = {"format": "attattr-attribution", "version": "1", "attribution": "{}"}
    if damage == "cut":
        path.write_bytes(whole[: len(whole) // 2])
    elif damage == "empty":
        path.write_bytes(b"")
    elif damage == "text":
        path.write_text("no safetensors")
    elif damage == "other version":
        save_file(arrays, path, metadata={**header, "version": "0"})
    elif damage == "other file":
        save_file(arrays, path)
    elif damage == "no words":
        save_file(arrays, path, metadata=header)
    else:
        save_file({"attention": arrays["attention"]}, path, metadata=header)
    with pytest.raises(ValueError, match="again"):
        Attribution.load(path)


def test_a_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError, match="no attribution file"):
        Attribution.load(tmp_path / "none.safetensors")


def test_top_links_are_the_largest_scores_in_order(pair):
    links = pair.top_links(7)
    expected = np.sort(pair.scores.ravel())[::-1][:7]
    np.testing.assert_array_equal(links.score, expected)
    for link in links.itertuples():
        axis = pair.layers.index(link.layer)
        assert pair.scores[axis, link.head, link.query, link.key] == np.float32(link.score)
        assert pair.attention[axis, link.head, link.query, link.key] == np.float32(link.attention)
        assert (pair.tokens[link.query], pair.tokens[link.key]) == (link.query_token, link.key_token)
    assert len(pair.top_links(10**9)) == pair.scores.size
    for wrong in (0, -1, 2.5, True):
        with pytest.raises(ValueError, match="k is"):
            pair.top_links(wrong)


def test_layer_scores_sum_over_heads(pair):
    np.testing.assert_allclose(pair.layer_scores()[1], sum(pair.scores[1]), rtol=1e-6)
    assert pair.layer_scores().shape == (2, len(pair.tokens), len(pair.tokens))


def test_it_introduces_itself(pair):
    assert "2 layers x 4 heads" in repr(pair) and "right, 4 points" in repr(pair)


@pytest.mark.parametrize("name", ["folder", "."])
def test_a_folder_is_no_file_to_save_to(pair, tmp_path, name):
    (tmp_path / "folder").mkdir()
    with pytest.raises(ValueError, match="is a folder"):
        pair.save(tmp_path / name)
    assert [p.name for p in tmp_path.iterdir()] == ["folder"]
