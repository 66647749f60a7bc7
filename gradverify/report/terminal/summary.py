"""The end of the output: the counts, and how to see the first failure again."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType
from rich.text import Text

from gradverify.model.event import Shard
from gradverify.model.report import NOT_JUDGED, OK, Report
from gradverify.report.names import clean
from gradverify.report.numbers import counted, seconds
from gradverify.report.reproduce import again
from gradverify.report.terminal import status

SAID = {"FAIL": "failed", "XPASS": "passed unexpectedly", "ERROR": "could not be judged", "REQUIRED": "skipped though required",
        "UNDECIDED": "undecided", "PASS": "passed", "XFAIL": "failed as expected", "KNOWN": "known", "SKIP": "skipped", "NOT RUN": "not run"}
"""What is said of each kind of outcome, worst first."""


def summary(report: Report) -> Iterator[RenderableType]:
    """The counts as the last line, or the first failure's command where there is one."""
    if report.crashed:
        yield Text(f"gradverify itself failed: {clean(report.crashed)}", style="bold red", no_wrap=True)
    faulty = sum(bool(check.faults) for check in report.checks)
    if faulty:
        yield Text(f"gradverify itself failed in {counted(faulty, 'check')}: a fault of its own, told on stderr", style="bold red", no_wrap=True)
    yield counts(report)
    first = next((check for check in report.checks if status.is_red(check)), None)
    if first is not None:
        yield Text("the first failure again:")
        yield Text("  " + again(first, report.argv), style="bold", no_wrap=True)
    open = sum(check.verdict == "undecided" and check.expect == "pass" and check.ok is True and not check.baselined for check in report.checks)
    if open and report.exit_code == OK and "--exit-zero" not in report.argv:
        yield Text(f"{open} undecided: not checked. The exit code is 0; where CI is set, or with --undecided fail, it is {NOT_JUDGED}",
                   style=status.STYLES["UNDECIDED"], no_wrap=True)
    if report.forgiven is not None:
        yield Text(f"--exit-zero: verdicts do not count; without it the exit code is {report.forgiven}", style="bold yellow")


def _part(shard: Shard) -> Text:
    whole, part = counted(shard.total, "check"), f"shard {shard.index}/{shard.count}"
    return Text(f"{part} of {whole}", style="dim") if shard.places else Text(f"none of {whole} falls to {part}")


def counts(report: Report) -> Text:
    """One line, however narrow: whoever reads the last line reads all of it."""
    words = [status.outcome(check) for check in report.checks]
    parts = [Text(f"{words.count(word)} {said}", style=status.STYLES[word]) for word, said in SAID.items() if word in words]
    if report.summary.warnings:
        parts.append(Text(counted(report.summary.warnings, "warning"), style="yellow"))
    if report.selection.deselected:
        parts.append(Text(f"{report.selection.deselected} deselected", style="dim"))
    if report.selection.repeat > 1:
        parts.append(Text(f"each in {report.selection.repeat} repeats", style="dim"))
    shard = report.selection.shard
    if shard:
        parts.append(_part(shard))
    if not (shard and shard.total and not shard.places) and not any(word not in ("SKIP", "REQUIRED", "NOT RUN") for word in words):
        parts.insert(0, Text("nothing was checked", style="bold yellow"))
    head = Text("interrupted: ", style="bold red") if report.interrupted else Text()
    return Text.assemble(head, Text(", ").join(parts), f" in {seconds(report.duration_s)}", no_wrap=True)
