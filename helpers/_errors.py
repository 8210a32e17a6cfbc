"""Errors in a notebook: the reader's own line and the sentence, without the stack of this package.

Registered when the package is first imported in IPython. Only errors that a helper raises itself are shortened, so
that what goes wrong inside torch or transformers still shows all of its stack. ``%tb`` shows it for ours as well, and
``ATTATTR_TRACEBACK=full`` for all.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import TracebackType

HERE = Path(__file__).resolve().parent
KINDS = (ValueError, TypeError, OSError)  # what helpers raise on purpose; ConnectionError is an OSError


def shorten(shell) -> None:
    """Show errors that helpers raise on purpose in a few lines, in this IPython shell."""
    shell.set_custom_exc(KINDS, _show)


def _show(shell, kind, error, traceback, tb_offset=None) -> None:
    sys.last_type, sys.last_value, sys.last_traceback = kind, error, traceback  # for %tb
    cause, context, hidden = error.__cause__, error.__context__, error.__suppress_context__
    shown = traceback
    if os.environ.get("ATTATTR_TRACEBACK") != "full" and _ours(_frames(traceback)[-1]):
        shown, error.__cause__, error.__suppress_context__ = _outside(traceback), None, True
    try:
        lines = shell.InteractiveTB.structured_traceback(kind, error, shown, tb_offset=tb_offset)
    finally:
        error.__cause__, error.__context__, error.__suppress_context__ = cause, context, hidden
    shell._showtraceback(kind, error, lines)


def _frames(traceback: TracebackType | None) -> list[TracebackType]:
    frames = []
    while traceback is not None:
        frames.append(traceback)
        traceback = traceback.tb_next
    return frames


def _ours(frame: TracebackType) -> bool:
    return HERE in Path(frame.tb_frame.f_code.co_filename).parents


def _outside(traceback: TracebackType) -> TracebackType | None:
    """The stack as far as it lies before the first helper."""
    kept: list[TracebackType] = []
    for frame in _frames(traceback):
        if _ours(frame):
            break
        kept.append(frame)
    shown = None
    for frame in reversed(kept):
        shown = TracebackType(shown, frame.tb_frame, frame.tb_lasti, frame.tb_lineno)
    return shown
