"""How the output should look, from what was asked for and what is known about the terminal."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TextIO

from gradverify.report.look import Look

UNKNOWN_WIDTH = 120
"""Where nothing says how wide the reader's window is: logs scroll sideways better than numbers fold."""

NO_TERMINAL = frozenset({"CI", "PRE_COMMIT"})
"""Variables whose owner reads output later, even where it gives us a terminal."""


@dataclass(frozen=True, slots=True)
class Terminal:
    """`columns` is None where there is no terminal to ask."""

    is_terminal: bool
    columns: int | None
    encoding: str


def terminal(stream: TextIO) -> Terminal:
    try:
        columns = os.get_terminal_size(stream.fileno()).columns or None
    except (OSError, ValueError):
        columns = None
    return Terminal(stream.isatty(), columns, getattr(stream, "encoding", None) or "utf-8")


def is_set(environ: Mapping[str, str], name: str) -> bool:
    """Set to anything but nothing, 0 or false."""
    return environ.get(name, "").lower() not in ("", "0", "false")


def is_watched(screen: Terminal, environ: Mapping[str, str]) -> bool:
    """Does a person watch this stream as it is written, on something that may move a cursor? Not under NO_COLOR (command-line.md)."""
    plain = environ.get("TERM") == "dumb" or bool(environ.get("NO_COLOR"))
    return screen.is_terminal and not plain and not any(is_set(environ, name) for name in NO_TERMINAL)


def colored(asked: str, screen: Terminal, environ: Mapping[str, str]) -> bool:
    """`--color` first, then NO_COLOR, then FORCE_COLOR, then whether a person watches."""
    if asked != "auto":
        return asked == "always"
    if environ.get("NO_COLOR"):
        return False
    return is_set(environ, "FORCE_COLOR") or is_watched(screen, environ)


def known_width(asked: int | None, screen: Terminal, environ: Mapping[str, str]) -> int | None:
    """`--width`, COLUMNS, the terminal's own."""
    said = environ.get("COLUMNS", "")
    return asked or (int(said) if said.isdecimal() else 0) or screen.columns


def look(screen: Terminal, environ: Mapping[str, str], *, format: str | None = None, color: str = "auto", asked_width: int | None = None,
         max_rows: int = 10, verbosity: int = 0, slowest: int | None = None) -> Look:
    """Where no format was asked for: tables on a terminal and where colour was asked for, plain elsewhere. Plain wraps where the width is known."""
    paint = colored(color, screen, environ)
    boxes = format == "table" or (format is None and (screen.is_terminal or paint))
    width = known_width(asked_width, screen, environ)
    return Look(width=width or UNKNOWN_WIDTH, color=boxes and paint, boxes=boxes, wrap=boxes or bool(width),
                ascii="utf" not in screen.encoding.lower(), max_rows=max_rows, verbosity=verbosity, slowest=slowest)
