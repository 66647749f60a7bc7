from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from live import check, codes, evidence, message, randn
from torch import Tensor, nn
from torch.autograd import Function

from gradverify.numerics.verdict import Limit, Verdict
from rules.functions import RightProduct, X, Y, product, square

# ---- GV101 jacobian
WRONG = {
    "factor": lambda x, g: x * g,
    "sign": lambda x, g: -2 * x * g,
    "one per mille": lambda x, g: 2.002 * x * g,
    "one in a hundred thousand": lambda x, g: 2.00002 * x * g,
    "transposed": lambda x, g: (2 * x * g).t().reshape(2, 3),
    "one element": lambda x, g: torch.where(torch.arange(6).reshape(2, 3) == 4, 0.0, 2 * x * g),
    "zero": lambda x, g: torch.zeros_like(x),
    "leak": lambda x, g: 2 * x * g + 1e-4 * g.sum(),
}


@pytest.mark.parametrize("backward", WRONG.values(), ids=WRONG)
def test_a_wrong_backward_is_found(backward):
    result = check(square(backward), X)
    assert (result.verdict, codes(result)) == ("fail", {"GV101"})


def test_the_finding_names_input_output_element_and_both_values():
    result = check(square(WRONG["one element"]), X)
    (found,) = result.findings
    assert (found.input, found.output) == ("x", 0)
    assert "1 of 36 elements of d y0 / d x differs" in found.message
    assert "at y0[1,1] / x[1,1]: analytic 0, numeric -0.5" in found.message
    worst = result.comparisons[0].worst
    assert [
        (entry.output_index, entry.input_index, entry.analytic, entry.outcome) for entry in worst
    ] == [((1, 1), (1, 1), 0.0, "mismatch")]
    assert worst[0].numeric == pytest.approx(-0.5)
    assert found.source == "return backward(x, grad_output)"


def test_every_pair_of_input_and_output_is_judged_by_itself():
    def two(x, y):
        return product(lambda ctx, x, y, g: (g * y, g * x * 2)).apply(x, y), x + y

    result = check(two, X, Y)
    assert [(found.input, found.output) for found in result.findings] == [("y", 0)]
    assert [(each.input, each.output, each.elements) for each in result.comparisons] == [
        ("x", 0, 36),
        ("x", 1, 36),
        ("y", 0, 36),
        ("y", 1, 36),
    ]


def test_only_the_outputs_that_the_spec_names_are_judged():
    def two(x, y):
        return product(lambda ctx, x, y, g: (g * y, g * x * 2)).apply(x, y), x + y

    assert codes(check(two, X, Y, outputs=(1,))) == set()
    assert codes(check(two, X, Y, outputs=(0,))) == {"GV101"}


def test_float32_has_its_own_tolerance():
    assert codes(check(square(lambda x, g: 2 * x * g), X.float(), dtype="float32")) == set()
    assert codes(check(square(lambda x, g: 2.1 * x * g), X.float(), dtype="float32")) == {"GV101"}


def test_a_right_backward_passes_with_every_element_counted():
    result = check(RightProduct, X, Y)
    assert (result.verdict, codes(result)) == ("pass", set())
    assert sum(each.elements for each in result.comparisons) == 72


