"""Who runs cases: this process itself, or worker processes that a supervisor looks after. Both
yield the same events."""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from gradverify.functions.catalogue import BUILTINS
from gradverify.model.case import Case, Json
from gradverify.model.codec import from_json, to_json
from gradverify.model.event import CheckFinished, CheckStarted, Plan, Planned
from gradverify.model.interrupt import interruptible, is_interrupt
from gradverify.model.result import CaseResult
from gradverify.running.inline import Devices, devices, run_case
from gradverify.running.lost import decoded, encoded, faulty, of_lost
from gradverify.running.process import Task, Worker
from gradverify.running.requirements import cuda_of
from gradverify.running.server import begin, start_method
from gradverify.running.signals import Signals
from gradverify.running.supervisor import BEGAN, Lost, Supervisor
from gradverify.source.modules import python_path

# Seconds for importing and building what a check names: an extension that is compiled on import
# takes minutes
LOADING = 600.0

CheckEvent = CheckStarted | CheckFinished


@dataclass
class Here:
    """This process, one case after the other: for debuggers."""

    planned: Planned | None = None
    runner: Callable[[Case, Planned | None], CaseResult] | None = None
    probe: Callable[[], Devices] = devices

    def machine(self) -> Devices:
        return self.probe()

    def run(self, cases: Sequence[Case]) -> Iterator[CheckEvent]:
        for case in cases:
            yield CheckStarted(case.id, case.name)
            yield CheckFinished(decoded(case, encoded(case, self._result(case))))

    def _result(self, case: Case) -> CaseResult:
        """Whatever comes of it, the other checks run. Raises Interrupted where Ctrl-C came, even if
        the checked code swallowed it."""
        with interruptible():
            try:
                return (
                    self.runner(case, self.planned) if self.runner else run_case(case, self.planned)
                )
            except BaseException as error:
                if is_interrupt(error):
                    raise
                return faulty(case, error)

    def close(self) -> None:
        pass


@dataclass
class Workers:
    """`jobs` processes, each with a case at a time and with its share of the threads. `timeout`:
    seconds for every case, in place of its own;
    `loading`: for importing what it names. `signals`: those that the caller handles; None: this one
    handles them."""

    jobs: int = 1
    timeout: float | None = None
    loading: float | None = None
    planned: Planned | None = None
    signals: Signals | None = None
    _supervisor: Supervisor | None = field(default=None, init=False)
    _folder: tempfile.TemporaryDirectory[str] | None = field(default=None, init=False)

    def machine(self) -> Devices:
        return from_json(Devices, self.supervisor().hello())

    def run(self, cases: Sequence[Case]) -> Iterator[CheckEvent]:
        known = {str(place): case for place, case in enumerate(cases)}
        # When a task began, and what it found so far
        begun, found = dict[str, float](), dict[str, Json]()
        for happening in self.supervisor().run(
            [self._task(name, case) for name, case in known.items()]
        ):
            name = happening.task.name
            case = known[name]
            if isinstance(happening, Lost):
                took = time.perf_counter() - begun[name]
                yield CheckFinished(
                    replace(of_lost(case, happening, found.get(name)), seconds=took)
                )
            elif happening.kind == BEGAN:
                if name not in begun:
                    yield CheckStarted(case.id, case.name)
                begun[name] = time.perf_counter()
            elif happening.kind == "result":
                yield CheckFinished(decoded(case, happening.payload))
            elif happening.kind == "found":
                found[name] = happening.payload
            elif self.planned is not None and happening.kind == "plan":
                with suppress(ValueError):  # written by what ran there
                    self.planned(replace(from_json(Plan, happening.payload), check=case.name))

    def close(self) -> None:
        if self._supervisor is not None:
            self._supervisor.close()
            if self.signals is None:
                self._supervisor.signals.close()
        if self._folder is not None:
            self._folder.cleanup()
        self._supervisor, self._folder = None, None

    def supervisor(self) -> Supervisor:
        if self._supervisor is None:
            self._folder = tempfile.TemporaryDirectory(
                prefix="gradverify-", ignore_cleanup_errors=True
            )
            hire = hiring(self.jobs, Path(self._folder.name))
            self._supervisor = Supervisor(hire, self.signals or Signals().hear(), self.jobs)
        return self._supervisor

    def _task(self, name: str, case: Case) -> Task:
        # Also for the check itself, which stops before it is ended
        if self.timeout is not None:
            case = replace(case, settings=replace(case.settings, timeout=self.timeout))
        limits = self.loading or max(LOADING, case.settings.timeout), case.settings.timeout
        return Task(
            name,
            json.dumps(to_json(case, exact=True)).encode(),
            limits,
            cuda_of(case),
            _server(case),
        )


Crew = Here | Workers
"""Who runs cases. To be closed in the end."""


def _server(case: Case) -> str:
    """Which checks may share the process that imports what they name: those of one spec file that
    name modules of one package."""
    oracles = case.oracles
    names = (
        case.target,
        case.inputs_from,
        oracles.reference,
        oracles.gradient,
        oracles.surrogate,
        *case.search.imports,
    )
    places = {
        "gradverify"
        if name in BUILTINS
        else name.rpartition(":")[0]
        if ".py:" in name
        else name.partition(":")[0].partition(".")[0]
        for name in names
        if name
    }
    return json.dumps([case.spec.path, sorted(places), bool(cuda_of(case))])


def hiring(jobs: int, folder: Path) -> Callable[[], Worker]:
    """How a worker is started: with the folder, environment and path of this process as they are
    now. Where the process that it is forked from has ended, there is a new one."""
    from gradverify.running.worker import Setup, serve

    context = start_method()
    threads = None if jobs == 1 else max(1, (os.cpu_count() or 1) // jobs)
    setup = Setup(str(Path.cwd()), dict(os.environ), tuple(python_path()), threads)

    def hire() -> Worker:
        begin()
        return Worker(context, serve, setup, folder)

    return hire
