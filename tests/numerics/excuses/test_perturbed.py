"""Rounding of a float32 backward that is the same at all points nearby: saturated attention, where
the softmax is one float32 number at all of them.

The class of faults: a right backward is accused of it; or a wrong one hides in it.
"""

import pytest
import torch
from live import evidence, randn

from gradverify.numerics.pairs.pair import Outcome
from gradverify.numerics.verdict import Verdict
from numerics.excuses.attention import attention


def pairs(function, size, seed, n=4):
    q, k, v = (
        size * randn(n, 3, seed=10 * seed + place, dtype=torch.float32) for place in range(3)
    )
    return evidence(function, q, k, v, dtype="float32", mode="entries", seed=seed).jacobian.pairs


@pytest.mark.population(most=2)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("size", [5.0, 20.0])
def test_saturated_attention_is_right_in_float32(size, causal):
    for seed in range(2):
        found = pairs(attention(causal=causal), size, seed, n=5)
        assert not any(each.count(Outcome.MISMATCH) for each in found.values())


@pytest.mark.population(most=5)
@pytest.mark.parametrize("damage", ["sign", "twice", "dropped", "transposed", "one per cent"])
# Of 20 elsewhere no weight moves
@pytest.mark.parametrize(("size", "seeds"), [(5.0, (0,)), (20.0, (4,))])
def test_a_wrong_one_is_found_at_the_same_inputs(size, seeds, damage):
    for seed in seeds:
        assert pairs(attention(damage), size, seed)[0, 0].verdict is Verdict.MISMATCH


@pytest.mark.population(most=1)
@pytest.mark.parametrize("damage", ["sign", "twice", "dropped"])
def test_a_mistake_of_float32_alone_is_found(damage):
    for seed in range(2):
        assert (
            pairs(attention(damage, dtypes=[torch.float32]), 5.0, seed)[0, 0].verdict
            is Verdict.MISMATCH
        )
