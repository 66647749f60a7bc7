from __future__ import annotations

import itertools
import random

import pytest
import torch

from gradverify.numerics import compare
from gradverify.numerics.derivative import Derivative, Outcome
from gradverify.numerics.tally import MAP_COLUMNS, WORST, Element, Tally, tally

KINDS = (Outcome.PASS, Outcome.MISMATCH, Outcome.UNDECIDED, Outcome.NON_FINITE, Outcome.MASKED, Outcome.KINK)


def block(rows, columns, seed=0, kinds=KINDS):
    """Random numbers and outcomes: (analytic, derivative, judged)."""
    source = random.Random(seed)
    analytic, value = (torch.randn(rows, columns, dtype=torch.float64, generator=torch.Generator().manual_seed(seed + k)) for k in range(2))
    outcome = torch.tensor([[source.choice(kinds) for _ in range(columns)] for _ in range(rows)], dtype=torch.int8)
    bar, tolerance = torch.full_like(value, 1e-9), torch.full_like(value, 1e-6)
    error = (analytic - value).abs()
    return analytic, Derivative(value, bar, outcome, outcome < 0), compare.Judged(error, tolerance, outcome)


def cut(parts, columns):
    analytic, derivative, judged = parts
    return (analytic[:, columns], Derivative(*(getattr(derivative, name)[:, columns] for name in ("value", "bar", "outcome", "unchanged"))),
            compare.Judged(*(getattr(judged, name)[:, columns] for name in ("error", "tolerance", "outcome"))))


def comparable(seen: Tally):
    fields = {name: getattr(seen, name) for name in Tally.__slots__ if name not in ("ratios", "worst")}
    return fields, [(e.output, e.input, e.outcome) for e in seen.worst], None if seen.ratios is None else seen.ratios.tolist()


@pytest.mark.parametrize("kinds", [KINDS, (Outcome.PASS,), (Outcome.PASS, Outcome.MASKED), (Outcome.MISMATCH,)])
@pytest.mark.parametrize("cuts", [(0, 1, 40), (0, 7, 8, 33, 40), tuple(range(41))])
def test_tallies_of_runs_of_columns_add_up_to_the_tally_of_the_whole(kinds, cuts):
    parts = block(30, 40, kinds=kinds)
    whole = tally(*parts, 0, False, True)
    merged = None
    for first, last in itertools.pairwise(cuts):
        seen = tally(*cut(parts, slice(first, last)), first, False, True)
        merged = seen if merged is None else merged + seen
    assert comparable(merged) == comparable(whole)


def test_ties_merge_to_the_same_elements_too():
    analytic = torch.full((20, 30), torch.nan, dtype=torch.float64)
    zero = torch.zeros_like(analytic)
    outcome = torch.full(analytic.shape, Outcome.MISMATCH, dtype=torch.int8)
    parts = analytic, Derivative(zero, zero, outcome, outcome < 0), compare.Judged(analytic.abs(), zero + 1, outcome)
    whole = tally(*parts, 0, False, False)
    merged = tally(*cut(parts, slice(0, 11)), 0, False, False) + tally(*cut(parts, slice(11, 30)), 11, False, False)
    assert [(e.output, e.input) for e in merged.worst] == [(e.output, e.input) for e in whole.worst]
    assert len(whole.worst) == WORST


def test_counts_leave_masked_elements_out():
    parts = block(10, 10)
    seen = tally(*parts, 0, False, False)
    masked = int((parts[1].outcome == Outcome.MASKED).sum())
    assert masked > 0
    assert seen.elements == 100 - masked
    assert seen.count(Outcome.MISMATCH, Outcome.PASS) == sum(int((parts[1].outcome == kind).sum()) for kind in (Outcome.MISMATCH, Outcome.PASS))


def test_mismatches_come_before_open_elements_and_the_worst_ratio_first():
    seen = tally(*block(30, 30), 5, False, False)
    kinds = [element.outcome for element in seen.worst]
    wrong = kinds.count(Outcome.MISMATCH)
    assert kinds[:wrong] == [Outcome.MISMATCH] * wrong
    ratios = [element.ratio for element in seen.worst[:wrong]]
    assert ratios == sorted(ratios, reverse=True)
    assert all(element.input >= 5 for element in seen.worst)
    analytic, derivative, _ = block(30, 30)
    first = seen.worst[0]
    assert first.analytic == analytic[first.output, first.input - 5]
    assert first.numeric == derivative.value[first.output, first.input - 5]


def test_without_failures_the_element_nearest_its_tolerance_is_kept():
    analytic = torch.tensor([[1.0, 2.0, 3.0]], dtype=torch.float64)
    value = torch.tensor([[1.0, 2.0 + 3e-7, 3.0 + 2e-7]], dtype=torch.float64)
    outcome, zero = torch.zeros(1, 3, dtype=torch.int8), torch.zeros(1, 3, dtype=torch.float64)
    judged = compare.Judged((analytic - value).abs(), zero + 1e-6, outcome)
    seen = tally(analytic, Derivative(value, zero, outcome, outcome < 0), judged, 0, False, False)
    element, = seen.worst
    assert (element.input, element.ratio) == (1, pytest.approx(0.3))


def test_an_element_of_nan_error_has_an_infinite_ratio():
    assert Element(0, 0, float("nan"), 1.0, 0.0, 1e-6, float("nan"), Outcome.MISMATCH).ratio == float("inf")
    assert Element(0, 0, 1.0, 1.0, 0.0, 0.0, 0.0, Outcome.PASS).ratio == 0.0
    assert Element(0, 0, 1.0, 2.0, 0.0, 0.0, 1.0, Outcome.MISMATCH).ratio == float("inf")


def test_masked_elements_count_for_no_extreme():
    analytic, value = torch.tensor([[1.0, torch.nan]]), torch.tensor([[1.0, torch.nan]])
    outcome = torch.tensor([[Outcome.PASS, Outcome.MASKED]], dtype=torch.int8)
    bar = torch.tensor([[0.0, torch.inf]])
    seen = tally(analytic, Derivative(value, bar, outcome, outcome < 0),
                 compare.Judged((analytic - value).abs(), torch.tensor([[1e-6, torch.nan]]), outcome), 0, False, True)
    assert (seen.max_abs_error, seen.max_rel_error, seen.elements) == (0.0, 0.0, 1)
    assert seen.resolution == pytest.approx(1e-6)
    assert seen.ratios.tolist() == [[0.0, 0.0]]


def test_where_only_the_numeric_side_is_missing_the_gradient_still_counts_as_seen():
    analytic, value = torch.tensor([[2.0]]), torch.tensor([[torch.nan]])
    outcome = torch.tensor([[Outcome.NON_FINITE]], dtype=torch.int8)
    seen = tally(analytic, Derivative(value, value, outcome, outcome < 0), compare.Judged(value, torch.tensor([[1e-6]]), outcome), 0, False, False)
    assert seen.largest == pytest.approx(2e6)
    assert seen.max_abs_error == 0.0


def test_nothing_at_all_has_a_tally():
    empty = torch.zeros(3, 0, dtype=torch.float64)
    outcome = torch.zeros(3, 0, dtype=torch.int8)
    seen = tally(empty, Derivative(empty, empty, outcome, outcome < 0), compare.Judged(empty, empty, outcome), 0, True, True)
    assert (seen.elements, seen.worst, seen.max_abs_error) == (0, (), 0.0)
    assert MAP_COLUMNS >= 1


def test_absent_holds_only_while_every_run_is_absent():
    assert (Tally(absent=True) + Tally(absent=True)).absent
    assert not (Tally(absent=True) + Tally(absent=False)).absent
