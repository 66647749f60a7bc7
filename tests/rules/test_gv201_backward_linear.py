from __future__ import annotations

import re
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from live import check, codes, message, randn
from torch.autograd import Function

from rules.functions import Right, X, square, unary

NON_LINEAR = {
    "ignores it": lambda x, g: 2 * x,
    "its size": lambda x, g: 2 * x * g.abs(),
    "its sign": lambda x, g: 2 * x * g.sign(),
    "clipped": lambda x, g: 2 * x * g.clamp(-10, 10),
    "clipped by norm": lambda x, g: 2 * x * g / g.norm().clamp_min(1.0),
    "normalised": lambda x, g: 2 * x * g / g.norm().clamp_min(1e-12),
    "squared": lambda x, g: 2 * x * g * g,
    "plus a constant": lambda x, g: 2 * x * g + 1e-3,
    "large masked": lambda x, g: 2 * x * g * (g.abs() < 1e3),
    "positive only": lambda x, g: 2 * x * g.clamp_min(0),
    "rounded": lambda x, g: 2 * x * g.round(),
    "float16 inside": lambda x, g: 2 * x * g.half().double(),
    "exponential": lambda x, g: 2 * x * g.exp(),
    "largest only": lambda x, g: (
        2 * x * torch.where(g.abs() == g.abs().max(), g, torch.zeros_like(g))
    ),
}


@pytest.mark.parametrize("backward", NON_LINEAR.values(), ids=NON_LINEAR)
def test_a_backward_that_is_not_linear_is_found(backward):
    result = check(square(backward), X)
    assert (result.verdict, codes(result)) == ("fail", {"GV201"})
    assert "backward is not linear in grad_output: at x[" in message(result, "GV201")


# Linear for cotangents of order 1 and more, and not for small ones.
SMALL_ONES = {
    "small flushed to zero": lambda x, g: (
        2 * x * torch.where(g.abs() < 1e-6, torch.zeros_like(g), g)
    ),
    "nothing to solve": lambda x, g: 2 * x * g if g.norm() > 1e-8 else torch.zeros_like(x),
    "a small number in a norm": lambda x, g: 2 * x * g * g.norm() / (g.norm() + 1e-9),
}


@pytest.mark.parametrize("backward", SMALL_ONES.values(), ids=SMALL_ONES)
def test_small_cotangents_under_a_tolerance_are_a_warning_and_the_jacobian_is_judged(backward):
    result = check(square(backward), X)
    assert [found.severity for found in result.findings if found.code == "GV201"] == ["warning"]
    assert result.verdict == "pass"
    assert "linear in grad_output for factors of order 1, but not for small ones" in message(
        result, "GV201"
    )
    assert result.comparisons
    wrong = check(square(lambda x, g: 1.5 * backward(x, g)), X)
    assert wrong.verdict == "fail" and "GV101" in codes(wrong)


@pytest.mark.parametrize(
    "backward",
    [
        lambda x, g: 2 * x * g + 1e-8,
        lambda x, g: 2 * x * g * (1 + 1e-10 * g.abs()),
        lambda x, g: 2 * x * g.clamp(-1e5, 1e5),
    ],
    ids=["a constant", "large ones bend", "large ones clipped"],
)
def test_what_is_small_but_shows_for_zeros_or_for_large_cotangents_is_an_error(backward):
    result = check(square(backward), X)
    assert [(found.code, found.severity) for found in result.findings] == [("GV201", "error")]


DUST = {
    "softmax rows summed": lambda x: x.softmax(-1).sum(-1),
    "softmax rows summed less one": lambda x: x.softmax(-1).sum(-1) - 1,
    "layer norm summed": lambda x: F.layer_norm(x, (5,)).sum(-1),
    "group norm summed": lambda x: F.group_norm(x[None], 1).sum(),
    "batch norm summed": lambda x: F.batch_norm(x, None, None, training=True).sum(0),
    "norm of a unit vector": lambda x: F.normalize(x).norm(dim=1),
    "centred and summed": lambda x: (x - x.mean()).sum(),
    "x times one over x": lambda x: x * (1 / x),
    "sin squared plus cos squared": lambda x: x.sin() ** 2 + x.cos() ** 2,
    "far off": lambda x: (x + 1e10) - 1e10,
}


@pytest.mark.population(most=10)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("function", DUST.values(), ids=DUST)
def test_gradients_that_are_rounding_throughout_raise_no_false_alarm(function, dtype):
    result = check(
        function,
        randn(3, 5).to(dtype),
        dtype=str(dtype).removeprefix("torch."),
        select=("GV201",),
        ignore=("GV0",),
    )
    assert "GV201" not in codes(result)


