"""One worker process, seen from outside: how it is started, heard, stopped, and how it ended."""

from __future__ import annotations

import contextlib
import io
import json
import os
import secrets
import shutil
import signal
import struct
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerContext
from multiprocessing.reduction import send_handle
from pathlib import Path
from typing import Any, Literal, cast

from gradverify.model.case import Json
from gradverify.running.family import end_family
from gradverify.running.server import ended_by, number, status_of

# ---- File descriptors out of the way of code that closes or reuses low numbers
OPEN = Path("/dev/fd")
STANDARD = 3  # stdin, stdout, stderr: programs that are started have these

FIRST = 400  # code that closes 3 to 63, 3 to 255 and the like does not meet them


def high(descriptor: int) -> int:
    """A duplicate with a high number, where the platform has a choice; not inherited by programs
    that are started."""
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
    """No program that is started holds what is open now: a pipe whose end nobody sees while a
    program that a check left in the background runs."""
    with contextlib.suppress(OSError):
        for name in os.listdir(OPEN):  # noqa: PTH208 - names only
            with contextlib.suppress(OSError):
                os.set_inheritable(int(name), int(name) < STANDARD)


# ---- The file that holds what a check prints: its end is what a report shows, and all that is
# kept
KEPT_LINES, KEPT_BYTES = 200, 2**16  # of the end of what a check printed
# Bytes at which a file is cut to those: a call that prints 100 MB would fill the disk
MOST = 2**20
CUT = b"\0cut\0"  # how a file begins that was cut


def opened(path: Path | None) -> io.FileIO:
    """Empty, to be written at its end, whoever writes or cuts it, and read; without a name where
    there is no `path`."""
    if path is None:
        import tempfile

        with tempfile.TemporaryFile("a+b", buffering=0) as file:
            return io.FileIO(os.dup(file.fileno()), "a+")
    file = io.FileIO(path, "a+")
    file.truncate(0)
    return file


def cut(file: io.FileIO) -> None:
    """Keep the end of what is too much."""
    size = file.seek(0, os.SEEK_END)
    if size > MOST:
        file.seek(size - KEPT_BYTES)
        end = file.read()
        file.truncate(0)
        file.seek(0)
        file.write(CUT + end)


def cut_at(path: Path) -> None:
    with contextlib.suppress(OSError), io.FileIO(path, "a+") as file:
        cut(file)


def tail(path: Path) -> str | None:
    """The end of a file, as it would be in a report; None where it is empty or not there."""
    try:
        with io.FileIO(path) as file:
            return end_of(file)
    except OSError:
        return None


def end_of(file: io.FileIO) -> str | None:
    """The last lines of a file, no more of them than a report can carry; None where there are
    none."""
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    was_cut = file.read(len(CUT)) == CUT
    file.seek(max(len(CUT) if was_cut else 0, size - KEPT_BYTES))
    lines = file.read().decode(errors="replace").rstrip().splitlines()
    shown = "\n".join(lines[-KEPT_LINES:])
    if not shown:
        return None
    of = f"more than {MOST} bytes, of which the rest was not kept" if was_cut else f"{size} bytes"
    return (
        f"… cut to the end of {of}\n{shown}"
        if was_cut or size > KEPT_BYTES or len(lines) > KEPT_LINES
        else shown
    )


# ---- One worker process, seen from outside: how it is started, heard, stopped, and how it ended
# Seconds until a worker has imported torch: 20 on a slow machine, more on a network file system
START_LIMIT = 300.0
SILENT_FOR = 2.0  # seconds between a worker's closed pipe and its end, before it is ended
STACK_WITHIN = 0.5  # seconds for the Python stack of a hanging worker to be written
ENDS_WITHIN = 5.0  # seconds for a killed process to be gone
UNHEARD = 113  # status of a process whose words nobody hears
LARGEST = 1 << 30  # bytes of one message
CHUNK = 1 << 20  # bytes that are read at a time

HEADER = struct.Struct("!i")

How = Literal["status", "signal", "limit", "silence", "garbled", "processes", "parent", "server"]


