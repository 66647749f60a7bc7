"""Three heat maps of a wrong Jacobian side by side: what backward returned, the finite difference, and where they differ."""

from __future__ import annotations

import base64
import math
import struct
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from gradverify.model.element import Grid, HeatMap
from gradverify.report.names import one_line
from gradverify.report.numbers import bar, counted


@dataclass(frozen=True, slots=True)
class Tick:
    """`at`: units of the picture from where the axis begins."""

    at: float
    text: str


Colour = tuple[int, int, int]
SIGNATURE = b"\x89PNG\r\n\x1a\n"
EIGHT_BIT_RGB = b"\x08\x02\x00\x00\x00"     # depth, colour type, then the only compression, filter and no interlace (PNG, 3rd edition, 11.2.1)
UNFILTERED = b"\x00"
LEVEL = 6


def data_uri(cells: Sequence[Sequence[Colour]]) -> str:
    """One pixel a cell, rows from the top; at least one cell."""
    raw = b"".join(UNFILTERED + bytes(part for colour in row for part in colour) for row in cells)
    header = struct.pack(">II", len(cells[0]), len(cells)) + EIGHT_BIT_RGB
    image = SIGNATURE + _chunk(b"IHDR", header) + _chunk(b"IDAT", zlib.compress(raw, LEVEL)) + _chunk(b"IEND", b"")
    return "data:image/png;base64," + base64.b64encode(image).decode("ascii")


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


SIGNED: Sequence[Colour] = ((33, 102, 172), (146, 197, 222), (247, 247, 247), (244, 165, 130), (178, 24, 43))      # ColorBrewer RdBu, reversed
ERRORS: Sequence[Colour] = ((255, 245, 200), (253, 174, 97), (215, 48, 39), (103, 0, 31))       # pale to dark: readable without colour too
RIGHT: Colour = (238, 240, 242)
NOT_A_NUMBER: Colour = (200, 0, 200)
STRIP = 64          # cells of a colour bar
DECADES = 6         # of errors that are told apart below the largest one


def signed_colour(value: float, limit: float) -> Colour:
    """`limit` > 0: the size of value from which on the colour is the strongest."""
    return NOT_A_NUMBER if math.isnan(value) else _between(SIGNED, (max(-1.0, min(1.0, value / limit)) + 1) / 2)


def error_colour(value: float, largest: float) -> Colour:
    """0 is what is not wrong; `largest` the largest finite error."""
    if value == 0:
        return RIGHT
    if math.isnan(value):
        return NOT_A_NUMBER
    return _between(ERRORS, 1.0 if value >= largest else max(0.0, 1 + (math.log10(value) - math.log10(largest)) / DECADES))


def strip(colours: Sequence[Colour]) -> list[list[Colour]]:
    """A colour bar, the strongest colour on top."""
    return [[_between(colours, 1 - place / (STRIP - 1))] for place in range(STRIP)]


def _between(colours: Sequence[Colour], place: float) -> Colour:
    """`place` 0 is the first colour, 1 the last."""
    first = min(int(place * (len(colours) - 1)), len(colours) - 2)
    low, high = list(pairwise(colours))[first]
    share = place * (len(colours) - 1) - first
    red, green, blue = (round(a + (b - a) * share) for a, b in zip(low, high, strict=True))
    return red, green, blue


WIDEST, TALLEST, THINNEST = 220.0, 260.0, 14.0      # units of a map's picture, of which a phone shows some 300 across
MARKER = 9.0        # units: the mark of the worst element stays visible where a cell is smaller


@dataclass(frozen=True, slots=True)
class Marker:
    x: float
    y: float
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class Panel:
    """One heat map, ready to be drawn: `image` fills width × height; `scale` is the colour bar, `bar` its labels from the top down."""

    title: str
    image: str
    width: float
    height: float
    across: tuple[Tick, ...]
    down: tuple[Tick, ...]
    scale: str
    bar: tuple[Tick, ...]
    worst: Marker | None
    named: str


