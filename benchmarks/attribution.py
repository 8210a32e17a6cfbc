"""Seconds, memory and error of the attribution engine beside the plain algorithm, in one run.

    python benchmarks/attribution.py            # the bundled model on two bundled sentences, a minute or two
    python benchmarks/attribution.py --size base --copies 2 --limit 0   # random weights of that size, 128 tokens
    python benchmarks/attribution.py --size base --limit 64             # the same with errors, long

The plain algorithm (tests/families.py) reruns the whole network for every layer on as many copies of the text as there
are points, and takes the gradient of the [query, key] matrix of every copy, as the paper describes it. All copies cost
the same: --copies of them run, and the seconds of 20 and of 64 are reckoned from those. Its sum is the engine's with
the same points (tests/test_attribution.py), so its error is taken from there. The error is the largest difference of a
layer's score matrix from --limit Gauss points, relative to its largest score, worst over layers and texts.

Ratios are of processor time, which other work on the machine disturbs least. Peak memory is the growth of the process's
resident set, sampled while the method runs; that of the plain algorithm is for --copies in one batch.
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import psutil
import torch
from transformers import BertConfig, BertForSequenceClassification

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from families import reference  # noqa: E402

from helpers import data, models  # noqa: E402
from helpers.attribution import attribute_inputs  # noqa: E402
from helpers.inputs import encode  # noqa: E402

PLAIN = [("right", 20), ("left", 64)]  # the paper's points, the released code's
GAUSS = ("3", "4", "5", "6", "8", "auto")


def bundled(texts: int, seed: int) -> tuple[torch.nn.Module, list[dict]]:
    """The bundled classifier and a sample of bundled sentences."""
    classifier = models.load("minilm-sst2", device="cpu")
    frame = data.load("sst2", split="dev", limit=texts, seed=seed)
    sentences = data.texts(frame)
    return classifier.model, [encode(classifier.model, classifier.tokenizer, text).tensors for text in sentences]


def random_model(size: str, tokens: int, seed: int) -> tuple[torch.nn.Module, list[dict]]:
    """Random weights in BERT-base's or MiniLM-L6's size, and one text of random tokens."""
    shapes = {"base": (768, 12, 12, 3072), "minilm": (384, 6, 12, 1536)}
    hidden, layers, heads, inner = shapes[size]
    torch.manual_seed(seed)
    config = BertConfig(
        hidden_size=hidden, num_hidden_layers=layers, num_attention_heads=heads, intermediate_size=inner, num_labels=2
    )
    ids = torch.randint(1000, 30000, (1, tokens))
    return BertForSequenceClassification(config).eval(), [{"input_ids": ids, "attention_mask": torch.ones_like(ids)}]


@dataclass(frozen=True)
class Spent:
    """What a run returned, its seconds on the clock and of processor time, and how far memory rose, in MB."""

    result: Any
    seconds: float
    processor: float
    memory: float


def measured(run: Callable[[], object]) -> Spent:
    """Run once, and sample the resident memory meanwhile."""
    process, peak, done = psutil.Process(), 0, threading.Event()
    start = process.memory_info().rss

    def watch() -> None:
        nonlocal peak
        while not done.wait(0.01):
            peak = max(peak, process.memory_info().rss - start)

    watcher = threading.Thread(target=watch)
    watcher.start()
    began, work = time.perf_counter(), time.process_time()
    result = run()
    spent = Spent(result, time.perf_counter() - began, time.process_time() - work, 0.0)
    done.set()
    watcher.join()
    return replace(spent, memory=peak / 2**20)


def error(scores: np.ndarray, exact: np.ndarray) -> float:
    """The largest difference relative to the layer's largest score, worst over layers; [1 layer head query key]."""
    scale = np.abs(exact).max(axis=(2, 3, 4))
    return float((np.abs(scores - exact).max(axis=(2, 3, 4)) / scale).max())


def plain(model: torch.nn.Module, inputs: list[dict], copies: int) -> Spent:
    """The plain algorithm's work for so many points: every layer, all copies of a text in one batch."""

    def run() -> None:
        for batch in inputs:
            target = model(**batch).logits.argmax(-1)
            many = {name: tensor.expand(copies, -1) for name, tensor in batch.items()}
            reference(model, many, target.expand(copies), [0.5], [1.0])

    return measured(run)


def compare(
    model: torch.nn.Module, inputs: list[dict], *, copies: int, limit: int, same: bool, gauss: list[str]
) -> pd.DataFrame:
    """One row a method: seconds and memory over all inputs, worst error."""

    def ours(rule: str, steps: int | str, **options) -> Spent:
        return measured(
            lambda: [attribute_inputs(model, batch, steps=steps, rule=rule, **options).scores for batch in inputs]
        )

    ours("gauss", 1)  # the first call of a kind is slow
    exact = ours("gauss", limit, gap=False).result if limit else []
    base = plain(model, inputs, copies)
    rows = []

    def add(name: str, rule: str, points: int | str, spent: Spent, share: float = 1.0) -> None:
        worst = [error(s.numpy(), e.numpy()) for s, e in zip(spent.result or [], exact, strict=False)]
        rows.append(
            (
                name,
                rule,
                points,
                spent.seconds / share,
                spent.processor / share,
                spent.memory,
                max(worst, default=np.nan),
            )
        )

    for rule, steps in PLAIN:
        sums = ours(rule, steps, gap=False) if limit or same else None
        add(
            "plain algorithm",
            rule,
            steps,
            replace(base, result=sums.result if sums and limit else None),
            copies / steps,
        )
        if sums and same:
            add("this engine", rule, steps, sums)
    for steps in gauss:
        spent = ours("gauss", "auto") if steps == "auto" else ours("gauss", int(steps), gap=False)
        add("this engine", "gauss", steps, spent)
    names = ["method", "rule", "points", "seconds", "processor", "peak MB", "worst error"]
    table = pd.DataFrame(rows, columns=names)
    for number, (rule, steps) in enumerate(PLAIN):
        its = table.processor[(table.method == "plain algorithm") & (table.points == steps)].iloc[0]
        table.insert(5 + number, f"x {rule} {steps}", its / table.processor)
    return table


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=("bundled", "minilm", "base"), default="bundled")
    parser.add_argument("--tokens", type=int, default=128, help="length of the text for random weights")
    parser.add_argument("--texts", type=int, default=2, help="how many bundled sentences")
    parser.add_argument("--copies", type=int, default=20, help="copies that the plain algorithm runs in one batch")
    parser.add_argument("--limit", type=int, default=64, help="Gauss points that errors are taken from; 0: no errors")
    parser.add_argument("--gauss", nargs="+", default=GAUSS, help="this engine's Gauss points, or auto")
    parser.add_argument("--same", action="store_true", help="this engine also with the plain algorithm's points")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if options.size == "bundled":
        model, inputs = bundled(options.texts, options.seed)
    else:
        model, inputs = random_model(options.size, options.tokens, options.seed)
    lengths = [batch["input_ids"].shape[1] for batch in inputs]
    length = f"{min(lengths)} to {max(lengths)} tokens"
    print(f"{options.size}: {len(inputs)} texts of {length}, {torch.get_num_threads()} threads")
    table = compare(model, inputs, copies=options.copies, limit=options.limit, same=options.same, gauss=options.gauss)
    print(table.to_string(index=False, float_format=lambda x: f"{x:.2g}" if x < 0.1 else f"{x:.2f}"))


if __name__ == "__main__":
    main()
