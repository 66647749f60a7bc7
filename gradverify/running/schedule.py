"""Cases → events → reports: who runs them (this process itself, or worker processes that are
supervised), skips, order, `--maxfail`, interrupts; and runs for a caller that they must not touch.
Knows nothing of gradients.

Of such a caller signals, threads, `sys.path`, torch and the main module stay its own. A host
process does what `gradverify check` does without its output: it supervises workers and
imports neither torch nor anybody's code. It ends with its caller. Any thread may call, inside of an
event loop too. With an executor (a pool of processes or threads, Dask's, mpi4py's, Ray's) each
check has a host of its own, wherever it runs: one that ends its process, or never ends, costs
itself only; so does a future that is cancelled, lost with its machine, or cannot be submitted.
"""

from __future__ import annotations

import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError, Executor, Future, as_completed
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from gradverify import __version__
from gradverify.functions.catalogue import BUILTINS
from gradverify.model.case import Case, Json
from gradverify.model.codec import from_json, to_json
from gradverify.model.event import (
    CheckFinished,
    CheckStarted,
    Environment,
    Event,
    Plan,
    Planned,
    RunFinished,
    RunStarted,
    Selection,
)
from gradverify.model.fault import FAILED, described, legible
from gradverify.model.interrupt import interruptible, is_interrupt
from gradverify.model.paths import repository_folder
from gradverify.model.problem import SIGNALLED, ProblemsError
from gradverify.model.proposal import Proposal, Sought
from gradverify.model.report import Gate, NoReport, Report, fold, judged, read, written
from gradverify.model.result import CaseResult
from gradverify.report.numbers import limit
from gradverify.running.inline import Devices, cuda_of, devices, placed, run_case, skipped
from gradverify.running.lost import decoded, encoded, faulty, of_lost, without_running
from gradverify.running.server import begin, start_method
from gradverify.running.signals import Signals, Stopped
from gradverify.running.supervisor import BEGAN, CannotStart, Died, Lost, Supervisor, Task, Worker
from gradverify.source.modules import python_path

# Seconds for importing and building what a check names: an extension that is compiled on import
# takes minutes
LOADING = 600.0

CheckEvent = CheckStarted | CheckFinished


@dataclass
class Here:
    """This process, one case after the other: for debuggers."""

    planned: Planned | None = None

    def machine(self) -> Devices:
        return devices()

    def run(self, cases: Sequence[Case]) -> Iterator[CheckEvent]:
        """Whatever comes of a check, the others run. Raises Interrupted where Ctrl-C came, even if
        the checked code swallowed it."""
        for case in cases:
            yield CheckStarted(case.id, case.name)
            with interruptible():
                try:
                    result = run_case(case, self.planned)
                except BaseException as error:
                    if is_interrupt(error):
                        raise
                    result = faulty(case, error)
            yield CheckFinished(decoded(case, encoded(case, result)))

    def close(self) -> None:
        pass


