"""One verdict of a whole run, and the check that decides it: what a program acts on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from gradverify.model.result import CaseResult, Cause, Finding, Index

RunVerdict = Literal["fail", "error", "undecided", "not_checked", "pass"]
"""The verdicts of a run, worst first."""


@dataclass(frozen=True, slots=True)
class WorstElement:
    """The worst element of the decisive finding's pair."""

    output: str | None
    output_index: Index
    input: str
    input_index: Index
    analytic: float
    numeric: float
    tolerance: float


@dataclass(frozen=True, slots=True)
class Decisive:
    """The worst check of a run, and its first finding that counts. `message`: of the finding, else
    the reason why the check was not judged."""

    id: str
    code: str | None = None
    message: str | None = None
    cause: Cause | None = None
    file: str | None = None
    line: int | None = None
    worst: WorstElement | None = None


def run_verdict(
    checks: Sequence[CaseResult], crashed: bool = False
) -> tuple[RunVerdict, Decisive | None]:
    """Return the worst verdict of judged checks, and the first check that has it; None for `pass`.
    A check that is as its `expect` and the baseline have it passes, unless it is undecided."""
    each = [(_verdict(check), check) for check in checks]
    order = get_args(RunVerdict)
    verdict: RunVerdict = min((found for found, _ in each), key=order.index, default="not_checked")
    if verdict == "pass" and not any(check.was_run for check in checks):
        verdict = "not_checked"
    if crashed and verdict != "fail":
        verdict = "error"
    worst = next((check for found, check in each if found == verdict != "pass"), None)
    return verdict, None if worst is None else _decisive(worst)


def _verdict(check: CaseResult) -> RunVerdict:
    if check.verdict == "undecided" and not check.baselined:
        return "undecided"
    if check.ok:
        return "pass"
    if check.verdict in ("skip", "not_run"):
        return "not_checked"
    return "error" if check.verdict == "error" else "fail"


def _decisive(check: CaseResult) -> Decisive:
    found = next(
        (
            each
            for each in (*check.errors, *check.findings)
            if not each.known and each.code not in check.expected_codes
        ),
        None,
    )
    if found is None:
        reason = check.reason
        if reason is None and check.verdict == "pass":
            reason = "it was expected to fail, but passed"
        return Decisive(
            check.id, message=reason, file=check.function.file, line=check.function.line
        )
    return Decisive(
        check.id,
        found.code,
        found.message,
        found.cause,
        found.file,
        found.line,
        _worst(check, found),
    )


def _worst(check: CaseResult, found: Finding) -> WorstElement | None:
    """Return the worst element of the pair that a finding is about."""
    for each in check.comparisons:
        if (each.rule, each.input, each.output) == (found.code, found.input, found.output):
            return next(
                (
                    WorstElement(
                        each.output_name or (None if each.output is None else f"y{each.output}"),
                        entry.output_index,
                        each.input,
                        entry.input_index,
                        entry.analytic,
                        entry.numeric,
                        entry.tolerance,
                    )
                    for entry in each.worst
                ),
                None,
            )
    return None
