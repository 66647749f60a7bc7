"""Buffers that follow the parameters too slowly to come to rest: backward takes them for constants,
and no one can say whether that is right.

The class: a power iteration whose leading singular values nearly agree. Both ways: it is not
accused, and one that comes to rest is judged.
"""

import pytest
import torch
from live import check, codes, randn


def normed(gap, n=6):
    """Spectral norm of a layer whose two largest singular values are so far apart."""
    torch.manual_seed(0)
    layer = torch.nn.Linear(n, n).double()
    u, _, v = torch.linalg.svd(randn(n, n))
    values = torch.linspace(2.0, 0.6, n, dtype=torch.float64)
    values[1] = values[0] * (1 - gap)
    with torch.no_grad():
        layer.weight.copy_(u @ torch.diag(values) @ v)
    return torch.nn.utils.parametrizations.spectral_norm(layer)


@pytest.mark.parametrize("gap", [0.0005])
def test_what_does_not_come_to_rest_is_undecided_and_says_why(gap):
    result = check(normed(gap), randn(3, 6, seed=1), select=("GV1", "GV007"))
    assert result.verdict == "undecided"
    assert (
        "buffers follow its parameters from call to call and do not come to rest" in result.reason
    )
    assert not {"GV101", "GV111", "GV113"} & codes(result)


def test_what_comes_to_rest_is_judged():
    assert (
        check(normed(0.3), randn(3, 6, seed=1), select=("GV1", "GV007"), second_order=False).verdict
        == "pass"
    )


class Wrong(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x * w

    @staticmethod
    def backward(ctx, grad):
        x, w = ctx.saved_tensors
        return grad * w, 1.1 * (grad * x)


class Counting(torch.nn.Module):
    """A wrong gradient beside a counter that enters the output: that never comes to rest, and is no
    excuse."""

    def __init__(self):
        super().__init__()
        self.w = torch.nn.Parameter(randn(4, seed=2))
        self.register_buffer("steps", torch.ones((), dtype=torch.float64))

    def forward(self, x):
        self.steps += 1
        return Wrong.apply(x, self.w) * self.steps


def test_a_wrong_gradient_beside_a_counter_is_found():
    assert "GV111" in codes(check(Counting(), randn(4)))
