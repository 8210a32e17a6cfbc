"""Many attributions in a folder: files of some texts each, and a lazy list over all of them.

A shard, ``shard-000000064.safetensors``, holds the texts from its number on: five arrays a text, named
``<position>.scores`` and so on, and in the header all the rest. It appears whole or not at all, and says which
settings it was made with (``run``) and of which texts (``digest``), so that a later call knows what it need not do
again. ``manifest.json`` holds the settings and, once all is done, where every shard begins.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, overload

import numpy as np
import pandas as pd
from safetensors import SafetensorError, safe_open

from helpers.inputs import Text
from helpers.records import read_json
from helpers.result import ARRAYS, Attribution, write_whole

FORMAT = "attattr-shard"
VERSION = 1
MANIFEST = "manifest.json"


class Shard(NamedTuple):
    """A whole shard in a folder: ``size`` texts from ``start`` on, and their digest."""

    start: int
    size: int
    digest: str


def digest(texts: Sequence[Text], targets: object = None) -> str:
    """Return the SHA-256 of texts and of the classes asked for."""
    asked = [_written(t) for t in targets] if isinstance(targets, list) else None
    return hashlib.sha256(json.dumps([list(texts), asked]).encode()).hexdigest()


def _written(target: Any) -> str:
    """Return a class as text; one that is named "1" is not class 1."""
    return repr(target) if isinstance(target, str) and target.lstrip("-").isdigit() else str(target)


def run_of(settings: dict[str, Any]) -> str:
    """Return the short name of settings that shards carry: equal for equal settings."""
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:16]


def write_shard(folder: Path, run: str, shard: Shard, results: Sequence[Attribution]) -> None:
    """Write the attributions of one shard's texts; the file appears whole or not at all."""
    path = path_of(folder, shard.start)
    header = {"format": FORMAT, "version": str(VERSION), "run": run, **{k: str(v) for k, v in shard._asdict().items()}}
    arrays = {}
    for position, a in enumerate(results, start=shard.start):
        own, header[str(position)] = a.parts()
        arrays |= {f"{position}.{name}": array for name, array in own.items()}
    write_whole(path, arrays, header)


def settings_of(manifest: dict[str, Any]) -> dict[str, Any]:
    """Return the settings in a manifest, {} where it holds none."""
    settings = manifest.get("settings")
    return settings if isinstance(settings, dict) else {}


def path_of(folder: Path, start: int) -> Path:
    """Return the file of the shard that begins with text ``start``."""
    return folder / f"shard-{start:09d}.safetensors"


def shards_of(folder: Path, run: str) -> dict[int, Shard]:
    """Return the whole shards of a run by where they begin; what is cut short or of other settings is passed over."""
    found = {}
    for path in sorted(folder.glob("shard-*.safetensors")):
        try:
            with safe_open(path, framework="numpy") as file:  # refuses a file shorter than its header says
                header = file.metadata() or {}
        except (SafetensorError, OSError):
            continue
        if (header.get("format"), header.get("version"), header.get("run")) == (FORMAT, str(VERSION), run):
            shard = Shard(int(header["start"]), int(header["size"]), header["digest"])
            if path == path_of(folder, shard.start):
                found[shard.start] = shard
    return found


def chain(shards: dict[int, Shard], total: int) -> list[int]:
    """Return where the shards begin that hold the texts 0 to ``total`` - 1 once each; ends early at a gap."""
    starts, position = [], 0
    while position < total and position in shards:
        starts.append(position)
        position += shards[position].size
    return starts


def open_dataset(folder: str | Path) -> Attributions:
    """Return the attributions that ``attribute_dataset`` left in a folder, as a list that reads them when asked.

    Raises:
        FileNotFoundError: there is no such folder, or a shard has gone.
        ValueError: it is unfinished, or of another version.
    """
    folder = Path(folder).expanduser().resolve()
    if not (folder / MANIFEST).is_file():
        raise FileNotFoundError(f"{folder} holds no {MANIFEST}: give the folder that attribute_dataset wrote into.")
    manifest = read_json(folder / MANIFEST)
    settings, starts, total = settings_of(manifest), manifest.get("starts"), manifest.get("texts")
    if settings.get("format") != FORMAT or settings.get("version") != VERSION:
        raise ValueError(
            f"{folder / MANIFEST} is of {settings.get('format')!r} version {settings.get('version')!r}; this version "
            f"reads {FORMAT!r} version {VERSION}. Run attribute_dataset again, into another folder."
        )
    if not starts or not total:
        raise ValueError(
            f"{folder} is unfinished: call attribute_dataset once more with the same arguments, and it makes the rest."
        )
    gone = [path for start in starts if not (path := path_of(folder, start)).is_file()]
    if gone:
        raise FileNotFoundError(
            f"{len(gone)} of {len(starts)} shards are gone, the first {gone[0]}: call attribute_dataset once more with "
            "the same arguments to make them again."
        )
    return Attributions(folder, starts, run_of(settings), range(total))


class Attributions(Sequence[Attribution]):
    """The attributions in a folder, in the order of the texts: a list whose items are read from disk when asked for.

    Only the item asked for is held; a slice is such a list again. Made by :func:`open_dataset`.
    """

    def __init__(self, folder: Path, starts: Sequence[int], run: str, positions: range):
        self.folder = folder
        self._starts = starts
        self._run = run
        self._positions = positions

    def __len__(self) -> int:
        return len(self._positions)

    def __repr__(self) -> str:
        return f"Attributions({len(self):,} texts in {self.folder})"

    @overload
    def __getitem__(self, index: int) -> Attribution: ...
    @overload
    def __getitem__(self, index: slice) -> Attributions: ...
    def __getitem__(self, index):
        """Return one attribution, or for a slice a list of the same kind."""
        if isinstance(index, slice):
            return Attributions(self.folder, self._starts, self._run, self._positions[index])
        return next(self._read([self._positions[index]]))

    def __iter__(self) -> Iterator[Attribution]:
        return self._read(self._positions)

    def top_links(self, k: int = 10) -> pd.DataFrame:
        """Return the k strongest links of every text, one table: ``text`` (its number), then as for one attribution."""
        frames = [a.top_links(k).assign(text=n) for n, a in zip(self._positions, self, strict=True)]
        if not frames:
            raise ValueError("There is no text in this slice: take a wider one.")
        frame = pd.concat(frames, ignore_index=True)
        return frame[["text", *frame.columns.drop("text")]]

    def _read(self, positions: Sequence[int]) -> Iterator[Attribution]:
        """Yield attributions, a shard opened once for those next to each other."""
        numbers = np.searchsorted(self._starts, positions, side="right") - 1
        begin = 0
        for end in [*(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(positions)]:
            if begin < end:
                yield from self._read_shard(self._starts[numbers[begin]], positions[begin:end])
            begin = end

    def _read_shard(self, start: int, positions: Sequence[int]) -> Iterator[Attribution]:
        path = path_of(self.folder, start)
        try:
            with safe_open(path, framework="numpy") as file:  # maps the file: only what is taken out is read
                header = file.metadata() or {}
                if header.get("run") != self._run:
                    raise ValueError(f"{path} was made with other settings. Run attribute_dataset once more.")
                for n in positions:
                    arrays = {name: file.get_tensor(f"{n}.{name}") for name in ARRAYS}
                    yield Attribution.of_parts(arrays, header[str(n)])
        except (SafetensorError, KeyError) as error:
            raise ValueError(f"{path} is damaged ({error!r}): run attribute_dataset once more.") from error
