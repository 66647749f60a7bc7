"""File descriptors out of the way of code that closes or reuses low numbers."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

OPEN = Path("/dev/fd")
STANDARD = 3        # stdin, stdout, stderr: programs that are started have these

FIRST = 400     # code that closes 3 to 63, 3 to 255 and the like does not meet them


def high(descriptor: int) -> int:
    """A duplicate with a high number, where the platform has a choice; not inherited by programs that are started."""
    try:
        import fcntl
        import resource
    except ImportError:
        return os.dup(descriptor)
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, min(FIRST, soft // 2))


def moved(descriptor: int) -> int:
    """The same, with the low number given back."""
    found = high(descriptor)
    os.close(descriptor)
    return found


def keep_to_ourselves() -> None:
    """No program that is started holds what is open now: a pipe whose end nobody sees while a program that a check left in the background runs."""
    with contextlib.suppress(OSError):
        for name in os.listdir(OPEN):  # noqa: PTH208 - names only
            with contextlib.suppress(OSError):
                os.set_inheritable(int(name), int(name) < STANDARD)
