"""Run tasks in worker processes, so that a task that ends its process or takes too long fails
alone. This module knows nothing of gradients.

A worker has one task at a time and runs it in a forked child, which reports when the task begins
and its result. A process that ends without a result, with whatever status, is taken to have been
ended by its task. Where the process that the child was forked from ended too, the task is run
again while no other task runs, so that a task that ends it a second time is known to be the cause.
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

# ---- File descriptors with high numbers, which code that closes or reuses low ones does not reach
OPEN = Path("/dev/fd")
STANDARD = 3  # stdin, stdout and stderr, which started programs inherit

FIRST = 400  # the lowest number used: above what code that closes 3 to 63, or 3 to 255, reaches


def high(descriptor: int) -> int:
    """Return a duplicate with a high number, where the platform allows the choice; programs that
    are started do not inherit it."""
    try:
        import fcntl
        import resource
    except ImportError:
        return os.dup(descriptor)
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, min(FIRST, soft // 2))


def moved(descriptor: int) -> int:
    """Return a duplicate with a high number, as `high` does, and close `descriptor`."""
    found = high(descriptor)
    os.close(descriptor)
    return found


def keep_to_ourselves() -> None:
    """Make all open descriptors but the standard ones non-inheritable: a program that a check
    leaves in the background would otherwise keep the pipes open, and their end would go unseen."""
    with contextlib.suppress(OSError):
        for name in os.listdir(OPEN):  # noqa: PTH208 - names only
            with contextlib.suppress(OSError):
                os.set_inheritable(int(name), int(name) < STANDARD)


# ---- The file for the output of a check, of which only the end is kept and shown in the report
KEPT_LINES, KEPT_BYTES = 200, 2**16  # of the end of a check's output
# Bytes beyond which a file is cut to KEPT_BYTES: a call that prints 100 MB would fill the disk
MOST_PRINTED = 2**20
CUT = b"\0cut\0"  # the first bytes of a file that was cut


def opened(path: Path | None) -> io.FileIO:
    """Open an empty file for reading and appending, under a high descriptor. Every writer appends,
    also after a cut. Without a `path` the file has no name."""
    make = tempfile.TemporaryFile if path is None else path.open
    with make("a+b", buffering=0) as file:
        file.truncate(0)
        return io.FileIO(high(file.fileno()), "a+")


def cut(file: io.FileIO) -> None:
    """Cut a file that is longer than MOST_PRINTED bytes to its last KEPT_BYTES."""
    size = file.seek(0, os.SEEK_END)
    if size > MOST_PRINTED:
        file.seek(size - KEPT_BYTES)
        end = file.read()
        file.truncate(0)
        file.seek(0)
        file.write(CUT + end)


def cut_at(path: Path) -> None:
    """Do as `cut` does for the file at `path`, if there is one."""
    with contextlib.suppress(OSError), io.FileIO(path, "a+") as file:
        cut(file)


def tail(path: Path) -> str | None:
    """Return the end of the file at `path`, as a report shows it; None if it is empty or absent."""
    try:
        with io.FileIO(path) as file:
            return end_of(file)
    except OSError:
        return None


def end_of(file: io.FileIO) -> str | None:
    """Return the last lines of a file, at most KEPT_LINES and KEPT_BYTES; None if there are
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


# ---- One worker process, seen from the supervisor: start, messages, end
# Seconds until a worker has imported torch: 20 on a slow machine, more on a network file system
START_LIMIT = 300.0
SILENT_FOR = 2.0  # seconds that a worker with a closed pipe is given to end before it is killed
STACK_WITHIN = 0.5  # seconds for the Python stack of a hanging worker to be written
# Seconds for a process that was killed, or has sent the result of its task, to be gone
ENDS_WITHIN = 5.0
PIPE_CLOSED = 113  # exit status of a process that cannot send messages any more
LARGEST = 1 << 30  # bytes of one message at most
CHUNK = 1 << 20  # bytes read at a time

HEADER = struct.Struct("!i")

