"""Three heat maps of a wrong Jacobian side by side: what backward returned, the finite difference, and where they differ."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gradverify.model.element import Grid, HeatMap
from gradverify.report.html import colours
from gradverify.report.html.png import Colour, data_uri
from gradverify.report.html.tick import Tick
from gradverify.report.names import one_line
from gradverify.report.numbers import bar, counted

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
    errors = ((0.0, bar(most)), (1.0, bar(most / 10**colours.DECADES)))
    return Heat(_caption(drawn), (
        _panel(drawn, "analytic", drawn.analytic, lambda value: colours.signed(value, limit), colours.SIGNED, values),
        _panel(drawn, "numeric", drawn.numeric, lambda value: colours.signed(value, limit), colours.SIGNED, values),
        _panel(drawn, "error", drawn.error, lambda value: colours.error(value, most), colours.ERRORS, errors)))


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
    return Panel(title, image, width, height, _ticks(drawn.columns, width), _ticks(drawn.rows, height), data_uri(colours.strip(scale)),
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
