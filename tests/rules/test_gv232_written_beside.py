"""Kernels that write behind or before a tensor are found first, and alone."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest
import torch
from gallery.twins import load
from live import check, codes, message, randn
from torch import Tensor
from torch.autograd import Function

Right = load("writes_one_too_many").Right


def put(tensor: Tensor, at: int) -> None:
    """One number at an index of its memory that may be none of its own; within what the allocator rounds up."""
    (ctypes.c_double * 1).from_address(tensor.data_ptr() + 8 * at)[0] = 1.5


def kernel(into: str, at: int) -> type[Function]:
    """`3x`, which writes beside what `into` names."""

    class Triple(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x, x.exp())
            y = 3 * x
            where = {"x": x, "y": y}.get(into)
            if where is not None:
                put(where, at)
            return y

        @staticmethod
        def backward(ctx: Any, grad_output: Tensor) -> Tensor:
            grad = torch.zeros_like(grad_output)
            where = {"grad_output": grad_output, "grad": grad, "saved": ctx.saved_tensors[1]}.get(into)
            if where is not None:
                put(where, at)
            return grad + 3 * grad_output

    return Triple


@pytest.mark.parametrize(("into", "at", "told"), [
    ("x", 4, "forward writes beside its tensor: 1 element behind the last of"), ("y", 4, "behind the last of the result of mul"),
    ("grad_output", 4, "backward writes beside its tensor: 1 element behind the last of grad_output"),
    ("x", -1, "1 element before the first of"), ("y", -2, "2 elements before the first of the result of mul"),
    ("grad", -1, "before the first of the result of zeros_like"), ("saved", -1, "before the first of the result of exp"),
    ("grad_output", -1, "1 element before the first of grad_output"), ("grad_output", -2, "2 elements before the first of"),
    ("grad", 4, "the result of zeros_like"), ("saved", 4, "the result of exp")])
def test_a_write_beside_a_tensor_is_found_alone(into, at, told):
    result = check(kernel(into, at), randn(4))
    assert codes(result) == {"GV232"} and result.verdict == "fail"
    assert told in message(result, "GV232")


def test_a_write_within_is_left_alone():
    assert not codes(check(Right, randn(4)))


def grown(x: Tensor) -> Tensor:
    """Into memory that a tensor got when it was resized."""
    buffer = x.detach()[:2].clone().resize_(4)
    buffer.copy_(x)
    return buffer * x


def windows(x: Tensor) -> Tensor:
    y = x * 1
    return y.as_strided((3, 2), (1, 1), 0).sum(1)


def whole(x: Tensor) -> Tensor:
    """All of the memory of a result, and of the input."""
    return torch.empty(0, dtype=x.dtype).set_((x * 1).untyped_storage()) * x + 0 * torch.empty(0, dtype=x.dtype).set_(x.untyped_storage())


def aside(x: Tensor) -> Tensor:
    """A copy whose memory is given back, and taken again."""
    copy = x.detach().clone()
    copy.untyped_storage().resize_(0)
    copy.untyped_storage().resize_(8 * x.numel())
    return copy.copy_(x) * x


@pytest.mark.parametrize("function", [grown, windows, whole, aside])
def test_memory_that_is_a_tensors_own_is_no_ones_else(function):
    assert not {"GV231", "GV232"} & codes(check(function, randn(4), select=("GV231", "GV232", "GV206")))
