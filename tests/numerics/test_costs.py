"""Predicted calls are those of method.md's table."""


import pytest

from gradverify.numerics.costs import Counts, Mode, SharingInputs, predicted, speed

R, C = 128, 16
GELU = Counts(4096, 4096, 1, 1, 1, 0, 1, 4096)
SOFTMAX = Counts(R * C, R * C, 1, 1, C, 0, C, R)
LINEAR = Counts(32 * 128 + 128 * 10, 320, 2, 1, 0, 128 + 128, 10 + 32, 320 + 10, 2)
DENSE = Counts(400, 50, 1, 1, 400, 0, 50, 1)
WIDE = Counts(50, 400, 1, 1, 50, 0, 400, 1)
FAST = speed(2e-5)
X_BY_ROWS = SharingInputs((0,), 2048, 32, 0, 32, 0)
PARAMETERS_BY_COLUMNS = SharingInputs((1, 2), 64, 0, 2, 64, 2)
LAYER_NORM = Counts(2112, 2048, 3, 1, 32, 2, 96, 64 + 32 + 32, 2, (X_BY_ROWS, PARAMETERS_BY_COLUMNS))


def calls(counts, mode):
    cost = predicted(counts, FAST).of[mode]
    return cost.forward, cost.backward


@pytest.mark.parametrize(("counts", "entries", "columns", "rows", "blocks"), [
    (GELU, (6 + 2, 1 + 1), (6 + 4, 2 + 1), (12 - 2, 1 + 1), (18 - 2, 3)),
    (SOFTMAX, (6 * C + 2, C + 1), (6 * C + 4, 2 + 1), (12 - 2, C + 1), (18 - 2, 3)),
    (LINEAR, (2 * 256, 42 + 1), (2 * 256 + 2 * 4, 2 + 1), (2 * (4 - 2 + 4), 42 + 1), (2 * (18 - 2), 3)),
    (DENSE, (2400, 50), (2400 + 4, 2 + 1), (12 - 2, 50 + 1), (18 - 2, 3)),
])
def test_calls_are_those_of_the_groups_and_of_one_direction_and_one_cotangent_that_verify_them(counts, entries, columns, rows, blocks):
    assert [calls(counts, mode) for mode in Mode] == [entries, columns, rows, blocks]
