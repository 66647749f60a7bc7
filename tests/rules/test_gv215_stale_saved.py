from __future__ import annotations

import pytest
import torch
from live import check, codes, message, randn
from torch import nn
from torch.autograd import Function

from rules.functions import Right, RightProduct, X, Y
from rules.tricky import Flat, InPlace, Used


def keeping(keep, read):
    """x · y that keeps x somewhere."""

    class Keeps(Function):
        @staticmethod
        def forward(ctx, x, y):
            keep(ctx, x, y)
            return x * y

        @staticmethod
        def backward(ctx, grad_output):
            x, y = read(ctx)
            return grad_output * y, grad_output * x

    return Keeps


def as_attributes(ctx, x, y):
    ctx.x, ctx.y = x, y


def one_as_attribute(ctx, x, y):
    ctx.x = x
    ctx.save_for_backward(y)


STALE = [
    (as_attributes, lambda ctx: (ctx.x, ctx.y), ["x", "y"]),
    (one_as_attribute, lambda ctx: (ctx.x, *ctx.saved_tensors), ["x"]),
    (lambda ctx, x, y: ctx.save_for_backward(x, y.data), lambda ctx: ctx.saved_tensors, ["y"]),
]


@pytest.mark.parametrize(("keep", "read", "names"), STALE)
def test_each_input_without_a_version_is_a_warning(keep, read, names):
    result = check(keeping(keep, read), X, Y)
    assert [(found.input, found.severity) for found in result.findings if found.code == "GV215"] == [(name, "warning") for name in names]
    assert result.verdict == "pass"


def test_the_numbers_are_those_of_the_gradient_then_and_now():
    class Attribute(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.x = x
            return x * x

        @staticmethod
        def backward(ctx, grad_output):
            return 2 * grad_output * ctx.x

    said = message(check(Attribute, torch.tensor(3.0, dtype=torch.float64)), "GV215")
    assert "backward does not raise but gives another gradient" in said
    seen, expected = (float(word.rstrip(".")) for word in (said.split("gradient: ")[1].split()[0], said.split()[-1]))
    assert seen / expected == pytest.approx(1.01, rel=1e-4)        # the input is stretched by one in a hundred


@pytest.mark.parametrize(("function", "values"), [(Right, (X,)), (RightProduct, (X, Y)), (Flat, (X,)), (Used, (X,)), (torch.sin, (X,))])
def test_saved_tensors_raise_and_what_reads_nothing_is_unmoved(function, values):
    assert "GV215" not in codes(check(function, *values))


def test_a_copy_is_kept_for_good():
    copies = keeping(lambda ctx, x, y: ctx.save_for_backward(x.clone(), y.clone()), lambda ctx: ctx.saved_tensors)
    assert codes(check(copies, X, Y, second_order=False)) == set()


def test_parameters_of_a_module_are_inputs_that_an_optimizer_writes():
    faulty = keeping(as_attributes, lambda ctx: (ctx.x, ctx.y))

    class Scale(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(2, 3) * 2)

        def forward(self, x):
            return faulty.apply(x.sin(), self.weight)

    assert [found.input for found in check(Scale, X).findings if found.code == "GV215"] == ["weight"]


def test_an_operator_of_torch_that_is_stale_is_caught():
    """torch 2.13: kron reads its inputs through reshaped copies of no version."""
    assert {found.input for found in check(torch.kron, randn(2, 2), randn(2, 3, seed=1)).findings if found.code == "GV215"} == {"0", "1"}


def test_the_graph_is_as_it_was_for_the_next_input():
    """Only y is stale: had x or its version not been put back, backward would raise for y too."""
    faulty = keeping(lambda ctx, x, y: (ctx.save_for_backward(x), setattr(ctx, "y", y)), lambda ctx: (*ctx.saved_tensors, ctx.y))
    assert [found.input for found in check(faulty, X, Y).findings if found.code == "GV215"] == ["y"]


def test_what_writes_into_its_inputs_is_given_clones_and_not_judged():
    run, = (run for run in check(InPlace, X).rules if run.code == "GV215")
    assert run.reason == "the function writes into its inputs, so it is given clones"
