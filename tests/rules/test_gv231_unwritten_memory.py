"""Results that hold what memory held before are found, in every run with the same code; what is written, or never read, is left alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from live import check, codes, fixed, message, randn
from torch import Tensor
from torch.autograd import Function


def square(gradient: Any, value: Any = None) -> type[Function]:
    """`x²`, whose gradient 2x·v (and value) is what these make of it; they may leave memory unwritten."""

    class Square(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            return value(x * x) if value else x * x

        @staticmethod
        def backward(ctx: Any, grad_output: Tensor) -> Tensor:
            x, = ctx.saved_tensors
            return gradient(2 * x * grad_output)

    return Square


def half(empty: Any) -> Any:
    """The first half of what `empty` hands out is written."""
    def written(g: Tensor) -> Tensor:
        out = empty(g)
        out.view(-1)[:g.numel() // 2] = g.reshape(-1)[:g.numel() // 2]
        return out
    return written


def all_but_the_tail(g: Tensor) -> Tensor:
    out, tile = torch.empty_like(g), 4
    for start in range(0, g.numel() - tile + 1, tile):
        out.view(-1)[start:start + tile] = g.reshape(-1)[start:start + tile]
    return out


def summed_into_empty(g: Tensor) -> Tensor:
    out = g.new_empty(g.shape)
    out += g
    return out


def by_a_mask(g: Tensor) -> Tensor:
    mask = torch.empty(g.shape, dtype=torch.bool)
    mask.view(-1)[1:] = True
    return torch.where(mask, g, 0)


def by_an_index(g: Tensor) -> Tensor:
    index = torch.empty(g.numel(), dtype=torch.int64)
    index[1:] = torch.arange(1, g.numel())
    return g.reshape(-1)[index].view(g.shape)


def by_an_unknown_count(g: Tensor) -> Tensor:
    return g * (torch.empty(1, dtype=torch.int64).clamp(0, 1) + 1)


def by_numpy(g: Tensor) -> Tensor:
    out = np.empty(tuple(g.shape))
    out[0] = g.numpy()[0]
    return torch.from_numpy(out)


def real_part_only(g: Tensor) -> Tensor:
    out = torch.empty(g.shape, dtype=torch.complex128)
    out.real.copy_(g)
    return out.abs()


def grown(g: Tensor) -> Tensor:
    out = g.reshape(-1)[:2].clone()
    return out.resize_(g.shape)


EMPTIES = {
    "empty": lambda g: torch.empty(g.shape, dtype=g.dtype), "empty_like": torch.empty_like, "new_empty": lambda g: g.new_empty(g.shape),
    "empty_strided": lambda g: torch.empty_strided(g.shape, g.stride(), dtype=g.dtype), "Tensor.new": lambda g: g.new(g.shape),
    "empty_permuted": lambda g: torch.empty_permuted(tuple(g.shape), tuple(range(g.dim())), dtype=g.dtype)}
LEFT = {**{name: half(empty) for name, empty in EMPTIES.items()}, "a tile's tail": all_but_the_tail, "summed into": summed_into_empty,
        "mask": by_a_mask, "index": by_an_index, "count": by_an_unknown_count, "resize_": grown,
        "numpy.empty": by_numpy, "a real part": real_part_only}


@pytest.mark.parametrize("gradient", LEFT.values(), ids=LEFT)
def test_a_gradient_that_holds_what_memory_held_is_found_alone(gradient):
    for _ in range(2):      # whatever memory holds by now
        assert codes(check(square(gradient), randn(2, 3))) == {"GV231"}


@pytest.mark.parametrize("value", [LEFT["empty_like"], all_but_the_tail, by_a_mask], ids=["empty_like", "a tile's tail", "mask"])
def test_so_is_a_forward(value):
    result = check(square(lambda g: g, value), randn(2, 3))
    assert codes(result) == {"GV231"} and result.verdict == "fail"
    assert message(result, "GV231").startswith("y0 depends on unwritten memory")


def test_what_forward_saved_unwritten_shows_in_the_gradient():
    class Square(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            doubled = torch.empty_like(x)
            doubled[x > 0] = 2 * x[x > 0]
            ctx.save_for_backward(doubled)
            return x * x

        @staticmethod
        def backward(ctx: Any, grad_output: Tensor) -> Tensor:
            return ctx.saved_tensors[0] * grad_output

    result = check(Square, randn(2, 3))
    assert codes(result) == {"GV231"}
    assert message(result, "GV231").startswith("the gradient of x depends on unwritten memory: ")


def written(g: Tensor) -> Tensor:
    return torch.empty_like(g).copy_(g)


def through_a_padded_workspace(g: Tensor) -> Tensor:
    rows = torch.empty(8, g.shape[1], dtype=g.dtype)
    rows[:len(g)] = g
    return rows[:len(g)].clone()


def by_out(g: Tensor) -> Tensor:
    return torch.mul(g, 1, out=torch.empty_like(g))


def beta_zero(g: Tensor) -> Tensor:
    return torch.addmm(torch.empty_like(g), g, torch.eye(g.shape[1], dtype=g.dtype), beta=0)


def by_a_count(g: Tensor) -> Tensor:
    count = torch.empty(1, dtype=torch.int64)
    count[0] = len(g)
    return g[:int(count)].clone()


def by_its_storage(g: Tensor) -> Tensor:
    return torch.empty(0, dtype=g.dtype).set_(g.contiguous().untyped_storage()).view(g.shape)


RIGHT = [written, by_its_storage, through_a_padded_workspace, by_out, beta_zero, by_a_count, torch.clone,
         lambda g: torch.empty(0, dtype=g.dtype).resize_(g.shape).copy_(g)]


@pytest.mark.parametrize("gradient", RIGHT)
def test_what_is_written_or_never_read_is_left_alone(gradient):
    assert not {"GV231", "GV232"} & codes(check(square(gradient), randn(2, 3), select=("GV206", "GV231", "GV232", "GV101")))


def test_where_memory_is_given_back_what_was_left_unwritten_is_found():
    class Square(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            workspace = x.detach().clone()
            workspace.untyped_storage().resize_(0)
            return x * x

        @staticmethod
        def backward(ctx: Any, grad_output: Tensor) -> Tensor:
            x, = ctx.saved_tensors
            return half(torch.empty_like)(2 * x * grad_output)

    assert codes(check(Square, randn(2, 3))) == {"GV231"}


def test_a_gradient_that_nobody_asked_for_may_hold_anything():
    class Scale(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, scale: Tensor) -> Tensor:
            ctx.save_for_backward(scale)
            return x * scale

        @staticmethod
        def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, Tensor]:
            scale, = ctx.saved_tensors
            return grad_output * scale, torch.empty_like(scale)

    assert "GV231" not in codes(check(Scale, randn(3), fixed(randn(3, seed=1))))


@pytest.mark.parametrize("function", [lambda x: torch.nn.functional.dropout(x, 0.5), lambda x: x.prod(0), lambda x: x * torch.rand(3)])
def test_what_draws_or_rounds_in_another_way_depends_on_no_memory(function):
    assert not {"GV231", "GV205"} & codes(check(function, randn(2, 3), select=("GV205", "GV206", "GV231")))


@pytest.mark.parametrize("gradient", [torch.clone, written, by_out, by_a_count])
def test_what_writes_all_of_it_costs_no_call_more(gradient):
    plain = square(gradient)
    with_it, without = check(plain, randn(2, 3)), check(plain, randn(2, 3), ignore=("GV231", "GV232"))
    assert with_it.calls == without.calls