def test_a_small_gradient_is_not_dust():
    assert codes(check(square(lambda x, g: 2 * x * g.abs()), 1e-150 * X)) == {"GV201"}
    assert "GV201" not in codes(check(Right, 1e-150 * X))


def test_complex_cotangents_are_split_too():
    conjugates = square(lambda x, g: 2 * x.conj() * g.real)
    assert (
        codes(check(square(lambda x, g: 2 * x.conj() * g), randn(3, dtype=torch.complex128)))
        == set()
    )
    # Linear over the reals, and wrong
    assert "GV201" not in codes(check(conjugates, randn(3, dtype=torch.complex128)))
    assert codes(
        check(square(lambda x, g: 2 * x.conj() * g.abs()), randn(3, dtype=torch.complex128))
    ) == {"GV201"}


@pytest.mark.parametrize("seed", range(3))
def test_a_guided_relu_is_found_wherever_its_one_open_element_lies_in_the_mask(seed):
    x = torch.tensor([1.0, -1.0], dtype=torch.float64)
    guided = unary(torch.relu, lambda x, g: g * (x > 0) * (g > 0))
    assert codes(check(guided, x, seed=seed, select=("GV201",), ignore=("GV0",))) == {"GV201"}
    assert (
        codes(
            check(
                unary(torch.relu, lambda x, g: g * (x > 0)),
                x,
                seed=seed,
                select=("GV201",),
                ignore=("GV0",),
            )
        )
        == set()
    )


class Loss(Function):
    """The mean of the squares: one element, of which there is no half."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.square().mean()

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return 2 * x * g / x.numel()


class ClipsLoss(Loss):
    @staticmethod
    def backward(ctx, g):
        return Loss.backward(ctx, g.clamp(-5, 5))


class FlushesLoss(Loss):
    @staticmethod
    def backward(ctx, g):
        return Loss.backward(ctx, torch.where(g.abs() < 1e-6, 0 * g, g))


class ClipsBoth(Loss):
    """Two elements."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.stack([x[0, 0], x[0, 1]]).square()

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        gradient = torch.zeros_like(x)
        gradient[0, :2] = 2 * x[0, :2] * g.clamp(-5, 5)
        return gradient


@pytest.mark.parametrize("seed", range(2))
def test_a_loss_gets_a_large_and_a_small_cotangent_whatever_is_drawn(seed):
    assert codes(check(Loss, X, seed=seed)) == set()
    assert (
        codes(check(ClipsLoss, X, seed=seed)) == codes(check(ClipsBoth, X, seed=seed)) == {"GV201"}
    )
    assert [
        (found.code, found.severity) for found in check(FlushesLoss, X, seed=seed).findings
    ] == [("GV201", "warning")]


class Exponential(Function):
    """torch's own backward of matrix_exp: of a matrix that grad_output is a block of, whose
    squarings take digits where that is large."""

    @staticmethod
    def forward(ctx, a):
        ctx.save_for_backward(a)
        return torch.matrix_exp(a)

    @staticmethod
    def backward(ctx, g):
        (a,) = ctx.saved_tensors
        return torch.matrix_exp(
            torch.cat([torch.cat([a.mT, g], 1), torch.cat([torch.zeros_like(a), a.mT], 1)])
        )[:3, 3:]


class ClipsExponential(Exponential):
    @staticmethod
    def backward(ctx, g):
        return Exponential.backward(ctx, g.clamp(-1e4, 1e4))


class HalvesExponential(Exponential):
    @staticmethod
    def backward(ctx, g):
        return Exponential.backward(ctx, g) / 2


def test_what_float32_alone_makes_of_large_cotangents_is_a_warning():
    x = randn(3, 3, dtype=torch.float32)
    right = check(Exponential, x)
    assert (right.verdict, [(found.code, found.severity) for found in right.findings]) == (
        "pass",
        [("GV201", "warning")],
    )
    assert "loses digits for large ones" in message(right, "GV201")
    assert codes(check(Exponential, x.double())) == set()
    assert [(found.code, found.severity) for found in check(ClipsExponential, x).findings] == [
        ("GV201", "error")
    ]
    assert "GV101" in codes(check(HalvesExponential, x))


