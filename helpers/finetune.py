"""Train a small adapter: LoRA on a frozen encoder and a classifier on top, with checkpoints.

The paper fine-tunes BERT on each task in full (section 4.1). An adapter of one or two megabytes fits in a
repository and, once merged, is an ordinary classifier to the rest of the suite. The same function goes on
training an adapter on other examples, which is what hardening a model against triggers takes.

    python -m helpers.finetune --task sst2 --data FOLDER --out data/adapters/minilm-sst2
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import platform
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pandas as pd
import torch

from helpers import data, models
from helpers._card import GLUE_LICENCE, OWN_LICENCE, card, measures
from helpers.records import ROOT, build_folder
from helpers.registry import ADAPTER_WEIGHTS, BASE, adapter_folder, file_sha256
from helpers.trainer import Settings, Trainer, attach, examples, relabel, write_text


def finetune(
    train: pd.DataFrame,
    dev: pd.DataFrame,
    out: str | os.PathLike,
    *,
    labels: Sequence[str],
    base: str | os.PathLike = "minilm",
    test: pd.DataFrame | Mapping[str, pd.DataFrame] | None = None,
    settings: Settings | None = None,
    checkpoint: str | os.PathLike | None = None,
    checkpoint_every: int = 500,
    device: str = "auto",
    progress: bool = True,
    about: dict | None = None,
) -> dict:
    """Train an adapter, keep the best on dev, and write it with its card to a folder.

    A run that was stopped goes on from its checkpoint when it is called again with the same settings and
    examples, and ends with the same weights as one that was never stopped.

    Args:
        train: examples, a table with the columns first, second ("" for a single text) and label.
        dev: examples of the same kind, to choose the best weights on.
        out: folder for the adapter, ``training.json`` and the card ``README.md``.
        labels: class names in the order that the logits shall have.
        base: an encoder for a new adapter (``"minilm"``, or a folder or hub id of BERT or its kin), or an adapter to
            go on from (``"minilm-sst2"``, an adapter's folder), also to other labels: see :func:`relabel`. A folder
            is noted as given.
        test: examples to measure once, at the very end; several such tables by name.
        settings: see :class:`Settings`.
        checkpoint: file to keep the state in; ``build/finetune/<name of out>.safetensors`` if None.
        checkpoint_every: steps from one checkpoint to the next.
        device: see :func:`helpers.models.load`.
        progress: show a progress bar.
        about: ``task``, ``data``, ``command`` and ``licence`` for the card.

    Returns:
        What ``training.json`` holds: measurements on dev and the tests, history, settings, sizes.
    """
    settings, out = settings or Settings(), Path(out)
    tests = {"test": test} if isinstance(test, pd.DataFrame) else dict(test or {})
    if checkpoint_every < 1:
        raise ValueError(f"checkpoint_every is {checkpoint_every}: it must be at least 1 step.")
    if out.exists() and not out.is_dir():
        raise ValueError(f"out is {str(out)!r}, which is a file: give a folder.")
    if checkpoint is not None and Path(checkpoint).is_dir():
        raise ValueError(f"checkpoint is {str(checkpoint)!r}, which is a folder: give a file.")
    for frame in (train, dev, *tests.values()):
        examples(frame, labels)  # before any long work
    checkpoint = Path(checkpoint or build_folder("finetune") / f"{out.name}.safetensors")
    models.set_seed(settings.seed)
    adapter = adapter_folder(base)
    if adapter:
        peft, tokenizer = models.open_adapter(adapter, trainable=True)
        relabel(peft, labels)
    else:
        model, tokenizer = models.load_base(base, labels)
        peft = attach(model, settings)
    peft.to(models.pick_device(device))
    base_id = peft.peft_config["default"].base_model_name_or_path if adapter else _public_id(base)
    trainer = Trainer(peft, tokenizer, train, dev, labels, settings, out=out, base_id=base_id)
    trainer.resume(checkpoint)
    trainer.fit(checkpoint=checkpoint, every=checkpoint_every, progress=progress)
    trainer.export()  # again, for a run that was already finished and whose folder is gone
    began = {"from_adapter": adapter.resolve().name if adapter else None}
    return _report(trainer, {"dev": dev} | tests, began | (about or {}))


def _public_id(base: str | os.PathLike) -> str:
    return BASE.hub_id if str(base) == BASE.name else str(base)


def _report(trainer: Trainer, frames: Mapping[str, pd.DataFrame], about: dict) -> dict:
    """Measure the merged float32 model that the written file gives; write ``training.json`` and the card."""
    out, weights = trainer.out, trainer.out / ADAPTER_WEIGHTS
    peft, tokenizer = models.open_adapter(out, labels=trainer.labels)
    merged = peft.merge_and_unload().to(trainer.model.device)
    found = {}
    for name, frame in frames.items():
        texts, gold = examples(frame, trainer.labels)
        raw = models.predict_logits(merged, tokenizer, texts, max_length=trainer.settings.max_length)
        found[name] = measures(raw, gold)
    best = max(trainer.history, key=lambda h: (h["accuracy"], -h["loss"]))
    threads = f"{torch.get_num_threads()} thread{'s' if torch.get_num_threads() > 1 else ''}"
    training = {
        "name": out.name,
        "task": about.get("task", "the examples given"),
        "labels": list(trainer.labels),
        "base": trainer.base_id,
        "base_sha256": BASE.sha256 if trainer.base_id == BASE.hub_id else None,
        "command": about.get("command", "helpers.finetune.finetune(train, dev, out, labels=...)"),
        "data": about.get("data", "as given"),
        "licence": about.get("licence", OWN_LICENCE),
        "train_examples": len(trainer.texts),
        "from_adapter": about.get("from_adapter"),
        "settings": asdict(trainer.settings) | {"rank": trainer.peft.peft_config["default"].r},
        "steps": trainer.step,
        "best_step": best["step"],
        "history": trainer.history,
        "seconds": round(trainer.seconds, 1),
        "machine": f"{trainer.model.device.type.upper()} ({platform.machine()}, {threads})",
        "versions": ", ".join(f"{name} {version(name)}" for name in ("torch", "transformers", "peft")),
        "trained_parameters": sum(p.numel() for p in trainer.weights.values()),
        "bytes": weights.stat().st_size,
        "adapter_sha256": file_sha256(weights),
        "measured": list(found),
        **found,
    }
    write_text(out / "training.json", json.dumps(training, indent=2) + "\n")
    write_text(out / "README.md", card(training))
    return training


def vary_stops(frame: pd.DataFrame, *, seed: int = 0) -> pd.DataFrame:
    """Let half of the examples, drawn at random, end in full stops and the other half not.

    Files of one task that treat final full stops differently would teach a model to tell the files apart. An
    example's texts are treated alike; texts that end in another mark (``?``, ``"``) are left as they are.
    """
    stopped = np.random.default_rng(seed).random(len(frame)) < 0.5
    varied = frame.copy()
    for column in ("first", "second"):
        bare = frame[column].str.replace(r"\s*\.$", "", regex=True)
        with_stop = bare.mask(bare.str.contains(r"\w$"), bare + ".")
        varied[column] = with_stop.where(stopped, bare).where(bare != "", frame[column])
    return varied


def main(arguments: Sequence[str] | None = None) -> dict:
    """Train from the command line; see ``python -m helpers.finetune --help``."""
    given = _parser().parse_args(arguments)
    if given.both_orders and data.TASKS[given.task].kind != "pair":
        raise ValueError(f"--both-orders turns pairs round, and {given.task} has single texts: leave it out.")
    settings = Settings(**{field.name: getattr(given, field.name) for field in fields(Settings)})
    if given.threads:
        torch.set_num_threads(given.threads)
    measured = [*(["test"] if given.test else []), *given.measure]
    frames = {
        split: data.load(given.task, given.data, split=split, limit=given.limit)
        for split in ("train", "dev", *measured)
    }
    more = [data.load(given.task, file.parent, split=file.stem, limit=given.limit) for file in given.also]
    place = _place(given.data)
    source = "a folder in GLUE's layout" if place == "FOLDER" else f"source {place!r}"
    also = f" with the files after --also ({sum(map(len, more)):,} examples)" if more else ""
    about = {
        "task": given.task,
        "data": f"{given.task} from {source}; its train split to learn from{also}, its dev split to choose on",
        "command": _command(given, settings, place),
        "licence": GLUE_LICENCE if place in ("FOLDER", "hub") else OWN_LICENCE,
    }
    train = _varied(pd.concat([frames["train"], *more], ignore_index=True), given)
    return finetune(
        train, frames["dev"], given.out, labels=data.TASKS[given.task].labels, base=given.base,
        test={split: frames[split] for split in measured}, settings=settings, checkpoint=given.checkpoint,
        checkpoint_every=given.checkpoint_every, about=about,
    )  # fmt: skip


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m helpers.finetune", description=__doc__.splitlines()[0])
    parser.add_argument("--task", required=True, choices=sorted(data.TASKS))
    parser.add_argument("--data", required=True, help="folder with train.tsv and dev.tsv, or 'bundled', or 'hub'")
    parser.add_argument("--also", nargs="+", default=[], type=Path, help="more files to learn from, laid out alike")
    parser.add_argument("--vary-stops", action="store_true", help="half of the training texts end in full stops")
    parser.add_argument("--both-orders", action="store_true", help="learn from each pair in both orders")
    parser.add_argument("--out", required=True, type=Path, help="folder for the adapter and its card")
    parser.add_argument("--base", default="minilm", help="encoder, or adapter to go on from (default: minilm)")
    parser.add_argument("--test", action="store_true", help="measure once on the test split, at the end")
    parser.add_argument("--measure", nargs="+", default=[], metavar="SPLIT", help="further splits to measure then")
    parser.add_argument("--limit", type=int, help="so many examples of each split, for a try")
    parser.add_argument("--threads", type=int, help="of torch on the CPU")
    parser.add_argument("--checkpoint", type=Path, help="default: build/finetune/<name of out>.safetensors")
    parser.add_argument("--checkpoint-every", type=int, default=500, help="steps (default: 500)")
    for field in fields(Settings):
        name, default = f"--{field.name.replace('_', '-')}", field.default
        parser.add_argument(name, type=type(default), default=default, help=f"of the training (default: {default})")
    return parser


def _varied(train: pd.DataFrame, given: argparse.Namespace) -> pd.DataFrame:
    """The training examples as the options want them."""
    if given.both_orders:
        turned = train.rename(columns={"first": "second", "second": "first"})
        train = pd.concat([train, turned], ignore_index=True)
    return vary_stops(train, seed=given.seed) if given.vary_stops else train


def _place(data_folder: str) -> str:
    """What a card says of where the data were: no folder of one machine, unless it is the project's own."""
    if data_folder in ("bundled", "hub"):
        return data_folder
    folder = Path(data_folder).resolve()
    return folder.relative_to(ROOT).as_posix() if folder.is_relative_to(ROOT / "data") else "FOLDER"


def _command(given: argparse.Namespace, settings: Settings, place: str) -> str:
    """The command that makes this adapter again, with what is not a default."""
    parts = [f"python -m helpers.finetune --task {given.task} --data {place} --out {_relative(given.out)}"]
    also = " ".join(f"FOLDER/{file.parent.name}/{file.name}" for file in given.also)
    parts += [f"--also {also}"] if also else []
    parts += ["--vary-stops"] if given.vary_stops else []
    parts += ["--both-orders"] if given.both_orders else []
    parts += [f"--base {given.base}"] if given.base != "minilm" else []
    parts += [f"--limit {given.limit}"] if given.limit else []
    parts += [f"--threads {given.threads}"] if given.threads else []
    for field in fields(Settings):
        value = getattr(settings, field.name)
        parts += [f"--{field.name.replace('_', '-')} {value}"] if value != field.default else []
    parts += [f"--measure {' '.join(given.measure)}"] if given.measure else []
    return " ".join(parts + (["--test"] if given.test else []))


def _relative(path: Path) -> Path:
    return Path(path.name) if path.is_absolute() else path


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    try:
        main()
    except (ValueError, OSError, ArithmeticError) as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        sys.exit("stopped: the same command goes on from the last checkpoint")
