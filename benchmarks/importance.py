"""Seconds that head importance takes: this engine beside the released algorithm, on the same texts in one run.

    python benchmarks/importance.py                 # a bundled model, bundled sentences, a few minutes
    python benchmarks/importance.py --task mnli

The released algorithm is run as the authors' code has it: a text and a layer at a time, 20 copies of the text with
the layer's attention scaled to 0/20 .. 19/20 in one batch, the gradient of the attention matrix, a left sum, and the
maximum of every head. "whole network" runs all layers on 20 copies; "layers below once" runs the layers below the
scaled one on a single copy, as broadcasting does in the released code (here for BERT only). "padded" is with all
texts padded to 128 tokens, as the released code has them. This engine: few Gauss points, the gradient of the
contexts, the layers below once, the last layer for the row that the classifier reads, many texts of like length and
points in a batch; "without gap" leaves out F at the start, which importance does not read.

Seconds are per text, the best of --repeat runs; 200 texts are reckoned from them. Shares are of processor time, which
other work on the machine disturbs least. The released algorithm takes a text at a time, so a few are enough to know
its pace: they are spread evenly over the lengths of those that this engine takes together. Errors are over these few,
against 64 Gauss points.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import eager_mask

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from helpers import data, models, pruning  # noqa: E402
from helpers.inputs import encode  # noqa: E402

POINTS = 20
OURS = {f"Gauss, {n} points, without gap": dict(steps=n, rule="gauss", gap=False) for n in (2, 3, 4)} | {
    "Gauss, 4 points": dict(steps=4, rule="gauss"),
    "auto, 6 points or more": {},
}


class _State:
    """Which layer is scaled in the forward pass that runs, and its scaled attention."""

    layer, call, scaled = -1, 0, None
    seen: list[torch.Tensor] = []


def _attention(module, query, key, value, attention_mask, scaling=None, **kwargs):
    weights = query @ key.transpose(2, 3) * scaling
    weights = (weights if attention_mask is None else weights + attention_mask).softmax(-1)
    if _State.scaled is None:
        _State.seen.append(weights)
    elif _State.call == _State.layer:
        weights = _State.scaled
    _State.call += 1
    return (weights @ value).transpose(1, 2).contiguous(), weights


AttentionInterface.register("released", _attention)
AttentionMaskInterface.register("released", eager_mask)


def _copies(module, args: tuple) -> tuple:
    """Give a layer so many copies of what it receives, as broadcasting does in the released code."""
    return args[0].expand(POINTS, -1, -1), *args[1:]


def released(model, inputs: dict, target: int, *, copies_below: bool) -> np.ndarray:
    """Importance of every head on one text, [layer, head], as the released code finds it."""
    model.set_attn_implementation("released")
    length = int(inputs["attention_mask"].sum())
    found = []
    for layer in range(model.config.num_hidden_layers):
        _State.layer, _State.call, _State.scaled, _State.seen = layer, 0, None, []
        model(**inputs)  # once more for every layer, to read its attention
        attention = _State.seen[layer].detach()[0]
        points = torch.arange(POINTS).reshape(-1, 1, 1, 1) / POINTS
        _State.call, _State.scaled = 0, (points * attention).requires_grad_()
        batch = {k: v.expand(POINTS, -1) for k, v in inputs.items()} if copies_below else inputs
        hook = model.base_model.encoder.layer[layer].register_forward_pre_hook(_copies)
        probability = model(**batch).logits.softmax(-1)[:, target].sum()
        hook.remove()
        slope = torch.autograd.grad(probability, _State.scaled)[0].sum(0) / POINTS
        found.append((attention * slope)[:, :length, :length].amax(dim=(1, 2)))
    model.set_attn_implementation("sdpa")
    return torch.stack(found).numpy()


def padded(inputs: dict, length: int) -> dict:
    """The same text with padding behind it."""
    return {k: torch.nn.functional.pad(v, (0, max(0, length - v.shape[1]))) for k, v in inputs.items()}


def timed(methods: dict[str, Callable[[], object]], repeat: int) -> dict[str, tuple[object, float, float]]:
    """What every method returns, and the fewest seconds of a run, on the clock and of processor time.

    The methods take turns, so that a busy spell of the machine falls on all of them.
    """
    taken: dict[str, tuple[object, float, float]] = {}
    for _ in range(repeat):
        for name, run in methods.items():
            start, begun = time.perf_counter(), time.process_time()
            result = run()
            spent = time.perf_counter() - start, time.process_time() - begun
            earlier = taken.get(name, (None, np.inf, np.inf))[1:]
            taken[name] = (result, min(spent[0], earlier[0]), min(spent[1], earlier[1]))
    return taken


def compare(classifier, texts: list, targets: list[int], few: list[int], *, pad: int, repeat: int) -> pd.DataFrame:
    """One row a method: seconds a text, and its importance over a few texts against one found with 64 Gauss points."""
    model, tokenizer = classifier.model, classifier.tokenizer
    few_targets = [targets[i] for i in few]
    inputs = [encode(model, tokenizer, texts[i]).tensors for i in few]
    exact = pruning.by_attribution(model, tokenizer, [texts[i] for i in few], few_targets, steps=64, rule="gauss")[
        0
    ].heads

    def run_released(copies_below: bool, length: int = 0) -> np.ndarray:
        model.requires_grad_(True)  # as in the released code
        batches = [padded(batch, length) for batch in inputs]
        found = [released(model, i, t, copies_below=copies_below) for i, t in zip(batches, few_targets, strict=True)]
        model.requires_grad_(False)
        return np.mean(found, axis=0)

    methods = {
        "released, whole network": lambda: run_released(True),
        "released, layers below once": lambda: run_released(False),
        f"released, layers below once, padded to {pad}": lambda: run_released(False, pad),
    }
    for name, options in OURS.items():
        methods[f"this engine, {name}"] = lambda options=options: (
            pruning.by_attribution(model, tokenizer, texts, targets, **options)[0].examples[few].mean(axis=0)
        )
    rows = []
    taken = timed(methods, repeat)
    for name, (heads, *spent) in taken.items():
        seconds, work = (value / (len(texts) if name.startswith("this") else len(few)) for value in spent)
        order = np.corrcoef(heads.ravel().argsort().argsort(), exact.ravel().argsort().argsort())[0, 1]
        off = np.abs(heads - exact).max() / exact.max()
        rows.append((name, seconds, 200 * seconds, work, off, order))
    columns = [
        "method",
        "seconds a text",
        "200 texts, reckoned",
        "processor seconds",
        "largest error",
        "rank correlation",
    ]
    table = pd.DataFrame(rows, columns=columns)
    for number, row in enumerate((0, 2)):
        share = table["processor seconds"] / table["processor seconds"].iloc[row]
        table.insert(4 + number, f"of row {row}", share)
    return table


def main() -> None:
    """Print the table, and the share of the first method's time that this engine takes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", choices=tuple(data.TASKS), default="sst2")
    parser.add_argument("--model", default="minilm-{task}", help="a name, a folder or a hub id")
    parser.add_argument("--source", default="bundled", help='"bundled", "hub" or a folder with GLUE files')
    parser.add_argument("--texts", type=int, default=32, help="how many this engine takes")
    parser.add_argument("--few", type=int, default=4, help="how many of them the released algorithm takes")
    parser.add_argument("--pad", type=int, default=128, help="tokens to which the released code pads")
    parser.add_argument("--repeat", type=int, default=2, help="runs of each, the fastest counts")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    classifier = models.load(options.model.replace("{task}", options.task), device="cpu")
    split = "train" if options.source == "bundled" else "dev"
    frame = data.load(options.task, options.source, split=split, limit=options.texts, seed=options.seed)
    texts = data.texts(frame)
    lengths = [len(tokens) for tokens in encode(classifier.model, classifier.tokenizer, texts).tokens]
    places = (np.arange(options.few) + 0.5) / options.few * len(texts)
    few = np.argsort(lengths, kind="stable")[places.astype(int)].tolist()
    targets = frame["label_id"].tolist()
    table = compare(classifier, texts, targets, few, pad=options.pad, repeat=options.repeat)
    print(
        f"{options.task}: {len(texts)} texts of {min(lengths)} to {max(lengths)} tokens, {np.mean(lengths):.1f} on "
        f"average; the few have {np.mean([lengths[i] for i in few]):.1f}; {torch.get_num_threads()} threads"
    )
    print(table.to_string(float_format=lambda x: f"{x:.2g}" if x < 0.1 else f"{x:.3f}"))
    good = table[table["method"].str.startswith("this") & (table["largest error"] <= table["largest error"].iloc[0])]
    best_row = good.loc[good["processor seconds"].idxmin()]
    print(
        f"At least as exact as the released algorithm: {best_row['method']}, in {best_row['of row 0']:.1%} of its time "
        f"(row 0), and {best_row['of row 2']:.1%} of that of the released code with its padding (row 2)."
    )


if __name__ == "__main__":
    main()
