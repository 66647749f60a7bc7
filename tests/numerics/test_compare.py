from __future__ import annotations

import pytest
import torch

from gradverify.numerics import compare
from gradverify.numerics.derivative import Derivative, Outcome

INF, NAN = float("inf"), float("nan")


def judged(analytic, value, bar, atol=0.0, rtol=1e-6, floor=0.0, outcome=Outcome.PASS, unchanged=False):
    """The verdict of one element."""
    def at(number, dtype=torch.float64):
        return torch.tensor([[number]], dtype=dtype)

    derivative = Derivative(at(value), at(bar), at(outcome, torch.int8), at(unchanged, torch.bool))
    return Outcome(int(compare.judge(at(analytic), derivative, at(floor), atol, rtol).outcome))


@pytest.mark.parametrize(("analytic", "value", "bar", "outcome"), [
    (1.0, 1.0, 0.0, Outcome.PASS),
    (1.0, 1.0 + 1e-6 / 2, 1e-9, Outcome.PASS),
    (1.0, 1.0 + 4e-6, 1e-6, Outcome.MISMATCH),          # error − bar > tolerance
    (1.0, 1.0 + 4e-6, 1e-5, Outcome.UNDECIDED),         # the truth may be on either side
    (1.0, 1.0, 1e-5, Outcome.UNDECIDED),                # equal, but known to less than the tolerance
    (1.0, 1.0, INF, Outcome.UNDECIDED),
    (1.01, 1.0, INF, Outcome.UNDECIDED),
    (-1.0, 1.0, 1e-9, Outcome.MISMATCH),
    (NAN, 1.0, 0.0, Outcome.MISMATCH),
    (NAN, 1.0, INF, Outcome.MISMATCH),
    (INF, 1.0, 0.0, Outcome.MISMATCH),
    (-INF, 1.0, 0.0, Outcome.MISMATCH),
    (NAN, 0.0, 0.0, Outcome.MISMATCH),
    (1.0, NAN, NAN, Outcome.UNDECIDED),
    (1.0, 1.0, NAN, Outcome.UNDECIDED),
])
def test_the_verdict_of_an_element_follows_the_guarded_rule(analytic, value, bar, outcome):
    assert judged(analytic, value, bar) is outcome


def test_a_large_absolute_tolerance_never_lets_nan_pass():
    assert judged(NAN, 0.0, 0.0, atol=1e9, rtol=1e9) is Outcome.MISMATCH
    assert judged(INF, 0.0, 0.0, atol=1e9, rtol=1e9) is Outcome.MISMATCH


def test_what_could_not_be_measured_keeps_its_outcome():
    for outcome in (Outcome.NON_FINITE, Outcome.MASKED, Outcome.UNDECIDED):
        assert judged(NAN, 1.0, 0.0, outcome=outcome) is outcome
        assert judged(1.0, 1.0, 0.0, outcome=outcome) is outcome


def test_bitwise_unchanged_zero_passes_below_the_floor_whatever_the_bar_and_not_above():
    assert judged(1e-13, 0.0, 1e-3, floor=1e-12, unchanged=True) is Outcome.PASS
    assert judged(1e-13, 0.0, 1e-3, floor=1e-12, unchanged=False) is Outcome.UNDECIDED
    assert judged(1e-11, 0.0, 1e-15, floor=1e-12, unchanged=True) is Outcome.MISMATCH


def test_the_floor_adds_to_atol_and_replaces_rtol_where_it_is_larger():
    assert judged(3e-9, 0.0, 0.0, atol=1e-9, floor=2.1e-9) is Outcome.PASS
    assert judged(3.2e-9, 0.0, 0.0, atol=1e-9, floor=2.1e-9) is Outcome.MISMATCH


def fixed(analytic, value, is_complex=False, outcome=Outcome.PASS):
    analytic, value = torch.tensor([analytic], dtype=torch.float64), torch.tensor([value], dtype=torch.float64)
    derivative = Derivative(value, torch.zeros_like(value), torch.full(value.shape, outcome, dtype=torch.int8), value != value)
    return [Outcome(each) for each in compare.judge_fixed(analytic, derivative, 1e-5, 1e-3, is_complex).outcome[0].tolist()]


@pytest.mark.parametrize("analytic", [1.0, 1.0009, 0.9991, 1.00102, 0.0, NAN, INF, -1.0])
def test_a_fixed_step_is_judged_as_allclose_does(analytic):
    close = torch.allclose(torch.tensor(analytic, dtype=torch.float64), torch.tensor(1.0, dtype=torch.float64), rtol=1e-3, atol=1e-5)
    assert fixed([analytic], [1.0]) == [Outcome.PASS if close else Outcome.MISMATCH]


def test_the_tolerance_of_a_fixed_step_is_relative_to_the_numeric_side():
    assert fixed([1000.0], [999.0]) == [Outcome.MISMATCH]       # 1 > 1e-5 + 0.999
    assert fixed([999.0], [1000.0]) == [Outcome.PASS]           # 1 ≤ 1e-5 + 1.0


@pytest.mark.parametrize("analytic", [[1.0, 0.00101], [1.0, 0.0009], [1.0007, 0.0008], [NAN, 0.0]])
def test_both_parts_of_a_complex_element_are_one_number(analytic):
    ours, numeric = (torch.tensor(complex(*parts), dtype=torch.complex128) for parts in (analytic, (1.0, 0.0)))
    close = torch.allclose(ours, numeric, rtol=1e-3, atol=1e-5)
    assert fixed(analytic, [1.0, 0.0], is_complex=True)[0] == (Outcome.PASS if close else Outcome.MISMATCH)


def test_complex_parts_pair_up_within_their_own_element():
    assert fixed([1.0, 0.0, 2.0, 5.0], [1.0, 0.0, 2.0, 0.0], is_complex=True) == [Outcome.PASS] * 2 + [Outcome.MISMATCH] * 2


def test_the_floor_follows_the_outputs_natural_unit_not_its_offset():
    rows, size = torch.tensor([1.0, 1.0]), torch.tensor([1.0, 1e10])
    floor = compare.floors(rows, size, torch.tensor([0, 1]))
    assert floor[1] <= 1e3 * floor[0] * 1.001      # x + 1e10 may not hide a zero gradient
    assert floor[0] == pytest.approx(1e4 * 2.0**-53)


def test_a_dead_output_has_the_floor_of_its_tensor():
    floor = compare.floors(torch.zeros(2), torch.tensor([0.0, 2.0]), torch.tensor([0, 0]))
    assert floor.tolist() == pytest.approx([1e4 * 2.0**-53 * 2**0.5, 1e4 * 2.0**-53 * 2])


def test_huge_outputs_leave_a_finite_floor():
    floor = compare.floors(torch.zeros(2, dtype=torch.float64), torch.full((2,), 1e200, dtype=torch.float64), torch.tensor([0, 0]))
    assert floor.isfinite().all()
    assert floor.max() < 1e190


def test_an_empty_output_between_two_others_is_nothing_special():
    owner = compare.tensor_of([2, 0, 1])
    assert owner.tolist() == [0, 0, 2]
    assert compare.floors(torch.ones(3), torch.ones(3), owner).shape == (3,)
    assert compare.floors(torch.zeros(0), torch.zeros(0), compare.tensor_of([])).shape == (0,)
