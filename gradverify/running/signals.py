"""Ctrl-C, SIGTERM and SIGHUP while workers run: noted, and seen by whoever waits, instead of an
exception at any line."""

from __future__ import annotations

import contextlib
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from gradverify.model.interrupt import HEARD, is_ignored


class Stopped(Exception):  # noqa: N818 - no error: somebody asked the run to end
    """A signal came; `number` is its own."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


class Signals:
    """From `hear` to `close`, or as a context. A second Ctrl-C is Python's own KeyboardInterrupt.
    Outside the main thread nothing can be heard."""

    def __init__(self) -> None:
        self.number: int | None = None
        self._at_once = False
        self.bell, self._string = socket.socketpair()  # rings where a signal comes
        for end in (self.bell, self._string):
            end.setblocking(False)
        self._before: dict[int, Any] = {}
        self._wakeup = -1

    def hear(self) -> Signals:
        if threading.current_thread() is threading.main_thread() and not self._before:
            self._wakeup = signal.set_wakeup_fd(self._string.fileno(), warn_on_full_buffer=False)
            self._before = {
                number: signal.signal(number, self._note)
                for number in HEARD
                if not is_ignored(number)
            }
        return self

    def __enter__(self) -> Signals:
        return self.hear()

    def __exit__(self, *raised: object) -> None:
        self.close()

    def check(self) -> None:
        """Raises Stopped where a signal came."""
        with contextlib.suppress(OSError):
            self.bell.recv(64)
        if self.number is not None:
            raise Stopped(self.number)

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """Inside, a signal raises Stopped where it comes: for waiting that nothing else would
        end."""
        self._at_once = True
        try:
            self.check()
            yield
        finally:
            self._at_once = False

    @contextmanager
    def during(self) -> Iterator[None]:
        """Heard inside only, as often as it is entered. A signal that nobody has seen by the end
        raises Stopped there."""
        self.hear()
        try:
            yield
            self.check()
        finally:
            self._give_back()

    def close(self) -> None:
        """What signals do is what it was."""
        self._give_back()
        self.bell.close()
        self._string.close()

    def _give_back(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if self._before:
            signal.set_wakeup_fd(self._wakeup)
        self._before = {}

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.number is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.number = number
        if self._at_once:
            raise Stopped(number)
