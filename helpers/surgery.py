"""Heads cut out of the weights, for good: a smaller and faster model with the same outputs as the gated one.

A head is a slice of the query, key and value weights and of the columns that bring its context back
(``output.dense``). transformers 5 can no longer cut it out by itself, and a layer may keep any number of heads here,
none included. A model that was cut is for use, not for attribution: where its layers differ in width, or one has no
attention left, that is refused. Explain the whole model inside ``touch(model, factors=gate_heads(gates))`` instead.
"""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForSequenceClassification, PreTrainedModel

from helpers.attention import _OPEN, UnsupportedModelError, check_model, count_call

WEIGHTS = "model.safetensors"
NAME = "attattr_kept_heads"  # in config.json: the heads that each layer keeps
# (query, key, value, output) below the module that calls attention, or beside it
_NAMES = (
    ("query", "key", "value", "output.dense"),  # BERT, RoBERTa, XLM-R, ELECTRA
    ("q_lin", "k_lin", "v_lin", "out_lin"),  # DistilBERT
)


class NoHeads(nn.Module):
    """The attention of a layer that has lost all its heads: contexts of width 0, so that the output is its bias.

    The layer keeps its number for :func:`helpers.attention.touch`, which can neither read nor change it.
    """

    def forward(self, hidden_states: Tensor, *args: object, **kwargs: object) -> tuple[Tensor, None]:
        """Return contexts [batch, token, 0]."""
        for session in _OPEN.get():
            layer, ours = session.calls, id(self) in session.modules
            if ours and (session.records(layer) or layer in session.factors or layer in session.contexts):
                raise UnsupportedModelError(
                    f"Layer {layer} has lost all its heads, so it has no attention to read or change. Take the whole "
                    "model and its gates, touch(model, factors=gate_heads(gates)), or name other layers."
                )
        count_call(self)
        return hidden_states[..., :0], None


def remove_heads(model: PreTrainedModel, gates: np.ndarray) -> PreTrainedModel:
    """Return a copy of the model without the heads whose gate is 0; its outputs are those of the gated model.

    Args:
        model: a BERT, RoBERTa, XLM-R, ELECTRA or DistilBERT classifier.
        gates: [layer, head], 1 keeps a head and 0 removes it.

    Raises:
        UnsupportedModelError: the family stores its heads in another way, or no transformers model was given.
        ValueError: the gates do not fit the model, or hold other numbers.
    """
    check_model(model)
    gates = np.asarray(gates)
    shape = (model.config.num_hidden_layers, model.config.num_attention_heads)
    # strings that look like numbers pass np.isin, and are then true, "0" too
    if gates.shape != shape or gates.dtype.kind not in "biuf" or not np.isin(gates, (0, 1)).all():
        raise ValueError(
            f"gates are {gates.tolist()!r:.80}, of shape {gates.shape}: the number 0 or 1 is needed for each of "
            f"{shape[0]} layers of {shape[1]} heads."
        )
    if hasattr(model.config, NAME):
        raise ValueError("Heads were cut out of this model before: start from the whole model.")
    return _cut(copy.deepcopy(model), [np.flatnonzero(row).tolist() for row in gates])


def _cut(model: PreTrainedModel, kept: Sequence[Sequence[int]]) -> PreTrainedModel:
    places = _layers(model)
    if len(places) != len(kept):
        raise UnsupportedModelError(
            f"{type(model).__name__} does not keep its heads as BERT or DistilBERT do, layer by layer, so they can't "
            "be cut out: switch them off instead, touch(model, factors=gate_heads(gates))."
        )
    for (parent, name, attention, output, names), heads in zip(places, kept, strict=True):
        size = attention.attention_head_size
        rows = [head * size + i for head in heads for i in range(size)]
        for linear in (getattr(attention, n) for n in names[:3]):
            _slice(linear, rows, dim=0)
        _slice(output, rows, dim=1)
        attention.num_attention_heads = attention.n_heads = len(heads)
        if not heads and names[0] == "query":
            setattr(parent, name, NoHeads())
        elif not heads:  # DistilBERT's output is inside
            setattr(parent, name, _Bias(output))
    setattr(model.config, NAME, [list(heads) for heads in kept])
    return model


