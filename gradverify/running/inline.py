"""Checks in this process: torch is imported when the first one runs. What the user's code prints is
kept for the report."""

from __future__ import annotations

import ctypes
import io
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gradverify.model.case import Case
from gradverify.model.element import Element
from gradverify.model.event import Planned
from gradverify.model.interrupt import is_interrupt
from gradverify.model.result import CaseResult
from gradverify.running.lost import undecided
from gradverify.running.process import MOST, cut, end_of, high, opened
from gradverify.running.staying import stack_on_crash, staying

STDOUT, STDERR = 1, 2  # the descriptors that native code writes to


@dataclass(frozen=True, slots=True)
class Devices:
    """What there is to compute on; `cuda` are the names of the CUDA devices, `reduced` the switches
    of fewer bits that are on there."""

    cuda: tuple[str, ...]
    threads: int
    reduced: tuple[str, ...] = ()


def devices() -> Devices:
    """Asks torch. Imports it."""
    from gradverify.subject.fewer_bits import in_fewer_bits
    from gradverify.subject.machine import cuda_devices, threads

    found = cuda_devices()
    return Devices(found, threads(), in_fewer_bits() if found else ())


def run_case(
    case: Case,
    planned: Planned | None = None,
    so_far: Callable[[CaseResult], None] | None = None,
    *,
    prepared: Callable[[], None] = lambda: None,
    changed: tuple[str, ...] = (),
    into: Path | None = None,
    own_process: bool = False,
) -> CaseResult:
    """Prepares and verifies one case. Only Ctrl-C raises. `planned` and `so_far` as in `verify`.

    `prepared` is called once everything is imported and made; `changed`: what the modules of the
    check did to the process that imported them.
    `into`: the file for what is printed, which another process reads if this one ends.
    `own_process`: this one ends with the check, and began as `machine.imports` has it; in any other
    one, torch's and NumPy's settings and random generators are put back, and nothing else.
    """
    from gradverify.subject.find import importable
    from gradverify.subject.instruments import replaced
    from gradverify.subject.machine import as_torch_starts, compute_on_one_thread, undisturbed
    from gradverify.subject.on_cuda import most_memory, start_of_memory
    from gradverify.subject.prepare import prepare
    from gradverify.verify import broken, verify

    started, put_back, before = time.perf_counter(), list[str](), replaced()
    with captured(into) as printed, ExitStack() as stack:
        if not own_process:
            stack.enter_context(undisturbed())
            stack.enter_context(as_torch_starts())
        stack.enter_context(staying())
        try:
            with importable(case.search, printed.only_if_raised) as put_back:
                start_of_memory(case.settings.device)
                subject = prepare(case)
                prepared()
                compute_on_one_thread(subject.size)
                result = replace(
                    verify(subject, planned, so_far),
                    device_memory=most_memory(case.settings.device),
                )
        except BaseException as error:
            result = broken(case, error)
    changed = tuple(
        dict.fromkeys((*changed, *(f"changed {name} while it was imported" for name in put_back)))
    )
    result = undecided(result, replaced(), () if own_process else before)
    return replace(
        result, seconds=time.perf_counter() - started, captured=printed.text, changed=changed
    )


def explain_case(case: Case, element: tuple[str, str] | None) -> Element | CaseResult:
    """Prepares one case and measures one element: names of the input's and the output's, or the
    worst. What the user's code raises is a result.

    Raises ProblemsError where there is no such element.
    """
    from gradverify.element.explain import Asked, explain
    from gradverify.subject.failure import UserCodeError, is_users
    from gradverify.subject.find import importable
    from gradverify.subject.machine import compute_on_one_thread, undisturbed
    from gradverify.subject.prepare import prepare
    from gradverify.verify import broken

    with captured() as printed, undisturbed(), staying():
        try:
            with importable(case.search, printed.only_if_raised):
                subject = prepare(case)
                compute_on_one_thread(subject.size)
                return explain(subject, Asked(*element) if element else None)
        except BaseException as error:
            if is_interrupt(error) or not (isinstance(error, UserCodeError) or is_users(error)):
                raise
            result = broken(case, error)
    return replace(result, captured=printed.text)


@dataclass(slots=True)
class _Printed:
    """The end of what was written to stdout and stderr, complete once the capture has ended.
    `file`: as much of it as is kept, until then."""

    file: io.FileIO
    text: str | None = None

    @contextmanager
    def only_if_raised(self) -> Iterator[None]:
        """What is printed inside is taken out again, unless something is raised."""
        _flush_native()
        before = self.file.tell()  # of the descriptors 1 and 2 as well
        yield
        _flush_native()
        self.file.truncate(min(before, os.fstat(self.file.fileno()).st_size))
        # A file without a name has no mode that always writes there
        self.file.seek(0, os.SEEK_END)


class _Sink(io.RawIOBase):
    """Writes to a file while a check runs, nowhere afterwards: a logger or thread of the user's may
    keep it for longer."""

    def __init__(self, file: io.FileIO) -> None:
        self.file: io.FileIO | None = file

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return STDOUT  # which leads to the same file as long as the check runs

    def write(self, data: Any) -> int:
        if self.file is not None:
            self.file.write(bytes(data[-2 * MOST :]))
            if self.file.tell() > MOST:
                cut(self.file)
        return len(data)


@contextmanager
def captured(into: Path | None = None) -> Iterator[_Printed]:
    """Nothing that a check prints reaches stdout, which may carry a format, or mixes with the
    progress on stderr; native writes included.

    `into`: the file that holds it meanwhile, in place of one without a name.
    """
    _flush_native()
    with _file(into) as file:
        printed = _Printed(file)
        sink = _Sink(file)
        stream = io.TextIOWrapper(
            sink, encoding="utf-8", errors="backslashreplace", write_through=True
        )  # type: ignore[type-var]
        saved = [(fd, high(fd)) for fd in (STDOUT, STDERR)]
        for fd, _ in saved:
            os.dup2(file.fileno(), fd)
        try:
            with redirect_stdout(stream), redirect_stderr(stream), stack_on_crash(saved[-1][1]):
                yield printed
        finally:
            _flush_native()
            for fd, copy in saved:
                with suppress(OSError):  # closed by what ran
                    os.dup2(copy, fd)
                    os.close(copy)
            sink.file = None
            printed.text = end_of(file)


def _file(path: Path | None) -> io.FileIO:
    """Empty, to be written and read."""
    with opened(path) as low:
        return io.FileIO(high(low.fileno()), "a+")


def _flush_native() -> None:
    """What C code printed may still be in libc's buffer, and Python's own streams buffer too: later
    they would reach the real stdout."""
    for stream in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__):
        # closed, detached, or replaced by something that is no stream
        with suppress(Exception):
            stream.flush()  # type: ignore[union-attr]
    # A platform whose C library cannot be named so
    with suppress(OSError, TypeError, AttributeError):
        ctypes.CDLL(None).fflush(None)
