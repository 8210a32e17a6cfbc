"""Heads cut out of the weights: outputs equal to gating, for any number left a layer, also after saving."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from families import inputs, make

from helpers import surgery
from helpers.attention import UnsupportedModelError, gate_heads, touch
from helpers.attribution import attribute_inputs

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


@pytest.mark.parametrize(
    "gates", [np.ones((2, 4)), np.full((3, 4), 0.5), np.ones(12), [], [["1"] * 4] * 3, np.full((3, 4), np.nan)]
)
def test_gates_that_do_not_fit_are_refused(gates):
    with pytest.raises(ValueError, match="3 layers of 4 heads"):
        surgery.remove_heads(make("bert"), gates)


@pytest.mark.parametrize("given", ["bert", SimpleNamespace(model=None, tokenizer=None)])
def test_what_is_no_model_is_refused(given):
    with pytest.raises(UnsupportedModelError, match="A transformers model is needed"):
        surgery.remove_heads(given, np.ones((3, 4)))


@pytest.mark.parametrize("family", CUT)
def test_layers_keep_their_numbers_where_one_has_no_heads_left(family):
    model, batch = make(family), inputs("right")
    gates = np.array([[0] * 4, [1] * 4, [1] * 4])
    cut = surgery.remove_heads(model, gates)
    with torch.no_grad(), touch(model, record=[1, 2], factors=gate_heads(gates)) as expected:
        model(**batch)
    with torch.no_grad(), touch(cut, record=[1, 2]) as seen:
        cut(**batch)
    assert seen.calls == 3 and sorted(seen.attention) == [1, 2]
    for layer in (1, 2):
        assert torch.allclose(seen.attention[layer], expected.attention[layer], atol=1e-12)
    for asked in ({"record": True}, {"factors": {0: torch.zeros(1)}}, {"contexts": {0: torch.zeros(1)}}):
        with pytest.raises(UnsupportedModelError, match="Layer 0 has lost all its heads"), touch(cut, **asked):
            cut(**batch)
    with pytest.raises(UnsupportedModelError, match="Layer 0 has lost all its heads"):
        attribute_inputs(cut, batch, layers=[1])


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


@pytest.mark.parametrize(
    ("kept", "match"),
    [
        ([[0]], "is needed for each of 3 layers"),
        ([[0, 9], [0, 1, 2, 3], [3]], "from 0 to 3"),
        ([[-1, 2], [0, 1, 2, 3], [3]], "from 0 to 3"),
        ([[2, 0], [0, 1, 2, 3], [3]], "rising list"),
        ([[0, 0], [0, 1, 2, 3], [3]], "rising list"),
        ("abc", "rising list"),
        ([1, 2, 3], "rising list"),
        ([[0, 1, 2], [0, 1], [3]], "don't fit the heads"),
    ],
)
def test_heads_that_cannot_be_left_are_refused(tmp_path, kept, match):
    surgery.save(surgery.remove_heads(make("bert"), np.array(GATES["uneven"])), tmp_path)
    config = tmp_path / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {surgery.NAME: kept}))
    with pytest.raises(ValueError, match=match):
        surgery.load(tmp_path)


@pytest.mark.parametrize("content", ["{", "[1]"])
def test_a_damaged_config_is_refused(tmp_path, content):
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(ValueError, match="config.json is damaged"):
        surgery.load(tmp_path)


def test_no_code_from_the_folder_is_run(tmp_path, monkeypatch):
    surgery.save(surgery.remove_heads(make("bert"), np.array(GATES["uneven"])), tmp_path)
    seen, run = [], surgery.AutoConfig.from_pretrained
    monkeypatch.setattr(
        surgery.AutoConfig, "from_pretrained", lambda *args, **o: seen.append(o["trust_remote_code"]) or run(*args, **o)
    )
    surgery.load(tmp_path)
    assert seen == [False]
