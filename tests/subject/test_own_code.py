"""What gradverify's own code raises inside a call of the user's code is a fault of gradverify,
whatever catches on the way; what the user's code and torch's operations raise there is theirs.

Every mode of the package is found by looking for it, and a fault is planted in each during a real
check.
"""

from __future__ import annotations

import importlib
import json
import pkgutil
from io import StringIO

import pytest
import torch
from own_fault import raising
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import gradverify
from gradverify.cli.boundary import run
from gradverify.cli.output import Output
from gradverify.model.fault import ToolError, fault_of
from gradverify.subject.failure import UserCodeError, blamed, is_users
from gradverify.subject.own_code import DispatchMode, FunctionMode, OwnMode, own_code, wrapped

OP = """
import torch
from torch.autograd import Function

class Square(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x
    @staticmethod
    def backward(ctx, g):
        return 2 * ctx.saved_tensors[0] * g

class Reads(Square):
    @staticmethod
    def forward(ctx, x):
        if x.abs().max().item() > 1e6:
            raise ValueError("too large")
        return Square.forward(ctx, x)
    @staticmethod
    def backward(ctx, g):
        x, = ctx.saved_tensors
        return 2 * x * g * torch.where(x.abs() < 0.01, -1.0, 1.0)

class Stops(Square):
    @staticmethod
    def forward(ctx, x, start):
        while start.abs().max() > 1e-7:
            start = start / 2
        return Square.forward(ctx, x) + start
    @staticmethod
    def backward(ctx, g):
        return Square.backward(ctx, g), None

class Squares(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x
    @staticmethod
    def backward(ctx, g):
        x, = ctx.saved_tensors
        return 2 * x * torch.as_strided(g, g.shape, torch.empty(g.shape).stride(), g.storage_offset())

class Single(Square):
    @staticmethod
    def forward(ctx, x):
        assert x.dtype == torch.float32
        return Square.forward(ctx, x)

class Cautious(Square):
    @staticmethod
    def forward(ctx, x):
        try:
            y = x * x
        except:
            y = x.clone()
        ctx.save_for_backward(x)
        return y

class Cancels(Square):
    @staticmethod
    def forward(ctx, x):
        return (Square.forward(ctx, x) + 1000) - 1000

def both(x):
    return Reads.apply(Square.apply(x))
"""
READS = (
    "{name: struck, function: 'op.py:Reads', inputs: {x: {values: [10000, 3, 0.0005, -0.0002]}}}"
)
CHECKS = {
    "Anew": "{name: struck, function: 'op.py:Squares', inputs: {x: {shape: [3, 2]}}}",
    "Perturbed": "{name: struck, function: 'op.py:Cancels', inputs: {x: {shape: [3]}}, dtype: float32}",
    "Rounded": "{name: struck, function: 'op.py:Square', inputs: {x: {shape: [3]}}, dtype: float32, "
    "autocast: bfloat16}",
    "Disguised": "{name: struck, function: 'op.py:Square', inputs: {x: {shape: [3]}}, dtype: bfloat16}",
    "Lifted": "{name: struck, function: 'op.py:Square', inputs: {x: {shape: [3]}}, dtype: bfloat16}",
    "gradverify.subject.iterating:_Counting": "{name: struck, function: 'op.py:Square', inputs: {x: {shape: [3]}}}",
    "Tightened": "{name: struck, function: 'op.py:Stops', inputs: {x: {shape: [3]}, start: {shape: [3]}}}",
    "Shown": "{name: struck, function: 'op.py:Single', inputs: {x: {shape: [3]}}, dtype: float32}",
    "Poisoned": "{name: struck, function: 'op.py:Square', inputs: {x: {shape: [3]}}}",
}
"""A check that each mode is part of."""
WORDS = "gradverify.subject.graph:Graphs"
"""The mode that only finds the line of a wrong backward among several: a fault in it costs that
line."""


NOT_HERE = ("gradverify.__main__", "gradverify.pytest_plugin", "gradverify.running.preload")
"""Modules that define no mode, and of which the last makes of this process one that workers are
forked from."""


class Bug(Exception):  # noqa: N818
    """What gradverify's own code is made to raise."""


def modes():
    """All modes of torch that the package defines."""
    for module in pkgutil.walk_packages(gradverify.__path__, "gradverify."):
        if not module.name.startswith(NOT_HERE):
            importlib.import_module(module.name)
    found, waiting = set(), [TorchDispatchMode, TorchFunctionMode]
    while waiting:
        more = waiting.pop().__subclasses__()
        waiting += more
        found |= {each for each in more if each.__module__.startswith("gradverify.")}
    return {
        each
        for each in found
        if each not in (DispatchMode, FunctionMode) and each.answer is not OwnMode.answer
    }


