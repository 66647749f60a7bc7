"""Cases → events: skips, order, `--maxfail`, interrupts. Knows nothing of gradients."""

from __future__ import annotations

import platform
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from gradverify.model.case import Case
from gradverify.model.event import (
    CheckFinished,
    CheckStarted,
    Environment,
    Event,
    RunFinished,
    RunStarted,
    Selection,
)
from gradverify.model.fault import FAILED
from gradverify.model.paths import repository_folder
from gradverify.model.problem import SIGNALLED, ProblemsError
from gradverify.model.report import Gate, judged
from gradverify.model.result import CaseResult
from gradverify.running.crew import Crew
from gradverify.running.inline import Devices
from gradverify.running.lost import without_running
from gradverify.running.requirements import lack, placed
from gradverify.running.signals import Stopped
from gradverify.running.supervisor import CannotStart


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


def run(
    cases: Sequence[Case],
    *,
    argv: tuple[str, ...],
    selection: Selection,
    crew: Crew,
    maxfail: int | None = None,
    gate: Gate | None = None,
) -> Iterator[Event]:
    """The events of a run; checks end in any order. A signal ends it early, with `not_run` results
    for what is left. Closes the crew."""
    started, machine = time.perf_counter(), None
    state = _Run({case.id: case for case in cases}, gate or Gate(), maxfail)
    try:
        with state.ended_by():
            # Not asked where everything is skipped by word: torch would be imported
            if any(case.skip is None for case in cases):
                machine = crew.machine()
        begun, ids = (
            datetime.now(UTC).isoformat(timespec="seconds"),
            tuple(case.id for case in cases),
        )
        yield RunStarted(begun, argv, selection, environment(machine), len(ids), ids)
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


def skipped(case: Case, machine: Devices | None) -> CaseResult | None:
    """The result of a case that is not to run here, with the reason."""
    missing = lack(case, machine)
    return (
        None
        if missing is None
        else without_running(case, "skip", missing.reason, missing=missing.device)
    )
