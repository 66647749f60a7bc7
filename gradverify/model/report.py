"""The report of a run: events folded, the gate's judgement of each check, the summary, the exit code."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from gradverify.model.baseline import Baseline, accepted, excused, marked
from gradverify.model.event import CheckFinished, Environment, Event, RunFinished, RunStarted, Selection
from gradverify.model.exit_codes import INTERNAL as INTERNAL
from gradverify.model.exit_codes import INTERRUPTED as INTERRUPTED
from gradverify.model.exit_codes import NOT_JUDGED as NOT_JUDGED
from gradverify.model.exit_codes import NOTHING_CHECKED as NOTHING_CHECKED
from gradverify.model.exit_codes import OF_VERDICTS as OF_VERDICTS
from gradverify.model.exit_codes import OK as OK
from gradverify.model.exit_codes import USAGE as USAGE
from gradverify.model.exit_codes import WRONG as WRONG
from gradverify.model.result import CaseResult, Verdict

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True)
class Tool:
    name: str = "gradverify"
    version: str = ""


@dataclass(frozen=True, slots=True)
class Gate:
    """What besides a wrong gradient makes a run red; `exit_zero`: nothing does, whatever the verdicts are."""

    undecided: Literal["warn", "fail"] = "warn"
    fail_on_skip: bool = False
    require_device: tuple[str, ...] = ()
    exit_zero: bool = False
    baseline: Baseline | None = None


@dataclass(frozen=True, slots=True)
class Summary:
    """Counts by verdict (`passed` is `pass` in the JSON report); `ok` counts the checks that came out as expected, `baselined` those of them whose
    errors are known."""

    total: int
    passed: int
    fail: int
    undecided: int
    error: int
    skip: int
    not_run: int
    ok: int
    warnings: int
    baselined: int = 0


@dataclass(frozen=True, slots=True)
class Report:
    """A finished (or interrupted) run; the field names are those of the JSON report. `forgiven`: the exit code that `--exit-zero` made 0."""

    schema_version: int
    tool: Tool
    started_at: str
    duration_s: float
    argv: tuple[str, ...]
    exit_code: int
    interrupted: bool
    environment: Environment
    selection: Selection
    summary: Summary
    checks: tuple[CaseResult, ...]
    crashed: str | None = None
    forgiven: int | None = None

    @property
    def ok(self) -> bool:
        """Did every selected check come out as expected, and was there one?"""
        return self.exit_code == OK and self.forgiven is None

    def to_json(self) -> str:
        """The text of the JSON report."""
        from gradverify.model.written import written

        return written(self)


def judged(result: CaseResult, gate: Gate) -> CaseResult:
    """The result with `ok`: did the check come out as its `expect` says, or is everything else known?"""
    if gate.baseline is not None:
        result = marked(result, gate.baseline)
    ok = _as_expected(result, gate)
    if not ok and gate.baseline is not None and gate.baseline.open:
        result = accepted(result)
    baselined = not ok and excused(result)
    return replace(result, ok=ok or baselined, baselined=baselined)


def _as_expected(result: CaseResult, gate: Gate) -> bool:
    if result.verdict == "skip":
        return not gate.fail_on_skip and result.missing not in gate.require_device
    if result.verdict == "not_run" or (result.verdict == "error" and any(fault.costs for fault in result.faults)):
        return False
    if result.expect == "pass":
        return result.verdict == "pass" or (result.verdict == "undecided" and gate.undecided == "warn")
    if result.expect == "fail":
        return result.verdict == "fail"
    return _exactly(result, set(result.expect))


def _exactly(result: CaseResult, expected: set[str]) -> bool:
    """The error findings are exactly the listed codes that are errors, and every listed warning occurs; of a rule that was not to run nothing is."""
    errors = {finding.code for finding in result.findings if finding.severity == "error"}
    warnings = {finding.code for finding in result.findings if finding.severity == "warning"}
    return errors <= expected and expected <= errors | warnings | set(result.not_judged)


def summarise(checks: Iterable[CaseResult]) -> Summary:
    """Counts over judged checks."""
    checks = tuple(checks)

    def count(verdict: Verdict) -> int:
        return sum(check.verdict == verdict for check in checks)

    return Summary(
        total=len(checks), passed=count("pass"), fail=count("fail"), undecided=count("undecided"), error=count("error"),
        skip=count("skip"), not_run=count("not_run"), ok=sum(check.ok is True for check in checks),
        warnings=sum(finding.severity == "warning" for check in checks for finding in check.findings),
        baselined=sum(check.baselined for check in checks))


def exit_code(checks: Iterable[CaseResult], interrupted: int | None = None, crashed: bool = False) -> int:
    """The exit code of command-line.md, its precedence included: 130/143, 4, 2, 1, 3, 5."""
    checks = tuple(checks)
    if interrupted:
        return interrupted
    if crashed or any(fault.costs for check in checks for fault in check.faults):
        return INTERNAL
    not_ok = [check.verdict for check in checks if not check.ok and check.verdict != "not_run"]
    if any(verdict not in ("error", "undecided", "skip") for verdict in not_ok):
        return WRONG
    if not_ok:
        return NOT_JUDGED
    return OK if any(check.verdict not in ("skip", "not_run") for check in checks) else NOTHING_CHECKED


def _exit_code(checks: Iterable[CaseResult], started: RunStarted, finished: RunFinished) -> int:
    """A shard to which none of the selected checks falls is as it should be: the others hold them."""
    code = exit_code(checks, finished.interrupted, finished.crashed is not None)
    shard = started.selection.shard
    return OK if code == NOTHING_CHECKED and shard and shard.total and not shard.places else code


def fold(events: Iterable[Event], gate: Gate, version: str) -> Report:
    """All events of a run as its report. Checks that `-x` or an interrupt left out come as `not_run` results in the stream."""
    started: RunStarted | None = None
    finished = RunFinished(0.0)
    checks: list[CaseResult] = []
    for event in events:
        if isinstance(event, RunStarted):
            started = event
        elif isinstance(event, CheckFinished):
            checks.append(judged(event.result, gate))
        elif isinstance(event, RunFinished):
            finished = event
    if started is None:
        raise ValueError("a run's events begin with RunStarted")
    place = {id: number for number, id in reversed(list(enumerate(started.order)))}
    checks.sort(key=lambda check: place.get(check.id, len(place)))      # workers end them in another order
    code = _exit_code(checks, started, finished)
    forgiven = code if gate.exit_zero and code in OF_VERDICTS else None
    return Report(
        schema_version=SCHEMA_VERSION, tool=Tool(version=version), started_at=started.started_at, duration_s=finished.duration_s,
        argv=started.argv, exit_code=code if forgiven is None else OK,
        interrupted=finished.interrupted is not None, environment=started.environment, selection=started.selection,
        summary=summarise(checks), checks=tuple(checks), crashed=finished.crashed, forgiven=forgiven)
