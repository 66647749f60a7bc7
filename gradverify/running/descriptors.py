"""File descriptors out of the way of code that closes or reuses low numbers."""

from __future__ import annotations

import os

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
