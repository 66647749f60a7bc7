"""A check that does not end: a failure that it found before stands, anything else does not."""

from __future__ import annotations

from dataclasses import replace

import pytest

import gradverify
from gradverify.model.case import Case, SpecPlace
from gradverify.model.result import Finding
from gradverify.running.lost import encoded, of_lost, without_running
from gradverify.running.supervisor import Died, Lost, Task

HANGS = '''
import time
from torch.autograd import Function

class Hangs(Function):
    """Writes into grad_output, and does not return from forward at other inputs."""
    @staticmethod
    def forward(ctx, x):
        while float(x[0]) != 0.5:
            time.sleep(1)
        ctx.save_for_backward(x)
        return x * x
    @staticmethod
    def backward(ctx, g):
        return g.mul_(2 * ctx.saved_tensors[0])
'''
SPEC = (
    "gradverify: 1\nchecks:\n  - {name: hangs, function: 'ops.py:Hangs', inputs: {x: {values: "
    "[0.5, -1.2, 2.0]}}, timeout: 5}\n"
)


def test_a_failure_that_was_found_before_the_time_limit_stands(tmp_path, monkeypatch):
    (tmp_path / "ops.py").write_text(HANGS)
    (tmp_path / "s.yaml").write_text(SPEC)
    monkeypatch.chdir(tmp_path)
    report = gradverify.run("s.yaml")
    (result,) = report.checks
    assert (result.verdict, [finding.code for finding in result.findings]) == (
        "fail",
        ["GV202", "GV005"],
    )
    assert report.exit_code == 1


@pytest.mark.parametrize("verdict", ["fail", "pass", "undecided"])
def test_nothing_but_a_failure_stands(verdict):
    case = Case("s.yaml::a", "a", "a", SpecPlace("s.yaml", 1), "square")
    found = encoded(
        case, replace(without_running(case, verdict, ""), findings=(Finding("GV101", "wrong"),))
    )
    result = of_lost(case, Lost(Task(0, b"", (1.0, 1.0)), Died("limit", 300.0), False), found)
    codes = [finding.code for finding in result.findings]
    assert (result.verdict, codes) == (
        ("fail", ["GV101", "GV005"]) if verdict == "fail" else ("error", ["GV005"])
    )
