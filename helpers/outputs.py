"""From a model's raw outputs to the number that is explained or reported, in one place for both.

Class logits become probabilities by a softmax, or class by class by a sigmoid where the model gives several labels at
once. A model with a single output is a regressor: its output is taken as it is.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional


def logits_of(outputs: Any) -> Any:
    """Return the logits in what a classifier gave out, a tuple where its config has return_dict=False; None if none."""
    return outputs[0] if isinstance(outputs, tuple) else getattr(outputs, "logits", None)


def log_probabilities(logits: Tensor, config) -> Tensor:
    """Return log-probabilities [row, class] of logits [row, class], at least float32.

    A single output is returned as it is: a softmax over one class would be constant.
    """
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    if logits.shape[-1] == 1:
        return logits
    several = config.problem_type == "multi_label_classification"
    return functional.logsigmoid(logits) if several else logits.log_softmax(-1)


def probabilities(logits: Tensor, config) -> Tensor:
    """Return probabilities [row, class], at least float32; a single output is returned as it is."""
    logs = log_probabilities(logits, config)
    return logs if logits.shape[-1] == 1 else logs.exp()
