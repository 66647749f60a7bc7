"""Forwards that move in steps because they add large numbers and take them away again, against the
closed form of what they round.

Faults to be found: a gradient of zero, which the finer steps show, that stays open; a right one
that stays open or is called wrong; steps that the function has by itself (`round`), where neither
is known, taken for rounding.
"""

from __future__ import annotations

import pytest
import torch

from gradverify.numerics.choose import Mode
from gradverify.numerics.compare import compare
from gradverify.numerics.verdict import Limit, Verdict
from numerics.differentiable import Differentiable

LARGE = 1.5 * 2.0**22  # above it, numbers are multiples of 2^-30, about 1e-9
PARTS = (1.0, 1.1875, 1.3125, 1.4375)
X = torch.tensor([0.3, 0.9, -1.4, 2.1], dtype=torch.float64)
FUNCTIONS = {"sine": torch.sin, "tanh": torch.tanh, "a sum": lambda x: torch.sin(x) + x.sum()}


def rounded_inside(f):
    """f as the mean of four parts of it, each rounded to a multiple of 2^-30 by torch's own
    additions."""
    return lambda x: sum(((f(x) * part + LARGE) - LARGE) / part for part in PARTS) / len(PARTS)


def pair_of(forward, factor, mode):
    def damage(gradients):
        return [factor * g for g in gradients]

    (found,) = compare(Differentiable(forward, X, damage=damage), mode=mode).pairs
    return found


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_right_gradient_is_decided_above_the_steps(name):
    assert pair_of(rounded_inside(FUNCTIONS[name]), 1.0, Mode.ENTRIES).verdict is Verdict.PASS


@pytest.mark.parametrize("factor", [0.0, 1 - 1e-4, 1.01, -1.0])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_wrong_one_is_wrong_the_slope_of_a_tread_included(name, factor):
    assert (
        pair_of(rounded_inside(FUNCTIONS[name]), factor, Mode.ENTRIES).verdict is Verdict.MISMATCH
    )


@pytest.mark.parametrize("factor", [0.0, 1.0])
@pytest.mark.parametrize("fine", [1e3, 1e6])
def test_steps_that_no_rounding_makes_are_the_functions_own(fine, factor):
    pair = pair_of(
        lambda x: torch.sin(x) + ((torch.sin(x) * fine).round() / fine - torch.sin(x)).detach(),
        factor,
        Mode.ENTRIES,
    )
    assert pair.verdict is Verdict.UNDECIDED
    assert {worst.limit for worst in pair.worst} == {Limit.STAIRCASE}