def products(damage):
    """Of seven numbers of a row; `damage`(gradient, grad_output)."""

    class Products(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.prod(-1)

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            return damage(grad[:, None] * x.prod(-1, keepdim=True) / x, grad[:, None])

    return Products


UNDERFLOWING = (1e-6 * (1 + randn(3, 7).abs())).float()


def test_a_gradient_that_underflows_for_small_cotangents_is_linear():
    assert not codes(
        check(products(lambda gradient, grad: gradient), UNDERFLOWING, select=("GV201",))
    ) & {"GV201"}


@pytest.mark.parametrize(
    "damage",
    [
        lambda gradient, grad: gradient * grad.sign(),
        lambda gradient, grad: gradient * (1 + grad),
        lambda gradient, grad: gradient.abs(),
    ],
)
@pytest.mark.parametrize("size", [1.0, 1e6])
def test_one_that_is_not_linear_is_found_beside_underflow(damage, size):
    assert "GV201" in codes(check(products(damage), size * UNDERFLOWING, select=("GV201",)))


def of_one(change):
    """x², of whose cotangent the first element is changed."""

    def backward(x, g):
        flat = g.flatten()
        return 2 * x * torch.cat([change(flat[:1]), flat[1:]]).view_as(g)

    return square(backward)


@pytest.mark.population(most=8)
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("most", [2.0, 1e3, 1e6])
@pytest.mark.parametrize("shape", [(4,), (3, 4)])
def test_one_clipped_element_is_found_whatever_is_drawn(shape, most, seed):
    wrong = of_one(lambda g: g.clamp(-most, most))
    result = check(wrong, randn(*shape, seed=seed), seed=seed)
    assert (result.verdict, codes(result)) == ("fail", {"GV201"})
    assert message(result, "GV201").startswith("backward is not linear in grad_output: at x[")


# ---- which size is at fault
def test_large_ones_that_are_off_by_less_than_rtol_are_warned_of_with_as_many_digits_as_show_it():
    result = check(square(lambda x, g: 2 * x * g * (1 + 1e-7 * (g.abs() > 1e4))), X)
    assert (result.verdict, [(found.code, found.severity) for found in result.findings]) == (
        "pass",
        [("GV201", "warning")],
    )
    assert "loses digits for large ones" in message(result, "GV201")
    one, other = map(float, re.findall(r"(?:gives|but) (-?[0-9]\S+)", message(result, "GV201")))
    assert abs(other / one - 1) == pytest.approx(1e-7, rel=0.3)


class WrongAtSumZero(Function):
    """Softmax along the last dimension; of a row of grad_output that adds up to `exactly` zero, or
    nearly so, the gradient is off."""

    exactly, factor = True, 0.0

    @classmethod
    def forward(cls, ctx, x):
        y = x.softmax(-1)
        ctx.save_for_backward(y)
        return y

    @classmethod
    def backward(cls, ctx, g):
        (y,) = ctx.saved_tensors
        total = g.sum(-1, keepdim=True)
        zero = (total == 0 if cls.exactly else total.abs() < 1e-6) & g.any(-1, keepdim=True)
        right = y * (g - (g * y).sum(-1, keepdim=True))
        return torch.where(zero, cls.factor * right, right)


@pytest.mark.population(most=8)
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("shape", [(5,), (3, 4), (2, 3, 5), (1, 64)])
@pytest.mark.parametrize(
    ("exactly", "factor"), [(True, 0.0), (True, 1.1), (False, 0.0), (True, 1.0)]
)
def test_a_backward_that_is_wrong_only_for_a_row_that_adds_up_to_zero_is_found(
    exactly, factor, shape, seed
):
    function = type("Softmax", (WrongAtSumZero,), {"exactly": exactly, "factor": factor})
    assert codes(check(function, randn(*shape), seed=seed, select=("GV201",))) == (
        set() if factor == 1 else {"GV201"}
    )


def saturated_layer(bend):
    """softmax(x @ w), which may be saturated: what cancels in its slopes rounds by more than 1e-9
    of them."""

    class Layer(Function):
        @staticmethod
        def forward(ctx, x, w):
            y = (x @ w).softmax(-1)
            ctx.save_for_backward(x, w, y)
            return y

        @staticmethod
        def backward(ctx, grad):
            x, w, y = ctx.saved_tensors
            grad = bend(grad) if bend else grad
            products = y * (grad - (grad * y).sum(-1, keepdim=True))
            return products @ w.T, x.T @ products

    return Layer


def saturating(seed):
    """Inputs at which the largest slope of a softmax is below 1e-10, and not zero."""
    x, w = randn(3, 4, seed=seed), 20 * randn(4, 5, seed=seed + 50)
    while ((weights := (x @ w).softmax(-1)) * (1 - weights)).max() > 1e-10:
        x = 1.05 * x
    return x, w


@pytest.mark.parametrize("name", ["right", "its sign", "squared"])
def test_a_saturated_layer_in_float64_is_linear_but_for_rounding(name):
    for seed in (0, 1, 3, 4):
        bend = None if name == "right" else partial(NON_LINEAR[name], 0.5)
        found = "GV201" in codes(
            check(saturated_layer(bend), *saturating(seed), seed=seed, select=("GV201",))
        )
        assert found is (name != "right")
