"""The result of a case that was not run, or of which nothing came back."""

from __future__ import annotations

from dataclasses import replace

from gradverify.model.case import Case
from gradverify.model.codec import to_json
from gradverify.model.fault import fault_of, verdictless
from gradverify.model.result import CaseResult, FunctionInfo, Verdict


def without_running(case: Case, verdict: Verdict, reason: str, missing: str | None = None) -> CaseResult:
    """`missing`: the kind of device that is not there."""
    settings = case.settings
    return CaseResult(case.id, case.spec, case.name, FunctionInfo(case.target), settings.device, settings.dtype, settings.seed, to_json(settings),
                      verdict, expect=case.expect, reason=reason, missing=missing)


def faulty(case: Case, error: BaseException) -> CaseResult:
    """Of a case that an exception of gradverify's own ended."""
    fault = fault_of(error, "the check")
    return replace(without_running(case, "error", verdictless(fault)), faults=(fault,))
