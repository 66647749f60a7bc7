"""Runs for a caller that they must not touch: signals, threads, `sys.path`, torch and the main
module stay the caller's.

A host process does what `gradverify check` does without its output: it supervises workers and
imports neither torch nor anybody's code. It ends with its caller. Any thread may call, inside of an
event loop too.
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
from dataclasses import dataclass, field
from datetime import UTC, datetime

from gradverify import __version__
from gradverify.model.case import Case
from gradverify.model.codec import from_json, to_json
from gradverify.model.event import CheckFinished, RunFinished, RunStarted, Selection
from gradverify.model.fault import FAILED
from gradverify.model.report import Gate, NoReport, Report, fold, read, written
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
    ids = tuple(case.id for case in request.cases)
    start = RunStarted(datetime.now(UTC).isoformat(timespec="seconds"), request.argv, request.selection, environment(None), len(ids), ids)
    results = (CheckFinished(without_running(case, "not_run", FAILED)) for case in request.cases)
    return fold([start, *results, RunFinished(0.0, crashed=why)], request.gate, __version__)


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
