"""One element as a person reads it: the verdict in a sentence, the numbers behind it, the picture, every rung."""

from __future__ import annotations

import math
from collections.abc import Iterator

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from gradverify.model.element import Element, Measured, Place, Reading, Rung
from gradverify.model.result import CaseResult
from gradverify.report import numbers
from gradverify.report.look import Look
from gradverify.report.names import clean, one_line
from gradverify.report.names import element as named
from gradverify.report.plain import plain
from gradverify.report.terminal.canvas import paint, uncut
from gradverify.report.terminal.finding import finding
from gradverify.report.terminal.picture import is_one_sided, picture

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
