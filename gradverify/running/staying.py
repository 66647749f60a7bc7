"""While user code runs, this process stays: what would end it without a word is an exception, or at least leaves its stack."""

from __future__ import annotations

import faulthandler
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn


class ProcessExit(BaseException):
    """The user's code called os._exit: with status 0 it would have ended the whole run as if all had passed."""


@contextmanager
def staying() -> Iterator[None]:
    """os._exit raises ProcessExit in this process and while this lasts; in a child of fork, and afterwards, it is itself."""
    leave, here, lasting = os._exit, os.getpid(), True

    def stay(status: int) -> NoReturn:
        if lasting and os.getpid() == here:
            raise ProcessExit(f"os._exit({status})")
        leave(status)

    os._exit = stay
    try:
        yield
    finally:
        lasting, os._exit = False, leave


@contextmanager
def stack_on_crash(stderr: int) -> Iterator[None]:
    """A segmentation fault writes the Python stack to this descriptor, unless somebody else looks after that already."""
    if faulthandler.is_enabled():
        yield
        return
    faulthandler.enable(stderr)
    try:
        yield
    finally:
        faulthandler.disable()
