"""Reversible layers give the memory of their input back in forward and rebuild it in backward: who
is right?

The gradient is: every call of ours therefore gets a tensor of its own, which nothing of ours reads
in between (that would leave the memory). The caller's tensor is unusable meanwhile, which is a
warning, and lost where backward does not rebuild it, which is an error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from live import check, codes, randn
from torch import Tensor
from torch.autograd import Function

FREES: dict[str, Callable[[Tensor], Any]] = {
    "storage": lambda x: x.storage().resize_(0),
    "untyped storage": lambda x: x.untyped_storage().resize_(0),
    "set_": lambda x: x.set_(torch.empty(0, dtype=x.dtype)),
}
X = randn(3, 4)


def coupling(
    free: Callable[[Tensor], Any],
    factor: float = 1.0,
    *,
    rebuilds: bool = True,
    frees_output: bool = False,
) -> type[Function]:
    """y1 = x1 + tanh(x2), y2 = x2 + sin(y1); `factor` times the gradient through tanh."""

    class Coupling(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            x1, x2 = x.chunk(2, 1)
            y1 = x1 + x2.tanh()
            y = torch.cat([y1, x2 + y1.sin()], 1)
            ctx.x, ctx.y = x, y.detach()
            free(x)
            return y

        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(ctx: Any, g: Tensor) -> Tensor:
            x, y = ctx.x, ctx.y
            y1, y2 = y.chunk(2, 1)
            x2 = y2 - y1.sin()
            if rebuilds:
                whole = torch.cat([y1 - x2.tanh(), x2], 1)
                if x.shape == whole.shape:
                    x.untyped_storage().resize_(whole.numel() * whole.element_size())
                    x.copy_(whole)
                else:
                    x.set_(whole)
            g1, g2 = g.chunk(2, 1)
            g1 = g1 + g2 * y1.cos()
            g = torch.cat([g1, g2 + factor * g1 * (1 - x2.tanh() ** 2)], 1)
            if frees_output:
                y.untyped_storage().resize_(0)
            return g

    return Coupling


def told(result) -> list[tuple[str, str]]:
    # ctx.x is kept, a graph serves one backward: other matters, and true
    beside = ("GV214", "GV227")
    return [
        (finding.code, finding.severity)
        for finding in result.findings
        if finding.code not in beside
    ]


@pytest.mark.parametrize("free", FREES.values(), ids=FREES)
def test_a_right_one_passes_at_both_points_with_a_warning(free):
    result = check(coupling(free), X)
    assert (result.verdict, told(result)) == ("pass", [("GV203", "warning")])
    assert {run.code: run.status for run in result.rules}["GV113"] == "ran"


@pytest.mark.parametrize("free", FREES.values(), ids=FREES)
def test_a_wrong_one_is_found(free):
    result = check(coupling(free, 2.0), X)
    assert (result.verdict, "GV101" in codes(result)) == ("fail", True)


@pytest.mark.parametrize("free", FREES.values(), ids=FREES)
def test_an_input_that_is_not_rebuilt_is_lost(free):
    result = check(coupling(free, rebuilds=False), X)
    assert ("GV203", "error") in told(result)


@pytest.mark.parametrize(("factor", "verdict"), [(1.0, "pass"), (1.01, "fail")])
def test_a_chain_frees_only_what_lies_inside_and_needs_no_warning(factor, verdict):
    first = coupling(FREES["storage"])
    second = coupling(FREES["storage"], factor, frees_output=True)
    result = check(lambda x: second.apply(first.apply(x * 1)).exp(), X)
    assert result.verdict == verdict
    assert told(result) == ([] if verdict == "pass" else [("GV101", "error")])


def test_one_that_frees_its_output_in_backward_gets_a_graph_for_each():
    result = check(coupling(FREES["storage"], frees_output=True), X)
    assert (result.verdict, told(result)) == ("pass", [("GV203", "warning")])
