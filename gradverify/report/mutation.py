"""Damaged gradients in words: a line per check as it ends, then what was let through, what changes nothing, and the share that was killed."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from gradverify.model.codec import to_json
from gradverify.model.mutation import MutatedCheck, MutationReport, Outcome, counts
from gradverify.report.look import Look
from gradverify.report.names import one_line
from gradverify.report.numbers import counted, seconds
from gradverify.report.terminal.canvas import indented, paint

LIVES = ("function", "damage", "gradient of", "why, and what would kill it")
SAME = ("function", "damage", "gradient of", "why it cannot be seen")
KINDS = ("damage", "killed", "let through", "equivalent")
WORD, INDENT = len("killed 19 of 19") + 2, len("12.3 s") + 3


def render(report: MutationReport) -> str:
    """The JSON document."""
    return json.dumps(to_json(report), indent=2, allow_nan=False) + "\n"


def check_line(check: MutatedCheck, look: Look) -> str:
    """One check: how much of the damage that changes its gradients it finds; or why it was left out."""
    name = one_line(check.name)
    if check.left_out is not None:
        style = "bold red" if check.broken else "yellow"
        head, why = Text("left out".ljust(WORD + INDENT), style=style), Text(one_line(check.left_out))
        if not look.boxes or WORD + INDENT + cell_len(f"{name}: {why.plain}") <= look.columns:
            return paint([Text.assemble(head, name, ": ", why, no_wrap=True)], look)
        return paint([Text.assemble(head, name, ":", no_wrap=True), indented(why, WORD + INDENT, look)], look)
    fates = [mutant.fate for mutant in check.mutants]
    killed, tried = fates.count("killed"), fates.count("killed") + fates.count("survived")
    counts = {"survived": tried - killed, "without effect here": len(fates) - tried}
    notes = ", ".join(f"{count} {what}" for what, count in counts.items() if count)
    word = (f"killed {killed} of {tried}".ljust(WORD), "green" if killed == tried else "yellow")
    head = Text.assemble(word, f"{seconds(check.seconds):>7}  {name}")
    apart = "\n" + " " * (WORD + INDENT) if look.boxes and cell_len(f"{head.plain}  {notes}") > look.columns else "  "
    return paint([Text.assemble(head, apart + notes if notes else "", no_wrap=True)], look)


def closing(report: MutationReport, look: Look) -> str:
    """The tables, and the count as the last line."""
    return paint(_pieces(report, look), look)


def _pieces(report: MutationReport, look: Look) -> Iterator[RenderableType]:
    if report.damage:
        yield Text()
        yield _table(KINDS, list(_by_kind(report.damage)), look, numbers=3)
    for title, headers, fates in (("let through", LIVES, ("survived", "unseen")), ("equivalent, and not counted", SAME, ("equivalent",))):
        found = [outcome for outcome in report.damage if outcome.fate in fates]
        if found:
            yield Text()
            yield Text(title, style="bold yellow" if "unseen" in fates else "bold")
            yield _table(headers, [_row(outcome) for outcome in found], look)
    if report.damage:
        yield Text()
    yield _summary(report)


def _by_kind(damage: Sequence[Outcome]) -> Iterator[tuple[str, ...]]:
    for kind in dict.fromkeys(outcome.damage for outcome in damage):
        own = counts(outcome for outcome in damage if outcome.damage == kind)
        yield kind, str(own.killed), str(own.let_through or ""), str(own.equivalent or "")


def _row(outcome: Outcome) -> tuple[str, ...]:
    where = f" (in {outcome.check})" if outcome.fate == "survived" else ""
    return outcome.function, outcome.damage, ", ".join(outcome.inputs) or "all inputs", f"{outcome.why or ''}{where}"


def _table(headers: Sequence[str], rows: Sequence[Sequence[str]], look: Look, numbers: int = 0) -> RenderableType:
    """A grid; in the plain format the same columns, lined up and without a frame, the last one uncut."""
    cells = [[one_line(cell.replace("×", "x") if look.ascii else cell) for cell in row] for row in rows]
    if not look.boxes:
        return _lines([headers, *cells], numbers)
    grid = Table(box=None if look.ascii else SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False, pad_edge=False, header_style="dim")
    for place, header in enumerate(headers):
        right = numbers and place
        grid.add_column(Text(header), overflow="fold", justify="right" if right else "left", ratio=None)
    for row in cells:
        grid.add_row(*(Text(cell) for cell in row))
    return grid


def _lines(rows: Sequence[Sequence[str]], numbers: int) -> Text:
    widths = [max(cell_len(row[place]) for row in rows) for place in range(len(rows[0]))]
    lines = ["  ".join(_padded(cell, widths[place], bool(numbers) and place > 0) for place, cell in enumerate(row)).rstrip() for row in rows]
    return Text("\n".join(lines), no_wrap=True)


def _padded(cell: str, width: int, right: bool) -> str:
    blank = " " * (width - cell_len(cell))
    return blank + cell if right else cell + blank


def _summary(report: MutationReport) -> Text:
    """One line, however narrow."""
    head = Text("interrupted: ", style="bold red") if report.interrupted else Text()
    time = f" in {seconds(report.duration_s)}"
    if report.share is None:
        return Text.assemble(head, ("nothing was damaged", "bold yellow"), time, _left_out(report.checks), no_wrap=True)
    c = report.counts
    style = "green" if not c.let_through else "yellow"
    parts = [f"{c.let_through} let through"] * bool(c.let_through) + [f"{c.equivalent} equivalent"] * bool(c.equivalent)
    share = (f"killed {c.killed} of {c.counted} ({report.share:.1f} %)", style)
    return Text.assemble(head, share, *(f", {part}" for part in parts), time, _left_out(report.checks), no_wrap=True)


def _left_out(checks: Iterable[MutatedCheck]) -> str:
    count = sum(check.left_out is not None for check in checks)
    return f"; {counted(count, 'check')} left out" if count else ""
