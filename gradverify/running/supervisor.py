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
from gradverify.running.process import SILENT_FOR, Died, Task, Worker, cut_at
from gradverify.running.server import lacking
from gradverify.running.signals import Signals

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


@dataclass
class Supervisor:
    """`hire` starts a worker. To be closed, also when what it yields is not read to the end. Raises
    Stopped where one of `signals` comes, ProblemsError where the surroundings do not let workers
    start."""

    hire: Callable[[], Worker]
    signals: Signals
    jobs: int = 1
    # Those that wait longest first
    _staff: list[Worker] = field(default_factory=list, init=False)
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
        raise CannotStart(why) if short is None else ProblemsError([Problem(short)])

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
                yield from self._bury(worker, worker.ended())
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
            cut_at(Path(worker.files.printed))
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
