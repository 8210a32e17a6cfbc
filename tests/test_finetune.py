"""Training an adapter: that it learns, is repeated exactly, goes on exactly, and is written as promised."""

import json
import runpy
import sys
from argparse import Namespace
from pathlib import Path

import families
import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny import save_tiny

from helpers import _card, finetune, models, registry, trainer

LABELS = ("negative", "positive")
SETTINGS = finetune.Settings(rank=4, rate=1e-2, epochs=3, batch_size=8, seed=5, evaluate_every=4)
WORDS = (("bad", "dull", "hate"), ("good", "wonderful", "love"))


def frame(rows=48, seed=0):
    """Short texts of words that give the class away."""
    rng = np.random.default_rng(seed)
    first = [" ".join(rng.choice(WORDS[i % 2], rng.integers(2, 7))) for i in range(rows)]
    return pd.DataFrame({"first": first, "second": "", "label": [LABELS[i % 2] for i in range(rows)]})


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return save_tiny(tmp_path_factory.mktemp("base"), labels=LABELS, initializer_range=0.1)


def run(base, folder, **options):
    """A short training under a folder of its own."""
    given = {"settings": SETTINGS, "progress": False, "device": "cpu", "checkpoint_every": 3} | options
    return finetune.finetune(
        frame(), frame(20, seed=1), folder / "adapter", labels=LABELS, base=base,
        checkpoint=folder / "state.safetensors", **given,
    )  # fmt: skip


@pytest.fixture(scope="module")
def finished(base, tmp_path_factory):
    folder = tmp_path_factory.mktemp("finished")
    return folder, run(base, folder, test=frame(16, seed=2))


class Stop(Exception):
    """What a power cut is to a training."""


def stop_after(monkeypatch, steps):
    """Let a training take so many steps and no more."""
    plain, left = trainer.Trainer.train_step, [steps]

    def step(self, rows):
        if not left[0]:
            raise Stop
        left[0] -= 1
        return plain(self, rows)

    monkeypatch.setattr(trainer.Trainer, "train_step", step)
    return lambda: monkeypatch.setattr(trainer.Trainer, "train_step", plain)


def weights(folder):
    return load_file(folder / "state.safetensors"), (folder / "adapter" / registry.ADAPTER_WEIGHTS).read_bytes()


def assert_same(one, other):
    assert one[0].keys() == other[0].keys()
    assert all(torch.equal(one[0][name], other[0][name]) for name in one[0])
    assert one[1] == other[1]


def test_it_learns_and_what_it_reports_is_what_the_written_file_does(finished):
    folder, report = finished
    assert report["dev"]["accuracy"] > 0.9 and report["test"]["accuracy"] > 0.9
    classifier = models.load(folder / "adapter", device="cpu")
    assert classifier.labels == LABELS
    test = frame(16, seed=2)
    right = classifier.predict(test["first"].tolist()).argmax(1) == [LABELS.index(label) for label in test["label"]]
    assert right.mean() == report["test"]["accuracy"]
    assert report["best_step"] == max(report["history"], key=lambda h: (h["accuracy"], -h["loss"]))["step"]
    assert [h["step"] for h in report["history"]] == [4, 8, 12, 16, 18]


def test_only_adapter_and_classifier_are_trained(base):
    model, _ = models.load_base(base, LABELS)
    peft = trainer.attach(model, SETTINGS)
    trained = {name for name, p in peft.named_parameters() if p.requires_grad}
    assert trained and all("lora_" in name or "classifier" in name for name in trained)
    for part in ("query", "key", "value", "attention.output.dense", "intermediate.dense", "pooler.dense"):
        assert any(f".{part}.lora_A" in name for name in trained), part


