"""The worst elements of one comparison as a table, and the errors of a small Jacobian as a
picture."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from rich.cells import cell_len
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from gradverify.model.result import Comparison, Entry, ErrorMap
from gradverify.report import numbers
from gradverify.report.look import Look
from gradverify.report.names import input_element, output_element
from gradverify.report.numbers import counted
from gradverify.report.terminal.canvas import columns as columns_of

FRAME = 4
"""The columns of a panel's frame."""

COMFORTABLE_NAME, SMALLEST_NAME = 8, 4

COUNTED_AS = {
    "mismatch": "mismatched",
    "kink": "kinks",
    "undecided": "undecided",
    "jump": "undecided",
    "staircase": "undecided",
    "non_finite": "non_finite",
}
"""The field of Comparison that counts each outcome."""

OPEN = ("kink", "jump", "staircase", "undecided", "non-finite")
"""Outcomes shown in place of a ratio, for elements that are neither right nor wrong by a factor."""

ROOMY = 100
"""The width from which headers are written in full; in a narrower table the room is for digits of
indices."""

ERRORS = 72
"""The width from which absolute and relative error are shown next to their ratio to the tolerance:
in a narrower table seven columns would have to cut numbers."""

REFERENCES = ("GV106",)
"""The rules that compare with another implementation's gradient."""

ROUNDING = 1e-12
"""Relative to the value: a smaller bar is rounding of the last digits, and is not shown."""


def table(comparison: Comparison, look: Look) -> Iterator[RenderableType]:
    """Return the table of the worst elements, worst first, and how many more there are."""
    shown = comparison.worst[: look.max_rows]
    if not shown:
        return
    rows = [cells_of(entry, comparison, look) for entry in shown]
    headers = headers_of(comparison, shown, look)
    yield _grid(headers, rows, look)
    more = more_of(comparison, shown, look)
    if more:
        yield Text(more, style="dim")


def more_of(comparison: Comparison, shown: Sequence[Entry], look: Look) -> str:
    """Return how many more elements have the outcomes of those shown; empty if there are none, or
    if lines were counted."""
    fields = {COUNTED_AS[entry.outcome] for entry in shown if entry.outcome in COUNTED_AS}
    more = (
        0
        if comparison.lines
        else sum(int(getattr(comparison, field)) for field in fields) - len(shown)
    )
    return f"{look.glyphs.dots} and {more:,} more of {comparison.elements:,}" if more > 0 else ""


def headers_of(comparison: Comparison, shown: Sequence[Entry], look: Look) -> tuple[str, ...]:
    """Return the headers of a table. A comparison over all outputs together is one with given
    numbers, and has no column of outputs. `value_of`: the header of the second value."""
    bars = any(_shows_bar(entry, comparison) for entry in shown)
    names = ("input",) if comparison.output is None else ("output", "input")
    values = value_of(comparison)
    values += f" {look.glyphs.plus_minus} bar" if bars else ""
    short = look.columns < ROOMY
    errors = (
        ()
        if look.columns < ERRORS
        else ("abs. error", "rel. error")
        if short
        else ("absolute error", "relative error")
    )
    return (
        *names,
        "analytic",
        values,
        *errors,
        f"error {look.glyphs.divided_by}{'tol.' if short else ' tolerance'}",
    )


def value_of(comparison: Comparison) -> str:
    """Return the header of the value that backward is compared with: given numbers and the
    gradient of a reference are "expected", others were measured."""
    return "expected" if comparison.output is None or comparison.rule in REFERENCES else "numeric"


def cells_of(entry: Entry, comparison: Comparison, look: Look) -> tuple[str, ...]:
    """Return the cells of a row, in the order of the headers: names, analytic and numeric value,
    absolute and relative error, error ÷ tolerance."""
    analytic, numeric = numbers.pair(entry.analytic, entry.numeric)
    uncertain = (
        f" {look.glyphs.plus_minus}{numbers.bar(entry.bar)}"
        if _shows_bar(entry, comparison)
        else ""
    )
    names = (
        ()
        if comparison.output is None
        else (output_element(entry, comparison.output, comparison.output_name),)
    )
    errors = (
        ()
        if look.columns < ERRORS
        else (numbers.error(entry.abs_error), numbers.error(entry.rel_error))
    )
    return (
        *names,
        input_element(entry, comparison.input),
        analytic,
        numeric + uncertain,
        *errors,
        _verdict(entry),
    )


