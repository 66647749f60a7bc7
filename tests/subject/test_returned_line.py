"""The line of backward that makes one input's gradient: shown where the source leaves no doubt, and
not otherwise."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest
import torch
from live import check, randn, subject
from torch.autograd import Function

from gradverify.subject.lines import returned_line


class Base(Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        return x * y


class InTheReturn(Base):
    @staticmethod
    def backward(ctx, g):
        x, y = ctx.saved_tensors
        return g * y, -g * x


class OverLines(Base):
    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, g):
        x, y = ctx.saved_tensors
        return (
            g * y,
            -g * x,
        )


class Named(Base):
    @staticmethod
    def backward(ctx, g):
        x, y = ctx.saved_tensors
        grad_y = -g * x
        grad_x = g * y
        return grad_x, grad_y


class Helped(Base):
    @staticmethod
    def backward(ctx, g):
        def times(a):
            return a * g

        x, y = ctx.saved_tensors
        return times(y), -times(x)


class TwoReturns(Base):
    @staticmethod
    def backward(ctx, g):
        x, y = ctx.saved_tensors
        if x.dim() == 1:
            return g * y, -g * x
        return g * y, -g * x


class BoundTwice(Base):
    @staticmethod
    def backward(ctx, g):
        x, y = ctx.saved_tensors
        grad_x, grad_y = g * y, g * x
        grad_y = -grad_y
        return grad_x, grad_y


class InABranch(Base):
    @staticmethod
    def backward(ctx, g):
        x, y = ctx.saved_tensors
        grad_y = None
        if ctx.needs_input_grad[1]:
            grad_y = -g * x
        return g * y, grad_y


class InPlace(Base):
    @staticmethod
    def backward(ctx, g):
        x, y = ctx.saved_tensors
        grad_y = g * x
        grad_y.neg_()
        return g * y, grad_y


class Starred(Base):
    @staticmethod
    def backward(ctx, g):
        x, y = ctx.saved_tensors
        both = (g * y, -g * x)
        return (*both,)


SHOWN = {
    InTheReturn: "return g * y, -g * x",
    OverLines: "-g * x,",
    Named: "grad_y = -g * x",
    Helped: "return times(y), -times(x)",
    InABranch: "grad_y = -g * x",
}
DOUBTFUL = [TwoReturns, BoundTwice, InPlace, Starred]


@pytest.mark.parametrize("op", SHOWN, ids=lambda op: op.__name__)
def test_the_line_that_makes_the_gradient_is_shown_with_the_finding(op):
    (found,) = check(op, randn(3), randn(3, seed=1), select=("GV101",)).findings
    assert (found.input, found.source) == ("y", SHOWN[op])
    assert (
        Path(__file__).read_text(encoding="utf-8").splitlines()[found.line - 1].strip()
        == found.source
    )


@pytest.mark.parametrize("op", DOUBTFUL, ids=lambda op: op.__name__)
def test_where_the_source_leaves_a_doubt_the_first_line_of_backward_is_shown(op):
    (found,) = check(op, randn(3), randn(3, seed=1), select=("GV101",)).findings
    assert (found.input, found.source) == ("y", "def backward(ctx, g):")
    assert returned_line(subject(op, randn(3), randn(3, seed=1)), "y") is None


def test_an_expression_of_a_thousand_terms_has_its_line(tmp_path, monkeypatch):
    """Generated code: its tree is as deep as it has terms."""
    terms = " + ".join(["g * y"] * 1200)
    (tmp_path / "long_sum.py").write_text(
        "from torch.autograd import Function\n\n\nclass LongSum(Function):\n    @staticmethod\n    "
        "def forward(ctx, x, y):\n"
        "        ctx.save_for_backward(x, y)\n        return x * y\n\n    @staticmethod\n    def "
        "backward(ctx, g):\n"
        "        x, y = ctx.saved_tensors\n"
        f"        return {terms}, g * x\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    made = returned_line(
        subject(importlib.import_module("long_sum").LongSum, randn(3), randn(3, seed=1)), "x"
    )
    assert made.line == 13 and made.source.startswith("return g * y + g * y")