@dataclass(frozen=True, slots=True)
class Heat:
    """`caption` says what lies across and down, and what a cell stands for."""

    caption: str
    panels: tuple[Panel, ...]


def heat(drawn: HeatMap) -> Heat:
    """Analytic and numeric share one scale, that of the numeric values."""
    limit = _largest(drawn.numeric) or _largest(drawn.analytic) or 1.0
    most = _largest(drawn.error) or 1.0
    values = ((0.0, f"{limit:.3g}"), (0.5, "0"), (1.0, f"-{limit:.3g}"))
    errors = ((0.0, bar(most)), (1.0, bar(most / 10**DECADES)))
    return Heat(_caption(drawn), (
        _panel(drawn, "analytic", drawn.analytic, lambda value: signed_colour(value, limit), SIGNED, values),
        _panel(drawn, "numeric", drawn.numeric, lambda value: signed_colour(value, limit), SIGNED, values),
        _panel(drawn, "error", drawn.error, lambda value: error_colour(value, most), ERRORS, errors)))


def _caption(drawn: HeatMap) -> str:
    across, down = (f"{one_line(name)} ({counted(count, 'number')})"
                    for name, count in ((drawn.input, drawn.columns), (drawn.output_name, drawn.rows)))
    size = _per_cell(drawn.rows, drawn.error), _per_cell(drawn.columns, drawn.error[0])
    cell = "" if size == (1, 1) else f" A cell stands for {size[0]} by {size[1]} elements and shows the one with the largest error."
    return (f"d {one_line(drawn.output_name)} / d {one_line(drawn.input)}: {across} across, {down} down, in the order of memory."
            f" Grey in the error: right.{_not_numbers(drawn)} The frame marks the worst element.{cell}")


def _not_numbers(drawn: HeatMap) -> str:
    drawn_so = any(math.isnan(value) for grid in (drawn.analytic, drawn.numeric, drawn.error) for row in grid for value in row)
    return " Violet: not a number." if drawn_so else ""


def _panel(drawn: HeatMap, title: str, grid: Grid, colour: Callable[[float], Colour], scale: Sequence[Colour],
           labels: Sequence[tuple[float, str]]) -> Panel:
    width, height = _size(len(grid), len(grid[0]))
    image = data_uri([[colour(value) for value in row] for row in grid])
    named = f"{title} values of d {one_line(drawn.output_name)} / d {one_line(drawn.input)}"
    return Panel(title, image, width, height, _ticks(drawn.columns, width), _ticks(drawn.rows, height), data_uri(strip(scale)),
                 tuple(Tick(place * _bar_height(height), text) for place, text in labels), _marker(drawn, width, height), named)


def _bar_height(height: float) -> float:
    return max(height, 40.0)        # three labels fit


def _size(down: int, across: int) -> tuple[float, float]:
    """Square cells, unless the picture would be too thin or too tall."""
    scale = min(WIDEST / across, TALLEST / down)
    return max(across * scale, THINNEST), max(down * scale, THINNEST)


def _ticks(count: int, length: float) -> tuple[Tick, ...]:
    """The first number and the last; one in the middle where there are many."""
    places = sorted({0, count - 1} | ({count // 2} if count > 8 else set()))
    return tuple(Tick((place + 0.5) / count * length, str(place)) for place in places)


def _marker(drawn: HeatMap, width: float, height: float) -> Marker | None:
    if not drawn.worst:
        return None
    down, across = len(drawn.error), len(drawn.error[0])
    row, column = drawn.worst[0] // _per_cell(drawn.rows, drawn.error), drawn.worst[1] // _per_cell(drawn.columns, drawn.error[0])
    x, y = (column + 0.5) * width / across, (row + 0.5) * height / down
    wide, tall = max(width / across, MARKER), max(height / down, MARKER)
    return Marker(x - wide / 2, y - tall / 2, wide, tall)


def _per_cell(count: int, cells: Sequence[object]) -> int:
    return -(-count // len(cells))


def _largest(grid: Grid) -> float:
    return max((abs(value) for row in grid for value in row if math.isfinite(value)), default=0.0)
