"""float32 functions in which larger numbers cancel: what the steps of their rounding hide is not
called wrong, and what they show still is."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from gradverify.numerics.choose import Mode
from gradverify.numerics.compare import compare
from gradverify.numerics.pairs.pair import Outcome
from gradverify.numerics.seeds import Seed
from gradverify.numerics.verdict import Limit, Verdict
from numerics.differentiable import Differentiable, leaf, normal, times

SINGLE = torch.float32


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def between(low, high, seed, *shape):
    return low + (high - low) * torch.rand(*shape, generator=generator(seed), dtype=SINGLE)


def small(seed, *shape):
    return 10 ** between(-4.0, -1.0, seed, *shape)


def gelu(x):
    return 0.5 * x * (1 + torch.erf(x / 2**0.5))


ELEMENTWISE = {
    "gelu": (F.gelu, between(-9, -3, 0, 15)),
    "gelu, by erf": (gelu, between(-9, -3, 17, 15)),
    "log(1 + exp(x - 10))": (lambda x: torch.log(1 + torch.exp(x - 10)), between(-9, -3, 51, 15)),
    "log(1 + exp(x - 20))": (lambda x: torch.log(1 + torch.exp(x - 20)), between(1, 8, 68, 15)),
    "log(1 + exp(x - 20)) of one number": (
        lambda x: torch.log(1 + torch.exp(x - 20)),
        leaf(1.5, dtype=SINGLE),
    ),
    "1 - cos": (lambda x: 1 - torch.cos(x), small(85, 15)),
    "x - sin": (lambda x: x - torch.sin(x), small(102, 15)),
}


@pytest.mark.population(most=6)
@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("name", ELEMENTWISE)
def test_right_gradients_are_never_called_wrong_where_larger_numbers_cancel(name, mode):
    forward, x = ELEMENTWISE[name]
    for pair in compare(Differentiable(forward, x), mode=mode, seed=Seed(1)).pairs:
        assert pair.count(Outcome.MISMATCH) == 0


def test_what_cancellation_hides_says_so_and_how_little_is_known():
    forward, x = ELEMENTWISE["log(1 + exp(x - 20)) of one number"]
    (pair,) = compare(Differentiable(forward, x)).pairs
    (worst,) = pair.worst
    assert (pair.verdict, worst.limit) == (Verdict.UNDECIDED, Limit.CANCELS)
    assert worst.analytic == pytest.approx(np.exp(1.5 - 20), rel=1e-5)
    assert worst.bar >= worst.error


def off_at(place, factor):
    def damage(grads):
        wrong = grads[0].clone()
        wrong.view(-1)[place] *= factor
        return [wrong, *grads[1:]]

    return damage


SEEN = [
    ("gelu", leaf(-6.5, -5.4, -5.0, -1.5, dtype=SINGLE)),
    ("gelu, by erf", leaf(-5.6, -5.2, -4.9, -1.5, dtype=SINGLE)),
    ("log(1 + exp(x - 10))", leaf(-8.0, -7.0, -5.0, 9.0, dtype=SINGLE)),
    ("1 - cos", leaf(2e-4, 3e-4, 1e-3, 0.5, dtype=SINGLE)),
]


@pytest.mark.population(most=6)
@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("factor", [1.01, 0.0])
@pytest.mark.parametrize(("name", "x"), SEEN)
def test_an_error_that_the_steps_cannot_hide_is_found_beside_elements_that_they_do(
    name, x, factor, mode
):
    """The last element is far above the steps, the others are not."""
    forward = ELEMENTWISE[name][0]
    (right,) = compare(Differentiable(forward, x), mode=mode).pairs
    assert right.count(Outcome.MISMATCH) == 0
    (wrong,) = compare(
        Differentiable(forward, x, damage=off_at(3, factor)), mode=mode, keep=200
    ).pairs
    assert [w.input_index for w in wrong.worst if w.outcome is Outcome.MISMATCH] == [3]
    assert wrong.count(Outcome.MISMATCH) == 1


def leaks(slope):
    return lambda grads: [g + slope for g in grads]


@pytest.mark.parametrize(
    ("forward", "damage"),
    [
        (torch.relu, leaks(1e-2)),
        (lambda x: 1e-7 * x, times(1.01)),
        (lambda x: torch.sin(3 * x), times(1.01)),
        (lambda x: (x.abs() * x).cumsum(-1), times(1.01)),
    ],
    ids=["relu", "tiny", "sin", "kinks"],
)
def test_errors_in_float32_stand_where_nothing_cancels(forward, damage):
    (pair,) = compare(
        Differentiable(forward, normal(3, 4, 5, dtype=SINGLE), damage=damage),
        mode=Mode.ENTRIES,
        keep=500,
    ).pairs
    assert pair.count(Outcome.MISMATCH) == pair.elements - pair.count(Outcome.PASS)
    assert pair.count(Outcome.MISMATCH) >= 9
