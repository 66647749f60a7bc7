"""The result of a case that was not run, or of which nothing came back."""

from __future__ import annotations

from dataclasses import replace

from gradverify.model.case import Case, Json
from gradverify.model.codec import from_json, to_json
from gradverify.model.fault import fault_of, legible, of_fault
from gradverify.model.result import CaseResult, Finding, FunctionInfo, Verdict

GARBLED = "code that ran there replaced what results go through, or writes to file descriptors that are not its own"


def without_running(case: Case, verdict: Verdict, reason: str, missing: str | None = None) -> CaseResult:
    """`missing`: the kind of device that is not there."""
    settings = case.settings
    return CaseResult(case.id, case.spec, case.name, FunctionInfo(case.target), settings.device, settings.dtype, settings.seed, to_json(settings),
                      verdict, expect=case.expect, reason=reason, missing=missing)


def faulty(case: Case, error: BaseException) -> CaseResult:
    """Of a case that an exception of gradverify's own ended."""
    return of_fault(without_running(case, "error", ""), fault_of(error, "the check"))


def encoded(case: Case, result: CaseResult) -> Json:
    """A result as plain data. What cannot be encoded, or read again, is a fault of ours that costs this check only."""
    try:
        data = to_json(result)
        from_json(CaseResult, data)
        return data
    except Exception as error:
        return to_json(faulty(case, error))


def decoded(case: Case, data: Json) -> CaseResult:
    """The inverse of `encoded`. What is no result of this case was written by what ran in its process."""
    try:
        result = from_json(CaseResult, data)
    except Exception:
        return _garbled(case, "no result")
    if (result.id, result.spec, result.seed) != (case.id, case.spec, case.settings.seed):
        return _garbled(case, f"the result of another check, {legible(result.id)}")
    return result


def _garbled(case: Case, what: str) -> CaseResult:
    finding = Finding("GV004", f"what the process of this check sent back is {what}", "crashed", hint=GARBLED)
    return replace(without_running(case, "error", finding.message), findings=(finding,))
