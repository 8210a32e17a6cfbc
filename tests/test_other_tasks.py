"""Other tasks than classifying texts, other starts and other paths, each against the plain algorithm."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from families import EVERY, difference, inputs, make, pictures, reference
from transformers import (
    AutoModelForImageClassification,
    AutoModelForQuestionAnswering,
    AutoModelForTokenClassification,
    SwinConfig,
)

from helpers import paths, puzzles
from helpers.attention import UnsupportedModelError, touch
from helpers.attribution import attribute_inputs
from helpers.blocks import Blocks
from helpers.quadrature import points_and_weights

POINTS = points_and_weights("right", 5)
TARGET = torch.tensor([2, 0, 1])
FAMILIES_WITH_HEADS = ("bert", "roberta", "electra", "distilbert", "albert", "modernbert", "gpt2")


QUESTIONS = {"head": AutoModelForQuestionAnswering, "changes": {"num_labels": 2}}  # where it starts, where it ends


def sigmoid(logits):
    return logits.sigmoid()


def raw(logits):
    return logits


def task(kind: str) -> SimpleNamespace:
    """What makes a task: how a model of it is made, which of its outputs is explained, for which classes."""
    tasks: dict[str, dict] = {
        "regression": dict(changes={"num_labels": 1}, squash=raw, target=[0, 0, 0]),
        "multi-label": dict(changes={"problem_type": "multi_label_classification"}, squash=sigmoid),
        "start": dict(**QUESTIONS, read=lambda o: o.start_logits, target=[3, 1, 6]),
        "end": dict(**QUESTIONS, read=lambda o: o.end_logits, target=[3, 1, 6]),
        "tag": dict(head=AutoModelForTokenClassification, read=lambda o: o.logits[:, 4]),
    }
    given = dict(changes={}, head=None, read=None, squash=None, target=[2, 0, 1]) | tasks[kind]
    return SimpleNamespace(**given | {"target": torch.tensor(given["target"])})


@pytest.mark.parametrize("family", FAMILIES_WITH_HEADS)
@pytest.mark.parametrize("kind", ["regression", "multi-label", "start", "end", "tag"])
def test_other_tasks_equal_brute_force(family, kind):
    wanted = task(kind)
    model, batch = make(family, head=wanted.head, **wanted.changes), inputs("right")
    theirs, _ = reference(model, batch, wanted.target, *POINTS, read=wanted.read, squash=wanted.squash)
    ours = attribute_inputs(model, batch, target=wanted.target, steps=5, rule="right", read=wanted.read)
    assert difference(ours.scores, theirs) < 1e-10
    assert ours.probability.isnan().all() == (kind == "regression")


# ---- pictures --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
@pytest.mark.parametrize("dtype, bound", [(torch.float64, 1e-10), (torch.float32, 1e-5)])
def test_a_vision_transformer_equals_brute_force(implementation, dtype, bound):
    model, batch = make("vit", implementation=implementation, dtype=dtype), pictures(dtype=dtype)
    theirs, attention = reference(model, batch, TARGET, *POINTS)
    ours = attribute_inputs(model, batch, target=TARGET, steps=5, rule="right")
    assert ours.scores.shape == (3, 3, 4, 10, 10)
    assert difference(ours.scores, theirs) < bound
    assert difference(ours.attention, attention) < bound


def test_passes_of_a_vision_transformer_begin_at_a_layer_and_end_in_one_row():
    model, batch = make("vit"), pictures()
    with touch(model) as session, torch.no_grad():
        blocks = Blocks(model, session)
        with blocks.watch():
            logits = model(**batch).logits
        blocks.narrow(lambda: model(**batch).logits, logits)
        assert blocks.complete and blocks.row.tolist() == [0, 0, 0]
        rows = torch.tensor([2, 0, 0])
        with blocks.begin_at(1, rows):
            assert torch.allclose(model(pixel_values=batch["pixel_values"][rows]).logits, logits[rows], atol=1e-12)


def test_completeness_of_a_vision_transformer():
    model, batch = make("vit"), pictures()
    few, exact = (attribute_inputs(model, batch, steps=steps, rule="gauss") for steps in (8, 300))
    assert exact.gap.abs().max() < min(1e-5, few.gap.abs().max() / 10)


def test_windows_of_a_picture_are_refused():
    """Swin's layers attend within windows of their own, so that links can't be named by patches."""
    sizes = dict(image_size=16, patch_size=2, num_channels=2, embed_dim=8, depths=[1, 1], num_heads=[2, 2])
    torch.manual_seed(0)
    model = AutoModelForImageClassification.from_config(SwinConfig(**sizes, window_size=4)).double().eval()
    before = model.config._attn_implementation
    batch = {"pixel_values": torch.randn(2, 2, 16, 16).double()}
    with pytest.raises(UnsupportedModelError, match="within parts of its input"):
        paths.attribute_together(model, batch, steps=2)
    with pytest.raises(UnsupportedModelError) as raised:
        attribute_inputs(model, batch, steps=2)
    assert len(str(raised.value)) < 600 and model.config._attn_implementation == before


# ---- other starts, other paths ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", EVERY)
def test_other_starts_equal_brute_force(family):
    model = make(family)
    batch = pictures() if family == "vit" else inputs("right")
    for start in (paths.zero, paths.mean, paths.uniform):
        theirs, attention = reference(model, batch, TARGET, *POINTS, start=start)
        ours = paths.attribute_from(model, batch, start, target=TARGET, steps=5, rule="right")
        assert difference(ours.scores, theirs) < 1e-10
        assert difference(ours.attention, attention) < 1e-10


@pytest.mark.parametrize("family", EVERY)
def test_all_layers_together_equal_brute_force(family):
    model = make(family)
    batch = pictures() if family == "vit" else inputs("right")
    theirs, _ = reference(model, batch, TARGET, *POINTS, together=True)
    ours = paths.attribute_together(model, batch, target=TARGET, steps=5, rule="right")
    assert difference(ours.scores, theirs) < 1e-10


@pytest.mark.parametrize("start, name", [(paths.zero, "zero"), (paths.mean, "mean")])
def test_the_engines_starts_are_the_same(start, name):
    model, batch = make("bert"), inputs("right")
    engine = attribute_inputs(model, batch, target=TARGET, steps=6, rule="gauss", baseline=name, layers=[2, 0])
    ours = paths.attribute_from(model, batch, start, target=TARGET, steps=6, layers=[2, 0])
    for field in ("scores", "attention", "value", "start", "gap"):
        assert torch.allclose(getattr(ours, field), getattr(engine, field), atol=1e-12)
    assert ours.layers == engine.layers == (2, 0)


def test_one_layer_moved_alone_is_the_papers_path():
    model, batch = make("bert"), inputs("right")
    engine = attribute_inputs(model, batch, target=TARGET, steps=6, rule="gauss")
    for layer in range(3):
        ours = paths.attribute_together(model, batch, target=TARGET, steps=6, layers=[layer])
        assert torch.allclose(ours.scores[:, 0], engine.scores[:, layer], atol=1e-12)
        assert torch.allclose(ours.gap[:, 0], engine.gap[:, layer], atol=1e-12)


@pytest.mark.parametrize("output", ["probability", "logit", "log-probability"])
def test_layers_moved_together_are_one_account(output):
    model, batch = make("bert"), inputs("right")
    together = paths.attribute_together(model, batch, target=TARGET, steps=60, output=output)
    assert together.gap.shape == (3, 1) and together.gap.abs().max() < 1e-4
    assert torch.allclose(together.scores.sum((1, 2, 3, 4)), together.value - together.start[:, 0], atol=1e-4)
    alone = attribute_inputs(model, batch, target=TARGET, steps=60, rule="gauss", output=output)
    total = alone.scores.sum((1, 2, 3, 4))
    assert ((total - (together.value - together.start[:, 0])).abs() > 1e-3).all(), "layers are accounts of their own"


@pytest.mark.parametrize("side", [None, "right", "left"])
def test_uniform_attention_is_equal_over_what_may_be_read(side):
    for family in ("bert", "gpt2"):
        batch = inputs(side)
        with touch(make(family), record=[1]) as seen, torch.no_grad():
            pass
        model = make(family)
        with touch(model, record=[1]) as seen, torch.no_grad():
            model(**batch)
        even = paths.uniform(seen.attention[1])
        real = batch["attention_mask"].bool()
        for row, row_even in enumerate(even):
            places = torch.where(real[row])[0]
            own = row_even[:, places][:, :, places]
            wanted = torch.ones(len(places), len(places), dtype=torch.float64)
            wanted = wanted.tril() if family == "gpt2" else wanted
            assert torch.allclose(own, (wanted / wanted.sum(-1, keepdim=True)).expand_as(own), atol=1e-12)
            assert row_even[:, places][:, :, ~real[row]].sum() == 0, "nothing goes to padding"


def test_settings_of_a_path_that_do_not_fit():
    model, batch = make("bert"), inputs("right")
    for run in (paths.attribute_from, paths.attribute_together):
        with pytest.raises(ValueError, match="output 'loss' is not known"):
            run(model, batch, output="loss")
        with pytest.raises(ValueError, match="steps is 0"):
            run(model, batch, steps=0)
    with pytest.raises(ValueError, match="The start has shape"):
        paths.attribute_from(model, batch, lambda attention: attention[:, :1])
    assert model.config._attn_implementation == "eager"
    assert all(parameter.requires_grad for parameter in model.parameters())


# ---- puzzles ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", puzzles.PUZZLES)
def test_what_a_puzzle_draws(name):
    puzzle, count = puzzles.PUZZLES[name], 40
    drawn, again = (puzzle.draw(np.random.default_rng(3), count) for _ in range(2))
    torch.manual_seed(0)
    model = puzzle.model().eval()
    with torch.no_grad():
        outputs = model(**drawn.inputs, **drawn.labels)
    logits = puzzle.read(outputs, int(drawn.receiver[0]))
    assert outputs.loss.isfinite() and logits.shape[0] == count and logits.shape[1] > int(drawn.target.max())
    tokens = drawn.counts.shape[1]
    with touch(model, record=[0]) as seen, torch.no_grad():
        model(**drawn.inputs)
    assert seen.attention[0].shape[-1] == tokens
    assert drawn.counts.any(axis=1).all() and not drawn.counts[:, 0].any(), "something counts, and never [CLS]"
    for key, tensor in drawn.inputs.items():
        assert torch.equal(tensor, again.inputs[key])
    assert puzzles.right(name, model, drawn).shape == (count,)


def test_the_answers_of_the_puzzles():
    drawn = {name: puzzle.draw(np.random.default_rng(1), 30) for name, puzzle in puzzles.PUZZLES.items()}
    sums = drawn["regression"]
    np.testing.assert_allclose(sums.labels["labels"], np.nansum(sums.values, axis=1), rtol=1e-5)
    assert (drawn["multi-label"].counts.sum(1) == 1).all()
    labels, target = drawn["multi-label"].labels["labels"], drawn["multi-label"].target
    assert (labels.gather(1, target[:, None]) == 1).all() and 0 < labels.mean() < 1
    ids, asked = drawn["question"].inputs["input_ids"], drawn["question"]
    assert (ids[:, 1] == ids.gather(1, asked.target[:, None])[:, 0]).all() and (asked.counts.argmax(1) == 1).all()
    ids, tagged = drawn["tagging"].inputs["input_ids"], drawn["tagging"]
    before = ids.gather(1, tagged.receiver[:, None] - 1)[:, 0]
    assert (tagged.target == before - int(puzzles.LETTERS[0])).all()
    assert (tagged.counts.argmax(1) == tagged.receiver.numpy() - 1).all()
    image = drawn["image"]
    assert (image.counts.sum(1) == 2).all() and 0 < image.target.float().mean() < 1
    size = puzzles.PATCH
    patches = image.inputs["pixel_values"][:, 0].unfold(1, size, size).unfold(2, size, size).flatten(1, 2)
    bright = patches.mean((2, 3)).argsort(dim=1, descending=True)[:, :2].sort(dim=1).values
    assert torch.equal(bright + 1, torch.from_numpy(np.argwhere(image.counts)[:, 1].reshape(-1, 2)))


def test_training_is_the_same_twice():
    first, second = (puzzles.train("question", steps=3, batch=4) for _ in range(2))
    for one, other in zip(first.parameters(), second.parameters(), strict=True):
        assert torch.equal(one, other)
    assert not first.training