def test_what_is_written(finished):
    folder, report = finished
    written = folder / "adapter"
    assert {p.name for p in written.iterdir()} == {
        "adapter_config.json", "adapter_model.safetensors", "training.json", "README.md",
    }  # fmt: skip
    assert json.loads((written / "training.json").read_text()) == report
    state = load_file(written / registry.ADAPTER_WEIGHTS)
    assert {t.dtype for t in state.values()} == {torch.float16}
    assert any(name.endswith("classifier.weight") for name in state)
    assert report["adapter_sha256"] == registry.file_sha256(written / registry.ADAPTER_WEIGHTS)
    card = (written / "README.md").read_text()
    assert f"{report['test']['accuracy']:.2%}" in card and report["adapter_sha256"] in card
    assert not list(folder.rglob("*.part"))


def test_minilm_is_named_by_its_hub_id():
    assert finetune._public_id("minilm") == registry.BASE.hub_id
    assert finetune._public_id("org/other") == "org/other"


def test_the_same_seed_gives_the_same_weights_and_another_others(base, finished, tmp_path):
    run(base, tmp_path / "same")
    assert_same(weights(tmp_path / "same"), weights(finished[0]))
    run(base, tmp_path / "other", settings=finetune.Settings(**{**vars(SETTINGS), "seed": 6}))
    assert weights(tmp_path / "other")[1] != weights(finished[0])[1]


@pytest.mark.parametrize("steps", [2, 3, 7, 17])
def test_a_stopped_run_goes_on_to_the_same_weights(base, finished, tmp_path, monkeypatch, steps):
    let_go = stop_after(monkeypatch, steps)
    with pytest.raises(Stop):
        run(base, tmp_path)
    let_go()
    torch.manual_seed(99)  # what happens in between must not matter
    report = run(base, tmp_path)
    assert_same(weights(tmp_path), weights(finished[0]))
    assert report["history"] == finished[1]["history"]


def test_going_on_takes_up_the_checkpoint_instead_of_starting_anew(base, tmp_path, monkeypatch):
    let_go = stop_after(monkeypatch, 7)
    with pytest.raises(Stop):
        run(base, tmp_path)
    let_go()
    stop_after(monkeypatch, 12)  # 18 steps in all, of which a checkpoint holds 6
    assert run(base, tmp_path)["steps"] == 18


@pytest.mark.parametrize("steps", [None, 7])
def test_the_best_weights_are_kept_and_not_the_last(base, tmp_path, monkeypatch, steps):
    plain, scores = trainer.measures, iter([0.6, 0.9, 0.5, 0.9, 0.9] if steps is None else [0.9, 0.5, 0.9, 0.9, 0.9])
    monkeypatch.setattr(trainer, "measures", lambda *a: {**plain(*a), "accuracy": next(scores), "loss": 1.0})
    if steps:
        let_go = stop_after(monkeypatch, steps)
        with pytest.raises(Stop):
            run(base, tmp_path)
        let_go()
    report = run(base, tmp_path)
    assert report["best_step"] == (4 if steps else 8)
    state, written = load_file(tmp_path / "state.safetensors"), tmp_path / "adapter" / registry.ADAPTER_WEIGHTS
    name = "base_model.model.classifier.modules_to_save.default.weight"
    assert not torch.equal(state[f"best.{name}"], state[f"now.{name}"])
    assert torch.equal(load_file(written)["base_model.model.classifier.weight"], state[f"best.{name}"].half())


def test_every_epoch_sees_every_example_once_in_another_order(base, tmp_path, monkeypatch):
    plain, seen = trainer.Trainer.train_step, []
    monkeypatch.setattr(trainer.Trainer, "train_step", lambda self, rows: seen.append(rows) or plain(self, rows))
    run(base, tmp_path)
    epochs = [np.concatenate(seen[i : i + 6]) for i in (0, 6, 12)]
    assert all(sorted(epoch) == list(range(48)) for epoch in epochs)
    assert not np.array_equal(epochs[0], epochs[1]) and not np.array_equal(epochs[1], epochs[2])