def key(mode):
    return mode.__name__ if mode.__name__ in CHECKS else f"{mode.__module__}:{mode.__name__}"


@pytest.fixture
def checked(tmp_path, monkeypatch):
    """`checked(check)`: (exit code, the check of the report, stderr)."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CI", raising=False)
    (tmp_path / "op.py").write_text(OP)

    def call(check):
        (tmp_path / "s.yaml").write_text(f"gradverify: 1\nchecks:\n  - {check}\n")
        out = Output(
            ["check", "s.yaml", "--report", "json:r.json", "--no-isolate"], StringIO(), StringIO()
        )
        code = run(out)
        return (
            code,
            json.loads((tmp_path / "r.json").read_text())["checks"][0],
            out.stderr.getvalue(),
        )

    return call


def test_every_mode_of_the_package_is_an_own_mode_and_is_tried_below():
    assert all(issubclass(mode, OwnMode) for mode in modes())
    assert {key(mode) for mode in modes()} == {*CHECKS, WORDS}


@pytest.mark.parametrize("name", CHECKS)
def test_a_fault_in_a_mode_is_gradverifys_own(checked, monkeypatch, name):
    mode = next(mode for mode in modes() if key(mode) == name)
    monkeypatch.setattr(mode, "answer", raising(Bug("planted")))
    code, check, stderr = checked(CHECKS[name])
    assert code == 4 and check["verdict"] == "error"
    assert not {finding["code"] for finding in check["findings"]} & {"GV002", "GV003"}
    assert {fault["what"] for fault in check["faults"]} == {"Bug: planted"}
    assert "Please report it" in stderr and "s.yaml::struck" in stderr


def test_a_fault_in_the_search_for_a_line_costs_no_verdict(checked, monkeypatch):
    from gradverify.subject.graph import Graphs

    monkeypatch.setattr(Graphs, "answer", raising(Bug("planted")))
    _, check, _ = checked(
        "{name: struck, function: 'op.py:both', inputs: {x: {values: [0.0005, -0.03]}}}"
    )
    assert check["verdict"] == "fail" and {fault["what"] for fault in check["faults"]} == {
        "Bug: planted"
    }


def test_a_number_that_is_read_is_no_fault(checked):
    code, check, _ = checked(READS)
    assert code == 1 and [finding["code"] for finding in check["findings"]] == ["GV101"]


def test_a_fault_that_the_users_code_swallows_is_raised_where_the_mode_ends(checked, monkeypatch):
    from gradverify.subject.rounding import Lifted

    monkeypatch.setattr(Lifted, "answer", raising(Bug("planted")))
    code, check, _ = checked(
        "{name: struck, function: 'op.py:Cautious', inputs: {x: {shape: [3]}}, dtype: bfloat16}"
    )
    assert code == 4 and check["faults"]


class Refusing(DispatchMode):
    """Calls what it wraps, and has a fault of its own where `ours`."""

    def __init__(self, ours):
        super().__init__()
        self.ours = ours

    def answer(self, func, args, named):
        return raising(Bug("planted"))() if self.ours else wrapped(func, *args, **named)


@pytest.mark.parametrize(
    "call",
    [
        lambda: torch.ones(2) @ torch.ones(3),
        lambda: torch.linalg.inv(torch.zeros(2, 2)),
        lambda: torch.ones(2, requires_grad=True).sum().reshape(2),
    ],
    ids=["matmul", "inverse", "reshape"],
)
def test_what_an_operation_raises_is_the_users(call):
    with pytest.raises(UserCodeError), blamed("GV002", "forward"), Refusing(False):
        call()
    with pytest.raises(ToolError), blamed("GV002", "forward"), Refusing(True):
        call()


def test_what_a_wrapped_method_of_the_users_raises_is_theirs_and_what_is_raised_around_it_is_not():
    def theirs():
        raise ValueError("theirs")

    @own_code
    def around(call, before):
        before()
        return wrapped(call)

    with pytest.raises(ValueError, match="theirs"):
        around(theirs, lambda: None)
    with pytest.raises(TypeError):
        around(lambda needed: needed, lambda: None)
    with pytest.raises(ToolError) as seen:
        around(lambda: 1, raising(Bug("planted")))
    fault = fault_of(seen.value, "a test")
    assert (fault.what, fault.place) == ("Bug: planted", "struck.py:3") and not is_users(seen.value)
