from __future__ import annotations

import torch
from live import Oracles, check, codes, message, randn


def checked(function, reference, *values):
    return check(function, *values, oracles=Oracles(reference=reference))


def test_a_forward_that_differs_is_found_although_its_gradient_fits_itself():
    result = checked(lambda x: x.sin() + 1e-3, "torch:sin", randn(2, 3))
    assert codes(result) == {"GV105"}
    assert "6 of 6 numbers of y0 differ from reference torch:sin" in message(result, "GV105")


def test_another_shape_is_found():
    assert "shape [2, 3], the reference [3, 2]" in message(checked(torch.sin, "rules.test_gv105_reference_value:transposed", randn(2, 3)), "GV105")


def transposed(x):
    return x.sin().t()


def test_another_order_of_the_same_sum_is_no_difference():
    assert codes(checked(lambda x: x.flip(0).sum(0), "rules.test_gv105_reference_value:summed", randn(50, 2))) == set()


def summed(x):
    return x.sum(0)


def test_without_a_reference_it_does_not_apply():
    run, = (run for run in check(torch.sin, randn(2)).rules if run.code == "GV105")
    assert (run.status, run.reason) == ("not_applicable", "the spec names no `reference`")
