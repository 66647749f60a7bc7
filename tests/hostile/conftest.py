import json
from io import StringIO

import pytest

from gradverify.cli.boundary import run
from gradverify.cli.output import Output

PRELUDE = """import os, random, sys
import numpy as np
import torch
from torch.autograd import Function

class Square(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x
    @staticmethod
    def backward(ctx, grad_output):
        x, = ctx.saved_tensors
        return 2 * x * grad_output
"""
AFTER = "  - {name: after, function: 'op.py:Square', inputs: {x: {shape: [2]}}}\n"


@pytest.fixture
def verdict(tmp_path, monkeypatch):
    """`verdict(code, check)` runs one check of `op.py:f` and a right one after it: (exit code, the first check's part of the report)."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CI", raising=False)

    def call(code, check="inputs: {x: {shape: [4]}}", *options):
        (tmp_path / "op.py").write_text(PRELUDE + code)
        (tmp_path / "s.yaml").write_text("gradverify: 1\nchecks:\n  - {name: first, function: 'op.py:f', " + check + "}\n" + AFTER)
        out = Output(["check", "s.yaml", "--report", "json:r.json", *options], StringIO(), StringIO())
        exit_code = run(out)
        assert out.stderr.getvalue() == "" and "Traceback" not in out.stdout.getvalue()
        first, after = json.loads((tmp_path / "r.json").read_text())["checks"]
        assert after["verdict"] == "pass" and exit_code in (0, 1, 3), (after["reason"], out.stdout.getvalue())
        return exit_code, first

    return call


def codes(check):
    return [finding["code"] for finding in check["findings"]]