@dataclass
class Workers:
    """`jobs` processes, each with a case at a time and with its share of the threads. `timeout`:
    seconds for every case, in place of its own. `signals`: those that the caller handles; None:
    this one handles them."""

    jobs: int = 1
    timeout: float | None = None
    planned: Planned | None = None
    signals: Signals | None = None
    _supervisor: Supervisor | None = field(default=None, init=False)
    _open: ExitStack = field(default_factory=ExitStack, init=False)

    def machine(self) -> Devices:
        return from_json(Devices, self.supervisor().hello())

    def run(self, cases: Sequence[Case]) -> Iterator[CheckEvent]:
        # When a task began, and what it found so far
        begun, found = dict[int, float](), dict[int, Json]()
        for happening in self.supervisor().run(list(map(self._task, range(len(cases)), cases))):
            place = happening.task.place
            case = cases[place]
            if isinstance(happening, Lost):
                took = time.perf_counter() - begun[place]
                yield CheckFinished(
                    replace(of_lost(case, happening, found.get(place)), seconds=took)
                )
            elif happening.kind == BEGAN:
                if place not in begun:
                    yield CheckStarted(case.id, case.name)
                begun[place] = time.perf_counter()
            elif happening.kind == "result":
                yield CheckFinished(decoded(case, happening.payload))
            elif happening.kind == "found":
                found[place] = happening.payload
            elif self.planned is not None and happening.kind == "plan":
                with suppress(ValueError):  # written by what ran there
                    self.planned(replace(from_json(Plan, happening.payload), check=case.name))

    def close(self) -> None:
        self._supervisor = None
        self._open.close()

    def supervisor(self) -> Supervisor:
        if self._supervisor is None:
            from gradverify.running.worker import Setup, serve

            context, enter = start_method(), self._open.enter_context
            folder = enter(
                tempfile.TemporaryDirectory(prefix="gradverify-", ignore_cleanup_errors=True)
            )
            threads = None if self.jobs == 1 else max(1, (os.cpu_count() or 1) // self.jobs)
            setup = Setup(str(Path.cwd()), dict(os.environ), tuple(python_path()), threads)

            def hire() -> Worker:
                """With the folder, environment and path of this process as they are now. Where the
                process that it is forked from has ended, there is a new one."""
                begin()
                return Worker(context, serve, setup, Path(folder))

            signals = self.signals or enter(Signals())
            self._supervisor = enter(closing(Supervisor(hire, signals, self.jobs)))
        return self._supervisor

    def _task(self, place: int, case: Case) -> Task:
        # Also for the check itself, which stops before it is ended
        if self.timeout is not None:
            case = replace(case, settings=replace(case.settings, timeout=self.timeout))
        limits = max(LOADING, case.settings.timeout), case.settings.timeout
        return Task(
            place,
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


# ---- Inputs found by trying, in worker processes: code that crashes or hangs on a guess costs that
# function
TRYING = 90.0  # seconds for all calls of one function, of which there are few


def proposals(
    sought: Sequence[Sought], jobs: int, began: Callable[[Sought], None]
) -> Iterator[tuple[int, Proposal]]:
    """The place of each in `sought`, and what was found for it, as they end; `began` is told
    before. Raises Stopped where a signal came."""
    tasks = [
        Task(place, json.dumps(to_json(each)).encode(), (LOADING, TRYING))
        for place, each in enumerate(sought)
    ]
    with closing(Workers(jobs)) as workers:
        for happening in workers.supervisor().run(tasks):
            place = happening.task.place
            if isinstance(happening, Lost):
                missing = _end(happening.died, happening.while_loading)
                yield place, Proposal(sought[place].target, missing=missing)
            elif happening.kind == BEGAN:
                began(sought[place])
            elif happening.kind == "result":
                try:
                    found = from_json(Proposal, happening.payload)
                except ValueError:
                    missing = "what its process sent back is no answer"
                    found = Proposal(sought[place].target, missing=missing)
                yield place, found


def _end(died: Died, loading: bool) -> str:
    where = "while it was imported" if loading else "while inputs were tried"
    if died.how == "limit":
        return f"it did not end within {limit(died.number)} {where}"
    if died.how == "processes":
        return f"it started {int(died.number)} processes {where}"
    if died.how == "server":
        return f"it ended the process that it was started from {where}"
    how = f"signal {int(died.number)}" if died.how == "signal" else f"status {int(died.number)}"
    return f"its process ended {where} ({how}): give inputs that it takes"


@dataclass(frozen=True, slots=True)
class Request:
    """What is to be run, with `folder` as the current folder. Limits: as in `Workers`."""

    cases: tuple[Case, ...]
    folder: str = "."
    argv: tuple[str, ...] = ()
    selection: Selection = field(default_factory=Selection)
    gate: Gate = field(default_factory=Gate)
    jobs: int = 1
    timeout: float | None = None


@dataclass
class _Run:
    """How far a run is: what is not yet told of, in order, and why it ended early."""

    left: dict[str, Case]
    gate: Gate
    maxfail: int | None
    failed: int = 0
    why: str = ""
    interrupted: int | None = None
    crashed: str | None = None
    unable: bool = False
    skips: dict[str, CaseResult] = field(default_factory=dict)

    def tell(self, result: CaseResult) -> Iterator[Event]:
        self.left.pop(result.id, None)
        yield CheckFinished(result)
        self.failed += not judged(result, self.gate).ok
        if self.maxfail is not None and self.failed >= self.maxfail:
            self.why = (
                "-x: stopped at the first check that is not as expected"
                if self.maxfail == 1
                else f"--maxfail: stopped after {self.maxfail} checks that are not as expected"
            )

    @contextmanager
    def ended_by(self) -> Iterator[None]:
        """Notes what ends the run inside."""
        try:
            yield
        except CannotStart as error:
            self.crashed, self.why = str(error), FAILED
        except ProblemsError as error:
            self.why, self.unable = str(error), True
        except (Stopped, KeyboardInterrupt) as error:
            number = error.number if isinstance(error, Stopped) else 2
            self.interrupted, self.why = SIGNALLED + number, "interrupted"

    def skipped_before(self, id: str | None) -> Iterator[Event]:
        """The skipped cases that stand before a case, or all of them."""
        for case in list(self.left.values()):
            if case.id == id or self.why:
                return
            if case.id in self.skips:
                yield CheckStarted(case.id, case.name)
                yield from self.tell(self.skips[case.id])


def run(request: Request, crew: Crew, maxfail: int | None = None) -> Iterator[Event]:
    """The events of a run; checks end in any order. A signal ends it early, with `not_run` results
    for what is left. Closes the crew."""
    started, machine, cases = time.perf_counter(), None, request.cases
    state = _Run({case.id: case for case in cases}, request.gate, maxfail)
    try:
        with state.ended_by():
            # Not asked where everything is skipped by word: torch would be imported
            if any(case.skip is None for case in cases):
                machine = crew.machine()
        yield _started(request, environment(machine))
        with state.ended_by():
            yield from () if state.why else _checks(cases, crew, machine, state)
    finally:
        crew.close()
    # Of those that the surroundings did not allow one says so
    for place, case in enumerate(state.left.values()):
        yield CheckFinished(
            without_running(case, "error" if state.unable and place == 0 else "not_run", state.why)
        )
    yield RunFinished(time.perf_counter() - started, state.interrupted, state.crashed)


def _started(request: Request, place: Environment) -> RunStarted:
    begun = datetime.now(UTC).isoformat(timespec="seconds")
    ids = tuple(case.id for case in request.cases)
    return RunStarted(begun, request.argv, request.selection, place, len(ids), ids)


def _checks(
    cases: Sequence[Case], crew: Crew, machine: Devices | None, state: _Run
) -> Iterator[Event]:
    found = ((case, skipped(case, machine)) for case in cases)
    state.skips = {case.id: result for case, result in found if result is not None}
    for event in crew.run([placed(case, machine) for case in cases if case.id not in state.skips]):
        if isinstance(event, CheckStarted):
            yield from state.skipped_before(event.id)
        if not state.why:
            yield from state.tell(event.result) if isinstance(event, CheckFinished) else (event,)
        if state.why:
            return
    yield from state.skipped_before(None)


def environment(machine: Devices | None) -> Environment:
    """Versions without importing what they are of."""
    return Environment(
        platform.python_version(),
        _version("torch"),
        _version("numpy"),
        platform.platform(),
        machine.cuda if machine else (),
        machine.threads if machine else None,
        repository_folder(Path.cwd()),
        machine.reduced if machine else (),
    )


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


START = (
    "import sys, json; sys.path[:] = json.loads(sys.argv[1]); "
    "from gradverify.running.schedule import serve; serve()"
)
"""No main module with a file, which workers would run again; with `-P`, so that a `json.py` of the
current folder is not taken for Python's own."""

ENDS_WITHIN = 5.0  # seconds for a host whose caller has left it: it ends its workers first
KEPT = 4000  # characters of what a host said before it failed


def _report(
    request: Request,
    results: Iterable[CaseResult],
    machine: Environment | None = None,
    seconds: float = 0.0,
    crashed: str | None = None,
) -> Report:
    """Of results that were not made in one run; `machine`: where."""
    start = _started(request, machine or environment(None))
    end = RunFinished(seconds, crashed=crashed)
    return fold([start, *map(CheckFinished, results), end], request.gate, __version__)


def hosted(request: Request) -> Report:
    """The report of a run in a process of its own; where that cannot be started, or fails, of one
    that crashed. Raises ProblemsError where the platform has no workers."""
    start_method()
    with tempfile.TemporaryFile() as errors:
        try:  # a session of its own: Ctrl-C on the terminal is the caller's to hear
            host = subprocess.Popen(
                [sys.executable, "-P", "-c", START, json.dumps(python_path())],
                cwd=request.folder,
                start_new_session=True,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
            )
        except OSError as error:
            why = f"no process could be started in {request.folder}: {error.strerror or error}"
            return _not_run(request, why)
        assert host.stdin is not None and host.stdout is not None
        try:
            with suppress(BrokenPipeError):
                host.stdin.write(json.dumps(to_json(request, exact=True)).encode() + b"\n")
                host.stdin.flush()
            text = host.stdout.read().decode(errors="replace")
        finally:
            with suppress(OSError):
                host.stdin.close()  # at which it ends
            try:
                host.wait(ENDS_WITHIN)
            except subprocess.TimeoutExpired:
                host.kill()
                host.wait()
            host.stdout.close()
        try:
            return read(text)
        except NoReport:
            errors.seek(0)
            said = errors.read().decode(errors="replace").strip()[-KEPT:]
            why = f"the process that supervises the checks ended with status {host.returncode}"
            return _not_run(request, f"{why}:\n{said}" if said else why)


def _not_run(request: Request, why: str) -> Report:
    results = [without_running(case, "not_run", FAILED) for case in request.cases]
    return _report(request, results, crashed=why)


def serve() -> None:
    """The inside of a host: one request from stdin, which stays open as long as the caller is
    there; its report to stdout."""
    request = from_json(Request, json.loads(sys.stdin.buffer.readline()))
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints while it is imported is no report
    threading.Thread(target=_end_with_caller, daemon=True).start()
    events = run(request, Workers(request.jobs, request.timeout))
    report = fold(events, request.gate, __version__)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with suppress(BrokenPipeError), answer:
        answer.write(written(report))


def _end_with_caller() -> None:
    """SIGTERM ends a run as it does on the command line: the workers first."""
    while os.read(0, 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


# ---- through executors
class HostLost(Exception):  # noqa: N818 - a sentence for the report
    """The host process of a check could not be started, or ended before the check did."""


def run_check(request: str) -> str:
    """What is submitted. `request`: a `Request` of one case, as JSON. Returns its result, and the
    environment that it ran in, as JSON. Raises HostLost."""
    report = hosted(from_json(Request, json.loads(request)))
    if report.crashed or report.interrupted:
        asked = "the process that supervises the check was asked to end by a signal"
        raise HostLost(report.crashed or asked)
    found = {"result": to_json(report.checks[0]), "environment": to_json(report.environment)}
    return json.dumps(found)


def distributed(request: Request, executor: Executor) -> Report:
    """The report of a run whose checks `executor` runs, each with the limits of `request`; what was
    not begun is cancelled where this is interrupted."""
    started, places = time.perf_counter(), list[Environment]()
    waiting: dict[Future[str], Case] = {}
    results = []
    try:
        for case in request.cases:
            text = json.dumps(to_json(replace(request, cases=(case,)), exact=True))
            try:
                waiting[executor.submit(run_check, text)] = case
            except Exception as error:  # whatever an executor that is shut down or broken raises
                why = f"the executor did not take this check: {described(error)}"
                results.append(without_running(case, "error", why))
        for future in as_completed(list(waiting)):
            results.append(_came_of(future, waiting.pop(future), places))
    finally:
        for future in waiting:
            future.cancel()
    machine = places[0] if places else None
    return _report(request, results, machine, time.perf_counter() - started)


def _came_of(future: Future[str], case: Case, places: list[Environment]) -> CaseResult:
    try:
        data = json.loads(future.result())
        result = from_json(CaseResult, data["result"])
        place = from_json(Environment, data["environment"])
        if (result.id, result.spec) == (case.id, case.spec):
            places.append(place)
            return result
        why = f"answered with the result of another check, {legible(result.id)}"
    except CancelledError:
        why = "cancelled this check"
    except Exception as error:
        why = f"lost this check: {described(error)}"
    return without_running(case, "error", f"the executor {why}")
