"""Checks through any `concurrent.futures.Executor`: a pool of processes or threads, Dask's, mpi4py's, Ray's.

What is submitted is `run_check`, which runs its check in a process of its own wherever it is called and returns text. A check that ends its process,
or never ends, costs itself only; so does a future that is cancelled, lost with its machine, or cannot be submitted.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from concurrent.futures import CancelledError, Executor, Future, as_completed
from dataclasses import replace
from datetime import UTC, datetime

from gradverify.model.case import Case
from gradverify.model.codec import from_json, to_json
from gradverify.model.event import CheckFinished, Environment, Event, RunFinished, RunStarted
from gradverify.model.fault import described, legible
from gradverify.model.result import CaseResult
from gradverify.running.hosted import HostLost, Request, hosted
from gradverify.running.lost import without_running
from gradverify.running.schedule import environment


def run_check(request: str) -> str:
    """`request`: a `Request` of one case, as JSON. JSON of its result and of the environment that it ran in. Raises HostLost where its process could
    not be started, or failed."""
    asked = from_json(Request, json.loads(request))
    seen = list(hosted(asked))
    started = next(event for event in seen if isinstance(event, RunStarted))
    finished = next(event for event in seen if isinstance(event, RunFinished))
    if finished.crashed or finished.interrupted:
        raise HostLost(finished.crashed or "the process that supervises the check was asked to end by a signal")
    result = next(event.result for event in seen if isinstance(event, CheckFinished))
    return json.dumps({"result": to_json(result), "environment": to_json(started.environment)})


def distributed(request: Request, executor: Executor) -> Iterator[Event]:
    """The events of a run whose checks `executor` runs, each with the limits of `request`; what was not begun is cancelled with this generator."""
    started, begun = time.perf_counter(), datetime.now(UTC).isoformat(timespec="seconds")
    places: list[Environment] = []
    waiting: dict[Future[str], Case] = {}
    try:
        for case in request.cases:
            try:
                waiting[executor.submit(run_check, json.dumps(to_json(replace(request, cases=(case,)), exact=True)))] = case
            except Exception as error:      # whatever an executor that is shut down or broken raises
                yield CheckFinished(_unsubmitted(case, error))
        for future in as_completed(list(waiting)):
            yield CheckFinished(_came_of(future, waiting.pop(future), places))
    finally:
        for future in waiting:
            future.cancel()
    yield RunStarted(begun, request.argv, request.selection, places[0] if places else environment(None), len(request.cases),
                     tuple(case.id for case in request.cases))
    yield RunFinished(time.perf_counter() - started)


def _came_of(future: Future[str], case: Case, places: list[Environment]) -> CaseResult:
    try:
        told = json.loads(future.result())
        result, place = from_json(CaseResult, told["result"]), from_json(Environment, told["environment"])
        if (result.id, result.spec) != (case.id, case.spec):
            return without_running(case, "error", f"the executor answered with the result of another check, {legible(result.id)}")
        places.append(place)
        return result
    except CancelledError:
        return without_running(case, "error", "the executor cancelled this check")
    except Exception as error:
        return without_running(case, "error", f"the executor lost this check: {described(error)}")


def _unsubmitted(case: Case, error: Exception) -> CaseResult:
    return without_running(case, "error", f"the executor did not take this check: {described(error)}")
