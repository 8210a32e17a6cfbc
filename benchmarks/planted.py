"""Does attribution find the link of which it is known that it carries the answer? (data/planted)

Three questions about a model trained on a planted corpus, on the corpus's dev split:

1. Does it do what was planted, and nothing else? Accuracy by kind of example, beside the model that it came from.
2. Does it use the link between the two words? The link is cut in all layers, or in one; and as many other links of the
   same words, and of other words, instead.
3. Where does each score rank the link, among all links between two different words? Counted over the planted examples
   that the model answers as planted, against what the sentence says.

    python benchmarks/planted.py --task sst2 --json build/planted-sst2.json
"""

from __future__ import annotations

import argparse
import json
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from helpers import data, planted
from helpers.attention import touch
from helpers.attribution import attribute
from helpers.evaluate import wilson
from helpers.inputs import encode
from helpers.models import Classifier, load

READINGS = {
    "all layers": {},
    "all layers, punctuation left out": {"punctuation": False},
    "all layers, [CLS] and [SEP] too": {"marks": True},
}


def share(hits: pd.Series | np.ndarray) -> dict:
    """A share, its 95 % interval and the number behind it."""
    hits = np.asarray(hits)
    return {"share": float(hits.mean()), "interval": wilson(int(hits.sum()), len(hits)), "examples": len(hits)}


def accuracy(model: Classifier, frame: pd.DataFrame, gold: str) -> pd.Series:
    """Whether each answer is the label in the column ``gold``."""
    answers = np.array(model.labels)[model.predict(data.texts(frame)).argmax(1)]
    return pd.Series(answers == frame[gold], index=frame.index)


def variants(n: int, layers: int, link: np.ndarray, other: np.ndarray, words, pair, rng) -> dict[str, np.ndarray]:
    """Edges to keep, [layer, query, key]: all; without the link; without as many others; without it in one layer."""
    touching = np.zeros(n, dtype=bool)
    for word in pair:
        touching[word.start : word.stop] = True
    of_these = np.argwhere(other & (touching[:, None] | touching))
    elsewhere = np.argwhere(other & ~(touching[:, None] | touching))
    keeps = {"nothing": np.ones((layers, n, n), dtype=bool)}
    keeps["the link, all layers"] = keeps["nothing"] & ~link
    for name, choice in (("other links of the two words", of_these), ("links of other words", elsewhere)):
        keep = keeps["nothing"].copy()
        for layer in range(layers):
            drawn = choice[rng.choice(len(choice), min(len(choice), int(link.sum())), replace=False)]
            keep[layer, drawn[:, 0], drawn[:, 1]] = False
        keeps[name] = keep
    for layer in range(layers):
        keeps[f"the link, layer {layer}"] = keeps["nothing"].copy()
        keeps[f"the link, layer {layer}"][layer] &= ~link
    return keeps


def cut(model: Classifier, text, target: int, task: str, rng: np.random.Generator) -> dict[str, tuple[bool, float]]:
    """Whether the planted answer stays, and its probability, for each set of links that is cut."""
    encoded = encode(model.model, model.tokenizer, text)
    words, n = encoded.words[0], len(encoded.tokens[0])
    pair = planted.find_words(task, words)
    link, other = planted.link_mask(words, pair), planted.other_links(words, pair)
    keeps = variants(n, model.model.config.num_hidden_layers, link, other, words, pair, rng)
    edges = torch.from_numpy(np.stack(list(keeps.values()), axis=1))  # [layer, variant, query, key]
    factors = {layer: each[:, None] for layer, each in enumerate(edges)}  # [variant, 1, query, key]
    inputs = {name: tensor.expand(len(keeps), -1) for name, tensor in encoded.tensors.items()}
    with torch.no_grad(), touch(model.model, factors=factors):
        probabilities = model.model(**inputs).logits.softmax(-1)
    stays = (probabilities.argmax(-1) == target).tolist()
    return dict(zip(keeps, zip(stays, probabilities[:, target].tolist(), strict=True), strict=True))


def ranks(result, once, task: str) -> dict[tuple[str, str], float]:
    """The rank of the link by method and reading; and what chance gives, a share and a mean reciprocal rank."""
    words, pair = result.words, planted.find_words(task, result.words)
    scores = {"attribution": result.scores, "gradient x attention": once.scores, "attention": result.attention}
    found: dict[tuple[str, str], float] = {}
    for method, array in scores.items():
        summed = array.sum(1)
        for name, options in READINGS.items():
            found[method, name] = planted.rank_of_link(summed, words, pair, **options)
        found[method, "each head by itself"] = planted.rank_of_link(array, words, pair)
        for layer, matrix in zip(result.layers, summed, strict=True):
            found[method, f"layer {layer}"] = planted.rank_of_link(matrix, words, pair)
    link, depth = planted.link_mask(words, pair), len(result.layers)
    found["largest in layer", "attribution"] = int(result.scores.sum(1)[:, link].max(1).argmax())
    own, others = int(link.sum()), int(planted.other_links(words, pair).sum())
    found["chance", "share"], found["chance", "reciprocal"] = planted.chance(depth * (own + others), depth * own)
    return found


