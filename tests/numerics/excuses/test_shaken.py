"""Forwards that round something away alike at all points around: what is left is smooth, and has
another slope. Only rounding at random shows it.

The class: where one probability is 1 but for 1e-40, its logarithm is 0, and the entropy lacks a
term that its right gradient has. Both ways: a wrong gradient of a row that is not saturated stands,
beside such rows too; what jumps when its arguments round otherwise, a number at the edge of a
`floor`, hides none. The gradients are closed forms.
"""

import pytest
import torch
from live import evidence, randn

from gradverify.numerics.pairs.pair import Outcome
from gradverify.numerics.verdict import Limit
from numerics.differentiable import with_backward


def slopes(x, g):
    """−p (log p + H)."""
    logs = torch.log_softmax(x, -1)
    p = logs.exp()
    return -g[..., None] * p * (logs - (p * logs).sum(-1, keepdim=True))


def fused(x):
    logs = torch.log_softmax(x, -1)
    return -(logs.exp() * logs).sum(-1)


def by_softmax(x):
    p = torch.softmax(x, -1)
    return -(p * p.clamp_min(1e-30).log()).sum(-1)


def pair(forward, backward, x):
    return evidence(
        with_backward(forward, backward),
        x,
        dtype=str(x.dtype).removeprefix("torch."),
        mode="entries",
    ).jacobian.pairs[0, 0]


@pytest.mark.population(most=4)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("forward", [fused, by_softmax])
@pytest.mark.parametrize("size", [60.0, 100.0, 300.0, 1000.0])
@pytest.mark.parametrize("seed", range(2))
def test_the_entropy_of_saturated_logits_is_not_accused(forward, dtype, size, seed):
    assert not pair(forward, slopes, (size * randn(3, 6, seed=seed)).to(dtype)).count(
        Outcome.MISMATCH
    )


def test_what_is_hidden_is_undecided_and_says_why():
    found = pair(fused, slopes, 300 * randn(3, 6))
    assert found.count(Outcome.UNDECIDED, Outcome.STAIRCASE) and dict(found.limits).get(
        Limit.CANCELS
    )


@pytest.mark.population("share", most=4)
@pytest.mark.parametrize("share", [-1.0, 2.0, 1.01, 0.0])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("seed", range(2))
def test_a_row_that_is_not_saturated_is_found_wrong_beside_rows_that_are(share, dtype, seed):
    x = 300 * randn(3, 6, seed=seed)
    x[1] /= 300
    factor = torch.tensor([1.0, share, 1.0])
    assert pair(fused, lambda x, g: slopes(x, g * factor.to(x.dtype)), x.to(dtype)).count(
        Outcome.MISMATCH
    )


@pytest.mark.population(most=4)
@pytest.mark.parametrize("share", [-1.0, 2.0, 1.01, 0.0])
@pytest.mark.parametrize("size", [1.0, 3.0, 10.0])
@pytest.mark.parametrize("seed", range(2))
def test_so_is_every_row_of_moderate_logits(share, size, seed):
    assert pair(fused, lambda x, g: share * slopes(x, g), size * randn(3, 6, seed=seed)).count(
        Outcome.MISMATCH
    )


# Times 100 they lie beside whole numbers
EDGE = torch.tensor([0.29, 0.58, 0.57, 1.1, 0.7]).double()


@pytest.mark.parametrize("share", [1.0, 1.02])
def test_what_jumps_when_its_arguments_round_otherwise_hides_nothing(share):
    found = pair(
        lambda x: 1e-9 * x.sin() + torch.floor(EDGE * 100),
        lambda x, g: share * g * 1e-9 * x.cos(),
        randn(5),
    )
    assert bool(found.count(Outcome.MISMATCH)) == (share != 1)
