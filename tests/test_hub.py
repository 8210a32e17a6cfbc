"""The hub, by a stand-in on this machine: the real clients download from it, reuse their cache, fail in one line.

The address of the hub is read when the clients are imported, so what asks it runs in a process of its own. There are
two: one with the stand-in, one with an address where nothing answers; each does all of its steps in one go.
"""

import json
import os
import subprocess
import sys
import urllib.parse
from pathlib import Path

import numpy as np
import pytest
from hub import COMMIT, GLUE, Repository, glue_files, serving
from tiny import save_tiny

from helpers import data, models, registry
from helpers.hub import file_sha256

PROJECT = Path(__file__).resolve().parent.parent
TEXTS = ["a good film", "bad"]
GLUE_ID, GLUE_COMMIT = data.TASKS["sst2"].hub_id, data.TASKS["sst2"].revision

CHILD = """
import contextlib, dataclasses, io, json, sys, time, urllib.parse, urllib.request
waits = []
time.sleep = waits.append  # what a client would wait before its next try
from huggingface_hub import constants
from helpers import data, models, registry
steps, entries = json.loads(sys.stdin.read())
for entry in entries:
    registry.REGISTRY[entry["name"]] = registry.Entry(**entry | {"labels": tuple(entry["labels"])})

def load(name, revision=None):
    classifier = models.load(name, device="cpu", revision=revision)
    return {"labels": classifier.labels, "predicted": classifier.predict(TEXTS).tolist()}

def table(task, split, **changes):
    data.TASKS = data.TASKS | {task: dataclasses.replace(data.TASKS[task], **changes)}
    return data.load(task, "hub", split=split).to_dict("records")

def main(*arguments):
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        try:
            code = registry.main(arguments)
        except SystemExit as left:
            code = left.code
    return code, said.getvalue()

answers = {}
for name, (doing, given, options) in steps.items():
    with contextlib.suppress(OSError):
        urllib.request.urlopen(f"{constants.ENDPOINT}/mark/{urllib.parse.quote(name)}")
    del waits[:]
    try:
        said = {"load": load, "table": table, "main": main}[doing](*given, **options)
    except Exception as error:
        said = f"{type(error).__name__}: {error}"
    answers[name] = {"said": said, "waited": sum(waits)}
sys.stdout.write(json.dumps(answers))
""".replace("TEXTS", repr(TEXTS))


def load(*given):
    return ("load", given, {})


def table(*given, **changes):
    return ("table", given, changes)


def main(*given):
    return ("main", given, {})


