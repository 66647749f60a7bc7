"""Forwards with noise. Faults stood for: a right gradient accused because noise at x is larger than
where it was measured, a wrong one passed because noise hides it, and a straight-through estimator
passed or accused for what torch makes of it."""

import live
import pytest
import torch
from torch.autograd import Function

X = live.randn(6, seed=3)
FACTORS = [1 + 0.37 * k / 16 for k in range(16)]


def rounded(y, relative=1e-9):
    """y with the rounding of larger numbers that cancel in it, which torch differentiates
    through."""
    large = 2.0 ** torch.ceil(torch.log2(relative * 2.0**53 * y.detach().abs().max()))
    return sum(((y * a + large) - large) / a for a in FACTORS) / len(FACTORS)


def by_bits(y, relative=1e-9):
    """y with noise from its own bits, which torch does not differentiate."""
    bits = (y.detach().contiguous().view(torch.int64) * 6364136223846793005) >> 40
    return y * (1 + relative * (bits.double() / 2**23))


def function(forward, clean, factor=1.0, also=None):
    """A Function whose backward is the gradient of `clean` times a factor."""

    class Made(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return forward(x)

        @staticmethod
        def backward(ctx, grad_output):
            leaf = ctx.saved_tensors[0].detach().requires_grad_()
            with torch.enable_grad():
                (gradient,) = torch.autograd.grad(clean(leaf), leaf, grad_output)
            return factor * (gradient if also is None else also(gradient))

    return Made


def judged(checked, *inputs, **changes):
    return live.check(checked, *(inputs or (X,)), select=("GV1",), **changes)


CLEAN = {
    "tanh": torch.tanh,
    "softmax": lambda x: x.softmax(0),
    "norm": lambda x: x / x.norm(),
    "relu of a sum": lambda x: (x + 0.1).relu() * x.sum(),
}


@pytest.mark.population(by="name")
@pytest.mark.parametrize("noisy", [rounded, by_bits])
@pytest.mark.parametrize("name", CLEAN)
def test_no_right_gradient_of_a_noisy_forward_is_accused_and_no_wrong_one_passes(name, noisy):
    verdicts = [
        judged(function(lambda x: noisy(CLEAN[name](x), 3e-9), CLEAN[name], factor)).verdict
        for factor in (1.0, 1 + 1e-4, 1.01)
    ]
    assert (
        verdicts[0] in ("pass", "undecided")
        and "pass" not in verdicts[1:]
        and verdicts[2] == "fail"
    )


@pytest.mark.parametrize(
    ("factor", "verdict"), [(1.0, "undecided"), (1 + 1e-5, "undecided"), (1.01, "fail")]
)
def test_an_element_that_noise_moves_by_a_few_bars_in_a_noisy_pair_is_no_mismatch(factor, verdict):
    x = live.randn(6, seed=17)
    assert (
        judged(
            function(lambda x: rounded(CLEAN["norm"](x), 2e-6), CLEAN["norm"], factor), x
        ).verdict
        == verdict
    )


class Straight(Function):
    """Meant to be one, and torch's own derivative of this forward is one too."""

    @staticmethod
    def forward(ctx, x):
        return x + (x.round() - x).detach()

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output


class StraightBySize(Straight):
    """The same by adding a large number, in steps of 1/64: torch differentiates through them."""

    @staticmethod
    def forward(ctx, x):
        large = 1.5 * 2.0**46
        return (x + large) - large


@pytest.mark.parametrize("checked", [Straight, StraightBySize])
def test_a_straight_through_estimator_does_not_pass(checked):
    assert judged(checked).verdict != "pass"
