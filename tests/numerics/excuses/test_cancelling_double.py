"""float64 functions that subtract larger numbers than what is left of them, near zero: f moves in
steps of the rounding of those.

The class: a zero difference, or a slope, that rests on steps below an inner rounding is no evidence
against a right gradient. Both ways: what has no such steps, a dead region among it, excuses
nothing. The gradients are closed forms without cancellation.
"""

import math

import pytest
import torch
import torch.nn.functional as F

from gradverify.numerics.choose import Mode
from gradverify.numerics.compare import compare
from gradverify.numerics.pairs.pair import Outcome
from gradverify.numerics.seeds import Seed
from gradverify.numerics.verdict import Limit, Verdict
from numerics.differentiable import (
    DOUBLE,
    Differentiable,
    leaf,
    normal,
    times,
    with_backward,
    zeros,
)

LOG2, ROOT = math.log(2), math.sqrt(2 * math.pi)
ONE = torch.ones((), dtype=DOUBLE)


def tiny(seed, *shape, low=-12.0, high=-6.0):
    """Of both signs, between 10^low and 10^high."""
    source = torch.Generator().manual_seed(seed)
    size = 10 ** (low + (high - low) * torch.rand(*shape, generator=source, dtype=DOUBLE))
    return size * (1 - 2 * torch.randint(0, 2, shape, generator=source))


def sech2(x):
    return 1 / torch.cosh(x) ** 2


ELEMENTWISE = {
    "log cosh": (lambda x: x.abs() + torch.log1p(torch.exp(-2 * x.abs())) - LOG2, torch.tanh),
    "softplus - log 2": (lambda x: F.softplus(x) - LOG2, torch.sigmoid),
    "1 - cos": (lambda x: 1 - torch.cos(x), torch.sin),
    "sqrt(1 + x²) - 1": (lambda x: torch.sqrt(1 + x * x) - 1, lambda x: x / torch.sqrt(1 + x * x)),
    "exp - 1 - x": (lambda x: torch.exp(x) - 1 - x, torch.expm1),
    "(1 + x) - 1": (lambda x: (1 + x) - 1, torch.ones_like),
    "sinh - x": (lambda x: torch.sinh(x) - x, lambda x: 2 * torch.sinh(x / 2) ** 2),
    "log(1 + x) - x": (lambda x: torch.log(1 + x) - x, lambda x: -x / (1 + x)),
    "tanh by exp": (lambda x: (x.exp() - (-x).exp()) / (x.exp() + (-x).exp()), sech2),
    "hardtanh by moduli": (lambda x: ((x + 1).abs() - (x - 1).abs()) / 2, torch.ones_like),
}
ONE_HOT = F.one_hot(torch.tensor([0, 2, 1]), 5).to(DOUBLE)
OF_ROWS = {
    "variance by E[x²] - E[x]²": (
        lambda x: (x * x).mean(-1) - x.mean(-1) ** 2,
        lambda x: 2 * (x - x.mean(-1, keepdim=True)) / x.shape[-1],
    ),
    "cross entropy - log n": (
        lambda x: -(torch.log_softmax(x, -1) * ONE_HOT).sum(-1) - math.log(5),
        lambda x: torch.softmax(x, -1) - ONE_HOT,
    ),
    "sum of log cosh": (lambda x: ELEMENTWISE["log cosh"][0](x).sum(-1), torch.tanh),
}
W = normal(5, 5, 4)


def accused(function, mode, seed=0):
    return sum(
        pair.count(Outcome.MISMATCH) for pair in compare(function, mode=mode, seed=Seed(seed)).pairs
    )


@pytest.mark.population(most=6)
@pytest.mark.parametrize("mode", [*Mode, None])
@pytest.mark.parametrize("name", ELEMENTWISE)
def test_a_right_gradient_is_not_accused(name, mode):
    forward, slope = ELEMENTWISE[name]
    function = with_backward(forward, lambda x, g: g * slope(x))
    for seed, powers in enumerate([(-12, -6), (-9, -6)]):
        assert (
            accused(
                Differentiable(function, tiny(seed, 9, low=powers[0], high=powers[1])), mode, seed
            )
            == 0
        )


@pytest.mark.parametrize("mode", [Mode.ENTRIES, Mode.ROWS])
@pytest.mark.parametrize("name", OF_ROWS)
def test_nor_one_of_a_reduction(name, mode):
    forward, slope = OF_ROWS[name]
    assert (
        accused(
            Differentiable(
                with_backward(forward, lambda x, g: g[..., None] * slope(x)), tiny(3, 3, 5, low=-9)
            ),
            mode,
        )
        == 0
    )


