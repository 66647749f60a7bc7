"""What is said of forward stands at forward, a write into an argument at its line where that is
certain; what is said of backward at backward."""

from __future__ import annotations

from pathlib import Path

import pytest
from live import check, randn
from torch.autograd import Function


class Square(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x.clone())
        x.data.add_(1)
        return x * x

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return 2 * (x + 1) * g


class Sets(Square):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x.clone())
        x.detach()[:] = x.detach() + 1
        return x * x


class Augments(Square):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x.clone())
        x += 1
        return x.clone() * x


class ByContext(Function):
    @staticmethod
    def forward(x):
        y = x * x
        x.data.add_(1)
        return y

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])

    @staticmethod
    def backward(ctx, g):
        return 2 * (ctx.saved_tensors[0] - 1) * g


class Twice(Square):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x.clone())
        x.data.add_(0.5)
        x.data.add_(0.5)
        return x * x


class Rebinds(Square):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x.clone())
        elsewhere(x)
        x = x.clone()
        x.add_(0)
        return x * x


def elsewhere(x):
    x.data.add_(1)


def inside(x):
    return Square.apply(x * 1)


def wrapped(x):
    return Square.apply(x) + 0


class InBackward(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        gx = 2 * x * g
        x.data.add_(1)
        return gx


def of(result, code="GV203"):
    return next(finding for finding in result.findings if finding.code == code)


@pytest.mark.parametrize(
    ("function", "line"),
    [
        (Square, "x.data.add_(1)"),
        (Sets, "x.detach()[:] = x.detach() + 1"),
        (Augments, "x += 1"),
        (ByContext, "x.data.add_(1)"),
        (inside, "x.data.add_(1)"),
        (wrapped, "def wrapped(x):"),
        (Twice, "def forward(ctx, x):"),
        (Rebinds, "def forward(ctx, x):"),
        (InBackward, "def backward(ctx, g):"),
    ],
)
def test_a_write_stands_where_it_is_made(function, line):
    found = of(check(function, randn(3)))
    assert found.source == line and found.file.endswith("test_at_forward.py")
    assert Path(__file__).read_text().splitlines()[found.line - 1].strip() == line
