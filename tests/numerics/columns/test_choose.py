"""Predicted calls are those of method.md's table, and `auto` takes the strongest comparison that fits."""

from dataclasses import replace

import pytest

from gradverify.numerics.columns.choose import (
    CALLED,
    CLIMBED,
    PULLED,
    THEIRS,
    Cost,
    Costs,
    Counts,
    Limits,
    Mode,
    Speed,
    choose,
    could_miss,
    predicted,
    speed,
)

R, C = 128, 16
GELU = Counts(4096, 4096, 1, 1, 1, 0, 1, 4096)
SOFTMAX = Counts(R * C, R * C, 1, 1, C, 0, C, R)
LINEAR = Counts(32 * 128 + 128 * 10, 320, 2, 1, 0, 128 + 128, 10 + 32, 320 + 10, 2)
DENSE = Counts(400, 50, 1, 1, 400, 0, 50, 1)
WIDE = Counts(50, 400, 1, 1, 50, 0, 400, 1)
FAST = speed(2e-5)


def calls(counts, mode):
    cost = predicted(counts, FAST).of[mode]
    return cost.forward, cost.backward


@pytest.mark.parametrize(("counts", "entries", "columns", "rows", "blocks"), [
    (GELU, (6 + 4, 1 + 1), (6 + 4, 2 + 1), (12 - 2, 1 + 1), (18 - 2, 3)),
    (SOFTMAX, (6 * C + 4, C + 1), (6 * C + 4, 2 + 1), (12 - 2, C + 1), (18 - 2, 3)),
    (LINEAR, (2 * 256, 42 + 1), (2 * 256 + 2 * 4, 2 + 1), (2 * (12 - 2), 42 + 1), (2 * (18 - 2), 3)),
    (DENSE, (2400, 50), (2400 + 4, 2 + 1), (12 - 2, 50 + 1), (18 - 2, 3)),
])
def test_calls_are_those_of_the_groups_and_of_one_direction_and_one_cotangent_that_verify_them(counts, entries, columns, rows, blocks):
    assert [calls(counts, mode) for mode in Mode] == [entries, columns, rows, blocks]


def test_gradcheck_takes_two_calls_an_input_and_a_backward_an_output():
    cost = predicted(SOFTMAX, Speed(1e-3, 3e-3)).gradcheck
    assert (cost.forward, cost.backward) == (2 * R * C + 1, R * C)
    assert cost.seconds == pytest.approx((1e-3 + THEIRS[0]) * (2 * R * C + 1) + (3e-3 + THEIRS[1]) * R * C)


def test_seconds_are_those_of_calls_of_solving_and_of_climbing():
    cost = predicted(GELU, Speed(1e-3, 4e-3, 1e-6)).of[Mode.ROWS]
    assert cost.seconds == pytest.approx(10e-3 + 2 * 4e-3 + 12 * CALLED + 2 * 4096 * 1e-6 + 4096 * PULLED)
    cost = predicted(SOFTMAX, Speed(1e-3, 4e-3, 1e-6)).of[Mode.ENTRIES]
    climbing = CLIMBED * 6 * C * (1e-3 + CALLED)
    calls = (6 * C + 4) * (1e-3 + CALLED) + (C + 1) * (4e-3 + CALLED)
    assert cost.seconds == pytest.approx(calls + R * C * C * 1e-6 + climbing + C * R * C * PULLED)


@pytest.mark.parametrize("counts", [GELU, SOFTMAX, LINEAR])
def test_auto_takes_entries_where_they_fit(counts):
    chosen = choose(None, Limits(seconds=10), predicted(counts, FAST))
    assert chosen.mode is Mode.ENTRIES
    assert chosen.reason.startswith("Every element is affordable: ")
    assert chosen.reason.endswith("backward calls.")


