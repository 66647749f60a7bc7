"""Tasks in worker processes: one that ends its process, or takes too long, costs itself only. Knows nothing of gradients.

A worker has one task at a time and says when it begins to load it, when it begins, and what came of it. What it does not say did not happen:
a process that ends without an answer, with whatever status, was ended by its task.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import wait

from gradverify.running.process import Died, Worker
from gradverify.running.signals import Signals

START_LIMIT = 300.0     # seconds until a worker has imported torch: 20 on a slow machine, more on a network file system
FUTILE = 3              # workers in a row that end before they are ready: no further one would be


class CannotStart(Exception):  # noqa: N818 - a sentence for a bug report
    """Workers end before they take a task."""


@dataclass(frozen=True, slots=True)
class Task:
    """`limits`: seconds to load and to run. Two tasks of one `slot` never run at the same time."""

    name: str
    payload: bytes
    limits: tuple[float, float]
    slot: str | None = None


@dataclass(frozen=True, slots=True)
class Began:
    """A worker took the task."""

    task: Task


@dataclass(frozen=True, slots=True)
class Told:
    """What the worker said while the task runs."""

    task: Task
    kind: str
    payload: bytes


@dataclass(frozen=True, slots=True)
class Answered:
    """The worker's result."""

    task: Task
    payload: bytes


@dataclass(frozen=True, slots=True)
class Lost:
    """The worker ended, or was ended, without a result. `while_loading`: before the task itself began."""

    task: Task
    died: Died
    while_loading: bool


Happening = Began | Told | Answered | Lost


@dataclass
class _Job:
    """A worker with what it does now. `ready`: it said that it can take a task."""

    worker: Worker
    deadline: float
    task: Task | None = None
    ready: bool = False
    loading: bool = True


@dataclass
class Supervisor:
    """`hire` starts a worker. To be closed, also when what it yields is not read to the end. Raises Stopped where one of `signals` comes."""

    hire: Callable[[], Worker]
    signals: Signals
    jobs: int = 1
    _staff: list[_Job] = field(default_factory=list, init=False)
    _futile: int = field(default=0, init=False)
    _hello: bytes = field(default=b"", init=False)

    def hello(self) -> bytes:
        """What the first worker says when it is ready. Raises CannotStart."""
        if not self._staff:
            self._employ()
        while not self._hello:
            for _ in self._listen(deque()):
                pass
        return self._hello

    def run(self, tasks: Sequence[Task]) -> Iterator[Happening]:
        """What happens, as it happens, until every task has its answer or its end. Raises CannotStart."""
        waiting = deque(tasks)
        while waiting or any(job.task for job in self._staff):
            self._staff_up(len(waiting) + sum(job.task is not None for job in self._staff))
            yield from self._feed(waiting)
            yield from self._listen(waiting)

    def close(self) -> None:
        """Ends all workers and whatever they started."""
        for job in self._staff:
            job.worker.end()
        self._staff.clear()

    def _employ(self) -> None:
        if self._futile >= FUTILE:
            raise CannotStart(f"{FUTILE} worker processes in a row ended before they were ready")
        self._staff.append(_Job(self.hire(), time.monotonic() + START_LIMIT))

    def _staff_up(self, wanted: int) -> None:
        """As many workers as there are tasks for."""
        while len(self._staff) < min(self.jobs, wanted):
            self._employ()

    def _feed(self, waiting: deque[Task]) -> Iterator[Happening]:
        for job in [job for job in self._staff if job.ready and job.task is None and job.worker.gone]:
            self._dismiss(job)      # what an earlier check left behind ended it: no later one is to blame
        for job in self._staff:
            task = self._next(waiting) if job.ready and job.task is None else None
            if task is None:
                continue
            waiting.remove(task)
            job.task, job.loading, job.deadline = task, True, time.monotonic() + task.limits[0]
            yield Began(task)
            job.worker.send(task.payload)

    def _next(self, waiting: deque[Task]) -> Task | None:
        taken = {job.task.slot for job in self._staff if job.task and job.task.slot}
        return next((task for task in waiting if task.slot not in taken), None)

    def _listen(self, waiting: deque[Task]) -> Iterator[Happening]:
        """Waits for the next word of a worker, its end, or a deadline."""
        watched = [job for job in self._staff if job.task or not job.ready]
        if not watched:
            return
        first = min(job.deadline for job in watched)
        pipes = [each for job in watched for each in (job.worker.words, job.worker.sentinel)]
        heard = set(wait([self.signals.bell, *pipes], max(0.0, first - time.monotonic())))
        self.signals.check()
        for job in watched:
            if job.worker.words in heard:
                yield from self._hear(job)
            elif job.worker.sentinel in heard:
                yield from self._bury(job, job.worker.ended())
            elif time.monotonic() >= job.deadline:
                yield from self._bury(job, job.worker.stopped(self._limit(job)))

    def _limit(self, job: _Job) -> float:
        return START_LIMIT if job.task is None else job.task.limits[0 if job.loading else 1]

    def _hear(self, job: _Job) -> Iterator[Happening]:
        word = job.worker.hear()
        if word is None:
            yield from self._bury(job, job.worker.silent())
            return
        kind, payload = word
        if kind == "ready":
            self._hello, self._futile = payload, 0
            job.ready, job.deadline = True, float("inf")
        elif job.task is not None:
            yield from self._of_task(job, job.task, kind, payload)

    def _of_task(self, job: _Job, task: Task, kind: str, payload: bytes) -> Iterator[Happening]:
        if kind == "begins":
            job.loading, job.deadline = False, time.monotonic() + task.limits[1]
        elif kind in ("result", "last"):        # the last: the worker takes no other task
            job.task, job.deadline = None, float("inf")
            if kind == "last":
                self._dismiss(job)
            yield Answered(task, payload)
        else:
            yield Told(task, kind, payload)

    def _bury(self, job: _Job, died: Died) -> Iterator[Happening]:
        task, loading = job.task, job.loading
        self._dismiss(job)
        if task is not None:
            yield Lost(task, died, loading)
        elif not job.ready:
            self._futile += 1
            if not self._staff:
                self._employ()

    def _dismiss(self, job: _Job) -> None:
        job.worker.end()
        self._staff.remove(job)

