"""One line per check: verdict, name, elements compared, the smallest error it could have seen, calls, seconds; below it what needs saying."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rich.cells import cell_len
from rich.console import RenderableType
from rich.text import Text

from gradverify.model.result import CaseResult, Comparison, Finding
from gradverify.report.look import Look
from gradverify.report.names import clean, one_line
from gradverify.report.numbers import bar, seconds
from gradverify.report.terminal import status
from gradverify.report.terminal.canvas import indented

JACOBIAN = ("GV101", "GV111")
"""The rules that compare the elements of the Jacobian; other rules compare the same elements again."""

WIDE = 100
"""From this width on there is room for the whole sentence about the smallest error."""

INDENT = status.WORD_WIDTH + 2
NAME_LIMIT = 48


def line(check: CaseResult, look: Look, name_width: int = 0) -> Iterator[RenderableType]:
    """The line, then one indented line for each reason and each warning. `name_width` lines up the names of a run."""
    name, tail = one_line(check.name), _tail(check, look)
    head = (status.word(check).ljust(status.WORD_WIDTH) + "  ", status.style(check))
    room = look.columns - INDENT - 2 - tail.cell_len
    if cell_len(name) <= room or not look.boxes:
        pad = max(0, (min(name_width, room) if look.boxes else name_width) - cell_len(name))
        yield Text.assemble(head, name, " " * (pad + 2), tail)
    else:
        yield Text.assemble(head, name, no_wrap=True)
        yield indented(tail, INDENT, look)
    yield from (indented(note, INDENT, look) for note in _notes(check))


def name_width(names: Iterable[str]) -> int:
    """The width of the column of names: that of the longest one which is not extreme."""
    widths = [cell_len(one_line(name)) for name in names]
    return max([width for width in widths if width <= NAME_LIMIT], default=0)


def _tail(check: CaseResult, look: Look) -> Text:
    if check.verdict in ("skip", "not_run"):
        return Text(one_line(check.reason or ""), style="dim")
    shown = judged_comparisons(check)
    elements = sum(comparison.elements for comparison in shown)
    calls = check.calls.forward + check.calls.backward
    noun, times = "element " if elements == 1 else "elements", "call " if calls == 1 else "calls"
    phrase, width = _phrase(check, shown, look), 36 if look.width >= WIDE else 16
    return Text(f"{elements:>6} {noun}  {phrase:<{width}}  {calls:>5} {times}  {seconds(check.seconds):>7}")


def judged_comparisons(check: CaseResult) -> tuple[Comparison, ...]:
    """The comparisons whose elements the line counts: those of the Jacobian, or all where there are none."""
    jacobian = tuple(comparison for comparison in check.comparisons if comparison.rule in JACOBIAN)
    return jacobian or check.comparisons


def _phrase(check: CaseResult, shown: tuple[Comparison, ...], look: Look) -> str:
    if check.verdict == "pass":
        return _resolution(shown, look) + _undecided(shown)
    if check.verdict == "undecided":
        return _undecided(shown).removeprefix(", ") or "undecided"
    codes = dict.fromkeys(_title(finding) for finding in check.findings if finding.severity == "error")
    return ", ".join(codes)


def _resolution(shown: tuple[Comparison, ...], look: Look) -> str:
    if not sum(comparison.elements for comparison in shown):
        return "nothing to compare"
    smallest = bar(max(comparison.resolution for comparison in shown))
    return f"would have seen errors above {smallest}" if look.width >= WIDE else f"resolves {smallest}"


def _undecided(shown: tuple[Comparison, ...]) -> str:
    count = sum(comparison.undecided + comparison.non_finite for comparison in shown)
    return f", {count} undecided" if count else ""


def _title(finding: Finding) -> str:
    return f"{finding.code} {finding.name}".strip()


def _notes(check: CaseResult) -> Iterator[Text]:
    if check.verdict in ("undecided", "error") and check.reason:
        yield Text(clean(check.reason))
    broken = status.broken_expectation(check)
    if broken:
        yield Text(broken, style="red")
    if not status.is_red(check):
        yield from (_warning(finding) for finding in check.findings if finding.severity == "warning" and finding.code not in check.expect)


def _warning(finding: Finding) -> Text:
    return Text.assemble(("warning ", "yellow"), f"{_title(finding)}: {clean(finding.message)}")
