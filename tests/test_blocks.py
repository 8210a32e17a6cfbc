"""Passes that begin at a layer: the layers below run once, results are equal, nothing is left behind."""

from __future__ import annotations

import pytest
import torch
from families import FAMILIES, difference, inputs, make, reference
from transformers.modeling_outputs import BaseModelOutputWithPastAndCrossAttentions

from helpers.attention import gate_heads, keep_edges, touch
from helpers.attribution import attribute_inputs
from helpers.blocks import Blocks
from helpers.quadrature import points_and_weights


@pytest.mark.parametrize("family", FAMILIES)
def test_a_pass_begun_anywhere_equals_the_whole_pass(family):
    model, batch = make(family), inputs("right")
    rows = torch.tensor([2, 0, 0])
    copies = {name: tensor[rows] for name, tensor in batch.items()}
    with touch(model, record=True) as session, torch.no_grad():
        blocks = Blocks(model, session)
        with blocks.watch():
            model(**batch)
        assert blocks.complete and len(blocks.calls) == session.calls == 3
        whole = model(**copies).logits
        weights = session.attention[2]
        for layer in range(3):
            with blocks.begin_at(layer, rows):
                for _ in range(2):  # a second pass inside counts from the start again
                    assert torch.allclose(model(**copies).logits, whole, atol=1e-12)
                    assert torch.allclose(session.attention[2], weights, atol=1e-12)
                    assert sorted(session.attention) == list(range(layer, 3)), "what is left out is not read"


def test_layers_below_run_once():
    model, batch = make("bert"), inputs("right")
    runs = []
    for number, layer in enumerate(model.bert.encoder.layer):
        layer.intermediate.register_forward_hook(lambda *_, number=number: runs.append(number))
    attribute_inputs(model, batch, steps=5, layers=[2])
    assert [runs.count(number) for number in range(3)] == [1, 1, 4], "once; in layer 2 also one row, at 0, at 5 points"


@pytest.mark.parametrize("family", ["bert", "albert"])
def test_where_passes_cannot_begin_at_a_layer_the_result_is_the_same(family, monkeypatch):
    model, batch = make(family), inputs("right")
    expected = attribute_inputs(model, batch, steps=3).scores
    monkeypatch.setattr(Blocks, "complete", property(lambda self: False))
    assert torch.allclose(attribute_inputs(model, batch, steps=3).scores, expected, atol=1e-13)


def test_what_happens_between_blocks_is_noticed():
    """A block whose output is changed before the next one reads it must not be replayed."""
    model, batch = make("bert"), inputs("right")
    first = model.bert.encoder.layer[1]
    first.register_forward_pre_hook(lambda module, args: (args[0] * 1.5, *args[1:]))
    with touch(model) as session, torch.no_grad():
        blocks = Blocks(model, session)
        with blocks.watch():
            model(**batch)
    assert not blocks.complete


def moved_off(_, __, out):
    return out * 1.5 + 0.3


def moved_in_place(_, __, out):
    out.mul_(1.3)


@pytest.mark.parametrize("hook", [moved_off, moved_in_place])
@pytest.mark.parametrize("layer", [0, 1, 2])
def test_a_hook_that_steers_a_block_acts_once(hook, layer):
    model, batch, target = make("bert"), inputs("right"), torch.tensor([2, 0, 1])
    model.bert.encoder.layer[layer].register_forward_hook(hook)
    theirs, _ = reference(model, batch, target, *points_and_weights("right", 2))
    assert difference(attribute_inputs(model, batch, target=target, steps=2).scores, theirs) < 1e-10


class _Block(torch.nn.Module):
    """A layer of BERT that leaves something beside its hidden states, in one of four ways."""

    def __init__(self, layer, way, memory):
        super().__init__()
        self.layer, self.way, self.memory = layer, way, memory

    def forward(self, hidden, mask, other):
        if self.way == "in place":
            out = self.layer(hidden, mask)
            return out * 0.5 + hidden if hidden.requires_grad else hidden.add_(out * 0.5)
        memory = other if self.way == "dictionary" else self.memory
        before = other if self.way == "second output" else memory.get("first")
        out = self.layer(hidden if before is None else hidden + 0.3 * before, mask)
        memory.setdefault("first", out)
        return (out, out * 0.5 + hidden) if self.way == "second output" else out


