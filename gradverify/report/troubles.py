"""The findings and unmet expectations of a run ("troubles"), one entry each, for reports to build
servers."""

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
"""Words used in place of a rule's code if no rule found anything, with their meaning."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """One entry. `rule`: a code, or a word of MEANS; `where`: the line to change (None: outside the
    repository); `spec`: the line of the check in its spec.

    `fingerprint`: depends on the rule, the function, the check and the pair, but not on lines and
    numbers.
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
    """Return the troubles of a readable report, in its order. Two with otherwise equal fingerprints
    are distinguished by their order."""
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
            # The place is the spec as a whole, and the line of the check is known
            if where and spec and where == Place(spec.file):
                where = None
            digest = hashlib.sha256(f"{key}:{seen[key]}".encode()).hexdigest()[:32]
            found.append(Trouble(rule, level, check, finding, message, where, spec, digest))
    return tuple(found)


def title(trouble: Trouble) -> str:
    """Return `GV101 jacobian`, or the word in place of a rule."""
    return title_of(trouble.finding) if trouble.finding else trouble.rule


def _of(
    check: CaseResult,
) -> Iterator[tuple[str, Literal["error", "warning"], Finding | None, str]]:
    if check.verdict == "not_run":
        return
    if not status.is_red(check):
        # As expected: only unexpected warnings, and undecided findings
        for finding in check.findings:
            if finding.code not in check.expect and (
                finding.severity == "warning"
                or (check.expect == "pass" and check.verdict == "undecided")
            ):
                yield finding.code, "warning", finding, _text(finding)
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
                _text(finding),
            )
    if not broken and not check.errors:
        yield REQUIRED if check.verdict == "skip" else OWN_FAULT, "error", None, check.reason or ""


def _text(finding: Finding) -> str:
    """Return message, cause and hint, a line each."""
    cause = [f"cause: {finding.cause.name}: {finding.cause.detail}"] if finding.cause else []
    return "\n".join(
        [finding.message, *cause, *([f"hint: {finding.hint}"] if finding.hint else [])]
    )
