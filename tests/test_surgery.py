"""Heads cut out of the weights: outputs equal to gating, for any number left a layer, also after saving."""

import json

import numpy as np
import pytest
import torch
from families import inputs, make

from helpers import surgery
from helpers.attention import UnsupportedModelError, gate_heads, touch

CUT = ("bert", "roberta", "xlm-roberta", "electra", "distilbert")
GATES = {
    "uneven": [[1, 0, 1, 0], [1, 1, 1, 1], [0, 0, 0, 1]],
    "a layer without heads": [[1, 0, 1, 1], [0, 0, 0, 0], [1, 0, 0, 0]],
    "no heads at all": [[0] * 4] * 3,
    "all heads": [[1] * 4] * 3,
}


@pytest.mark.parametrize("gates", GATES.values(), ids=GATES)
@pytest.mark.parametrize("family", CUT)
def test_a_cut_model_answers_as_the_gated_one(family, gates, tmp_path):
    model, batch = make(family), inputs("right")
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with torch.no_grad():
        with touch(model, factors=gate_heads(np.array(gates, dtype=float))):
            gated = model(**batch).logits
        plain = model(**batch).logits
        cut = surgery.remove_heads(model, np.array(gates))
        assert torch.allclose(cut(**batch).logits, gated, atol=1e-12)
        assert (cut(**batch).logits - plain).abs().max() > 1e-6 or np.all(gates)
        again = surgery.load(surgery.save(cut, tmp_path / "cut"))
        assert torch.allclose(again(**batch).logits, gated, atol=1e-12)
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    removed = int(np.size(gates) - np.sum(gates))
    per_head = 4 * 24 * 6 + 3 * 6  # query, key, value with biases, and the output's columns; 24 wide, 6 a head
    assert model.num_parameters() - cut.num_parameters() == removed * per_head
    assert not again.training and again.num_parameters() == cut.num_parameters()


def test_what_is_left_is_said_in_the_config(tmp_path):
    cut = surgery.remove_heads(make("bert"), np.array(GATES["uneven"]))
    surgery.save(cut, tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())[surgery.NAME] == [[0, 2], [0, 1, 2, 3], [3]]


@pytest.mark.parametrize("family", ["gpt2", "modernbert", "albert"])
def test_other_families_are_refused_with_the_cure(family):
    with pytest.raises(UnsupportedModelError, match="gate_heads"):
        surgery.remove_heads(make(family), np.array(GATES["uneven"]))


@pytest.mark.parametrize("gates", [np.ones((2, 4)), np.full((3, 4), 0.5), np.ones(12)])
def test_gates_that_do_not_fit_are_refused(gates):
    with pytest.raises(ValueError, match="3 layers of 4 heads"):
        surgery.remove_heads(make("bert"), gates)


def test_only_models_that_were_cut_are_saved_and_read_here_and_only_once(tmp_path):
    model = make("bert")
    with pytest.raises(ValueError, match="save_pretrained"):
        surgery.save(model, tmp_path)
    model.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="models.load"):
        surgery.load(tmp_path)
    with pytest.raises(ValueError, match="before"):
        surgery.remove_heads(surgery.remove_heads(model, np.array(GATES["uneven"])), np.array(GATES["uneven"]))


def test_weights_cut_short_are_refused(tmp_path):
    surgery.save(surgery.remove_heads(make("bert"), np.array(GATES["uneven"])), tmp_path)
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-100])
    with pytest.raises(ValueError, match="damaged"):
        surgery.load(tmp_path)
