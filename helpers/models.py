"""Models by name: found, verified by hash, loaded quietly, with their labels in a stated order.

The paper explains BERT-base-cased fine-tuned on MNLI, RTE, SST-2 and MRPC (section 4.1). Such models are here
under names like ``bert-base-cased-sst2`` and come from the hub. The default needs no network: MiniLM (BERT's
architecture, 6 layers of 12 heads) and one small adapter a task, such as ``minilm-sst2``.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import transformers
from peft import PeftModel, get_peft_model_state_dict
from safetensors import SafetensorError, safe_open
from torch import nn
from transformers import (
    AutoConfig,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from helpers.inputs import Text, encode
from helpers.outputs import logits_of, probabilities
from helpers.registry import (
    ADAPTER_WEIGHTS,
    BASE,
    REGISTRY,
    Entry,
    adapter_folder,
    base_folder,
    download,
    verify_download,
)


@dataclass(frozen=True)
class Classifier:
    """A model ready to be asked and explained.

    Attributes:
        model: a plain ``*ForSequenceClassification``, float32, in eval mode, its weights frozen.
        tokenizer: its tokenizer.
        labels: class names in the order of the logits; ``model.config.id2label`` says the same.
        name: what it was loaded as.
        device: where the model is.
    """

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    labels: tuple[str, ...]
    name: str
    device: torch.device

    def predict(self, texts: Text | Iterable[Text], *, batch_size: int | None = None) -> np.ndarray:
        """Return probabilities, float32 [text, class], in the order of the texts.

        A model with a single output has no probabilities: its raw output is returned.

        Args:
            texts: one text or a batch.
            batch_size: texts a forward pass; None: as many as suit the machine.

        Example:
            >>> load("minilm-sst2").predict("A warm, funny film.").shape
            (1, 2)
        """
        raw = torch.from_numpy(predict_logits(self.model, self.tokenizer, texts, batch_size=batch_size))
        return probabilities(raw, self.model.config).numpy()


def load(name: str | os.PathLike, *, device: str | torch.device = "auto", revision: str | None = None) -> Classifier:
    """Load a classifier by registry name, from a folder, or by its id on the hub.

    Args:
        name: a key of :data:`REGISTRY`; a folder that holds a transformers sequence classifier or an adapter
            made by :mod:`helpers.finetune`; or a hub id such as ``"org/model"``.
        device: ``"auto"`` takes a GPU where there is one.
        revision: commit or ref on the hub, for a hub id only.

    Raises:
        ValueError: no such model; its weights are not in safetensors; a hash or the labels do not fit.
        FileNotFoundError: the MiniLM base is not on this machine.
        ConnectionError: the hub did not give the model; the message says why, and what works without it.
    """
    entry = REGISTRY.get(str(name))
    adapter = adapter_folder(name)
    if adapter:
        peft, tokenizer = open_adapter(adapter, labels=entry.labels if entry else ())
        model = peft.merge_and_unload()
    elif entry:
        model, tokenizer = _whole(download(entry.hub_id, entry.revision), entry)
    elif str(name) and Path(name).is_dir():
        model, tokenizer = _whole(Path(name))
    elif str(name).count("/") == 1 and not str(name).startswith((".", "/", "~")):
        model, tokenizer = _whole(download(str(name), revision))
    else:
        raise ValueError(f"There is no model {str(name)!r}: give a folder, a hub id, or one of {', '.join(REGISTRY)}.")
    _check_finite(model, str(name))
    target = pick_device(device)
    labels = tuple(model.config.id2label[i] for i in range(model.config.num_labels))
    model.requires_grad_(False)  # a model is explained, not trained, with what this returns
    return Classifier(model.to(target).eval(), tokenizer, labels, str(name), target)


def load_base(base: str | os.PathLike, labels: Sequence[str]) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """An encoder under a classifier with these labels, untrained where the base has none: where fine-tuning starts.

    Args:
        base: ``"minilm"`` (or its hub id), a folder, or another hub id.
        labels: class names in the order that the logits shall have.
    """
    if str(base) in (BASE.name, BASE.hub_id):
        folder = base_folder()
    elif not Path(base).is_dir() and (str(base).count("/") > 1 or str(base).startswith((".", "/", "~"))):
        raise ValueError(f"There is no base model {str(base)!r}: give 'minilm', a folder that exists, or a hub id.")
    else:
        folder = Path(base) if Path(base).is_dir() else download(str(base), None)
    return _read(folder, labels=labels, fresh_head=True)


def open_adapter(
    folder: str | os.PathLike, *, labels: Sequence[str] = (), trainable: bool = False
) -> tuple[PeftModel, PreTrainedTokenizerBase]:
    """A base with an adapter on top, not merged yet.

    Args:
        folder: holds ``adapter_config.json`` and ``adapter_model.safetensors``.
        labels: class names that the adapter has to state; () accepts those it states.
        trainable: leave the adapter's weights open to training.
    """
    folder = Path(folder)
    weights, about = folder / ADAPTER_WEIGHTS, folder / "adapter_config.json"
    if not weights.is_file():
        raise ValueError(f"{folder} has no {ADAPTER_WEIGHTS}: adapters are read from safetensors only.")
    stated, names = _stated(weights)
    if labels and stated != tuple(labels):
        raise ValueError(f"{folder} states the labels {list(stated)}; asked for were {list(labels)}.")
    base = _base_of(about)
    try:
        model, tokenizer = load_base(base, stated)
    except ValueError as error:
        raise ValueError(f"The adapter in {folder} can't be put on its base: {error}") from error
    with _quiet(), _whole_files(folder):
        peft = PeftModel.from_pretrained(model, folder, is_trainable=trainable)
    needed = set(get_peft_model_state_dict(peft, save_embedding_layers=False))
    if off := sorted(needed ^ names):
        raise ValueError(
            f"{weights} and {about.name} do not fit together: {len(needed - names)} tensors that the settings call for "
            f"are missing, {len(names - needed)} are there that they do not use, the first of all {off[0]}. Get both "
            "again from one and the same training."
        )
    return peft, tokenizer


def _stated(weights: Path) -> tuple[tuple[str, ...], set[str]]:
    """The labels that an adapter's file states, and the names of its tensors."""
    with _whole_files(weights.parent), safe_open(weights, "pt") as file:
        raw, names = (file.metadata() or {}).get("labels", "[]"), set(file.keys())
    try:
        stated = json.loads(raw)
    except json.JSONDecodeError:
        stated = None
    if stated == []:
        raise ValueError(f"{weights} states no labels: train it with helpers.finetune, which notes them.")
    if not isinstance(stated, list) or not all(isinstance(x, str) for x in stated) or len(set(stated)) < len(stated):
        raise ValueError(f'{weights} states the labels {raw!r}: a JSON list of different names is needed, ["a", "b"].')
    return tuple(stated), names


