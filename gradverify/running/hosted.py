"""Runs for a caller that they must not touch: signals, threads, `sys.path`, torch and the main
module stay the caller's.

A host process does what `gradverify check` does without its output: it supervises workers and
imports neither torch nor anybody's code. It ends with its caller. Any thread may call, inside of an
event loop too. With an executor (a pool of processes or threads, Dask's, mpi4py's, Ray's) each
check has a host of its own, wherever it runs: one that ends its process, or never ends, costs
itself only; so does a future that is cancelled, lost with its machine, or cannot be submitted.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable
from concurrent.futures import CancelledError, Executor, Future, as_completed
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from gradverify import __version__
from gradverify.model.case import Case
from gradverify.model.codec import from_json, to_json
from gradverify.model.event import CheckFinished, Environment, RunFinished, RunStarted, Selection
from gradverify.model.fault import FAILED, described, legible
from gradverify.model.report import Gate, NoReport, Report, fold, read, written
from gradverify.model.result import CaseResult
from gradverify.running.crew import Workers
from gradverify.running.lost import without_running
from gradverify.running.schedule import environment, run
from gradverify.running.server import start_method
from gradverify.source.modules import python_path

START = (
    "import sys, json; sys.path[:] = json.loads(sys.argv[1]); "
    "from gradverify.running.hosted import serve; serve()"
)
"""No main module with a file, which workers would run again; with `-P`, so that a `json.py` of the
current folder is not taken for Python's own."""

ENDS_WITHIN = 5.0  # seconds for a host whose caller has left it: it ends its workers first
KEPT = 4000  # characters of what a host said before it failed


@dataclass(frozen=True, slots=True)
class Request:
    """What is to be run, in the current folder `folder`. Limits as in `running.crew.Workers`."""

    cases: tuple[Case, ...]
    folder: str
    argv: tuple[str, ...] = ()
    selection: Selection = field(default_factory=Selection)
    gate: Gate = field(default_factory=Gate)
    jobs: int = 1
    timeout: float | None = None


def _report(
    request: Request,
    results: Iterable[CaseResult],
    machine: Environment | None = None,
    seconds: float = 0.0,
    crashed: str | None = None,
) -> Report:
    """Of results that were not made in one run; `machine`: where."""
    ids = tuple(case.id for case in request.cases)
    begun = datetime.now(UTC).isoformat(timespec="seconds")
    place = machine or environment(None)
    start = RunStarted(begun, request.argv, request.selection, place, len(ids), ids)
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
            with contextlib.suppress(BrokenPipeError):
                host.stdin.write(json.dumps(to_json(request, exact=True)).encode() + b"\n")
                host.stdin.flush()
            text = host.stdout.read().decode(errors="replace")
        finally:
            with contextlib.suppress(OSError):
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
    crew = Workers(request.jobs, request.timeout)
    given = {"argv": request.argv, "selection": request.selection, "gate": request.gate}
    report = fold(run(request.cases, crew=crew, **given), request.gate, __version__)  # type: ignore[arg-type]
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with contextlib.suppress(BrokenPipeError), answer:
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
        result, place = (
            from_json(CaseResult, data["result"]),
            from_json(Environment, data["environment"]),
        )
        if (result.id, result.spec) == (case.id, case.spec):
            places.append(place)
            return result
        why = f"answered with the result of another check, {legible(result.id)}"
    except CancelledError:
        why = "cancelled this check"
    except Exception as error:
        why = f"lost this check: {described(error)}"
    return without_running(case, "error", f"the executor {why}")
