"""What measures gradients is no fault of ours where a module replaces it: the check is undecided; what the function raises by itself stands."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

PRELUDE = """import torch
from torch.autograd import Function

class Square(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x
    @staticmethod
    def backward(ctx, g):
        x, = ctx.saved_tensors
        return 2 * x * g

def raises(x):
    raise ValueError("mine")
"""
REPLACE = {
    "none": "torch.autograd.grad = lambda *a, **k: None",
    "numbers": "torch.autograd.grad = lambda *a, **k: [1.0] * 9",
    "nothing": "torch.autograd.grad = lambda *a, **k: ()",
    "removed": "del torch.autograd.grad",
    "product": "torch.Tensor.__mul__ = lambda a, b: None",
}


def ran(folder, *options):
    """Exit code, checks by name, what was said on stderr."""
    command = [sys.executable, "-m", "gradverify", "check", "s.yaml", "--undecided", "warn", "--report", "json:r.json", *options]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=240, check=False)
    return done.returncode, {check["name"]: check for check in json.loads((folder / "r.json").read_text())["checks"]}, done.stderr


@pytest.fixture
def spec(tmp_path):
    """`spec((name, module text, attribute), …)`: the folder of a spec with a check for each."""

    def written(*checks):
        lines = ["gradverify: 1", "checks:"]
        for name, text, attribute in checks:
            (tmp_path / f"m_{name}.py").write_text(f"{PRELUDE}\n{text}\n")
            lines.append(f"  - {{name: {name}, function: 'm_{name}:{attribute}', inputs: {{x: {{shape: [2]}}}}}}")
        (tmp_path / "s.yaml").write_text("\n".join(lines) + "\n")
        return tmp_path

    return written


def test_it_is_undecided_and_no_fault(spec):
    code, checks, said = ran(spec(*((name, text, "Square") for name, text in REPLACE.items()), ("right", "", "Square")))
    assert (code, "fault" in said) == (0, False)
    assert {name: check["verdict"] for name, check in checks.items()} == {**dict.fromkeys(REPLACE, "undecided"), "right": "pass"}
    assert {checks[name]["findings"][0]["code"] for name in REPLACE} == {"GV007"}
    assert all("the check replaced torch." in checks[name]["reason"] for name in ("none", "product"))


def test_what_the_function_raises_itself_is_told_all_the_same(spec):
    code, checks, _ = ran(spec(("own", REPLACE["none"], "raises")))
    assert (code, checks["own"]["findings"][0]["code"]) == (3, "GV002") and "ValueError: mine" in checks["own"]["reason"]


def test_in_one_process_later_checks_are_undecided_too(spec):
    code, checks, said = ran(spec(("before", "", "Square"), ("none", REPLACE["none"], "Square"), ("later", "", "Square")), "--no-isolate")
    assert (code, "fault" in said) == (0, False)
    assert [check["verdict"] for check in checks.values()] == ["pass", "undecided", "undecided"]
    assert "the check replaced torch.autograd.grad" in checks["none"]["reason"]
    assert "torch.autograd.grad was replaced before this check, in the same process" in checks["later"]["reason"]
