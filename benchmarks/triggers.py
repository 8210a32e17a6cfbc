"""How far a few words lower a class's accuracy: triggers by attribution beside four other ways to find some.

    python benchmarks/triggers.py --task sst2                                # bundled sentences
    python benchmarks/triggers.py --task mnli --source path/to/GLUE --limit 1000 --victims 600

The published experiment (three triggers a class, from up to 3,000 training examples), made so that nothing is chosen on
what is reported: triggers come from training examples; the victims, from dev, are halved; every method's candidates, as
many for each and of as many tokens at the same places, are ranked on one half, and the three best of each class of
victims are measured on the other. The other ways: the most attended pairs of words, random words of the training
examples, the words most typical of the class, and words of the whole vocabulary, searched by gradients on the choosing
half. "by score" takes the three triggers with the largest score and looks at no victim at all. On SST-2 none of them
may use a word of evident sentiment.

Finished parts are kept in the folder --keep, and a run that was interrupted goes on there, as does one with a larger
--limit. Intervals: 95 %, bootstrap over the victims of the second half, each class within itself, with
the choice as it is.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
import time
from pathlib import Path

import pandas as pd

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from helpers import data, models, triggers  # noqa: E402
from helpers.records import build_folder  # noqa: E402

TOP = 3


def best(found: list[triggers.Trigger], classes: int, count: int) -> list[triggers.Trigger]:
    """Each trigger once, the ``count`` with the largest score for every class pushed to, largest first."""
    ranked = triggers.unique(found)
    return sorted(
        [one for target in range(classes) for one in [one for one in ranked if one.target == target][:count]],
        key=lambda one: -one.score,
    )


def candidates(classifier, train: pd.DataFrame, victims, given: argparse.Namespace) -> dict[str, list]:
    """The candidates of every method: ``--candidates`` for each class pushed to, of the same shapes."""
    exclude = triggers.evident_sentiment() if given.task == "sst2" else None
    texts, classes = data.texts(train), len(classifier.labels)
    found = triggers.extract(
        classifier.model, classifier.tokenizer, texts, train["label"].tolist(), exclude=exclude, variant=given.variant,
        special=given.special, steps=given.steps, rule="gauss", folder=given.keep, progress=True,
    )  # fmt: skip
    print(f"{found.examples} training examples, {found.resumed} of them done before; {len(found.triggers)} triggers")
    like = best(found.triggers, classes, given.candidates)
    attended = [one.one_link() for one in found.attended]  # two words: with the second link they would be up to four
    made = {"attribution": like, "by score": like, "attended": best(attended, classes, given.candidates)}
    words = triggers.whole_words(classifier.tokenizer, exclude, texts=texts)
    made["random"] = triggers.at_random(classifier.tokenizer, like, seed=given.seed, words=words)
    gold = [classifier.labels.index(label) for label in train["label"]]
    made["frequent"] = triggers.by_frequency(classifier.tokenizer, texts, gold, like, exclude=exclude)
    if given.searches:
        made["gradient"] = searched(classifier.model, victims, best(like, classes, given.searches), exclude, given)
    return made


def searched(model, victims, like: list, exclude, given: argparse.Namespace) -> list:
    """Triggers found by gradients on the choosing half, one file each in the folder kept."""
    choosing, _ = triggers.halves(victims, seed=given.seed)
    looked = (given.model, given.source, choosing.tolist(), victims.lines["input_ids"])
    found = []
    for number, one in enumerate(like):
        shape = "-".join(map(str, (one.target, *one.segments, *(round(100 * at) for at in one.positions))))
        mark = hashlib.sha256(repr((*looked, one.positions)).encode()).hexdigest()[:12]
        path = given.keep / f"gradient-{given.task}-{given.victims}-{given.seed}-{number}-{shape}-{mark}.json"
        if not path.exists():
            options = {"rows": choosing, "tries": 12, "sample": 24, "seed": given.seed + number, "exclude": exclude}
            triggers.save(triggers.by_gradient(model, victims, [one], **options), path)
        found += triggers.load(path)
        print(f"searched {number + 1} of {len(like)}: {found[-1]} -> {found[-1].label}", file=sys.stderr)
    return found


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", choices=tuple(data.TASKS), default="sst2")
    parser.add_argument("--model", default="minilm-{task}", help="a name, a folder or a hub id")
    parser.add_argument("--source", default="bundled", help='"bundled", "hub" or a folder with GLUE files')
    parser.add_argument("--limit", type=int, default=1000, help="training examples to look at")
    parser.add_argument("--victims", type=int, default=600, help="examples of dev, both halves together")
    parser.add_argument("--candidates", type=int, default=20, help="triggers a class pushed to, for each method")
    parser.add_argument("--searches", type=int, default=4, help="of these, how many are searched by gradients; 0: none")
    parser.add_argument("--variant", choices=("paper", "released"), default="paper")
    parser.add_argument("--special", choices=("remove", "skip"), default="remove")
    parser.add_argument("--steps", type=int, default=3, help="Gauss points")
    parser.add_argument(
        "--by", choices=("victim", "target"), default="victim", help="what the three best are chosen for"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, help="where finished parts are; default: triggers/ in the build folder")
    given = parser.parse_args()
    given.keep = given.keep or build_folder("triggers")
    start = time.perf_counter()
    classifier = models.load(given.model.replace("{task}", given.task), device="cpu")
    train = data.load(given.task, given.source, split="train").sample(frac=1, random_state=given.seed).head(given.limit)
    dev = data.load(given.task, given.source, split="dev", limit=given.victims, seed=given.seed)
    victims = triggers.prepare(classifier.model, classifier.tokenizer, data.texts(dev), dev["label"].tolist())
    made = candidates(classifier, train, victims, given)
    result = triggers.contest(
        triggers.predictor(classifier.model), victims, made, top=TOP, by=given.by, as_ranked=("by score",),
        seed=given.seed, folder=given.keep, progress=True,
    )  # fmt: skip
    show(result, given, made)
    print(f"{time.perf_counter() - start:.0f} s")


def show(result: triggers.Contest, given: argparse.Namespace, made: dict[str, list]) -> None:
    """Print the triggers chosen, what they did, and how much more those by attribution did than each other method's."""
    pd.set_option("display.width", 250, "display.max_columns", 50, "display.max_rows", 500)
    print(
        f"\n{given.task}: {len(result.choosing)} victims to choose on, {len(result.reporting)} to report on; in percent"
    )
    percent = {
        "before",
        "after",
        "after_low",
        "after_high",
        "drop",
        "drop_low",
        "drop_high",
        "low",
        "high",
        "difference",
    }
    for title, table in (
        ("the triggers chosen, on the report half", result.table),
        (f"mean of the {TOP} triggers", result.summary()),
        ("attribution minus each other method, points", result.against("attribution")),
    ):
        shown = table.copy()
        for column in percent & set(table.columns):
            shown[column] = (100 * shown[column]).round(1)
        print(f"\n{title}\n{shown.to_string(index=False, na_rep='')}")
    sizes = {name: sum(len(one.ids) for one in found) / len(found) for name, found in made.items()}
    print("\ncandidates (tokens): " + ", ".join(f"{name} {len(made[name])} ({sizes[name]:.1f})" for name in made))
    print("forward passes: " + ", ".join(f"{name} {count}" for name, count in result.passes.items()))


if __name__ == "__main__":
    main()
