"""One training of an adapter: its settings, its steps, and a state that a later run goes on from exactly.

:func:`helpers.finetune.finetune` is the way in. The loop is written out because it has to be stopped and taken up
at any step with the same result to the last bit.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import os
import time
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from peft import LoraConfig, PeftModel, get_peft_model, get_peft_model_state_dict
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from tqdm.auto import tqdm

from helpers import models
from helpers._card import measures
from helpers.inputs import Text, check_texts, encode
from helpers.registry import ADAPTER_WEIGHTS

logger = logging.getLogger(__name__)

FORMAT = 1  # of the checkpoint file
ANOTHER_FILE = "give a file that is not there yet, or the checkpoint of a stopped run."
TARGETS = ("query", "key", "value", "intermediate.dense", "output.dense", "pooler.dense")  # of BERT and its kin


@dataclass(frozen=True)
class Settings:
    """How an adapter is trained.

    Attributes:
        rank: of the LoRA matrices; their scale alpha is twice the rank.
        rate: highest learning rate, reached after the warm-up and then lowered linearly to 0.
        epochs: passes over the training examples.
        batch_size: examples a step; a batch holds texts of similar length.
        max_length: tokens that a longer text is cut to.
        warmup: share of the steps in which the learning rate rises.
        weight_decay: of AdamW.
        clip: greatest norm of a step's gradient.
        precision: ``"float32"``, or ``"bfloat16"`` inside a step's forward and backward pass, which is quicker where
            the processor has it; weights, optimiser and every measurement are float32 either way.
        seed: of the first weights, of dropout and of the order of the examples; 0 or above.
        evaluate_every: steps from one look at the dev examples to the next; 0: once an epoch.
    """

    rank: int = 16
    rate: float = 5e-4
    epochs: int = 2
    batch_size: int = 32
    max_length: int = 128
    warmup: float = 0.06
    weight_decay: float = 0.01
    clip: float = 1.0
    precision: str = "float32"
    seed: int = 0
    evaluate_every: int = 0

    def __post_init__(self):
        """Refuse what cannot be meant, before any work."""
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(field.default, int) and (isinstance(value, bool) or not isinstance(value, int)):
                raise ValueError(f"{field.name} is {value!r}: it must be a whole number.")
            if field.name in ("rank", "rate", "epochs", "batch_size", "max_length", "clip") and not value > 0:
                raise ValueError(f"{field.name} is {value}: it must be above 0.")
            if field.name in ("warmup", "weight_decay", "seed", "evaluate_every") and not value >= 0:
                raise ValueError(f"{field.name} is {value}: it must be 0 or above.")
        if self.precision not in ("float32", "bfloat16"):
            raise ValueError(f"precision is {self.precision!r}: give 'float32' or 'bfloat16'.")


def check_labels(labels: Sequence[str]) -> tuple[str, ...]:
    """Return the class names, of which there have to be two or more, each its own and fit to be printed."""
    names = () if isinstance(labels, str) else tuple(labels)
    fit = all(isinstance(name, str) and name.strip() and name.isprintable() for name in names)
    if not fit or len(names) < 2 or len(set(names)) < len(names):
        raise ValueError(
            f"labels is {labels!r}: give at least two class names in the order of the logits, all different, each a "
            "text without line breaks such as 'positive' (numbers as text: '0', '1')."
        )
    return names


def examples(frame: pd.DataFrame, labels: Sequence[str]) -> tuple[list[Text], np.ndarray]:
    """Return the texts and the label numbers of a table with the columns first, second and label.

    Raises:
        ValueError: a column is missing, a label is unknown, or a text cannot be read; with the rows.
    """
    missing = {"first", "label"} - set(frame.columns)
    if missing or not len(frame):
        raise ValueError(f"The examples lack {sorted(missing) or 'rows'}: give a table with first, second and label.")
    _refuse([not isinstance(label, str) for label in frame["label"]], "has a label that is no text: give class names")
    unknown = sorted({str(label) for label in frame["label"]} - set(labels))
    if unknown:
        raise ValueError(f"The examples have the labels {unknown}; the model has {list(labels)}.")
    second = frame["second"] if "second" in frame else [""] * len(frame)
    texts = [(a, b) if b else a for a, b in zip(frame["first"], second, strict=True)]
    _refuse([not _readable(text) for text in texts], "has a text that is blank or no string: fill it in or drop it")
    paired = [isinstance(text, tuple) for text in texts]
    if any(paired):
        _refuse([not pair for pair in paired], "has no second text and others have: give one kind at a time")
    check_texts(texts)
    return texts, np.array([list(labels).index(label) for label in frame["label"]])


def _refuse(wrong: Sequence[bool], what: str) -> None:
    rows = [row for row, bad in enumerate(wrong) if bad]
    if rows:
        more = f" and {len(rows) - 5} more" if len(rows) > 5 else ""
        raise ValueError(
            f"{len(rows)} of {len(wrong)} examples cannot be used: each {what}. Rows, counted from 0: "
            f"{', '.join(map(str, rows[:5]))}{more}."
        )


def _readable(text: object) -> bool:
    """Whether each part is a string with something to see: a zero-width space alone makes no token."""
    parts = text if isinstance(text, tuple) else (text,)
    return all(
        isinstance(part, str) and any(letter.isprintable() and not letter.isspace() for letter in part)
        for part in parts
    )


def attach(model: nn.Module, settings: Settings) -> PeftModel:
    """Freeze a classifier and give it LoRA matrices; they and the classifier's head are what is trained.

    Raises:
        ValueError: the model's modules are not named as BERT's are.
    """
    names = {name.rpartition(".")[2] for name, _ in model.named_modules()}
    if missing := {"query", "key", "value", "classifier"} - names:
        raise ValueError(
            f"The base is a {type(model).__name__}, which has no modules named {', '.join(sorted(missing))}: adapters "
            "are made for BERT and its kin, such as MiniLM, RoBERTa, XLM-RoBERTa, ELECTRA and ALBERT. Give one of them."
        )
    config = LoraConfig(
        task_type="SEQ_CLS",
        r=settings.rank,
        lora_alpha=2 * settings.rank,
        target_modules=list(TARGETS),
        modules_to_save=["classifier"],
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # peft asks transformers by an old name
        return get_peft_model(model, config)


def relabel(peft: PeftModel, labels: Sequence[str]) -> None:
    """Give an adapter's classifier other labels, in place: where training for a related task starts from.

    A label that it knows keeps its row of weights. A new one starts at the mean of the rows that are given up, as
    ``not_entailment`` does between ``neutral`` and ``contradiction``; with no label in common all rows are drawn anew.
    """
    model = peft.get_base_model()
    old = [model.config.id2label[i] for i in range(model.config.num_labels)]
    if old == list(labels):
        return
    for module in model.classifier.modules():
        if isinstance(module, nn.Linear) and module.out_features == len(old):
            module.weight = _rows(module.weight, old, labels, model.config.initializer_range)
            module.bias = _rows(module.bias, old, labels, 0.0)
            module.out_features = len(labels)
    model.config.id2label = dict(enumerate(labels))
    model.config.label2id = {name: i for i, name in enumerate(labels)}
    model.num_labels = len(labels)


def _rows(rows: nn.Parameter, old: Sequence[str], labels: Sequence[str], spread: float) -> nn.Parameter:
    """The rows of a classifier's weights, one a label, in the new order."""
    new = torch.randn(len(labels), *rows.shape[1:]).to(rows) * spread
    given_up = [i for i, name in enumerate(old) if name not in labels]
    if 0 < len(given_up) < len(old):
        new[:] = rows.detach()[given_up].mean(dim=0)
    for i, label in enumerate(labels):
        if label in old:
            new[i] = rows.detach()[list(old).index(label)]
    return nn.Parameter(new, requires_grad=rows.requires_grad)


