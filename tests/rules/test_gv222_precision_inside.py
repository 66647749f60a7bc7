from __future__ import annotations

import pytest
import torch
from live import check, codes, message, randn


@pytest.mark.parametrize(("inside", "name"), [(torch.float32, "float32"), (torch.bfloat16, "bfloat16")])
def test_a_forward_in_fewer_bits_is_told_by_the_bits(inside, name):
    result = check(lambda x: (x.to(inside).sin() * 1.7).to(x.dtype), randn(12))
    assert result.verdict != "fail"
    assert "GV222" in codes(result) or result.verdict == "undecided"
    if "GV222" in codes(result):
        assert f"is a {name} number: forward computes in {name}, or rounds to it" in message(result, "GV222")


def test_float32_inside_passes_at_float32_accuracy():
    result = check(lambda x: x.float().exp().double(), randn(12))
    assert (result.verdict, codes(result)) == ("pass", {"GV222"})


@pytest.mark.parametrize("function", [lambda x: x * 2, torch.sign, torch.round, lambda x: (x > 0).double() * x, lambda x: x.sum()],
                         ids=["times 2", "sign", "round", "mask", "sum"])
def test_round_numbers_are_no_low_precision(function):
    assert "GV222" not in codes(check(function, torch.tensor([0.5, 1.25, -2.0, 3.0], dtype=torch.float64)))


def test_float32_inputs_claim_no_more_than_they_have():
    result = check(torch.exp, randn(12, dtype=torch.float32), dtype="float32")
    assert codes(result) == set()
