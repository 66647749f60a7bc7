"""What ends a run or a check: Ctrl-C, told apart from a KeyboardInterrupt that checked code raises
itself; and a budget that is spent."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import FrameType

HEARD = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)
"""The signals that end a run, after what was checked is written: Ctrl-C, of a CI service, of a
terminal that is closed."""


def is_ignored(number: int) -> bool:
    """Is the signal of no concern to this process, as SIGHUP under `nohup`?"""
    return signal.getsignal(number) == signal.SIG_IGN


class Interrupted(KeyboardInterrupt):
    """The signal came."""


class Spent(BaseException):
    """No further call is afforded; the text says why. No Exception: only what knows what was found
    so far is to take it for an answer."""


class OnSigint:
    """The handler of SIGINT while a check runs; `noted`: the signal came, whatever became of the
    exception in the checked code."""

    def __init__(self) -> None:
        self.noted = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self.noted = True
        raise Interrupted


# Of the running check; None where somebody else hears SIGINT
_HEARING: ContextVar[OnSigint | None] = ContextVar("hearing", default=None)

# A process that Ctrl-C does not reach
_UNHEARD: ContextVar[bool] = ContextVar("unheard", default=False)


def is_interrupt(error: BaseException) -> bool:
    """Does this end the run? A KeyboardInterrupt does where SIGINT came, or where it is not ours to
    hear (the checked code put Python's own handler back, say). Outside the main thread no signal
    ever raises: there it is always the checked code's."""
    # Not `isinstance`, which asks the exception's own __class__
    kind, hearing = type(error), _HEARING.get()
    if (
        not issubclass(kind, KeyboardInterrupt)
        or _UNHEARD.get()
        or threading.current_thread() is not threading.main_thread()
    ):
        return False
    return (
        issubclass(kind, Interrupted)
        or hearing is None
        or hearing.noted
        or signal.getsignal(signal.SIGINT) is signal.default_int_handler
    )


def heed() -> None:
    """Raises Interrupted where the signal came and the checked code swallowed it."""
    hearing = _HEARING.get()
    if hearing is not None and hearing.noted:
        raise Interrupted


@contextmanager
def unheard() -> Iterator[None]:
    """For a process that Ctrl-C does not reach: a KeyboardInterrupt is the checked code's own, also
    where it sends the signal to itself."""
    token = _UNHEARD.set(True)
    try:
        yield
    finally:
        _UNHEARD.reset(token)


@contextmanager
def interruptible() -> Iterator[None]:
    """SIGINT raises Interrupted inside, and at the end where it was swallowed, if Python's own
    handler stood there before; afterwards that stands again, whatever the checked code set."""
    before = signal.getsignal(signal.SIGINT)
    if (
        before is not signal.default_int_handler
        or threading.current_thread() is not threading.main_thread()
    ):
        yield
        return
    handler = OnSigint()
    signal.signal(signal.SIGINT, handler)
    token = _HEARING.set(handler)
    try:
        yield
        heed()
    finally:
        _HEARING.reset(token)
        signal.signal(signal.SIGINT, before)
