"""The report of a run: fold events, mark known findings, judge checks, compute the exit code; write
and read the JSON file."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, get_args

from gradverify.model.case import Json
from gradverify.model.codec import as_text, from_json, to_json
from gradverify.model.decisive import run_verdict
from gradverify.model.event import (
    CheckFinished,
    Environment,
    Event,
    RunFinished,
    RunStarted,
    Selection,
)
from gradverify.model.problem import INTERNAL, NOT_JUDGED, NOTHING_CHECKED, OF_VERDICTS, OK, WRONG
from gradverify.model.result import LEFT_OUT, CaseResult, Finding, Verdict

JUDGED = ("pass", "fail", "undecided")
"""Verdicts of checks whose rules ran."""


@dataclass(frozen=True, slots=True)
class Known:
    """One known finding of the check with the id `check`. `message`: its text when it was recorded;
    `reason`: a comment of the user."""

    check: str
    code: str
    input: str | None = None
    output: str | None = None
    message: str = ""
    reason: str = ""

    @property
    def mark(self) -> tuple[str, str | None, str | None]:
        """The key that identifies the finding within its check."""
        return self.code, self.input, self.output


@dataclass(frozen=True, slots=True)
class Baseline:
    """The known findings, by check id; one that occurs twice is listed twice. `open`: all findings
    of the run are to become known."""

    known: Mapping[str, tuple[Known, ...]] = field(default_factory=dict)
    open: bool = False


def known_as(check: str, finding: Finding) -> Known:
    """Return a finding as a baseline records it, with the first line of its message."""
    output = finding.output_name or (None if finding.output is None else f"y{finding.output}")
    return Known(
        check, finding.code, finding.input, output, finding.message.strip().partition("\n")[0]
    )


def marked(result: CaseResult, baseline: Baseline) -> CaseResult:
    """Return the result with known findings marked."""
    left = Counter(known.mark for known in baseline.known.get(result.id, ()))
    findings = []
    for finding in result.findings:
        mark = known_as(result.id, finding).mark
        findings.append(replace(finding, known=left[mark] > 0))
        left[mark] -= 1
    return replace(result, findings=tuple(findings))


def accepted(result: CaseResult) -> CaseResult:
    """Return a result that is not as expected with its unexpected errors marked as known; unchanged
    if that would not excuse it."""
    errors = unexpected(result)
    taken = replace(
        result,
        findings=tuple(
            replace(finding, known=finding.known or finding in errors)
            for finding in result.findings
        ),
    )
    return taken if excused(taken) else result


def unexpected(result: CaseResult) -> tuple[Finding, ...]:
    """Return the errors that the check's `expect` does not name."""
    return tuple(error for error in result.errors if error.code not in result.expected_codes)


def excused(result: CaseResult) -> bool:
    """Return whether known findings are all that makes this result not as expected. An expected
    failure that does not occur is never excused."""
    if result.verdict not in ("fail", "error", "undecided") or any(
        fault.costs for fault in result.faults
    ):
        return False
    missing = (
        set(result.expected_codes)
        - {finding.code for finding in result.findings}
        - set(result.not_judged)
    )
    errors = unexpected(result)
    return not missing and bool(errors) and all(finding.known for finding in errors)


def unknown(result: CaseResult, known: tuple[Known, ...]) -> tuple[Known, ...]:
    """Return the findings of a judged result that are to be recorded in addition to the known ones.
    Those of an undecided result always are: the gate of another run may not let them pass."""
    if not (result.baselined or result.verdict == "undecided"):
        return ()
    return tuple(_beyond([known_as(result.id, finding) for finding in unexpected(result)], known))


def gone(result: CaseResult, known: tuple[Known, ...]) -> tuple[Known, ...]:
    """Return those of `known` that no longer occur in this result, without those whose rule its run
    did not judge."""
    found = _beyond(known, [known_as(result.id, finding) for finding in result.findings])
    return tuple(each for each in found if _was_judged(result, each.code))


def _beyond(some: Iterable[Known], others: Iterable[Known]) -> Iterator[Known]:
    """Yield the elements of `some` without those of `others`, as a difference of multisets."""
    left = Counter(each.mark for each in others)
    for each in some:
        if left[each.mark] <= 0:
            yield each
        left[each.mark] -= 1


def _was_judged(result: CaseResult, code: str) -> bool:
    """Return whether the rule was judged. One that is not applicable counts if the check passed;
    otherwise another finding may have kept it from running."""
    run = next((rule for rule in result.rules if rule.code == code), None)
    if run is None or result.verdict not in JUDGED:
        return result.verdict in JUDGED
    return (
        run.status == "ran" or (run.status == "not_applicable" and result.verdict == "pass")
    ) and LEFT_OUT not in (run.reason or "")


SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True)
class Tool:
    name: str = "gradverify"
    version: str = ""


@dataclass(frozen=True, slots=True)
class Gate:
    """Which results besides a wrong gradient make a run fail. `exit_zero`: the verdicts never
    do."""

    undecided: Literal["warn", "fail"] = "warn"
    fail_on_skip: bool = False
    require_device: tuple[str, ...] = ()
    exit_zero: bool = False
    baseline: Baseline | None = None