def test_a_finished_run_called_again_writes_the_same_again(base, finished, tmp_path, monkeypatch):
    run(base, tmp_path)
    (tmp_path / "adapter" / registry.ADAPTER_WEIGHTS).unlink()
    stop_after(monkeypatch, 0)
    run(base, tmp_path)
    assert_same(weights(tmp_path), weights(finished[0]))


@pytest.mark.parametrize("change", ["settings", "examples", "base"])
def test_the_checkpoint_of_another_run_is_refused(base, finished, tmp_path, change):
    state = finished[0] / "state.safetensors"
    settings = finetune.Settings(**{**vars(SETTINGS), "rate": 1e-3}) if change == "settings" else SETTINGS
    train = frame(seed=9) if change == "examples" else frame()
    other = save_tiny(tmp_path / "other", labels=LABELS, seed=3) if change == "base" else base
    with pytest.raises(ValueError, match="checkpoint of another run"):
        finetune.finetune(
            train, frame(20, seed=1), tmp_path / "out", labels=LABELS, base=other, settings=settings, checkpoint=state
        )


def test_a_checkpoint_cut_short_is_left_aside(base, finished, tmp_path, caplog):
    whole = (finished[0] / "state.safetensors").read_bytes()
    (tmp_path / "state.safetensors").write_bytes(whole[: len(whole) // 2])
    run(base, tmp_path)
    assert "training starts anew" in caplog.text
    assert_same(weights(tmp_path), weights(finished[0]))


def test_a_checkpoint_is_replaced_whole_or_not_at_all(base, tmp_path, monkeypatch):
    run(base, tmp_path)
    before = (tmp_path / "state.safetensors").read_bytes()

    def cut(tensors, path, metadata=None):
        Path(path).write_bytes(b"half of it")
        raise OSError("no space left on device")

    monkeypatch.setattr(trainer, "save_file", cut)
    with pytest.raises(OSError, match="no space"):
        run(base, tmp_path)
    assert (tmp_path / "state.safetensors").read_bytes() == before


def test_an_adapter_is_trained_further_from_where_it_stands(base, finished, tmp_path):
    start = finished[0] / "adapter"
    settings = finetune.Settings(**{**vars(SETTINGS), "rate": 1e-12})
    finetune.finetune(
        frame(), frame(), tmp_path / "out", labels=LABELS, base=start, settings=settings, progress=False, device="cpu",
        checkpoint=tmp_path / "state",
    )  # fmt: skip
    config = json.loads((tmp_path / "out" / "adapter_config.json").read_text())
    assert config["base_model_name_or_path"] == str(base)
    assert "Trained on from the adapter `adapter`" in (tmp_path / "out" / "README.md").read_text()
    before, after = load_file(start / registry.ADAPTER_WEIGHTS), load_file(tmp_path / "out" / registry.ADAPTER_WEIGHTS)
    assert before.keys() == after.keys() and all(torch.equal(before[name], after[name]) for name in before)


def test_an_adapter_goes_on_to_a_related_task_with_the_head_it_can_use(tmp_path):
    base = save_tiny(tmp_path / "base", labels=("yes", "perhaps", "no"), initializer_range=0.1)
    peft = trainer.attach(models.load_base(base, ("yes", "perhaps", "no"))[0], SETTINGS)
    head = peft.get_base_model().classifier.modules_to_save["default"]
    with torch.no_grad():
        head.weight += torch.arange(3.0)[:, None]
        head.bias += torch.arange(3.0)
    weight, bias = head.weight.detach().clone(), head.bias.detach().clone()
    trainer.relabel(peft, ("not_yes", "yes"))
    assert head.weight.shape[0] == head.out_features == 2 and head.weight.requires_grad
    assert torch.equal(head.weight[1], weight[0]) and torch.equal(head.bias[1], bias[0])
    assert torch.allclose(head.weight[0], weight[1:].mean(0)) and torch.allclose(head.bias[0], bias[1:].mean())
    assert peft.get_base_model().config.id2label == {0: "not_yes", 1: "yes"}
    assert peft(input_ids=torch.tensor([[2, 3]])).logits.shape == (1, 2)


def test_an_adapter_goes_on_to_an_unrelated_task_with_a_head_of_its_own(base, finished, tmp_path):
    labels = ("red", "green", "blue")
    rows = frame().assign(label=[labels[i % 3] for i in range(48)])
    settings = finetune.Settings(**{**vars(SETTINGS), "epochs": 1, "rate": 1e-12})
    report = finetune.finetune(
        rows, rows, tmp_path / "out", labels=labels, base=finished[0] / "adapter", settings=settings, progress=False,
        device="cpu", checkpoint=tmp_path / "state",
    )  # fmt: skip
    assert np.shape(report["dev"]["confusion"]) == (3, 3)
    before = load_file(finished[0] / "adapter" / registry.ADAPTER_WEIGHTS)
    after = load_file(tmp_path / "out" / registry.ADAPTER_WEIGHTS)
    heads = {name for name in before if "classifier" in name}
    assert heads and all(torch.equal(before[name], after[name]) for name in before if name not in heads)
    weight = next(after[name] for name in heads if after[name].ndim == 2)
    assert weight.shape[0] == 3 and len({tuple(row.tolist()) for row in weight}) == 3
    assert models.load(tmp_path / "out").labels == labels


def test_final_stops_are_drawn_alike_for_both_texts_and_other_marks_stay():
    given = pd.DataFrame(
        {"first": ["He left.", "Who", "Stop!", "A dog ."] * 50, "second": ["So he left", ".", "", "A."] * 50}
    )
    dots = pd.DataFrame({"first": ["Wait...", "so . . .", "no..", "Wait ..."] * 9, "second": ""})
    assert finetune.vary_stops(dots).equals(dots)
    varied = finetune.vary_stops(given, seed=1)
    assert finetune.vary_stops(given, seed=1).equals(varied) and not finetune.vary_stops(given, seed=2).equals(varied)
    assert set(zip(varied["first"][::4], varied["second"][::4], strict=True)) == {
        ("He left", "So he left"), ("He left.", "So he left."),
    }  # fmt: skip
    assert set(varied["first"][1::4]) == {"Who", "Who."} and set(varied["second"][1::4]) == {"."}
    assert set(varied["first"][2::4]) == {"Stop!"} and set(varied["second"][2::4]) == {""}
    assert set(varied["first"][3::4]) == {"A dog", "A dog."}
    assert 0.3 < varied["first"].str.endswith(".").mean() < 0.45  # half of three in four


def test_pairs_are_learnt_in_both_orders_where_asked(tmp_path):
    pairs = pd.DataFrame({"first": ["a", "b"], "second": ["c", "d"], "label": ["same", "other"]})
    given = Namespace(both_orders=True, vary_stops=False)  # of mrpc: what entails need not be entailed
    varied = finetune._varied(pairs, given)
    assert varied["first"].tolist() == ["a", "b", "c", "d"] and varied["second"].tolist() == ["c", "d", "a", "b"]
    assert varied["label"].tolist() == ["same", "other"] * 2
    for task, match in (("sst2", "sst2 has single texts"), ("rte", "in rte 'A entails B'"), ("mnli", "in mnli")):
        with pytest.raises(ValueError, match=match):
            finetune.main(["--task", task, "--data", "bundled", "--out", str(tmp_path), "--both-orders"])


def test_pairs_and_bfloat16(base, tmp_path):
    pairs = frame().assign(second="we love it")
    settings = finetune.Settings(**{**vars(SETTINGS), "precision": "bfloat16", "epochs": 1, "evaluate_every": 0})
    report = finetune.finetune(
        pairs, pairs, tmp_path / "out", labels=LABELS, base=base, settings=settings, progress=False, device="cpu",
        checkpoint=tmp_path / "state",
    )  # fmt: skip
    assert len(report["history"]) == 1 and np.isfinite(report["history"][0]["loss"])


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda f: f.drop(columns="label"), r"lack \['label'\]"),
        (lambda f: f.head(0), r"lack rows"),
        (lambda f: f.assign(label="neutral"), r"labels \['neutral'\]; the model has \['negative', 'positive'\]"),
        (lambda f: f.assign(label=[0, 1] * 24), "48 of 48 .* label that is no text.* 0, 1, 2, 3, 4 and 43 more"),
        (lambda f: f.assign(first=f["first"].mask(f.index == 30, " ")), "1 of 48 .* blank or no string.* 30\\."),
        (lambda f: f.assign(first=f["first"].mask(f.index == 7, "\u200b")), "blank or no string.* 7\\."),
        (lambda f: f.assign(first=f["first"].mask(f.index == 7)), "blank or no string.* 7\\."),
        (lambda f: f.assign(second=np.nan), "48 of 48 .* blank or no string"),
        (lambda f: f.assign(second=["x"] * 47 + [""]), "1 of 48 .* no second text and others have.* 47\\."),
        (lambda f: f.assign(first=pd.Series(["half a \ud800"] * 48, dtype=object)), "surrogate"),
    ],
)
@pytest.mark.parametrize("which", ["train", "dev", "test"])
def test_examples_that_do_not_fit_are_refused_before_any_work(base, tmp_path, monkeypatch, which, change, match):
    monkeypatch.setattr(models, "load_base", lambda *a: pytest.fail("work was begun"))
    frames = {"train": frame(), "dev": frame(), "test": frame()}
    frames[which] = change(frames[which])
    with pytest.raises(ValueError, match=match):
        finetune.finetune(
            frames["train"], frames["dev"], tmp_path, labels=LABELS, base=base, test=frames["test"], settings=SETTINGS
        )


