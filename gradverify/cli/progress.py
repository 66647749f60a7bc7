"""What runs now and for how long, on stderr, where a person watches."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TextIO

from rich.console import Console, RenderableType
from rich.live import Live
from rich.text import Text

from gradverify.report.names import one_line
from gradverify.report.numbers import seconds

PATIENCE = 0.3
"""Seconds: a check that ends sooner is not worth a flicker."""

REFRESHES = 5
"""Per second: the clock moves, a slow connection is not flooded."""


@dataclass
class Progress:
    """Draws one line below what was printed, and takes it away before anything else is printed. Draws nothing where `stream` is None."""

    stream: TextIO | None
    total: int = 0
    done: int = 0
    _live: Live | None = field(default=None, init=False)

    def begin(self, total: int) -> None:
        self.total = total

    def show(self, name: str) -> None:
        """A check began."""
        self.done += 1
        self.wait(f"{self.done} of {self.total}  {one_line(name)}")

    def wait(self, text: str) -> None:
        """Draws `text` and the time since now."""
        self.clear()
        if self.stream is None:
            return
        self._live = Live(_Line(text), console=_console(self.stream), transient=True, refresh_per_second=REFRESHES,
                          redirect_stdout=False, redirect_stderr=False)
        self._live.start()

    def clear(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None


class _Line:
    def __init__(self, text: str) -> None:
        self.text, self.began = text, time.monotonic()

    def __rich__(self) -> RenderableType:
        passed = time.monotonic() - self.began
        return Text(f"{self.text}  {seconds(passed)}" if passed > PATIENCE else "", style="dim", no_wrap=True, overflow="ellipsis")


def _console(stream: TextIO) -> Console:
    return Console(file=stream, force_terminal=True, markup=False, emoji=False, highlight=False, color_system=None)
