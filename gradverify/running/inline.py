"""Checks in this process: torch is imported when the first one runs. What the user's code prints is kept for the report."""

from __future__ import annotations

import ctypes
import io
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, replace

from gradverify.model.case import Case
from gradverify.model.result import CaseResult

KEPT = 200              # last lines of what a check printed


@dataclass(frozen=True, slots=True)
class Devices:
    """What there is to compute on; `cuda` are the names of the CUDA devices."""

    cuda: tuple[str, ...]
    threads: int


def devices() -> Devices:
    """Asks torch. Imports it."""
    from gradverify.subject.machine import cuda_devices, threads

    return Devices(cuda_devices(), threads())


def run_case(case: Case) -> CaseResult:
    """Prepares and verifies one case. Only a fault of gradverify itself raises."""
    from gradverify.subject.failure import UserCodeError
    from gradverify.subject.find import importable
    from gradverify.subject.machine import undisturbed
    from gradverify.subject.prepare import prepare
    from gradverify.verify import failed, verify

    started = time.perf_counter()
    with _captured() as printed, undisturbed():
        try:
            with importable(case.search):
                result = verify(prepare(case))
        except UserCodeError as error:
            result = failed(case, error)
    return replace(result, seconds=time.perf_counter() - started, captured=_tail(printed))


@dataclass(slots=True)
class _Printed:
    """What was written to stdout and stderr, complete once the capture has ended."""

    text: str = ""


@contextmanager
def _captured() -> Iterator[_Printed]:
    """Nothing that a check prints reaches stdout, which may carry a format, or mixes with the progress on stderr; native writes included."""
    printed, text = _Printed(), io.StringIO()
    sys.stdout.flush()
    sys.stderr.flush()
    with tempfile.TemporaryFile() as native:
        saved = [(fd, os.dup(fd)) for fd in (1, 2)]
        for fd, _ in saved:
            os.dup2(native.fileno(), fd)
        try:
            with redirect_stdout(text), redirect_stderr(text):
                yield printed
        finally:
            _flush_native()
            for fd, copy in saved:
                os.dup2(copy, fd)
                os.close(copy)
            native.seek(0)
            printed.text = text.getvalue() + native.read().decode(errors="replace")


def _flush_native() -> None:
    """What C code printed may still be in libc's buffer, and Python's own streams buffer too: later they would reach the real stdout."""
    for stream in (sys.__stdout__, sys.__stderr__):
        if stream is not None and not stream.closed:
            stream.flush()
    try:
        ctypes.CDLL(None).fflush(None)
    except (OSError, TypeError, AttributeError):    # a platform whose C library cannot be named so
        return


def _tail(printed: _Printed) -> str | None:
    lines = printed.text.rstrip().splitlines()
    if not lines:
        return None
    more = [f"… {len(lines) - KEPT} lines before"] if len(lines) > KEPT else []
    return "\n".join(more + lines[-KEPT:])
