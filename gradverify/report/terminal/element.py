"""One element as a person reads it: the verdict in a sentence, the numbers behind it, step against error as a picture, every rung."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from gradverify.model.element import Element, Measured, Place, Reading, Rung
from gradverify.model.result import CaseResult
from gradverify.report import numbers
from gradverify.report.look import Look
from gradverify.report.names import clean, one_line
from gradverify.report.names import element as named
from gradverify.report.numbers import bar
from gradverify.report.plain import plain
from gradverify.report.terminal.canvas import paint, uncut
from gradverify.report.terminal.panel import finding

LABEL = 8
"""Columns for the numbers of the vertical axis."""

WIDEST = 96
TALLEST = 24
"""Columns and rows of the plot, at most."""

ROWS_PER_DECADE = ((5, 3), (10, 2))
"""Few decades get several rows each: up to so many, so many."""

GAP = "   "
"""Between two marks of the key."""

TICK = 8
"""Columns that a number of the horizontal axis needs."""


@dataclass(frozen=True, slots=True)
class Marks:
    """The characters of a picture."""

    analytic: str = "●"
    numeric: str = "○"
    both: str = "◉"
    left: str = "‹"
    right: str = "›"
    noise: str = "·"
    truncation: str = "/"
    tolerance: str = "╌"
    bar: str = "◆"
    chosen: str = "▲"
    side: str = "│"
    corner: str = "└"
    floor: str = "─"


UNICODE = Marks()
ASCII = Marks("*", "o", "@", "<", ">", ".", "/", "-", "#", "^", "|", "+", "-")


def marks(look: Look) -> Marks:
    return ASCII if look.ascii else UNICODE


def picture(m: Measured, look: Look) -> Iterator[RenderableType]:
    """The plot with its axes, then the key. Nothing where f has no value on any rung."""
    plot = _plot(m, look)
    if plot is None:
        return
    yield Text("distance of the difference quotient from backward's value, by step (log-log)", style="bold")
    yield from plot.lines(marks(look))
    yield from plot.axis(marks(look), _marked(m))
    yield from _key(m, marks(look), plot, look)


def is_one_sided(m: Measured) -> bool:
    """Do the two sides tell something? At a kink, a jump, or where one of them has no values."""
    return m.sides is not None or m.outcome == "jump" or any(_half(rung) for rung in m.rungs)


def _half(rung: Rung) -> bool:
    return math.isnan(rung.quotient) and not (math.isnan(rung.left) and math.isnan(rung.right))


@dataclass(frozen=True, slots=True)
class _Plot:
    """Cells by (row, column) as (character, style). `low` … `high`: exponents of the vertical axis; `zero`: whether its last row stands for 0."""

    cells: dict[tuple[int, int], tuple[str, str]]
    first: float
    last: float
    width: int
    low: int
    high: int
    per_decade: float
    zero: bool

    @property
    def height(self) -> int:
        """Rows, without that of 0."""
        return math.floor((self.high - self.low) * self.per_decade) + 1

    def column(self, step: float) -> int:
        """The last one stays free for the right slope of the widest step."""
        return round((math.log10(step) - self.first) / (self.last - self.first) * (self.width - 2))

    def row(self, value: float) -> int | None:
        """None outside the plot."""
        if value == 0:
            return self.height if self.zero else None
        if not math.isfinite(value):
            return None
        row = round((self.high - math.log10(value)) * self.per_decade)
        return row if 0 <= row < self.height else None

    def put(self, column: int, value: float, mark: str, style: str) -> None:
        row = self.row(value)
        if row is not None and 0 <= column < self.width:
            self.cells[row, column] = mark, style

    def lines(self, mark: Marks) -> Iterator[Text]:
        for row in range(self.height + self.zero):
            decade = self.high - row / self.per_decade
            label = "0" if row == self.height else f"1e{int(decade):+03d}" if decade == int(decade) else ""
            drawn = [self.cells.get((row, column), (" ", "")) for column in range(self.width)]
            yield Text.assemble((f"{label:>{LABEL - 1}} ", "dim"), (mark.side, "dim"), *drawn, no_wrap=True)

    def axis(self, mark: Marks, marked: tuple[float, str] | None) -> Iterator[Text]:
        yield Text(" " * LABEL + mark.corner + mark.floor * self.width, style="dim", no_wrap=True)
        if marked is not None:
            column = min(max(self.column(marked[0]), 0), self.width - 1)
            beside = column + 2 + len(marked[1]) <= self.width
            text = f"{mark.chosen} {marked[1]}" if beside else f"{marked[1]} {mark.chosen}"
            yield Text(" " * (LABEL + 1 + (column if beside else column + 1 - len(text))) + text, style="bold", no_wrap=True)
        yield Text(self._ticks(), style="dim", no_wrap=True)

    def _ticks(self) -> str:
        stride = max(1, math.ceil(TICK * (self.last - self.first) / self.width))
        text = " " * (LABEL + 1)
        for decade in range(math.ceil(self.first), math.floor(self.last) + 1):
            at = LABEL + 1 + self.column(10.0**decade) if -300 < decade < 300 else -1
            if decade % stride == 0 and len(text) <= at:
                text = text.ljust(at) + f"1e{decade:+03d} "
        return text.rstrip()


def _plot(m: Measured, look: Look) -> _Plot | None:
    steps = [math.log10(rung.step) for rung in m.rungs if 0 < rung.step < math.inf]
    apart = [value for rung in m.rungs for value in distances(rung, m)]
    if len(steps) < 2 or not any(math.isfinite(value) for value in apart):
        return None
    values = [*apart, m.tolerance.value, m.bar, *(rung.noise for rung in m.rungs)]
    known = [math.log10(value) for value in values if 0 < value < math.inf] or [0.0]
    low, high = math.floor(min(known)), math.ceil(max(known))
    high = max(high, low + 1)
    decades = high - low
    per_decade = next((float(rows) for limit, rows in ROWS_PER_DECADE if decades <= limit), 1.0 / math.ceil(decades / TALLEST))
    plot = _Plot({}, min(steps), max(steps), min(look.columns - LABEL - 1, WIDEST), low, high, per_decade, 0.0 in apart)
    _draw(plot, m, marks(look))
    return plot


def distances(rung: Rung, m: Measured) -> tuple[float, ...]:
    """From the analytic and the numeric value; of the two slopes from the analytic one. At a kink the middle of the two means nothing."""
    analytic = math.nan if m.sides else abs(rung.quotient - m.analytic)
    central = (analytic, abs(rung.quotient - m.numeric) if is_settled(m) else math.nan)
    return (*central, abs(rung.left - m.analytic), abs(rung.right - m.analytic)) if is_one_sided(m) else central


def is_settled(m: Measured) -> bool:
    """Is there a numeric value to be near to?"""
    return m.chosen is not None and math.isfinite(m.numeric)


def _draw(plot: _Plot, m: Measured, mark: Marks) -> None:
    """What comes later covers what came before."""
    for column in range(plot.width):
        step = 10 ** (plot.first + column / (plot.width - 2) * (plot.last - plot.first))
        noise = noise_at(m.rungs, step)
        plot.put(column, m.tolerance.value, mark.tolerance, "yellow")
        plot.put(column, noise, mark.noise, "dim")
        if m.truncation and m.truncation.factor * step**m.truncation.power > noise:
            plot.put(column, m.truncation.factor * step**m.truncation.power, mark.truncation, "dim")
    for rung in m.rungs:
        if 0 < rung.step < math.inf:
            _draw_rung(plot, rung, m, mark)
    if m.chosen and is_settled(m) and not m.fixed:
        plot.put(plot.column(m.rungs[m.chosen.rung].step), m.bar, mark.bar, "bold cyan")


def _draw_rung(plot: _Plot, rung: Rung, m: Measured, mark: Marks) -> None:
    column = plot.column(rung.step)
    analytic, numeric, *sides = distances(rung, m)
    for beside, (distance, glyph) in enumerate(zip(sides, (mark.left, mark.right), strict=False)):
        plot.put(column + beside, distance, glyph, "magenta")
    plot.put(column, numeric, mark.numeric, "cyan")
    same = is_settled(m) and plot.row(analytic) == plot.row(numeric)
    plot.put(column, analytic, mark.both if same else mark.analytic, "red" if m.verdict == "mismatch" else "green")


def noise_at(rungs: Sequence[Rung], step: float) -> float:
    """The noise line at a step: noise · step is the same between rungs, so the nearest rung's is carried over."""
    known = [rung for rung in rungs if 0 < rung.noise < math.inf and rung.step > 0]
    if not known:
        return math.nan
    near = min(known, key=lambda rung: abs(math.log(rung.step / step)))
    return near.noise * near.step / step