How = Literal["status", "signal", "limit", "silence", "garbled", "processes", "parent", "server"]


class Died(NamedTuple):
    """How a process ended.

    `number`, by `how`: its exit status ("status"); the signal that ended it ("signal"); the seconds
    that it was given ("limit"); the processes that it had started ("processes"); the signal that
    ended the process it was forked from ("parent"), or the process that workers are forked from
    ("server"), and thereby this one (0: not known). `stack`: the Python stack as faulthandler
    writes it, or "". `printed`: the end of what its task wrote to stdout and stderr.
    """

    how: How
    number: float
    stack: str = ""
    printed: str | None = None


class Files(NamedTuple):
    """The files that a worker writes and its supervisor reads after the worker's end: the Python
    stack, and the output of a task."""

    stack: Path
    printed: Path


Main = Callable[[Connection, Connection, Any, Files], None]
"""The main function of a worker process. Its arguments: the pipe for messages, a pipe that closes
when the supervisor is gone, the set-up, and the files."""


class Task(NamedTuple):
    """A task for a worker.

    `place`: its index among the tasks of the caller. `limits`: seconds to load and to run. Two
    tasks that share one of `slots` never run at the same time. Tasks with equal `server` may run
    one after the other in the same worker, in which each finds what the earlier ones loaded.
    """

    place: int
    payload: bytes
    limits: tuple[float, float]
    slots: frozenset[str] = frozenset()
    server: str = ""


