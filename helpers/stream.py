"""Attribution of as many texts as there are: to disk shard by shard, resumed after a kill, spread over workers.

    results = attribute_dataset(model, tokenizer, texts, "scores/", n_jobs=4)   # or open_dataset("scores/") later
    results[17].top_links(5)

Texts are cut into shards, and joblib hands these to workers, which write the files (:mod:`helpers._shards`) and report
no more than that they did. So memory does not grow with the number of texts, and no score goes through the process
that gives out the work; the price is that workers on other machines need to share the folder.
``joblib.parallel_config`` says where the workers are: ``notebooks/CLUSTER.md``.
"""

from __future__ import annotations

import json
import operator
import warnings
from collections.abc import Iterable, Iterator, Sequence, Set, Sized
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import joblib
from tqdm.auto import tqdm
from transformers import PreTrainedModel

from helpers import _worker
from helpers._pieces import Pieces, one_for_all, sizes
from helpers._shards import (
    FORMAT,
    MANIFEST,
    VERSION,
    Attributions,
    Shard,
    chain,
    open_dataset,
    run_of,
    settings_of,
    shards_of,
)
from helpers.attention import _OPEN, check_model
from helpers.engine import FLOOR, plan_of
from helpers.inputs import Text, check_texts, is_text
from helpers.models import load
from helpers.quadrature import check_steps
from helpers.records import read_json, write_json

__all__ = ["Attributions", "attribute_dataset", "open_dataset"]


def attribute_dataset(
    model: PreTrainedModel | str,
    tokenizer,
    texts: Iterable[Text],
    folder: str | Path,
    *,
    target: int | str | Iterable[int | str] | None = None,
    steps: int | str = "auto",
    rule: str | None = None,
    output: str = "probability",
    layers: Sequence[int] | None = None,
    baseline: str = "zero",
    tolerance: float = 0.01,
    floor: float = FLOOR,
    gap: bool = True,
    max_length: int | None = None,
    batch_tokens: int | None = None,
    precision: str = "float32",
    shard: int = 64,
    n_jobs: int | None = None,
    progress: bool = True,
) -> Attributions:
    """Attribute any number of texts as :func:`attribute` does, and leave the results in a folder.

    Called again with the same arguments, after a kill or for the same texts with more behind them, it does only what no
    shard in the folder holds yet. Memory: one shard a worker, about twice while it is written.

    Args:
        model, tokenizer: as for :func:`attribute`; or a name, folder or hub id and None: every worker then calls
            :func:`helpers.models.load` for itself, and takes a GPU where it has one.
        texts: strings or (first, second) pairs; a generator is read as it is needed.
        folder: where the shards go; made if it is not there.
        target: as for :func:`attribute`; one a text may come from a generator as well.
        shard: texts a file, fewer where they are long (256 MiB of scores and attention). It is what a kill can cost
            each worker, and texts of like length within it share batches. It may change between calls.
        n_jobs: workers, -1 for one a processor; None: what ``joblib.parallel_config`` says, or else 1. Each gets its
            share of the processors' threads.
        progress: show a progress bar with an estimate (of the rest only where ``texts`` has a length).

    The other arguments, and what is raised: see :func:`attribute`. ``batch_tokens`` may change between calls.

    Raises:
        ValueError: the folder holds the attributions of other texts, of another model, or with other settings; or the
            model is inside a ``touch`` block.

    >>> results = attribute_dataset(model, tokenizer, data.texts(data.load("sst2")), "scores/sst2", n_jobs=2)
    >>> results[0].top_links(3), results.top_links(1)
    """
    options: dict[str, Any] = dict(
        steps=steps, rule=rule, output=output, layers=layers, baseline=baseline, tolerance=tolerance, floor=floor,
        gap=gap, max_length=max_length, precision=precision,
    )  # fmt: skip
    _check(texts, target, shard)
    plan_of(steps, rule, output, baseline, tolerance, floor, gap, batch_tokens, precision)  # raises before any work
    folder = Path(folder).expanduser().resolve()
    here = _in_this_process(n_jobs)
    name = None if isinstance(model, PreTrainedModel) else model
    model, tokenizer = _opened(model, tokenizer, here)
    if any(id(model) in session.modules for session in _OPEN.get()):
        raise ValueError(
            "The model is inside touch(...): workers would know nothing of that, nor would the files that are kept. "
            "Use attribute(...), or close the touch first."
        )
    settings = _settings(_worker.fingerprint(model, tokenizer), target, options)
    options |= {"layers": settings["layers"], "batch_tokens": batch_tokens}
    shards = _begin(folder, settings)
    pieces = Pieces(texts, target, shards, shard, sizes(model, tokenizer, settings["layers"], max_length))
    with _given_out(model, tokenizer, settings["model"], name, folder, here) as source:
        tasks = (joblib.delayed(_worker.work)(source, folder, run_of(settings), *piece, options) for piece in pieces)
        total = len(texts) if isinstance(texts, Sized) else None
        with tqdm(total=total, initial=pieces.held, disable=not progress, desc="attribution", unit="text") as bar:
            _run(tasks, n_jobs, bar)
    if pieces.problem:
        raise pieces.problem
    _finish(folder, settings, pieces.total)
    return open_dataset(folder)


def _check(texts: Any, target: Any, shard: int) -> None:
    check_steps(shard, "shard")
    if is_text(texts):
        raise ValueError("One text was given: give a list of texts, or explain it with attribute().")
    whole: Any = list | dict | Set | bytes
    if not isinstance(texts, Iterable) or isinstance(texts, whole) or hasattr(texts, "columns"):
        check_texts(texts)  # all of a list at once; a generator is checked as it is read
    both = isinstance(texts, Sized) and isinstance(target, Sized) and not one_for_all(target)
    if both and len(texts) != len(target):
        raise ValueError(f"{len(target)} targets were given for {len(texts)} texts: give one for all, or one a text.")