@pytest.mark.parametrize(("budget", "mode"), [(60, Mode.ROWS), (110, Mode.ROWS), (126, Mode.ENTRIES), (26, Mode.BLOCKS)])
def test_a_tighter_budget_of_calls_takes_the_cheaper_of_columns_and_rows_and_then_blocks(budget, mode):
    chosen = choose(None, Limits(calls=budget), predicted(SOFTMAX, FAST))
    assert chosen.mode is mode
    if mode is not Mode.ENTRIES:
        assert chosen.reason.startswith("Entries would take 100 forward and 17 backward calls, about ")
        assert f"more than the budget of {budget} calls" in chosen.reason
        assert f"The strongest that fits is {mode.value}: " in chosen.reason


def test_columns_are_taken_where_they_are_the_cheaper():
    chosen = choose(None, Limits(calls=310), predicted(WIDE, speed(2e-4)))
    assert chosen.mode is Mode.COLUMNS


def test_a_budget_of_seconds_counts_too():
    slow = predicted(SOFTMAX, speed(1.0))
    assert choose(None, Limits(seconds=50), slow).mode is Mode.ROWS
    assert choose(None, Limits(seconds=45), slow).mode is Mode.ROWS
    assert choose(None, Limits(seconds=30), slow).mode is Mode.BLOCKS
    assert "more than the budget of 30 s" in choose(None, Limits(seconds=30), slow).reason


@pytest.mark.parametrize(("counts", "mode"), [(DENSE, Mode.ROWS), (WIDE, Mode.COLUMNS)])
def test_nothing_slower_than_gradcheck_is_taken(counts, mode):
    costs = predicted(counts, speed(1e-3))
    chosen = choose(None, Limits(seconds=10), costs)
    assert chosen.mode is mode
    assert chosen.cost.seconds <= costs.gradcheck.seconds < costs.of[Mode.ENTRIES].seconds
    assert f"slower than gradcheck with {2 * counts.inputs + 1:,} forward and {counts.outputs:,} backward calls" in chosen.reason


def test_a_small_check_is_made_in_full_though_gradcheck_were_faster():
    small = Counts(6, 9, 1, 1, 6, 0, 9, 1)
    costs = predicted(small, FAST)
    assert costs.of[Mode.ENTRIES].seconds > costs.gradcheck.seconds
    assert choose(None, Limits(seconds=10), costs).mode is Mode.ENTRIES


def test_where_nothing_fits_blocks_are_taken_and_the_reason_says_so():
    chosen = choose(None, Limits(calls=3), predicted(SOFTMAX, FAST))
    assert chosen.mode is Mode.BLOCKS
    assert chosen.reason.startswith("Nothing fits: entries would take 100 forward")
    assert all(f"{mode.value} would take" in chosen.reason for mode in Mode)
    assert chosen.reason.endswith("The cheapest comparison is made all the same.")


@pytest.mark.parametrize("mode", list(Mode))
def test_what_is_asked_for_is_taken_whatever_it_costs(mode):
    chosen = choose(mode, Limits(calls=1, seconds=1e-9), predicted(DENSE, FAST))
    assert chosen.mode is mode
    assert chosen.reason.startswith(f"`mode: {mode.value}` was asked for: ")


def test_what_could_be_missed_names_the_line_and_the_tolerance():
    assert could_miss(Mode.ENTRIES) == "Nothing above the tolerance of an element."
    assert could_miss(Mode.COLUMNS).startswith("Could miss an entry wrong by less than about 1e-08 of the norm of its column")
    assert could_miss(Mode.ROWS, 1e-3).startswith("Could miss an entry wrong by less than about 1e-03 of the norm of its row")
    assert "one of 1e-06" in could_miss(Mode.BLOCKS)


def test_the_cheaper_of_columns_and_rows_is_so_by_seconds():
    costs = predicted(SOFTMAX, FAST)
    columns_cheap = replace(costs.of[Mode.COLUMNS], seconds=1e-9)
    swapped = Costs({**costs.of, Mode.COLUMNS: columns_cheap, Mode.ENTRIES: Cost(10**6, 0, 1e3)}, Cost(10**6, 0, 1e3))
    assert choose(None, Limits(seconds=10), swapped).mode is Mode.COLUMNS
