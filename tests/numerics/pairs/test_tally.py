"""Counts, extremes and the worst elements of a pair, added up in any number of parts."""

import numpy as np
import pytest

from gradverify.numerics.pairs.pair import Outcome, Pair, PairElements
from gradverify.numerics.pairs.tally import Tally
from gradverify.numerics.verdict import Limit, Verdict

PASS, KINK, UNDECIDED, MISMATCH = Outcome.PASS, Outcome.KINK, Outcome.UNDECIDED, Outcome.MISMATCH


def seen(*rows):
    """(output, input, analytic, numeric, outcome), bars 1e-9 and tolerances 1e-6 of 1."""
    output, input_, a, v, outcome = (np.array(column) for column in zip(*rows, strict=True))
    n = len(rows)
    limit = np.array([Limit.NOISE if o in (UNDECIDED,) else Limit.NONE for o in outcome], object)
    nan = np.full(n, np.nan)
    a, v = a.astype(float), v.astype(float)
    return PairElements(output, input_, a, v, np.full(n, 1e-9), np.full(n, 1e-6), np.zeros(n), outcome.astype(np.int8), limit, nan, nan)


ROWS = [(0, 0, 1.0, 1.0, PASS), (1, 0, 2.0, 1.0, MISMATCH), (2, 1, 3.0, 3.5, UNDECIDED), (3, 1, 1.0, 1.0 + 5e-8, PASS), (4, 2, 0.5, 0.0, KINK)]


def tally(*parts, keep=10):
    result = Tally(0, 0, (5, 3), keep)
    for part in parts:
        result.add(part, quick=1)
    return result


def test_parts_add_up_to_the_whole():
    whole, parts = tally(seen(*ROWS)), tally(*(seen(row) for row in ROWS))
    parts.quick = whole.quick
    assert whole.result(1e-16, False) == parts.result(1e-16, False)


def test_counts_extremes_and_limits():
    pair = tally(seen(*ROWS)).result(1e-16, False)
    assert pair.counts == (2, 1, 1, 0, 0, 0, 1) and pair.elements == 5
    assert (pair.max_abs_error, pair.max_rel_error) == (1.0, 0.5)
    assert pair.resolution == pytest.approx(1e-6 + 1e-9)
    assert pair.deviation == pytest.approx(5e-8, rel=1e-6)
    assert pair.limits == ((Limit.NOISE, 1),)
    assert pair.largest == pytest.approx(3.5e6)


def test_the_worst_come_by_outcome_then_by_miss_and_no_more_than_asked_for():
    assert [w.outcome for w in tally(seen(*ROWS)).result(1e-16, False).worst] == [MISMATCH, UNDECIDED, KINK]
    worst = tally(*(seen(row) for row in ROWS), keep=2).result(1e-16, False).worst
    assert [(w.output_index, w.input_index, w.error) for w in worst] == [(1, 0, 1.0), (2, 1, 0.5)]


def test_of_what_passes_the_worst_one_is_kept():
    passing = [row for row in ROWS if row[-1] == PASS]
    whole, parts = (tally(*given).result(1e-16, False).worst for given in ((seen(*passing),), (seen(row) for row in passing)))
    assert len(passing) > 1 and whole == parts and [w.error for w in whole] == [max(abs(row[2] - row[3]) for row in passing)]


def test_a_small_pair_keeps_its_map_and_a_large_one_does_not():
    ratios = tally(seen(*ROWS)).result(1e-16, False).ratios
    assert ratios.shape == (5, 3) and ratios[1, 0] == pytest.approx(1e6) and ratios[0, 0] == 0
    assert Tally(0, 0, (41, 1), 1).result(1e-16, False).ratios is None


@pytest.mark.parametrize(("rows", "verdict"), [
    (ROWS[:1], Verdict.PASS), (ROWS[4:], Verdict.PASS), (ROWS[2:], Verdict.UNDECIDED), (ROWS, Verdict.MISMATCH)])
def test_the_verdict_is_that_of_the_worst(rows, verdict):
    assert tally(seen(*rows)).result(1e-16, False).verdict is verdict


def test_nothing_compared_is_a_pass_of_nothing():
    assert Pair(0, 0).verdict is Verdict.PASS and Pair(0, 0).compared == 0


def test_zeros_are_counted_with_what_could_have_been_seen_and_masked_ones_apart():
    t = Tally(0, 0, (2, 2), 3)
    t.add_zeros(np.array([0.0, 1e-9]), np.array([1e-6, 2e-6]), np.array([True]))
    pair = t.result(1e-16, False)
    assert (pair.elements, pair.masked, pair.compared, pair.count(PASS), pair.quick) == (3, 1, 2, 2, 2)
    assert (pair.resolution, pair.max_abs_error) == (2e-6, 1e-9)


def test_structural_zeros_are_elements_that_passed():
    t = Tally(0, 0, (2, 2), 3)
    t.add_structural(10**12, 1e-7)
    pair = t.result(1e-16, False)
    assert (pair.elements, pair.count(PASS), pair.resolution) == (10**12, 10**12, 1e-7)
