"""How cost grows with length, layers, heads and texts: this engine, the plain algorithm, captum, a forward pass.

    python benchmarks/scaling.py                      # both parts, about fifteen minutes on one core
    python benchmarks/scaling.py --part trained       # speed and error on the adapters' models
    python benchmarks/scaling.py --part growth --lengths 16 64 256 --layers 2 6 12
    python benchmarks/scaling.py --size base --lengths 128 --layers 12    # the paper's case
    python benchmarks/scaling.py --device cuda        # the same on a GPU, with a row for many texts at once

Part "trained" takes texts through the adapters' models: seconds, and the error of every (text, layer) against 128 Gauss
points in float64, relative to the norm of the layer's scores. Part "growth" takes random weights: seconds, memory, the
operations counted by torch, their ratio to the least that the sum needs (below), and the share of the machine's own
rate in one large matrix product; then exponents fitted to seconds ~ length^p, layers^p, texts^p.

captum does the same work where the weights of a layer are multiplied by a gate of ones [head, query, key]: integrated
gradients of the gate from 0 to 1 are Attr_h(A). It and the plain algorithm cost the same at every point: --copies
points are run, and the seconds of 20 and 64 reckoned from those. Memory is measured for 20 points in one batch, as the
released code runs them, in a process of its own.

The floor: of m points, the output projection and the feed-forward part of the layer itself and all of the blocks above,
forward and backward (as much again: weights get no gradients), of the last block keys and values and one row.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch
from captum.attr import IntegratedGradients
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry
from transformers import BertConfig, BertForSequenceClassification

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from families import reference  # noqa: E402

from helpers import data, models  # noqa: E402
from helpers.attention import touch  # noqa: E402
from helpers.attribution import attribute_inputs  # noqa: E402
from helpers.inputs import encode  # noqa: E402
from helpers.records import build_folder  # noqa: E402

SIZES = {"minilm": (384, 12), "base": (768, 12)}  # hidden size, heads
OURS = {
    "2 points": dict(steps=2, rule="gauss", gap=False),
    "3 points": dict(steps=3, rule="gauss", gap=False),
    "4 points": dict(steps=4, rule="gauss", gap=False),
    "6 points": dict(steps=6, rule="gauss", gap=False),
    "auto": dict(),
    "4 points, bfloat16": dict(steps=4, rule="gauss", gap=False, precision="bfloat16"),
}


def make(hidden: int, layers: int, heads: int, tokens: int, texts: int, device: str) -> tuple[torch.nn.Module, dict]:
    """A random BERT and random tokens."""
    torch.manual_seed(0)
    config = BertConfig(
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=4 * hidden,
        num_labels=2,
    )
    ids = torch.randint(1000, 30000, (texts, tokens))
    batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    return BertForSequenceClassification(config).eval().to(device), {name: t.to(device) for name, t in batch.items()}


def seconds(run: Callable[[], object], device: str, repeat: int = 1) -> float:
    """Processor seconds of the best of some runs; on a GPU seconds on the clock."""
    found = []
    for _ in range(repeat):
        begun = clock(device)
        run()
        found.append(clock(device) - begun)
    return min(found)


def clock(device: str) -> float:
    """Processor time, or the clock once the GPU is done."""
    if device == "cpu":
        return time.process_time()
    torch.cuda.synchronize()
    return time.perf_counter()


def plain(model, batch: dict, copies: int) -> None:
    """The plain algorithm's work for so many points."""
    many = {name: tensor.repeat(copies, 1) for name, tensor in batch.items()}
    reference(model, many, torch.zeros(len(many["input_ids"]), dtype=torch.long, device=model.device), [0.5], [1.0])


def captum(model, batch: dict, points: int, layers: Sequence[int] | None = None) -> list[torch.Tensor]:
    """Attr of every layer by captum, integrated gradients of a gate on its weights: [layer][1, head, query, key]."""
    found, n = [], batch["input_ids"].shape[1]
    target = int(model(**batch).logits.argmax(-1)[0])
    for layer in range(model.config.num_hidden_layers) if layers is None else layers:

        def output(gate: torch.Tensor, layer: int = layer) -> torch.Tensor:
            with touch(model, factors={layer: gate}):
                rows = {name: tensor.expand(len(gate), -1) for name, tensor in batch.items()}
                return model(**rows).logits.softmax(-1)

        gate = torch.ones(1, model.config.num_attention_heads, n, n, device=model.device)
        explain = IntegratedGradients(output, multiply_by_inputs=True)
        found.append(explain.attribute(gate, 0 * gate, target=target, n_steps=points, method="riemann_right"))
    return found


class Operations(TorchDispatchMode):
    """Adds up the floating-point operations of products, by torch's own table; without hooks on modules."""

    total = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        count = flop_registry.get(func._overloadpacket)
        self.total += count(*args, **(kwargs or {}), out_val=out) if count else 0
        return out


