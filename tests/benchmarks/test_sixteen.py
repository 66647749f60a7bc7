"""The operators of low precision: one function in all ways in float64, and the page is what was counted."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import sixteen
from sixteen_judges import DAMAGES, function_of, inputs_of
from sixteen_kit import WRONG
from sixteen_page import page
from sixteen_set import OPERATORS, plain

sys.path.pop(0)


def test_there_are_sixty_operators_and_eight_kinds_of_mistakes():
    assert len(OPERATORS) >= 60 and len({*WRONG, *DAMAGES}) == 8


@pytest.mark.parametrize("name", OPERATORS)
def test_in_float64_every_way_is_the_same_function(name):
    """Mistakes are of low precision alone."""
    inputs = inputs_of(name, torch.float64, 0)
    exact = plain(name)(*inputs)
    for how in (*sixteen.right_ways(name), *WRONG):
        assert torch.allclose(function_of(name, how)(*inputs), exact, rtol=1e-9, atol=1e-9), how


@pytest.mark.parametrize("how", DAMAGES)
def test_a_damaged_gradient_is_wrong_in_sixteen_bits_alone(how):
    for dtype, same in ((torch.float64, True), (torch.bfloat16, False)):
        inputs = inputs_of("swiglu", dtype, 0)
        right, wrong = (torch.autograd.grad(function(*inputs).sum(), inputs) for function in (plain("swiglu"), function_of("swiglu", how)))
        assert all(torch.allclose(a, b, rtol=0.05, atol=0.05) for a, b in zip(right, wrong, strict=True)) == same


def test_right_ways_are_left_alone_and_mistakes_are_counted():
    counts = sixteen.counted("relu_squared", torch.bfloat16, 7)
    assert (counts["right all"], counts["right alarms"]) == (3, 0)
    assert counts["dropped tail above"] == counts["dropped tail found"] == 1


def test_the_page_adds_points_up():
    one = Counter({"right all": 4, "right each": 4, "dropped tail all": 1, "dropped tail above": 1, "dropped tail found": 1, "dropped tail close": 1})
    text = page({("softmax", "bfloat16", seed): one for seed in (0, 1)}, sixteen.WRONG, 2)
    assert "| GV112 | 8 | 0 |" in text and "GV112 finds 2 of 2 (100.0 %)." in text
    assert "| dropped tail | 2 | 2 | 2 | 2 | 0 | 0 of 0 | 0 | 0 |" in text and "2 seeds" in text