def _in_this_process(n_jobs: int | None) -> bool:
    """True if joblib will run the shards here, so that the model need not be sent anywhere."""
    backend, _ = joblib.parallel.get_active_backend()
    default = type(backend) is joblib.parallel.BACKENDS[joblib.parallel.DEFAULT_BACKEND]
    return getattr(backend, "supports_sharedmem", False) or (default and joblib.effective_n_jobs(n_jobs) == 1)


def _opened(model, tokenizer, here: bool):
    """Return model and tokenizer, loaded where a name was given; on the CPU where others do the work."""
    if isinstance(model, str | Path):
        classifier = load(model, device="auto" if here else "cpu")
        return classifier.model, classifier.tokenizer
    check_model(model)
    return model, tokenizer


def _settings(model: str, target: object, options: dict[str, Any]) -> dict[str, Any]:
    """Return what decides the results, as JSON knows it."""
    layers = options["layers"]
    layers = [layers] if layers is not None and not isinstance(layers, Iterable) else layers
    try:
        layers = layers and [operator.index(n) for n in layers]
    except TypeError as error:
        raise ValueError(f"layers is {layers!r}: give whole numbers, or None for all.") from error
    if options["max_length"] is not None:
        check_steps(options["max_length"], "max_length")
    asked = target if one_for_all(target) else "one a text"
    settings = {"format": FORMAT, "version": VERSION, "model": model, "target": asked, **options, "layers": layers}
    return json.loads(json.dumps(settings, default=lambda number: number.item()))


def _begin(folder: Path, settings: dict[str, Any]) -> dict[int, Shard]:
    """Return the shards that are there already; ValueError if those there are of other settings."""
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{folder} is a file: give the name of a folder.")
    folder.mkdir(parents=True, exist_ok=True)
    manifest = read_json(folder / MANIFEST)
    old = settings_of(manifest)
    if manifest and old.get("format") != FORMAT:
        raise ValueError(f"{folder / MANIFEST} is of something else, and would be lost: give another folder.")
    shards = shards_of(folder, run_of(settings))
    if old != settings:
        strange = shards_of(folder, run_of(old)) if old else not shards and any(folder.glob("shard-*"))
        if strange:
            raise ValueError(
                f"{folder} holds attributions that are not those asked for ({_difference(old, settings)}). Give "
                "another folder, or the same arguments."
            )
        write_json(folder / MANIFEST, {"settings": settings, "texts": None, "starts": []})
    return shards


def _difference(old: dict[str, Any], new: dict[str, Any]) -> str:
    if not old:
        return f"its {MANIFEST} is gone or damaged"
    differ = [name for name in {**new, **old} if new.get(name) != old.get(name)]
    values = [f"{name}: {old.get(name)!r} there, {new.get(name)!r} now" for name in differ if name != "model"]
    return "; ".join(["another model or tokenizer"] * ("model" in differ) + values)


@contextmanager
def _given_out(
    model, tokenizer, key: str, name: str | Path | None, folder: Path, here: bool
) -> Iterator[_worker.Source]:
    """Put the model where the workers find it, and take it away again."""
    source = _worker.Source(key, None if name is None else str(name), None, None)
    try:
        if here:
            _worker.keep(key, model, tokenizer)
        elif name is None:
            source = _worker.send(key, model, tokenizer, folder)
        yield source
    finally:
        _worker.drop()
        if source.file:
            source.file.unlink(missing_ok=True)


def _run(tasks: Iterable, n_jobs: int | None, bar: tqdm) -> None:
    """Have the tasks done, in any order; one warning at the end for all that workers warned of."""
    first, count = (0, ""), 0  # what was warned of
    backend, _ = joblib.parallel.get_active_backend()
    as_they_come = "generator_unordered" if backend.supports_return_generator else "list"  # Ray gives all at the end
    # one shard a batch: joblib would put short ones together, and a kill would cost more of them
    parallel = joblib.Parallel(n_jobs=n_jobs, return_as=as_they_come, batch_size=1)
    for done in parallel(tasks):
        bar.update(done.shard.size)
        if done.warned:
            here = done.shard.start, done.warned[0]
            first, count = min(first, here) if count else here, count + 1
    if count:
        others = f" ({count - 1} more shards have warnings)" if count > 1 else ""
        warnings.warn(f"In the shard that begins with text {first[0]}: {first[1]}{others}", stacklevel=3)


def _finish(folder: Path, settings: dict[str, Any], total: int) -> None:
    """Write down that all is there, after looking; remove what killed workers left."""
    if not total:
        raise ValueError("No text was given: pass strings, or (first, second) tuples.")
    shards = shards_of(folder, run_of(settings))
    starts = chain(shards, total)
    reached = starts[-1] + shards[starts[-1]].size if starts else 0
    if reached != total:
        raise RuntimeError(
            f"Of {total} texts those from {reached} on are not in {folder}, though a worker reported them: the folder "
            "has to be in a place that all workers share. Call again to have the missing ones made."
        )
    whole = {"settings": settings, "texts": total, "starts": starts}
    if read_json(folder / MANIFEST) != whole:  # a folder that is done may be read-only
        write_json(folder / MANIFEST, whole)
    for left in [*folder.glob(".shard-*.safetensors.*.tmp"), *folder.glob(".model-*.pickle*")]:
        left.unlink(missing_ok=True)
