"""JUnit XML: a suite for each spec file, a case for each check; read by Jenkins, GitLab, GitHub
apps and most other build servers."""

from __future__ import annotations

from gradverify.model.report import Report
from gradverify.model.result import CaseResult
from gradverify.report.names import readable, title_of
from gradverify.report.pages import template
from gradverify.report.terminal import status

ERRORS = {
    "GV004": "crash",
    "GV005": "timeout",
    "GV002": "exception",
    "GV003": "exception",
    "GV001": "exception",
}
"""Code → the type of the error; any other finding has its code as type."""

WRONG = ("FAIL", "XPASS")
"""The words of checks that are a failure in JUnit; any other check that is not as expected could
not be judged, and is an error."""


def render(report: Report) -> str:
    """Return the XML. An expected failure is a passed case; a check that is undecided and allowed
    to be, or known, is a skipped one."""
    report = readable(report)
    cases = [(check, _outcome(check, report)) for check in report.checks]
    return template("junit.xml.j2").render(report=report, cases=cases, message=_message, kind=_type)


def _outcome(check: CaseResult, report: Report) -> str:
    if check.verdict == "not_run" and report.interrupted:
        return "error"
    if status.is_red(check):
        return "failure" if status.word(check) in WRONG else "error"
    return "skipped" if status.is_open(check) else "passed"


def _message(check: CaseResult) -> str:
    """Return the first sentence about a check."""
    worst = next(iter(check.errors), None)
    return (
        status.broken_expectation(check)
        or (f"{title_of(worst)}: {worst.message}" if worst else check.reason)
        or check.verdict
    )


def _type(check: CaseResult) -> str:
    if status.word(check) in WRONG:
        return "mismatch" if check.verdict == "fail" else "unexpected-pass"
    code = next((finding.code for finding in check.errors), check.verdict)
    return ERRORS.get(code, code)
