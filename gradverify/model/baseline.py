"""Known findings: they are shown, marked and counted, and fail no run. A finding is recognised by code, input and output, not by its numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from gradverify.model.result import LEFT_OUT, CaseResult, Finding

JUDGED = ("pass", "fail", "undecided")
"""Verdicts of checks whose rules were run."""


@dataclass(frozen=True, slots=True)
class Known:
    """One finding of one check (its id). `message`: how it was told when it was recorded, `reason`: what a person wrote beside it."""

    check: str
    code: str
    input: str | None = None
    output: str | None = None
    message: str = ""
    reason: str = ""

    @property
    def mark(self) -> tuple[str, str | None, str | None]:
        """What it is recognised by, within its check."""
        return self.code, self.input, self.output


@dataclass(frozen=True, slots=True)
class Baseline:
    """What is known, by check id; one that is found twice is known twice. `open`: whatever is found is to become known."""

    known: Mapping[str, tuple[Known, ...]] = field(default_factory=dict)
    open: bool = False


def known_as(check: str, finding: Finding) -> Known:
    """A finding as it is recorded: the first line of its message."""
    output = finding.output_name or (None if finding.output is None else f"y{finding.output}")
    return Known(check, finding.code, finding.input, output, finding.message.strip().partition("\n")[0])


def marked(result: CaseResult, baseline: Baseline) -> CaseResult:
    """The result, known findings marked."""
    left = Counter(known.mark for known in baseline.known.get(result.id, ()))
    findings = []
    for finding in result.findings:
        mark = known_as(result.id, finding).mark
        findings.append(replace(finding, known=left[mark] > 0))
        left[mark] -= 1
    return replace(result, findings=tuple(findings))


def accepted(result: CaseResult) -> CaseResult:
    """A result that is not as expected, as it is once what it found is recorded; the same where that would not excuse it."""
    errors = unexpected(result)
    taken = replace(result, findings=tuple(replace(finding, known=finding.known or finding in errors) for finding in result.findings))
    return taken if excused(taken) else result


def unexpected(result: CaseResult) -> tuple[Finding, ...]:
    """The errors that the check's `expect` does not name."""
    named = result.expect if isinstance(result.expect, tuple) else ()
    return tuple(finding for finding in result.findings if finding.severity == "error" and finding.code not in named)


def excused(result: CaseResult) -> bool:
    """Is everything that makes this result not as expected a known finding? An expected failure that does not happen never is."""
    if result.verdict not in ("fail", "error", "undecided") or any(fault.costs for fault in result.faults):
        return False
    missing = set(result.expect if isinstance(result.expect, tuple) else ()) - {finding.code for finding in result.findings} - set(result.not_judged)
    errors = unexpected(result)
    return not missing and bool(errors) and all(finding.known for finding in errors)


def unknown(result: CaseResult, known: tuple[Known, ...]) -> tuple[Known, ...]:
    """What of a judged result is to be recorded beside what is known of it. Undecided ones always: another run's gate may not let them pass."""
    if not (result.baselined or result.verdict == "undecided"):
        return ()
    left = Counter(each.mark for each in known)
    found = []
    for each in (known_as(result.id, finding) for finding in unexpected(result)):
        if left[each.mark] <= 0:
            found.append(each)
        left[each.mark] -= 1
    return tuple(found)


def gone(result: CaseResult, known: tuple[Known, ...]) -> tuple[Known, ...]:
    """What of `known` this result shows to occur no longer; what its run did not judge is left out."""
    left = Counter(known_as(result.id, finding).mark for finding in result.findings)
    elsewhere = {code for repeat in result.repeats for code in repeat.codes}       # of other seeds only the codes are known
    missing = []
    for each in known:
        if left[each.mark] <= 0 and each.code not in elsewhere and _was_judged(result, each.code):
            missing.append(each)
        left[each.mark] -= 1
    return tuple(missing)


def _was_judged(result: CaseResult, code: str) -> bool:
    """Did the rule have its say? One that is not applicable has where the check passed; elsewhere another finding may stand before it."""
    if result.verdict not in JUDGED:
        return False
    run = next((rule for rule in result.rules if rule.code == code), None)
    if run is None:
        return True
    if run.status == "ran":
        return LEFT_OUT not in (run.reason or "")
    return run.status == "not_applicable" and result.verdict == "pass" and LEFT_OUT not in (run.reason or "")
