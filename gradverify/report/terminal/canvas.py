"""Render rich objects as a string, with settings that no environment variable changes; a piece
that cannot be rendered is replaced by a line about that."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from io import StringIO

from rich.box import SIMPLE_HEAD
from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from gradverify.model.fault import described
from gradverify.report.look import Look

HEIGHT = 50
"""Rich ignores a given width on a dumb terminal unless a height comes with it."""


def paint(pieces: Iterable[RenderableType], look: Look) -> str:
    """Return the pieces as text, each on its own lines. Text is wrapped, unless it is marked
    `no_wrap` or the look forbids wrapping."""
    console = _console(look)
    for piece in pieces:
        console.print(
            piece, soft_wrap=isinstance(piece, Text) and (not look.wrap or bool(piece.no_wrap))
        )
    text = console.file.getvalue()  # type: ignore[attr-defined]
    return text if look.color else "".join(line.rstrip() + "\n" for line in text.splitlines())


def _console(look: Look) -> Console:
    return Console(
        file=StringIO(),
        width=look.columns,
        height=HEIGHT,
        force_terminal=look.color,
        force_interactive=False,
        no_color=not look.color,
        color_system="standard" if look.color else None,
        legacy_windows=False,
        markup=False,
        emoji=False,
        highlight=False,
        _environ={},
    )


def columns(gap: int, framed: bool = False) -> Table:
    """Return a table without rows, with a line below the head if there are frames. `gap`: blanks
    between columns."""
    return Table(
        box=SIMPLE_HEAD if framed else None,
        padding=(0, gap, 0, 0),
        show_edge=False,
        pad_edge=False,
        header_style="dim",
    )


def indented(text: Text, spaces: int, look: Look, code: bool = False) -> RenderableType:
    """Return the text indented, also where it wraps. Code is wrapped in frames only."""
    if look.boxes or (look.wrap and not code):
        return Padding(text, (0, 0, 0, spaces))
    moved = Text("\n").join(Text.assemble(" " * spaces, line) for line in text.split("\n"))
    moved.no_wrap = True
    return moved


def uncut(text: Text, look: Look) -> Text:
    """Return the text, kept on one line in the plain format, for ids and places that are searched
    or copied."""
    text.no_wrap = not look.boxes
    return text


def shielded(
    what: str, pieces: Callable[[], Iterable[RenderableType]], look: Look
) -> Sequence[RenderableType]:
    """Return the pieces if they can be rendered; else a line that reports what is missing."""
    try:
        drawn = tuple(pieces())
        paint(drawn, look)
    except Exception as error:
        return (
            Text(
                f"{what} is missing: gradverify itself failed to draw it ({described(error)})",
                style="yellow",
            ),
        )
    return drawn
