"""Kinks and wrong subgradients come to the same in one tile as in many.

The class of fault is a verdict that depends on how the columns are streamed.
"""

import pytest
import torch

from gradverify.numerics.pairs.pair import Outcome
from numerics.differentiable import DOUBLE, check, times

AT_KINKS = torch.zeros(5, 5, dtype=DOUBLE)
# bytes: a column group, or some of its outputs, at a time
SMALL = 1 << 10


def kinked(x):
    """Each output depends on two neighbours: two groups of columns, and two of outputs."""
    return torch.relu(x[:, :-1]) + torch.relu(x[:, 1:])


@pytest.mark.parametrize("limit", [64 << 20, SMALL])
def test_kinks_pass_however_many_columns_are_there(limit):
    [pair] = check(kinked, torch.zeros(4, 6, dtype=DOUBLE), limit=limit).pairs
    assert pair.count(Outcome.KINK) == 4 * 5 * 2 and not pair.count(Outcome.MISMATCH)


@pytest.mark.parametrize("limit", [64 << 20, SMALL])
def test_a_wrong_subgradient_is_found_either_way(limit):
    [pair] = check(
        torch.relu, AT_KINKS, damage=lambda grads: [g + 2 for g in times(0.0)(grads)], limit=limit
    ).pairs
    assert pair.count(Outcome.MISMATCH)
