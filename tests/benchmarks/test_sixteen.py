"""The operators of low precision: one function in all ways in float64, and the page is what was
counted."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import sixteen
import sixteen_single
from sixteen_judges import DAMAGES, function_of, inputs_of
from sixteen_kit import SMALL, WRONG
from sixteen_set import OPERATORS, plain
from sixteen_single_page import HEADING

sys.path.pop(0)


@pytest.mark.population(most=12)
@pytest.mark.parametrize("of", [torch.float64, torch.float32])
@pytest.mark.parametrize("name", OPERATORS)
def test_in_float64_every_way_is_the_same_function(name, of):
    """Mistakes are of low precision alone. `of`: the dtype that says how many rows there are."""
    inputs = [x.detach().double() for x in inputs_of(name, of, 0)]
    exact = plain(name)(*inputs)
    for how in (*sixteen.right_ways(name), *WRONG, *SMALL):
        assert torch.allclose(function_of(name, how)(*inputs), exact, rtol=1e-9, atol=1e-9), how


@pytest.mark.parametrize("how", DAMAGES)
def test_a_damaged_gradient_is_wrong_in_sixteen_bits_alone(how):
    for dtype, same in ((torch.float64, True), (torch.bfloat16, False)):
        inputs = inputs_of("swiglu", dtype, 0)
        right, wrong = (
            torch.autograd.grad(function(*inputs).sum(), inputs)
            for function in (plain("swiglu"), function_of("swiglu", how))
        )
        assert (
            all(
                torch.allclose(a, b, rtol=0.05, atol=0.05)
                for a, b in zip(right, wrong, strict=True)
            )
            == same
        )


def test_right_ways_are_left_alone_and_mistakes_are_counted():
    counts = sixteen.counted("relu_squared", torch.bfloat16, 7)
    assert (counts["right all"], counts["right alarms"]) == (3, 0)
    assert counts["dropped tail above"] == counts["dropped tail found"] == 1


def test_in_float32_right_ways_pass_and_mistakes_are_caught():
    counts = sixteen_single.counted(
        "relu_squared", 7, 0, ["16 bits", "other order"], ["missing upcast", "dropped tail"]
    )
    assert counts["16 bits True passed"] == counts["other order True passed"] == 1
    assert all(
        counts[f"{how} above"] == counts[f"{how} above caught"] == 1
        for how in ("missing upcast", "dropped tail")
    )


def test_a_run_in_float32_leaves_the_page_of_16_bits_as_it_is():
    known = {("softmax", "float32", 0): Counter({"other order True passed": 1})}
    after = sixteen.whole(known, f"16 bits\n\n{HEADING}\n\nold counts\n")
    assert after.startswith(f"16 bits\n\n{HEADING}\n") and "old counts" not in after
