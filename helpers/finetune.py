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
from helpers.trainer import Settings, Trainer, attach, check_labels, examples, relabel, write_text

logger = logging.getLogger(__name__)

KEYS = {
    "name", "task", "labels", "base", "base_sha256", "command", "data", "licence", "train_examples", "from_adapter",
    "settings", "steps", "best_step", "history", "seconds", "machine", "versions", "trained_parameters", "bytes",
    "adapter_sha256", "measured", "dev",
}  # fmt: skip
"""What ``training.json`` holds whatever is measured: no test can go by such a name."""


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
        out: folder for the adapter, ``training.json`` and the card ``README.md``: a new or empty one, or that of an
            earlier adapter, which is replaced; not the one that ``base`` names.
        labels: class names in the order that the logits shall have.
        base: an encoder for a new adapter (``"minilm"``, or a folder or hub id of BERT or its kin), or an adapter to
            go on from (``"minilm-sst2"``, an adapter's folder), also to other labels: see :func:`relabel`. A folder
            is noted as given.
        test: examples to measure once, at the very end; several such tables by name.
        settings: see :class:`Settings`.
        checkpoint: file to keep the state in, a new one or a stopped run's; if None,
            ``build/finetune/<name of out>.safetensors``.
        checkpoint_every: steps from one checkpoint to the next.
        device: see :func:`helpers.models.load`.
        progress: show a progress bar.
        about: ``task``, ``data``, ``command`` and ``licence`` for the card.

    Returns:
        What ``training.json`` holds: measurements on dev and the tests, history, settings, sizes.
    """
    settings, out, labels = settings or Settings(), Path(out), check_labels(labels)
    tests = {"test": test} if isinstance(test, pd.DataFrame) else dict(test or {})
    if checkpoint_every < 1:
        raise ValueError(f"checkpoint_every is {checkpoint_every}: it must be at least 1 step.")
    if taken := sorted(KEYS & tests.keys()):
        raise ValueError(f"Tests go by the names {taken}, which the report has for itself: give them other names.")
    adapter = adapter_folder(base)
    _check_out(out, adapter, checkpoint)
    if checkpoint is not None and Path(checkpoint).is_dir():
        raise ValueError(f"checkpoint is {str(checkpoint)!r}, which is a folder: give a file.")
    for frame in (train, dev, *tests.values()):
        examples(frame, labels)  # before any long work
    checkpoint = Path(checkpoint or build_folder("finetune") / f"{out.name}.safetensors")
    models.set_seed(settings.seed)
    if adapter:
        peft, tokenizer = models.open_adapter(adapter, trainable=True)
        relabel(peft, labels)
        if settings.rank not in (Settings.rank, rank := peft.peft_config["default"].r):
            logger.warning("rank %d is not used: the adapter gone on from has rank %d", settings.rank, rank)
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


def _check_out(out: Path, adapter: Path | None, checkpoint: str | os.PathLike | None) -> None:
    """Refuse a folder in which the files of an adapter would replace something else, or its own start."""
    own = Path(checkpoint).resolve() if checkpoint else None  # may lie there before the first weights do
    if not out.exists():
        return
    if not out.is_dir():
        raise ValueError(f"out is {str(out)!r}, which is a file: give a folder.")
    strange = [file for file in out.iterdir() if file.resolve() != own and file.suffix != ".part"]
    if strange and not (out / "adapter_config.json").is_file():
        raise ValueError(
            f"out is {str(out)!r}, a folder with files but no adapter_config.json: a README.md or training.json there "
            "would be overwritten. Give a new or empty folder, or that of an adapter to replace."
        )
    if adapter and out.samefile(adapter):
        raise ValueError(
            f"out is {str(out)!r}, the folder of the adapter to go on from: a run that is stopped and called again "
            "would not find its start. Give another folder."
        )


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
    example's texts are treated alike; texts that end in another mark (``?``, ``"``, ``...``) are left as they are.
    """
    stopped = np.random.default_rng(seed).random(len(frame)) < 0.5
    varied = frame.copy()
    for column in ("first", "second"):
        # a stop after another one is no full stop: "Wait...", "so . . ."
        bare = frame[column].str.replace(r"(?<![\s.])\s*\.$", "", regex=True)
        with_stop = bare.mask(bare.str.contains(r"\w$"), bare + ".")
        varied[column] = with_stop.where(stopped, bare).where(bare != "", frame[column])
    return varied


def main(arguments: Sequence[str] | None = None) -> dict:
    """Train from the command line; see ``python -m helpers.finetune --help``."""
    given = _parser().parse_args(arguments)
    if given.both_orders and data.TASKS[given.task].kind != "pair":
        raise ValueError(f"--both-orders turns pairs round, and {given.task} has single texts: leave it out.")
    if given.both_orders and given.task != "mrpc":
        raise ValueError(
            f"--both-orders keeps the label of a pair turned round, and in {given.task} 'A entails B' does not say "
            "that B entails A: it is for mrpc alone, whose pairs say the same thing in either order."
        )
    settings = Settings(**{field.name: getattr(given, field.name) for field in fields(Settings)})
    if given.threads is not None:
        if given.threads < 1:
            raise ValueError(f"--threads is {given.threads}: give at least 1, or leave it out.")
        torch.set_num_threads(given.threads)
    measured = [*(["test"] if given.test else []), *given.measure]
    _check_also(given, ("dev", *measured))
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
    parser.add_argument("--both-orders", action="store_true", help="learn from each pair in both orders (mrpc)")
    parser.add_argument("--out", required=True, type=Path, help="new folder for the adapter and its card")
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


def _check_also(given: argparse.Namespace, held: Sequence[str]) -> None:
    """Refuse a file to learn from that is not there, that would be read as another, or that is to be measured on."""
    for file in given.also:
        if not file.is_file():
            raise ValueError(f"--also {file}: there is no such file.")
        try:
            found = _split_file(given.task, file.parent, file.stem)
        except FileNotFoundError:
            found = None
        if found is None or not found.samefile(file):
            raise ValueError(
                f"--also {file}: the files of {given.task} by that name are read from {found or 'nowhere'}. Files end "
                "in .tsv; give this one another name, or a folder of its own."
            )
        for split in held if given.data != "hub" else ():
            if _split_file(given.task, given.data, split).samefile(file):
                raise ValueError(
                    f"--also {file} is the {split} split, which is measured on: what it says of new texts would be "
                    "worth nothing after learning from it. Leave it out."
                )


def _split_file(task: str, source: str | os.PathLike, split: str) -> Path:
    """The very file that :func:`helpers.data.load` reads."""
    known = data.TASKS[task]
    return data._split_file(known, data._task_folder(known, source), split)


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
    also = " ".join(f"FOLDER/{file.absolute().parent.name}/{file.name}" for file in given.also)
    parts += [f"--also {also}"] if also else []
    parts += ["--vary-stops"] if given.vary_stops else []
    parts += ["--both-orders"] if given.both_orders else []
    parts += [f"--base {given.base}"] if given.base != "minilm" else []
    parts += [f"--limit {given.limit}"] if given.limit else []
    parts += [f"--threads {given.threads}"] if given.threads else []
    for field in fields(Settings):
        if field.name == "rank" and adapter_folder(given.base):
            continue  # the adapter's own rank stays
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
