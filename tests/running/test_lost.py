"""What is said of a check that did not end: whether its own code ran, or the comparison of numbers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from live import case

import gradverify
from gradverify.model.result import Finding
from gradverify.running.lost import encoded, of_lost, without_running
from gradverify.running.process import Died
from gradverify.running.supervisor import Lost, Task

ROOT = Path(gradverify.__file__).parent
OURS = f'  File "{ROOT}/numerics/estimate/samples.py", line 83 in largest'
CALLS = f'  File "{ROOT}/subject/subject.py", line 248 in _call'
USERS = '  File "/home/of/op.py", line 3 in backward'


@pytest.mark.parametrize(("lines", "comparing"), [
    ((OURS, CALLS), True), ((OURS, USERS), True), ((USERS, CALLS, OURS), False), ((CALLS, OURS), False), ((), False)],
    ids=["in numerics", "in numerics, below a line of the user's", "in the user's code", "in a call of native code", "no stack"])
def test_a_check_that_spent_its_time_comparing_is_told_to_compare_less(lines, comparing):
    stack = "\n".join(["Current thread 0x00007f (most recent call first):", *lines]) if lines else ""
    finding, = of_lost(case(), Lost(Task("a", b"", (1.0, 1.0)), Died("limit", 300.0, stack), False)).findings
    assert ("`mode: rows`" in (finding.hint or "")) == comparing
    assert "gives it longer" in (finding.hint or "")


@pytest.mark.parametrize("verdict", ["fail", "pass", "undecided"])
def test_a_failure_that_was_sent_before_the_end_stands(verdict):
    """Anything else was not known yet."""
    found = replace(without_running(case(), verdict, ""), findings=(Finding("GV101", "wrong"),))
    partial = encoded(case(), found)
    result = of_lost(case(), Lost(Task("a", b"", (1.0, 1.0)), Died("limit", 300.0), False, partial))
    assert (result.verdict, result.findings[0].code) == (("fail", "GV101") if verdict == "fail" else ("error", "GV005"))
    assert result.reason == "the check did not end within 300 s"
