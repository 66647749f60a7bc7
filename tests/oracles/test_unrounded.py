"""Functions that round to 16 bits inside, whose finite differences meet treads: no right gradient
is accused, no wrong one passes.

The class of faults: a tread that no step leaves is taken for a slope of zero, a step over half a
tread for a slope that is off; and where a flat f hides a dependence, one backward is read as the
rows of two outputs. The gradients are torch's own of the same function without the casts.
"""

import pytest
import torch
import torch.nn.functional as F
from live import check, codes, randn
from torch.autograd import Function

BF16, FP16 = torch.bfloat16, torch.float16
FUNCTIONS = {
    "gelu": F.gelu,
    "tanh": torch.tanh,
    "square": lambda x: x * x,
    "unit rows": lambda x: x / x.norm(dim=-1, keepdim=True),
    "layer norm": lambda x: F.layer_norm(x, x.shape[-1:]),
    "rms norm": lambda x: x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6),
    "logsumexp": lambda x: torch.logsumexp(x, -1),
    "product": lambda x: x @ x.mT,
}
ROUNDED = {  # where the casts are: f in 16 bits; f of rounded numbers; a rounded f
    "in": lambda f, x, low: f(x.to(low)).to(x.dtype),
    "of": lambda f, x, low: f(x.to(low).to(x.dtype)),
    "out": lambda f, x, low: f(x).to(low).to(x.dtype),
}


def rounding(name, where, low, damage=lambda g: g):
    f = FUNCTIONS[name]

    class Op(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return ROUNDED[where](f, x, low)

        @staticmethod
        def backward(ctx, grad_output):
            x = ctx.saved_tensors[0].detach().requires_grad_()
            with torch.enable_grad():
                y = f(x)
            return damage(torch.autograd.grad(y, x, grad_output)[0])

    return Op


RIGHT = [
    ("gelu", "in", BF16, 0),
    ("unit rows", "in", FP16, 1),
    ("unit rows", "out", FP16, 1),
    ("layer norm", "of", BF16, 1),
    ("rms norm", "in", FP16, 1),
    ("tanh", "of", BF16, 1),
    ("square", "of", BF16, 1),
]


@pytest.mark.population(most=3)
@pytest.mark.parametrize(("name", "where", "low", "seed"), RIGHT)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_a_right_gradient_is_not_accused(name, where, low, seed, dtype):
    result = check(rounding(name, where, low), randn(3, 5, seed=seed).to(dtype))
    assert (
        result.verdict,
        {finding.code for finding in result.findings if finding.severity == "error"},
    ) == ("undecided", {"GV007"})


@pytest.mark.population("name")
@pytest.mark.parametrize("name", ["gelu", "unit rows", "square"])
@pytest.mark.parametrize("damage", [lambda g: -g, lambda g: 2 * g], ids=["sign", "twice"])
def test_a_wrong_gradient_is_found_all_the_same(name, damage):
    assert codes(check(rounding(name, "in", FP16, damage), randn(3, 5, seed=1))) & {
        "GV101",
        "GV102",
    }


@pytest.mark.parametrize("low", [BF16, FP16])
def test_zeros_do_not_pass_because_f_is_flat_over_every_step(low):
    assert (
        check(rounding("logsumexp", "in", low, lambda g: 0 * g), randn(3, 5, seed=3)).verdict
        == "undecided"
    )


def test_zeros_are_right_where_f_does_not_move_without_its_casts_either():
    class Count(Function):
        """How many numbers of a row are above 0, counted in 16 bits."""

        @staticmethod
        def forward(ctx, x):
            return (x > 0).to(FP16).sum(-1).to(x.dtype)

        @staticmethod
        def backward(ctx, grad_output):
            return torch.zeros(*grad_output.shape, 5, dtype=grad_output.dtype)

    assert check(Count, randn(3, 5)).verdict == "pass"


def cancelling(forward, backward):
    class Op(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return forward(x)

        @staticmethod
        def backward(ctx, grad_output):
            return backward(ctx.saved_tensors[0], grad_output)

    return Op


def scale(x):
    return ((x * x).mean(1, keepdim=True) - x.mean(1, keepdim=True) ** 2 + 1e-5).rsqrt()


def normed(x):
    return (x - x.mean(1, keepdim=True)) * scale(x)


def norm_gradient(x, g, coupled=1.0):
    return scale(x) * (
        g - g.mean(1, keepdim=True) - coupled * normed(x) * (g * normed(x)).mean(1, keepdim=True)
    )


def haversed(x):
    return (1 - x.cos()) / x


def haversed_gradient(x, g):
    return g * (x.sin() / x - 2 * (x / 2).sin() ** 2 / x**2)


SMALL = torch.tensor([1e-3, 3e-4, 1e-2, 0.5])


@pytest.mark.parametrize(("seed", "times"), [(0, 1.0), (1, 0.0), (2, 2.0)])
def test_where_float32_cancels_a_right_gradient_is_not_accused_and_a_wrong_one_is(seed, times):
    """The variance as E[x²] − E[x]², at a mean of 1,000 standard deviations: float32 has two digits
    of it, and moves in steps of 1/16."""
    norm = cancelling(normed, lambda x, g: norm_gradient(x, g, times))
    found = check(norm, 1000 + randn(2, 6, seed=seed, dtype=torch.float32), rtol=1e-3)
    assert found.verdict == ("undecided" if times == 1 else "fail")


@pytest.mark.parametrize(("seed", "factor"), [(0, 1.0), (1, 1.0), (2, 1.05), (0, -1.0)])
def test_a_step_that_float32_makes_does_not_refute_what_is_right_without_it(seed, factor):
    x = SMALL * (1 + 0.1 * torch.rand(4, generator=torch.Generator().manual_seed(seed)))
    found = check(cancelling(haversed, lambda x, g: factor * haversed_gradient(x, g)), x)
    assert found.verdict == ("pass" if factor == 1 else "fail")
