from __future__ import annotations

import inspect

import pytest
import torch
from live import Oracles, case, check, codes, message, randn, tensor
from torch.autograd import Function

from gradverify.direct import check as check_live
from gradverify.subject.prepare import prepare
from gradverify.verify import verify
from rules.functions import square, unary

# ---- GV112 low-precision
# Functions in 16 bits: wrong ones are found where finite differences and `allclose` see nothing,
# right ones left alone however they round.
#
# The class of faults: what only 16 bits do. The truth is torch's own gradient in float64.
BF, HALF = torch.bfloat16, torch.float16
X = randn(12, 24)


def run(function, x, **settings):
    settings = {"dtype": str(x.dtype).removeprefix("torch."), "select": ("GV112",)} | settings
    return check(function, x, **settings)


def told(result):
    return next(each.reason for each in result.rules if each.code == "GV112")


def softmax(x, largest=lambda u: u.amax(-1, keepdim=True), up=lambda x: x.float()):
    u = up(x)
    e = (u - largest(u)).exp()
    return (e / e.sum(-1, keepdim=True)).to(x.dtype)


def rms_norm(x, up=lambda x: x):
    u = up(x)
    return (u * (u.square().mean(-1, keepdim=True) + 1e-6).rsqrt()).to(x.dtype)


def damaged(damage):
    """A square, whose gradient is damaged in 16 bits."""

    def backward(x, g):
        found = g * 2 * x
        return damage(found) if found.dtype in (BF, HALF) else found

    return square(backward)


@pytest.mark.population(most=10)
@pytest.mark.parametrize("dtype", [BF, HALF])
@pytest.mark.parametrize(
    "function",
    [
        softmax,
        lambda x: softmax(x, up=lambda x: x),
        lambda x: x.softmax(-1),
        rms_norm,
        lambda x: rms_norm(x, torch.Tensor.float),
        lambda x: torch.nn.functional.gelu(x),
        lambda x: x.cumsum(0).flip(0).cumsum(0),
        lambda x: x @ torch.ones(24, 8, dtype=x.dtype).tril() * 0.3,
        lambda x: -x.log_softmax(-1)[:, 3].mean(),
        lambda x: x[torch.arange(40) % 12] * 3,
        lambda x: x.relu().max(-1).values,
    ],
    ids=[
        "softmax",
        "softmax in 16 bits",
        "torch's softmax",
        "rms norm",
        "rms norm in float32",
        "gelu",
        "scan",
        "product",
        "cross entropy",
        "embedding",
        "maximum",
    ],
)
def test_right_functions_are_left_alone_in_every_way_of_rounding(function, dtype):
    result = run(function, X.to(dtype))
    assert (result.verdict, codes(result)) == ("pass", set())
    assert "× the native error" in told(result)


def zero_of_last(g):
    g = g.clone()
    g[..., -4:] = 0
    return g


def zero_of_small(g):
    g = g.clone()
    g[5] = 0
    return g


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda g: g / 2, "× the native error"),
        (zero_of_last, "× the native error, row"),
        (lambda g: g * 1.03, "× the native error"),
        (lambda g: g.to(torch.float8_e4m3fn).to(g.dtype), "× the native error"),
        (zero_of_small, "row 5 worst"),
    ],
    ids=["a factor", "a tail", "three per cent", "8 bits", "a small row"],
)
def test_what_only_sixteen_bits_do_is_found(damage, words):
    x = X.clone()
    x[5] *= 1e-3  # so is its gradient: `allclose` at 1e-2 does not see that it is gone
    result = run(damaged(damage), x.to(BF))
    assert codes(result) == {"GV112"}
    assert words in message(result, "GV112")


def test_an_overflow_on_the_way_is_named():
    result = run(
        lambda x: softmax(x, largest=lambda u: 0 * u[..., :1], up=lambda x: x), (6 * X).to(HALF)
    )
    assert "an overflow on the way there" in {
        each.message.partition(": ")[2] for each in result.findings if each.code == "GV112"
    }


def test_numbers_that_do_not_fit_are_left_out_and_counted():
    assert "1 numbers that float16 cannot hold were left out" in told(
        run(lambda x: x * 3000, torch.tensor([1.0, 2.0, 30.0], dtype=HALF))
    )


