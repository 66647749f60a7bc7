"""Cases → events → reports: run cases in this process or in supervised workers, with skips, order,
`--maxfail` and interrupts; and run them for a Python caller whose process must not be affected.
Knows nothing of gradients.

For such a caller a host process does what `gradverify check` does, without its output: it
supervises workers and imports neither torch nor the user's code. The caller's signals, threads,
`sys.path`, torch and main module are not touched. The host ends with its caller. Any thread may
call, also inside an event loop. With an executor (a pool of processes or threads, or one of Dask,
mpi4py or Ray) each check has a host of its own where the executor runs it: a check that ends its
process, or never ends, fails alone, as does a future that is cancelled, lost with its machine, or
cannot be submitted.
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
    """A crew that runs cases in this process, one after the other: for debuggers."""

    planned: Planned | None = None

    def machine(self) -> Devices:
        return devices()

    def run(self, cases: Sequence[Case]) -> Iterator[CheckEvent]:
        """Run the cases; an exception in one does not end the others. Raises Interrupted at Ctrl-C,
        even if the checked code swallowed it."""
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
    """A crew of `jobs` worker processes, each with one case at a time and its share of the threads.
    `timeout`: seconds for every case, in place of the case's own. `signals`: the caller's handlers;
    None: this object installs its own."""

    jobs: int = 1
    timeout: float | None = None
    planned: Planned | None = None
    signals: Signals | None = None
    _supervisor: Supervisor | None = field(default=None, init=False)
    _open: ExitStack = field(default_factory=ExitStack, init=False)

    def machine(self) -> Devices:
        return from_json(Devices, self.supervisor().hello())

    def run(self, cases: Sequence[Case]) -> Iterator[CheckEvent]:
        # By place: when the task began, and its findings so far
        begun, found = dict[int, float](), dict[int, Json]()
        for event in self.supervisor().run(list(map(self._task, range(len(cases)), cases))):
            place = event.task.place
            case = cases[place]
            if isinstance(event, Lost):
                took = time.perf_counter() - begun[place]
                yield CheckFinished(replace(of_lost(case, event, found.get(place)), seconds=took))
            elif event.kind == BEGAN:
                if place not in begun:
                    yield CheckStarted(case.id, case.name)
                begun[place] = time.perf_counter()
            elif event.kind == "result":
                yield CheckFinished(decoded(case, event.payload))
            elif event.kind == "found":
                found[place] = event.payload
            elif self.planned is not None and event.kind == "plan":
                with suppress(ValueError):  # written by checked code
                    self.planned(replace(from_json(Plan, event.payload), check=case.name))

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
                """Start a worker with the current folder, environment and path of this process, and
                a new server if the old one has ended."""
                begin()
                return Worker(context, serve, setup, Path(folder))

            signals = self.signals or enter(Signals())
            self._supervisor = enter(closing(Supervisor(hire, signals, self.jobs)))
        return self._supervisor

    def _task(self, place: int, case: Case) -> Task:
        # The check itself uses the timeout too: it stops before it would be killed
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
"""A way of running cases. Must be closed."""


def _server(case: Case) -> str:
    """Return the key of `Task.server`: checks of one spec file that name modules of the same
    packages may share a worker."""
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


# ---- Inputs found by trial, in worker processes: a function that crashes or hangs on a guess fails
# alone
TRYING = 90.0  # seconds for all calls of one function, of which there are few


def proposals(
    sought: Sequence[Sought],
    jobs: int,
    began: Callable[[Sought], None],
    signals: Signals | None = None,
) -> Iterator[tuple[int, Proposal]]:
    """Yield (index in `sought`, proposal) as each search ends; `began` is called when one begins.
    Raises Stopped if a signal arrives."""
    tasks = [
        Task(place, json.dumps(to_json(each)).encode(), (LOADING, TRYING))
        for place, each in enumerate(sought)
    ]
    with closing(Workers(jobs, signals=signals)) as workers:
        for event in workers.supervisor().run(tasks):
            place = event.task.place
            if isinstance(event, Lost):
                missing = _end(event.died, event.while_loading)
                yield place, Proposal(sought[place].target, missing=missing)
            elif event.kind == BEGAN:
                began(sought[place])
            elif event.kind == "result":
                try:
                    found = from_json(Proposal, event.payload)
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
    """The cases to run, with `folder` as the current folder; `jobs` and `timeout` as in
    `Workers`."""

    cases: tuple[Case, ...]
    folder: str = "."
    argv: tuple[str, ...] = ()
    selection: Selection = field(default_factory=Selection)
    gate: Gate = field(default_factory=Gate)
    jobs: int = 1
    timeout: float | None = None


@dataclass
class _Run:
    """State of a run. `left`: the cases not yet reported, in order; `failed`: how many are not as
    expected; `why`: why the run ended early, or ""; `unable`: the machine lacks what workers
    need."""

    left: dict[str, Case]
    gate: Gate
    maxfail: int | None
    failed: int = 0
    why: str = ""
    interrupted: int | None = None
    crashed: str | None = None
    unable: bool = False
    skips: dict[str, CaseResult] = field(default_factory=dict)

    def record(self, result: CaseResult) -> Iterator[Event]:
        """Yield the event of a result, and count it for `--maxfail`."""
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
        """Record an exception inside that ends the run."""
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
        """Yield the events of the skipped cases that come before a case, or of all (None)."""
        for case in list(self.left.values()):
            if case.id == id or self.why:
                return
            if case.id in self.skips:
                yield CheckStarted(case.id, case.name)
                yield from self.record(self.skips[case.id])


def run(request: Request, crew: Crew, maxfail: int | None = None) -> Iterator[Event]:
    """Yield the events of a run; checks end in any order. A signal ends the run early, with
    `not_run` results for the cases left. Closes the crew."""
    started, machine, cases = time.perf_counter(), None, request.cases
    state = _Run({case.id: case for case in cases}, request.gate, maxfail)
    try:
        with state.ended_by():
            # Not needed if the specs skip every case: finding devices imports torch
            if any(case.skip is None for case in cases):
                machine = crew.machine()
        yield _started(request, environment(machine))
        with state.ended_by():
            yield from () if state.why else _checks(cases, crew, machine, state)
    finally:
        crew.close()
    # If the machine lacks what workers need, the first case left reports that as an error
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
            yield from state.record(event.result) if isinstance(event, CheckFinished) else (event,)
        if state.why:
            return
    yield from state.skipped_before(None)


def environment(machine: Devices | None) -> Environment:
    """Return the environment of a run; versions are found without importing the packages."""
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
"""The program of a host. It has no main module with a file, which workers would run again. It is
run with `-P`, so that a `json.py` of the current folder is not imported instead of Python's."""

