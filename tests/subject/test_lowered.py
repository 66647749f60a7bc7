"""Arguments a random part of float32's roundoff off: what rounds is moved by as much, what an operation only picks is not moved at all."""

import torch

from gradverify.numerics.rungs import U32
from gradverify.subject.lowered import Perturbed

X = torch.randn(64, 64, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def perturbed(f, seed=0):
    with Perturbed(torch.Generator().manual_seed(seed)):
        return f(X)


def test_a_product_is_off_by_what_float32_would_be_and_otherwise_for_another_seed():
    off = perturbed(lambda x: x @ x) - X @ X
    assert 0.5 < off.std() / (U32 * 64**0.5) < 2        # sums of 64 products
    assert not torch.equal(off, perturbed(lambda x: x @ x, 1) - X @ X)


def test_what_is_only_picked_stays():
    for f in (torch.clone, torch.neg, torch.relu, lambda x: x.amax(1), lambda x: torch.where(x > 0, x, 0.0), lambda x: x.sort(1).values):
        assert torch.equal(perturbed(f), f(X))
    assert torch.equal(perturbed(lambda x: x == x.amax(1, keepdim=True)), X.amax(1, keepdim=True) == X)


def test_float32_and_integers_are_left_alone():
    assert torch.equal(perturbed(lambda x: x.float().exp()), X.float().exp())
    assert torch.equal(perturbed(lambda x: x.argsort(1)), X.argsort(1))
