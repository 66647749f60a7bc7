"""Each private part of torch that the package uses, held against the torch that is installed: a failing test says what another torch changed."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import FunctionMeta
from torch.overrides import TorchFunctionMode

from gradverify import torch_private as private


class Doubles(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return 2 * x

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return 2 * g


class DoublesToo(Function):
    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return 2 * x

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        raise AssertionError("setup_context of a Function that is replaced")

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return 2 * g


class Own(Doubles):
    @classmethod
    def apply(cls, x: Tensor) -> Any:
        return super().apply(x)


doubles = Doubles.apply     # bound before anything is hooked


def leaf(*shape: int) -> Tensor:
    return torch.ones(shape, dtype=torch.float64, requires_grad=True)


def test_the_apply_of_a_function_leads_to_it():
    assert private.applied(doubles) is Doubles
    assert private.applied(Own.apply) is Own
    assert [private.applied(each) for each in (Doubles, torch.sin, leaf().sin, len, None)] == [None] * 5


@pytest.mark.parametrize("apply", [doubles, Doubles.apply, DoublesToo.apply, Own.apply], ids=["bound before", "ctx", "setup_context", "an apply of its own"])
def test_every_apply_is_answered_with_the_arguments_of_forward_and_makes_no_node(apply):
    x, seen = leaf(2), list[Any]()

    def instead(cls: type) -> Any:
        seen.append((cls, torch.is_grad_enabled()))
        return lambda *arguments: (seen.append((arguments, torch.is_grad_enabled())), 3 * arguments[0])[1]

    with private.every_apply(instead):
        y = apply(x)
    assert seen[0] == (getattr(apply, "__self__", None), True) and seen[1][0][0] is x and seen[1][1] is False
    assert torch.equal(y, 3 * x) and not y.requires_grad


def test_a_function_that_is_not_answered_is_applied_and_the_hook_goes_and_is_for_one_thread():
    x, elsewhere = leaf(2), list[Any]()
    with private.every_apply(lambda cls: None):
        assert doubles(x).grad_fn._forward_cls is Doubles
    with private.every_apply(lambda cls: lambda x: 3 * x):
        thread = threading.Thread(target=lambda: elsewhere.append(doubles(leaf(2))))
        thread.start()
        thread.join()
        torch.testing.assert_close(elsewhere[0], 2 * x)
    assert "__getattribute__" not in vars(FunctionMeta)
    assert doubles(x).grad_fn._forward_cls is Doubles


def test_the_engine_runs_backward_under_the_function_modes_that_are_on():
    seen = list[Any]()

    class Mode(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return func(*args, **(kwargs or {}))

    x = leaf(2)
    y = x.exp()
    y.register_hook(lambda g: seen.append(len(private.function_modes())))
    with Mode():
        found = private.gradients([y], [x, leaf(2)], [torch.ones_like(y)])
    assert found[1] is None and seen == [1] and not private.function_modes()
    torch.testing.assert_close(found[0], x.exp().detach())


def test_transforms_of_functions_are_noticed():
    seen = list[bool]()
    torch.func.grad(lambda x: (seen.append(private.transforms_active()), x.sum())[1])(torch.ones(2))
    assert seen == [True] and not private.transforms_active()
