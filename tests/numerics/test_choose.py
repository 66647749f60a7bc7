"""`auto` takes the strongest comparison that fits, and says why."""

import pytest

from gradverify.numerics.choose import Counts, Limits, Mode, choose, predicted
from gradverify.rules.chosen import could_miss, reason

R, C = 128, 16
GELU = Counts(4096, 4096, 1, 1, 1, 0, 1, 4096)
SOFTMAX = Counts(R * C, R * C, 1, 1, C, 0, C, R)
LINEAR = Counts(32 * 128 + 128 * 10, 320, 2, 1, 0, 128 + 128, 10 + 32, 320 + 10, 2)
DENSE = Counts(400, 50, 1, 1, 400, 0, 50, 1)
WIDE = Counts(50, 400, 1, 1, 50, 0, 400, 1)
FAST = 2e-5
LAYER_NORM = Counts(2112, 2048, 3, 1, 32, 2, 96, 64 + 32 + 32, 2)


@pytest.mark.parametrize("counts", [GELU, SOFTMAX, LINEAR])
def test_auto_takes_entries_where_they_fit(counts):
    chosen = choose(None, Limits(seconds=10), predicted(counts, FAST))
    assert chosen.mode is Mode.ENTRIES
    assert reason(chosen).startswith("Every element is affordable: ")
    assert reason(chosen).endswith("backward calls.")


@pytest.mark.parametrize(
    ("budget", "mode"), [(60, Mode.ROWS), (110, Mode.ROWS), (126, Mode.ENTRIES), (26, Mode.BLOCKS)]
)
def test_a_tighter_budget_of_calls_takes_rows_and_then_blocks(budget, mode):
    chosen = choose(None, Limits(calls=budget), predicted(SOFTMAX, FAST))
    assert chosen.mode is mode
    if mode is not Mode.ENTRIES:
        assert reason(chosen).startswith(
            "Entries would take 98 forward and 17 backward calls, about "
        )
        assert f"more than the budget of {budget} calls" in reason(chosen)
        assert f"The strongest that fits is {mode.value}: " in reason(chosen)


@pytest.mark.parametrize(("counts", "mode"), [(DENSE, Mode.ROWS), (WIDE, Mode.ROWS)])
def test_nothing_slower_than_gradcheck_is_taken(counts, mode):
    costs = predicted(counts, 1e-3)
    chosen = choose(None, Limits(seconds=10), costs)
    assert chosen.mode is mode
    assert chosen.cost.seconds <= costs.gradcheck.seconds < costs.of[Mode.ENTRIES].seconds
    assert (
        f"slower than gradcheck with {2 * counts.inputs + 1:,} forward and {counts.outputs:,} "
        "backward calls"
    ) in reason(chosen)


def test_a_small_check_is_made_in_full_though_gradcheck_were_faster():
    small = Counts(6, 9, 1, 1, 6, 0, 9, 1)
    costs = predicted(small, FAST)
    assert costs.of[Mode.ENTRIES].seconds > costs.gradcheck.seconds
    assert choose(None, Limits(seconds=10), costs).mode is Mode.ENTRIES


def test_where_nothing_fits_blocks_are_taken_and_the_reason_says_so():
    chosen = choose(None, Limits(calls=3), predicted(SOFTMAX, FAST))
    assert chosen.mode is Mode.BLOCKS
    assert reason(chosen).startswith("Nothing fits: entries would take 98 forward")
    assert all(f"{mode.value} would take" in reason(chosen) for mode in Mode)
    assert reason(chosen).endswith("The cheapest comparison is made all the same.")


def test_what_could_be_missed_names_the_line_and_the_tolerance():
    costs = predicted(DENSE, FAST)

    def missed(mode, relative=1e-8):
        return could_miss(choose(mode, Limits(), costs, relative))

    assert missed(Mode.ENTRIES) == "Nothing above the tolerance of an element."
    assert missed(Mode.ROWS, 1e-3).startswith(
        "Could miss an entry wrong by less than about 1e-03 of the norm of its row"
    )
    assert "one of 1e-06" in missed(Mode.BLOCKS)
