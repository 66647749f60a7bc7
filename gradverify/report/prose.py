"""A page of prose at the width it is read at."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

CODE = " " * 4
"""What begins a line of an example."""


def wrapped(page: str, width: int) -> str:
    """The page with paragraphs of at most `width` columns; examples, which are indented, stay as they are, and no word is cut."""
    return "\n".join(_lines(page.splitlines(), width))


def _lines(lines: list[str], width: int) -> Iterator[str]:
    paragraph: list[str] = []
    for line in [*lines, ""]:
        if line.strip() and not line.startswith(CODE):
            paragraph.append(line)
            continue
        yield from textwrap.wrap(" ".join(paragraph), width, break_long_words=False, break_on_hyphens=False)
        yield line
        paragraph = []
