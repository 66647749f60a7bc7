"""Inputs found by trying, in worker processes: code that crashes or hangs on a guess costs that
function."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence

from gradverify.model.codec import from_json, to_json
from gradverify.model.proposal import Proposal, Sought
from gradverify.report.numbers import limit
from gradverify.running.crew import LOADING, Workers
from gradverify.running.process import Died, Task
from gradverify.running.supervisor import BEGAN, Lost

TRYING = 90.0  # seconds for all calls of one function, of which there are few


def proposals(
    sought: Sequence[Sought], jobs: int, began: Callable[[Sought], None]
) -> Iterator[tuple[int, Proposal]]:
    """The place of each in `sought`, and what was found for it, as they end; `began` is told
    before. Raises Stopped where a signal came."""
    tasks = [
        Task(str(place), json.dumps(to_json(each)).encode(), (LOADING, TRYING))
        for place, each in enumerate(sought)
    ]
    workers = Workers(jobs)
    try:
        for happening in workers.supervisor().run(tasks):
            place = int(happening.task.name)
            if isinstance(happening, Lost):
                yield (
                    place,
                    Proposal(
                        sought[place].target, missing=_end(happening.died, happening.while_loading)
                    ),
                )
            elif happening.kind == BEGAN:
                began(sought[place])
            elif happening.kind == "result":
                try:
                    yield place, from_json(Proposal, happening.payload)
                except ValueError:
                    yield (
                        place,
                        Proposal(
                            sought[place].target, missing="what its process sent back is no answer"
                        ),
                    )
    finally:
        workers.close()


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