@dataclass(frozen=True, slots=True)
class Died:
    """How a process ended. `number`: its exit status, the signal that ended it, the seconds that it
    was given, the processes that it had started, or the signal that ended the process that it was
    forked from ("parent"), or that workers are ("server"), and it with that (0: not known);
    `stack`: of Python, where it is known, as faulthandler writes it; `printed`: the end of what its
    task wrote to stdout and stderr."""

    how: How
    number: float
    stack: str = ""
    printed: str | None = None


@dataclass(frozen=True, slots=True)
class Files:
    """What a worker writes to and its supervisor reads after its end: the Python stack, and what a
    task printed."""

    stack: str
    printed: str


Main = Callable[[Connection, Connection, Any, Files], None]
"""What runs inside: it is handed the pipe for words, one that closes when the supervisor is gone,
its set-up, and its files."""


@dataclass(frozen=True, slots=True)
class Task:
    """`limits`: seconds to load and to run. Two tasks that share one of `slots` never run at the
    same time. `server`: which tasks it may share a worker with, in which each of them finds what
    the others had loaded."""

    name: str
    payload: bytes
    limits: tuple[float, float]
    slots: frozenset[str] = frozenset()
    server: str = ""


class Said:
    """What is said of one task, through a pipe of its own: what an earlier one left running cannot
    write to it. Of no task: by a worker itself. `pipe` can be waited for, until it is `closed`, or
    carries something else; whoever writes half a message into it, and nothing more, holds nobody
    up. `pid`: of the process that does the task, once that is known."""

    def __init__(self, pipe: Connection, task: str = "") -> None:
        self.pipe, self._task, self._held = pipe, task, bytearray()
        self.closed = self.garbled = False
        self.pid: int | None = None

    def hear(self) -> list[tuple[str, Json]]:
        """The words that have come, each with what belongs to it. To be asked where there is
        something to read."""
        try:
            data = os.read(self.pipe.fileno(), CHUNK)
        except OSError:
            data = b""
        self._held += data
        words = list(self._complete())
        self.closed = not words and (not data or self.garbled)
        return words

    def _complete(self) -> Iterator[tuple[str, Json]]:
        while not self.garbled and len(self._held) >= HEADER.size:
            end = HEADER.size + HEADER.unpack_from(self._held)[0]
            if len(self._held) < end <= LARGEST:
                return
            head, _, payload = bytes(self._held[HEADER.size : end]).partition(b"\n")
            del self._held[:end]
            try:
                kind, _, task = head.decode("ascii").partition(" ")
                found = json.loads(payload)
            except (ValueError, RecursionError):
                task = None
            self.garbled = task != self._task
            if kind == "here" and not self.garbled:
                self.pid = found if type(found) is int and found > 1 else None
            elif not self.garbled:
                yield kind, found