@dataclass(frozen=True, slots=True)
class Summary:
    """Counts by verdict (`passed` is `pass` in the JSON report); `ok`: the number of checks
    that are as expected; `baselined`: of those, the ones whose errors are known."""

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
    """A finished (or interrupted) run; the field names are those of the JSON report. `forgiven`:
    the exit code that `--exit-zero` made 0."""

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
        """Whether at least one check was selected, and all of them are as expected."""
        return self.exit_code == OK and self.forgiven is None

    def to_json(self) -> str:
        """Return the text of the JSON report."""
        return written(self)


def judged(result: CaseResult, gate: Gate) -> CaseResult:
    """Return the result with `ok` set: whether the check is as its `expect` declares, apart from
    known findings."""
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
    if result.verdict == "not_run" or (
        result.verdict == "error" and any(fault.costs for fault in result.faults)
    ):
        return False
    if result.expect == "pass":
        return result.verdict == "pass" or (
            result.verdict == "undecided" and gate.undecided == "warn"
        )
    if result.expect == "fail":
        return result.verdict == "fail"
    # All errors must be listed, and every listed code must occur, except those of rules that were
    # not to run
    expected = set(result.expect)
    errors = {finding.code for finding in result.errors}
    warnings = {finding.code for finding in result.findings if finding.severity == "warning"}
    return errors <= expected and expected <= errors | warnings | set(result.not_judged)


def summarise(checks: Iterable[CaseResult]) -> Summary:
    """Return the counts of judged checks."""
    checks = tuple(checks)
    verdicts = Counter(check.verdict for check in checks)
    passed, fail, undecided, error, skip, not_run = (verdicts[each] for each in get_args(Verdict))
    return Summary(
        len(checks),
        passed,
        fail,
        undecided,
        error,
        skip,
        not_run,
        ok=sum(check.ok is True for check in checks),
        warnings=sum(each.severity == "warning" for check in checks for each in check.findings),
        baselined=sum(check.baselined for check in checks),
    )


def exit_code(
    checks: Iterable[CaseResult], interrupted: int | None = None, crashed: bool = False
) -> int:
    """Return the exit code (docs/running.md), by precedence: 130/143, 4, 2, 1, 3, 5."""
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
    if any(check.was_run for check in checks):
        return OK
    return NOTHING_CHECKED


def fold(events: Iterable[Event], gate: Gate, version: str) -> Report:
    """Return the report of a run from its events. Checks that `-x` or an interrupt left out are in
    the stream as `not_run` results."""
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
    # Checks end in any order
    checks.sort(key=lambda check: place.get(check.id, len(place)))
    code = exit_code(checks, finished.interrupted, finished.crashed is not None)
    shard = started.selection.shard
    if code == NOTHING_CHECKED and shard and shard.total and not checks:
        code = OK  # all selected checks are in other shards
    forgiven = code if gate.exit_zero and code in OF_VERDICTS else None
    return Report(
        SCHEMA_VERSION,
        Tool(version=version),
        started.started_at,
        finished.duration_s,
        started.argv,
        code if forgiven is None else OK,
        finished.interrupted is not None,
        started.environment,
        started.selection,
        summarise(checks),
        tuple(checks),
        finished.crashed,
        forgiven,
    )


RENAMED = {"passed": "pass"}
"""Field names of Summary that Python reserves."""


class NoReport(ValueError):  # noqa: N818 - it carries the sentence to show
    """Raised for a text that is no JSON report of this version. The message is the end of a
    sentence that begins with the file's name."""


def written(report: Report) -> str:
    """Return the text of the JSON report: ASCII, with each number in the shortest form that reads
    back as the same float (at most 17 digits)."""
    return as_text(as_data(report))


def as_data(report: Report) -> Json:
    """Return the report as plain data, with one verdict of the run at its head; non-finite numbers
    are "nan", "inf" and "-inf"."""
    verdict, decisive = run_verdict(report.checks, report.crashed is not None)
    data = {"verdict": verdict, "decisive": to_json(decisive), **to_json(report)}
    data["summary"] = {RENAMED.get(name, name): count for name, count in data["summary"].items()}
    return data


def read(text: str) -> Report:
    """Read the text of a report; unknown fields, of a later version, are ignored. Raises
    NoReport."""
    if not text.strip():
        raise NoReport("is empty")
    data: Json = None
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        raise NoReport(f"is no JSON: {error}") from None
    # An integer with more digits, or brackets nested deeper, than Python reads
    except (ValueError, RecursionError):
        pass
    if not isinstance(data, Mapping) or not {"schema_version", "tool", "checks"} <= set(data):
        raise NoReport("is JSON, but no report of `gradverify check`")
    if data["schema_version"] != SCHEMA_VERSION:
        raise NoReport(
            f"has schema version {data['schema_version']!r}; this gradverify reads version "
            f"{SCHEMA_VERSION}"
        )
    own = {name: given for given, name in RENAMED.items()}
    summary = data.get("summary")
    try:
        if isinstance(summary, Mapping):
            data = {
                **data,
                "summary": {own.get(name, name): count for name, count in summary.items()},
            }
        return from_json(Report, data)
    except (ValueError, RecursionError) as error:
        raise NoReport(f"is no report of `gradverify check`: {error}") from None