class _Encoder(torch.nn.Module):
    def __init__(self, layers, way):
        super().__init__()
        self.way, self.memory = way, {}
        self.layer = torch.nn.ModuleList(_Block(layer, way, self.memory) for layer in layers)

    def forward(self, hidden_states, attention_mask=None, **_):
        self.memory.clear()
        hidden, other = hidden_states, {} if self.way == "dictionary" else None
        for block in self.layer:
            found = block(hidden, attention_mask, other)
            hidden, other = found if isinstance(found, tuple) else (found, other)
        return BaseModelOutputWithPastAndCrossAttentions(last_hidden_state=hidden)


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("way", ["second output", "dictionary", "attribute", "in place"])
def test_what_blocks_leave_for_each_other_beside_the_hidden_states_is_not_lost(way, rows):
    model, batch, target = make("bert"), inputs("right", (9, 5, 7)[:rows]), torch.tensor([2, 0, 1])[:rows]
    model.bert.encoder = _Encoder(model.bert.encoder.layer, way)
    theirs, _ = reference(model, batch, target, *points_and_weights("right", 2))
    for batch_tokens in (None, 18):
        ours = attribute_inputs(model, batch, target=target, steps=2, batch_tokens=batch_tokens)
        assert difference(ours.scores, theirs) < 1e-10


@pytest.mark.parametrize("family", ["bert", "albert", "gpt2"])
def test_a_head_that_reads_all_hidden_states(family):
    model, batch, target = make(family), inputs("right"), torch.tensor([2, 0, 1])
    model.config.output_hidden_states = True

    def read(outputs):
        return torch.stack(outputs.hidden_states[1:]).mean((0, 2))[:, :3] * 5

    theirs, _ = reference(model, batch, target, *points_and_weights("right", 2), read=read)
    assert difference(attribute_inputs(model, batch, target=target, steps=2, read=read).scores, theirs) < 1e-10


def test_the_modules_are_restored_after_an_error():
    model, batch = make("bert"), inputs("right")
    with touch(model) as session, torch.no_grad():
        blocks = Blocks(model, session)
        with blocks.watch():
            model(**batch)
        with pytest.raises(KeyError), blocks.begin_at(2, torch.arange(3)):
            raise KeyError
    for module in model.modules():
        assert "forward" not in vars(module)
        assert not module._forward_hooks and not module._forward_pre_hooks


# ---- the last block for the one row that is read ---------------------------------------------------------------------


def narrowed(model, batch) -> torch.Tensor | None:
    """The row that was found, after one watched pass."""
    with touch(model) as session, torch.no_grad():
        blocks = Blocks(model, session)
        with blocks.watch():
            logits = model(**batch).logits
        blocks.narrow(lambda: model(**batch).logits, logits)
    return blocks.row


def last_shapes(model, module, run) -> list[int]:
    """How many rows a module saw in each of its calls."""
    seen = []
    hook = module.register_forward_hook(lambda _, args, __: seen.append(args[0].shape[1]))
    run()
    hook.remove()
    return seen


CLASS_TOKEN = [family for family in FAMILIES if family not in ("gpt2", "modernbert")]


@pytest.mark.parametrize("family", CLASS_TOKEN)
def test_the_class_token_is_the_row_that_is_read(family):
    assert narrowed(make(family), inputs("right")).tolist() == [0, 0, 0]


@pytest.mark.parametrize("side, rows", [("right", [8, 4, 6]), ("left", [8, 8, 8])])
def test_the_last_token_is_the_row_that_a_decoder_reads(side, rows):
    assert narrowed(make("gpt2"), inputs(side)).tolist() == rows


def test_a_row_behind_turned_positions():
    assert narrowed(make("modernbert", classifier_pooling="cls"), inputs("right")).tolist() == [0, 0, 0]


@pytest.mark.parametrize("family", [*CLASS_TOKEN, "gpt2", "modernbert"])
def test_a_narrow_pass_begun_anywhere_equals_the_whole_pass(family):
    changes = {"classifier_pooling": "cls"} if family == "modernbert" else {}
    model, batch = make(family, **changes), inputs("right")
    rows = torch.tensor([2, 0, 0])
    copies = {name: tensor[rows] for name, tensor in batch.items()}
    with touch(model) as session, torch.no_grad():
        blocks = Blocks(model, session)
        with blocks.watch():
            logits = model(**batch).logits
        blocks.narrow(lambda: model(**batch).logits, logits)
        assert blocks.row is not None
        for layer in range(4):
            with blocks.begin_at(layer, rows):
                assert torch.allclose(model(**copies).logits, logits[rows], atol=1e-12)
                assert session.calls == 3


def test_only_the_row_that_is_read_goes_through_the_last_feed_forward_part():
    model, batch = make("bert"), inputs("right")
    first, last = model.bert.encoder.layer[0], model.bert.encoder.layer[2]
    run = lambda: attribute_inputs(model, batch, steps=2, layers=[0])  # noqa: E731
    assert last_shapes(model, last.intermediate, run) == [9, 1, 1, 1]  # watched, proved, start, points
    assert set(last_shapes(model, first.intermediate, run)) == {9}


