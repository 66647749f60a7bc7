"""Cases → events: skips, order, `-x`, interrupts. Knows nothing of gradients."""

from __future__ import annotations

import platform
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version

from gradverify.model.case import Case
from gradverify.model.codec import to_json
from gradverify.model.event import CheckFinished, CheckStarted, Environment, Event, RunFinished, RunStarted, Selection
from gradverify.model.report import INTERRUPTED, Gate, judged
from gradverify.model.result import CaseResult, FunctionInfo, Verdict
from gradverify.running.inline import Devices, devices, run_case
from gradverify.running.requirements import lack, placed

Runner = Callable[[Case], CaseResult]


def run(cases: Sequence[Case], *, argv: tuple[str, ...], selection: Selection, exitfirst: bool = False, gate: Gate | None = None,
        runner: Runner = run_case, probe: Callable[[], Devices] = devices) -> Iterator[Event]:
    """The events of a run, in order. Ctrl-C and a fault of gradverify's own end it early, with `not_run` results for what is left."""
    started = time.perf_counter()
    runs = any(case.skip is None for case in cases)
    machine = probe() if runs else None
    yield RunStarted(datetime.now(UTC).isoformat(timespec="seconds"), argv, selection, environment(machine), len(cases))
    left = list(cases)
    interrupted, crashed, stop = None, None, None
    while left and stop is None:
        case = left[0]
        yield CheckStarted(case.id, case.name)
        try:
            result = skipped(case, machine) or runner(placed(case, machine))
        except KeyboardInterrupt:
            interrupted, stop = INTERRUPTED, "interrupted"
        except Exception as error:
            crashed, stop = f"{case.id}\n{''.join(traceback.format_exception(error))}", "gradverify itself failed"
        else:
            left.pop(0)
            yield CheckFinished(result)
            if exitfirst and not judged(result, gate or Gate()).ok:
                stop = "-x: stopped at the first check that is not as expected"
    for case in left:
        yield CheckFinished(_without_running(case, "not_run", str(stop)))
    yield RunFinished(time.perf_counter() - started, interrupted, crashed)


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
