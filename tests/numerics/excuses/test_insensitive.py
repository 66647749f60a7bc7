"""Elements whose way through f rests on an inner rounding, beside others whose way does not:
columns of one tensor, of two inputs into one output, and outputs of one tensor.

The class: "f does not move" at steps that an inner rounding swallows is no evidence, for a zero or
against what is right, whatever moves beside it. Both ways: an error that steps up to 1 show is
found, and what f does not depend on at any step passes.
"""

import pytest
import torch
import torch.nn.functional as F

from gradverify.numerics.choose import Mode
from gradverify.numerics.compare import compare
from gradverify.numerics.pairs.pair import Outcome
from gradverify.numerics.seeds import Seed
from gradverify.numerics.verdict import Verdict
from numerics.differentiable import DOUBLE, Differentiable

N = 8


def sized(seed, n, size):
    source = torch.Generator().manual_seed(seed)
    return (
        size
        * (0.5 + torch.rand(n, generator=source, dtype=DOUBLE))
        * (1 - 2 * torch.randint(0, 2, (n,), generator=source))
    )


def by_hand(forward, backward):
    class Case(torch.autograd.Function):
        @staticmethod
        def forward(ctx, *inputs):
            return forward(*inputs)

        @staticmethod
        def backward(ctx, g):
            return backward(g)

    return Case.apply


def of_two_inputs(offset, size, factor=1.0, awake=1.0):
    function = by_hand(lambda a, b: a + ((b + offset) - offset), lambda g: (awake * g, factor * g))
    return Differentiable(function, sized(0, N, size), sized(1, N, size))


def of_one_tensor(offset, size, factor=1.0, awake=1.0):
    function = by_hand(
        lambda x: x[:N] + ((x[N:] + offset) - offset), lambda g: torch.cat([awake * g, factor * g])
    )
    return Differentiable(function, sized(0, 2 * N, size))


def of_two_halves(offset, size, factor=1.0, awake=1.0):
    function = by_hand(
        lambda x: torch.cat([x[:N], (x[N:] + offset) - offset]),
        lambda g: torch.cat([awake * g[:N], factor * g[N:]]),
    )
    return Differentiable(function, sized(0, 2 * N, size))


def crosswise(offset, size, factor=1.0, awake=1.0):
    """Every column and every output has an element that moves f and one that does not."""
    function = by_hand(
        lambda x: x + ((x.flip(0) + offset) - offset), lambda g: awake * g + factor * g.flip(0)
    )
    return Differentiable(function, sized(0, N, size))


def outside_torch(offset, size, factor=1.0, awake=1.0):
    """Where no operation of torch's rounds, and so none can be rounded at random."""
    function = by_hand(
        lambda a, b: a + torch.from_numpy((b.detach().numpy() + offset) - offset),
        lambda g: (awake * g, factor * g),
    )
    return Differentiable(function, sized(0, N, size), sized(1, N, size))


WAYS = [of_two_inputs, outside_torch, of_one_tensor, of_two_halves, crosswise]
SIZES = [(1.0, 1e-15), (1.0, 1e-13), (1e4, 1e-13), (1e4, 1e-10), (1e8, 1e-9)]


def judged(function, mode):
    return compare(function, mode=mode, seed=Seed(0)).pairs


@pytest.mark.population(most=8)
@pytest.mark.parametrize(("offset", "size"), SIZES)
@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("way", WAYS)
def test_a_right_gradient_is_not_accused_and_a_wrong_one_not_passed(way, mode, offset, size):
    assert not any(pair.count(Outcome.MISMATCH) for pair in judged(way(offset, size), mode))
    for factor in (0.0, 1.01):
        assert judged(way(offset, size, factor), mode)[-1].verdict is not Verdict.PASS


@pytest.mark.population(most=4)
@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("way", WAYS)
def test_an_error_that_wide_steps_show_is_found(way, mode):
    for wrong in (dict(factor=1.01), dict(factor=-1.0), dict(awake=0.0), dict(awake=1.01)):
        assert any(
            pair.verdict is Verdict.MISMATCH for pair in judged(way(1e4, 1e-13, **wrong), mode)
        )


DEAD = {
    "relu": torch.relu,
    "mask": lambda x: x * (torch.arange(len(x)) % 2),
    "where": lambda x: torch.where(x > 0, x * x, 0 * x),
    "clamp": lambda x: x.clamp(min=1e-9),
    "half": lambda x: x[: N // 2],
    "softshrink and x": lambda x: x + F.softshrink(x.flip(0), 0.5),
}


@pytest.mark.parametrize("name", DEAD)
@pytest.mark.parametrize("size", [1e-12, 1e-9, 1e-6])
def test_what_is_dead_without_any_inner_rounding_passes(name, size):
    (pair,) = judged(Differentiable(DEAD[name], sized(2, N, size)), Mode.ENTRIES)
    assert pair.verdict is Verdict.PASS


@pytest.mark.parametrize(("factor", "never"), [(1.0, Verdict.MISMATCH), (0.0, Verdict.PASS)])
@pytest.mark.parametrize("made", [of_one_tensor, of_two_halves, crosswise])
def test_under_a_domain_that_leaves_room_a_right_gradient_is_not_accused_and_a_zero_does_not_pass(
    made, factor, never
):
    [pair] = compare(made(1e4, 1e-13, factor), mode=Mode.ENTRIES, domains=[(-1.0, 1.0)]).pairs
    assert pair.verdict is not never


SHORT = {
    "sin": torch.sin,
    "tanh": torch.tanh,
    "x / (2 + x²)": lambda x: x / (2 + x * x),
    "softmax": lambda x: x.softmax(-1),
    "a wave 1e4 times as short": lambda x: (1e4 * x).sin() / 1e4,
}


@pytest.mark.population(most=7)
@pytest.mark.parametrize("mode", list(Mode))
@pytest.mark.parametrize("length", [1e-4, 1e-5])
@pytest.mark.parametrize("name", SHORT)
def test_a_function_as_short_as_its_tiny_inputs_is_not_taken_for_noise(name, length, mode):
    """Nothing rests there: what f does over such a length is no rounding, though points 3e-5 apart
    see it jump about."""
    inputs = sized(3, N, length)
    [right] = judged(Differentiable(lambda x: SHORT[name](x / length), inputs), mode)
    assert (right.verdict, right.count(Outcome.UNDECIDED)) == (Verdict.PASS, 0)
    zero = by_hand(lambda x: SHORT[name](x / length), torch.zeros_like)
    [wrong] = judged(Differentiable(zero, inputs), mode)
    assert wrong.verdict is Verdict.MISMATCH


def entropy_of_softmax(size, damage):
    def backward(g):
        p = torch.softmax(x, -1)
        return -(g * p) * (p.log() - (p * p.log()).sum() + damage)

    x = sized(0, N, size)
    return Differentiable(
        by_hand(lambda x: -(torch.softmax(x, -1) * torch.log_softmax(x, -1)).sum(), backward), x
    )


@pytest.mark.parametrize("size", [1e-11, 1e-12, 1e-13])
def test_no_tolerance_beside_which_nothing_could_fail_lets_a_gradient_pass_that_wide_steps_refute(
    size,
):
    (pair,) = compare(entropy_of_softmax(size, 0.3)).pairs
    assert pair.verdict in (Verdict.UNDECIDED, Verdict.MISMATCH)


@pytest.mark.parametrize("size", [1e-11, 1e-12, 1e-13])
def test_a_gradient_that_vanishes_beside_the_size_of_f_passes(size):
    (pair,) = compare(entropy_of_softmax(size, 0.0)).pairs
    assert pair.verdict is Verdict.PASS
