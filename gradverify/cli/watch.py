"""A run as it happens: progress while a check runs, its line when it ends; the events go on to whoever folds them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from gradverify.cli.progress import Progress
from gradverify.model.event import CheckFinished, CheckStarted, Event, RunFinished, RunStarted
from gradverify.model.problem import INTERRUPTED
from gradverify.model.report import Gate, judged
from gradverify.model.result import CaseResult


def watched(events: Iterable[Event], gate: Gate, progress: Progress, show: Callable[[CaseResult], None]) -> Iterator[Event]:
    """The events, unchanged. `show` gets each result as the gate judges it."""
    try:
        progress.wait("starting torch")
        for event in events:
            progress.clear()
            _tell(event, gate, progress, show)
            yield event
    finally:
        progress.clear()


def collected(events: Iterable[Event]) -> list[Event]:
    """Collect all events; after Ctrl-C, those until then and the end of the run."""
    seen: list[Event] = []
    try:
        for event in events:
            seen.append(event)
    except KeyboardInterrupt:
        if not seen:
            raise
        seen.append(RunFinished(0.0, INTERRUPTED))
    return seen


def _tell(event: Event, gate: Gate, progress: Progress, show: Callable[[CaseResult], None]) -> None:
    if isinstance(event, RunStarted):
        progress.begin(event.total)
    elif isinstance(event, CheckStarted):
        progress.show(event.name)
    elif isinstance(event, CheckFinished):
        show(judged(event.result, gate))
        progress.ended(event.result.name)
