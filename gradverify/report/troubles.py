"""The findings and broken expectations of a run, as build servers list them: one entry for each."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from gradverify.model.report import Report
from gradverify.model.result import CaseResult, Finding
from gradverify.report.names import Place, in_repository, place_of, title_of
from gradverify.report.terminal import status

UNEXPECTED, REQUIRED, OWN_FAULT = "expectation", "required-device", "internal"
MEANS = {
    UNEXPECTED: "the check did not come out as its `expect` says",
    REQUIRED: "a skipped check is not allowed here",
    OWN_FAULT: "gradverify itself failed in a check",
}
"""What stands in the place of a rule's code where no rule found anything."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """`rule`: a code, or a word of MEANS; `where`: the line to change (None: it lies outside of the
    repository), `spec`: that of the spec.

    `fingerprint` stays the same as long as the rule, the function, the check and the pair do: lines
    and numbers are no part of it.
    """

    rule: str
    level: Literal["error", "warning"]
    check: CaseResult
    finding: Finding | None
    message: str
    where: Place | None
    spec: Place | None
    fingerprint: str

    @property
    def place(self) -> Place | None:
        return self.where or self.spec


def troubles(report: Report) -> tuple[Trouble, ...]:
    """Of a readable report, in its order. Two that are alike in everything a fingerprint is made of
    are told apart by their order."""
    seen: Counter[str] = Counter()
    found = []
    for check in report.checks:
        for rule, level, finding, message in _of(check):
            path = in_repository(check.spec.path, report.environment)
            key = json.dumps(
                [
                    rule,
                    check.function.target,
                    check.name,
                    path,
                    finding.input if finding else None,
                    finding.output if finding else None,
                ]
            )
            seen[key] += 1
            where = place_of(finding, check.function, report.environment)
            spec = Place(path, check.spec.line) if path else None
            # The spec as a whole: its line is known
            if where and spec and where == Place(spec.file):
                where = None
            digest = hashlib.sha256(f"{key}:{seen[key]}".encode()).hexdigest()[:32]
            found.append(Trouble(rule, level, check, finding, message, where, spec, digest))
    return tuple(found)


def title(trouble: Trouble) -> str:
    """`GV101 jacobian`, or the word that stands for it."""
    return title_of(trouble.finding) if trouble.finding else trouble.rule


def _of(
    check: CaseResult,
) -> Iterator[tuple[str, Literal["error", "warning"], Finding | None, str]]:
    if check.verdict == "not_run":
        return
    if not status.is_red(check):
        # As expected: its warnings, and what stayed undecided, but nothing that was expected
        for finding in check.findings:
            if finding.code not in check.expect and (
                finding.severity == "warning"
                or (check.expect == "pass" and check.verdict == "undecided")
            ):
                yield finding.code, "warning", finding, _told(finding)
        return
    broken = status.broken_expectation(check)
    if broken:
        yield UNEXPECTED, "error", None, broken
    for finding in check.findings:
        if finding.code not in check.expected_codes:
            yield (
                finding.code,
                "warning" if finding.known else finding.severity,
                finding,
                _told(finding),
            )
    if not broken and not check.errors:
        yield REQUIRED if check.verdict == "skip" else OWN_FAULT, "error", None, check.reason or ""


def _told(finding: Finding) -> str:
    """Sentence, cause and hint, a line each."""
    cause = [f"cause: {finding.cause.name}: {finding.cause.detail}"] if finding.cause else []
    return "\n".join(
        [finding.message, *cause, *([f"hint: {finding.hint}"] if finding.hint else [])]
    )
