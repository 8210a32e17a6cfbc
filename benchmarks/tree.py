"""How far the paper's algorithm is from the best tree under its own constraints, over bundled sentences.

    python benchmarks/tree.py                   # 120 sentences, about two minutes
    python benchmarks/tree.py --json tree.json  # the same, with every measurement written to a file

For each tau (threshold) and lambda (price of an edge, in units of probability) the objective, sum of kept
scores minus lambda times edges, of the tree as grown and of its best part (helpers.tree.pruned) is divided by
the optimum's (helpers.tree.optimum, an integer programme). "same top" is the optimum among trees with the
algorithm's own top node, divided by the optimum: what it lacks is lost by the choice of the top, the rest by
taking the first edge that passes. Sentences whose optimum is not above 0 have no ratio and are left out.
"--gather none" leaves the class token's own edges, those of the last layer, out of trees and sums.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path

import pandas as pd

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from helpers import data, models  # noqa: E402
from helpers.attribution import attribute  # noqa: E402
from helpers.tree import VARIANTS, Rules, attribution_tree, objective, optimum, overlap, pruned  # noqa: E402

SAME = 1e-6  # a ratio this close to 1 is the optimum: the programme's own tolerance


def sentences(count: int, seed: int) -> list[str]:
    """A sample of the bundled dev sentences."""
    return data.texts(data.load("sst2", split="dev", limit=count, seed=seed))


def measure(a, rules: Rules, tau: float, penalty: float, scale: str, seconds: float) -> dict:
    """One sentence at one tau and lambda."""
    given = dict(tau=tau, variant=rules)
    asked = dict(penalty=penalty, scale=scale, time_limit=seconds)
    tree = attribution_tree(a, **given)
    part, top = pruned(tree, penalty, scale=scale), tree.graph["top"]
    best = optimum(a, **given, **asked)
    held = best if top in (None, best.tree.graph["top"]) else optimum(a, **given, **asked, top=top)
    return {
        "tokens": len(a.tokens),
        "grown": objective(tree, penalty, scale=scale),
        "part": objective(part, penalty, scale=scale),
        "held": held.bound,
        "best": best.bound,
        "exact": best.exact and held.exact,
        "rounds": best.rounds,
        "edges": tree.number_of_edges(),
        "edges_part": part.number_of_edges(),
        "edges_best": best.tree.number_of_edges(),
        "overlap": overlap(part, best.tree),
        "same_top": top == best.tree.graph["top"],
    }


def summary(rows: pd.DataFrame) -> pd.DataFrame:
    """One row a tau and lambda: the ratios' median and worst, and how often they are 1."""
    lines = []
    for (tau, penalty), group in rows.groupby(["tau", "penalty"]):
        some = group[group["best"] > 0]
        ratio = {name: some[name] / some["best"] for name in ("grown", "part", "held")}
        line = {"tau": tau, "lambda": penalty, "sentences": len(some), "proved": f"{group['exact'].sum()}/{len(group)}"}
        for name in ("grown", "part"):
            line[f"{name} median"] = ratio[name].median()
            line[f"{name} worst"] = ratio[name].min()
            line[f"{name} optimal"] = (ratio[name] > 1 - SAME).mean()
        line["same top median"] = ratio["held"].median()
        line["top is best"] = some["same_top"].mean()
        line["part / same top optimal"] = (some["part"] > some["held"] * (1 - SAME)).mean()
        line["edges grown"] = some["edges"].median()
        line["edges best"] = some["edges_best"].median()
        line["overlap"] = some["overlap"].median()
        lines.append(line)
    return pd.DataFrame(lines)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=int, default=120, help="how many bundled sentences")
    parser.add_argument("--taus", type=float, nargs="+", default=[0.2, 0.4, 0.6])
    parser.add_argument("--penalties", type=float, nargs="+", default=[0.0, 0.002, 0.01], help="lambda")
    parser.add_argument("--scale", choices=("score", "share"), default="score")
    parser.add_argument("--gather", choices=("all", "top", "none"), default="all")
    parser.add_argument("--seconds", type=float, default=20.0, help="at most, for one optimum")
    parser.add_argument("--model", default="minilm-sst2")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="write all measurements to this file")
    options = parser.parse_args()
    classifier = models.load(options.model, device="cpu")
    attributions = attribute(classifier.model, classifier.tokenizer, sentences(options.texts, options.seed))
    rules, rows = replace(VARIANTS["paper"], gather=options.gather), []
    for number, a in enumerate(attributions):
        for tau in options.taus:
            for penalty in options.penalties:
                measured = measure(a, rules, tau, penalty, options.scale, options.seconds)
                rows.append({"sentence": number, "tau": tau, "penalty": penalty, **measured})
    table = pd.DataFrame(rows)
    short = summary(table)
    print(f"{options.model}: {len(attributions)} sentences, {table.tokens.min()} to {table.tokens.max()} tokens")
    print(short.T.to_string(header=False, float_format=lambda x: f"{x:.3g}"))
    if options.json:
        about = {k: v for k, v in vars(options).items() if k != "json"}
        content = {"options": about, "summary": short.to_dict("records"), "rows": table.to_dict("records")}
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(content, indent=1, default=float) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
