"""A wrong gradient of a callable, module or operator is shown at the backward of the one Function
that it comes through, and nowhere in doubt."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path

import pytest
import torch
import torch.utils.checkpoint
from live import check, randn
from torch import Tensor
from torch.autograd import Function

LINES = Path(__file__).read_text(encoding="utf-8").splitlines()


class Scale(Function):
    @staticmethod
    def forward(ctx, factor, x, gamma):
        ctx.save_for_backward(x, gamma)
        return factor * x * gamma

    @staticmethod
    def backward(ctx, g):
        x, gamma = ctx.saved_tensors
        grad_x = grad_gamma = None
        if ctx.needs_input_grad[1]:
            grad_x = 2 * g * gamma
        if ctx.needs_input_grad[2]:
            grad_gamma = (g * x).sum(0)  # lacks the factor
        return None, grad_x, grad_gamma


class Half(Function):
    @staticmethod
    def forward(ctx, x):
        return x / 2

    @staticmethod
    def backward(ctx, g):
        return g / 2


class LayerScale(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gamma = torch.nn.Parameter(randn(3, seed=1))

    def forward(self, x):
        return Scale.apply(2.0, x, self.gamma)


@torch.library.custom_op("gradverify_inner_backward::double", mutates_args=())
def double(x: Tensor) -> Tensor:
    return 2 * x


@double.register_autograd
def double_backward(ctx, g):
    return 3 * g


def shown(function, *values, code="GV101", **changes):
    (found,) = check(function, *values, select=(code,), **changes).findings
    assert found.line is None or LINES[found.line - 1].strip() == found.source
    return found.source


def test_of_a_parameter_it_is_the_line_of_the_function_and_not_the_class_of_the_module():
    assert (
        shown(LayerScale, randn(2, 3), init={}, code="GV111")
        == "grad_gamma = (g * x).sum(0)  # lacks the factor"
    )
    assert shown(
        lambda x, gamma: Scale.apply(2.0, x, gamma), randn(2, 3), randn(3, seed=1)
    ).startswith("grad_gamma =")


def test_of_an_operator_it_is_what_was_registered():
    assert shown(torch.ops.gradverify_inner_backward.double, randn(2)) == "return 3 * g"


def test_the_function_inside_is_named_and_the_checked_one_is_not():
    (inside,) = check(LayerScale, randn(2, 3), init={}, select=("GV111",)).findings
    (own,) = check(Threefold, randn(3), select=("GV101",)).findings
    assert (inside.inside, own.inside) == ("Scale.backward", None)


def test_an_argument_that_is_computed_first_leaves_the_definition_of_backward():
    assert (
        shown(
            lambda gamma: Scale.apply(2.0, torch.ones(2, 3, dtype=gamma.dtype), gamma.sin()),
            randn(3),
        )
        == "def backward(ctx, g):"
    )


class Shift(Function):
    @staticmethod
    def forward(x, by):
        return x + by, by

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx, g, of_by):
        return g, None


class Threefold(Function):
    @staticmethod
    def forward(ctx, x):
        return 3 * x

    @staticmethod
    def backward(ctx, g):
        return 4 * g


@pytest.mark.parametrize(
    "functions",
    list(permutations((Half.apply, lambda x: Shift.apply(x, 2.0)[0], Threefold.apply)))[::2],
)
@pytest.mark.parametrize("checkpointed", [False, True])
def test_of_three_functions_in_any_order_the_wrong_one_is_shown(functions, checkpointed):
    def chain(x):
        for function in functions:
            x = (
                torch.utils.checkpoint.checkpoint(function, x, use_reentrant=False)
                if checkpointed
                else function(x)
            )
        return x

    (found,) = check(chain, randn(3), select=("GV101",)).findings
    assert found.line == Threefold.backward.__code__.co_firstlineno + 1
    assert found.inside == "Threefold.backward"


def test_of_two_functions_the_one_is_shown_whose_replacement_makes_the_number_right():
    def both(x):
        return Half.apply(Scale.apply(2.0, torch.ones(2, 3, dtype=x.dtype), x))

    (found,) = check(both, randn(3), select=("GV101",)).findings
    # Below its decorator; Half is right
    assert found.line == Scale.backward.__code__.co_firstlineno + 1


def test_a_function_that_does_not_lead_to_the_input_is_not_blamed():
    def cut(x, y):
        return Half.apply(y) + x.detach()

    assert shown(cut, randn(3), randn(3, seed=1), code="GV102") == "def cut(x, y):"
