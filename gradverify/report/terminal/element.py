"""The text about one element: the verdict in a sentence, the numbers, every rung."""

from __future__ import annotations

import math
from collections.abc import Iterator

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from gradverify.model.element import Element, Measured, Place
from gradverify.model.result import CaseResult
from gradverify.report import numbers
from gradverify.report.look import Look
from gradverify.report.names import element as named
from gradverify.report.names import readable
from gradverify.report.plain import plain
from gradverify.report.terminal.canvas import columns, paint, uncut
from gradverify.report.terminal.panel import finding

STYLES = {"pass": "green", "kink": "green", "mismatch": "bold red"}
QUOTIENT_DIGITS = 12
HOW_OFTEN = ("", ", extrapolated once", ", extrapolated twice", ", extrapolated three times")


def render(e: Element, look: Look) -> str:
    return paint(_pieces(readable(e), look), look)


def not_run(check: CaseResult, look: Look) -> str:
    """Return why a check could not be run, with the user's frames; for stderr."""
    bare, check = plain(look), readable(check)
    reason = f": {check.reason}" if check.reason else ""
    head = uncut(Text(f"{check.id} could not be run{reason}"), bare)
    findings = (piece for found in check.findings for piece in finding(found, check, bare))
    return paint([head, *findings], bare).rstrip("\n")


def _pieces(e: Element, look: Look) -> Iterator[RenderableType]:
    m = e.measured
    outcome = m.fixed.outcome if m.fixed else m.outcome
    word = Text(outcome.replace("_", "-").upper(), style=STYLES.get(outcome, "yellow"))
    yield uncut(
        Text.assemble(word, f"  {e.name}  ", (f"{_named(e.input)} : {_named(e.output)}", "bold")),
        look,
    )
    yield uncut(
        Text(
            f"{e.function.target} on {e.device}, {e.dtype}, from {e.spec}",
            style="dim",
        ),
        look,
    )
    yield from (Text(note) for note in (e.conclusion, e.in_check, *e.notes) if note)
    yield Text("")
    facts = Table.grid(padding=(0, 2, 0, 0))
    facts.add_column(style="dim", no_wrap=True)
    facts.add_column(overflow="fold")
    for label, text in _facts(e, m, look):
        facts.add_row(Text(label), Text(text))
    yield facts
    yield Text("")
    # The two sides are informative at a kink, at a jump, or if one of them has no values
    sided = (
        m.sides is not None
        or m.outcome == "jump"
        or any(
            math.isnan(rung.quotient) and not (math.isnan(rung.left) and math.isnan(rung.right))
            for rung in m.rungs
        )
    )
    grid = columns(2)
    for header in (
        "",
        "step",
        "quotient",
        "error estimate",
        "from backward",
        *(("left slope", "right slope") if sided else ()),
    ):
        grid.add_column(header, justify="right", no_wrap=True)
    for place, rung in enumerate(m.rungs):
        chosen = m.chosen is not None and m.chosen.rung == place
        cells = [
            numbers.error(rung.step),
            numbers.number(rung.quotient, QUOTIENT_DIGITS),
            "-" if math.isinf(rung.bar) else numbers.bar(rung.bar),
            numbers.bar(abs(rung.quotient - m.analytic)),
            *((numbers.number(rung.left), numbers.number(rung.right)) if sided else ()),
        ]
        grid.add_row(look.glyphs.arrow if chosen else "", *cells, style="bold" if chosen else "")
    yield grid


def _named(element: Place) -> str:
    return named(element.name, element.index, element.part)


def _facts(e: Element, m: Measured, look: Look) -> Iterator[tuple[str, str]]:
    def reading(value: str, bar: float) -> str:
        if math.isinf(bar):
            return f"{value}, without an error bar"
        return f"{value} {look.glyphs.plus_minus}{numbers.bar(bar)}"

    analytic, numeric = numbers.pair(m.analytic, m.numeric)
    pair = f", moved together with {_named(e.pair)}" if e.pair else ""
    yield f"x: {_named(e.input)}", numbers.number(m.x, QUOTIENT_DIGITS) + pair
    yield f"f: {_named(e.output)}", numbers.number(m.f, QUOTIENT_DIGITS)
    yield "analytic", f"{analytic}, by backward"
    if m.sides:
        for name, side in (("left slope", m.sides.left), ("right slope", m.sides.right)):
            yield name, reading(numbers.number(side.value), side.bar)
    else:
        yield "numeric", reading(numeric, m.bar)
        if m.chosen:
            yield (
                "rests on",
                f"step {numbers.bar(m.rungs[m.chosen.rung].step)}{HOW_OFTEN[m.chosen.order]}",
            )
        if m.second:
            yield (
                "or else",
                f"{reading(numbers.number(m.second.value), m.second.bar)}, as consistent, on "
                "other steps",
            )
        yield (
            "error",
            f"{numbers.error(m.error)}, {numbers.ratio(m.error, m.tolerance.value)} times the "
            "tolerance",
        )
    t, f = m.tolerance, m.fixed
    yield (
        "tolerance",
        f"{numbers.bar(t.value)} = atol {t.atol:g} + max(rtol {t.rtol:g} * "
        f"{numbers.number(t.size)}, floor {numbers.bar(t.floor)})",
    )
    if f:
        yield (
            "at eps",
            (
                f"step {f.step:g}: quotient {numbers.number(f.quotient)}, error "
                f"{numbers.error(abs(m.analytic - f.quotient))}, "
                f"tolerance {numbers.bar(f.tolerance)} (atol {f.atol:g}, rtol {f.rtol:g})"
            ),
        )
    yield (
        "noise of f",
        f"{numbers.bar(m.sigma)} (standard deviation), unit roundoff {numbers.bar(m.unit)}",
    )
    if m.truncation:
        yield (
            "truncation",
            f"about {numbers.bar(m.truncation.factor)} * step^{m.truncation.power:.2f}",
        )
    if m.limit:
        yield "limited by", m.limit
    yield "calls", f"{m.forward} forward, {m.backward} backward"