def _marked(m: Measured) -> tuple[float, str] | None:
    """The step under which the axis is marked, and its word."""
    if m.fixed:
        return m.fixed.step, "eps"
    return (m.rungs[m.chosen.rung].step, "chosen") if m.chosen else None


def _key(m: Measured, mark: Marks, plot: _Plot, look: Look) -> Iterator[Text]:
    """What the marks that were drawn mean, as many on a line as fit whole."""
    drawn = {character for character, _ in plot.cells.values()}
    said = [(mark.analytic, "from backward's value"), (mark.numeric, "from the numeric value"), (mark.both, "from both"),
            (mark.left, "of the left slope"), (mark.right, "of the right slope"), (mark.noise, "noise of f / step"),
            (mark.bar, f"bar of the numeric value {bar(m.bar)}"),
            (mark.truncation, f"truncation, step^{m.truncation.power:.2f}" if m.truncation else ""),
            (mark.tolerance, f"tolerance {bar(m.tolerance.value)}")]
    lines = [""]
    for glyph, text in said:
        item = f"{glyph} {text}"
        if glyph in drawn and len(lines[-1]) + len(item) + len(GAP) > look.columns and lines[-1]:
            lines.append("")
        if glyph in drawn:
            lines[-1] += (GAP if lines[-1] else "") + item
    yield from (Text(line, style="dim", no_wrap=True) for line in lines)