class _Bias(NoHeads):
    """As :class:`NoHeads`, with the output layer behind it."""

    def __init__(self, output: nn.Linear):
        super().__init__()
        self.out_lin = output

    def forward(self, hidden_states: Tensor, *args: object, **kwargs: object) -> tuple[Tensor, None]:
        """Return the output layer's bias at every token."""
        contexts, _ = super().forward(hidden_states)
        return self.out_lin(contexts), None


def _layers(model: PreTrainedModel) -> list[tuple]:
    """Every attention module in call order: its parent, its name there, itself, its output layer, and their names."""
    found = []
    for path, module in model.named_modules():
        for names in _NAMES:
            if not all(isinstance(getattr(module, name, None), nn.Linear) for name in names[:3]):
                continue
            parent = model.get_submodule(path.rpartition(".")[0])
            output = getattr(module, names[3], None) or getattr(getattr(parent, "output", None), "dense", None)
            if isinstance(output, nn.Linear) and hasattr(module, "attention_head_size"):
                found.append((parent, path.rpartition(".")[2], module, output, names))
    return found


def _slice(linear: nn.Linear, keep: Sequence[int], *, dim: int) -> None:
    """Keep some rows (dim 0, with their biases) or columns (dim 1) of a linear layer, in place."""
    index = torch.tensor(keep, dtype=torch.long, device=linear.weight.device)
    asks = linear.weight.requires_grad
    linear.weight = nn.Parameter(linear.weight.detach().index_select(dim, index).contiguous(), requires_grad=asks)
    if dim == 0 and linear.bias is not None:
        linear.bias = nn.Parameter(linear.bias.detach()[index].contiguous(), requires_grad=asks)
    linear.out_features, linear.in_features = linear.weight.shape


def save(model: PreTrainedModel, folder: str | os.PathLike) -> Path:
    """Write a model that :func:`remove_heads` made, as transformers does; config.json says which heads are left."""
    if not hasattr(model.config, NAME):
        raise ValueError("No heads were cut out of this model: save it with model.save_pretrained(folder).")
    model.save_pretrained(folder)
    return Path(folder)


def load(folder: str | os.PathLike) -> PreTrainedModel:
    """Read a model that :func:`save` wrote, in eval mode; transformers alone would refuse the shapes of its weights.

    Raises:
        ValueError: no heads were cut out of the model in this folder, or its config or weights are damaged.
    """
    folder = Path(folder)
    try:
        stated = json.loads((folder / "config.json").read_text(encoding="utf-8")).get(NAME)
    except (ValueError, AttributeError) as error:
        raise ValueError(f"{folder / 'config.json'} is damaged ({error}): save the model again.") from error
    if stated is None:
        raise ValueError(f"{folder} holds no model with heads cut out: load it with helpers.models.load.")
    config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
    delattr(config, NAME)
    _check_kept(stated, config, folder)
    model = _cut(AutoModelForSequenceClassification.from_config(config, trust_remote_code=False), stated)
    try:
        model.load_state_dict(load_file(folder / WEIGHTS), assign=True)
    except SafetensorError as error:
        raise ValueError(f"{folder / WEIGHTS} is damaged or cut short ({error}): save it again.") from error
    except RuntimeError as error:  # names or shapes
        said = " ".join(str(error).split())
        raise ValueError(
            f"The weights in {folder / WEIGHTS} don't fit the heads that config.json says are left ({said:.200}): save "
            "the model again."
        ) from error
    return model.eval()


def _check_kept(stated: Any, config, folder: Path) -> None:
    """Raise unless it is a list of head numbers for every layer, as :func:`remove_heads` notes them."""
    layers, heads = config.num_hidden_layers, config.num_attention_heads
    lists = isinstance(stated, list) and len(stated) == layers and all(isinstance(kept, list) for kept in stated)
    if not lists or any(kept != [head for head in range(heads) if head in kept] for kept in stated):
        raise ValueError(
            f"{folder / 'config.json'} says that the heads {stated!r:.80} are left: a rising list of numbers from 0 to "
            f"{heads - 1} is needed for each of {layers} layers. Save the model again."
        )
