"""Ctrl-C, SIGTERM and SIGHUP while workers run: the handler notes the signal, and the waiting loop
raises for it, instead of an exception at any line."""

from __future__ import annotations

import contextlib
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from gradverify.model.interrupt import STOP_SIGNALS, is_ignored


class Stopped(Exception):  # noqa: N818 - no error: the run was requested to end
    """Raised for the signal `number`."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


class Signals:
    """Handlers of the signals from `install` to `close`, or as a context manager.

    A second Ctrl-C raises KeyboardInterrupt at once. Outside the main thread no signal is handled.
    """

    def __init__(self) -> None:
        self.number: int | None = None
        self._at_once = False
        self.bell, self._bell_end = socket.socketpair()  # readable once a signal has arrived
        for end in (self.bell, self._bell_end):
            end.setblocking(False)
        self._before: dict[int, Any] = {}
        self._wakeup = -1

    def install(self) -> Signals:
        """Install the handlers, unless they are."""
        if threading.current_thread() is threading.main_thread() and not self._before:
            self._wakeup = signal.set_wakeup_fd(self._bell_end.fileno(), warn_on_full_buffer=False)
            self._before = {
                number: signal.signal(number, self._note)
                for number in STOP_SIGNALS
                if not is_ignored(number)
            }
        return self

    def __enter__(self) -> Signals:
        return self.install()

    def __exit__(self, *raised: object) -> None:
        self.close()

    def check(self) -> None:
        """Raise Stopped if a signal has arrived."""
        with contextlib.suppress(OSError):
            self.bell.recv(64)
        if self.number is not None:
            raise Stopped(self.number)

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """Raise Stopped inside at the moment a signal arrives: for waiting that nothing else
        ends."""
        self._at_once = True
        try:
            self.check()
            yield
        finally:
            self._at_once = False

    @contextmanager
    def during(self) -> Iterator[None]:
        """Handle signals inside only; may be entered again. Raises Stopped at the end for a signal
        that no `check` has raised for."""
        self.install()
        try:
            yield
            self.check()
        finally:
            self._restore()

    def close(self) -> None:
        """Restore the earlier handlers, and close the sockets."""
        self._restore()
        self.bell.close()
        self._bell_end.close()

    def _restore(self) -> None:
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