STYLES = {"pass": "green", "kink": "green", "mismatch": "bold red"}
QUOTIENT_DIGITS = 12
HOW_OFTEN = ("", ", extrapolated once", ", extrapolated twice", ", extrapolated three times")


def render(e: Element, look: Look) -> str:
    return paint(_pieces(e, look), look)


def not_run(check: CaseResult, look: Look) -> str:
    """Why a check could not be run, with the user's own frames; for stderr."""
    bare = plain(look)
    head = uncut(Text(f"{one_line(check.id)} could not be run" + (f": {clean(check.reason)}" if check.reason else "")), bare)
    told = (piece for found in check.findings for piece in finding(found, check, bare))
    return paint([head, *told], bare).rstrip("\n")


def _pieces(e: Element, look: Look) -> Iterator[RenderableType]:
    outcome = e.measured.fixed.outcome if e.measured.fixed else e.measured.outcome
    word = Text(outcome.replace("_", "-").upper(), style=STYLES.get(outcome, "yellow"))
    yield uncut(Text.assemble(word, f"  {one_line(e.name)}  ", (f"{_named(e.input)} : {_named(e.output)}", "bold")), look)
    yield uncut(Text(f"{one_line(e.function.target)} on {e.device}, {e.dtype}, from {one_line(e.spec)}", style="dim"), look)
    yield Text(clean(e.conclusion))
    yield from (Text(clean(note)) for note in (e.in_check, *e.notes) if note)
    yield Text("")
    yield _facts(e, look)
    yield Text("")
    yield from picture(e.measured, look)
    yield Text("")
    yield _ladder(e.measured, look)


def _named(element: Place) -> str:
    return named(element.name, element.index, element.part)


# ---- the numbers
def _facts(e: Element, look: Look) -> Table:
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for label, text in _said(e, look):
        grid.add_row(Text(label), Text(text))
    return grid