def strict(x, factor=1.0):
    if x.dtype == torch.float64:
        raise TypeError("no float64")
    return x.tanh() * factor


def test_where_float64_is_refused_a_reference_stands_in():
    result = run(strict, X.to(BF))
    assert result.verdict == "undecided" and codes(result) == {"GV007"}
    assert "which the function refuses" in result.reason and "no `reference`" in result.reason
    reference = Oracles(reference="torch:tanh")
    assert run(strict, X.to(BF), oracles=reference).verdict == "pass"
    assert codes(run(lambda x: strict(x, 1.05), X.to(BF), oracles=reference)) == {"GV112"}


def test_random_numbers_are_no_verdict():
    result = run(lambda x: torch.nn.functional.dropout(x, 0.5), X.to(BF), select=())
    assert (result.verdict, codes(result)) == ("undecided", {"GV007"})


def test_all_rules_see_the_function_in_float64_and_a_live_call_needs_no_setting():
    result = check_live(softmax, [X[:4, :6].to(BF)])
    # Not GV222: `.float()` is float64 there
    assert (result.verdict, codes(result), result.dtype) == ("pass", set(), "bfloat16")
    assert {each.dtype for each in result.inputs} == {"bfloat16"}


def test_outputs_are_told_in_the_dtype_that_the_function_gives_them_in():
    assert [
        each.dtype for each in run(lambda x: (x.tanh(), x.float().exp()), X[:2].to(BF)).outputs
    ] == ["bfloat16", "float32"]


def normed(x, w, b):
    c = x - x.mean(-1, keepdim=True)
    return c * (c.square().mean(-1, keepdim=True) + 1e-5).rsqrt() * w + b


def norm(factor=1.0):
    """Torch's own, whose gradient of the bias is summed one by one in 16 bits on the CPU."""
    return lambda x, w, b: torch.nn.functional.layer_norm(
        x, (24,), w * (factor if x.dtype == BF else 1.0), b
    )


@pytest.mark.parametrize(("function", "found"), [(norm(), set()), (norm(1.02), {"GV112"})])
def test_a_bias_that_is_summed_in_sixteen_bits_is_right_and_a_factor_is_not(function, found):
    inputs = (randn(64, 24).to(BF), randn(24, seed=1).to(BF), randn(24, seed=2).to(BF))
    result = check(
        function,
        *inputs,
        dtype="bfloat16",
        select=("GV112",),
        oracles=Oracles(reference="rules.test_low_precision:normed"),
    )
    assert codes(result) == found


def total(x):
    return x.sum(-1)


def one_by_one(x):
    sum_ = torch.zeros_like(x[:, 0])
    for column in x.unbind(-1):
        sum_ = sum_ + column
    return sum_


def test_a_sum_in_sixteen_bits_is_found_beside_a_reference_that_sums_in_more():
    oracles = Oracles(reference="rules.test_low_precision:total")
    x = randn(96, 32).to(BF)
    assert run(lambda x: x.float().sum(-1).to(x.dtype), x, oracles=oracles).verdict == "pass"
    assert codes(run(one_by_one, x, oracles=oracles)) == {"GV112"}


def test_a_gradient_that_is_wrong_everywhere_is_said_once():
    assert codes(run(square(lambda x, g: g * x), X[:2, :8].to(BF), select=("GV101", "GV112"))) == {
        "GV101"
    }


# ---- GV112 references
# What a `reference` says of 16 bits: how it sums is what native means; kernels of bfloat16 alone
# are what a result is about.
#
# The truth is the sum in float64, beside which the sums of bfloat16 below are off by 3 to 35 %.
ROWS = 520


class Scale(Function):
    """x · w, of which the gradient of w is summed in float32."""

    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x * w

    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        return g * w, (g.float() * x.float()).sum(0).to(w.dtype)


class SummedInBfloat16(Scale):
    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        total = torch.zeros_like(w)
        for row in g * x:
            total = total + row
        return g * w, total


class BfloatAlone(Scale):
    """As kernels are that take nothing else."""

    @staticmethod
    def forward(ctx, x, w):
        assert x.dtype == torch.bfloat16
        return Scale.forward(ctx, x, w)


class BfloatAloneSummed(BfloatAlone):
    backward = SummedInBfloat16.backward


