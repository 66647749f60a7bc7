"""Where the finite differences of a float32 function may be taken in float64: where that is the
same function, and nowhere else.

The class of faults: a difference between the two precisions that is no rounding is held against a
right backward (a branch on the dtype, a constant that is rounded), or rounding is taken for a
difference (numbers that cancel) and the function is left undecided.
"""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from live import check, evidence, randn
from numerics.differentiable import with_backward

from gradverify.numerics.pairs.pair import Outcome
from gradverify.oracles.legs import InFloat64


def single(*shape, seed=0):
    return randn(*shape, seed=seed, dtype=torch.float32)


def branches(x):
    """Another function in float32: an approximation of exp good to 1e-4, as fast paths are."""
    return x.exp() if x.dtype == torch.float64 else x.exp() * (1 + 1e-4)


def rounds_its_constant(x):
    return x * (math.pi if x.dtype == torch.float64 else 3.1415)


def refuses_float64(x):
    if x.dtype != torch.float32:
        raise TypeError("x must be float32")
    return x.sin()


class LeavesTorch(torch.autograd.Function):
    """A kernel that has float32 only."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.from_numpy(np.sin(x.detach().numpy().astype(np.float32)))

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * x.cos()


leaves_torch = LeavesTorch.apply


def cancels(x):
    """Good to three digits in float32."""
    return (x + 1e4) - 1e4 + x * x


@pytest.mark.parametrize(
    "function",
    [
        torch.sin,
        cancels,
        F.gelu,
        lambda x: x.softmax(-1),
        lambda x: F.layer_norm(x, x.shape[-1:]),
        lambda x: (x / x.norm() * 1e20).exp().log(),
        lambda x: x.masked_fill(x < 0, -math.inf),
    ],
)
def test_the_same_function_is_taken_in_float64(function):
    found = evidence(lambda x: function(x), single(4, 5))
    assert isinstance(found.in_float64, InFloat64)
    assert found.numeric_precision == "finite differences in float64, gradients in float32"
    assert found.measured.inputs[0].dtype == torch.float64 and torch.equal(
        found.measured.inputs[0].float(), found.subject.inputs[0]
    )


def looks_at_its_bytes(x):
    if x.untyped_storage().nbytes() > 4 * x.numel():
        raise TypeError("x must be float32")
    return x.sin()


def another_by_its_bytes(x):
    return x * (math.pi if x.untyped_storage().nbytes() > 4 * x.numel() else 3.1415)


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (another_by_its_bytes, "its values are different in float64"),
        (looks_at_its_bytes, "given float64 forward raised TypeError: x must be float32"),
    ],
)
def test_another_function_in_float64_is_measured_in_float32(function, why):
    found = evidence(lambda x: function(x), single(3, 2))
    assert isinstance(found.in_float64, str) and found.in_float64.startswith(why)
    assert found.numeric_precision.startswith(f"finite differences in float32: {why}")
    assert found.measured is found.function


def nearly_constant(seed, share=1e-5, shape=(3, 8)):
    """Rows that differ from their mean by 1e-5 of it: float32 holds two digits of that, and rounds
    the mean alike at all nearby points."""
    return (3 * (1 + share * randn(*shape, seed=seed))).float()


def normalised(x):
    centred = x - x.mean(-1, keepdim=True)
    return centred / (centred * centred).mean(-1, keepdim=True).sqrt()


def normalised_slope(x, grad):
    centred = x - x.mean(-1, keepdim=True)
    deviation = (centred * centred).mean(-1, keepdim=True).sqrt()
    y = centred / deviation
    return (grad - grad.mean(-1, keepdim=True) - y * (grad * y).mean(-1, keepdim=True)) / deviation


ROWS = [normalised, lambda x: F.layer_norm(x, x.shape[-1:], eps=0.0)]


@pytest.mark.parametrize(("function", "seed"), [(ROWS[1], 1)])
def test_rows_that_lose_their_digits_are_the_same_function_in_float64_and_a_right_gradient_is_not_accused(
    function, seed
):
    found = evidence(
        with_backward(function, normalised_slope), nearly_constant(seed), dtype="float32"
    )
    assert isinstance(found.in_float64, InFloat64)
    assert not found.jacobian.pairs[0, 0].count(Outcome.MISMATCH)


@pytest.mark.parametrize(
    "damage",
    [lambda g: -g, lambda g: 2 * g, lambda g: 1.5 * g, lambda g: g * torch.linspace(1, 2, 8)],
)
@pytest.mark.parametrize("seed", [0])
def test_a_wrong_gradient_of_such_rows_is_found(damage, seed):
    for function in ROWS:
        backward = with_backward(function, lambda x, grad: damage(normalised_slope(x, grad)))
        assert (
            evidence(backward, nearly_constant(seed), dtype="float32")
            .jacobian.pairs[0, 0]
            .count(Outcome.MISMATCH)
        )


def close_to_zero(seed, shape=(2, 5)):
    """−1e-6 to −6e-8: exp(x) is 1 to a few float32 numbers, and may be 1 itself, where log(1 −
    exp(x)) has left its domain."""
    share = torch.rand(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return (-6e-8 * (1e-6 / 6e-8) ** share).float()


LOGS = [lambda x: torch.log1p(-torch.exp(x)), lambda x: torch.log(1 - torch.exp(x))]


@pytest.mark.parametrize("function", LOGS)
@pytest.mark.parametrize("seed", range(2))
def test_rounding_that_leaves_the_domain_hides_any_value_and_a_right_gradient_is_not_accused(
    function, seed
):
    """The derivative of log(1 − exp(x)) is 1 / (1 − exp(−x)), which expm1 gives to all digits."""
    result = check(
        with_backward(function, lambda x, grad: grad / -torch.expm1(-x)),
        close_to_zero(seed),
        dtype="float32",
        seed=seed,
    )
    assert result.verdict == "pass" and "finite differences in float64" in result.mode_reason


@pytest.mark.parametrize(
    "damage",
    [
        lambda g: -g,
        lambda g: 2 * g,
        lambda g: 1.1 * g,
        lambda g: g + 0.05 * g.abs().mean(-1, keepdim=True),
    ],
)
def test_a_wrong_gradient_there_is_found(damage):
    for seed in range(2):
        wrong = with_backward(LOGS[seed % 2], lambda x, grad: damage(grad / -torch.expm1(-x)))
        assert check(wrong, close_to_zero(seed), dtype="float32", seed=seed).verdict == "fail"


@pytest.mark.parametrize("function", [branches, rounds_its_constant, refuses_float64, leaves_torch])
def test_a_right_backward_of_such_a_function_is_not_accused(function):
    result = check(lambda x: function(x), single(3, 2), dtype="float32")
    assert result.verdict == "pass" and "finite differences in float64" in result.mode_reason


def test_a_branch_of_the_backward_on_the_dtype_is_judged_as_float32_runs_it():
    class Forgets(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            return grad * x if x.dtype == torch.float32 else grad * 2 * x

    assert check(Forgets, single(6)).verdict == "fail"
    assert check(Forgets, randn(6), ignore=("GV226",)).verdict == "pass"


# ---- what computes in float32 inside
def as_function(forward, backward=lambda grad, x: grad):
    class Made(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return forward(x)

        @staticmethod
        def backward(ctx, grad):
            return backward(grad, *ctx.saved_tensors)

    return Made


@pytest.mark.parametrize(
    "function",
    [
        # A branch on the dtype that was asked for
        lambda x: (x.float().exp() * (1 + 1e-4 * (x.float().dtype == torch.float32))).to(x.dtype),
        # Other random numbers in float64
        lambda x: (x.float() + torch.rand(x.shape, dtype=torch.float32)).to(x.dtype),
        lambda x: (
            (x.float().view(torch.int32).sum() * 0 + x.float()).to(x.dtype)
            + x.float().view(torch.int32).numel()
        ),
    ],
)
def test_what_means_something_else_when_lifted_is_not_lifted(function):
    for x in (single(3, 4), randn(3, 4)):
        found = evidence(as_function(function), x).in_float64
        assert isinstance(found, str) or not found.lifted


def test_what_float32_cannot_hold_is_meant_where_numbers_are_taken_apart():
    """At inputs that float32 holds nothing shows; beside them it does."""
    taken_apart = as_function(
        lambda x: torch.stack([x.float().to(x.dtype), 1e8 * (x - x.float().to(x.dtype))]).float()
    )
    found = evidence(taken_apart, torch.tensor([1.0, 2.5, -0.75], dtype=torch.float64)).in_float64
    assert found == ""


def test_a_gradient_that_lifting_changes_is_another_function():
    """At zero the values are the same in both, and beside it: the slope is 1/eps."""
    sign = as_function(
        lambda x: (x.float() / (x.float().abs() + torch.finfo(x.float().dtype).eps)).to(x.dtype),
        lambda grad, x: (
            grad.float()
            * torch.finfo(x.float().dtype).eps
            / (x.float().abs() + torch.finfo(x.float().dtype).eps) ** 2
        ),
    )
    x = torch.tensor([0.0, 1.0, -2.0])
    assert not getattr(evidence(sign, x).in_float64, "lifted", False)
    assert check(sign, x).verdict != "fail"


@pytest.mark.parametrize("gradient", [lambda grad, x: grad, lambda grad, x: grad * 0])
def test_rounding_to_16_bits_on_purpose_stays_as_it_is(gradient):
    """A straight-through estimator is neither excused nor accused by the lift: bfloat16 is not
    lifted, and the staircase is seen."""
    x = single(6)
    found = evidence(as_function(lambda x: x.bfloat16().to(x.dtype), gradient), x)
    assert not getattr(found.in_float64, "lifted", False)
    (y,) = found.measured.values([x.double() if isinstance(found.in_float64, InFloat64) else x])
    assert torch.equal(y.float(), x.bfloat16().float())