class Straight(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.round()

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output


@pytest.mark.parametrize("seed", range(2))
def test_steps_beside_x_are_no_straight_line(seed):
    """All wrong elements are counted: one that moves only far from x is not taken for linear
    there."""
    found = next(
        each
        for each in check(Straight, randn(5, seed=seed), seed=seed).findings
        if each.code == "GV101"
    )
    assert found.message.startswith("5 of 25 ")


# ---- GV102 missing-gradient
def test_none_for_an_input_that_moves_the_output_is_found_and_explains_the_jacobian():
    result = check(product(lambda ctx, x, y, g: (g * y, None)), X, Y)
    assert codes(result) == {"GV102"}
    assert result.findings[0].also == ("GV101",)
    assert "the gradient of y is None, but y0 depends on it" in message(result, "GV102")


def test_an_input_is_told_once_whatever_the_number_of_outputs():
    class Rotates(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, c):
            ctx.save_for_backward(c)
            return x * c, x + c

        @staticmethod
        def backward(ctx, g, h):
            return g * ctx.saved_tensors[0] + h, None

    result = check(Rotates, X, Y)
    assert [(finding.code, finding.input, finding.output) for finding in result.findings] == [
        ("GV102", "c", None)
    ]
    assert (
        "the gradient of c is None, but y0 and y1 depend on it: the finite difference at y0["
        in message(result, "GV102")
    )


def test_none_for_an_input_without_influence_is_right():
    class IgnoresSecond(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, y):
            return x * 2

        @staticmethod
        def backward(ctx, grad_output):
            return grad_output * 2, None

    assert codes(check(IgnoresSecond, X, Y)) == set()


def test_a_detached_output_that_the_spec_names_is_found():
    result = check(lambda x: (x * 2, (x * 3).detach()), randn(2), outputs=(0, 1))
    assert codes(result) == {"GV102"}
    assert result.findings[0].output == 1
    assert codes(check(lambda x: (x * 3).detach(), randn(2), outputs=(0,))) == {"GV102"}


def test_a_detached_output_that_stands_still_or_is_not_named_is_right():
    assert codes(check(lambda x: (x * 2, torch.ones(3)), randn(2), outputs=(0, 1))) == set()
    assert codes(check(lambda x: (x * 2, (x * 3).detach()), randn(2))) == set()


# ---- GV103 non-finite-gradient
@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
def test_a_gradient_that_is_no_number_is_found_and_explains_the_jacobian(bad):
    result = check(square(lambda x, g: torch.where(x == 2.0, bad, 2 * x) * g), X)
    assert codes(result) == {"GV103"}
    assert result.findings[0].also == ("GV101",)
    assert "x[0,2]" in message(result, "GV103")


@pytest.mark.parametrize(
    "settings", [{"atol": 1e9}, {"rtol": 1e9}, {"eps": 1e-6, "atol": 1e9, "rtol": 1e9}]
)
def test_no_tolerance_lets_nan_pass(settings):
    assert "GV103" in codes(check(square(lambda x, g: g * torch.nan), X, **settings))


def test_the_norm_at_zero_is_no_fault_of_a_gradient_of_zero():
    assert codes(check(square(lambda x, g: 2 * x * g), torch.zeros(3, dtype=torch.float64))) <= {
        "GV009"
    }


# ---- GV103 beside
# NaN or infinity where the finite difference is finite and resolved is GV103, whatever else is
# there; an infinite derivative is left alone.
BESIDE = {  # forward, input; the first element is where backward is made to fail
    "a kink": (torch.relu, (0.3, 0.0, -1.0)),
    "a clamp": (lambda x: x.clamp(-1, 1), (0.3, 1.0, -1.0)),
    "a tie": (lambda x: x[0] ** 2 + x[1:].amax(), (0.3, 2.0, 2.0)),
    "noise": (lambda x: x * x + 1e-10 * (1e12 * x).sin(), (0.3, 1.0, 2.0)),
    "a saturated tail": (torch.tanh, (0.3, 25.0, -25.0)),
    "the end of a domain": (torch.sqrt, (0.3, 0.0, 2.0)),
}


def planted(forward: Any, value: float) -> type[Function]:
    class Planted(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            return forward(x)

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Tensor:
            x = ctx.saved_tensors[0].detach().requires_grad_()
            with torch.enable_grad():
                (found,) = torch.autograd.grad(forward(x), x, g)
            return torch.cat([torch.full_like(found[:1], value), found[1:]])

    return Planted


def leaf(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


@pytest.mark.parametrize("value", [float("nan"), float("inf")], ids=str)
@pytest.mark.parametrize("name", BESIDE)
def test_what_is_no_number_beside_it_is_found(name: str, value: float):
    forward, x = BESIDE[name]
    assert "GV103" in codes(
        check(planted(forward, value), leaf(*x), select=("GV101", "GV103"), ignore=("GV0",))
    )


class ClampedAcos(torch.autograd.Function):
    """As torch itself had it before 2.14."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.clamp(-1, 1).acos()

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return (x.abs() <= 1) * grad_output * -(1 - x.clamp(-1, 1) ** 2).rsqrt()


def test_nan_beside_a_finite_slope_on_one_side_is_found():
    """acos' is infinite at 1, and 0 · inf is what backward gives for the other outputs, which do
    not depend on that input."""
    result = check(
        ClampedAcos.apply, leaf(0.5, 1.0, -1.0), select=("GV101", "GV103"), ignore=("GV0",)
    )
    assert result.verdict == "fail" and codes(result) == {"GV103"}


@pytest.mark.parametrize(
    ("forward", "x"),
    [
        (torch.sqrt, leaf(0.0, 1.0, 2.0)),
        (torch.acos, leaf(0.5, 1.0, -1.0)),
        (lambda x: x.abs().sqrt(), leaf(0.0, 1.0, 2.0)),
        (lambda x: x.abs().sqrt() + 1000 * x, leaf(0.0, 1.0, 2.0)),
        (lambda x: x.sign() * x.abs().pow(1 / 3), leaf(0.0, 1.0, 2.0)),
    ],
    ids=["sqrt", "acos", "root of |x|", "steep root", "cube root"],
)
def test_a_derivative_that_is_infinite_is_left_alone(forward: Any, x: Tensor):
    assert not codes(check(forward, x, select=("GV101", "GV103"), ignore=("GV0",)))


# ---- GV104 not-a-subgradient
def with_slope_at_zero(forward, slope):
    """A function with a kink at 0 whose backward gives `slope` there, torch's gradient
    elsewhere."""

    class Kinked(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return forward(x)

        @staticmethod
        def backward(ctx, grad_output):
            x = ctx.saved_tensors[0].detach().requires_grad_()
            with torch.enable_grad():
                (gradient,) = torch.autograd.grad(forward(x).sum(), x)
            return grad_output * torch.where(x == 0, torch.full_like(x, slope), gradient)

    return Kinked


AT_KINKS = torch.tensor([-1.5, 0.0, 2.0], dtype=torch.float64)


@pytest.mark.parametrize(
    ("forward", "slope", "right"),
    [
        (torch.relu, 0.0, True),
        (torch.relu, 1.0, True),
        (torch.relu, 0.5, True),
        (torch.relu, 1.1, False),
        (torch.relu, -0.1, False),
        (torch.abs, 1.0, True),
        (torch.abs, 0.0, True),
        (torch.abs, 1.5, False),
        (lambda x: -x.abs(), -1.0, True),
        (lambda x: -x.abs(), 2.0, False),
        (lambda x: x.clamp_max(0), 1.0, True),
        (lambda x: x.clamp_max(0), -0.5, False),
    ],
)
def test_between_the_slopes_is_right_and_outside_is_not(forward, slope, right):
    result = check(with_slope_at_zero(forward, slope), AT_KINKS)
    assert (result.verdict, codes(result)) == (("pass", set()) if right else ("fail", {"GV104"}))
    assert sum(comparison.kinks for comparison in result.comparisons) == (1 if right else 0)


def test_the_message_names_the_element_and_both_slopes():
    text = message(check(with_slope_at_zero(torch.relu, 1.1), AT_KINKS), "GV104")
    assert "at the kink y0[1] / x[1] backward gives 1.1" in text
    assert "between 0 and 1" in text


def test_a_fixed_step_has_no_kink_test():
    result = check(with_slope_at_zero(torch.relu, 1.1), AT_KINKS, eps=1e-6)
    assert codes(result) == {"GV101"}


def test_ties_of_max_and_clamp_at_its_bound_pass_as_torch_differentiates_them():
    tied = torch.tensor([1.0, 1.0, 0.2], dtype=torch.float64)
    for function in (torch.max, torch.amax, lambda x: x.clamp(-1, 1), torch.nn.functional.relu6):
        assert codes(check(function, tied)) == set()


# ---- GV111 parameters
class Scales(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([2.0, -1.0, 0.5]))
        self.function = function

    def forward(self, x):
        return self.function.apply(x, self.weight.expand_as(x))


@pytest.mark.parametrize("count", [1, 4])
def test_a_parameters_gradient_that_is_averaged_is_found_under_its_name(count):
    averaged = product(lambda ctx, x, y, g: (g * y, g * x / 4))
    result = check(Scales(averaged), randn(count, 3))
    assert [(found.code, found.input) for found in result.findings] == [("GV111", "weight")]
    assert {each.rule: each.input for each in result.comparisons} == {
        "GV101": "0" if result.inputs[0].name == "0" else "x",
        "GV111": "weight",
    }


def test_an_inputs_gradient_that_is_wrong_is_not_the_parameters():
    wrong = product(lambda ctx, x, y, g: (g, g * x))
    assert [(found.code, found.input) for found in check(Scales(wrong), randn(4, 3)).findings] == [
        ("GV101", "x")
    ]


# ---- GV114 small-deviation
def scaled(by):
    """tanh whose gradient is off by a factor."""

    class Scaled(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            y = torch.tanh(x)
            ctx.save_for_backward(y)
            return y

        @staticmethod
        def backward(ctx, grad_output):
            return grad_output * (1 - ctx.saved_tensors[0] ** 2) * by

    return Scaled


@pytest.mark.parametrize(
    ("off", "expected"), [(0.0, set()), (1e-7, {"GV114"}), (1e-8, {"GV114"}), (1e-4, {"GV101"})]
)
def test_a_deviation_far_above_the_bars_and_below_the_tolerance_is_told(off, expected):
    assert codes(check(scaled(1 + off), randn(6))) == expected


def test_the_size_is_printed():
    assert "1e-07 of its size" in message(check(scaled(1 + 1e-7), randn(6)), "GV114")


@pytest.mark.parametrize(
    "function",
    [
        torch.exp,
        torch.sin,
        torch.sigmoid,
        torch.nn.functional.gelu,
        lambda x: x.softmax(0),
        torch.cumprod,
    ],
    ids=["exp", "sin", "sigmoid", "gelu", "softmax", "cumprod"],
)
def test_right_functions_deviate_by_no_more_than_their_bars(function):
    result = (
        check(lambda x: function(x, 0), randn(6))
        if function is torch.cumprod
        else check(function, randn(6))
    )
    assert codes(result) == set()


def test_a_fixed_step_has_no_bars_to_measure_by():
    assert codes(check(scaled(1 + 1e-7), randn(6), eps=1e-6)) == set()


@pytest.mark.parametrize("least", [1e-8, 1e-10])
def test_what_an_inverse_makes_of_rounding_is_no_deviation(least):
    """det(A)·A⁻ᵀ, whose closed form knows no inverse, is good to the condition number times a
    roundoff."""
    (u, _), (v, _) = torch.linalg.qr(randn(4, 4, seed=2)), torch.linalg.qr(randn(4, 4, seed=3))
    a = u * torch.tensor([1.0, 0.8, 0.6, least], dtype=torch.float64) @ v

    class Determinant(torch.autograd.Function):
        off = 0.0

        @staticmethod
        def forward(ctx, a):
            ctx.save_for_backward(a)
            return torch.linalg.det(a)

        @staticmethod
        def backward(ctx, grad_output):
            (a,) = ctx.saved_tensors
            return grad_output * torch.linalg.det(a) * torch.linalg.inv(a).T * (1 + Determinant.off)

    # Where rounding makes more of the gradient than the tolerance, nothing can be said of it.
    unknown = {"GV007"} if least == 1e-10 else set()
    assert codes(check(Determinant, a, select=("GV114",))) <= unknown
    Determinant.off = 5e-7
    found = codes(check(Determinant, a, select=("GV114",)))
    assert found <= unknown if least == 1e-10 else found == {"GV114"}


# ---- true reasons
# What keeps an element undecided is said as it is, and what can be decided is: the rounding of
# larger numbers inside f, kinks near x, several kinks together, places that nobody gave.
def differentiated(forward, gradient=None):
    """A Function with torch's own gradient of `forward`, or `gradient(grad_output, *inputs)`."""

    class Differentiated(Function):
        @staticmethod
        def forward(ctx, *inputs):
            ctx.save_for_backward(*inputs)
            return forward(*inputs)

        @staticmethod
        def backward(ctx, grad_output):
            if gradient is not None:
                return gradient(grad_output, *ctx.saved_tensors)
            with torch.enable_grad():
                leaves = [x.detach().requires_grad_() for x in ctx.saved_tensors]
                return torch.autograd.grad(forward(*leaves), leaves, grad_output)

    return Differentiated


def double(*numbers):
    return torch.tensor(numbers, dtype=torch.float64)


def pair(function, *inputs):
    return next(iter(evidence(function, *inputs).jacobian.pairs.values()))


# ---- the rounding of larger numbers inside f
@pytest.mark.parametrize(
    "forward", [lambda x: 1 + torch.erf(x), lambda x: 0.5 * x * (1 + torch.erf(x / math.sqrt(2)))]
)
def test_a_tail_that_cancels_is_undecided_by_its_rounding(forward):
    found = pair(
        differentiated(forward),
        double(-5.0, -5.3, -5.5) * (1.0 if forward(double(-1.0)) > 0 else 1.35),
    )
    assert {limit for limit, _ in found.limits} <= {Limit.CANCELS}


def test_a_zero_in_such_a_tail_is_not_right():
    found = pair(
        differentiated(lambda x: 1 + torch.erf(x), lambda g, x: torch.zeros_like(x)),
        double(-4.6, -4.2),
    )
    assert found.verdict is not Verdict.PASS


# ---- a kink near x
@pytest.mark.parametrize("gap", [1e-7, 1e-9])
@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("pooled", [lambda x: F.max_pool2d(x, 2), lambda x: x.amax(-1)])
def test_the_smaller_of_two_nearly_equal_numbers_has_a_zero_slope(pooled, seed, gap):
    x = randn(1, 1, 4, 4, seed=seed) * 10.0 ** (seed - 1)
    x[0, 0, 0, 0] = x.max() + 0.3
    x[0, 0, 0, 1] = x[0, 0, 0, 0] + gap

    def exchanged(grad_output, x):
        with torch.enable_grad():
            lowered = torch.where(x == x.max(), x - 0.1, x).detach().requires_grad_()
            return torch.autograd.grad(pooled(lowered), lowered, grad_output)

    assert pair(differentiated(pooled), x).verdict is Verdict.PASS
    assert pair(differentiated(pooled, exchanged), x).verdict is Verdict.MISMATCH


# ---- several kinks together
def all_of_them(grad_output, x):
    return grad_output * (x == x.max())


@pytest.mark.parametrize("x", [double(1.0, 1.0, 0.3), double(1.0, 1.0, 1.0, 0.3)])
def test_a_tie_that_gives_every_input_the_whole_gradient_is_no_subgradient(x):
    result = check(differentiated(torch.max, all_of_them), x)
    assert codes(result) == {"GV104"}
    assert "their sum is no slope along all of them together, which is 1" in message(
        result, "GV104"
    )
    assert check(differentiated(torch.amax), x).verdict == "pass"


@pytest.mark.parametrize(
    "name",
    [
        "hardtanh",
        "maximum",
        "abs",
        "overlapping windows",
        "relu of a product",
        "sorted differences",
        "max of abs",
    ],
)
def test_torchs_own_gradients_at_several_kinks_are_right(name):
    weight = double(1, -1, 0, 1, 1, 0, -1, 1, 0, 0, 1, 1).reshape(2, 6)
    forward = {
        "hardtanh": lambda x: F.hardtanh(x).sum(),
        "maximum": lambda x: torch.maximum(x[:3], x[3:]).sum(),
        "abs": lambda x: x.abs().sum(),
        "overlapping windows": lambda x: F.max_pool1d(x[None, None], 2, 1).sum(),
        "relu of a product": lambda x: (weight @ x).relu().sum(),
        "sorted differences": lambda x: (x[:, None] - x[None]).abs().sum(),
        "max of abs": lambda x: x.abs().max(),
    }[name]
    assert check(differentiated(forward), double(0.0, 1.0, -1.0, 0.0, 1.0, -1.0)).verdict == "pass"


# ---- places that nobody gave
def lambert_w(left):
    """W₀ by Halley's iteration; `left` of −1/e, where it is not defined."""

    class LambertW(Function):
        @staticmethod
        def forward(ctx, x):
            inside = x.clamp_min(-1 / math.e + 1e-12)
            w = torch.where(inside > 1, 0.8 * inside.clamp_min(1).log(), inside.clamp_min(-0.3678))
            for _ in range(30):
                f = w * w.exp() - inside
                w = w - f / (w.exp() * (w + 1) - (w + 2) * f / (2 * w + 2))
            w = torch.where(x < -1 / math.e, left, w)
            ctx.save_for_backward(w)
            return w

        @staticmethod
        def backward(ctx, grad_output):
            (w,) = ctx.saved_tensors
            return grad_output / (w.exp() * (1 + w))

    return LambertW


@pytest.mark.population(most=4)
@pytest.mark.parametrize("left", [-1.0, 0.0, -0.999, math.nan])
@pytest.mark.parametrize("seed", [1, 2])
def test_a_gradient_outside_the_domain_is_no_error(left, seed):
    result = check(lambert_w(left), double(-0.36, -0.1, 2.0), seed=seed)
    assert result.verdict == "pass"
    assert all(
        "where forward is constant" in each.message
        for each in result.findings
        if each.code == "GV113"
    )


def test_a_wrong_branch_that_moves_there_is_found():
    """|x|·x with the slope of x²: where forward moves, the second point is judged as before."""
    wrong = differentiated(
        lambda x: x.abs() * torch.where(x.abs() > 1.5, -x, x), lambda g, x: g * 2 * x.abs()
    )
    assert "GV113" in codes(check(wrong, double(-1.4, 0.7, 1.3)))
