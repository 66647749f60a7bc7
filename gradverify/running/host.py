"""The inside of a host process (running/hosted.py): reads what to run, supervises the workers, writes what happens, a line of JSON each."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading

from gradverify.model.codec import from_json
from gradverify.running.crew import Workers
from gradverify.running.hosted import Request, line_of
from gradverify.running.schedule import run

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