class Worker:
    """A process that takes one task at a time, and what it does now.

    `parent`: the process that it was forked from; `server`: of the tasks that it has done, None
    where there was none; `started`: it said that it can take a task; `ready`: it can now;
    `loading`: the task has not begun; `alone`: no other runs beside it. `own` is what it says
    itself, `said` what is said of the task.
    """

    def __init__(self, context: ForkServerContext, main: Main, setup: Any, folder: Path) -> None:
        self._context, self._folder = context, Path(tempfile.mkdtemp(dir=folder))
        self.files = Files(str(self._folder / "stack"), str(self._folder / "printed"))
        pipe, inner = context.Pipe()
        self.own, self.said = Said(pipe), cast(Said | None, None)
        alive, self._alive = context.Pipe(duplex=False)
        self._process = context.Process(
            target=main, args=(inner, alive, setup, self.files), daemon=False
        )
        try:
            self._process.start()
        finally:
            inner.close()
            alive.close()
        self.parent = number()
        self.task: Task | None = None
        self.server: str | None = None
        self.deadline = time.monotonic() + START_LIMIT
        self.started = self.ready = self.alone = False
        self.loading = True

    @property
    def sentinel(self) -> int:
        return int(self._process.sentinel)

    @property
    def pipes(self) -> list[Connection | int]:
        """What can be waited for: what is said of its task, what it says itself, its end."""
        said = [self.said.pipe] if self.said is not None and not self.said.closed else []
        return [*said, self.own.pipe, self.sentinel]

    @property
    def pid(self) -> int:
        """Above 1: 0 and 1 would stand for much more than a worker."""
        pid = self._process.pid
        if pid is None or pid <= 1:
            raise RuntimeError(f"a worker process cannot have the number {pid}")
        return int(pid)

    @property
    def gone(self) -> bool:
        """Has it ended?"""
        return self.sentinel in wait([self.sentinel], 0)

    def begin(self, task: Task, alone: bool) -> None:
        """Hands a task over; one that cannot be is told by the worker's end."""
        token = secrets.token_hex(8)
        heard, said = self._context.Pipe(duplex=False)
        with contextlib.suppress(OSError):
            self.own.pipe.send_bytes(token.encode() + b"\n" + task.payload)
            send_handle(self.own.pipe, said.fileno(), self.pid)
        said.close()
        self.task, self.server, self.said = task, task.server, Said(heard, token)
        self.alone, self.ready, self.loading = alone, False, True
        self.deadline = time.monotonic() + task.limits[0]

    def idle(self) -> None:
        """It can take a task: the first, or another one."""
        if self.said is not None:
            self.said.pipe.close()
        self.said, self.started, self.ready, self.deadline = None, True, True, float("inf")

    def ended(self) -> Died:
        """Of a process that has ended by itself."""
        return self._end_within(ENDS_WITHIN) or self._stopped(ENDS_WITHIN)

    def child_ended(self, code: int) -> Died:
        """Of the process of a task that has ended by itself."""
        if code in (0, UNHEARD):
            garbled = self.said is not None and self.said.garbled
            return self.died("silence" if code else "garbled" if garbled else "status")
        return self.died("signal" if code < 0 else "status", abs(code))

    def silent(self) -> Died:
        """Of a process whose pipe is closed: it has ended, or goes on without being heard."""
        return self._end_within(SILENT_FOR) or self.died("silence")

    def late(self) -> Died:
        """Of a process that is not done at its deadline."""
        if self.said is not None and self.said.closed:
            return self.silent()
        return self._stopped(
            START_LIMIT if self.task is None else self.task.limits[not self.loading]
        )

    def _end_within(self, seconds: float) -> Died | None:
        """Where a child did the task, it ended with this process."""
        if not wait([self.sentinel], seconds):
            return None
        try:
            code = status_of(self.sentinel)
        except EOFError:  # the process that it was forked from ended first
            return self.died("server", ended_by(self.parent))
        if self.said is not None and self.said.pid not in (None, self.pid):
            return self.died("parent", max(0, -code))
        return self.died("signal" if code < 0 else "status", abs(code))

    def _stopped(self, limit: float) -> Died:
        """Of a process that did not end within its limit: asked for its stack, then killed."""
        pid = (self.said and self.said.pid) or self.pid
        with contextlib.suppress(OSError, AttributeError):
            if os.getsid(pid) == self.pid:  # whatever number it sent
                os.kill(pid, signal.SIGUSR1)
            self._process.join(STACK_WITHIN)
        return self.died("limit", limit)

    def died(self, how: How, number: float = 0) -> Died:
        """With what its files hold."""
        return Died(how, number, tail(Path(self.files.stack)) or "", tail(Path(self.files.printed)))

    def end(self) -> None:
        """Kills it with all that it started, and removes its files."""
        end_family(self.pid, alive=self._process.is_alive())
        # later: a worker that finds its supervisor gone ends at once, and what it started loses its
        # parent
        for pipe in self._alive, self.own.pipe, *([self.said.pipe] if self.said else ()):
            with contextlib.suppress(OSError):
                pipe.close()
        self._process.join(ENDS_WITHIN)
        shutil.rmtree(self._folder, ignore_errors=True)