def floor(hidden: int, layers: int, tokens: int, texts: int, points: float) -> float:
    """The least floating-point operations of the sums of all layers; see the module's text."""
    whole = (
        2 * tokens * 12 * hidden**2 + 4 * tokens**2 * hidden
    )  # a block: its products with weights, and its attention
    own = 2 * tokens * 9 * hidden**2
    last = 2 * (2 * tokens + 10) * hidden**2 + 4 * tokens * hidden  # keys and values of all rows, the rest of one
    above = sum(own + (layers - 2 - layer) * whole + last for layer in range(layers - 1)) + 2 * 9 * hidden**2
    return 2 * points * texts * above


def rate(device: str) -> float:
    """Floating-point operations a second in a large matrix product, measured."""
    size = 1024 if device == "cpu" else 8192
    a, b = torch.randn(size, size, device=device), torch.randn(size, size, device=device)
    a @ b
    return 2 * size**3 * 4 / seconds(lambda: [a @ b for _ in range(4)], device, 9)


def growth_row(case: dict, options: argparse.Namespace, peak: float) -> dict:
    """One case: seconds of the forward pass, of ours, of the plain algorithm and of captum; operations."""
    model, batch = make(**case, device=options.device)
    ours = lambda name: attribute_inputs(model, batch, **OURS[name])  # noqa: E731
    ours("2 points")  # the first call of a kind is slow
    row = dict(case)
    with torch.no_grad():
        row["forward"] = seconds(lambda: model(**batch), options.device, 3)
    with Operations() as counter:
        ours("4 points")
    for name in OURS:
        if name != "auto":  # random weights: auto has little to do
            row[name] = seconds(lambda name=name: ours(name), options.device, options.repeat)
    row["of floor"] = counter.total / floor(case["hidden"], case["layers"], case["tokens"], case["texts"], 4)
    row["of peak rate"] = counter.total / row["4 points"] / peak
    if case["tokens"] <= options.plain_up_to:
        share, twice = 20 / options.copies, max(2, options.copies)  # captum takes no single step
        row["plain 20"] = share * seconds(lambda: plain(model, batch, options.copies), options.device)
        if case["texts"] == 1:
            row["captum 20"] = 20 / twice * seconds(lambda: captum(model, batch, twice), options.device)
    return row


