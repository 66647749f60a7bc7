from __future__ import annotations

import pytest
import torch
from live import check, codes, message, randn
from torch.autograd import Function

from rules.functions import Right, X, square, unary


def run(result):
    return next(run for run in result.rules if run.code == "GV226")


@pytest.mark.parametrize(
    "faulty",
    [
        square(lambda x, g: (1 if x.dtype == torch.float32 else 2) * x * g),
        square(lambda x, g: 2 * x * (g if x.dtype == torch.float64 else g * 1.01)),
        square(
            lambda x, g: 2 * x * g.bfloat16().float() if x.dtype == torch.float32 else 2 * x * g
        ),
    ],
    ids=["a factor", "one per cent", "bfloat16 inside"],
)
def test_a_gradient_that_is_wrong_only_in_float32_is_found(faulty):
    result = check(faulty, X)
    assert codes(result) == {"GV226"}
    assert "with float32 inputs the gradient at x[" in message(result, "GV226")


def test_an_output_that_is_float64_all_the_same_is_found():
    wide = unary(lambda x: x * torch.tensor([2.0], dtype=torch.float64), lambda x, g: 2 * g)
    result = check(wide, X)
    assert codes(result) == {"GV226"}
    assert message(result, "GV226") == "with float32 inputs y0 is float64, and not float32"


def test_a_backward_that_raises_in_float32_is_found():
    kept = torch.ones(3, 3, dtype=torch.float64)
    result = check(unary(lambda x: x @ kept.to(x.dtype), lambda x, g: g @ kept.T), X)
    assert codes(result) == {"GV226"}
    assert "with float32 inputs backward raised RuntimeError" in message(result, "GV226")


def test_what_float32_rounds_is_right():
    assert codes(check(Right, randn(30, 20))) == set()
    deep = unary(lambda x: (x.exp().log() * 3).sin(), lambda x, g: 3 * (3 * x).cos() * g)
    assert codes(check(deep, X)) == set()


def test_a_forward_that_is_ill_conditioned_lends_its_own_deviation():
    """1e4 x³ loses digits in float32 before the sine; its gradient as well, and by no fault."""
    function = unary(lambda x: (1e4 * x**3).sin(), lambda x, g: 3e4 * x**2 * (1e4 * x**3).cos() * g)
    assert codes(check(function, X, select=("GV226",))) == set()


def test_a_kink_that_casting_crosses_is_no_fault():
    x = torch.tensor([1 + 1e-9, 2.0, -1.0], dtype=torch.float64)
    relu = unary(lambda x: (x - 1).clamp_min(0), lambda x, g: g * (x > 1))
    assert codes(check(relu, x, select=("GV226",))) == set()


@pytest.mark.parametrize(
    ("function", "x", "reason"),
    [
        (Right, 1e-60 * X, "the numbers of x do not fit in float32"),
        (Right, 1e60 * X, "the numbers of x do not fit in float32"),
        (Right, 1e30 * X, "the forward overflows in float32"),
        (Right, X.float(), "an input is of lower precision"),
        (lambda x: Right.apply(x), X, "the target is no autograd Function"),
    ],
)
def test_where_it_cannot_be_asked_that_is_said(function, x, reason):
    result = check(function, x, dtype=str(x.dtype).removeprefix("torch."))
    assert codes(result) == set()
    assert (run(result).status, run(result).reason) == ("not_applicable", reason)


def test_a_forward_that_refuses_float32_is_not_at_fault():
    def strict(x):
        if x.dtype != torch.float64:
            raise TypeError("float64 only")
        return x.sin()

    result = check(unary(strict, lambda x, g: g * x.cos()), X)
    assert codes(result) == set()
    assert run(result).reason == "with float32 inputs forward raised TypeError: float64 only"


# ---- loops that only float64 ends
def newton(tolerance, once_more=1.0, guarded=False):
    """√x by Newton's iteration until the square is right to a tolerance, which float32 may never
    reach; and again in backward for 1/√x."""

    def root(x):
        y = x.clone() if x.dtype == torch.float64 else x * 1.0001
        while (y * y - x).abs().max() > tolerance:
            y = 0.5 * (y + x / y)
        return y

    class Root(Function):
        @staticmethod
        def forward(ctx, x):
            y = root(x)
            ctx.save_for_backward(x, y)
            return y

        @staticmethod
        def backward(ctx, g):
            x, y = ctx.saved_tensors
            scale = once_more if x.dtype == torch.float32 else 1.0
            return g * scale / (2 * (root(x) if guarded else y))

    return Root


