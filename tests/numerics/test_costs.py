"""Predicted calls are those of method.md's table."""

import pytest

from gradverify.numerics.choose import CALL_OVERHEAD, CLIMBED, GRADCHECK_CALL, PULLED, Counts, Mode, Speed, predicted, speed

R, C = 128, 16
GELU = Counts(4096, 4096, 1, 1, 1, 0, 1, 4096)
SOFTMAX = Counts(R * C, R * C, 1, 1, C, 0, C, R)
LINEAR = Counts(32 * 128 + 128 * 10, 320, 2, 1, 0, 128 + 128, 10 + 32, 320 + 10, 2)
DENSE = Counts(400, 50, 1, 1, 400, 0, 50, 1)
WIDE = Counts(50, 400, 1, 1, 50, 0, 400, 1)
FAST = speed(2e-5)
LAYER_NORM = Counts(2112, 2048, 3, 1, 32, 2, 96, 64 + 32 + 32, 2)


def calls(counts, mode):
    cost = predicted(counts, FAST).of[mode]
    return cost.forward, cost.backward


@pytest.mark.parametrize(("counts", "entries", "rows", "blocks"), [
    (GELU, (6 + 2, 1 + 1), (12 - 2, 1 + 1), (18 - 2, 3)),
    (SOFTMAX, (6 * C + 2, C + 1), (12 - 2, C + 1), (18 - 2, 3)),
    (LINEAR, (2 * 256, 42 + 1), (2 * (4 - 2 + 4), 42 + 1), (2 * (18 - 2), 3)),
    (DENSE, (2400, 50), (12 - 2, 50 + 1), (18 - 2, 3)),
])
def test_calls_are_those_of_the_groups_and_of_one_direction_and_one_cotangent_that_verify_them(counts, entries, rows, blocks):
    assert [calls(counts, mode) for mode in Mode] == [entries, rows, blocks]


def test_gradcheck_takes_two_calls_an_input_and_a_backward_an_output():
    cost = predicted(SOFTMAX, Speed(1e-3, 3e-3)).gradcheck
    assert (cost.forward, cost.backward) == (2 * R * C + 1, R * C)
    assert cost.seconds == pytest.approx((1e-3 + GRADCHECK_CALL[0]) * (2 * R * C + 1) + (3e-3 + GRADCHECK_CALL[1]) * R * C)


def test_seconds_are_those_of_calls_of_solving_and_of_climbing():
    cost = predicted(GELU, Speed(1e-3, 4e-3, 1e-6)).of[Mode.ROWS]
    assert cost.seconds == pytest.approx(10e-3 + 2 * 4e-3 + 12 * CALL_OVERHEAD + 2 * 4096 * 1e-6 + 4096 * PULLED)
    cost = predicted(SOFTMAX, Speed(1e-3, 4e-3, 1e-6)).of[Mode.ENTRIES]
    climbing = CLIMBED * 6 * C * (1e-3 + CALL_OVERHEAD)
    calls = (6 * C + 2) * (1e-3 + CALL_OVERHEAD) + (C + 1) * (4e-3 + CALL_OVERHEAD)
    assert cost.seconds == pytest.approx(calls + R * C * C * 1e-6 + climbing + C * R * C * PULLED)
