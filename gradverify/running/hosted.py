"""A run in a process of its own, for a caller that it must not touch: signals, threads, `sys.path`, torch and the main module stay the caller's.

The host process is what `gradverify check` is without its output: it supervises workers and imports neither torch nor anybody's code. It ends with
its caller. Any thread may call, inside of an event loop too.
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
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import IO

from gradverify.model.case import Case
from gradverify.model.codec import from_json, to_json
from gradverify.model.event import CheckFinished, CheckStarted, Event, RunFinished, RunStarted, Selection
from gradverify.model.fault import FAILED
from gradverify.model.report import Gate
from gradverify.running.crew import LOADING, Workers
from gradverify.running.lost import without_running
from gradverify.running.schedule import environment, run
from gradverify.running.server import start_method
from gradverify.source.modules import python_path

# ---- A run in a process of its own, for a caller that it must not touch: signals, threads,
# `sys.path`, torch and the main module stay the caller's
START = "import sys, json; sys.path[:] = json.loads(sys.argv[1]); from gradverify.running.hosted import serve; serve()"
"""No main module with a file, which workers would run again; with `-P`, so that a `json.py` of the current folder is not taken for Python's own."""

ENDS_WITHIN = 5.0       # seconds for a host that is told to end: it ends its workers first
KEPT = 4000             # characters of what a host said before it failed
EVENTS: dict[str, type[Event]] = {kind.__name__: kind for kind in (RunStarted, CheckStarted, CheckFinished, RunFinished)}


class HostLost(Exception):  # noqa: N818 - a sentence for the report
    """The host process could not be started, or ended before the run did."""


@dataclass(frozen=True, slots=True)
class Request:
    """What a host is to run, in the current folder `folder`. Limits as in `running.crew.Workers`."""

    cases: tuple[Case, ...]
    folder: str
    argv: tuple[str, ...] = ()
    selection: Selection = field(default_factory=Selection)
    gate: Gate = field(default_factory=Gate)
    jobs: int = 1
    timeout: float | None = None
    loading: float = LOADING
    memory: int | None = None


def hosted(request: Request) -> Iterator[Event]:
    """The events of a run, as they happen. The host ends with this generator. Where the host cannot be started, or fails, the run ends so: with
    `crashed` and what was not run. Raises ProblemsError where the platform has no workers."""
    start_method()
    left, seen = {case.id: case for case in request.cases}, set[str]()
    try:
        for event in _told(request):
            seen.add(type(event).__name__)
            if isinstance(event, CheckFinished):
                left.pop(event.result.id, None)
            yield event
    except HostLost as lost:
        if RunStarted.__name__ not in seen:
            begun = datetime.now(UTC).isoformat(timespec="seconds")
            yield RunStarted(begun, request.argv, request.selection, environment(None), len(request.cases), tuple(case.id for case in request.cases))
        for case in left.values():
            yield CheckFinished(without_running(case, "not_run", FAILED))
        yield RunFinished(0.0, crashed=str(lost))


def _told(request: Request) -> Iterator[Event]:
    with tempfile.TemporaryFile() as errors:
        host, complete = _started(request.folder, errors), False
        try:
            for event in _heard(host, request):
                complete = isinstance(event, RunFinished)
                yield event
        finally:
            _end(host, complete)
        if not complete:
            raise HostLost(_why(host.returncode, errors))


def _started(folder: str, errors: IO[bytes]) -> subprocess.Popen[bytes]:
    """A session of its own: Ctrl-C on the terminal is the caller's to hear."""
    try:
        return subprocess.Popen([sys.executable, "-P", "-c", START, json.dumps(python_path())], cwd=folder, start_new_session=True,
                                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors)
    except OSError as error:
        raise HostLost(f"no process could be started in {folder}: {error.strerror or error}") from None


def _heard(host: subprocess.Popen[bytes], request: Request) -> Iterator[Event]:
    assert host.stdin is not None and host.stdout is not None
    with contextlib.suppress(BrokenPipeError):
        host.stdin.write(json.dumps(to_json(request, exact=True)).encode() + b"\n")
        host.stdin.flush()
    for line in host.stdout:
        if not line.endswith(b"\n"):        # the host ended while it wrote
            return
        yield event_of(line)


def _end(host: subprocess.Popen[bytes], complete: bool) -> None:
    """One whose run is complete leaves by itself; any other is told to, and closes its workers."""
    assert host.stdin is not None and host.stdout is not None
    if not complete:
        host.terminate()
    with contextlib.suppress(OSError):
        host.stdin.close()
    try:
        host.wait(ENDS_WITHIN)
    except subprocess.TimeoutExpired:
        host.kill()
        host.wait()
    host.stdout.close()


def _why(status: int, errors: IO[bytes]) -> str:
    errors.seek(0)
    said = errors.read().decode(errors="replace").strip()
    return f"the process that supervises the checks ended with status {status}" + (f":\n{said[-KEPT:]}" if said else "")


def line_of(event: Event) -> bytes:
    return json.dumps([type(event).__name__, to_json(event)]).encode() + b"\n"


def event_of(line: bytes) -> Event:
    kind, data = json.loads(line)
    return from_json(EVENTS[kind], data)


# ---- The inside of a host process (running/hosted.py): reads what to run, supervises the
# workers, writes what happens, a line of JSON each
STDIN, STDOUT, STDERR = 0, 1, 2


def serve() -> None:
    """One request from stdin; stdin stays open as long as the caller is there."""
    with os.fdopen(os.dup(STDIN), "rb") as words:
        request = from_json(Request, json.loads(words.readline()))
    events = os.fdopen(os.dup(STDOUT), "wb")
    os.dup2(STDERR, STDOUT)        # what a library prints while it is imported is no event
    threading.Thread(target=_end_with_caller, daemon=True).start()
    crew = Workers(request.jobs, request.timeout, request.loading, request.memory)
    happening = run(request.cases, argv=request.argv, selection=request.selection, crew=crew, gate=request.gate)
    try:
        for event in happening:
            events.write(line_of(event))
            events.flush()
    except BrokenPipeError:     # the caller is gone
        crew.close()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)       # all is said: it ends by itself
    with contextlib.suppress(BrokenPipeError):
        events.close()


def _end_with_caller() -> None:
    """SIGTERM ends a run as it does on the command line: the workers first."""
    while os.read(STDIN, 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