POSITIVE = torch.tensor([2.0, 3.0, 5.0, 7.0], dtype=torch.float64)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("guarded", [False, True])
def test_a_loop_that_float32_never_ends_is_ended_and_is_no_fault(guarded):
    """The class: an iteration whose absolute tolerance is one of float64; without a bound nothing
    but `timeout` ends it."""
    result = check(newton(1e-12, guarded=guarded), POSITIVE)
    assert result.verdict == "pass"
    assert run(result).status == "not_applicable"
    assert "has not come to an end: is its tolerance one of float64?" in run(result).reason


def test_a_loop_that_ends_in_float32_too_is_compared():
    assert codes(check(newton(1e-5), POSITIVE, rtol=1e-4)) - {"GV114"} == set()
    assert "GV226" in codes(check(newton(1e-5, once_more=1.1), POSITIVE, rtol=1e-4))


# ---- saturated: the gradient is smaller than what cancels in it
def softmax(fault=lambda x, gradient: gradient, times=10.0):
    class Softmax(Function):
        @staticmethod
        def forward(ctx, x):
            y = (times * x).softmax(-1)
            ctx.save_for_backward(x, y)
            return y

        @staticmethod
        def backward(ctx, g):
            x, y = ctx.saved_tensors
            return fault(x, times * y * (g - (g * y).sum(-1, keepdim=True)))

    return Softmax


SURE = torch.tensor([[2.0, 0.5, 0.2], [0.1, 1.9, 0.4], [0.3, 0.1, 1.8]], dtype=torch.float64)


@pytest.mark.parametrize("seed", range(2))
def test_what_cancels_in_a_saturated_softmax_is_rounding(seed):
    """Elements of 1e-7 in a row of rounding stay open."""
    assert codes(check(softmax(), SURE + 4, seed=seed, select=("GV226",))) <= {"GV007"}


def test_where_a_sigmoid_saturates_throughout_it_rounds():
    class Sigmoid(Function):
        @staticmethod
        def forward(ctx, x):
            y = x.sigmoid()
            ctx.save_for_backward(y)
            return y

        @staticmethod
        def backward(ctx, g):
            (y,) = ctx.saved_tensors
            return g * y * (1 - y)

    x = torch.tensor([12.0, 150.0, -200.0, 90.0, -120.0, -170.0, 60.0, 130.0], dtype=torch.float64)
    assert codes(check(Sigmoid, x, select=("GV226",))) == set()


def test_a_factor_in_float32_is_found_beside_what_cancels():
    halved = softmax(
        lambda x, gradient: gradient / 2 if x.dtype == torch.float32 else gradient, times=3.0
    )
    assert codes(check(halved, SURE, select=("GV226",))) == {"GV226"}


def test_a_forward_that_loses_its_digits_in_float32_says_nothing_of_backward():
    """The standard deviation of 100 + x is 0 in float32 where x is 1e-12: its slope is infinite
    there."""
    spread = unary(
        lambda x: (x + 100).std(-1),
        lambda x, g: (
            g[:, None]
            * (x - x.mean(-1, keepdim=True))
            / (x.shape[-1] - 1)
            / (x + 100).std(-1, keepdim=True)
        ),
    )
    result = check(spread, 1e-7 * randn(3, 5), select=("GV226",))
    assert "GV226" not in codes(result)
    assert run(result).reason == "the forward loses its digits in float32"


@pytest.mark.parametrize(
    ("forward", "backward", "values"),
    [
        (
            lambda a: torch.linalg.slogdet(a)[1],
            lambda a, g: g * torch.linalg.inv(a).mT,
            [[1.0, 2.0], [2.0, 4.0000001]],
        ),
        (
            lambda x: torch.log(1 - x),
            lambda x, g: -g / (1 - x) if bool((x < 1).all()) else torch.linalg.inv(0 * x.diag()),
            [0.9999999999, 0.5],
        ),
    ],
)
def test_inputs_that_leave_the_domain_in_float32_are_no_fault(forward, backward, values):
    """The function raises there in float64 too."""
    x = torch.tensor(values, dtype=torch.float64)
    result = check(unary(forward, backward), x, select=("GV226",))
    assert run(result).status == "not_applicable"
    assert "it raises in float64 too" in run(result).reason


def test_a_backward_that_refuses_float32_is_found_where_it_takes_the_same_numbers_in_float64():
    def backward(x, g):
        if x.dtype == torch.float32:
            raise ValueError("float64 only")
        return 2 * x * g

    result = check(square(backward), X, select=("GV226",))
    assert codes(result) == {"GV226"}