@pytest.mark.parametrize("name", ["log cosh", "exp - 1 - x"])
def test_nor_one_behind_a_product_or_before_one(name):
    forward, slope = ELEMENTWISE[name]
    behind = with_backward(lambda x: forward(x @ W), lambda x, g: (g * slope(x @ W)) @ W.T)
    before = with_backward(
        lambda x: 3e-3 * forward(x) * x, lambda x, g: 3e-3 * g * (slope(x) * x + forward(x))
    )
    for function in (behind, before):
        assert accused(Differentiable(function, tiny(7, 3, 5, low=-10, high=-7)), Mode.ENTRIES) == 0


def test_what_is_hidden_is_undecided_and_says_why():
    forward, slope = ELEMENTWISE["log cosh"]
    function = Differentiable(with_backward(forward, lambda x, g: g * slope(x)), leaf(1e-9))
    pairs = [compare(function, seed=Seed(seed)).pairs[0] for seed in range(8)]
    assert {pair.verdict for pair in pairs} == {Verdict.UNDECIDED}
    assert Limit.CANCELS in {pair.worst[0].limit for pair in pairs}
    assert all(
        (pair.worst[0].analytic, pair.worst[0].bar >= pair.worst[0].error) == (1e-9, True)
        for pair in pairs
    )


@pytest.mark.parametrize("name", ["1 - cos", "softplus - log 2", "(1 + x) - 1"])
def test_an_error_where_the_steps_are_small_is_found_beside_elements_where_they_are_not(name):
    forward, slope = ELEMENTWISE[name]

    def damage(grads):
        return [grads[0] * torch.tensor([1.0, 1.0, 1.0, 1.0001], dtype=DOUBLE)]

    function = Differentiable(
        with_backward(forward, lambda x, g: g * slope(x)),
        leaf(1e-9, -3e-8, 2e-7, 0.9),
        damage=damage,
    )
    (pair,) = compare(function, mode=Mode.ENTRIES).pairs
    assert [worst.input_index for worst in pair.worst if worst.outcome is Outcome.MISMATCH] == [3]


def leaks(slope):
    return lambda grads: [torch.where(g == 0, torch.full_like(g, slope), g) for g in grads]


MASK = torch.tensor([1.0, 0, 1, 1, 0, 1], dtype=DOUBLE)
CLEAN = {
    "x": lambda x: 1.0 * x,
    "sin": torch.sin,
    "tanh": torch.tanh,
    "x²": lambda x: x * x,
    "expm1": torch.expm1,
    "|x|": torch.abs,
    "exp(-|x|)": lambda x: torch.exp(-x.abs()),
    "relu": torch.relu,
    "sort": lambda x: x.sort(-1).values,
    "x + 1": lambda x: x + 1,
    "hardshrink": lambda x: F.hardshrink(x, 1e-9),
    "product": lambda x: x @ normal(6, 6, 3),
}
DEAD = {
    "relu": torch.relu,
    "mask": lambda x: x * MASK,
    "constant": lambda x: 0 * x + 1,
    "where": lambda x: torch.where(x > 0, x * x, 0 * x),
    "softshrink": lambda x: F.softshrink(x, 0.5),
}


@pytest.mark.population("name")
@pytest.mark.parametrize("damage", [times(1.0001), times(-1.0), zeros], ids=["1.0001", "-1", "0"])
@pytest.mark.parametrize("name", CLEAN)
def test_a_wrong_gradient_is_found_where_nothing_cancels(name, damage):
    if name == "x + 1" and damage is not zeros and damage([ONE])[0] > 0:
        pytest.skip("x + 1 moves in steps of the rounding of 1")
    for x in (tiny(1, 3, 6), normal(1, 3, 6)):
        (pair,) = compare(Differentiable(CLEAN[name], x, damage=damage), mode=Mode.ENTRIES).pairs
        assert pair.verdict is Verdict.MISMATCH


@pytest.mark.population(most=6)
@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("name", DEAD)
def test_a_gradient_where_f_is_dead_at_all_scales_is_found(name, mode):
    for x, slope in ((tiny(2, 3, 6), 1e-2), (normal(2, 3, 6, k=0.2), 1e-6)):
        assert accused(Differentiable(DEAD[name], x, damage=leaks(slope)), mode) > 0
