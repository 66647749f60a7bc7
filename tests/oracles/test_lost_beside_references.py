"""What float32 costs forward is granted to the gradients that a reference is compared with; a wrong
gradient is none of that cost."""

import pytest
import torch
from live import Oracles, evidence, randn
from torch.autograd import Function

from gradverify.numerics.pairs.pair import Outcome


def layer_norm(x, w, b):
    return torch.nn.functional.layer_norm(x, x.shape[-1:], w, b, 1e-5)


def moments(x):
    """The mean, and 1 / σ by E[x²] − E[x]²."""
    m = x.mean(-1, keepdim=True)
    return m, torch.rsqrt((x * x).mean(-1, keepdim=True) - m * m + 1e-5)


def naive(damage=lambda dx, dw, n: (dx, dw), forward=None):
    class LayerNorm(Function):
        @staticmethod
        def forward(ctx, x, w, b):
            ctx.save_for_backward(x, w)
            m, r = moments(x)
            return forward(x, w, b) if forward else (x - m) * r * w + b

        @staticmethod
        def backward(ctx, dy):
            x, w = ctx.saved_tensors
            m, r = moments(x)
            n, g = (x - m) * r, dy * w
            dx = r * (g - g.mean(-1, keepdim=True) - n * (g * n).mean(-1, keepdim=True))
            return *damage(dx, (dy * n).sum(0), n), dy.sum(0)

    return LayerNorm


def compared(function, mean, seed, rows=2):
    """How many elements are wrong, and how many undecided."""
    x = (randn(rows, 6, seed=seed) + mean).float()
    w = randn(6, seed=seed + 1).float()
    b = randn(6, seed=seed + 2).float()
    seen = evidence(
        function, x, w, b, dtype="float32", oracles=Oracles(reference=f"{__name__}:layer_norm")
    ).reference
    pairs = seen.rows.values()
    return sum(pair.count(Outcome.MISMATCH) for pair in pairs), sum(
        pair.count(Outcome.UNDECIDED) for pair in pairs
    )


@pytest.mark.parametrize(("mean", "seed"), [(30.0, 12), (300.0, 11)])
def test_a_right_one_is_not_accused(mean, seed):
    wrong, undecided = compared(naive(), mean, seed, rows=1)
    assert wrong == 0
    assert undecided == 0 or mean >= 100


WRONG = {
    "2 % off": lambda dx, dw, n: (1.02 * dx, dw),
    "other sign": lambda dx, dw, n: (dx, -dw),
    "of the weight": lambda dx, dw, n: (dx, 1.1 * dw),
    "one row": lambda dx, dw, n: (dx * torch.tensor([[1.0], [1.05]]), dw),
    "one column": lambda dx, dw, n: (torch.cat([dx[:, :-1], 0 * dx[:, -1:]], 1), dw),
    "not centred": lambda dx, dw, n: (dx + 1e-3 * n, dw),
}


@pytest.mark.population(most=3)
@pytest.mark.parametrize("how", list(WRONG))
@pytest.mark.parametrize("mean", [0.0, 100.0])
def test_a_wrong_one_is_caught(how, mean):
    assert compared(naive(WRONG[how]), mean, 11)[0] > 0


def test_a_backward_that_loses_what_forward_does_not_does_not_pass():
    assert sum(compared(naive(forward=layer_norm), 300.0, 11, rows=1)) > 0
