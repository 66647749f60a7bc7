"""Sums in another order each time: counted and reported, a warning, noise to finite differences, an
error where the spec wants the same bits."""

from dataclasses import replace

import pytest
import torch
from live import check, codes, randn
from torch.autograd import Function

from gradverify.numerics.sixteen_bit import Legs, judge
from gradverify.rules.differ import Repeats, in_words


def any_order(values, source):
    """The sum along rows, one after the other in an order of its own: what atomic adds do."""
    total = torch.zeros_like(values[:, 0])
    for column in torch.randperm(values.shape[1], generator=source):
        total = total + values[:, column]
    return total


def gathered(*, forward=True, backward=True, wrong=1.0, seed=0):
    """Rows of x * w summed in any order, forward; over rows, backward to w [columns]."""
    source = torch.Generator().manual_seed(seed)

    class Gathered(Function):
        @staticmethod
        def forward(ctx, x, w):
            ctx.save_for_backward(x, w)
            return any_order(x * w, source) if forward else (x * w).sum(1)

        @staticmethod
        def backward(ctx, g):
            x, w = ctx.saved_tensors
            of_w = (g[:, None] * x).T
            return wrong * g[:, None] * w, any_order(of_w, source) if backward else of_w.sum(1)

    return Gathered


X, W = randn(12, 7), randn(7, seed=1)


def test_the_right_one_passes_and_its_results_are_counted():
    result = check(gathered(), X, W)
    assert result.verdict == "pass"
    assert {finding.code for finding in result.findings} <= {"GV205", "GV206"}
    of = {each.of: each for each in result.reproducibility}
    assert set(of) == {"y0", "grad of x", "grad of w"}
    assert (
        of["y0"].calls >= 5
        and 2 <= of["y0"].distinct <= of["y0"].calls
        and 0 < of["y0"].roundings < 64
    )
    assert of["grad of w"].distinct > 1 and (of["grad of x"].distinct, of["grad of x"].spread) == (
        1,
        0.0,
    )
    notes = {rule.code: rule.reason or "" for rule in result.rules}
    assert f"y0: {of['y0'].distinct} different results in {of['y0'].calls} calls" in notes["GV205"]
    assert (
        f"grad of w: {of['grad of w'].distinct} different results in" in notes["GV206"]
        and "grad of x" not in notes["GV206"]
    )


def test_a_wrong_gradient_is_found_in_the_noise():
    result = check(gathered(wrong=1.001), X, W)
    assert result.verdict == "fail" and "GV101" in codes(result)


@pytest.mark.parametrize(
    ("forward", "backward", "found"),
    [(True, False, {"GV205"}), (False, True, {"GV206"}), (False, False, set())],
)
def test_where_the_same_bits_are_wanted_any_difference_is_an_error(forward, backward, found):
    result = check(gathered(forward=forward, backward=backward), X, W, deterministic=True)
    assert {finding.code for finding in result.findings if finding.severity == "error"} == found
    assert result.verdict == ("fail" if found else "pass")
    assert result.comparisons  # the Jacobian was judged nevertheless


def test_one_ulp_of_backward_is_right_unless_the_same_bits_are_wanted():
    class Double(Function):
        calls = 0

        @staticmethod
        def forward(ctx, x):
            return 2 * x

        @staticmethod
        def backward(ctx, g):
            Double.calls += 1
            return 2 * g * (1 + 2.0**-52 * (Double.calls % 2))

    assert codes(check(Double, randn(3), select=("GV206",))) == set()
    assert codes(check(Double, randn(3), select=("GV206",), deterministic=True)) == {"GV206"}


def test_what_is_accepted_is_not_where_the_same_bits_are_wanted():
    calls = [0]

    def counting(x):
        calls[0] += 1
        return x * (1 + 1e-15 * (calls[0] % 2))

    assert codes(check(counting, randn(3), select=("GV205",), nondeterminism=1e-9)) == set()
    result = check(counting, randn(3), select=("GV205",), nondeterminism=1e-9, deterministic=True)
    assert [(finding.code, finding.severity) for finding in result.findings] == [("GV205", "error")]


def test_different_results_are_counted_and_their_spread_is_that_of_the_farthest():
    repeats = Repeats("y")
    for values in ([1.0, 2.0], [1.0, 2.5], [1.0, 2.0], [0.5, 2.0], [1.0, 2.5]):
        repeats.add(torch.tensor(values, dtype=torch.float64))
    seen = repeats.summary(2.0**-53)
    assert (seen.calls, seen.distinct, seen.spread, seen.roundings) == (5, 3, 0.5, 0.25 * 2.0**53)
    assert in_words([seen]).startswith("y: 3 different results in 5 calls, up to 0.5 apart")


def shaken(by, where, period=2):
    """x * 3 whose numbers in bfloat16 are moved by so many ulps in every second call, or one of its
    gradients' are."""
    calls = [0]

    def moved(y):
        calls[0] += 1
        return y * (1 + by * 2.0**-7 * (calls[0] % period)) if y.dtype == torch.bfloat16 else y

    class Tripled(Function):
        @staticmethod
        def forward(ctx, x):
            return moved(x * 3) if where == "forward" else x * 3

        @staticmethod
        def backward(ctx, g):
            return moved(g * 3) if where == "backward" else g * 3

    return Tripled


@pytest.mark.parametrize(
    ("where", "of"),
    [("forward", "y0 in bfloat16"), ("backward", "grad of x in bfloat16"), ("nowhere", None)],
)
def test_calls_of_a_kernel_in_16_bits_are_counted_too(where, of):
    result = check(shaken(1, where), randn(4, 8).bfloat16(), select=("GV112",))
    found = {each.of: (each.calls, each.distinct) for each in result.reproducibility}
    assert found == {
        name: (3, 2 if name == of else 1) for name in ("y0 in bfloat16", "grad of x in bfloat16")
    }
    (said,) = (rule.reason for rule in result.rules if rule.code == "GV112")
    assert ("2 different results in 3 calls" in said) == (of is not None)


def test_what_calls_differ_by_is_part_of_the_native_error_up_to_as_much_again():
    rounded = torch.full((6, 4, 16), 0.003, dtype=torch.float64)
    moved = torch.full((6, 4, 16), 0.004, dtype=torch.float64)
    exact = torch.ones(1, 4, 16, dtype=torch.float64)
    legs = Legs(exact + 0.001, exact, rounded, moved, exact.expand(6, 4, 16))

    def ratio(spread):
        return judge(
            replace(
                legs,
                spread=None
                if spread is None
                else torch.full((2, 4, 16), spread, dtype=torch.float64),
            ),
            torch.bfloat16,
        ).ratio

    native = 0.001 / ratio(None)
    assert native == pytest.approx(0.005, rel=0.01)
    assert 0.001 / ratio(0.004) == pytest.approx((0.005**2 + 0.004**2) ** 0.5, rel=0.01)
    assert 0.001 / ratio(5.0) == pytest.approx(0.005 * 2**0.5, rel=0.01)
