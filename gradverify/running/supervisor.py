"""Tasks in worker processes: one that ends its process, or takes too long, costs itself only. Knows
nothing of gradients.

A worker has one task at a time and does it in a child of its own, which says when it begins and
what came of it. What it does not say did not happen: a process that ends without an answer, with
whatever status, was ended by its task. Where the process that it was forked from ends with it, its
task is done again with no other beside it, so that the one that does it again is known.
"""

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
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerContext
from multiprocessing.reduction import send_handle
from pathlib import Path
from typing import Any, Literal, NamedTuple, cast

from gradverify.model.case import Json
from gradverify.model.problem import ProblemsError
from gradverify.running.family import end_family, end_orphans, sizes
from gradverify.running.server import ended_by, lacking, number, status_of
from gradverify.running.signals import Signals

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
MOST_PRINTED = 2**20
CUT = b"\0cut\0"  # how a file begins that was cut


def opened(path: Path | None) -> io.FileIO:
    """Empty, under a high number, to be written at its end, whoever writes or cuts it, and read;
    without a name where there is no `path`."""
    make = tempfile.TemporaryFile if path is None else path.open
    with make("a+b", buffering=0) as file:
        file.truncate(0)
        return io.FileIO(high(file.fileno()), "a+")


def cut(file: io.FileIO) -> None:
    """Keep the end of what is too much."""
    size = file.seek(0, os.SEEK_END)
    if size > MOST_PRINTED:
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
    of = (
        f"more than {MOST_PRINTED} bytes, of which the rest was not kept"
        if was_cut
        else f"{size} bytes"
    )
    if was_cut or size > KEPT_BYTES or len(lines) > KEPT_LINES:
        return f"… cut to the end of {of}\n{shown}"
    return shown


# ---- One worker process, seen from outside: how it is started, heard, stopped, and how it ended
# Seconds until a worker has imported torch: 20 on a slow machine, more on a network file system
START_LIMIT = 300.0
SILENT_FOR = 2.0  # seconds between a worker's closed pipe and its end, before it is ended
STACK_WITHIN = 0.5  # seconds for the Python stack of a hanging worker to be written
# Seconds for a killed process, or one that has given the answer of its task, to be gone
ENDS_WITHIN = 5.0
UNHEARD = 113  # status of a process whose words nobody hears
LARGEST = 1 << 30  # bytes of one message
CHUNK = 1 << 20  # bytes that are read at a time

HEADER = struct.Struct("!i")

How = Literal["status", "signal", "limit", "silence", "garbled", "processes", "parent", "server"]


class Died(NamedTuple):
    """How a process ended. `number`: its exit status, the signal that ended it, the seconds that it
    was given, the processes that it had started, or the signal that ended the process that it was
    forked from ("parent"), or that workers are ("server"), and it with that (0: not known);
    `stack`: of Python, where it is known, as faulthandler writes it; `printed`: the end of what its
    task wrote to stdout and stderr."""

    how: How
    number: float
    stack: str = ""
    printed: str | None = None


class Files(NamedTuple):
    """What a worker writes to and its supervisor reads after its end: the Python stack, and what a
    task printed."""

    stack: Path
    printed: Path


Main = Callable[[Connection, Connection, Any, Files], None]
"""What runs inside: it is handed the pipe for words, one that closes when the supervisor is gone,
its set-up, and its files."""


