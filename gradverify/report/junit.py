"""JUnit XML: a suite for each spec file, a case for each check; read by Jenkins, GitLab, GitHub apps and most other build servers."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Sequence
from itertools import groupby
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from gradverify.model.report import Report
from gradverify.model.result import CaseResult
from gradverify.report.names import in_repository, one_line, readable, title_of
from gradverify.report.numbers import number
from gradverify.report.plain import panel_text
from gradverify.report.terminal import status
from gradverify.report.terminal.line import judged_comparisons

ERRORS = {"GV004": "crash", "GV005": "timeout", "GV002": "exception", "GV003": "exception", "GV001": "exception"}
"""The kinds of error; any other finding is named by its own code."""

WRONG = ("FAIL", "XPASS")
"""What a test framework calls a failure; everything else that is not as expected could not be judged: an error."""


def render(report: Report) -> str:
    """What is expected to fail and does is a passed case; what is undecided and allowed to be, or known, a skipped one."""
    report = readable(report)
    counts = _counts(report.checks, report)
    root = Element("testsuites", {"name": "gradverify", **counts, "time": f"{report.duration_s:.3f}", "timestamp": report.started_at})
    for path, checks in groupby(sorted(report.checks, key=lambda check: check.spec.path), key=lambda check: check.spec.path):
        root.append(_suite(path, tuple(checks), report))
    indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + tostring(root, encoding="unicode") + "\n"


def _suite(path: str, checks: Sequence[CaseResult], report: Report) -> Element:
    seconds = sum(check.seconds for check in checks)
    suite = Element("testsuite", {"name": _file(path, report), **_counts(checks, report), "time": f"{seconds:.3f}", "timestamp": report.started_at})
    for check in checks:
        suite.append(_case(check, report))
    return suite


def _file(path: str, report: Report) -> str:
    return in_repository(path, report.environment) or path


def _case(check: CaseResult, report: Report) -> Element:
    file = _file(check.spec.path, report)
    case = Element("testcase", name=check.name, classname=posixpath.splitext(file)[0].replace("/", "."), time=f"{check.seconds:.3f}",
                   file=file, line=str(check.spec.line))
    properties = SubElement(case, "properties")
    for name, value in _properties(check):
        SubElement(properties, "property", name=name, value=one_line(value))
    outcome = _outcome(check, report)
    if outcome == "skipped":
        SubElement(case, "skipped", message=one_line(_why(check)))
    elif outcome != "passed":
        SubElement(case, outcome, message=one_line(_message(check)), type=_type(check)).text = "\n" + panel_text(check, report.argv)
    if check.captured:
        SubElement(case, "system-out").text = check.captured
    return case


def _why(check: CaseResult) -> str:
    """Why a case is neither passed nor failed."""
    why, word = status.excuse(check), status.word(check).lower()
    return why if check.verdict == "skip" else f"{word}: {why}" if why else word


def _outcome(check: CaseResult, report: Report) -> str:
    if check.verdict == "not_run" and report.interrupted:
        return "error"
    if status.is_red(check):
        return "failure" if status.word(check) in WRONG else "error"
    return "skipped" if check.verdict in ("skip", "not_run") or status.word(check) in ("UNDECIDED", "KNOWN") else "passed"


def _counts(checks: Sequence[CaseResult], report: Report) -> dict[str, str]:
    outcomes = [_outcome(check, report) for check in checks]
    return {"tests": str(len(outcomes)), "failures": str(outcomes.count("failure")), "errors": str(outcomes.count("error")),
            "skipped": str(outcomes.count("skipped"))}


def _message(check: CaseResult) -> str:
    """The first sentence that is told."""
    worst = next((finding for finding in check.findings if finding.severity == "error"), None)
    return status.broken_expectation(check) or (f"{title_of(worst)}: {worst.message}" if worst else check.reason) or check.verdict


def _type(check: CaseResult) -> str:
    codes = [finding.code for finding in check.findings if finding.severity == "error"]
    if status.word(check) in WRONG:
        return "mismatch" if check.verdict == "fail" else "unexpected-pass"
    return ERRORS.get(codes[0], codes[0]) if codes else check.verdict


def _properties(check: CaseResult) -> Iterator[tuple[str, str]]:
    yield from {"verdict": status.word(check).lower(), "function": check.function.target, "device": check.device, "dtype": check.dtype,
                "seed": str(check.seed)}.items()
    yield from ((name, str(check.settings[name])) for name in ("eps", "atol", "rtol") if check.settings.get(name) is not None)
    shown = judged_comparisons(check)
    if shown:
        yield "elements", str(sum(comparison.elements for comparison in shown))
        yield "max_abs_err", number(max(comparison.max_abs_error for comparison in shown))
        yield "resolution", number(max(comparison.resolution for comparison in shown))
