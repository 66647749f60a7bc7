"""The result of a case that was not run, or of which nothing came back."""

from __future__ import annotations

from gradverify.model.case import Case, Json
from gradverify.model.codec import from_json, to_json
from gradverify.model.fault import fault_of, of_fault
from gradverify.model.result import CaseResult, FunctionInfo, Verdict


def without_running(case: Case, verdict: Verdict, reason: str, missing: str | None = None) -> CaseResult:
    """`missing`: the kind of device that is not there."""
    settings = case.settings
    return CaseResult(case.id, case.spec, case.name, FunctionInfo(case.target), settings.device, settings.dtype, settings.seed, to_json(settings),
                      verdict, expect=case.expect, reason=reason, missing=missing)


def faulty(case: Case, error: BaseException) -> CaseResult:
    """Of a case that an exception of gradverify's own ended."""
    return of_fault(without_running(case, "error", ""), fault_of(error, "the check"))


def encoded(case: Case, result: CaseResult) -> Json:
    """A result as plain data. A fault of ours while it is encoded costs this check only."""
    try:
        return to_json(result)
    except Exception as error:
        return to_json(faulty(case, error))


def decoded(case: Case, data: Json) -> CaseResult:
    """The inverse of `encoded`. A value of the wrong type is a fault of ours in this check, and not in the run."""
    try:
        return from_json(CaseResult, data)
    except Exception as error:
        return faulty(case, error)
