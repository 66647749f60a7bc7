"""While user code runs, this process stays: what would end it without a word is an exception, or at
least leaves its stack."""

from __future__ import annotations

import faulthandler
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

ENDS = ("_exit", "execv", "execve")  # through the last two go all of the kind


class ProcessExit(BaseException):
    """The user's code called os._exit, or replaces the process: with status 0 the whole run would
    have ended as if all had passed."""


@contextmanager
def staying() -> Iterator[None]:
    """What ends this process raises ProcessExit in it and while this lasts; in a child of fork, and
    afterwards, it is itself."""
    originals, here, lasting = (
        {name: getattr(os, name) for name in ENDS if hasattr(os, name)},
        os.getpid(),
        True,
    )

    def staying_at(name: str) -> Callable[..., NoReturn]:
        def stay(*given: Any) -> NoReturn:
            if lasting and os.getpid() == here:
                raise ProcessExit(f"os.{name}({_shown(given[0]) if given else ''})")
            originals[name](*given)
            raise AssertionError(name)  # it does not return

        return stay

    for name in originals:
        setattr(os, name, staying_at(name))
    try:
        yield
    finally:
        lasting = False
        for name, original in originals.items():
            setattr(os, name, original)


def _shown(argument: Any) -> Any:
    return os.fsdecode(argument) if isinstance(argument, bytes) else argument


@contextmanager
def stack_on_crash(stderr: int) -> Iterator[None]:
    """A segmentation fault writes the Python stack to this descriptor, unless somebody else looks
    after that already."""
    if faulthandler.is_enabled():
        yield
        return
    faulthandler.enable(stderr)
    try:
        yield
    finally:
        faulthandler.disable()