def _base_of(about: Path) -> str:
    """The base that an ``adapter_config.json`` names."""
    try:
        base = json.loads(about.read_text(encoding="utf-8"))["base_model_name_or_path"]
    except FileNotFoundError as error:
        raise ValueError(f"{about.parent} has no {about.name}: an adapter consists of both files.") from error
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{about} is damaged ({error}): get it again.") from error
    except (KeyError, TypeError):
        base = None
    if not isinstance(base, str) or not base:
        raise ValueError(f'{about} does not say what the adapter belongs to: write "base_model_name_or_path" into it.')
    return base


def predict_logits(
    model: nn.Module,
    tokenizer,
    texts: Text | Iterable[Text],
    *,
    batch_size: int | None = None,
    max_length: int | None = None,
) -> np.ndarray:
    """Return the raw outputs, float32 [text, class], in the order of the texts; the model keeps its mode.

    Texts of similar length share a batch, so that little is padding. A caller's autocast is left aside: the
    model answers in its own precision.
    """
    encoded = encode(model, tokenizer, texts, max_length=max_length)
    found: dict[int, np.ndarray] = {}
    training = model.training
    model.eval()
    try:
        with torch.inference_mode(), torch.autocast(encoded.device.type, enabled=False):
            for rows in encoded.rows_by_length(batch_size):
                raw = logits_of(model(**encoded.batch(rows)))
                found.update(zip(rows, raw.float().cpu().numpy(), strict=True))
    finally:
        model.train(training)
    return np.stack([found[row] for row in sorted(found)])


def pick_device(device: str | torch.device = "auto") -> torch.device:
    """The device meant; ``"auto"`` is a GPU where there is one, else the CPU."""
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return torch.device(device)


def set_seed(seed: int) -> None:
    """Seed Python, NumPy and torch, and ask torch for deterministic algorithms where it has them."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # what CUDA needs to add in a fixed order
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)
    torch.use_deterministic_algorithms(True, warn_only=True)


def _whole(folder: Path, entry: Entry | None = None) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """A classifier that needs no adapter; labels without a name get the registry's."""
    if entry:
        verify_download(folder, entry)
    model, tokenizer = _read(folder)
    names = [model.config.id2label[i] for i in range(model.config.num_labels)]
    if entry:
        unnamed = [f"LABEL_{i}" for i in range(len(entry.labels))]
        if [name.lower() for name in names] != list(entry.labels) and names != unnamed:
            raise ValueError(
                f"{entry.name} has the labels {names}; the registry states {list(entry.labels)}. Correct the labels of "
                "its entry in helpers/registry.py, or load it by its folder, which takes the model's own."
            )
        model.config.id2label = dict(enumerate(entry.labels))
        model.config.label2id = {name: i for i, name in enumerate(entry.labels)}
    return model, tokenizer


