"""A small Jacobian as a picture of its errors: one glyph an element, colour only added."""

from __future__ import annotations

import math
from collections.abc import Iterator

from rich.console import RenderableType
from rich.text import Text

from gradverify.model.result import ErrorMap
from gradverify.report.look import Look
from gradverify.report.numbers import counted

RAMP = " .:-=+*#%@"
"""`.` is within the tolerance but visible, each glyph after it ten times more; `@` is everything beyond."""

VISIBLE = 1e-2
"""Of the tolerance: an error below it is drawn as a blank."""

NOT_A_NUMBER = "?"
FRAME = 6
MOST_ROWS = 40


def error_map(drawn: ErrorMap, look: Look) -> Iterator[RenderableType]:
    """Output elements down, input elements across, then the key. Nothing where it does not fit."""
    across = max((len(row) for row in drawn.ratio), default=0)
    if not across or across + FRAME > look.columns or len(drawn.ratio) > MOST_ROWS:
        return
    yield Text(f"error map: {counted(len(drawn.ratio), 'output element')} down, {counted(across, 'input element')} across", style="dim")
    for row in drawn.ratio:
        yield Text.assemble(("|", "dim"), *((glyph(ratio), _style(ratio)) for ratio in row), ("|", "dim"))
    yield Text(f"' .' within the tolerance, {RAMP[2:]} up to 10, 100, {look.glyphs.dots} times it", style="dim")


def glyph(ratio: float) -> str:
    """The glyph for |error| / tolerance."""
    if math.isnan(ratio):
        return NOT_A_NUMBER
    if ratio <= 1:
        return RAMP[0] if ratio < VISIBLE else RAMP[1]
    if math.isinf(ratio):
        return RAMP[-1]
    return RAMP[min(1 + math.ceil(math.log10(ratio)), len(RAMP) - 1)]


def _style(ratio: float) -> str:
    if ratio <= 1:
        return "green"
    return "yellow" if ratio <= 100 else "bold red"
