"""How far the paper's algorithm is from the best tree under its own constraints, and what its edges carry.

    python benchmarks/tree.py                   # 120 bundled sentences, about two minutes
    python benchmarks/tree.py --json tree.json  # the same, with every measurement written to a file
    python benchmarks/tree.py --carried --task mnli --source path/to/GLUE --texts 200 --taus 0.4 0.1

For each tau (threshold) and lambda (price of an edge, in units of probability) the objective, sum of kept
scores minus lambda times edges, of the tree as grown and of its best part (helpers.tree.pruned) is divided by
the optimum's (helpers.tree.optimum, an integer programme). "same top" is the optimum among trees with the
algorithm's own top node, divided by the optimum: what it lacks is lost by the choice of the top, the rest by
taking the first edge that passes. Sentences whose optimum is not above 0 have no ratio and are left out.
"--gather none" leaves the class token's own edges, those of the last layer, out of trees and sums.

"--carried" asks the model instead: the probability of its answer with nothing but the tree's edges, and with all but
these; and the same for as many edges in each layer by scores, by attention and at random (helpers.faithfulness).
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from helpers import data, models  # noqa: E402
from helpers.attribution import attribute  # noqa: E402
from helpers.faithfulness import carried, like, live, paired  # noqa: E402
from helpers.pruning import class_numbers  # noqa: E402
from helpers.tree import VARIANTS, Rules, attribution_tree, mask, objective, optimum, overlap, pruned  # noqa: E402

SAME = 1e-6  # a ratio this close to 1 is the optimum: the programme's own tolerance
LONGEST = 128  # tokens of a text that are read


def choices(attributions, tau: float, rng: np.random.Generator) -> dict[str, list[np.ndarray]]:
    """The tree's edges, and as many in each layer by other rules; all but "any row" choose among edges that count."""
    found: dict[str, list[np.ndarray]] = {}
    for a in attributions:
        grown = attribution_tree(a, tau=tau)
        kept, readers = mask(grown, self_edges=False), (grown.graph["terminal"], None)
        attention = a.attention.sum(axis=1)
        # without attention there is no edge: a causal model's later tokens, those out of a local layer's sight
        allowed, joined = (live(len(kept), len(a.tokens), terminal=reader) & (attention > 0) for reader in readers)
        rules = {
            "tree": kept,
            "scores": like(kept, a.layer_scores(), allowed=allowed),
            "attention": like(kept, attention, allowed=allowed),
            "attention, any row": like(kept, attention, allowed=joined),
            "random": like(kept, rng.random(kept.shape), allowed=allowed),
        }
        for below, last in (("tree", "attention"), ("attention", "tree")):
            rules[f"{below} below, {last} last"] = np.concatenate([rules[below][:-1], rules[last][-1:]])
        for name, edges in rules.items():
            found.setdefault(name, []).append(edges)
    return found


def carry(classifier, attributions, gold, taus, seed: int) -> pd.DataFrame:
    """One row a tau and rule: what its edges carry, and the tree's lead over it with its 95 % interval."""
    rng, rows = np.random.default_rng(seed), []
    texts, target = [a.text for a in attributions], [a.target for a in attributions]
    for tau in taus:
        chosen = choices(attributions, tau, rng)
        done = carried(classifier.model, classifier.tokenizer, texts, chosen, target, max_length=LONGEST)
        only, less = done.probability("only"), done.probability("less")
        for name in done.names:
            row = {"tau": tau, "chosen by": name, "edges": np.mean([each.sum() for each in chosen[name]])}
            row |= {"whole": done.start.mean(), "only": only[name].mean(), "without": less[name].mean()}
            row |= {"answers, only": done.answers()[name].mean(), "answers, without": done.answers("less")[name].mean()}
            row["right, only"] = done.answers(gold=gold)[name].mean()
            for lead, (more, fewer) in {
                "kept": (only["tree"], only[name]),
                "taken": (less[name], less["tree"]),
            }.items():
                row[f"tree's lead, {lead}"] = "{:+.3f} ({:+.3f} to {:+.3f})".format(*paired(more, fewer, seed=seed))
            rows.append(row)
    return pd.DataFrame(rows)


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
    parser.add_argument("--carried", action="store_true", help="ask the model what the edges carry")
    parser.add_argument("--task", choices=tuple(data.TASKS), default="sst2")
    parser.add_argument("--source", default="bundled", help='"bundled", "hub", or a folder with GLUE')
    parser.add_argument("--model", help="default: minilm-TASK")
    parser.add_argument("--steps", help='points of the path (default: "auto", or 4 with --carried)')
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="write all measurements to this file")
    options = parser.parse_args()
    classifier = models.load(options.model or f"minilm-{options.task}", device="cpu")
    frame = data.load(options.task, options.source, split="dev", limit=options.texts, seed=options.seed)
    steps = options.steps or ("4" if options.carried else "auto")
    path = {"steps": "auto"} if steps == "auto" else {"steps": int(steps), "rule": "gauss"}
    warnings.filterwarnings("ignore", message=".*were cut to")
    attributions = attribute(classifier.model, classifier.tokenizer, data.texts(frame), max_length=LONGEST, **path)
    if options.carried:
        gold = class_numbers(classifier.model, frame["label"], len(frame))
        table = carry(classifier, attributions, gold, options.taus, options.seed)
        print(table.to_string(index=False, float_format=lambda x: f"{x:.3f}"))
        if options.json:
            write(options, {"rows": table.to_dict("records")})
        return
    rules, rows = replace(VARIANTS["paper"], gather=options.gather), []
    for number, a in enumerate(attributions):
        for tau in options.taus:
            for penalty in options.penalties:
                measured = measure(a, rules, tau, penalty, options.scale, options.seconds)
                rows.append({"sentence": number, "tau": tau, "penalty": penalty, **measured})
    table = pd.DataFrame(rows)
    short = summary(table)
    print(f"{classifier.name}: {len(attributions)} sentences, {table.tokens.min()} to {table.tokens.max()} tokens")
    print(short.T.to_string(header=False, float_format=lambda x: f"{x:.3g}"))
    if options.json:
        write(options, {"summary": short.to_dict("records"), "rows": table.to_dict("records")})


def write(options: argparse.Namespace, found: dict) -> None:
    """Write what was found, with the options, to the file that was named."""
    content = {"options": {k: v for k, v in vars(options).items() if k != "json"}, **found}
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(content, indent=1, default=float) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
