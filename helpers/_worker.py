"""What a worker does: get the model once, attribute the texts of a shard, write the shard.

The model reaches a worker process once, not once a shard. Where workers are other processes it is left as a file
beside the shards; a worker reads it only if its SHA-256 is the one it was told, so nobody can slip it another file (to
unpickle a stranger's file is to run his code). It is no argument of the tasks, because a cluster keeps a large argument
on one worker, and loses it when that worker dies. A model given by name is loaded by every worker for itself, and
compared.
"""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import platform
import threading
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import cloudpickle
import torch
from transformers import PreTrainedModel

from helpers._shards import Shard, digest, write_shard
from helpers.attribution import attribute
from helpers.inputs import Text
from helpers.models import load

LOCK = threading.Lock()  # a model can't be switched by two threads at once
_kept: dict[str, tuple[PreTrainedModel, Any]] = {}  # the last model of this process


class Source(NamedTuple):
    """Where a worker gets the model.

    key: its fingerprint; name: what :func:`helpers.models.load` knows it as, or None; file, sha256: the pickle
    with model and tokenizer, or None.
    """

    key: str
    name: str | None
    file: Path | None
    sha256: str | None


class Done(NamedTuple):
    """What a worker reports: a shard is written, and what was warned of."""

    shard: Shard
    warned: tuple[str, ...]


def work(
    source: Source, folder: Path, run: str, start: int, texts: Sequence[Text], target, options: dict[str, Any]
) -> Done:
    """Attribute the texts of one shard and write it."""
    shard = Shard(start, len(texts), digest(texts, target))
    with LOCK, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model, tokenizer = _model(source)
        try:
            results: Any = attribute(model, tokenizer, list(texts), target=target, **options)
        except ValueError as error:
            raise ValueError(f"In the texts {start} to {start + len(texts) - 1}, counted from 0: {error}") from error
    if not folder.is_dir():
        raise FileNotFoundError(
            f"The worker on {platform.node()} sees no folder {folder}: it has to be in a place that all workers share."
        )
    write_shard(folder, run, shard, results)
    return Done(shard, tuple(str(w.message) for w in caught if issubclass(w.category, UserWarning)))


def keep(key: str, model: PreTrainedModel, tokenizer) -> None:
    """Hold a model for the shards that this process does itself."""
    _kept.clear()
    _kept[key] = model, tokenizer


def drop() -> None:
    """Let go of the model."""
    _kept.clear()


def send(key: str, model: PreTrainedModel, tokenizer, folder: Path) -> Source:
    """Leave the model in the folder for workers in other processes."""
    content = cloudpickle.dumps((model, tokenizer))  # with it, classes that were written in a notebook go along
    file = folder / f".model-{key[:16]}.pickle"
    unfinished = file.with_name(f"{file.name}.{os.getpid()}.tmp")
    unfinished.write_bytes(content)
    os.replace(unfinished, file)
    return Source(key, None, file, hashlib.sha256(content).hexdigest())


def _model(source: Source) -> tuple[PreTrainedModel, Any]:
    if source.key not in _kept:
        keep(source.key, *(_received(source) if source.file else _loaded(source)))
    return _kept[source.key]


def _received(source: Source) -> tuple[PreTrainedModel, Any]:
    assert source.file is not None
    try:
        content = source.file.read_bytes()
    except FileNotFoundError as error:
        raise FileNotFoundError(
            f"The worker on {platform.node()} finds no {source.file}: the folder has to be in a place that all workers "
            "share."
        ) from error
    if hashlib.sha256(content).hexdigest() != source.sha256:
        raise ValueError(f"{source.file} is not the model that was left there: nothing was read from it. Start again.")
    return pickle.loads(content)


def _loaded(source: Source) -> tuple[PreTrainedModel, Any]:
    classifier = load(str(source.name))
    if fingerprint(classifier.model, classifier.tokenizer) != source.key:
        raise ValueError(
            f"{source.name!r} on {platform.node()} is not the model that it is where the work was given out: give all "
            "machines the same files."
        )
    return classifier.model, classifier.tokenizer


def fingerprint(model: PreTrainedModel, tokenizer) -> str:
    """Return the SHA-256 of what decides a model's answers: class, settings, weights and tokenizer."""
    passing = ("_name_or_path", "transformers_version", "_attn_implementation_autoset")
    settings = {name: value for name, value in model.config.to_dict().items() if name not in passing}
    total = hashlib.sha256(json.dumps([type(model).__name__, settings, _about(tokenizer)], default=str).encode())
    for name, tensor in model.state_dict().items():
        flat = tensor.detach().cpu().contiguous().reshape(-1)
        total.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        total.update(flat.view(torch.uint8).numpy())
    return total.hexdigest()


def _about(tokenizer) -> Any:
    if not tokenizer.is_fast:
        return [type(tokenizer).__name__, sorted(tokenizer.get_vocab().items())]
    parts = json.loads(tokenizer.backend_tokenizer.to_str())
    return {name: part for name, part in parts.items() if name not in ("truncation", "padding")}  # change in use
