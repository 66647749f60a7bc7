"""Tasks in worker processes: one that ends its process, or takes too long, costs itself only. Knows
nothing of gradients.

A worker has one task at a time and does it in a child of its own, which says when it begins and
what came of it. What it does not say did not
happen: a process that ends without an answer, with whatever status, was ended by its task. Where
the process that it was forked from ends with it, its task is done again with no other beside it, so
that the one that does it again is known.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from pathlib import Path

from gradverify.model.case import Json
from gradverify.model.problem import Problem, ProblemsError
from gradverify.running.family import end_orphans, sizes
from gradverify.running.process import SILENT_FOR, Died, Said, Worker, cut_at
from gradverify.running.server import lacking
from gradverify.running.signals import Signals

# Seconds until a worker has imported torch: 20 on a slow machine, more on a network file system
START_LIMIT = 300.0
FUTILE = 3  # workers in a row that end before they are ready: no further one would be
# Seconds before another attempt to start one: a server that has just been killed may still be seen
PAUSE = 0.2
# Seconds between two counts of the processes that tasks have started: 3 ms of CPU where 100
# processes run
LOOKS_EVERY = 1.0
ENDS_WITHIN = 5.0  # seconds between the answer of a task and the end of its process
# Workers that wait for another task of their server, beside those that do one
KEPT = 8
# Processes that a task may have at a time: a compiler for each processor is a chain of four or five
MOST = 256 + 8 * (os.cpu_count() or 1)


class CannotStart(Exception):  # noqa: N818 - a sentence for a bug report
    """Workers end before they take a task."""


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


@dataclass(frozen=True, slots=True)
class Told:
    """What the worker said while the task runs: "result", with which it ends, or anything else; and
    BEGAN, when a worker took the task, a second time where it was lost with others."""

    task: Task
    kind: str
    payload: Json = None


@dataclass(frozen=True, slots=True)
class Lost:
    """The worker ended, or was ended, without a result. `while_loading`: before the task itself
    began."""

    task: Task
    died: Died
    while_loading: bool


BEGAN = ""
Happening = Told | Lost


@dataclass(eq=False)
class _Job:
    """A worker with what it does now. `server`: of the tasks that it has done, None where there was
    none; `started`: it said that it can take a task; `ready`: it can now; `loading`: the task has
    not begun; `said`: what the task says, `silent`: no more; `alone`: no other runs beside it."""

    worker: Worker
    deadline: float
    server: str | None = None
    task: Task | None = None
    said: Said | None = None
    started: bool = False
    ready: bool = False
    loading: bool = True
    silent: bool = False
    alone: bool = False


@dataclass
class Supervisor:
    """`hire` starts a worker. To be closed, also when what it yields is not read to the end. Raises
    Stopped where one of `signals` comes, ProblemsError where the surroundings do not let workers
    start."""

    hire: Callable[[], Worker]
    signals: Signals
    jobs: int = 1
    # Those that wait longest first
    _staff: list[_Job] = field(default_factory=list, init=False)
    _futile: int = field(default=0, init=False)
    # together, to be done again one at a time
    _lost: deque[Task] = field(default_factory=deque, init=False)
    # The last one that was found to have ended
    _server: int | None = field(default=None, init=False)
    # When processes are counted again
    _looks: float = field(default=0.0, init=False)
    _hello: Json = field(default=None, init=False)

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
        while waiting or self._lost or any(job.task for job in self._staff):
            yield from self._feed(waiting)
            yield from self._listen()
            yield from self._look()

    def close(self) -> None:
        """Ends all workers and whatever they started."""
        for job in [*self._staff]:
            self._dismiss(job)

    def _employ(self) -> None:
        why, error = f"{FUTILE} worker processes in a row ended before they were ready", None
        while self._futile < FUTILE:
            try:
                # A process that imports torch answers after seconds
                with self.signals.at_once():
                    worker = self.hire()
                self._staff.append(_Job(worker, time.monotonic() + START_LIMIT))
                return
            except (EOFError, OSError) as raised:
                self._futile, error = self._futile + 1, raised
                why = (
                    "a worker process could not be started: "
                    f"{type(raised).__name__}{f' ({raised})' if str(raised) else ''}"
                )
                time.sleep(PAUSE)
        short = lacking(error)
        raise CannotStart(why) if short is None else ProblemsError([Problem(short)])

    def _feed(self, waiting: deque[Task]) -> Iterator[Happening]:
        """Hands tasks to workers that have loaded what they name, else to new ones."""
        for ended in [job for job in self._staff if job.ready and job.worker.gone]:
            # What an earlier check left behind ended it: no later one is to blame
            self._dismiss(ended)
        while True:
            task = self._next(waiting)
            if task is None:
                return
            job = self._idle(task.server) or self._idle(None)
            if job is None:
                self._employ_for(len(waiting) + len(self._lost))
                return
            job.alone = task in self._lost
            (self._lost if job.alone else waiting).remove(task)
            job.server, job.task, job.ready, job.loading, job.silent = (
                task.server,
                task,
                False,
                True,
                False,
            )
            job.deadline = time.monotonic() + task.limits[0]
            yield Told(task, BEGAN)
            job.said = job.worker.begin(task.payload)
            self._staff.remove(job)
            self._staff.append(job)

    def _idle(self, server: str | None) -> _Job | None:
        return next((job for job in self._staff if job.ready and job.server == server), None)

    def _employ_for(self, wanted: int) -> None:
        """As many workers as there are tasks for, at most `jobs` at work; some that wait stay, as
        the next tasks may be theirs."""
        coming = sum(not job.ready for job in self._staff)
        while coming < min(self.jobs, wanted + sum(job.task is not None for job in self._staff)):
            self._employ()
            coming += 1
        for job in [job for job in self._staff if job.ready][:-KEPT]:
            self._dismiss(job)

    def _next(self, waiting: deque[Task]) -> Task | None:
        """One that was lost when no other runs, and none beside it; none where all `jobs` run."""
        running = [job for job in self._staff if job.task]
        if self._lost or any(job.alone for job in running):
            return self._lost[0] if self._lost and not running else None
        if len(running) >= self.jobs:
            return None
        taken = frozenset[str]().union(*(job.task.slots for job in running if job.task))
        return next((task for task in waiting if not task.slots & taken), None)

    def _listen(self) -> Iterator[Happening]:
        """Waits for the next word of a worker or a task, an end, or a deadline."""
        watched = [job for job in self._staff if not job.ready]
        if not watched:
            return
        first = min(
            [job.deadline for job in watched] + [self._looks for job in watched if job.task]
        )
        pipes = [each for job in watched for each in (job.worker.words, job.worker.sentinel)]
        tasks = [job.said.pipe for job in watched if job.said is not None and not job.silent]
        heard = set(wait([self.signals.bell, *pipes, *tasks], max(0.0, first - time.monotonic())))
        self.signals.check()
        for job in watched:
            if job not in self._staff:
                continue  # dismissed with another
            if job.said is not None and not job.silent and job.said.pipe in heard:
                yield from self._hear_task(job, job.said)
            elif job.worker.words in heard:
                yield from self._hear(job)
            elif job.worker.sentinel in heard:
                yield from self._bury(job, job.worker.ended(job.said))
            elif time.monotonic() >= job.deadline:
                limit = (
                    START_LIMIT if job.task is None else job.task.limits[0 if job.loading else 1]
                )
                yield from self._bury(
                    job,
                    job.worker.silent(job.said)
                    if job.silent
                    else job.worker.stopped(limit, job.said),
                )

    def _look(self) -> Iterator[Happening]:
        """Ends tasks that have started more processes than the machine can bear, and cuts what they
        print to what is kept."""
        if time.monotonic() < self._looks:
            return
        for job in self._staff:
            cut_at(Path(job.worker.files.printed))
        found = sizes(job.worker.pid for job in self._staff if job.task)
        for job in [job for job in self._staff if found.get(job.worker.pid, 0) > MOST]:
            yield from self._bury(job, job.worker.died("processes", found[job.worker.pid]))
        self._looks = time.monotonic() + LOOKS_EVERY

    def _hear(self, job: _Job) -> Iterator[Happening]:
        """What a worker itself says: that it is ready, or that the process of its task has ended.
        Anything else was written by what ran there."""
        words = job.worker.said.hear()
        for kind, payload in words or ():
            match kind, payload:
                case "ready", _ if not job.started:
                    self._hello, self._futile = payload, 0
                    job.started, job.ready, job.deadline = True, True, float("inf")
                case "ended", [int(code), bool(leaves_some)] if job.said is not None:
                    # What it said before it ended
                    while job.task is not None and not job.silent and job.said.pipe.poll():
                        yield from self._hear_task(job, job.said)
                    if job.task is not None:
                        yield from self._bury(job, job.worker.child_ended(code, job.said))
                    elif leaves_some:
                        self._dismiss(job)
                    else:
                        job.said.pipe.close()
                        job.said, job.ready, job.deadline = None, True, float("inf")
                case _:
                    words = None
            if job not in self._staff:
                return
        if words is None:
            yield from self._bury(job, job.worker.silent(job.said))

    def _hear_task(self, job: _Job, said: Said) -> Iterator[Happening]:
        words = said.hear()
        for kind, payload in words or ():
            task = job.task
            if task is None:
                break  # it has its answer
            if kind == "begins":
                job.loading, job.deadline = False, time.monotonic() + task.limits[1]
            elif kind == "result":
                job.task, job.deadline = None, time.monotonic() + ENDS_WITHIN
            if kind != "begins":
                yield Told(task, kind, payload)
        if words is None:
            job.silent = True
            if job.task is not None:
                job.deadline = min(job.deadline, time.monotonic() + SILENT_FOR)

    def _bury(self, job: _Job, died: Died) -> Iterator[Happening]:
        task, with_others = job.task, died.how in ("server", "parent")
        self._dismiss(job)
        # One for all that a server took with it
        self._futile += not job.started and not (with_others and job.worker.server == self._server)
        if died.how == "server":
            self._server = job.worker.server
            for idle in [
                each
                for each in self._staff
                if each.task is None and each.worker.server == self._server
            ]:
                self._dismiss(idle)  # has ended with it, whether that is seen yet or not
        if task is not None and with_others and not job.alone:
            self._lost.append(task)
        elif task is not None:
            yield Lost(task, died, job.loading)
        elif not self._staff:
            self._employ()

    def _dismiss(self, job: _Job) -> None:
        job.worker.end()
        self._staff.remove(job)
        if job.said is not None:
            job.said.pipe.close()
        if job.worker.server is not None:
            end_orphans(job.worker.server, [other.worker.pid for other in self._staff])
