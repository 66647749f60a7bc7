"""Exceptions that end a run or a check: Ctrl-C, as distinguished from a KeyboardInterrupt that
checked code raises itself; and a budget that is spent."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import FrameType

STOP_SIGNALS = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)
"""The signals that end a run, after the results so far are written: Ctrl-C, a CI service that stops
the job, a terminal that is closed."""


def is_ignored(number: int) -> bool:
    """Return whether this process ignores the signal, as it does SIGHUP under `nohup`."""
    return signal.getsignal(number) == signal.SIG_IGN


@contextmanager
def handled(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Context in which the signals that end a run call a handler, those that are ignored aside."""
    before = {
        number: signal.signal(number, handler) for number in STOP_SIGNALS if not is_ignored(number)
    }
    try:
        yield
    finally:
        for number, own in before.items():
            signal.signal(number, signal.SIG_DFL if own is None else own)


class Interrupted(KeyboardInterrupt):
    """Raised by SIGINT itself, not by checked code."""


class Spent(BaseException):
    """Raised where the budget allows no further call; the text gives the reason. Not an Exception:
    only code that holds the results so far should catch it."""


class OnSigint:
    """The handler of SIGINT while a check runs. `noted`: the signal has arrived, even if checked
    code swallowed the exception."""

    def __init__(self) -> None:
        self.noted = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self.noted = True
        raise Interrupted


# The handler of the running check; None where other code handles SIGINT
_HANDLER: ContextVar[OnSigint | None] = ContextVar("handler", default=None)

# Whether Ctrl-C cannot reach this process
_BEYOND_CTRL_C: ContextVar[bool] = ContextVar("beyond_ctrl_c", default=False)


def is_interrupt(error: BaseException) -> bool:
    """Return whether an exception ends the run. A KeyboardInterrupt does if SIGINT arrived, or if
    our handler is not in place (checked code may have restored Python's own). Outside the main
    thread no signal raises, so there it always comes from checked code."""
    # Not `isinstance`, which evaluates the exception's own __class__
    kind, handler = type(error), _HANDLER.get()
    if (
        not issubclass(kind, KeyboardInterrupt)
        or _BEYOND_CTRL_C.get()
        or threading.current_thread() is not threading.main_thread()
    ):
        return False
    return (
        issubclass(kind, Interrupted)
        or handler is None
        or handler.noted
        or signal.getsignal(signal.SIGINT) is signal.default_int_handler
    )


def raise_if_interrupted() -> None:
    """Raise Interrupted if the signal arrived and checked code swallowed it."""
    handler = _HANDLER.get()
    if handler is not None and handler.noted:
        raise Interrupted


@contextmanager
def beyond_ctrl_c() -> Iterator[None]:
    """Treat every KeyboardInterrupt inside as raised by checked code, even one from a signal that
    it sends to itself: for a process that Ctrl-C does not reach."""
    token = _BEYOND_CTRL_C.set(True)
    try:
        yield
    finally:
        _BEYOND_CTRL_C.reset(token)


@contextmanager
def interruptible() -> Iterator[None]:
    """Let SIGINT raise Interrupted inside, and at the end if it was swallowed. Only where Python's
    own handler is installed; that one is restored afterwards, whatever checked code set."""
    before = signal.getsignal(signal.SIGINT)
    if (
        before is not signal.default_int_handler
        or threading.current_thread() is not threading.main_thread()
    ):
        yield
        return
    handler = OnSigint()
    signal.signal(signal.SIGINT, handler)
    token = _HANDLER.set(handler)
    try:
        yield
        raise_if_interrupted()
    finally:
        _HANDLER.reset(token)
        signal.signal(signal.SIGINT, before)