class Channel:
    """The receiving end of a pipe with the messages of one task, or of a worker itself (no task).

    Each task has a pipe of its own, to which a process that an earlier task left running cannot
    write. `pipe` can be waited for until it is `closed`: at its end, or where it is `garbled`, that
    is, carries anything but messages of this task. An incomplete message blocks nobody. `pid`: the
    process that runs the task, once known.
    """

    def __init__(self, pipe: Connection, task: str = "") -> None:
        self.pipe, self._task, self._held = pipe, task, bytearray()
        self.closed = self.garbled = False
        self.pid: int | None = None

    def receive(self) -> list[tuple[str, Json]]:
        """Return the complete messages that have arrived, as (kind, payload). Blocks unless `pipe`
        is ready."""
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
    """A process that takes one task at a time, and its state.

    `parent`: the process that it was forked from; `server`: `Task.server` of the tasks it has run,
    None before the first; `started`: it has reported that it can take a task; `loading`: the task
    has not begun; `alone`: no other task runs meanwhile. `own`: the messages of the worker itself;
    `channel`: those of its task, None without one.
    """

    def __init__(self, context: ForkServerContext, main: Main, setup: Any, folder: Path) -> None:
        self._context, self._folder = context, Path(tempfile.mkdtemp(dir=folder))
        self.files = Files(self._folder / "stack", self._folder / "printed")
        pipe, inner = context.Pipe()
        self.own, self.channel = Channel(pipe), cast(Channel | None, None)
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
        """Whether the worker can take a task now."""
        return self.started and self.channel is None

    @property
    def sentinel(self) -> int:
        return int(self._process.sentinel)

    @property
    def pipes(self) -> list[Connection | int]:
        """The objects to wait for: messages of the task, messages of the worker, the worker's
        end."""
        of_task = (
            [self.channel.pipe] if self.channel is not None and not self.channel.closed else []
        )
        return [*of_task, self.own.pipe, self.sentinel]

    @property
    def pid(self) -> int:
        """The process number, above 1: killing 0 or 1 would end much more than a worker."""
        pid = self._process.pid
        if pid is None or pid <= 1:
            raise RuntimeError(f"a worker process cannot have the number {pid}")
        return int(pid)

    @property
    def gone(self) -> bool:
        """Whether the process has ended."""
        return self.sentinel in wait([self.sentinel], 0)

    def begin(self, task: Task, alone: bool) -> None:
        """Send a task to the worker. A failure to send shows later, as the worker's end."""
        token = secrets.token_hex(8)
        receiver, sender = self._context.Pipe(duplex=False)
        with contextlib.suppress(OSError):
            self.own.pipe.send_bytes(token.encode() + b"\n" + task.payload)
            send_handle(self.own.pipe, sender.fileno(), self.pid)
        sender.close()
        self.task, self.server, self.channel = task, task.server, Channel(receiver, token)
        self.alone, self.loading = alone, True
        self.deadline = time.monotonic() + task.limits[0]

    def idle(self) -> None:
        """Note that the worker can take its first or next task."""
        if self.channel is not None:
            self.channel.pipe.close()
        self.channel, self.started, self.deadline = None, True, float("inf")

    def child_ended(self, code: int) -> Died:
        """Describe how a task's process ended, by its exit `code`, when it was not killed here."""
        if code in (0, PIPE_CLOSED):
            garbled = self.channel is not None and self.channel.garbled
            return self.died("silence" if code else "garbled" if garbled else "status")
        return self.died("signal" if code < 0 else "status", abs(code))

    def silent(self) -> Died:
        """Describe how a process with a closed pipe ended: by itself within SILENT_FOR seconds, or
        running on in silence."""
        return self._end_within(SILENT_FOR) or self.died("silence")

    def late(self) -> Died:
        """Describe the end of a process that is not done at its deadline."""
        if self.channel is not None and self.channel.closed:
            return self.silent()
        return self._stopped(
            START_LIMIT if self.task is None else self.task.limits[not self.loading]
        )

    def _end_within(self, seconds: float) -> Died | None:
        """Describe how the process ended, if it ends within `seconds`; None otherwise. A task that
        ran in a child of the process ended with it."""
        if not wait([self.sentinel], seconds):
            return None
        try:
            code = status_of(self.sentinel)
        except EOFError:  # the process that it was forked from ended first
            return self.died("server", ended_by(self.parent))
        if self.channel is not None and self.channel.pid not in (None, self.pid):
            return self.died("parent", max(0, -code))
        return self.died("signal" if code < 0 else "status", abs(code))

    def _stopped(self, limit: float) -> Died:
        """Describe a process that did not end within its limit; its stack is requested first."""
        pid = (self.channel and self.channel.pid) or self.pid
        with contextlib.suppress(OSError, AttributeError):
            if os.getsid(pid) == self.pid:  # the task may have sent any number
                os.kill(pid, signal.SIGUSR1)
            self._process.join(STACK_WITHIN)
        return self.died("limit", limit)

    def died(self, how: How, number: float = 0) -> Died:
        """Describe the end of the process, with the contents of its files."""
        return Died(how, number, tail(self.files.stack) or "", tail(self.files.printed))

    def end(self) -> None:
        """Kill the process with all processes that it started, and remove its files."""
        end_family(self.pid, alive=self._process.is_alive())
        # Closed only now: a worker that finds its supervisor gone ends at once, and the processes
        # that it started lose their parent
        for pipe in self._alive, self.own.pipe, *([self.channel.pipe] if self.channel else ()):
            with contextlib.suppress(OSError):
                pipe.close()
        self._process.join(ENDS_WITHIN)
        shutil.rmtree(self._folder, ignore_errors=True)


FUTILE = 3  # workers in a row that end before they are ready, after which no more are started
# Seconds before another attempt to start a worker: a server just killed may still appear to run
PAUSE = 0.2
# Seconds between two counts of the processes that tasks have started: 3 ms of CPU where 100
# processes run
LOOKS_EVERY = 1.0
# Idle workers that are kept for further tasks of their server
KEPT = 8
# Processes that a task may have at a time; a compiler for each processor is a chain of four or five
MOST = 256 + 8 * (os.cpu_count() or 1)


class CannotStart(Exception):  # noqa: N818 - a sentence for a bug report
    """Raised where workers end before they take a task."""


class Message(NamedTuple):
    """A message of a running task: "result", the last one, or any other kind; and BEGAN when a
    worker takes the task, which happens twice for one that is run again."""

    task: Task
    kind: str
    payload: Json = None