def batches(lengths: Sequence[int], batch_size: int, *, seed: int, epoch: int) -> list[np.ndarray]:
    """Row numbers of an epoch's batches: at random, yet similar lengths together, so that little is padding.

    They depend on seed and epoch alone: a resumed run finds its place by counting steps.
    """
    rng = np.random.default_rng([seed, epoch])
    order, lengths = rng.permutation(len(lengths)), np.asarray(lengths)
    found = []
    for chunk in np.split(order, range(50 * batch_size, len(order), 50 * batch_size)):
        chunk = chunk[np.argsort(lengths[chunk], kind="stable")]
        found += np.split(chunk, range(batch_size, len(chunk), batch_size))
    rng.shuffle(found)
    return found


class Trainer:
    """One training: where it stands, its best weights so far, and how to go on from a checkpoint."""

    def __init__(self, peft, tokenizer, train, dev, labels, settings: Settings, *, out: Path, base_id: str):
        """Take an adapter on its base and the examples; nothing is trained yet."""
        self.peft, self.model, self.tokenizer = peft, peft.get_base_model(), tokenizer
        self.labels, self.settings, self.out, self.base_id = tuple(labels), settings, out, base_id
        self.texts, gold = examples(train, labels)
        self.gold = torch.from_numpy(gold)
        self.dev_texts, self.dev_gold = examples(dev, labels)
        self.lengths = [sum(map(len, t)) if isinstance(t, tuple) else len(t) for t in self.texts]
        self.weights = {name: p for name, p in peft.named_parameters() if p.requires_grad}
        self.optimizer = torch.optim.AdamW(self.weights.values(), lr=0.0, weight_decay=settings.weight_decay)
        self.per_epoch = math.ceil(len(self.texts) / settings.batch_size)
        self.total = self.per_epoch * settings.epochs
        self.step, self.seconds, self.history = 0, 0.0, []
        self.best: dict[str, Tensor] = {}
        self.fingerprint = self._fingerprint()

    def fit(self, *, checkpoint: Path, every: int, progress: bool = True) -> None:
        """Train from the present step to the last, with a checkpoint every so many steps."""
        look_every = self.settings.evaluate_every or self.per_epoch
        epoch, order, clock = -1, [], time.perf_counter()
        with tqdm(total=self.total, initial=self.step, disable=not progress, unit="step") as bar:
            while self.step < self.total:
                if epoch != self.step // self.per_epoch:
                    epoch = self.step // self.per_epoch
                    order = batches(self.lengths, self.settings.batch_size, seed=self.settings.seed, epoch=epoch)
                loss = self.train_step(order[self.step % self.per_epoch])
                last = self.step == self.total
                if last or self.step % look_every == 0:
                    self.look()
                    bar.set_postfix(loss=f"{loss:.3f}", dev=f"{self.history[-1]['accuracy']:.4f}")
                if last or self.step % every == 0:
                    self.seconds, clock = self.seconds + time.perf_counter() - clock, time.perf_counter()
                    self.save(checkpoint)
                bar.update()

    def train_step(self, rows: np.ndarray) -> float:
        """Take one step of AdamW on one batch and return its loss."""
        self.model.train()
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate()
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*were cut to")  # max_length is chosen; a bar is on screen
            texts = [self.texts[i] for i in rows]
            inputs = encode(self.model, self.tokenizer, texts, max_length=self.settings.max_length).tensors
        device = inputs["input_ids"].device
        with torch.autocast(device.type, torch.bfloat16, enabled=self.settings.precision == "bfloat16"):
            logits = self.model(**inputs).logits.float()
        loss = nn.functional.cross_entropy(logits, self.gold[rows].to(device))
        if not torch.isfinite(loss):
            raise FloatingPointError(f"The loss at step {self.step} is {loss.item()}: lower the rate.")
        loss.backward()
        nn.utils.clip_grad_norm_(self.weights.values(), self.settings.clip)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.step += 1
        return loss.item()

    def rate(self) -> float:
        """Learning rate of the next step: up linearly to the highest, then down linearly to 0."""
        warm = max(1, round(self.settings.warmup * self.total))
        return self.settings.rate * min((self.step + 1) / warm, (self.total - self.step) / max(1, self.total - warm))

    def look(self) -> None:
        """Measure on dev; keep and export the weights where they are the best so far (accuracy, then loss)."""
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*were cut to")
            raw = models.predict_logits(
                self.model, self.tokenizer, self.dev_texts, batch_size=64, max_length=self.settings.max_length
            )
        found = measures(raw, self.dev_gold)
        now = {"step": self.step, "accuracy": found["accuracy"], "loss": found["loss"]}
        earlier = max(((h["accuracy"], -h["loss"]) for h in self.history), default=(-1.0, 0.0))
        self.history.append(now)
        logger.info("step %d of %d: dev accuracy %.4f", self.step, self.total, now["accuracy"])
        if (now["accuracy"], -now["loss"]) > earlier:
            self.best = {name: p.detach().cpu().clone() for name, p in self.weights.items()}
            self.export()

    def export(self) -> None:
        """Write the best weights in peft's own format, float16, with the base's public name and the labels."""
        named = dict(self.peft.named_parameters()) | self.best
        state = get_peft_model_state_dict(self.peft, state_dict=named, save_embedding_layers=False)
        config = self.peft.peft_config["default"].to_dict() | {"inference_mode": True}
        config["base_model_name_or_path"] = self.base_id
        config = {k: sorted(set(v)) if k in ("target_modules", "modules_to_save") else v for k, v in config.items()}
        self.out.mkdir(parents=True, exist_ok=True)
        write_text(self.out / "adapter_config.json", json.dumps(config, indent=2, sort_keys=True, default=str) + "\n")
        half = {name: tensor.detach().cpu().half().contiguous() for name, tensor in sorted(state.items())}
        meta = {"labels": json.dumps(self.labels)}  # one entry: the order of two is left to chance, and so the hash
        _write_tensors(self.out / ADAPTER_WEIGHTS, half, meta)

    def save(self, path: Path) -> None:
        """Write all that a later run needs to go on exactly from here, at once or not at all."""
        tensors = {f"now.{name}": p.detach() for name, p in self.weights.items()}
        tensors |= {f"best.{name}": p for name, p in self.best.items()}
        for i, state in self.optimizer.state_dict()["state"].items():
            tensors |= {f"adam.{i}.{key}": value for key, value in state.items()}
        tensors["rng.cpu"] = torch.get_rng_state()
        if torch.cuda.is_available():
            tensors["rng.cuda"] = torch.cuda.get_rng_state()
        about = {"step": self.step, "seconds": self.seconds, "history": self.history}
        path.parent.mkdir(parents=True, exist_ok=True)
        meta = {"format": str(FORMAT), "fingerprint": self.fingerprint, "about": json.dumps(about)}
        _write_tensors(path, {name: t.cpu().contiguous() for name, t in tensors.items()}, meta)

    def resume(self, path: Path) -> bool:
        """Go to where a checkpoint stands; False where there is none that can be read.

        Raises:
            ValueError: the file is no checkpoint and would be overwritten, or it is of another run: other settings,
                examples, base or torch.
        """
        if not path.is_file():
            return False
        try:
            with safe_open(path, "pt") as file:
                meta, tensors = file.metadata() or {}, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        except (SafetensorError, OSError) as error:
            if path.suffix != ".safetensors":
                raise ValueError(f"{path} is no checkpoint and would be overwritten: {ANOTHER_FILE}") from error
            logger.warning("%s cannot be read (%s): training starts anew", path, error)
            return False
        if "fingerprint" not in meta:
            raise ValueError(f"{path} holds weights of something else and would be overwritten: {ANOTHER_FILE}")
        if (meta.get("format"), meta.get("fingerprint")) != (str(FORMAT), self.fingerprint):
            raise ValueError(
                f"{path} is the checkpoint of another run (other settings, examples, base or version of torch): "
                "delete it to start anew, or give another checkpoint."
            )
        groups: dict[str, dict[str, Tensor]] = {"now": {}, "best": {}, "adam": {}, "rng": {}}
        for name, tensor in tensors.items():
            kind, rest = name.split(".", 1)
            groups[kind][rest] = tensor
        with torch.no_grad():
            for name, parameter in self.weights.items():
                parameter.copy_(groups["now"][name])
        state: dict[int, dict[str, Tensor]] = {}
        for name, tensor in groups["adam"].items():
            state.setdefault(int(name.split(".")[0]), {})[name.split(".")[1]] = tensor
        self.optimizer.load_state_dict({"state": state, "param_groups": self.optimizer.state_dict()["param_groups"]})
        self.best = groups["best"]
        vars(self).update(json.loads(meta["about"]))
        torch.set_rng_state(groups["rng"]["cpu"])
        if "cuda" in groups["rng"] and torch.cuda.is_available():
            torch.cuda.set_rng_state(groups["rng"]["cuda"])
        return True

    def _fingerprint(self) -> str:
        """What has to be equal for a checkpoint to be this run's: settings, examples, first weights, torch."""
        digest = hashlib.sha256(json.dumps([asdict(self.settings), self.labels, torch.__version__]).encode())
        digest.update(json.dumps([self.texts, self.gold.tolist(), self.dev_texts, self.dev_gold.tolist()]).encode())
        for _, parameter in self.peft.named_parameters():
            digest.update(parameter.detach().cpu().contiguous().numpy())
        return digest.hexdigest()


def _write_tensors(path: Path, tensors: dict[str, Tensor], metadata: dict[str, str]) -> None:
    """Write a safetensors file at once or not at all, readable for all as other files are."""
    part = path.with_name(path.name + ".part")
    save_file(tensors, part, metadata=metadata)
    part.chmod(0o644)
    os.replace(part, path)


def write_text(path: Path, text: str) -> None:
    """Write a text file at once or not at all."""
    part = path.with_name(path.name + ".part")
    part.write_text(text, encoding="utf-8")
    os.replace(part, path)
