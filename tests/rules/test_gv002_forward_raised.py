from __future__ import annotations

import sys

import pytest
import torch
from live import check, codes, message, randn


def raises(x):
    raise ValueError("not today")


def quits(x):
    sys.exit(0)


@pytest.mark.parametrize(("function", "said"), [(raises, "ValueError: not today"), (quits, "SystemExit: 0"),
                                                (lambda x: torch.mm(x, x), "RuntimeError: mat1 and mat2")])
def test_a_forward_that_raises_is_an_error_with_the_users_frames(function, said):
    result = check(function, randn(2, 3))
    assert (result.verdict, codes(result)) == ("error", {"GV002"})
    assert said in message(result, "GV002")
    assert [frame.file for frame in result.findings[0].frames] == [__file__]


def test_a_forward_that_raises_only_beside_the_point_is_not_called_raising():
    def border(x):
        if (x > 1).any():
            raise ValueError("outside")
        return x * 2

    result = check(border, torch.tensor([1.0, 0.5], dtype=torch.float64))
    assert (result.verdict, codes(result)) == ("pass", set()), "one side of the border is enough for a bar"


def test_nothing_else_is_judged_afterwards():
    result = check(raises, randn(2))
    assert {run.status for run in result.rules} == {"not_applicable"}
    assert result.comparisons == ()
