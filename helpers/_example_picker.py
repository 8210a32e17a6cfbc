"""Controls that name a text: one that is typed, one of a list, or a row of a file of yours (part of widgets)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path

import ipywidgets

from helpers import _widget_parts as parts
from helpers import data
from helpers._browser_parts import Panel
from helpers._widget_parts import Text

USUAL = [*dict.fromkeys(task.columns for task in data.TASKS.values()), ("text",), ("premise", "hypothesis")]
USUAL.append(data.COLUMNS[:2])
SOURCES = {"typed": "what I type", "example": "an example", "file": "a row of my file"}


def row_of(path: str, number: int, *, pair: bool = False, columns: Sequence[str] = ()) -> Text:
    """Return the text in a row of a tab-separated file with a header; a pair where one is asked for.

    Args:
        path: the file.
        number: of the row, from 1; the header isn't counted, nor are blank lines.
        pair: whether two columns are wanted.
        columns: their names; if empty, the usual ones that are in the header.

    Raises:
        ValueError: no path, no such column or row, or the file isn't as it should be; the message says what to do.
        FileNotFoundError: no such file.
    """
    if not path.strip():
        raise ValueError("No file is named: give the path of a tab-separated file with a header line.")
    file = Path(path.strip()).expanduser()
    wanted = 1 + pair
    names = tuple(name.strip() for name in columns if name.strip()) or _usual(file, wanted)
    if len(names) != wanted:
        raise ValueError(
            f"{len(names)} column was named, and the model reads pairs of texts: name two."
            if pair
            else f"{len(names)} columns were named, and the model reads one text: name one."
        )
    texts = _texts(str(file), file.stat().st_mtime_ns if file.is_file() else 0, names)
    if not 1 <= number <= len(texts):
        raise ValueError(f"There is no row {number} in {file}: its rows are 1 to {len(texts)}, the header not counted.")
    return texts[number - 1]


@lru_cache(maxsize=2)  # the next row of the same file comes at once; a file that was changed is read again
def _texts(path: str, changed: int, names: tuple[str, ...]) -> list[Text]:
    second = names[1] if len(names) == 2 else None
    return list(data.texts(data.read(path, first=names[0], second=second)))


def _usual(file: Path, wanted: int) -> tuple[str, ...]:
    """Return the first of the usual names of text columns that a file has."""
    with data.own_file(file).open(encoding="utf-8-sig", errors="replace") as lines:
        header = [name.strip() for name in lines.readline().rstrip("\r\n").split("\t")]
    found = next((names for names in USUAL if len(names) == wanted and set(names) <= set(header)), None)
    if found is None:
        kind = "two texts" if wanted == 2 else "the text"
        raise ValueError(
            f"None of the columns of {file} has a usual name for {kind}: type the name. There are, split at tabs: "
            f"{', '.join(map(repr, header))}."
        )
    return found


class ExamplePicker(Panel):
    """Controls that name a text, and hand it on.

    Its controls: ``source``, ``fields`` (one a text), ``example``, ``path``, ``columns``, ``row``, ``button``; what it
    says: ``message``.

    Args:
        work: takes the text and returns what to say about it, as HTML; its errors are shown.
        start_text: what stands in the fields; a pair makes two.
        examples: texts to choose from.
        place: where ``work`` shows its answer; hidden after an error, under which an old answer would mislead.
    """

    def __init__(
        self,
        work: Callable[[Text], str],
        *,
        start_text: Text,
        examples: Sequence[Text] = (),
        place: ipywidgets.Box | None = None,
    ):
        self._work, self._place, self._waiting = work, place or ipywidgets.VBox(), True
        self.source = parts.dropdown("Explain", [])
        self.example = parts.dropdown("Example", [], width="44rem")
        self.fields = [parts.field(name, "") for name in ("First text", "Second text")]
        self.path = parts.field("File", "")
        self.path.placeholder = "path/to/mine.tsv"
        self.columns = [parts.field(name, "") for name in ("Column", "Second column")]
        for column in self.columns:
            column.layout.width, column.placeholder = "16rem", "found by its usual name"
        self.row = ipywidgets.BoundedIntText(
            description="Row", value=1, min=1, max=10**9, layout=ipywidgets.Layout(width="10rem"),
            style={"description_width": "4.5rem"}, tooltip="from 1; the header line is not counted",
        )  # fmt: skip
        self.button = ipywidgets.Button(button_style="primary", tooltip="Explain this text")
        self.message = parts.message()
        self._file = ipywidgets.VBox(
            [self.path, parts.row(*self.columns, self.row)], layout=ipywidgets.Layout(max_width="100%")
        )
        inside = [self.source, self.example, *self.fields, self._file, self.button, self.message]
        super().__init__(inside)
        self._ready()
        self.offer(start_text, examples)
        self.button.on_click(lambda _: self.run())
        for field in (*self.fields, self.path, *self.columns):
            field.on_msg(self._entered)
        for control in (self.source, self.example, self.row):
            control.observe(self._chosen, "value")

    @property
    def text(self) -> Text:
        """The text named now; a ValueError or FileNotFoundError says why there is none."""
        if self.source.value == "example":
            return self._examples[self.example.value]
        if self.source.value == "file":
            named = [column.value for column in self.columns[: 1 + self._pair]]
            return row_of(self.path.value, self.row.value, pair=self._pair, columns=named)
        return (self.fields[0].value, self.fields[1].value) if self._pair else self.fields[0].value

    def offer(self, start_text: Text, examples: Sequence[Text] = ()) -> None:
        """Put other texts in, for instance those of another model; nothing is explained yet."""
        self._waiting = True
        try:
            self._pair, self._examples = isinstance(start_text, tuple), list(examples)
            for field, text in zip(self.fields, start_text if self._pair else (start_text,), strict=False):
                field.value = text
            self.fields[0].description = "First text" if self._pair else "Sentence"
            offered = [(said, name) for name, said in SOURCES.items() if examples or name != "example"]
            parts.refill(self.source, offered)
            parts.refill(self.example, parts.numbered(self._examples))
            self._arrange()
        finally:
            self._waiting = False

    def run(self) -> bool:
        """Hand the text on, show what came of it, and return whether it went well."""
        self.button.disabled, self.button.description = True, "Explaining…"
        self.message.value = parts.line("Explaining…")
        try:
            done = parts.attempt(self.message, lambda: self._work(self.text))
            self._place.layout.display = None if done else "none"
        finally:
            self._ready()
        return done

    def _ready(self) -> None:
        self.button.disabled, self.button.description = False, "Explain"

    def _arrange(self) -> None:
        """Show the controls of the source chosen, and no others."""
        source = self.source.value
        for control, wanted in (
            (self.example, source == "example"),
            (self.fields[0], source == "typed"),
            (self.fields[1], source == "typed" and self._pair),
            (self._file, source == "file"),
            (self.columns[1], self._pair),
        ):
            control.layout.display = None if wanted else "none"

    def _chosen(self, change) -> None:
        if self._waiting:
            return
        self._arrange()
        if self.source.value != "file" or self.path.value.strip():
            self.run()
        else:
            self.message.value = parts.line("Name a tab-separated file with a header line, and press Enter.")

    def _entered(self, _, content, buffers) -> None:
        if content.get("event") == "submit":
            self.run()