def measure(
    model: Classifier, base: Classifier | None, frame: pd.DataFrame, *, task: str, limit: int | None, seed: int
) -> dict:
    """All that is told in the tables and in the JSON file."""
    right = accuracy(model, frame, "label")
    turned = frame[(frame["phenomenon"] == "planted") & (frame["label"] != frame["honest"])]
    moved = turned[right[turned.index]][:limit]
    texts, rng = data.texts(moved), np.random.default_rng(seed)
    targets = [model.labels.index(label) for label in moved["label"]]
    cuts = [cut(model, text, target, task, rng) for text, target in zip(texts, targets, strict=True)]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*completeness gap")
        full = attribute(model.model, model.tokenizer, texts, target=targets, progress=True)
    once = attribute(model.model, model.tokenizer, texts, target=targets, steps=1, rule="right")  # A * dF/dA at A
    table = pd.DataFrame([ranks(*pair, task) for pair in zip(full, once, strict=True)])
    table.columns = pd.MultiIndex.from_tuples(table.columns)
    return {
        "task": task,
        "model": model.name,
        "accuracy": by_kind(frame, right, base)
        | {"planted, against the sentence": {"after": share(right[turned.index])}},
        "cut": stays(cuts),
        "first": firsts(table, needed=~np.array([each["the link, all layers"][0] for each in cuts])),
        "layer": {
            str(k): float(v)
            for k, v in table["largest in layer", "attribution"].value_counts(normalize=True).sort_index().items()
        },
    }


def by_kind(frame: pd.DataFrame, right: pd.Series, base: Classifier | None) -> dict:
    """Accuracy by kind of example: of the model, and of the one before it by the honest label."""
    before = accuracy(base, frame, "honest") if base else None
    kinds = {}
    for kind in planted.KINDS:
        rows = frame.index[frame["phenomenon"] == kind]
        kinds[kind] = {"after": share(right[rows])} | ({} if before is None else {"before": share(before[rows])})
    return kinds


def stays(cuts: list[dict[str, tuple[bool, float]]]) -> dict:
    """In what share the planted answer stays, and its mean probability, by what is cut."""
    return {
        name: share([each[name][0] for each in cuts])
        | {"probability": float(np.mean([each[name][1] for each in cuts]))}
        for name in cuts[0]
    }


def firsts(table: pd.DataFrame, needed: np.ndarray) -> dict:
    """Shares of first ranks by method and reading: over all examples, and over those in which the link is needed."""
    found: dict = {}
    for method, name in table.columns:
        if method in ("attribution", "gradient x attention", "attention"):
            rank = table[method, name].to_numpy()
            found.setdefault(method, {})[name] = share(rank == 1) | {
                "mean reciprocal rank": float((1 / rank).mean()),
                "first three": float((rank <= 3).mean()),
                "needed": share(rank[needed] == 1) if needed.any() else None,
            }
    chance = table["chance"].mean()
    found["chance"] = {"all layers": {"share": chance["share"], "mean reciprocal rank": chance["reciprocal"]}}
    return found


def percent(part: dict | None) -> str:
    """A share as text."""
    if not part:
        return ""
    low, high = part.get("interval", (None, None))
    return f"{part['share']:.1%}" + ("" if low is None else f" ({100 * low:.0f}-{100 * high:.0f})")


def report(found: dict) -> str:
    """The tables in Markdown."""
    lines = ["| kind | examples | right | before, by the honest label |", "| --- | ---: | ---: | ---: |"]
    for kind, part in found["accuracy"].items():
        lines.append(
            f"| {kind} | {part['after']['examples']} | {percent(part['after'])} | {percent(part.get('before'))} |"
        )
    lines += ["", "| cut | planted answer stays | its mean probability |", "| --- | ---: | ---: |"]
    lines += [f"| {name} | {percent(part)} | {part['probability']:.3f} |" for name, part in found["cut"].items()]
    lines += [
        "",
        "| links | method | first | mean reciprocal rank | first three | first where it is needed |",
        "| --- | --- | ---: | ---: | ---: | ---: |",
    ]
    for name in found["first"]["attribution"]:
        for method, readings in found["first"].items():
            if part := readings.get(name):
                three = f"{part['first three']:.1%}" if "first three" in part else ""
                lines.append(
                    f"| {name} | {method} | {percent(part)} | {part['mean reciprocal rank']:.3f} | {three} "
                    f"| {percent(part.get('needed'))} |"
                )
    lines += [
        "",
        "Largest score of the link in layer: " + ", ".join(f"{k}: {v:.0%}" for k, v in found["layer"].items()),
    ]
    return "\n".join(lines)


def main() -> None:
    """Print the tables and write the JSON file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", choices=planted.TASKS, default="sst2")
    parser.add_argument("--model", help="registry name or folder (default: data/adapters/planted-TASK)")
    parser.add_argument("--before", help="the model that it came from (default: minilm-TASK; 'none' leaves it out)")
    parser.add_argument(
        "--data", type=Path, default=planted.FOLDER, help="folder of the corpora (default: data/planted)"
    )
    parser.add_argument("--examples", type=int, help="at most so many planted examples (default: all)")
    parser.add_argument("--seed", type=int, default=0, help="of the other links that are cut")
    parser.add_argument("--json", type=Path, help="file for the figures")
    given = parser.parse_args()
    model = load(given.model or f"data/adapters/planted-{given.task}")
    before = None if given.before == "none" else load(given.before or f"minilm-{given.task}")
    frame = planted.load(given.task, "dev", folder=given.data)
    found = measure(model, before, frame, task=given.task, limit=given.examples, seed=given.seed)
    print(report(found))
    if given.json:
        given.json.parent.mkdir(parents=True, exist_ok=True)
        given.json.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
