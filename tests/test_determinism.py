"""The same seed gives the same figures: in another process, with another hash seed, in another order of notebooks."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from helpers import runs, suite

ROOT = Path(__file__).resolve().parents[1]
ONLY = ("00", "05")  # the two quickest
FIGURES = """
import hashlib, json, sys, torch
sys.path[:0] = ["tests"]
from families import make
from texts import tokenizer_for
from helpers import data, models, pruning, tree, triggers
from helpers.attribution import attribute
torch.set_num_threads(1)
models.set_seed(0)
model, tokenizer = make("bert", dtype=torch.float32), tokenizer_for("bert")
texts = ["a slow start , but a wonderful end", "not a good film", "the story is very dull", "a good film"]
found = attribute(model, tokenizer, texts)
trees = [tree.to_json(tree.attribution_tree(a, tau=0.2)) for a in found]
victims = triggers.prepare(model, tokenizer, texts, [0, 1, 2, 0])
told = triggers.extract(model, tokenizer, texts, [0, 1, 2, 0], steps=2)
rows = data.sample(data.load("sst2"), 20, seed=3).index.tolist()
scores = hashlib.sha256(b"".join(a.scores.tobytes() for a in found)).hexdigest()
print(json.dumps([scores, trees, repr(told), rows]))
"""


def test_another_process_and_hash_seed_give_the_same_bytes():
    said = []
    for seed in ("1", "2"):
        env = {
            **os.environ,
            "PYTHONHASHSEED": seed,
            "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
        }
        done = subprocess.run(
            [sys.executable, "-c", FIGURES], cwd=ROOT, env=env, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, done.stderr[-2000:]
        said.append(json.loads(done.stdout))
    assert said[0] == said[1]
    assert len(said[0][3]) == 20 and said[0][1][0] != said[0][1][1]


def run(build: Path, monkeypatch, *, backwards: bool, seed: str) -> dict:
    """Run the two notebooks at quick size in the given order; return what they recorded, without times."""
    monkeypatch.setenv("ATTATTR_BUILD", str(build))
    environment = runs.kernel_environment

    @contextlib.contextmanager
    def seeded(*args, **options):
        with environment(*args, **options):
            os.environ["PYTHONHASHSEED"] = seed  # put back by the context around
            yield

    monkeypatch.setattr(suite, "kernel_environment", seeded)
    jobs = suite.plan(ROOT / "notebooks", only=ONLY, profile="quick")
    outcomes = suite.run_all(jobs[::-1] if backwards else jobs, fresh=True)
    assert [outcome.problem for outcome in outcomes] == ["", ""]
    monkeypatch.setattr(suite, "kernel_environment", environment)
    return json.loads(suite.write_results(jobs, build).read_text(encoding="utf-8"))["results"]


@pytest.mark.skipif(
    not os.environ.get("ATTATTR_TWICE"),
    reason="runs notebooks for a minute or two: ATTATTR_TWICE=1, or ATTATTR_TWICE=build/results.json after a quick run",
)
def test_the_same_figures_in_another_order_with_another_hash_seed(tmp_path, monkeypatch):
    earlier = Path(os.environ["ATTATTR_TWICE"])
    if earlier.is_file():  # of `make run PROFILE=quick`, which .ci/run has made before
        kept = json.loads(earlier.read_text(encoding="utf-8"))
        first = {name: found for name, found in kept["results"].items() if name.startswith(ONLY)}
        assert {kept["runs"][name]["parameters"]["profile"] for name in first} == {"quick"}
    else:
        first = run(tmp_path / "one", monkeypatch, backwards=False, seed="0")
    second = run(tmp_path / "two", monkeypatch, backwards=True, seed="12345")
    assert set(first) == set(second) and len(first) == len(ONLY)
    for name in first:
        assert first[name] and first[name] == second[name], f"{name} found other figures in its second run"
