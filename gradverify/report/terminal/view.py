"""The whole text of a run, and its parts as they are printed: a line as each check ends, panels
and summary at the end."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import replace
from functools import partial

from rich.cells import cell_len
from rich.console import RenderableType
from rich.text import Text

from gradverify.model.problem import NOT_JUDGED, OK
from gradverify.model.report import Report
from gradverify.model.result import CaseResult, Finding
from gradverify.report.look import Look
from gradverify.report.names import readable
from gradverify.report.numbers import counted, seconds, some
from gradverify.report.reproduce import again
from gradverify.report.terminal import status
from gradverify.report.terminal.canvas import paint, shielded
from gradverify.report.terminal.line import details, fitted, line, name_width
from gradverify.report.terminal.panel import panel


def slowest(report: Report, most: int | None) -> Iterator[RenderableType]:
    """Yield the times of at most so many of the checks that ran, the slowest first; 0: all; None:
    nothing."""
    ran = [check for check in report.checks if check.was_run]
    if most is None or not ran:
        return
    shown = sorted(ran, key=lambda check: -check.seconds)[: most or None]
    yield Text(
        f"the slowest {len(shown)} of {counted(len(ran), 'check')}:"
        if len(shown) < len(ran)
        else "how long each check took:"
    )
    for check in shown:
        calls = check.calls.forward + check.calls.backward
        yield Text(
            f"{seconds(check.seconds):>10} {calls:>9,} {'call ' if calls == 1 else 'calls'}  "
            + check.name,
            no_wrap=True,
        )
    yield Text("")


MOST_NAMED = 4  # cases that fail in the same way
COUNTED_AS = {
    "FAIL": "failed",
    "XPASS": "passed unexpectedly",
    "ERROR": "could not be judged",
    "REQUIRED": "skipped though required",
    "UNDECIDED": "undecided",
    "PASS": "passed",
    "XFAIL": "failed as expected",
    "KNOWN": "known",
    "SKIP": "skipped",
    "NOT RUN": "not run",
}
"""Word → its description in the counts, worst first."""


def summary(report: Report, look: Look) -> Iterator[RenderableType]:
    """Yield the summary, with the counts as the last line, or the command of the first failure if
    there is one."""
    if report.crashed:
        yield Text(f"gradverify itself failed: {report.crashed}", style="bold red", no_wrap=True)
    faulty = sum(bool(check.faults) for check in report.checks)
    if faulty:
        yield Text(
            f"gradverify itself failed in {counted(faulty, 'check')}: a bug of its own, described "
            "on stderr",
            style="bold red",
            no_wrap=True,
        )
    yield counts(report, look)
    red = [check for check in report.checks if status.is_red(check)]
    # For a single failure its panel shows the command a few lines above
    first = red[0] if red and not (len(red) == 1 and report.argv is not None) else None
    if first is not None:
        yield Text("the first failure again:")
        yield Text("  " + again(first, report.argv), style="bold", no_wrap=True)
    open = sum(
        check.verdict == "undecided"
        and check.expect == "pass"
        and check.ok is True
        and not check.baselined
        for check in report.checks
    )
    if open and report.exit_code == OK and "--exit-zero" not in report.argv:
        yield Text(
            f"{open} undecided: not checked. The exit code is 0; where CI is set, or with "
            f"--undecided fail, it is {NOT_JUDGED}",
            style=status.STYLES["UNDECIDED"],
            no_wrap=True,
        )
    if report.forgiven is not None:
        yield Text(
            f"--exit-zero: verdicts do not count; without it the exit code is {report.forgiven}",
            style="bold yellow",
        )


def _warnings(report: Report, quiet: bool) -> Iterator[Text]:
    """Yield the number of unexpected warnings, and how many of these are not shown, as `-q` omits
    the lines of passed checks."""
    shown = set[Hashable]()
    red = [check for check in report.checks if status.is_red(check)]
    others = [check for check in report.checks if not status.is_red(check)]
    count = sum(len(once(check, shown).warnings) for check in red)
    hidden = sum(len(once(check, shown).warnings) for check in others)
    count, hidden = count + hidden, hidden if quiet else 0
    if count:
        checks = sum(bool(check.warnings) for check in report.checks)
        where = f" in {counted(checks, 'check')}" if checks > count else ""
        yield Text(
            counted(count, "warning") + where + (f" ({hidden} not shown)" if hidden else ""),
            style="yellow",
        )


def once(check: CaseResult, shown: set[Hashable]) -> CaseResult:
    """Return a check without the warnings of a code at a line that are `shown` already; the others
    are added to these."""

    def is_new(finding: Finding) -> bool:
        key = (finding.file, finding.line, finding.code)
        if finding.severity != "warning" or finding.line is None:
            return True
        if key in shown:
            return False
        shown.add(key)
        return True

    return replace(check, findings=tuple(filter(is_new, check.findings)))


def counts(report: Report, look: Look | None = None) -> Text:
    """Return the counts on one line, whatever the width, so that the last line is complete."""
    words = [status.outcome(check) for check in report.checks]
    parts = [
        Text(f"{words.count(word)} {description}", style=status.STYLES[word])
        for word, description in COUNTED_AS.items()
        if word in words
    ]
    parts += _warnings(report, look is not None and look.verbosity < 0)
    if report.selection.deselected:
        parts.append(Text(f"{report.selection.deselected} deselected", style="dim"))
    if report.selection.left_out:
        parts.append(
            Text(f"{counted(report.selection.left_out, 'other file')} left out", style="dim")
        )
    shard = report.selection.shard
    if shard:
        whole, part = counted(shard.total, "check"), f"shard {shard.index}/{shard.count}"
        parts.append(
            Text(f"{part} of {whole}", style="dim")
            if words
            else Text(f"none of {whole} falls to {part}")
        )
    if not (shard and shard.total and not words) and not any(
        word not in ("SKIP", "REQUIRED", "NOT RUN") for word in words
    ):
        parts.insert(0, Text("nothing was checked", style="bold yellow"))
    head = Text("interrupted: ", style="bold red") if report.interrupted else Text()
    return Text.assemble(
        head, Text(", ").join(parts), f" in {seconds(report.duration_s)}", no_wrap=True
    )


def render(report: Report, look: Look) -> str:
    """Return all that a run prints: lines, panels, summary."""
    width, shown = name_width(check.name for check in report.checks), set[Hashable]()
    lines = (check_line(check, look, width, shown=shown) for check in report.checks)
    return "".join(lines) + closing(report, look)


def check_line(
    check: CaseResult,
    look: Look,
    name_width: int = 0,
    origins: Mapping[str, str] | None = None,
    shown: set[Hashable] | None = None,
) -> str:
    """Return the text printed as one judged check ends; empty with `-q` unless it failed, and for
    a check that was not run unless with `-v`. `shown`: the warnings that need not be repeated,
    without `-v`; those of this check are added."""
    if look.verbosity < (1 if check.verdict == "not_run" else 0) and not status.is_red(check):
        return ""
    if shown is not None and look.verbosity < 1 and not status.is_red(check):
        check = once(check, shown)
    check, origins = readable((check, origins))
    what = f"{status.word(check)}  {check.name}: the rest of its line"
    return paint(shielded(what, lambda: _line(check, look, name_width, origins), look), look)


def _line(
    check: CaseResult, look: Look, name_width: int, origins: Mapping[str, str] | None
) -> Iterator[RenderableType]:
    columns = fitted(name_width or cell_len(check.name), look)
    yield from line(check, look, columns)
    if look.verbosity > 0:
        yield from details(check, look, columns.word, origins)


def closing(report: Report, look: Look) -> str:
    """Return the text printed at the end of the run: a panel per failure, then the summary."""
    return paint(_closing(readable(report), look), look)


def _closing(report: Report, look: Look) -> Iterator[RenderableType]:
    # Panels of failures; with `-v` also of undecided checks, with `-vv` of every check with
    # findings
    shown = [
        check
        for check in report.checks
        if status.is_red(check)
        or (look.verbosity > 0 and check.verdict == "undecided")
        or (look.verbosity > 1 and check.findings)
    ]
    if report.checks and not (look.verbosity < 0 and not shown):
        yield Text("")
    alike: dict[Hashable, list[CaseResult]] = {}
    for check in shown:  # with `-v` each by itself
        alike.setdefault(check.id if look.verbosity > 0 else _gist(check), []).append(check)
    for first, *others in alike.values():
        yield from shielded(
            f"the panel of {first.id}", partial(panel, first, report.argv, look), look
        )
        if others:
            cases = "1 more case" if len(others) == 1 else f"{len(others)} more cases"
            named = some([check.name for check in others], MOST_NAMED)
            yield Text(f"the same in {cases}: {named}")
    yield from slowest(report, look.slowest)
    yield from summary(report, look)


def _gist(check: CaseResult) -> Hashable:
    """Return what checks of one function in one spec have in common where they fail in the same
    way: the findings without numbers."""
    found = tuple(
        (each.code, each.severity, each.input, each.output, each.cause and each.cause.name)
        for each in check.findings
    )
    where = check.spec.path, check.function.target
    return where, check.verdict, status.word(check), found or check.id
