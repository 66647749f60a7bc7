"""Pieces that may fail to be drawn: a fault of ours in a picture, a table or a panel costs that piece, and leaves a line in its place."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from rich.console import RenderableType
from rich.text import Text

from gradverify.model.fault import described
from gradverify.report.look import Look
from gradverify.report.terminal.canvas import paint


def shielded(what: str, pieces: Callable[[], Iterable[RenderableType]], look: Look) -> Sequence[RenderableType]:
    """The pieces, tried on a canvas of their own; or a line that says what is missing."""
    try:
        drawn = tuple(pieces())
        paint(drawn, look)
    except Exception as error:
        return (Text(f"{what} is missing: gradverify itself failed to draw it ({described(error)})", style="yellow"),)
    return drawn
