"""Inputs found by trying, in worker processes: code that crashes or hangs on a guess costs that function."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NoReturn

from gradverify.model.case import Json
from gradverify.model.codec import from_json, to_json
from gradverify.model.interrupt import interruptible
from gradverify.model.proposal import Proposal, Sought
from gradverify.report.numbers import limit
from gradverify.running.crew import LOADING, hiring
from gradverify.running.process import Died, Files
from gradverify.running.signals import Signals
from gradverify.running.supervisor import Answered, Began, Lost, Supervisor, Task
from gradverify.running.words import Words
from gradverify.running.worker import Setup, Worker, live

TRYING = 90.0       # seconds for all calls of one function, of which there are few


def proposals(sought: Sequence[Sought], jobs: int, began: Callable[[Sought], None]) -> Iterator[tuple[int, Proposal]]:
    """The place of each in `sought`, and what was found for it, as they end; `began` is told before. Raises Stopped where a signal came."""
    tasks = [Task(str(place), json.dumps(to_json(each)).encode(), (LOADING, TRYING)) for place, each in enumerate(sought)]
    with tempfile.TemporaryDirectory(prefix="gradverify-", ignore_cleanup_errors=True) as folder:
        supervisor = Supervisor(hiring(jobs, None, Path(folder), serve), Signals().hear(), jobs)
        try:
            for happening in supervisor.run(tasks):
                place = int(happening.task.name)
                if isinstance(happening, Began):
                    began(sought[place])
                elif isinstance(happening, Answered):
                    yield place, _proposal(sought[place], happening.payload)
                elif isinstance(happening, Lost):
                    yield place, Proposal(sought[place].target, missing=_end(happening.died, happening.while_loading))
        finally:
            supervisor.close()
            supervisor.signals.close()


def _proposal(sought: Sought, data: Json) -> Proposal:
    try:
        return from_json(Proposal, data)
    except ValueError:
        return Proposal(sought.target, missing="what its process sent back is no answer")


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


def serve(words: Connection, alive: Connection, setup: Setup, files: Files) -> NoReturn:
    """The life of a worker: function after function, each in a child, until the supervisor is gone."""
    live(words, alive, setup, files, lambda worker, payload: None, _propose)


def _propose(worker: Worker, payload: bytes, saying: Words, stays: str | None) -> bool:
    from gradverify.trial.propose import propose

    sought = from_json(Sought, json.loads(payload))
    with interruptible():
        found = propose(sought, lambda: saying.say("begins"))
    saying.say("result", to_json(found))
    return True