ENDS_WITHIN = 5.0  # seconds for a host whose caller has left it: it ends its workers first
KEPT = 4000  # characters of a failed host's stderr


def _report(
    request: Request,
    results: Iterable[CaseResult],
    machine: Environment | None = None,
    seconds: float = 0.0,
    crashed: str | None = None,
) -> Report:
    """Return the report of results that come from several runs, or none; `machine`: the environment
    of the first."""
    start = _started(request, machine or environment(None))
    end = RunFinished(seconds, crashed=crashed)
    return fold([start, *map(CheckFinished, results), end], request.gate, __version__)


def hosted(request: Request) -> Report:
    """Run a request in a host process and return the report; a host that cannot be started, or
    fails, gives the report of a crashed run. Raises ProblemsError on a platform without workers."""
    start_method()
    with tempfile.TemporaryFile() as errors:
        try:  # in its own session: Ctrl-C on the terminal reaches the caller only
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
                host.stdin.close()  # the host ends at the end of its stdin
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
            output = errors.read().decode(errors="replace").strip()[-KEPT:]
            why = f"the process that supervises the checks ended with status {host.returncode}"
            return _not_run(request, f"{why}:\n{output}" if output else why)


def _not_run(request: Request, why: str) -> Report:
    results = [without_running(case, "not_run", FAILED) for case in request.cases]
    return _report(request, results, crashed=why)


def serve() -> None:
    """The main function of a host: read one request from stdin, which stays open as long as the
    caller lives, and write its report to stdout."""
    request = from_json(Request, json.loads(sys.stdin.buffer.readline()))
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # output of a library at import does not belong in the report
    threading.Thread(target=_end_with_caller, daemon=True).start()
    events = run(request, Workers(request.jobs, request.timeout))
    report = fold(events, request.gate, __version__)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with suppress(BrokenPipeError), answer:
        answer.write(written(report))


def _end_with_caller() -> None:
    """Wait for the end of stdin, then send SIGTERM to this process: it ends the workers first, as
    on the command line."""
    while os.read(0, 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


# ---- Runs through executors
class HostLost(Exception):  # noqa: N818 - a sentence for the report
    """Raised if the host process of a check could not be started, or ended before the check."""


def run_check(request: str) -> str:
    """The function submitted to an executor. `request`: a `Request` of one case, as JSON. Returns
    the result and the environment of its run, as JSON. Raises HostLost."""
    report = hosted(from_json(Request, json.loads(request)))
    if report.crashed or report.interrupted:
        stopped = "the process that supervises the check was asked to end by a signal"
        raise HostLost(report.crashed or stopped)
    found = {"result": to_json(report.checks[0]), "environment": to_json(report.environment)}
    return json.dumps(found)


def distributed(request: Request, executor: Executor) -> Report:
    """Run each check of `request` through `executor`, with the limits of `request`, and return the
    report. An interrupt cancels the checks that have not begun."""
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
            results.append(_result_of(future, waiting.pop(future), places))
    finally:
        for future in waiting:
            future.cancel()
    machine = places[0] if places else None
    return _report(request, results, machine, time.perf_counter() - started)


def _result_of(future: Future[str], case: Case, places: list[Environment]) -> CaseResult:
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