def run(steps, home, address, entries=()):
    """Do the steps in a process of its own; by step, what it said and how long it would have waited."""
    mine = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
    mine |= {"HF_HOME": str(home), "HF_ENDPOINT": address, "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}
    done = subprocess.run(
        [sys.executable, "-c", CHILD], cwd=PROJECT, env=mine, input=json.dumps([steps, entries]), capture_output=True,
        text=True, timeout=240,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


STEPS = {
    "first": load("org/good"),
    "again": load("org/good"),
    "pinned": load("pinned"),
    "by ref": load("by-ref"),
    "wrong hash": load("wrong-hash"),
    "moved": load("moved"),
    "other labels": load("other-labels"),
    "other order": load("other-order"),
    "pickle only": load("org/pickle"),
    "no config": load("org/no-config"),
    "no tokenizer": load("org/no-tokenizer"),
    "gated": load("org/gated"),
    "unknown": load("org/unknown"),
    "no revision": load("org/good", "v9"),
    "no id": load("org/not an id"),
    "down": load("org/down"),
    "busy": load("org/busy"),
    "cut": load("org/cut"),
    "cut, again": load("org/cut"),
    "damaged": load("org/damaged"),
    "damaged, again": load("org/damaged"),
    "pin": main("pin", "by-ref"),
    "pin a hub id": main("pin", "org/good", "--revision", "refs/pr/1"),
    "pin a pickle": main("pin", "org/pickle"),
    "pin unknown": main("pin", "org/unknown"),
    "sst2": table("sst2", "dev"),
    "sst2, again": table("sst2", "dev"),
    "mnli": table("mnli", "dev"),
    "mnli mismatched": table("mnli", "dev_mismatched"),
    "rte": table("rte", "train"),
    "no labels": table("sst2", "test"),
    "blank": table("rte", "dev"),
    "no split": table("sst2", "dev_mismatched"),
    "no task": table("mrpc", "dev"),
    "glue gated": table("rte", "dev", hub_id="org/gated"),
    "glue unknown": table("rte", "dev", hub_id="org/unknown"),
    "glue no revision": table("rte", "dev", revision="v9", hub_id=GLUE_ID),
    "glue down": table("rte", "dev", hub_id="org/down", revision="main"),
    "glue cut": table("rte", "train", hub_id="org/cut", revision="main"),
    "glue cut, again": table("rte", "train", hub_id="org/cut", revision="main"),
    "glue damaged": table("rte", "train", hub_id="org/damaged", revision="main"),
}


def repositories(folder):
    """What the stand-in holds, and entries of the registry that point there."""
    good = files_of(save_tiny(folder / "good", labels=("NEGATIVE", "POSITIVE")))
    weights, mnli = good["model.safetensors"], ("CONTRADICTION", "ENTAILMENT", "NEUTRAL")
    apart = {"checkpoint-1/model.safetensors": weights, "pytorch_model.bin": b"a pickle"}  # never to be downloaded

    def without(*names):
        return {name: content for name, content in good.items() if not name.startswith(names)}

    entry = {"hub_id": "org/good", "revision": COMMIT, "sha256": file_sha256(folder / "good" / "model.safetensors"),
             "licence": "MIT", "size_mb": 1, "task": "sst2", "labels": ["negative", "positive"]}  # fmt: skip
    entries = [entry | changes for changes in (
        {"name": "pinned"}, {"name": "by-ref", "revision": "refs/pr/1", "commit": COMMIT[:7]},
        {"name": "wrong-hash", "sha256": "0" * 64}, {"name": "moved", "revision": "refs/pr/1", "commit": "fffffff"},
        {"name": "other-labels", "labels": ["positive", "negative"]},
        {"name": "other-order", "hub_id": "org/mnli", "sha256": None, "task": "mnli",
         "labels": [name.lower() for name in mnli]},
    )]  # fmt: skip
    return entries, {
        "org/good": Repository(good | apart, refs=("main", "refs/pr/1"), tags=("license:mit",)),
        "org/mnli": Repository(files_of(save_tiny(folder / "mnli", labels=mnli))),
        "org/pickle": Repository(without("model.safetensors") | apart),
        "org/no-config": Repository(without("config.json")),
        "org/no-tokenizer": Repository(without("tokenizer")),
        "org/gated": Repository(good, fault="gated"),
        "org/down": Repository(good, fault="down"),
        "org/busy": Repository(good, fault="busy"),
        "org/cut": Repository(good, fault="cut", faulty=6),  # a client tries six times
        "org/damaged": Repository(good, fault="damaged", faulty=1),
        f"datasets/{GLUE_ID}": Repository(glue_files(), commit=GLUE_COMMIT),
        "datasets/org/gated": Repository(glue_files(), commit=GLUE_COMMIT, fault="gated"),
        "datasets/org/down": Repository(glue_files(), fault="down"),
        "datasets/org/cut": Repository(glue_files(), fault="cut", faulty=6),
        "datasets/org/damaged": Repository(glue_files(), fault="damaged", faulty=1),
    }


class Online:
    """What the steps said; what each of them asked the hub for; and the home that they leave behind."""

    def __init__(self, folder):
        self.home, self.tiny = folder / "home", folder / "good"
        entries, held = repositories(folder)
        with serving(held) as hub:
            self.address, self.answers = hub.address, run(STEPS, self.home, hub.address, entries)
            self.asked, name = {}, None
            for line in hub.asked:
                if line.startswith("GET /mark/"):
                    self.asked[name := urllib.parse.unquote(line.removeprefix("GET /mark/"))] = []
                else:
                    self.asked[name].append(line)

    def said(self, step):
        return self.answers[step]["said"]


@pytest.fixture(scope="module")
def online(tmp_path_factory):
    return Online(tmp_path_factory.mktemp("hub"))


@pytest.fixture(scope="module")
def unreachable(online):
    steps = {
        "cached": load("org/good"),
        "not cached": load("org/never"),
        "entry": load("bert-base-cased-sst2"),
        "pin": main("pin", "roberta-base-rte"),
        "glue cached": table("sst2", "dev"),
        "glue not cached": table("mrpc", "dev"),
    }
    return run(steps, online.home, "http://127.0.0.1:9")


def failure(message, asked_for, *parts, kind="ConnectionError"):
    """Check that this is one readable line, of this kind, that says what was asked for and what to do instead."""
    assert isinstance(message, str) and message.startswith(f"{kind}: "), message
    assert "\n" not in message and len(message) < 700
    for part in (asked_for, *parts):
        assert part in message


OFFLINE = 'use load("minilm-sst2") or give a folder'
BUNDLED = 'give source="bundled" (which has sst2'


# ---- models


def test_a_model_is_downloaded_and_predicts_as_from_its_folder(online):
    expected = models.load(online.tiny, device="cpu").predict(TEXTS)
    assert online.said("first")["labels"] == ["NEGATIVE", "POSITIVE"]
    np.testing.assert_allclose(online.said("first")["predicted"], expected, atol=1e-6)


def test_only_what_is_needed_is_downloaded(online):
    fetched = {line.split("/")[-1] for line in online.asked["first"] if "/resolve/" in line and line.startswith("GET")}
    assert fetched == {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}
    assert not [line for steps in online.asked.values() for line in steps if "checkpoint-1" in line or ".bin" in line]


def test_what_is_in_the_cache_is_not_asked_for_again(online):
    assert online.asked["again"] == online.asked["pinned"] == online.asked["wrong hash"] == []
    assert online.said("again") == online.said("first")
    assert not [line for line in online.asked["by ref"] if "resolve" in line]  # another name for the same commit


def test_an_entry_names_the_classes_in_the_order_of_the_logits(online):
    for step in ("pinned", "by ref"):
        assert online.said(step)["labels"] == ["negative", "positive"]
        assert online.said(step)["predicted"] == online.said("first")["predicted"]
    assert online.said("other order")["labels"] == ["contradiction", "entailment", "neutral"]


def test_a_pinned_model_with_another_hash_is_refused_with_both_hashes_and_a_cure(online):
    cache = online.home / "hub" / "models--org--good"
    found = file_sha256(online.tiny / "model.safetensors")
    failure(
        online.said("wrong hash"), "model.safetensors", found, "0" * 64, f"Delete {cache} ", OFFLINE, kind="ValueError"
    )


def test_a_ref_that_has_moved_is_refused_with_both_commits(online):
    said = online.said("moved")
    failure(said, "org/good", COMMIT, "fffffff", "helpers.registry pin moved", OFFLINE, kind="ValueError")


def test_labels_that_disagree_are_refused(online):
    said = online.said("other labels")
    failure(said, "other-labels", "['NEGATIVE', 'POSITIVE']", "['positive', 'negative']", kind="ValueError")


@pytest.mark.parametrize("step, repository, lacks", [
    ("pickle only", "org/pickle", "no *.safetensors (it has checkpoint-1/model.safetensors, config.json, pytorch"),
    ("no config", "org/no-config", "no config.json (it has model.safetensors"),
    ("no tokenizer", "org/no-tokenizer", "no tokenizer.json or vocab.* or *.model (it has config.json, model.saf"),
])  # fmt: skip
def test_a_repository_that_lacks_a_file_is_refused_before_any_download(online, step, repository, lacks):
    failure(online.said(step), repository, lacks, OFFLINE, kind="ValueError")
    assert not [line for line in online.asked[step] if "/resolve/" in line]


@pytest.mark.parametrize("step, repository, reason", [
    ("gated", "org/gated", "it is gated: accept its terms at {address}/org/gated, then type 'hf auth login'"),
    ("unknown", "org/unknown", "no such repository, or it is private: check the name, or type 'hf auth login'"),
    ("no revision", "org/good at revision v9", "it has no such revision"),
    ("no id", "org/not an id", "Repo id must"),
    ("down", "org/down", "{address} answered with status 500 Internal Error"),
    ("busy", "org/busy", "{address} answered with status 503 Too busy"),
    ("cut", "org/cut", "broke off"),
    ("damaged", "org/damaged", "model.safetensors came damaged: its SHA-256 is "),
])  # fmt: skip
def test_each_failure_is_one_line_that_names_the_offline_choice(online, step, repository, reason):
    failure(online.said(step), repository, reason.format(address=online.address), OFFLINE)


def test_a_refusal_is_not_asked_for_again_and_again(online):
    for step in ("gated", "unknown", "no revision", "down", "no id", "glue gated", "glue unknown", "glue no revision"):
        assert online.answers[step]["waited"] == 0
        assert len([line for line in online.asked[step] if "/resolve/" not in line]) <= 3


@pytest.mark.parametrize("step", ["cut", "damaged"])
def test_a_spoilt_download_is_never_taken_for_a_whole_one_and_the_next_load_works(online, step):
    assert online.said(f"{step}, again") == online.said("first")
    downloads = [line for line in online.asked[f"{step}, again"] if "model.safetensors" in line]
    assert downloads and downloads[-1].startswith("GET")


def test_pin_prints_what_the_hub_states(online):
    found = file_sha256(online.tiny / "model.safetensors")
    line = f'hub_id="org/good", revision="{COMMIT}", sha256="{found}", licence="mit", size_mb=0\n'
    assert online.said("pin") == [0, f"by-ref: {line}"]
    assert online.said("pin a hub id") == [0, f"org/good: {line}"]


def test_pin_fails_in_one_line(online, unreachable):
    for (code, said), part in (
        (online.said("pin a pickle"), "org/pickle at revision main has no model.safetensors"),
        (online.said("pin unknown"), "org/unknown at revision main (there is no such repository"),
        (unreachable["pin"]["said"], "JeremiahZ/roberta-base-rte at revision "),
    ):
        assert code == 1 and part in said and said.count("\n") == 1


# ---- GLUE


def rows(table):
    return [(row["first"], row["second"], row["label"], row["label_id"]) for row in table]


def test_glue_from_the_hub(online):
    nothing = {"split": "dev", "phenomenon": "", "pair": ""}
    assert online.said("sst2") == [
        {"first": 'a " loud film', "second": "", "label": "negative", "label_id": 0, **nothing},
        {"first": "warm", "second": "", "label": "positive", "label_id": 1, **nothing},
    ]
    assert rows(online.said("mnli")) == [("a", "b", "contradiction", 2), ("n/a", "c", "entailment", 0)]
    assert rows(online.said("mnli mismatched")) == [("d", "e", "neutral", 1)]
    assert rows(online.said("rte")) == [("f", "g", "not_entailment", 1)]


def test_a_split_is_downloaded_once_and_no_other_with_it(online):
    fetched = [line.split("/")[-2:] for line in online.asked["sst2"] if line.startswith("GET") and "/resolve/" in line]
    assert sorted(fetched) == [[GLUE_COMMIT, "README.md"], ["sst2", "validation-00000-of-00001.parquet"]]
    assert online.asked["sst2, again"] == [] and online.said("sst2, again") == online.said("sst2")
    assert set(split for config, split in GLUE if config == "sst2") > {"validation"}  # there were others


@pytest.mark.parametrize("step, reason", [
    ("no labels", f"ValueError: {GLUE_ID} sst2 test has no labels"),
    ("blank", f"ValueError: {GLUE_ID} rte validation, row 1: column 'sentence2' is empty"),
    ("no split", "ValueError: The hub has no split 'dev_mismatched' of sst2. Splits: train, dev, test."),
    ("no task", f"ValueError: {GLUE_ID} at revision {GLUE_COMMIT} has no mrpc/validation-*.parquet (it has "),
    ("glue gated", "ConnectionError: The hub did not give org/gated at revision {commit} (it is gated: accept its "
                   "terms at {address}/datasets/org/gated, then type 'hf auth login')"),
    ("glue unknown", "ConnectionError: The hub did not give org/unknown at revision {commit} (there is no such repos"),
    ("glue no revision", f"ConnectionError: The hub did not give {GLUE_ID} at revision v9 (it has no such revision)"),
    ("glue down", "ConnectionError: The hub did not give org/down at revision main ({address} answered with status"),
    ("glue cut", "ConnectionError: The hub did not give org/cut at revision main ({address} cannot be reached, or"),
    ("glue damaged", "ConnectionError: The hub did not give org/damaged at revision main (train-00000-of-00001.parquet "
                     "came damaged"),
])  # fmt: skip
def test_each_failure_of_glue_is_one_line(online, step, reason):
    said = online.said(step)
    assert said.startswith(reason.replace("{address}", online.address).replace("{commit}", GLUE_COMMIT)), said
    assert "\n" not in said and len(said) < 700
    assert (BUNDLED in said and "folder of your GLUE files" in said) or step in ("no labels", "blank", "no split")


def test_a_split_whose_download_broke_off_is_whole_the_next_time(online):
    assert rows(online.said("glue cut, again")) == [("f", "g", "not_entailment", 1)]


# ---- no network


def test_what_was_loaded_once_needs_no_hub(online, unreachable):
    assert unreachable["cached"]["said"] == online.said("first")
    assert unreachable["glue cached"]["said"] == online.said("sst2")


def test_a_hub_that_cannot_be_reached_is_said_at_once(unreachable):
    reason = "(http://127.0.0.1:9 cannot be reached"
    failure(unreachable["not cached"]["said"], "org/never", reason, OFFLINE)
    failure(unreachable["entry"]["said"], registry.REGISTRY["bert-base-cased-sst2"].hub_id, reason, OFFLINE)
    failure(unreachable["glue not cached"]["said"], GLUE_ID, reason, BUNDLED)
    assert [answer["waited"] for answer in unreachable.values()] == [0] * len(unreachable)


def test_with_the_hub_switched_off_the_cache_is_enough(online, monkeypatch, tmp_path):
    assert os.environ["HF_HUB_OFFLINE"] == "1"  # set for all tests
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(online.home / "hub"))
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path)
    classifier = models.load("org/good", device="cpu")
    np.testing.assert_allclose(classifier.predict(TEXTS), online.said("first")["predicted"], atol=1e-6)
    assert data.load("sst2", "hub").to_dict("records") == online.said("sst2")
    reason = "it is not in the cache, and HF_HUB_OFFLINE forbids to ask the hub"
    with pytest.raises(ConnectionError) as error:
        models.load("org/never")
    failure(f"ConnectionError: {error.value}", "org/never", reason, OFFLINE)
    with pytest.raises(ConnectionError) as error:
        data.load("mrpc", "hub")
    failure(f"ConnectionError: {error.value}", GLUE_ID, reason, BUNDLED)