def growth(options: argparse.Namespace) -> pd.DataFrame:
    """The table over lengths, layers, heads and texts, one of them moved at a time."""
    hidden, heads = SIZES[options.size]
    usual = dict(hidden=hidden, layers=options.layers[len(options.layers) // 2], heads=heads, tokens=64, texts=1)
    if len(options.lengths) == 1:
        usual["tokens"] = options.lengths[0]
    moved = [
        ("tokens", options.lengths),
        ("layers", options.layers),
        ("heads", options.heads),
        ("texts", options.texts),
    ]
    cases = [usual | {name: value} for name, values in moved for value in values]
    cases = [case for i, case in enumerate(cases) if case not in cases[:i]]
    peak, rows = rate(options.device), []
    print(f"one large matrix product: {peak / 1e9:.0f} billion operations a second")
    for case in cases:
        rows.append(growth_row(case, options, peak))
        print(json.dumps({k: round(v, 4) if isinstance(v, float) else v for k, v in rows[-1].items()}), flush=True)
    table = pd.DataFrame(rows)
    for name in ("tokens", "layers", "texts"):
        some = sweep(table, usual, name)
        for column in ("forward", "4 points", "plain 20", "captum 20"):
            kept = some[[name, column]].dropna() if column in some else some[:0]
            if len(kept) < 3:
                continue
            x, y = np.log(kept[name].to_numpy()), np.log(kept[column].to_numpy())
            late = (y[-1] - y[-2]) / (x[-1] - x[-2])
            print(f"{column}: seconds ~ {name}^{np.polyfit(x, y, 1)[0]:.2f}; between the two largest {late:.2f}")
    picture(table, usual, options)
    return table


def sweep(table: pd.DataFrame, usual: dict, name: str) -> pd.DataFrame:
    """The cases in which nothing but one thing was moved."""
    others = {key: usual[key] for key in ("tokens", "layers", "heads", "texts") if key != name}
    return table[(table[list(others)] == pd.Series(others)).all(axis=1)].sort_values(name)


def peaks(options: argparse.Namespace) -> dict[str, float]:
    """MB by which memory rises at 20 points in one batch (ours: as it splits them itself), each in a fresh process."""
    hidden, heads = SIZES[options.size]
    case = dict(hidden=hidden, layers=options.layers[-1], heads=heads, tokens=max(128, options.lengths[0]), texts=1)
    found = {}
    for method in ("plain", *OURS):
        command = [sys.executable, __file__, "--device", options.device, "--one", json.dumps([method, case])]
        found[method] = float(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()[-1])
    print(f"peak memory above the model's, MB, {case['tokens']} tokens, {case['layers']} layers:", found)
    return found


def one_peak(method: str, case: dict, device: str) -> float:
    """MB by which a method raises the peak of the process, or of the GPU's memory."""
    model, batch = make(**case, device=device)
    short = {name: tensor[:, :8] for name, tensor in batch.items()}
    run = plain if method == "plain" else lambda model, batch, _: attribute_inputs(model, batch, **OURS[method])
    run(model, short, 1)  # libraries and buffers that come with the first call
    if device == "cpu":
        import resource  # not on Windows

        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        run(model, batch, 20)
        return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    run(model, batch, 20)
    return (torch.cuda.max_memory_allocated() - before) / 2**20


def trained(options: argparse.Namespace) -> pd.DataFrame:
    """Speed and error on the adapters' models."""
    rows = []
    for task in options.tasks:
        classifier = models.load(f"minilm-{task}", device=options.device)
        model = classifier.model
        frame = data.sample(data.load(task, options.source), options.examples, seed=0)
        batches = [encode(model, classifier.tokenizer, text).batch([0]) for text in data.texts(frame)]
        exact_model = models.load(f"minilm-{task}", device=options.device).model.double()
        exact = [attribute_inputs(exact_model, b, steps=128, rule="gauss", gap=False).scores.cpu() for b in batches]
        sums = {"right 20": ("right", 20), "left 64": ("left", 64)}
        base = seconds(lambda model=model, b=batches: [plain(model, one, options.copies) for one in b], options.device)
        for name, (rule, points) in sums.items():
            found = [attribute_inputs(model, b, steps=points, rule=rule, gap=False).scores.cpu() for b in batches]
            rows.append([task, f"plain, {name}", base * points / options.copies, *errors(found, exact)])
        for name, settings in OURS.items():
            run = lambda model=model, b=batches, s=settings: [attribute_inputs(model, one, **s) for one in b]  # noqa: E731
            found = [found.scores.cpu() for found in run()]
            rows.append([task, name, seconds(run, options.device, options.repeat), *errors(found, exact)])
    table = pd.DataFrame(rows, columns=["task", "method", "seconds", "error, median", "9 of 10", "worst"])
    table["seconds"] /= options.examples
    for name in ("right 20", "left 64"):
        base = table[table.method == f"plain, {name}"].set_index("task").seconds
        table[f"x {name}"] = table.task.map(base) / table.seconds
    return table


def errors(found: list[torch.Tensor], exact: list[torch.Tensor]) -> np.ndarray:
    """Median, 90 % quantile and worst of the layers' relative errors."""
    each = [
        ((f.double() - e).flatten(2).norm(dim=2) / e.flatten(2).norm(dim=2)).flatten()
        for f, e in zip(found, exact, strict=True)
    ]
    return np.quantile(torch.cat(each).numpy(), [0.5, 0.9, 1])


def picture(table: pd.DataFrame, usual: dict, options: argparse.Namespace) -> None:
    """Seconds against tokens and against layers, both on logarithmic scales, into build/figures."""
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), sharey=True, layout="constrained")
    styles = {"forward": "k:", "4 points": "C0o-", "plain 20": "C1s--", "captum 20": "C2^-."}
    for axis, name, other in zip(axes, ("tokens", "layers"), ("layers", "tokens"), strict=True):
        some = sweep(table, usual, name)
        for column, style in styles.items():
            if column in some:
                axis.plot(some[name], some[column], style, label=column, markersize=4)
        axis.set(xscale="log", yscale="log", xlabel=f"{name} ({other}: {usual[other]})")
        axis.set_xticks(some[name], [f"{v:g}" for v in some[name]])
        axis.minorticks_off()
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("processor seconds" if options.device == "cpu" else "seconds")
    axes[0].legend(frameon=False)
    path = build_folder("figures") / f"scaling_{options.size}_{options.device}.png"
    figure.savefig(path, dpi=150)
    print(f"plotted: {path.name} in build/figures")


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=("both", "trained", "growth", "memory"), default="both")
    parser.add_argument("--size", choices=tuple(SIZES), default="minilm", help="width of the random models")
    parser.add_argument("--lengths", nargs="+", type=int, default=[16, 32, 64, 128, 256, 512])
    parser.add_argument("--layers", nargs="+", type=int, default=[2, 4, 6, 12, 24])
    parser.add_argument("--heads", nargs="+", type=int, default=[1, 4, 12])
    parser.add_argument("--texts", nargs="+", type=int, default=[1, 2, 4, 8])
    parser.add_argument("--tasks", nargs="+", default=["sst2", "mnli"])
    parser.add_argument("--examples", type=int, default=8, help="texts a task, part trained")
    parser.add_argument(
        "--source", default="bundled", help="a folder in the layout of GLUE instead of the bundled texts"
    )
    parser.add_argument("--copies", type=int, default=2, help="points that the plain algorithm and captum are run for")
    parser.add_argument("--plain-up-to", type=int, default=256, help="tokens up to which those two are run")
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(one_peak(*json.loads(options.one), options.device))
        return
    show = lambda table: print(table.to_string(index=False, float_format=lambda x: f"{x:.3g}"))  # noqa: E731
    if options.part in ("both", "trained"):
        show(trained(options))
    if options.part in ("both", "memory"):
        peaks(options)
    if options.part in ("both", "growth"):
        show(growth(options))


if __name__ == "__main__":
    main()