def _said(e: Element, look: Look) -> Iterator[tuple[str, str]]:
    m = e.measured
    analytic, numeric = numbers.pair(m.analytic, m.numeric)
    beside = f", moved together with {_named(e.pair)}" if e.pair else ""
    yield f"x: {_named(e.input)}", numbers.number(m.x, QUOTIENT_DIGITS) + beside
    yield f"f: {_named(e.output)}", numbers.number(m.f, QUOTIENT_DIGITS)
    yield "analytic", f"{analytic}, by backward"
    yield from _numeric(m, numeric, look)
    yield "tolerance", _tolerance(m)
    if m.fixed:
        yield "at eps", _fixed(m)
    yield "noise of f", f"{numbers.bar(m.sigma)} (standard deviation), unit roundoff {numbers.bar(m.unit)}"
    if m.truncation:
        yield "truncation", f"about {numbers.bar(m.truncation.factor)} * step^{m.truncation.power:.2f}"
    if m.limit:
        yield "limited by", clean(m.limit)
    yield "calls", f"{m.forward} forward, {m.backward} backward"


def _numeric(m: Measured, numeric: str, look: Look) -> Iterator[tuple[str, str]]:
    if m.sides:
        yield "left slope", _reading(m.sides.left, look)
        yield "right slope", _reading(m.sides.right, look)
        return
    yield "numeric", _reading(Reading(m.numeric, m.bar), look, numeric)
    if m.chosen:
        yield "rests on", f"step {numbers.bar(m.rungs[m.chosen.rung].step)}{HOW_OFTEN[m.chosen.order]}"
    if m.second:
        yield "or else", f"{_reading(m.second, look)}, as consistent, on other steps"
    yield "error", f"{numbers.error(m.error)}, {numbers.ratio(m.error, m.tolerance.value)} times the tolerance"


def _reading(reading: Reading, look: Look, value: str | None = None) -> str:
    if math.isinf(reading.bar):
        return f"{value or numbers.number(reading.value)}, without an error bar"
    return f"{value or numbers.number(reading.value)} {look.glyphs.plus_minus}{numbers.bar(reading.bar)}"


def _tolerance(m: Measured) -> str:
    t = m.tolerance
    return f"{numbers.bar(t.value)} = atol {t.atol:g} + max(rtol {t.rtol:g} * {numbers.number(t.size)}, floor {numbers.bar(t.floor)})"


def _fixed(m: Measured) -> str:
    assert m.fixed is not None
    f = m.fixed
    off = numbers.error(abs(m.analytic - f.quotient))
    return (f"step {f.step:g}: quotient {numbers.number(f.quotient)}, error {off}, tolerance {numbers.bar(f.tolerance)} (atol {f.atol:g}, "
            f"rtol {f.rtol:g})")


# ---- every rung
def _ladder(m: Measured, look: Look) -> Table:
    sided = is_one_sided(m)
    grid = Table(box=None, padding=(0, 2, 0, 0), show_edge=False, pad_edge=False, header_style="dim")
    grid.add_column(Text(""), no_wrap=True)
    for header in ("step", "quotient", "error estimate", "from backward", *(("left slope", "right slope") if sided else ())):
        grid.add_column(Text(header), justify="right", no_wrap=True)
    for place, rung in enumerate(m.rungs):
        chosen = m.chosen is not None and m.chosen.rung == place
        grid.add_row(Text(look.glyphs.arrow if chosen else ""), *(Text(cell) for cell in _cells(rung, m, sided)), style="bold" if chosen else "")
    return grid


def _cells(rung: Rung, m: Measured, sided: bool) -> tuple[str, ...]:
    estimate = _estimate(rung.bar)
    cells = (numbers.error(rung.step), numbers.number(rung.quotient, QUOTIENT_DIGITS), estimate, numbers.bar(abs(rung.quotient - m.analytic)))
    return (*cells, numbers.number(rung.left), numbers.number(rung.right)) if sided else cells


def _estimate(bar: float) -> str:
    return "-" if math.isinf(bar) else numbers.bar(bar)
