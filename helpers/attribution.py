"""Attribution of every attention link by integrated gradients (paper section 3).

    Attr_h(A) = A_h * integral over a in [0, 1] of dF(aA)/dA_h da

A: attention weights of one layer [head, query, key]; all heads of that layer are scaled by a together,
the other layers run normally on what they receive. F: the output explained.

The layer's output depends on aA only through its contexts C_h = (aA_h) V_h, so with
G_h(a) = dF/dC_h at aC_h the chain rule gives dF/dA_h = G_h(a) V_h^T, and V_h does not depend on a. Hence

    Attr_h(A) = A_h * ((sum_k w_k G_h(a_k)) V_h^T)

exactly: the gradients of the contexts are summed first, and one product with the values makes the
[query, key] matrix once (:mod:`helpers.engine`). With a baseline A0 instead of 0 the path is
A0 + a (A - A0), and A - A0 takes the place of A in front.

Where F is smooth in a, few points do. DistilBERT's head has a ReLU, a kink that no rule gets over
quickly: there "auto" takes many more points, and says so in ``steps``.
"""

from __future__ import annotations

import operator
import warnings
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import torch
from tqdm.auto import tqdm
from transformers import PreTrainedModel

from helpers.attention import check_model
from helpers.engine import AUTO_STEPS, FLOOR, Plan, Scores, attribute_inputs, attribute_planned, plan_of
from helpers.inputs import TOKENS_AT_ONCE, Text, check_texts, encode, is_text
from helpers.result import Attribution

PADDING = 64  # tokens of padding, over all points, that take about as long as the calls of one more batch do

__all__ = ["Attribution", "Scores", "attribute", "attribute_inputs"]


def attribute(
    model: PreTrainedModel,
    tokenizer,
    texts: Text | Iterable[Text],
    *,
    target: int | str | Sequence[int | str] | None = None,
    steps: int | str = "auto",
    rule: str | None = None,
    output: str = "probability",
    layers: Sequence[int] | None = None,
    baseline: str = "zero",
    tolerance: float = 0.01,
    floor: float = FLOOR,
    gap: bool = True,
    max_length: int | None = None,
    batch_tokens: int | None = None,
    precision: str = "float32",
    progress: bool = False,
) -> Attribution | list[Attribution]:
    """Attribute the model's output to every attention link: Attr_h(A) = A_h * integral of dF(aA)/dA_h da.

    The model is explained in eval mode and left as it was found. Sums are kept in float32 where the
    model is in half precision.

    Args:
        model: a transformers sequence classifier whose attention can be switched, on any device.
        tokenizer: the model's tokenizer.
        texts: a string, a (first, second) pair, or a list of either.
        target: the class to explain, by index or label name; one for all texts or one a text. None:
            the predicted class.
        steps: the number of points, or "auto": points are added (4, 9, 19, 39, 79, at last 192), layer by layer,
            until the layer's |gap| is at most ``tolerance`` * |F(A) - F(start)|, or ``floor``. The gap is a guide to
            the error of single scores, not a bound: errors of opposite sign cancel in it (notebook 01, section 6).
        rule: "right" (the paper's; default for a number of steps), "left" (the released code's), "midpoint", "gauss",
            or "nested" (what "auto" uses: four Gauss points, and more that keep the ones before).
        output: F: "probability" of the target, its "logit" or its "log-probability". A model with one
            output is explained by its raw output, whatever is asked: a softmax over one class is constant.
        layers: which layers, from 0; None for all.
        baseline: where the path starts: "zero" (no token attends to any other in that layer) or "mean"
            (every head of the layer attends as the layer's mean head does).
        tolerance, floor: see ``steps``; relative, and in the unit of F.
        gap: False leaves out F at the start, a pass a layer that only the gap needs: ``start`` and ``gap`` are nan
            then. For a number of steps only, "auto" goes by the gap.
        max_length: cut texts to so many tokens; None: to what the model can read.
        batch_tokens: at most about so many tokens go through the model at once (texts times layers times points times
            length); half as many for the rest of a batch that runs out of memory. None: 512 on a processor, which
            gains nothing beyond, 16384 on a GPU.
        precision: "float32", or "bfloat16" for the passes along the path: quicker where the hardware has it, with
            errors of about 1 % (``benchmarks/scaling.py``). Sums stay in float32. For a number of steps only.
        progress: show a progress bar over texts.

    Returns:
        An :class:`Attribution`, or for a list of texts a list of them in the same order.

    Raises:
        ValueError: a blank text, an unknown class, rule, output, baseline or layer, steps below 1.
        UnsupportedModelError: the model's attention can't be reached.

    >>> a = attribute(model, tokenizer, "A slow start, but a wonderful end.")
    >>> a.top_links(3)
    """
    check_model(model)
    batch = check_texts(texts)
    layers = tuple(layers) if isinstance(layers, Iterable) else layers
    plan = plan_of(steps, rule, output, baseline, tolerance, floor, gap, batch_tokens, precision)
    targets = target_numbers(target, len(batch), model)
    encoded = encode(model, tokenizer, batch, max_length=max_length)
    budget = plan.batch_tokens or TOKENS_AT_ONCE[encoded.on_cpu]
    results: dict[int, Attribution] = {}
    with tqdm(total=len(batch), disable=not progress, desc="attribution", unit="text") as bar:
        for group in _groups([len(tokens) for tokens in encoded.tokens], plan.levels[0], budget):
            inputs = encoded.batch(group)
            wanted = None if targets is None else torch.tensor([targets[i] for i in group])
            raw = attribute_planned(model, inputs, wanted, layers, plan)
            for row, i in enumerate(group):
                results[i] = _result(raw, row, model, batch[i], encoded.tokens[i], encoded.words[i], plan)
            bar.update(len(group))
    ordered = [results[i] for i in range(len(batch))]
    _warn_unconverged(ordered, plan)
    return ordered[0] if is_text(texts) else ordered


