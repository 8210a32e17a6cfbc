"""What an attribution is when it is done: arrays, tokens and the numbers that say how far to trust it.

Arrays only, no torch: an :class:`Attribution` can be plotted, saved and loaded where no model is.
"""

from __future__ import annotations

import json
import os
import platform
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
import pandas as pd
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from helpers.inputs import Text, Word

FORMAT = "attattr-attribution"
VERSION = 1
ARRAYS = ("scores", "attention", "start", "gap", "steps")


@dataclass(frozen=True, eq=False)
class Attribution:
    """The attribution of every attention link of one text, Attr_h(A) = A_h * integral of dF(aA)/dA_h da.

    Attributes:
        scores: Attr, float32 [layer, head, query, key], in the unit of F; query receives from key.
        attention: A, float32, same shape.
        layers: the layer number of each entry of axis 0.
        text: the text as given.
        tokens: the model's tokens, padding cropped.
        words: the words as written, as spans of tokens.
        labels: the class names in logit order.
        target: the class explained (index into labels).
        predicted: the class with the largest output.
        probability: the model's probability of the target class (nan for a single raw output).
        value: F(A), the output explained.
        output: what F is: "probability", "logit", "log-probability" or "raw".
        start: F where the layer's attention is the baseline (0 by default), float64 [layer].
        gap: sum of the layer's scores minus (value - start), float64 [layer]; 0 for an exact integral.
        steps: points used, int64 [layer].
        rule: the quadrature rule.
        baseline: where the path starts, "zero" or "mean".
        precision: the model's number format, such as "float32"; sums are float32 where it is a half one.
    """

    scores: np.ndarray
    attention: np.ndarray
    layers: tuple[int, ...]
    text: Text
    tokens: tuple[str, ...]
    words: tuple[Word, ...]
    labels: tuple[str, ...]
    target: int
    predicted: int
    probability: float
    value: float
    output: str
    start: np.ndarray
    gap: np.ndarray
    steps: np.ndarray
    rule: str
    baseline: str = "zero"
    precision: str = "float32"

    def __repr__(self) -> str:
        layers, heads, tokens, _ = self.scores.shape
        return (
            f"Attribution({self.labels[self.target]!r}, {self.output} {self.value:.4f}; {layers} layers x {heads} "
            f"heads x {tokens} tokens; {self.rule}, {int(self.steps.max())} points; "
            f"largest gap {np.abs(self.gap).max():.1e}"
            + ("" if self.precision in ("float32", "float64") else f"; model in {self.precision}, sums in float32")
            + ")"
        )

    def layer_scores(self) -> np.ndarray:
        """Return the scores summed over heads, [layer, query, key]."""
        return self.scores.sum(axis=1)

    def top_links(self, k: int = 10) -> pd.DataFrame:
        """Return the k links with the largest scores, over all layers and heads, largest first.

        Columns: layer, head, query, key (positions), query_token, key_token, score (unit of F),
        attention. Ties are broken by layer, head, query, key.
        """
        if isinstance(k, bool) or not isinstance(k, int | np.integer) or k < 1:
            raise ValueError(f"k is {k!r}: give the number of links, at least 1.")
        order = np.argsort(-self.scores.ravel(), kind="stable")[:k]
        layer, head, query, key = np.unravel_index(order, self.scores.shape)
        return pd.DataFrame(
            {
                "layer": np.asarray(self.layers)[layer],
                "head": head,
                "query": query,
                "key": key,
                "query_token": [self.tokens[i] for i in query],
                "key_token": [self.tokens[j] for j in key],
                "score": self.scores.ravel()[order],
                "attention": self.attention.ravel()[order],
            }
        )

    def parts(self) -> tuple[dict[str, np.ndarray], str]:
        """Return the arrays, and the rest as JSON: what files hold, and :meth:`of_parts` takes."""
        rest = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in ARRAYS}
        return {name: np.ascontiguousarray(getattr(self, name)) for name in ARRAYS}, json.dumps(rest)

    @classmethod
    def of_parts(cls, arrays: dict[str, np.ndarray], rest: str) -> Attribution:
        """Return the attribution that :meth:`parts` took apart."""
        values = json.loads(rest)
        values["words"] = tuple(Word(*word) for word in values["words"])
        values["text"] = tuple(values["text"]) if isinstance(values["text"], list) else values["text"]
        for name in ("layers", "tokens", "labels"):
            values[name] = tuple(values[name])
        return cls(**arrays, **values)

    def save(self, path: str | Path) -> Path:
        """Write one safetensors file: the arrays, and the rest as JSON in its header. Return its path.

        The file appears whole or not at all.
        """
        path = Path(path).expanduser()
        if path.is_dir() or not path.name:
            raise ValueError(f"{str(path)!r} is a folder: give the name of a file, such as 'one.safetensors'.")
        arrays, rest = self.parts()
        header = {"format": FORMAT, "version": str(VERSION), "attribution": rest}
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, arrays, header)
        return path

    @classmethod
    def load(cls, path: str | Path) -> Attribution:
        """Read what :meth:`save` wrote.

        Raises:
            FileNotFoundError: there is no such file.
            ValueError: it is no attribution, is cut short, or comes from another version.
        """
        path = Path(path).expanduser()
        if not path.is_file():
            raise FileNotFoundError(f"There is no attribution file at {path}.")
        try:
            with safe_open(path, framework="numpy") as file:
                header = file.metadata() or {}
                if header.get("format") != FORMAT or header.get("version") != str(VERSION):
                    raise ValueError(
                        f"{path} holds {header.get('format')!r} version {header.get('version')!r}; this version reads "
                        f"{FORMAT!r} version {VERSION}. Compute the attribution again."
                    )
                arrays = {name: file.get_tensor(name) for name in ARRAYS}
            return cls.of_parts(arrays, header["attribution"])
        except (SafetensorError, KeyError, TypeError, json.JSONDecodeError) as error:
            raise ValueError(f"{path} is damaged or no attribution file ({error!r}): compute it again.") from error


def write_whole(path: Path, arrays: dict[str, np.ndarray], header: dict[str, str]) -> None:
    """Write a safetensors file that appears whole or not at all, whichever machines of a shared folder write it."""
    unfinished = path.with_name(f".{path.name}.{platform.node()}-{os.getpid()}.tmp")
    try:
        save_file(arrays, unfinished, metadata=header)
        os.replace(unfinished, path)
    finally:
        unfinished.unlink(missing_ok=True)
