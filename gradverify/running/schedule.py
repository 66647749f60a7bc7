"""Cases → events: skips, order, `-x`, interrupts. Knows nothing of gradients."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version

from gradverify.model.case import Case
from gradverify.model.codec import to_json
from gradverify.model.event import CheckFinished, CheckStarted, Environment, Event, RunFinished, RunStarted, Selection
from gradverify.model.fault import fault_of, verdictless
from gradverify.model.interrupt import interruptible, is_interrupt
from gradverify.model.report import INTERRUPTED, Gate, judged
from gradverify.model.result import CaseResult, FunctionInfo, Verdict
from gradverify.running.inline import Devices, devices, run_case
from gradverify.running.requirements import lack, placed

Runner = Callable[[Case], CaseResult]


def run(cases: Sequence[Case], *, argv: tuple[str, ...], selection: Selection, exitfirst: bool = False, gate: Gate | None = None,
        runner: Runner = run_case, probe: Callable[[], Devices] = devices) -> Iterator[Event]:
    """The events of a run, in order. Ctrl-C ends it early, with `not_run` results for what is left; a fault of gradverify's own costs its check."""
    started = time.perf_counter()
    runs = any(case.skip is None for case in cases)
    machine = probe() if runs else None
    yield RunStarted(datetime.now(UTC).isoformat(timespec="seconds"), argv, selection, environment(machine), len(cases))
    left = list(cases)
    interrupted, stop = None, None
    while left and stop is None:
        case = left[0]
        yield CheckStarted(case.id, case.name)
        result = _result(case, machine, runner)
        if result is None:
            interrupted, stop = INTERRUPTED, "interrupted"
            continue
        left.pop(0)
        yield CheckFinished(result)
        if exitfirst and not judged(result, gate or Gate()).ok:
            stop = "-x: stopped at the first check that is not as expected"
    for case in left:
        yield CheckFinished(_without_running(case, "not_run", str(stop)))
    yield RunFinished(time.perf_counter() - started, interrupted)


def _result(case: Case, machine: Devices | None, runner: Runner) -> CaseResult | None:
    """None where Ctrl-C came meanwhile, even if the checked code swallowed it."""
    try:
        with interruptible():
            try:
                return skipped(case, machine) or runner(placed(case, machine))
            except BaseException as error:      # whatever it is: the other checks run
                if is_interrupt(error):
                    raise
                return _faulty(case, error)
    except KeyboardInterrupt:
        return None


def _faulty(case: Case, error: BaseException) -> CaseResult:
    fault = fault_of(error, "the check")
    return replace(_without_running(case, "error", verdictless(fault)), faults=(fault,))


def environment(machine: Devices | None) -> Environment:
    """Versions without importing what they are of."""
    return Environment(platform.python_version(), _version("torch"), _version("numpy"), platform.platform(),
                       machine.cuda if machine else (), machine.threads if machine else None)


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def skipped(case: Case, machine: Devices | None) -> CaseResult | None:
    """The result of a case that is not to run here, with the reason."""
    missing = lack(case, machine)
    return None if missing is None else _without_running(case, "skip", missing.reason, missing=missing.device)


def _without_running(case: Case, verdict: Verdict, reason: str, missing: str | None = None) -> CaseResult:
    settings = case.settings
    return CaseResult(case.id, case.spec, case.name, FunctionInfo(case.target), settings.device, settings.dtype, settings.seed, to_json(settings),
                      verdict, expect=case.expect, reason=reason, missing=missing)