def target_numbers(target, count: int, model: PreTrainedModel) -> list[int] | None:
    """Return one class index a text, or None for the predicted classes."""
    if target is None:
        return None
    labels = labels_of(model)
    single = isinstance(target, str | bytes) or not isinstance(target, Iterable) or getattr(target, "ndim", 1) == 0
    given = [target] * count if single else list(target)
    if len(given) != count:
        raise ValueError(f"{len(given)} targets were given for {count} texts: give one for all, or one a text.")
    indices = []
    for item in given:
        if isinstance(item, str) and labels.count(item) > 1:
            raise ValueError(f"{labels.count(item)} classes are named {item!r}: give the class by its number.")
        try:
            index = labels.index(item) if isinstance(item, str) else operator.index(item)
        except (ValueError, TypeError):
            index = -1
        if isinstance(item, bool) or not 0 <= index < len(labels):
            raise ValueError(f"There is no class {item!r}: give one of {', '.join(labels)} (0 to {len(labels) - 1}).")
        indices.append(index)
    return indices


def labels_of(model: PreTrainedModel) -> tuple[str, ...]:
    """Return the class names of a model in the order of its logits; a class without a name is its number."""
    names = model.config.id2label
    return tuple(str(names.get(i, names.get(str(i), i))) for i in range(model.config.num_labels))


def _groups(lengths: Sequence[int], points: int, budget: int) -> Iterator[list[int]]:
    """Yield batches of text indices, texts of like length together, so that a layer's points fit the budget of tokens.

    A longer text joins only while the padding of all costs less time than the calls of one more batch.
    """
    group: list[int] = []
    for i in sorted(range(len(lengths)), key=lengths.__getitem__):
        tokens = (len(group) + 1) * lengths[i]
        padding = tokens - lengths[i] - sum(lengths[j] for j in group)
        if group and (tokens * points > budget or padding * points > PADDING):
            yield group
            group = []
        group.append(i)
    yield group


def _result(raw: Scores, row: int, model, text: Text, tokens, words, plan: Plan) -> Attribution:
    n = len(tokens)  # encode() pads on the right
    single = model.config.num_labels == 1
    return Attribution(
        scores=raw.scores[row, ..., :n, :n].float().cpu().numpy().copy(),
        attention=raw.attention[row, ..., :n, :n].float().cpu().numpy().copy(),
        layers=raw.layers,
        text=text,
        tokens=tokens,
        words=words,
        labels=labels_of(model),
        target=int(raw.target[row]),
        predicted=int(raw.predicted[row]),
        probability=float(raw.probability[row]),
        value=float(raw.value[row]),
        output="raw" if single else plan.output,
        start=raw.start[row].cpu().numpy(),
        gap=raw.gap[row].cpu().numpy(),
        steps=raw.steps[row].cpu().numpy(),
        rule=plan.rule,
        baseline=plan.baseline,
        precision="bfloat16 (autocast)" if plan.precision == "bfloat16" else str(model.dtype).removeprefix("torch."),
    )


def _warn_unconverged(results: Sequence[Attribution], plan: Plan) -> None:
    wrong = [number for number, a in enumerate(results) if not np.isfinite(a.scores).all()]
    if wrong:
        warnings.warn(
            f"{len(wrong)} of {len(results)} texts have scores that are not finite numbers, text {wrong[0]} first: the "
            "model overflows on the way, though not at its end. Load it in float32.",
            stacklevel=3,
        )
    if plan.levels != AUTO_STEPS:
        return
    far = [np.abs(a.gap) - np.maximum(plan.tolerance * np.abs(a.value - a.start), plan.floor) for a in results]
    count = sum(bool((f > 0).any()) for f in far)
    if count:
        warnings.warn(
            f"{count} of {len(results)} texts have a layer whose completeness gap is still above the tolerance at "
            f"{AUTO_STEPS[-1]} points (see .gap). {_cure(results[0].precision)}",
            stacklevel=3,
        )


def _cure(precision: str) -> str:
    if precision in ("float16", "bfloat16"):
        return f"The model is in {precision}, and its rounding is larger: load it in float32, or raise tolerance."
    return "Raise tolerance or floor, or load the model in float64."
