"""Kernels that take float32 alone are judged by the finite differences of their reference in
float64.

The truth is the closed form of the gradient; a wrong one is off in a single row.
"""

import pytest
import torch
from live import Oracles, check, codes, evidence, randn
from torch.autograd import Function

from gradverify.oracles.legs import InFloat64


def kernel(forward, backward):
    """A Function of one tensor that refuses every dtype but float32."""

    class Kernel(Function):
        @staticmethod
        def forward(ctx, x):
            if x.dtype != torch.float32:
                raise TypeError(f"expected float32, got {x.dtype}")
            ctx.save_for_backward(x)
            return forward(x)

        @staticmethod
        def backward(ctx, g):
            return backward(ctx.saved_tensors[0], g)

    return Kernel


def softmax(x):
    e = (x - x.amax(-1, keepdim=True)).exp()
    return e / e.sum(-1, keepdim=True)


def softmax_backward(x, g):
    y = softmax(x)
    return y * (g - (g * y).sum(-1, keepdim=True))


def rms_norm(x):
    return x * (x.square().mean(-1, keepdim=True) + 1e-6).rsqrt()


def rms_norm_backward(x, g):
    r = (x.square().mean(-1, keepdim=True) + 1e-6).rsqrt()
    return r * g - x * r**3 * (g * x).mean(-1, keepdim=True)


def one_row_off(backward):
    def off(x, g):
        found = backward(x, g)
        return torch.cat([found[:-1], found[-1:] * 1.01])

    return off


OPERATORS = [(softmax, softmax_backward, "softmax"), (rms_norm, rms_norm_backward, "rms_norm")]
X = randn(5, 33, dtype=torch.float32)


def judged(forward, backward, reference, x=X, **settings):
    name = f"oracles.test_float32_kernels:{reference}"
    return check(
        kernel(forward, backward),
        x,
        dtype="float32",
        select=("GV101",),
        oracles=Oracles(reference=name),
        **settings,
    )


@pytest.mark.parametrize(("forward", "backward", "reference"), OPERATORS)
def test_beside_a_reference_they_are_decided_right_and_wrong(forward, backward, reference):
    right = judged(forward, backward, reference)
    assert (right.verdict, codes(right)) == ("pass", set())
    assert right.mode_reason.endswith(
        "finite differences in float64, of the reference, gradients in float32"
    )
    wrong = judged(forward, one_row_off(backward), reference)
    assert (wrong.verdict, codes(wrong)) == ("fail", {"GV101"})


@pytest.mark.parametrize("reference", ["other", "raises"])
def test_a_reference_of_another_function_or_that_raises_takes_no_part(reference):
    oracles = Oracles(reference=f"oracles.test_float32_kernels:{reference}")
    found = evidence(kernel(softmax, softmax_backward), X[:2, :4], dtype="float32", oracles=oracles)
    # Its own, which says that it is float32
    assert isinstance(found.in_float64, InFloat64) and not found.in_float64.of_reference


def other(x):
    return softmax(x) * 1.0001


def raises(x):
    raise ValueError(x.dtype)