class Task(NamedTuple):
    """`place`: among the tasks of the caller. `limits`: seconds to load and to run. Two tasks that
    share one of `slots` never run at the same time. `server`: which tasks it may share a worker
    with, in which each of them finds what the others had loaded."""

    place: int
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
    where there was none; `started`: it said that it can take a task; `loading`: the task has not
    begun; `alone`: no other runs beside it. `own` is what it says
    itself, `said` what is said of the task.
    """

    def __init__(self, context: ForkServerContext, main: Main, setup: Any, folder: Path) -> None:
        self._context, self._folder = context, Path(tempfile.mkdtemp(dir=folder))
        self.files = Files(self._folder / "stack", self._folder / "printed")
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
        self.started = self.alone = False
        self.loading = True

    @property
    def ready(self) -> bool:
        """Can it take a task now?"""
        return self.started and self.said is None

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
        self.alone, self.loading = alone, True
        self.deadline = time.monotonic() + task.limits[0]

    def idle(self) -> None:
        """It can take a task: the first, or another one."""
        if self.said is not None:
            self.said.pipe.close()
        self.said, self.started, self.deadline = None, True, float("inf")

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
        return Died(how, number, tail(self.files.stack) or "", tail(self.files.printed))

    def end(self) -> None:
        """Kills it with all that it started, and removes its files."""
        end_family(self.pid, alive=self._process.is_alive())
        # Later: a worker that finds its supervisor gone ends at once, and what it started loses its
        # parent
        for pipe in self._alive, self.own.pipe, *([self.said.pipe] if self.said else ()):
            with contextlib.suppress(OSError):
                pipe.close()
        self._process.join(ENDS_WITHIN)
        shutil.rmtree(self._folder, ignore_errors=True)


FUTILE = 3  # workers in a row that end before they are ready: no further one would be
# Seconds before another attempt to start one: a server that has just been killed may still be seen
PAUSE = 0.2
# Seconds between two counts of the processes that tasks have started: 3 ms of CPU where 100
# processes run
LOOKS_EVERY = 1.0
# Workers that wait for another task of their server, beside those that do one
KEPT = 8
# Processes that a task may have at a time: a compiler for each processor is a chain of four or five
MOST = 256 + 8 * (os.cpu_count() or 1)


class CannotStart(Exception):  # noqa: N818 - a sentence for a bug report
    """Workers end before they take a task."""


class Told(NamedTuple):
    """What the worker said while the task runs: "result", with which it ends, or anything else; and
    BEGAN, when a worker took the task, a second time where it was lost with others."""

    task: Task
    kind: str
    payload: Json = None


class Lost(NamedTuple):
    """The worker ended, or was ended, without a result. `while_loading`: before the task itself
    began."""

    task: Task
    died: Died
    while_loading: bool


BEGAN = ""
Happening = Told | Lost


class Supervisor:
    """`hire` starts a worker. To be closed, also when what it yields is not read to the end. Raises
    Stopped where one of `signals` comes, ProblemsError where the surroundings do not let workers
    start."""

    def __init__(self, hire: Callable[[], Worker], signals: Signals, jobs: int = 1) -> None:
        self.hire, self.signals, self.jobs = hire, signals, jobs
        self._staff = list[Worker]()  # those that wait longest first
        self._futile = 0
        self._lost = deque[Task]()  # together, to be done again one at a time
        self._server: int | None = None  # the last one that was found to have ended
        self._looks = 0.0  # when processes are counted again
        self._hello: Json = None

    def hello(self) -> Json:
        """What the first worker says when it is ready. Raises CannotStart."""
        if not self._staff:
            self._employ()
        while self._hello is None:
            for _ in self._listen():
                pass
        return self._hello

    def run(self, tasks: Sequence[Task]) -> Iterator[Happening]:
        """What happens, as it happens, until every task has its answer or its end. Raises
        CannotStart."""
        waiting = deque(tasks)
        while waiting or self._lost or any(worker.task for worker in self._staff):
            yield from self._feed(waiting)
            yield from self._listen()
            yield from self._look()

    def close(self) -> None:
        """Ends all workers and whatever they started."""
        for worker in [*self._staff]:
            self._dismiss(worker)

    def _employ(self) -> None:
        why, error = f"{FUTILE} worker processes in a row ended before they were ready", None
        while self._futile < FUTILE:
            try:
                # A process that imports torch answers after seconds
                with self.signals.at_once():
                    self._staff.append(self.hire())
                return
            except (EOFError, OSError) as raised:
                self._futile, error = self._futile + 1, raised
                why = (
                    "a worker process could not be started: "
                    f"{type(raised).__name__}{f' ({raised})' if str(raised) else ''}"
                )
                time.sleep(PAUSE)
        short = lacking(error)
        raise CannotStart(why) if short is None else ProblemsError(short)

    def _feed(self, waiting: deque[Task]) -> Iterator[Happening]:
        """Hands tasks to workers that have loaded what they name, else to new ones: as many as
        there are tasks for, at most `jobs` at work; some that wait stay, as the next tasks may be
        theirs."""
        for ended in [worker for worker in self._staff if worker.ready and worker.gone]:
            # What an earlier check left behind ended it: no later one is to blame
            self._dismiss(ended)
        while (task := self._next(waiting)) is not None:
            ready = [worker for worker in self._staff if worker.ready]
            fit = (each for own in (task.server, None) for each in ready if each.server == own)
            worker = next(fit, None)
            if worker is None:
                wanted = len(waiting) + len(self._lost) + sum(bool(w.task) for w in self._staff)
                for _ in range(min(self.jobs, wanted) - (len(self._staff) - len(ready))):
                    self._employ()
                for idle in ready[:-KEPT]:
                    self._dismiss(idle)
                return
            alone = task in self._lost
            (self._lost if alone else waiting).remove(task)
            yield Told(task, BEGAN)
            worker.begin(task, alone)
            self._staff.remove(worker)
            self._staff.append(worker)

    def _next(self, waiting: deque[Task]) -> Task | None:
        """One that was lost when no other runs, and none beside it; none where all `jobs` run."""
        running = [worker for worker in self._staff if worker.task]
        if self._lost or any(worker.alone for worker in running):
            return self._lost[0] if self._lost and not running else None
        if len(running) >= self.jobs:
            return None
        taken = frozenset[str]().union(*(w.task.slots for w in running if w.task))
        return next((task for task in waiting if not task.slots & taken), None)

    def _listen(self) -> Iterator[Happening]:
        """Waits for the next word of a worker or a task, an end, or a deadline."""
        watched = [worker for worker in self._staff if not worker.ready]
        if not watched:
            return
        first = min([w.deadline for w in watched] + [self._looks for w in watched if w.task])
        pipes = [pipe for worker in watched for pipe in worker.pipes]
        heard = set(wait([self.signals.bell, *pipes], max(0.0, first - time.monotonic())))
        self.signals.check()
        for worker in watched:
            if worker not in self._staff:
                continue  # dismissed with another
            pipe = next((pipe for pipe in worker.pipes if pipe in heard), None)
            if pipe is worker.own.pipe:
                yield from self._hear(worker)
            elif pipe == worker.sentinel:
                yield from self._bury(worker, worker.silent())
            elif pipe is not None:
                yield from self._hear_task(worker)
            elif time.monotonic() >= worker.deadline:
                yield from self._bury(worker, worker.late())

    def _look(self) -> Iterator[Happening]:
        """Ends tasks that have started more processes than the machine can bear, and cuts what they
        print to what is kept."""
        if time.monotonic() < self._looks:
            return
        for worker in self._staff:
            cut_at(worker.files.printed)
        found = sizes(worker.pid for worker in self._staff if worker.task)
        for worker in [each for each in self._staff if found.get(each.pid, 0) > MOST]:
            yield from self._bury(worker, worker.died("processes", found[worker.pid]))
        self._looks = time.monotonic() + LOOKS_EVERY

    def _hear(self, worker: Worker) -> Iterator[Happening]:
        """What a worker itself says: that it is ready, or that the process of its task has ended.
        Anything else was written by what ran there."""
        for kind, payload in worker.own.hear():
            match kind, payload:
                case "ready", _ if not worker.started:
                    self._hello, self._futile = payload, 0
                    worker.idle()
                case "ended", [int(code), bool(leaves_some)] if worker.said is not None:
                    # What it said before it ended
                    while worker.task and not worker.said.closed and worker.said.pipe.poll():
                        yield from self._hear_task(worker)
                    if worker.task is not None:
                        yield from self._bury(worker, worker.child_ended(code))
                    elif leaves_some:
                        self._dismiss(worker)
                    else:
                        worker.idle()
                case _:
                    worker.own.closed = True
            if worker not in self._staff:
                return
        if worker.own.closed:
            yield from self._bury(worker, worker.silent())

    def _hear_task(self, worker: Worker) -> Iterator[Happening]:
        said = worker.said
        for kind, payload in said.hear() if said else ():
            task = worker.task
            if task is None:
                break  # it has its answer
            if kind == "begins":
                worker.loading, worker.deadline = False, time.monotonic() + task.limits[1]
                continue
            if kind == "result":
                worker.task, worker.deadline = None, time.monotonic() + ENDS_WITHIN
            yield Told(task, kind, payload)
        if said and said.closed and worker.task is not None:
            worker.deadline = min(worker.deadline, time.monotonic() + SILENT_FOR)

    def _bury(self, worker: Worker, died: Died) -> Iterator[Happening]:
        task, with_others = worker.task, died.how in ("server", "parent")
        self._dismiss(worker)
        # One for all that a server took with it
        self._futile += not worker.started and not (with_others and worker.parent == self._server)
        if died.how == "server":
            self._server = worker.parent
            for idle in [w for w in self._staff if w.task is None and w.parent == self._server]:
                self._dismiss(idle)  # has ended with it, whether that is seen yet or not
        if task is not None and with_others and not worker.alone:
            self._lost.append(task)
        elif task is not None:
            yield Lost(task, died, worker.loading)
        elif not self._staff:
            self._employ()

    def _dismiss(self, worker: Worker) -> None:
        worker.end()
        self._staff.remove(worker)
        if worker.parent is not None:
            end_orphans(worker.parent, [other.pid for other in self._staff])