def _shows_bar(entry: Entry, comparison: Comparison) -> bool:
    """Return the bar of a value; empty for a fixed step, which has none, and for the rounding of a
    given number."""
    if comparison.output is not None:
        return entry.bar != 0
    size = max(abs(entry.analytic), abs(entry.numeric))
    return entry.bar != 0 and not (math.isfinite(entry.bar) and entry.bar <= ROUNDING * size)


def _verdict(entry: Entry) -> str:
    """Return error ÷ tolerance; the outcome if that ratio has no meaning."""
    if entry.outcome in ("mismatch", "pass"):
        return numbers.ratio(entry.abs_error, entry.tolerance)
    return entry.outcome.replace("_", "-")


def _grid(headers: Sequence[str], rows: Sequence[Sequence[str]], look: Look) -> Table:
    """Return the first arrangement in which names keep a comfortable width: two blanks between
    columns or one, a bar next to its number or below it. Numbers are never cut; names get the
    remaining width, and wrap."""
    names, columns = headers.index("analytic"), list(zip(headers, *rows, strict=True))
    wanted = sum(min(_widest(column), COMFORTABLE_NAME) for column in columns[:names])
    for gap, same_line in ((2, True), (1, True), (1, False)):
        figures = [_figure(*column, same_line=same_line) for column in columns[names:]]
        left = look.columns - (FRAME if look.boxes else 0) - sum(figures) - gap * (len(headers) - 1)
        if left >= wanted:
            break
    framed = look.boxes and not look.ascii
    grid = columns_of(gap - framed, framed=framed)
    for header in headers[:names]:
        grid.add_column(Text(header), overflow="fold", style="cyan", min_width=SMALLEST_NAME)
    for header, width in zip(headers[names:], figures, strict=True):
        grid.add_column(Text(header), width=width, justify="right", overflow="fold")
    for row in rows:
        grid.add_row(
            *map(Text, row[:-1]), Text(row[-1], style="yellow" if row[-1] in OPEN else "bold red")
        )
    return grid


def _figure(header: str, *cells: str, same_line: bool) -> int:
    """Return the width of a column of numbers: a header wraps between words, a number only before
    its bar."""
    whole = same_line and header.endswith(" bar")
    return max(
        _widest([header] if whole else header.split()),
        _widest(cells if same_line else [word for cell in cells for word in cell.split()]),
    )


def _widest(texts: Sequence[str]) -> int:
    return max(map(cell_len, texts))


RAMP = " .:-=+*#%@"
"""The glyphs of the picture: `.` for an error within the tolerance but visible, each further glyph
for ten times more, `@` for any larger error."""

VISIBLE = 1e-2
"""The fraction of the tolerance below which an error is drawn as a blank."""

NOT_A_NUMBER = "?"
MAP_FRAME = 6
MOST_ROWS = 40


def error_map(drawn: ErrorMap, look: Look) -> Iterator[RenderableType]:
    """Yield the picture, with output elements down and input elements across, and its key; nothing
    if it does not fit."""
    across = max((len(row) for row in drawn.ratio), default=0)
    if not across or across + MAP_FRAME > look.columns or len(drawn.ratio) > MOST_ROWS:
        return
    yield Text(
        f"error map: {counted(len(drawn.ratio), 'output element')} down, "
        f"{counted(across, 'input element')} across",
        style="dim",
    )
    for row in drawn.ratio:
        yield Text.assemble(
            ("|", "dim"), *((glyph(ratio), _style(ratio)) for ratio in row), ("|", "dim")
        )
    yield Text(
        f"' .' within the tolerance, {RAMP[2:]} up to 10, 100, {look.glyphs.dots} times it",
        style="dim",
    )


def glyph(ratio: float) -> str:
    """Return the glyph for |error| / tolerance."""
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