def mean_of_tokens(model):
    """A head that reads the mean of all tokens."""
    model.bert.pooler.register_forward_pre_hook(lambda _, args: (args[0].mean(1, keepdim=True),))


def largest_of_tokens(model):
    """A head that takes the largest of two tokens, feature by feature: a slope alone may miss one of them."""
    model.bert.pooler.register_forward_pre_hook(lambda _, args: (args[0][:, :2].amax(1, keepdim=True),))


def dead_in_part(model):
    """A head that reads a second token, but where it was watched that token has no slope."""
    model.bert.pooler.register_forward_pre_hook(lambda _, args: (args[0][:, :1] + torch.relu(args[0][:, 1:2] - 100),))


def mixed_in_the_last_block(model):
    """A feed-forward part that reads its neighbour's row."""
    model.bert.encoder.layer[2].intermediate.register_forward_pre_hook(
        lambda _, args: (args[0] + 0.1 * args[0].roll(1, 1),)
    )


def mixed_behind_the_last_block(model):
    """A hook on the last block that mixes its rows."""
    model.bert.encoder.layer[2].register_forward_hook(lambda _, __, out: out + 0.1 * out.mean(1, keepdim=True))


@pytest.mark.parametrize(
    "change", [mean_of_tokens, largest_of_tokens, dead_in_part, mixed_in_the_last_block, mixed_behind_the_last_block]
)
def test_a_model_that_reads_more_gets_all_rows_and_right_results(change):
    model, batch, target = make("bert"), inputs("right"), torch.tensor([2, 0, 1])
    change(model)
    assert narrowed(model, batch) is None
    theirs, _ = reference(model, batch, target, *points_and_weights("right", 3))
    ours = attribute_inputs(model, batch, target=target, steps=3, rule="right")
    assert abs(ours.scores.numpy() - theirs).max() < 1e-10 * abs(theirs).max()


def test_a_head_that_does_not_read_the_last_layer_at_all():
    model, batch = make("bert"), inputs("right")
    first = []
    model.bert.encoder.layer[1].register_forward_hook(lambda _, __, out: first.append(out))
    model.bert.pooler.register_forward_pre_hook(lambda _, args: (first[-1],))
    target = torch.tensor([2, 0, 1])
    assert narrowed(model, batch) is None
    ours = attribute_inputs(model, batch, target=target, steps=3, layers=[0])
    short = make("bert", num_hidden_layers=2)
    short.load_state_dict(model.state_dict(), strict=False)
    expected = attribute_inputs(short, batch, target=target, steps=3, layers=[0])
    assert torch.allclose(ours.scores, expected.scores, atol=1e-12) and ours.scores.abs().max() > 1e-4


def test_hooks_that_only_look_do_no_harm():
    model, batch = make("bert"), inputs("right")
    expected = attribute_inputs(model, batch, steps=2).scores
    for module in model.modules():
        module.register_forward_hook(lambda *_: None)
    assert torch.equal(attribute_inputs(model, batch, steps=2).scores, expected)


@pytest.mark.parametrize("edges", [False, True])
def test_a_last_layer_that_is_gated_from_outside_is_attributed_as_gated(edges):
    """Factors on the last layer: its attention is not the fused one, and all its rows run."""
    model, batch = make("bert"), inputs("right")
    if edges:
        factors = keep_edges(torch.rand(3, 9, 9, generator=torch.Generator().manual_seed(0)) > 0.3)
    else:
        factors = gate_heads(torch.tensor([[1, 1, 1, 1], [1, 1, 1, 1], [1, 0, 1, 1]]))
    with touch(model, factors=factors):
        narrow = attribute_inputs(model, batch, steps=3).scores
        assert narrowed(model, batch) is None
    with touch(model, factors=factors), pytest.MonkeyPatch.context() as patch:
        patch.setattr(Blocks, "complete", property(lambda self: False))
        whole = attribute_inputs(model, batch, steps=3).scores
    assert torch.allclose(narrow, whole, atol=1e-12) and whole[:, 2].abs().max() > 1e-4


def test_an_error_in_a_narrow_pass_leaves_nothing_behind():
    model, batch = make("bert"), inputs("right")

    def fail(_, args):
        if torch.is_grad_enabled() and args[0].shape[1] == 1:
            raise KeyError("in the last block")

    hook = model.bert.encoder.layer[2].intermediate.register_forward_pre_hook(fail)
    with pytest.raises(KeyError, match="in the last block"):
        attribute_inputs(model, batch, steps=2)
    hook.remove()
    for module in model.modules():
        assert "forward" not in vars(module)
        assert not module._forward_hooks and not module._forward_pre_hooks
    assert model.config._attn_implementation == "eager"
