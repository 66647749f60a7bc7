"""Second opinions excuse what has no derivative, or a gradient of its own convention, and nothing
that is wrong."""

import pytest
import torch

from gradverify.numerics.choose import Mode
from gradverify.numerics.compare import compare
from gradverify.numerics.pairs.pair import Outcome
from gradverify.numerics.verdict import Limit, Verdict
from numerics.differentiable import DOUBLE, Differentiable, leaf, normal, with_backward

PASS, MISMATCH, UNDECIDED = Verdict.PASS, Verdict.MISMATCH, Verdict.UNDECIDED


def judged(forward, backward, x, mode=Mode.ENTRIES):
    (pair,) = compare(Differentiable(with_backward(forward, backward), x), mode=mode).pairs
    return pair


# ---- sums of kinks
def largest(x):
    return x.max().reshape(1)


@pytest.mark.parametrize(
    ("gradient", "verdict"),
    [
        ((0.5, 0.5), PASS),
        ((1.0, 0.0), PASS),
        ((0.25, 0.75), PASS),
        ((0.0, 0.0), MISMATCH),
        ((1.0, 1.0), MISMATCH),
        ((0.5, 0.6), MISMATCH),
    ],
)
def test_a_gradient_of_a_tie_must_hold_along_the_sum_too(gradient, verdict):
    """Each of two tied elements may have any slope from 0 to 1; both together move the maximum by
    exactly 1."""
    pair = judged(largest, lambda x, g: g * leaf(*gradient), leaf(2.0, 2.0))
    assert (pair.verdict, pair.count(Outcome.MISMATCH)) == (verdict, 2 * (verdict is MISMATCH))
    assert {worst.limit for worst in pair.worst if worst.outcome is Outcome.MISMATCH} <= {
        Limit.KINK_SUM
    }


def test_only_the_output_whose_sum_is_off_is_wrong():
    gradients = leaf(1.0, 1.0, -0.5, -0.5).view(2, 2)
    pair = judged(
        lambda x: torch.cat([largest(x), -largest(x)]), lambda x, g: g @ gradients, leaf(2.0, 2.0)
    )
    assert {
        (w.output_index, w.input_index) for w in pair.worst if w.outcome is Outcome.MISMATCH
    } == {(0, 0), (0, 1)}


# ---- symmetric inputs
def reads_below(x):
    """3 x₁₀ + x₀₀: x₀₁ is not read."""
    return (3 * x[..., 1, 0] + x[..., 0, 0]).reshape(1)


@pytest.mark.parametrize(
    ("gradient", "corner", "wrong", "undecided"),
    [
        ((1.0, 0.0, 3.0, 0.0), 0.7, 0, 0),
        # Spread over both triangles: right on symmetric matrices
        ((1.0, 1.5, 1.5, 0.0), 0.7, 0, 2),
        ((1.0, 1.5, 1.5, 0.0), 0.7 + 1e-15, 0, 2),
        ((1.0, 1.5, 1.5, 0.0), 0.8, 2, 0),  # of a matrix that is not symmetric
        ((1.0, 1.6, 1.6, 0.0), 0.7, 2, 0),  # symmetric, and wrong
        ((1.0, 1.0, 2.0, 0.0), 0.7, 2, 0),  # adds up, and is not symmetric
        ((1.1, 1.5, 1.5, 0.0), 0.7, 1, 2),  # the diagonal is not excused by it
    ],
)
def test_a_symmetric_gradient_of_a_symmetric_input_is_left_open_where_it_is_right_along_the_pair(
    gradient, corner, wrong, undecided
):
    x = leaf(1.0, 0.7, corner, 2.0).reshape(2, 2)
    pair = judged(reads_below, lambda x, g: g * leaf(*gradient).reshape(2, 2), x)
    assert (pair.count(Outcome.MISMATCH), pair.count(Outcome.UNDECIDED)) == (wrong, undecided)
    assert wrong or set(dict(pair.limits)) == ({Limit.SYMMETRY} if undecided else set())


# ---- the backward's own noise
def test_a_backward_noisier_than_rounding_does_not_pass():
    def noisy(x, g):
        return g * x.cos() * (1 + 1e-4 * torch.sin(1e17 * x.abs().sum() + torch.arange(6)))

    assert judged(torch.sin, noisy, normal(1, 6)).verdict is not PASS


@pytest.mark.parametrize(
    ("error", "steady", "verdict"),
    [(6e-4, False, UNDECIDED), (6e-4, True, MISMATCH), (0.5, False, UNDECIDED)],
)
def test_what_cancels_to_dust_is_left_open_where_it_is_noise_and_wrong_where_it_is_not(
    error, steady, verdict
):
    """10⁸ sin x₀ + x₁/1000, whose backward leaves an error in the gradient of x₁ that is small
    beside x₀'s; `steady`: the same everywhere."""
    at = leaf(0.8, 1.1)

    def backward(x, g):
        here = 1.0 if steady or torch.equal(x, at) else torch.sin(1e17 * x.sum()).item()
        return g * torch.stack([1e8 * x[0].cos(), 1e-3 + error * here + 0 * x[1]])

    pair = judged(lambda x: (1e8 * x[0].sin() + 1e-3 * x[1]).reshape(1), backward, at)
    assert pair.verdict is verdict
    assert verdict is MISMATCH or dict(pair.limits) == {Limit.ANALYTIC_NOISE: 1}


# ---- inputs of 1e-12 and 1e12 in one tensor: what is dust by its own |x| needs no more digits than
# f has, and a wrong one is found
MIXED = [
    10 ** (24 * torch.rand(3, 4, generator=torch.Generator().manual_seed(seed), dtype=DOUBLE) - 12)
    for seed in (3, 4)
]


@pytest.mark.parametrize("mode", [Mode.ENTRIES, Mode.ROWS, Mode.BLOCKS])
def test_a_right_hypot_of_small_beside_large_numbers_is_decided(mode):
    assert {
        pair.verdict for pair in compare(Differentiable(torch.hypot, *MIXED), mode=mode).pairs
    } == {PASS}


@pytest.mark.parametrize(
    ("mode", "factor"), [(Mode.ENTRIES, 1.05), (Mode.ENTRIES, 0.0), (Mode.ROWS, -1.0)]
)
def test_a_wrong_one_is_found_at_the_small_numbers(factor, mode):
    """Of numbers below 1e-6: those that move their output by more than its rounding."""

    def damage(grads):
        return [torch.where(x < 1e-6, factor * g, g) for x, g in zip(MIXED, grads, strict=True)]

    for pair in compare(
        Differentiable(torch.hypot, *MIXED, damage=damage), mode=mode, keep=100
    ).pairs:
        x = MIXED[pair.input].reshape(-1)
        visible = set(
            torch.nonzero((x < 1e-6) & (x > 1e-4 * torch.hypot(*MIXED).reshape(-1)))[:, 0].tolist()
        )
        assert {
            worst.input_index for worst in pair.worst if worst.outcome is Outcome.MISMATCH
        } >= visible


@pytest.mark.parametrize("factor", [0.0, 1.5])
def test_a_small_number_in_a_sum_is_not_let_off_for_its_size(factor):
    assert (
        judged(
            lambda x: x.sum(), lambda x, g: g * leaf(factor, 1, 1), leaf(1e-13, 0.7, -1.3)
        ).verdict
        is not PASS
    )