class Lost(NamedTuple):
    """A task whose process ended, or was killed, without a result. `while_loading`: before the task
    itself began."""

    task: Task
    died: Died
    while_loading: bool


BEGAN = ""
TaskEvent = Message | Lost


class Supervisor:
    """A supervisor of at most `jobs` workers, each started by `start`.

    Must be closed, also when not all events are read. Its methods raise Stopped where one of
    `signals` arrives, and ProblemsError where the environment does not let workers start.
    """

    def __init__(self, start: Callable[[], Worker], signals: Signals, jobs: int = 1) -> None:
        self.start, self.signals, self.jobs = start, signals, jobs
        self._workers = list[Worker]()  # least recently used first
        self._futile = 0
        self._lost = deque[Task]()  # to be run again, one at a time
        self._server: int | None = None  # the last server that was found to have ended
        self._next_count = 0.0  # time of the next count of processes
        self._hello: Json = None

    def hello(self) -> Json:
        """Return the payload of the first worker's "ready" message. Raises CannotStart."""
        if not self._workers:
            self._start_worker()
        while self._hello is None:
            for _ in self._wait():
                pass
        return self._hello

    def run(self, tasks: Sequence[Task]) -> Iterator[TaskEvent]:
        """Yield the events of all tasks as they occur, until each has a result or is lost. Raises
        CannotStart."""
        waiting = deque(tasks)
        while waiting or self._lost or any(worker.task for worker in self._workers):
            yield from self._assign(waiting)
            yield from self._wait()
            yield from self._limit_processes()

    def close(self) -> None:
        """End all workers and the processes that they started."""
        for worker in [*self._workers]:
            self._end_worker(worker)

    def _start_worker(self) -> None:
        """Start one worker; raises CannotStart or ProblemsError after FUTILE failures."""
        why, error = f"{FUTILE} worker processes in a row ended before they were ready", None
        while self._futile < FUTILE:
            try:
                # A server that still imports torch answers after seconds
                with self.signals.at_once():
                    self._workers.append(self.start())
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

    def _assign(self, waiting: deque[Task]) -> Iterator[TaskEvent]:
        """Assign tasks to idle workers of the same server, or to new ones. At most `jobs` workers
        are busy, and no more are started than there are tasks; up to KEPT idle ones are kept."""
        for ended in [worker for worker in self._workers if worker.ready and worker.gone]:
            # Ended by what an earlier check left running: no later check is to blame
            self._end_worker(ended)
        while (task := self._next(waiting)) is not None:
            ready = [worker for worker in self._workers if worker.ready]
            fit = (each for own in (task.server, None) for each in ready if each.server == own)
            worker = next(fit, None)
            if worker is None:
                wanted = len(waiting) + len(self._lost) + sum(bool(w.task) for w in self._workers)
                for _ in range(min(self.jobs, wanted) - (len(self._workers) - len(ready))):
                    self._start_worker()
                for idle in ready[:-KEPT]:
                    self._end_worker(idle)
                return
            alone = task in self._lost
            (self._lost if alone else waiting).remove(task)
            yield Message(task, BEGAN)
            worker.begin(task, alone)
            self._workers.remove(worker)
            self._workers.append(worker)

    def _next(self, waiting: deque[Task]) -> Task | None:
        """Return the next task to start, None if none can start now. A task that is run again
        starts only while no other runs, and no other starts while it runs."""
        running = [worker for worker in self._workers if worker.task]
        if self._lost or any(worker.alone for worker in running):
            return self._lost[0] if self._lost and not running else None
        if len(running) >= self.jobs:
            return None
        taken = frozenset[str]().union(*(w.task.slots for w in running if w.task))
        return next((task for task in waiting if not task.slots & taken), None)

    def _wait(self) -> Iterator[TaskEvent]:
        """Wait for a message, the end of a worker, or a deadline, and yield what follows from
        it."""
        watched = [worker for worker in self._workers if not worker.ready]
        if not watched:
            return
        first = min([w.deadline for w in watched] + [self._next_count for w in watched if w.task])
        pipes = [pipe for worker in watched for pipe in worker.pipes]
        ready = set(wait([self.signals.bell, *pipes], max(0.0, first - time.monotonic())))
        self.signals.check()
        for worker in watched:
            if worker not in self._workers:
                continue  # ended together with another worker
            pipe = next((pipe for pipe in worker.pipes if pipe in ready), None)
            if pipe is worker.own.pipe:
                yield from self._receive(worker)
            elif pipe == worker.sentinel:
                yield from self._task_lost(worker, worker.silent())
            elif pipe is not None:
                yield from self._receive_from_task(worker)
            elif time.monotonic() >= worker.deadline:
                yield from self._task_lost(worker, worker.late())

    def _limit_processes(self) -> Iterator[TaskEvent]:
        """End tasks that have more than MOST processes, and cut long output. Does this every
        LOOKS_EVERY seconds."""
        if time.monotonic() < self._next_count:
            return
        for worker in self._workers:
            cut_at(worker.files.printed)
        found = sizes(worker.pid for worker in self._workers if worker.task)
        for worker in [each for each in self._workers if found.get(each.pid, 0) > MOST]:
            yield from self._task_lost(worker, worker.died("processes", found[worker.pid]))
        self._next_count = time.monotonic() + LOOKS_EVERY

    def _receive(self, worker: Worker) -> Iterator[TaskEvent]:
        """Handle the messages of a worker itself: it is ready, or its task's process has ended. Any
        other message was written by checked code."""
        for kind, payload in worker.own.receive():
            match kind, payload:
                case "ready", _ if not worker.started:
                    self._hello, self._futile = payload, 0
                    worker.idle()
                case "ended", [int(code), bool(leaves_some)] if worker.channel is not None:
                    # Messages that the task sent before it ended
                    while worker.task and not worker.channel.closed and worker.channel.pipe.poll():
                        yield from self._receive_from_task(worker)
                    if worker.task is not None:
                        yield from self._task_lost(worker, worker.child_ended(code))
                    elif leaves_some:
                        self._end_worker(worker)
                    else:
                        worker.idle()
                case _:
                    worker.own.closed = True
            if worker not in self._workers:
                return
        if worker.own.closed:
            yield from self._task_lost(worker, worker.silent())

    def _receive_from_task(self, worker: Worker) -> Iterator[TaskEvent]:
        """Handle the messages of a worker's task."""
        channel = worker.channel
        for kind, payload in channel.receive() if channel else ():
            task = worker.task
            if task is None:
                break  # the result has arrived
            if kind == "begins":
                worker.loading, worker.deadline = False, time.monotonic() + task.limits[1]
                continue
            if kind == "result":
                worker.task, worker.deadline = None, time.monotonic() + ENDS_WITHIN
            yield Message(task, kind, payload)
        if channel and channel.closed and worker.task is not None:
            worker.deadline = min(worker.deadline, time.monotonic() + SILENT_FOR)

    def _task_lost(self, worker: Worker, died: Died) -> Iterator[TaskEvent]:
        """End a worker that is lost; its task is lost too, or is run again where a process that it
        shared with others ended."""
        task, with_others = worker.task, died.how in ("server", "parent")
        self._end_worker(worker)
        # Workers lost with one server count once
        self._futile += not worker.started and not (with_others and worker.parent == self._server)
        if died.how == "server":
            self._server = worker.parent
            for idle in [w for w in self._workers if w.task is None and w.parent == self._server]:
                self._end_worker(idle)  # its sentinel may not show its end yet
        if task is not None and with_others and not worker.alone:
            self._lost.append(task)
        elif task is not None:
            yield Lost(task, died, worker.loading)
        elif not self._workers:
            self._start_worker()

    def _end_worker(self, worker: Worker) -> None:
        """End a worker and the orphans of its tasks."""
        worker.end()
        self._workers.remove(worker)
        if worker.parent is not None:
            end_orphans(worker.parent, [other.pid for other in self._workers])
