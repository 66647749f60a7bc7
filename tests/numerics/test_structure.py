"""How a tensor is walked: as guessed, by the complete code, without groups."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from gradverify.numerics.prepare import detected, find_other_structure, find_structure
from gradverify.numerics.seed_vectors import signed_weights_float32
from gradverify.numerics.sparsity.detect import with_dead_outputs
from gradverify.numerics.sparsity.pattern import column_groups, row_groups
from numerics.differentiable import Differentiable, normal
from numerics.windows import elementwise, prepared, windows


def structure(forward, *inputs, symmetric=None, detect=None, before=None, broken=frozenset()):
    point, known = prepared(Differentiable(forward, *inputs), symmetric=symmetric)
    with np.errstate(all="ignore"):
        detect = detect or detected
        return find_other_structure(point, known, detect, before, broken) if before else find_structure(point, known, detect)


def groups(found, tensor):
    """Column groups and row groups."""
    plan = found.plan(tensor)
    return plan and (plan.grouping.groups.count, sum(rows.count for rows in plan.rows))


def test_each_tensor_with_structure_has_a_plan():
    found = structure(lambda x, w: x @ w, normal(1, 12, 9), normal(2, 9, 5))
    assert [groups(found, t) for t in (0, 1)] == [(9, 5), (9, 12)]
    assert found.level == {0: 0, 1: 0}


@pytest.mark.parametrize(("forward", "x", "symmetric"), [
    (torch.sin, normal(1, 10), None), (lambda x: torch.tanh(normal(2, 30, 30) @ x), normal(1, 30), None),
    (torch.sin, torch.eye(6, dtype=torch.float64), [True]), (torch.sin, torch.full((30,), float("inf"), dtype=torch.float64), None)])
def test_what_is_small_or_dense_or_symmetric_or_not_finite_goes_column_by_column(forward, x, symmetric):
    found = structure(forward, x, symmetric=symmetric)
    assert found.plan(0) is None and not found.plans
    assert column_groups(found.patterns[0]).count == x.numel()


def test_a_broken_tensor_climbs_to_the_complete_code_and_then_to_none_and_others_keep_theirs():
    asked = []

    def detect(point, survey, tensor, exact):
        asked.append((tensor, exact))
        return (elementwise(30),)

    forward, inputs = (lambda x, y: x.sin() * y), (normal(1, 30), normal(2, 30))
    first = structure(forward, *inputs, detect=detect)
    second = structure(forward, *inputs, detect=detect, before=first, broken=frozenset({1}))
    third = structure(forward, *inputs, detect=detect, before=second, broken=frozenset({1}))
    assert asked == [(0, False), (1, False), (1, True)]
    assert (second.level, third.level) == ({0: 0, 1: 1}, {0: 0, 1: 2})
    assert third.plan(1) is None and groups(third, 0) == (1, 1)


def test_weights_are_signed_and_exact_in_float32():
    w = signed_weights_float32(500, np.random.default_rng(1))
    assert np.array_equal(w, w.astype(np.float32).astype(float))
    assert np.abs(w).min() > 0.69 and np.abs(w).max() < 1.41 and 200 < np.sum(w > 0) < 300


def test_dead_outputs_take_the_place_that_the_rule_of_the_others_gives_them():
    index = np.arange(20)
    dead = index % 3 == 0
    gated = windows((20,), [np.where(dead, 0, index)], [np.where(dead, -1, index)], dead)
    whole = with_dead_outputs(gated, (20,))
    assert whole.low[0].tolist() == whole.high[0].tolist() == index.tolist() and not whole.nothing.any()
    assert row_groups(whole).count == 1


def test_without_a_rule_dead_outputs_stay_dead():
    order = np.random.default_rng(0).permutation(20)
    dead = np.arange(20) % 3 == 0
    shuffled = windows((20,), [np.where(dead, 0, order)], [np.where(dead, -1, order)], dead)
    assert with_dead_outputs(shuffled, (20,)) is shuffled


def test_relu_is_one_group_of_rows():
    assert groups(structure(F.relu, normal(1, 30, 30)), 0) == (1, 1)
