"""Functions of float64 that compute a part in float32: right ones pass at the tolerance of float32,
wrong ones fail, and all else is as it was."""

import pytest
import torch
from live import check, codes, evidence, randn
from torch.autograd import Function

X, W = randn(3, 6), randn(6, seed=1).abs() + 0.5


class Norm(Function):
    """LLaMA's: float32 inside, cast back, times the weight in its own dtype."""

    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return Norm.normalized(x)[0].to(x.dtype) * w

    @staticmethod
    def normalized(x):
        r = torch.rsqrt(x.float().square().mean(-1, keepdim=True) + 1e-6)
        return x.float() * r, r

    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        n, r = Norm.normalized(x)
        t = (g * w).float()
        return (r * (t - n * (t * n).mean(-1, keepdim=True))).to(x.dtype), (g.float() * n).sum(
            0
        ).to(w.dtype)


EXACT = {
    Norm: lambda x, w: x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * w,
}


def wrong(of, place, change):
    """The same function; `change` damages the gradient of one input."""

    class Damaged(of):
        @staticmethod
        def backward(ctx, g):
            found = list(of.backward(ctx, g))
            found[place] = change(found[place])
            return tuple(found)

    return Damaged


@pytest.mark.parametrize("of", EXACT)
def test_a_right_one_passes_and_its_line_says_by_what(of):
    leaves = [x.clone().requires_grad_() for x in (X, W)]
    truth, own = (
        torch.autograd.grad(f(*leaves).square().sum(), leaves) for f in (EXACT[of], of.apply)
    )
    assert all(torch.allclose(a, b, rtol=1e-4, atol=1e-6) for a, b in zip(truth, own, strict=True))
    result = check(of, X, W)
    # Every value of the loss is a float32 number
    assert result.verdict == "pass" and codes(result) <= {"GV222"}
    assert "also of what forward casts to float32" in result.mode_reason


CHANGES = [
    lambda g: 1.02 * g,
    lambda g: 0.98 * g,
    lambda g: 2 * g,
    torch.zeros_like,
    lambda g: -g,
    lambda g: g.roll(1, -1),
]


@pytest.mark.population("change", most=4)
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize("of", EXACT)
def test_a_wrong_one_fails(of, place, change):
    result = check(wrong(of, place, change), X, W)
    assert result.verdict == "fail" and codes(result) & {"GV101", "GV102"}


class Left(Function):
    """What float32 leaves of a number: without the cast nothing is left."""

    @staticmethod
    def forward(ctx, x):
        return x + 1e6 * (x - x.float().double())

    @staticmethod
    def backward(ctx, g):
        return (1 + 1e6) * g


def test_a_function_that_is_another_one_without_its_casts_is_left_as_it_is():
    measured = evidence(Left, X)
    assert measured.jacobian.pairs and not measured.cast_inside and measured.in_float64 == ""
    assert "GV101" not in codes(check(Left, X))


def test_an_output_that_is_decided_keeps_its_tolerance():
    class Two(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x + torch.tanh(x.float()).to(x.dtype), x * x

        @staticmethod
        def backward(ctx, g, h):
            (x,) = ctx.saved_tensors
            t = torch.tanh(x.float())
            return g + (g.float() * (1 - t * t)).to(x.dtype) + 2 * (1 + 1e-5) * x * h

    assert codes(check(Two, X)) == {"GV101"}
