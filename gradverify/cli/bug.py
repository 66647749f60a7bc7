"""The bug report that is shown if gradverify itself fails."""

from __future__ import annotations

import platform
import shlex
import traceback
from collections.abc import Iterator, Sequence

from gradverify.model.fault import distinct
from gradverify.model.report import Report
from gradverify.report.numbers import some

FRAMES = 8
SHOWN = 3  # checks named for one fault


def version_of(package: str) -> str | None:
    """Return the installed version, without importing the package."""
    # Takes 27 ms, which other commands do not need
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(package)
    except PackageNotFoundError:
        return None


def bug_report(what: str, arguments: Sequence[str]) -> str:
    """Return the text of a bug report. `what`: a traceback or a sentence."""
    versions = ", ".join(
        f"{name} {version_of(name) or 'not installed'}"
        for name in ("gradverify", "torch", "typer", "rich")
    )
    return (
        "gradverify failed: this is a fault in gradverify, not in what it checks. Please report "
        "it with these lines:\n"
        f"  command: {shlex.join(['gradverify', *arguments])}\n"
        f"  {versions}, Python {platform.python_version()}, {platform.platform()}\n{what.rstrip()}"
    )


def bug_reports(report: Report) -> Iterator[str]:
    """Yield a bug report for each distinct fault of a run, with the checks that it affected."""
    if report.crashed:
        yield bug_report(report.crashed, report.argv)
    for fault, ids in distinct(report.checks):
        yield bug_report(f"  in {fault.during}, of {some(ids, SHOWN)}\n{fault.trace}", report.argv)


def last_frames(error: BaseException) -> str:
    """Return the last frames of a traceback, without the values of locals."""
    return "".join(
        traceback.format_exception(type(error), error, error.__traceback__, limit=-FRAMES)
    )
