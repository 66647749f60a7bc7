from __future__ import annotations

import pytest
import torch
from live import check, codes, message, randn
from torch import nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable

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


# ---- outputs: an in-place activation, a dropout or a residual added in place writes into what forward returned
def exponential(keep, kept=lambda ctx: ctx.y):
    """exp(x) that keeps its output somewhere."""

    class Exponential(Function):
        @staticmethod
        def forward(ctx, x):
            y = x.exp()
            keep(ctx, y)
            return y

        @staticmethod
        @once_differentiable
        def backward(ctx, g):
            return g * kept(ctx)

    return Exponential


def on_ctx(value):
    return lambda ctx, y: setattr(ctx, "y", value(y))


def by_saving(value):
    return lambda ctx, y: ctx.save_for_backward(value(y))


ALIASES = {
    "detached on ctx": exponential(on_ctx(torch.Tensor.detach)),
    "data on ctx": exponential(on_ctx(lambda y: y.data)),
    "a view of it": exponential(on_ctx(lambda y: y.detach().view(-1)), lambda ctx: ctx.y.view(2, 3)),
    "in a list": exponential(on_ctx(lambda y: [y.detach()]), lambda ctx: ctx.y[0]),
    "data saved": exponential(by_saving(lambda y: y.data), lambda ctx: ctx.saved_tensors[0]),
}
SPARED = {
    "saved": exponential(by_saving(lambda y: y), lambda ctx: ctx.saved_tensors[0]),
    "detached and saved": exponential(by_saving(torch.Tensor.detach), lambda ctx: ctx.saved_tensors[0]),     # shares the version
    "a copy": exponential(on_ctx(torch.Tensor.clone)),
    "not read": exponential(lambda ctx, y: (ctx.save_for_backward(y), setattr(ctx, "y", y.detach())), lambda ctx: ctx.saved_tensors[0]),
}


@pytest.mark.parametrize("name", ALIASES)
def test_an_alias_of_the_output_without_a_version_is_a_warning(name):
    """Silently wrong: where torch would raise for a saved output, `y.mul_(2)` doubles this gradient."""
    function = ALIASES[name]
    x = X.clone().requires_grad_()
    y = function.apply(x)
    right = y.detach().clone()
    (y.mul_(2) / 2).sum().backward()
    assert torch.allclose(x.grad, 2 * right)
    result = check(function, X)
    assert [(found.code, found.output, found.severity) for found in result.findings] == [("GV215", 0, "warning")]
    assert "when y0 is written in place after forward, as an in-place activation does, backward does not raise" in message(result, "GV215")


@pytest.mark.parametrize("name", SPARED)
def test_an_output_that_is_saved_or_copied_is_left_alone(name):
    assert codes(check(SPARED[name], X)) == set()


def test_an_output_that_is_its_own_attribute_is_told_once():
    circle = exponential(on_ctx(lambda y: y))
    assert codes(check(circle, X)) == {"GV214"}
    assert codes(check(circle, X, ignore=("GV214",))) == {"GV215"}


@pytest.mark.parametrize("function", [torch.exp, torch.softmax, torch.relu, lambda x: x.view(-1), lambda x: x.expand(2, 2, 3), lambda x: x])
def test_torchs_own_outputs_are_left_alone(function):
    arguments = (X, -1) if function is torch.softmax else (X,)
    assert codes(check(function, *arguments)) == set()
