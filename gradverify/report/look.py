"""The look of text output, decided once by the caller and used by every view; and the wrapping of
prose."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import dataclass

MIN_WIDTH = 60
"""The least width: in a narrower one, rows of five columns would have to cut numbers. A narrower
terminal wraps the lines itself."""

ROWS = 10
"""The default number of elements shown for each finding."""


@dataclass(frozen=True, slots=True)
class Glyphs:
    """The few characters outside ASCII that the views use."""

    plus_minus: str = "±"
    divided_by: str = "÷"
    dots: str = "…"
    arrow: str = "→"


UNICODE = Glyphs()
ASCII = Glyphs("+-", "/", "...", "->")


@dataclass(frozen=True, slots=True)
class Look:
    """The look of text. `boxes` False: the plain format, without frames, one line per check. `wrap`
    False: each sentence on one line, for logs, whose width is unknown. Ids, places in files, code
    and commands to copy are never wrapped in the plain format.

    `verbosity`: -1 (only failures and the summary), 0, 1 (rules, mode, comparisons) or 2 (also
    panels of expected failures). `slowest`: how many of the slowest checks are listed at the end;
    0: all.
    """

    width: int = 120
    color: bool = False
    ascii: bool = False
    boxes: bool = True
    wrap: bool = True
    max_rows: int = ROWS
    verbosity: int = 0
    slowest: int | None = None

    @property
    def glyphs(self) -> Glyphs:
        return ASCII if self.ascii else UNICODE

    @property
    def columns(self) -> int:
        return max(self.width, MIN_WIDTH)


CODE = " " * 4
"""The indentation of an example."""


def wrapped(page: str, width: int) -> str:
    """Return the page with paragraphs wrapped to `width` columns; indented examples are unchanged,
    and no word is cut."""
    return "\n".join(_lines(page.splitlines(), width))


def _lines(lines: list[str], width: int) -> Iterator[str]:
    paragraph: list[str] = []
    for line in [*lines, ""]:
        if line.strip() and not line.startswith(CODE):
            paragraph.append(line)
            continue
        yield from textwrap.wrap(
            " ".join(paragraph), width, break_long_words=False, break_on_hyphens=False
        )
        yield line
        paragraph = []
