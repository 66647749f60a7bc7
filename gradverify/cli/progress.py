"""Progress display on stderr, for a person who watches: the running checks, their number, the
time."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TextIO

from rich.console import Console, RenderableType
from rich.live import Live
from rich.text import Text

from gradverify.model.event import Plan
from gradverify.report.names import inert, one_line
from gradverify.report.numbers import duration, memory, seconds

PATIENCE = 0.3
"""Seconds: the time of a check that ends sooner is not shown."""

REFRESHES = 5
"""Per second: enough to show time passing, few for a slow connection."""


LONG = 5.0
"""Seconds: a comparison that is predicted to take longer is announced with its cost."""


@dataclass
class Progress:
    """A display of one line below the output so far, removed before anything else is printed;
    without a `stream` nothing is drawn.

    `notes`: the stream for announcements of long comparisons, in lines that stay; None: no
    announcements.
    """

    stream: TextIO | None
    notes: TextIO | None = None
    total: int = 0
    done: int = 0
    running: list[str] = field(default_factory=list)
    _live: Live | None = field(default=None, init=False)

    def begin(self, total: int) -> None:
        self.total = total

    def show(self, name: str) -> None:
        """Note that a check began."""
        self.done += 1
        self.running.append(_shown(name))
        self._draw()

    def ended(self, name: str) -> None:
        """Note that a check ended; others may still run."""
        if _shown(name) in self.running:
            self.running.remove(_shown(name))
        if self.running:
            self._draw()

    def _draw(self) -> None:
        self.wait(f"{self.done} of {self.total}  {', '.join(self.running)}")

    def wait(self, text: str) -> None:
        """Draw `text` and the time from now on."""
        self.clear()
        if self.stream is None:
            return
        self._live = Live(
            _Line(text),
            console=_console(self.stream),
            transient=True,
            refresh_per_second=REFRESHES,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._live.start()

    def planned(self, plan: Plan) -> None:
        """Announce the predicted cost of a running check, if it is long."""
        if plan.seconds > LONG:
            self._note(f"{_shown(plan.check) or ', '.join(self.running)}: {announced(plan)}")

    def clear(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _note(self, text: str) -> None:
        if self.notes is None:
            return
        if self._live:
            self._live.console.print(text, soft_wrap=True)
            return
        with suppress(OSError, ValueError):
            self.notes.write(text + "\n")
            self.notes.flush()


def announced(plan: Plan) -> str:
    """Return the predicted cost of a comparison: `comparing entries takes 63 forward and 3
    backward calls, about 8 s and 0.8 GiB`."""
    return (
        f"comparing {plan.mode} takes {plan.forward:,} forward and {plan.backward:,} backward "
        f"calls, about {duration(plan.seconds)} and {memory(plan.memory)}"
    )


def _shown(name: str) -> str:
    return inert(one_line(name))


class _Line:
    def __init__(self, text: str) -> None:
        self.text, self.began = text, time.monotonic()

    def __rich__(self) -> RenderableType:
        passed = time.monotonic() - self.began
        return Text(
            f"{self.text}  {seconds(passed)}" if passed > PATIENCE else "",
            style="dim",
            no_wrap=True,
            overflow="ellipsis",
        )


def _console(stream: TextIO) -> Console:
    return Console(
        file=stream,
        force_terminal=True,
        markup=False,
        emoji=False,
        highlight=False,
        color_system=None,
    )
