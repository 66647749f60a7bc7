"""The worst elements of one comparison: a table of them, and a small Jacobian as a picture of its
errors."""

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
"""Columns that a panel's frame takes."""

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
"""Outcomes in the place of a ratio: what such an element is, where it is neither right nor wrong by
so much."""

ROOMY = 100
"""Columns from which headers are spelled out: below, each character is a digit of an index."""

ERRORS = 72
"""Columns from which absolute and relative error stand beside their ratio to the tolerance: below,
seven columns cannot hold their numbers uncut."""

REFERENCES = ("GV106",)
"""The rules that compare with another implementation's gradient."""

ROUNDING = 1e-12
"""Of the value: a bar below it is the rounding of its last digits, and says nothing to a reader."""


def table(comparison: Comparison, look: Look) -> Iterator[RenderableType]:
    """The worst elements, worst first as they come, and how many more there are."""
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
    """How many elements came out as those shown did, besides them; empty where there are none, or
    lines were counted."""
    fields = {COUNTED_AS[entry.outcome] for entry in shown if entry.outcome in COUNTED_AS}
    more = (
        0
        if comparison.lines
        else sum(int(getattr(comparison, field)) for field in fields) - len(shown)
    )
    return f"{look.glyphs.dots} and {more:,} more of {comparison.elements:,}" if more > 0 else ""


def headers_of(comparison: Comparison, shown: Sequence[Entry], look: Look) -> tuple[str, ...]:
    """A comparison over all outputs together is with given numbers: it has no output to name.
    `value_of` is the second value's header."""
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
    """What backward is compared with: numbers that somebody gave and the gradient of a reference
    are expected, others were measured."""
    return "expected" if comparison.output is None or comparison.rule in REFERENCES else "numeric"


def cells_of(entry: Entry, comparison: Comparison, look: Look) -> tuple[str, ...]:
    """Names, analytic and numeric value, absolute and relative error, error ÷ tolerance: in the
    order of the headers."""
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
    """A fixed step has no bar; the rounding of a number that somebody gave is none worth a word."""
    if comparison.output is not None:
        return entry.bar != 0
    size = max(abs(entry.analytic), abs(entry.numeric))
    return entry.bar != 0 and not (math.isfinite(entry.bar) and entry.bar <= ROUNDING * size)


def _verdict(entry: Entry) -> str:
    """Error ÷ tolerance; the outcome itself where such a ratio would mean nothing."""
    if entry.outcome in ("mismatch", "pass"):
        return numbers.ratio(entry.abs_error, entry.tolerance)
    return entry.outcome.replace("_", "-")


def _grid(headers: Sequence[str], rows: Sequence[Sequence[str]], look: Look) -> Table:
    """The first arrangement whose names keep a comfortable width: two blanks between columns or
    one, a bar beside its number or below it. A number is never cut; names get what is left, and
    fold."""
    names, columns = headers.index("analytic"), list(zip(headers, *rows, strict=True))
    wanted = sum(min(_widest(column), COMFORTABLE_NAME) for column in columns[:names])
    for gap, beside in ((2, True), (1, True), (1, False)):
        figures = [_figure(*column, beside=beside) for column in columns[names:]]
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


def _figure(header: str, *cells: str, beside: bool) -> int:
    """The width of a column of numbers: a header folds between its words, a number only before its
    bar."""
    whole = beside and header.endswith(" bar")
    return max(
        _widest([header] if whole else header.split()),
        _widest(cells if beside else [word for cell in cells for word in cell.split()]),
    )


def _widest(texts: Sequence[str]) -> int:
    return max(map(cell_len, texts))


RAMP = " .:-=+*#%@"
"""`.` is within the tolerance but visible, each glyph after it ten times more; `@` is everything
beyond."""

VISIBLE = 1e-2
"""Of the tolerance: an error below it is drawn as a blank."""

NOT_A_NUMBER = "?"
MAP_FRAME = 6
MOST_ROWS = 40


def error_map(drawn: ErrorMap, look: Look) -> Iterator[RenderableType]:
    """Output elements down, input elements across, then the key. Nothing where it does not fit."""
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