def _read(
    folder: Path, *, labels: Sequence[str] = (), fresh_head: bool = False
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Model and tokenizer of a folder; only ``fresh_head`` lets weights be missing and hence random."""
    if not list(folder.glob("*.safetensors")):
        others = sorted(p.name for pattern in ("*.bin", "*.pt", "*.pth", "*.h5") for p in folder.glob(pattern))
        raise ValueError(
            f"{folder} has no *.safetensors{' but ' + ', '.join(others) if others else ''}: pickled weights can run "
            "code and are refused. Save the model again with model.save_pretrained(folder), or give a revision that "
            "has safetensors."
        )
    names = dict(enumerate(labels))
    options = {"id2label": names, "label2id": {name: i for i, name in names.items()}} if names else {}
    with _quiet(), _whole_files(folder):
        config = AutoConfig.from_pretrained(folder, trust_remote_code=False, **options)
        saved_as = list(config.architectures or [])
        model, report = AutoModelForSequenceClassification.from_pretrained(
            folder, config=config, dtype=torch.float32, use_safetensors=True, trust_remote_code=False,
            output_loading_info=True, ignore_mismatched_sizes=fresh_head,
        )  # fmt: skip
        tokenizer = _tokenizer(folder)
    vocabulary = tokenizer.vocab_files_names.values()
    if vocabulary and not any((folder / name).is_file() for name in vocabulary):
        raise ValueError(  # transformers makes an empty one, to which every word is unknown
            f"{folder} has no tokenizer (no {', no '.join(vocabulary)}): tokenizer.save_pretrained(folder) writes it."
        )
    if sorted(model.config.id2label) != list(range(model.config.num_labels)):
        raise ValueError(
            f"{folder}/config.json numbers its labels {sorted(model.config.id2label)}: id2label has to name each of "
            f"the {model.config.num_labels} outputs, from 0 on."
        )
    missing = sorted(report["missing_keys"])
    if missing and not fresh_head:
        raise ValueError(
            f"{folder} is no trained classifier: the weights {', '.join(missing[:4])} are missing and would be random. "
            "Fine-tune it first (python -m helpers.finetune --help)."
        )
    made_for = saved_as or ["ForSequenceClassification"]
    if not fresh_head and not any("ForSequenceClassification" in name for name in made_for):
        raise ValueError(f"{folder} holds a {made_for[0]}: a model for sequence classification is needed.")
    return model, tokenizer


def _tokenizer(folder: Path) -> PreTrainedTokenizerBase:
    try:
        return AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    except Exception as error:  # a damaged tokenizer.json is a bare Exception of the tokenizers library
        raise ValueError(
            f"The tokenizer in {folder} (tokenizer.json, tokenizer_config.json) can't be read "
            f"({_first_line(error)}): get it again, or write it with tokenizer.save_pretrained(folder)."
        ) from error


def _check_finite(model: nn.Module, name: str) -> None:
    """Refuse weights that are NaN or infinite: all answers would be, or none of them would mean anything."""
    bad = [key for key, weight in model.named_parameters() if not torch.isfinite(weight).all()]
    if bad:
        raise ValueError(
            f"{name} has {len(bad)} weight tensors with NaN or infinity, the first {bad[0]}: its training diverged "
            "(train again, at a lower rate), or the file is damaged (get it again)."
        )


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).split("\n")[0]


@contextlib.contextmanager
def _whole_files(folder: Path) -> Iterator[None]:
    """Say which folder it is whose weights are cut short, or do not fit its settings."""
    try:
        yield
    except SafetensorError as error:
        raise ValueError(f"The weights in {folder} are damaged or cut short ({error}): get them again.") from error
    except (RuntimeError, KeyError, TypeError) as error:
        if isinstance(error, RuntimeError) and "size" not in str(error):
            raise
        raise ValueError(
            f"The weights in {folder} do not fit its settings: one is missing or of another size, or the labels in "
            f"config.json, or those that the adapter states, are more or fewer ({' '.join(str(error).split())[:300]})."
        ) from error


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silence transformers' load reports and progress bars, and restore both afterwards."""
    log = transformers.logging
    verbosity, bars = log.get_verbosity(), log.is_progress_bar_enabled()
    log.set_verbosity_error()
    log.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # peft asks transformers by an old name
            yield
    finally:
        log.set_verbosity(verbosity)
        if bars:
            log.enable_progress_bar()
