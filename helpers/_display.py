"""What the figures share: colours, labels that are shown literally, titles and notes.

Private to :mod:`helpers.plots` and :mod:`helpers.widgets`. "Attribution" here is anything with the fields of
:class:`helpers.result.Attribution`.
"""

from __future__ import annotations

import html
import unicodedata

import numpy as np
import plotly.graph_objects as go

# Attention is a share, so it runs from pale (0) to dark. Attribution has a sign, so white is 0 and the two ends
# differ in hue and not only in lightness; blue and orange stay apart under every common colour blindness.
ATTENTION = ("#f7f7f5", "#d3e2d7", "#a5cbb9", "#74b09f", "#4c9089", "#336e74", "#24495c", "#152a42")
ATTRIBUTION = ("#0b3c6f", "#2a6faf", "#74a9d4", "#c3daec", "#ffffff", "#fbd9b4", "#f4a55a", "#d96a0b", "#7f3b08")
RAISES, LOWERS = ATTRIBUTION[-2], ATTRIBUTION[1]
INK, FAINT, RULE = "#1f2430", "#6b7280", "#e3e5e8"
FONT = "DejaVu Sans, Verdana, Arial, sans-serif"
UNKNOWN = ("[UNK]", "<unk>")
PAPER = {  # matplotlib's settings for every figure
    "axes.edgecolor": FAINT,
    "axes.labelcolor": INK,
    "axes.titlelocation": "left",
    "axes.titleweight": "bold",
    "figure.dpi": 110,
    "figure.facecolor": "white",
    "font.family": "DejaVu Sans",
    "grid.color": RULE,
    "savefig.facecolor": "white",
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
}
LONGEST = 18  # characters of a label; longer ones end in "…"


def literal(text: str) -> str:
    """Return text that plotly and ipywidgets show as it is: no HTML tags, and no formula between $ signs."""
    return html.escape(text, quote=False).replace("$", "&#36;")


def cut(text: str, longest: int = LONGEST) -> str:
    """Return the text on one line, cut to a number of characters."""
    text = " ".join(text.split())
    return text if len(text) <= longest else text[: longest - 1] + "…"


def labels(a) -> list[str]:
    """Return one label a token: a word of one token as it was written, a piece of a word as the tokenizer has it.

    A word the tokenizer doesn't know shows both, what was written and what the model sees.
    """
    names = list(a.tokens)
    for word in a.words:
        if word.segment is not None and word.stop - word.start == 1:
            token = names[word.start]
            names[word.start] = f"{word.text} ({token})" if token in UNKNOWN else word.text
    return [cut(name) for name in names]


def special(a) -> set[int]:
    """Return the positions of tokens such as [CLS] that stand for no word of the text."""
    return {i for word in a.words if word.segment is None for i in range(word.start, word.stop)}


def signed(value: float) -> str:
    """Return a number with its sign and 3 significant digits."""
    return f"{value:+#.3g}".replace("-", "−")


def text_width(text: str, size: float) -> float:
    """Return about how many pixels a text takes in a font of that size."""
    return sum(1.3 if unicodedata.east_asian_width(c) in "WF" else 0.62 for c in text) * size


def unit(a) -> str:
    """Return the unit of the scores."""
    return "raw output" if a.output == "raw" else a.output


def function(a) -> str:
    """Return the output explained, in words."""
    return "the raw output" if a.output == "raw" else f"the {a.output} of “{cut(a.labels[a.target], 20)}”"


def explained(a) -> str:
    """Return what the figure explains, as plain text: the output, its class, its value, and what is predicted."""
    what = f"explains {function(a)}, {a.value:.3g}"
    if a.output == "raw":
        return what
    if a.output != "probability":
        what += f" (probability {a.probability:.3g})"
    predicted = cut(a.labels[a.predicted], 20)
    return what + (", the prediction" if a.target == a.predicted else f"; predicted is “{predicted}”")


def note(values: np.ndarray) -> str:
    """Return what a reader must know about unusual values, or an empty string."""
    missing = int(np.isnan(values).sum())
    if missing:
        return f"{missing} of {values.size} values are not a number and are left blank"
    if not values.any():
        return "every value is 0"
    return "" if (values > 0).any() else "no value is above 0"


def position(a, layer: int) -> int:
    """Return where a layer number stands on axis 0; a ValueError names the layers that are there."""
    if isinstance(layer, bool) or layer not in a.layers:
        there = ", ".join(map(str, a.layers))
        raise ValueError(
            f"There is no layer {layer!r} in this attribution: it holds {there}. "
            "Ask for one of these, or attribute again with layers=[...]."
        )
    return a.layers.index(layer)


def check_head(a, head: int) -> int:
    """Return the head's number; a ValueError names the heads that are there."""
    count = a.scores.shape[1]
    if isinstance(head, bool) or not isinstance(head, int | np.integer) or not 0 <= head < count:
        raise ValueError(f"There is no head {head!r}: heads are numbered 0 to {count - 1}.")
    return int(head)


def scale(colors: tuple[str, ...]) -> list[list]:
    return [[i / (len(colors) - 1), color] for i, color in enumerate(colors)]


def largest(values: np.ndarray) -> float:
    """Return the largest |value|, or 1 where there is none."""
    found = float(np.max(np.nan_to_num(np.abs(values), nan=0.0), initial=0.0))
    return found or 1.0


def layout(a, heading: str, *notes: str, height: float, scored: bool = True, **options) -> go.Layout:
    """Return the look that all plotly figures share, with the heading and below it what is explained.

    ``scored`` is False for a figure of attention alone: attention belongs to the text, not to an output.
    """
    about = explained(a) if scored else "attention weights of the text, whatever class is explained"
    below = "<br>".join(literal(line) for line in (about, *notes) if line)
    title = f"<b>{literal(heading)}</b><br><span style='font-size:12.5px;color:{FAINT}'>{below}</span>"
    return go.Layout(
        title=dict(
            text=title, font=dict(size=16), x=0, xref="container", pad=dict(l=16), y=1 - 14 / height, yanchor="top"
        ),
        height=height,
        font=dict(family=FONT, size=12, color=INK),
        paper_bgcolor="white",
        plot_bgcolor="white",
        hoverlabel=dict(bgcolor="white", bordercolor=FAINT, font=dict(color=INK, family=FONT), align="left"),
        **options,
    )


def caption(text: str, color: str = FAINT, size: float = 12) -> go.layout.Annotation:
    """Return a text to put beside a panel or into it, by default in the figure's own coordinates from 0 to 1."""
    return go.layout.Annotation(
        text=text, xref="paper", yref="paper", showarrow=False, font=dict(size=size, color=color)
    )