@pytest.mark.parametrize(
    "change",
    [
        {"rank": 0}, {"epochs": 0}, {"batch_size": -1}, {"rate": 0.0}, {"precision": "float16"}, {"epochs": 1.5},
        {"seed": -1}, {"evaluate_every": -3}, {"warmup": -1.0}, {"weight_decay": -1.0},
    ],
)  # fmt: skip
def test_settings_that_cannot_be_meant_are_refused(change):
    with pytest.raises(ValueError, match=f"{next(iter(change))} is"):
        finetune.Settings(**change)


def test_a_loss_that_is_no_number_stops_the_training(base, tmp_path):
    settings = finetune.Settings(**{**vars(SETTINGS), "rate": 1e36, "clip": 1e36})
    with pytest.raises(FloatingPointError, match="lower the rate"):
        run(base, tmp_path, settings=settings)


def test_batches_hold_every_row_once_and_similar_lengths_together():
    lengths = np.random.default_rng(0).integers(1, 60, 1003)
    one = trainer.batches(lengths, 8, seed=1, epoch=0)
    assert sorted(np.concatenate(one).tolist()) == list(range(1003))
    assert max(map(len, one)) == 8 and len(one) == 126
    spread = np.mean([np.ptp(lengths[rows]) for rows in one])
    assert spread < 8  # of 59 at random
    again, later = trainer.batches(lengths, 8, seed=1, epoch=0), trainer.batches(lengths, 8, seed=1, epoch=1)
    assert all(np.array_equal(a, b) for a, b in zip(one, again, strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(one, later, strict=True))


def test_the_rate_rises_then_falls_to_nothing(base):
    model, tokenizer = models.load_base(base, LABELS)
    settings = finetune.Settings(**{**vars(SETTINGS), "warmup": 0.25})
    training = trainer.Trainer(
        trainer.attach(model, settings), tokenizer, frame(), frame(), LABELS, settings, out=Path("unused"), base_id="x"
    )
    rates = []
    for step in range(training.total):
        training.step = step
        rates.append(training.rate())
    assert len(rates) == 18 and np.isclose(max(rates), rates[3]) and np.isclose(max(rates), settings.rate)
    assert np.all(np.diff(rates[:4]) > 0) and np.all(np.diff(rates[4:]) < 0)
    assert 0 < rates[-1] < settings.rate / 10


def test_measures_against_numbers_worked_by_hand():
    probabilities = np.array([[0.95, 0.05], [0.95, 0.05], [0.35, 0.65], [0.65, 0.35]])
    found = _card.measures(np.log(probabilities), np.array([0, 1, 1, 0]))
    assert found["accuracy"] == 0.75 and found["confusion"] == [[2, 0], [1, 1]]
    assert np.isclose(found["loss"], -np.mean(np.log([0.95, 0.05, 0.65, 0.65])))
    # confidence 0.95 twice, half of them right; confidence 0.65 twice, both right
    assert np.isclose(found["calibration_error"], (2 * abs(0.5 - 0.95) + 2 * abs(1 - 0.65)) / 4)


def test_the_command_line_trains_and_its_card_names_the_command_but_no_folder(base, tmp_path):
    given = tmp_path / "sst2"
    given.mkdir()
    for split, seed in (("train", 0), ("dev", 1), ("test", 2), ("more", 3), ("other", 4)):
        rows = frame(24, seed=seed)
        lines = [f"{text}\t{LABELS.index(label)}" for text, label in zip(rows["first"], rows["label"], strict=True)]
        (given / f"{split}.tsv").write_text("sentence\tlabel\n" + "\n".join(lines) + "\n", encoding="utf-8")
    report = finetune.main(
        f"--task sst2 --data {given} --out {tmp_path / 'mine'} --base {base} --rank 2 --epochs 1 --batch-size 8 --test "
        f"--checkpoint {tmp_path / 'state'} --also {given / 'more.tsv'} {given / 'train.tsv'} --vary-stops "
        "--measure other".split()
    )
    assert report["train_examples"] == 72 and report["measured"] == ["dev", "test", "other"]
    assert "published\n  for research" in (tmp_path / "mine" / "README.md").read_text()
    assert "--also FOLDER/sst2/more.tsv FOLDER/sst2/train.tsv --vary-stops" in report["command"]
    assert "| other (looked at once) | 24 |" in (tmp_path / "mine" / "README.md").read_text()
    assert report["test"]["examples"] == 24 and report["labels"] == list(LABELS)
    assert report["command"].startswith("python -m helpers.finetune --task sst2 --data FOLDER --out mine")
    assert "--rank 2 --epochs 1 --batch-size 8" in report["command"] and report["command"].endswith("--test")
    assert str(given) not in (tmp_path / "mine" / "README.md").read_text()


def test_a_command_that_cannot_be_carried_out_is_one_line_and_a_status(tmp_path, monkeypatch):
    command = f"finetune --task sst2 --data {tmp_path / 'none'} --out {tmp_path / 'out'}"
    monkeypatch.setattr(sys, "argv", command.split())
    monkeypatch.delitem(sys.modules, "helpers.finetune")
    with pytest.raises(SystemExit) as stop:
        runpy.run_module("helpers.finetune", run_name="__main__")
    assert str(stop.value).startswith("error: ") and "\n" not in str(stop.value)  # text: printed, with status 1
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("wrong", ["out", "checkpoint"])
def test_a_place_that_cannot_be_written_is_refused_before_any_training(tmp_path, wrong):
    (tmp_path / "file").write_text("")
    frame = pd.DataFrame({"first": ["a good film", "bad"], "label": ["good", "bad"]})
    out = tmp_path / ("file" if wrong == "out" else "new")
    with pytest.raises(ValueError, match=f"{wrong} is .*which is a"):
        finetune.finetune(frame, frame, out, labels=("bad", "good"), base="no model", checkpoint=tmp_path)


@pytest.mark.parametrize(
    "labels", ["ab", [], ["a"], ["a", "b", "a"], [0, 1], ["a", " "], ["a", "b\nc"], ["a", "\ud800"]], ids=ascii
)
def test_labels_that_cannot_be_meant_are_refused_before_any_work(labels):
    with pytest.raises(ValueError, match="labels is .*at least two class names"):
        finetune.finetune(frame(), frame(), "unused", labels=labels, base="no model")


def test_a_test_cannot_go_by_a_name_of_the_reports_own(base, finished):
    assert set(finished[1]) - {"test"} == finetune.KEYS
    with pytest.raises(ValueError, match=r"the names \['dev', 'steps'\]"):
        finetune.finetune(
            frame(), frame(), "unused", labels=LABELS, base=base, test={"steps": frame(), "dev": frame(), "x": frame()}
        )


def test_a_folder_with_other_files_is_left_as_it_is(base, tmp_path):
    (tmp_path / "README.md").write_text("mine")
    with pytest.raises(ValueError, match=r"no adapter_config.json: a README.md .* Give a new or empty folder"):
        finetune.finetune(frame(), frame(), tmp_path, labels=LABELS, base=base, settings=SETTINGS)
    assert [path.name for path in tmp_path.iterdir()] == ["README.md"]


def test_a_run_stopped_before_its_first_weights_goes_on_with_its_checkpoint_in_the_folder(base, tmp_path, monkeypatch):
    let_go, given = stop_after(monkeypatch, 3), {"labels": LABELS, "base": base, "settings": SETTINGS}
    given |= {"checkpoint": tmp_path / "state.safetensors", "checkpoint_every": 3, "progress": False, "device": "cpu"}
    with pytest.raises(Stop):
        finetune.finetune(frame(), frame(), tmp_path, **given)
    let_go()
    assert [path.name for path in tmp_path.iterdir()] == ["state.safetensors"]
    assert finetune.finetune(frame(), frame(), tmp_path, **given)["steps"] == 18


def test_an_adapter_is_not_trained_further_into_its_own_folder(finished):
    start = finished[0] / "adapter"
    with pytest.raises(ValueError, match="the folder of the adapter to go on from"):
        finetune.finetune(frame(), frame(), start.parent / "." / "adapter", labels=LABELS, base=start)


def test_a_rank_that_the_adapter_does_not_have_is_said_to_be_unused(finished, tmp_path, caplog):
    start, settings = finished[0] / "adapter", finetune.Settings(rank=2, epochs=1)
    report = finetune.finetune(
        frame(8), frame(8), tmp_path / "out", labels=LABELS, base=start, settings=settings, progress=False,
        device="cpu", checkpoint=tmp_path / "state",
    )  # fmt: skip
    assert "rank 2 is not used: the adapter gone on from has rank 4" in caplog.text
    assert report["settings"]["rank"] == 4
    given = f"--task sst2 --data bundled --out out --rank 2 --base {start}".split()
    assert "--rank" not in finetune._command(finetune._parser().parse_args(given), settings, "bundled")


@pytest.mark.parametrize("kind", ["text", "no metadata", "metadata of others"])
def test_a_file_that_is_no_checkpoint_is_not_overwritten(base, tmp_path, kind):
    file = tmp_path / ("data.tsv" if kind == "text" else "model.safetensors")
    if kind == "text":
        file.write_text("sentence\tlabel\n" * 9)
    else:
        save_file({"x": torch.ones(2)}, file, metadata=None if kind == "no metadata" else {"format": "pt"})
    before = file.read_bytes()
    with pytest.raises(ValueError, match="would be overwritten: give a file that is not there yet"):
        finetune.finetune(
            frame(), frame(), tmp_path / "out", labels=LABELS, base=base, settings=SETTINGS, checkpoint=file
        )
    assert file.read_bytes() == before


@pytest.mark.parametrize("family", ["distilbert", "gpt2", "modernbert"])
def test_a_base_that_is_not_built_as_bert_is_refused_with_those_that_are(family):
    with pytest.raises(ValueError, match=r"ForSequenceClassification, which has no modules named .* BERT and its kin"):
        trainer.attach(families.make(family), SETTINGS)


@pytest.mark.parametrize("family", ["bert", "roberta", "xlm-roberta", "electra", "albert"])
def test_berts_kin_can_be_trained(family):
    model = families.make(family, dtype=torch.float32)
    assert any("lora_A" in name for name, p in trainer.attach(model, SETTINGS).named_parameters() if p.requires_grad)


@pytest.fixture
def glue(tmp_path):
    """A folder of RTE's and MNLI's files, of which some bear names that stand for others."""
    for name in (
        "RTE/train",
        "RTE/dev",
        "RTE/other",
        "train",
        "extra/more",
        "mnli/train",
        "mnli/dev_matched",
        "mnli/dev",
    ):
        file = tmp_path / f"{name}.tsv"
        file.parent.mkdir(exist_ok=True)
        file.write_text("sentence1\tsentence2\tlabel\nA film is good\tit is\tentailment\n", encoding="utf-8")
    for name in ("extra/more.csv", "extra/more"):
        (tmp_path / name).write_text("something else", encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize(
    ("task", "file", "match"),
    [
        ("rte", "train.tsv", "are read from .*RTE/train.tsv"),
        ("rte", "extra/more.csv", "are read from .*extra/more.tsv"),
        ("rte", "extra/more", "are read from .*extra/more.tsv"),
        ("rte", "extra/no.tsv", "there is no such file"),
        ("rte", "extra", "there is no such file"),
        ("rte", "RTE/dev.tsv", "is the dev split, which is measured on"),
        ("rte", "RTE/other.tsv", "is the other split, which is measured on"),
        ("mnli", "mnli/dev.tsv", "are read from .*dev_matched.tsv"),
        ("mnli", "mnli/dev_matched.tsv", "is the dev split"),
    ],
)
def test_what_is_learnt_besides_is_the_file_named_and_nothing_that_is_measured_on(glue, task, file, match):
    given = f"--task {task} --data {glue} --out out --also {glue / file}".split()
    given += ["--measure", "other"] if task == "rte" else []
    with pytest.raises(ValueError, match=match):
        finetune.main(given)


def test_further_files_may_lie_anywhere_and_be_those_learnt_from(glue):
    given = finetune._parser().parse_args(
        [
            "--task",
            "rte",
            "--data",
            str(glue),
            "--out",
            "out",
            "--also",
            f"{glue}/extra/more.tsv",
            f"{glue}/RTE/train.tsv",
        ]
    )
    finetune._check_also(given, ("dev",))


def test_a_file_named_from_the_working_folder_has_its_folder_in_the_command(glue, monkeypatch):
    monkeypatch.chdir(glue / "extra")
    given = finetune._parser().parse_args(["--task", "rte", "--data", "hub", "--out", "out", "--also", "more.tsv"])
    finetune._check_also(given, ("dev",))
    assert "--also FOLDER/extra/more.tsv" in finetune._command(given, finetune.Settings(), "hub")


def test_fewer_than_one_thread_is_refused(tmp_path):
    with pytest.raises(ValueError, match="--threads is -1"):
        finetune.main(f"--task sst2 --data bundled --out {tmp_path} --threads -1".split())


def test_names_that_would_break_a_table_of_the_card_are_escaped(finished):
    hostile = finished[1] | {"labels": ["a|b", "c"], "measured": ["dev", "x|\ny"], "x|\ny": finished[1]["test"]}
    card = _card.card(hostile)
    assert "| gold \\ predicted | a\\|b | c |" in card and "| a\\|b | " in card
    assert "| x\\| y (looked at once) |" in card and "Confusion on x\\| y:" in card
