"""The checks that took longest, with their calls: `--durations N`."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType
from rich.text import Text

from gradverify.model.report import Report
from gradverify.report.names import one_line
from gradverify.report.numbers import counted, seconds


def slowest(report: Report, most: int | None) -> Iterator[RenderableType]:
    """At most so many, the slowest first; 0: all; None: nothing. Of what was run."""
    ran = [check for check in report.checks if check.verdict not in ("skip", "not_run")]
    if most is None or not ran:
        return
    shown = sorted(ran, key=lambda check: -check.seconds)[:most or None]
    yield Text(f"the slowest {len(shown)} of {counted(len(ran), 'check')}:" if len(shown) < len(ran) else "how long each check took:")
    for check in shown:
        calls = check.calls.forward + check.calls.backward
        yield Text(f"{seconds(check.seconds):>10} {calls:>9,} {'call ' if calls == 1 else 'calls'}  {one_line(check.name)}", no_wrap=True)
    yield Text("")