class BfloatAloneScaled(BfloatAlone):
    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        return g * w, 1.1 * (g.float() * x.float()).sum(0).to(w.dtype)


def plain(x, w):
    return x * w


def product_in_float32(x, w):
    return (x.float() * w.float()).to(x.dtype)


def checked(function, reference):
    named = Oracles(reference=f"{__name__}:{reference}") if reference else Oracles()
    inputs = [tensor(ROWS, 8, name="x"), tensor(8, name="w")]
    return verify(
        prepare(
            case(
                f"{__name__}:{function}", inputs, dtype="bfloat16", select=("GV112",), oracles=named
            )
        )
    )


@pytest.mark.parametrize("reference", ["plain", "product_in_float32"])
@pytest.mark.parametrize("function", ["Scale", "BfloatAlone"])
def test_a_kernel_that_sums_as_the_reference_does_passes(function, reference):
    result = checked(function, reference)
    assert (result.verdict, codes(result)) == ("pass", set())


@pytest.mark.parametrize("reference", ["plain", "product_in_float32"])
@pytest.mark.parametrize("function", ["SummedInBfloat16", "BfloatAloneSummed", "BfloatAloneScaled"])
def test_one_that_sums_in_fewer_bits_fails_at_the_line_of_its_backward(function, reference):
    result = checked(function, reference)
    assert codes(result) == {"GV112"}
    lines, first = inspect.getsourcelines(globals()[function].backward)
    assert all(first <= finding.line < first + len(lines) for finding in result.findings)


def test_without_a_reference_such_a_sum_is_the_functions_own():
    assert checked("SummedInBfloat16", None).verdict == "pass"


def summed(x):
    return x.sum(0)


# ---- GV222 precision-inside
@pytest.mark.parametrize(
    ("inside", "name"), [(torch.float32, "float32"), (torch.bfloat16, "bfloat16")]
)
def test_a_forward_in_fewer_bits_is_told_by_the_bits(inside, name):
    result = check(lambda x: (x.to(inside).sin() * 1.7).to(x.dtype), randn(12))
    assert result.verdict != "fail"
    assert "GV222" in codes(result) or result.verdict == "undecided"
    if "GV222" in codes(result):
        assert f"is a {name} number: forward computes in {name}, or rounds to it" in message(
            result, "GV222"
        )


def test_float32_inside_passes_at_float32_accuracy():
    result = check(lambda x: x.float().exp().double(), randn(12))
    assert (result.verdict, codes(result)) == ("pass", {"GV222"})


@pytest.mark.parametrize(
    ("forward", "slope", "low", "high"),
    [
        (lambda x: x.exp() - 1, torch.exp, 1e-10, 1e-9),
        (lambda x: 1 - x.cos(), torch.sin, 1e-5, 3e-5),
        (lambda x: (x + 1e6) - 1e6, torch.ones_like, 1e-4, 1e-3),
    ],
)
def test_what_large_float64_numbers_leave_when_they_cancel_is_no_low_precision(
    forward, slope, low, high
):
    """It has few bits, but one step for all numbers, and torch sees float64 operations only."""
    x = low + (high - low) * torch.rand(6, dtype=torch.float64)

    def scaled(factor):
        return unary(forward, lambda x, g: factor * g * slope(x))

    assert "GV222" not in codes(right := check(scaled(1.0), x)) and right.verdict != "fail"
    assert codes(check(scaled(1.0009), x)) == {"GV101"}
    inside = check(lambda x: (x.float().tanh() - 0.5).double(), randn(12))
    assert "GV222" in codes(inside)


@pytest.mark.parametrize(
    "function",
    [lambda x: x * 2, torch.sign, torch.round, lambda x: (x > 0).double() * x, lambda x: x.sum()],
    ids=["times 2", "sign", "round", "mask", "sum"],
)
def test_round_numbers_are_no_low_precision(function):
    assert "GV222" not in codes(
        check(function, torch.tensor([0.5, 1.25, -2.0, 3.0], dtype=torch.float64))
    )


def test_float32_inputs_claim_no_more_than_they_have():
    result = check(torch.exp, randn(12, dtype=torch.float32), dtype="float32")
    assert codes(result) == set()
