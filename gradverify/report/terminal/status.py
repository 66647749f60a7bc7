"""The word and the colour of a check's verdict, and the expectation that it did not meet."""

from __future__ import annotations

from gradverify.model.result import CaseResult

WORD_WIDTH = len("UNDECIDED")

STYLES = {
    "PASS": "green",
    "XFAIL": "green",
    "FAIL": "bold red",
    "XPASS": "bold red",
    "ERROR": "bold red",
    "UNDECIDED": "yellow",
    "SKIP": "yellow",
    "REQUIRED": "bold red",
    "NOT RUN": "dim",
    "KNOWN": "yellow",
}


def word(check: CaseResult) -> str:
    """Return the word of a check: PASS, FAIL, UNDECIDED, ERROR, SKIP, NOT RUN; XFAIL for an
    expected failure, XPASS if that did not occur; KNOWN if a baseline lists every error."""
    if check.baselined:
        return "KNOWN"
    if check.verdict == "pass" and check.ok is False:
        return "XPASS"
    if check.verdict in ("fail", "error", "undecided") and check.ok and check.expect != "pass":
        return "XFAIL"
    return "NOT RUN" if check.verdict == "not_run" else check.verdict.upper()


def outcome(check: CaseResult) -> str:
    """Return the word for the counts of the summary: REQUIRED for a skip that is not allowed, else
    as `word`."""
    return "REQUIRED" if check.verdict == "skip" and check.ok is False else word(check)


def style(check: CaseResult) -> str:
    return "bold red" if is_red(check) else STYLES[word(check)]


def is_red(check: CaseResult) -> bool:
    """Return whether this check makes the run fail. A check that was not run is not judged."""
    return check.ok is False and check.verdict != "not_run"


def has_details(check: CaseResult) -> bool:
    """Return whether there is more to show of a check than its line."""
    return (
        bool(check.findings or check.faults)
        or check.verdict in ("fail", "error", "undecided")
        or is_red(check)
    )


def is_open(check: CaseResult) -> bool:
    """Return whether a check is neither red nor judged: skipped, not run, undecided, or known."""
    return not is_red(check) and (
        not check.was_run or check.baselined or word(check) == "UNDECIDED"
    )


def broken_expectation(check: CaseResult) -> str | None:
    """Return a sentence on `expect` and the different result; None if a pass was expected, or the
    result is as expected."""
    if check.expect == "pass" or check.ok is not False or not check.was_run:
        return None
    found = list(dict.fromkeys(finding.code for finding in check.findings))
    if check.expect == "fail":
        if found:
            return f"expected to fail, but the verdict is {check.verdict}"
        return "expected to fail, but passed"
    wanted = ", ".join(check.expect)
    if found:
        return f"expected {wanted}; found {', '.join(found)}"
    return f"expected {wanted}, but passed"


def left_open(check: CaseResult) -> str | None:
    """Return which expected failures were not judged, as their rules were not to run; None if all
    were judged."""
    codes = check.not_judged
    which = "whose rules were" if len(codes) > 1 else "whose rule was"
    if codes and check.was_run:
        return f"expected {', '.join(codes)}, {which} not to run: not judged"
    return None


def excuse(check: CaseResult) -> str:
    """Return why a check is neither red nor passed: its reason, or that its errors are known."""
    return "a baseline has every error of this check" if check.baselined else check.reason or ""
