"""Seconds, memory and error of the attribution engine beside the plain algorithm, in one run.

    python benchmarks/attribution.py            # the bundled model on bundled sentences, about two minutes
    python benchmarks/attribution.py --size base --tokens 128   # random weights of BERT-base's size, longer

The plain algorithm (tests/families.py) reruns the whole network for every layer and point and takes the
gradient of the [query, key] matrix, as the paper describes it. The error is the largest difference of a
layer's score matrix from 64 Gauss points, relative to its largest score, worst over layers and texts.
Peak memory is the growth of the process's resident set, sampled while the method runs.
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

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
from helpers.quadrature import points_and_weights  # noqa: E402

METHODS = [("right", 20), ("left", 64), ("gauss", 4), ("gauss", 6), ("gauss", 8), ("gauss", 12)]


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


def measured(run: Callable[[], object]) -> tuple[object, float, float]:
    """What ``run`` returns, its seconds, and how far resident memory rose above its start, in MB."""
    process, peak, done = psutil.Process(), 0, threading.Event()
    start = process.memory_info().rss

    def watch() -> None:
        nonlocal peak
        while not done.wait(0.005):
            peak = max(peak, process.memory_info().rss - start)

    watcher = threading.Thread(target=watch)
    watcher.start()
    began = time.perf_counter()
    result = run()
    seconds = time.perf_counter() - began
    done.set()
    watcher.join()
    return result, seconds, peak / 2**20


def error(scores: np.ndarray, exact: np.ndarray) -> float:
    """The largest difference relative to the layer's largest score, worst over layers; [1 layer head query key]."""
    scale = np.abs(exact).max(axis=(2, 3, 4))
    return float((np.abs(scores - exact).max(axis=(2, 3, 4)) / scale).max())


def compare(model: torch.nn.Module, inputs: list[dict], plain: list[tuple[str, int]]) -> pd.DataFrame:
    """One row a method: seconds and memory over all inputs, worst error."""
    exact = [attribute_inputs(model, batch, steps=64, rule="gauss") for batch in inputs]
    targets = [result.target for result in exact]

    def run_plain(rule: str, steps: int) -> list[np.ndarray]:
        nodes = points_and_weights(rule, steps)
        return [reference(model, batch, target, *nodes)[0] for batch, target in zip(inputs, targets, strict=True)]

    def run_ours(rule: str, steps: int) -> list[np.ndarray]:
        return [attribute_inputs(model, batch, steps=steps, rule=rule).scores.numpy() for batch in inputs]

    rows = []
    for name, run, methods in (("plain algorithm", run_plain, plain), ("this engine", run_ours, METHODS)):
        for rule, steps in methods:
            scores, seconds, memory = measured(lambda run=run, rule=rule, steps=steps: run(rule, steps))
            worst = max(error(s, e.scores.numpy()) for s, e in zip(scores, exact, strict=True))
            rows.append((name, rule, steps, seconds, memory, worst))
    table = pd.DataFrame(rows, columns=["method", "rule", "points", "seconds", "peak MB", "worst error"])
    table.insert(4, "times faster", table.seconds.iloc[0] / table.seconds)
    return table


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=("bundled", "minilm", "base"), default="bundled")
    parser.add_argument("--tokens", type=int, default=128, help="length of the text for random weights")
    parser.add_argument("--texts", type=int, default=8, help="how many bundled sentences")
    parser.add_argument("--released", action="store_true", help="also the plain algorithm with left, 64 points")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if options.size == "bundled":
        model, inputs = bundled(options.texts, options.seed)
    else:
        model, inputs = random_model(options.size, options.tokens, options.seed)
    lengths = [batch["input_ids"].shape[1] for batch in inputs]
    length = f"{min(lengths)} to {max(lengths)} tokens"
    print(f"{options.size}: {len(inputs)} texts of {length}, {torch.get_num_threads()} threads")
    plain = [("right", 20)] + ([("left", 64)] if options.released else [])
    table = compare(model, inputs, plain)
    print(table.to_string(index=False, float_format=lambda x: f"{x:.2g}" if x < 0.1 else f"{x:.2f}"))


if __name__ == "__main__":
    main()
