from __future__ import annotations

import random

import numpy as np
import pytest
import torch
from live import check, codes, message, randn


def counting(step):
    calls = [0]

    def function(x):
        calls[0] += 1
        return x * (1 + step * calls[0])

    return function


def test_a_counter_is_named_as_that_and_not_as_a_wrong_gradient():
    result = check(counting(1.0), randn(3))
    assert (result.verdict, codes(result)) == ("fail", {"GV205"})
    assert "when called again with the same input" in message(result, "GV205")
    assert not result.comparisons
    assert [run.reason for run in result.rules if run.code == "GV101"] == ["the forward is not deterministic"]


def test_a_generator_of_its_own_is_caught():
    own = torch.Generator().manual_seed(0)
    assert codes(check(lambda x: x * torch.rand(3, generator=own, dtype=torch.float64), randn(3))) == {"GV205"}


def test_random_numbers_of_the_global_generators_are_the_same_in_every_forward():
    for draw in (lambda x: torch.rand_like(x), lambda x: torch.nn.functional.dropout(torch.ones_like(x)),
                 lambda x: torch.from_numpy(np.random.rand(*x.shape)), lambda x: torch.full_like(x, random.random())):
        assert codes(check(lambda x, draw=draw: (x + 3) * draw(x), randn(5))) == set()


def test_without_reseeding_a_random_function_is_told_how_to_be_checked():
    result = check(torch.nn.functional.dropout, randn(20), reseed=False)
    assert codes(result) == {"GV205"}
    assert "leave out `reseed: false`" in result.findings[0].hint


def test_small_differences_can_be_accepted():
    assert codes(check(counting(1e-13), randn(3))) == {"GV205"}
    assert "GV205" not in codes(check(counting(1e-13), randn(3), nondeterminism=1e-9))


def test_nan_at_the_same_places_is_no_difference():
    result = check(lambda x: torch.stack([x.sum(), (x * torch.nan).sum()]), randn(3))
    assert codes(result) == {"GV006"}


def halves(like):
    """A mask of dropout, drawn where the state of the generator is put back."""
    with torch.random.fork_rng(devices=[]):
        return (torch.rand_like(like) < 0.5).to(like.dtype) * 2


def turned(g):
    """There and back by a random rotation that nobody hears of."""
    with torch.random.fork_rng(devices=[]):
        q, _ = torch.linalg.qr(torch.randn(g.numel(), g.numel(), dtype=g.dtype))
    return (q.mT @ (q @ g.reshape(-1))).reshape(g.shape)


def dropout(mask_of):
    class Dropout(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            mask = halves(x)
            ctx.save_for_backward(mask)
            return x * mask

        @staticmethod
        def backward(ctx, g):
            return mask_of(ctx.saved_tensors[0], g)

    return Dropout


def test_a_mask_that_backward_draws_again_is_another_one_even_where_all_draws_are_hidden():
    result = check(dropout(lambda mask, g: g * halves(g)), randn(12))
    assert result.verdict == "fail"
    assert "GV101" in codes(result)
    assert "GV205" not in codes(result)


@pytest.mark.parametrize("shape", [(12,), (6, 5)])
@pytest.mark.parametrize("mask_of", [lambda mask, g: g * mask, lambda mask, g: turned(g * mask)])
def test_a_mask_that_is_drawn_in_hiding_and_kept_is_right(mask_of, shape):
    assert codes(check(dropout(mask_of), randn(*shape))) == set()


def test_a_backward_that_draws_what_does_not_matter_is_right():
    class Doubled(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return turned(2 * g)

    assert codes(check(Doubled, randn(12))) == set()


@pytest.mark.parametrize("period", [2, 3])
def test_what_is_different_now_and_then_is_no_random_number_in_hiding(period):
    calls = [0]

    def function(x):
        calls[0] += 1
        return x * (2 if calls[0] % period == 0 else 1)

    assert codes(check(function, randn(3))) == {"GV205"}
