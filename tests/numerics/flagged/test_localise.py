"""From a flagged block, or column, to the entry at fault."""

from collections import namedtuple

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from gradverify.numerics.flagged.localise import Place, localise, localise_column
from gradverify.numerics.probing.seed_matrices import SurveyedPoint
from gradverify.numerics.sparsity.pattern import dense
from numerics.differentiable import DOUBLE, Differentiable, normal, with_backward
from numerics.windows import along_last, elementwise, prepared

R, C = 6, 32
Found = namedtuple("Found", "columns outputs forward backward")
X = normal(1, R, C)


def softmax_with(entries):
    """softmax whose backward has amount added at (output, column)."""
    def backward(x, g):
        y = x.softmax(-1)
        d = (y * (g - (g * y).sum(-1, keepdim=True))).clone()
        for output, column, amount in entries:
            d.view(-1)[column] += amount * g.reshape(-1)[output]
        return d

    return with_backward(lambda x: x.softmax(-1), backward)


def located(forward, x, pattern, block, seed=1, damage=None):
    return counted(forward, x, pattern, lambda place: localise(place, block), damage, seed)


def counted(forward, x, pattern, look, damage=None, seed=1):
    """What is found at the only pair, with the calls that it took."""
    point, known = prepared(Differentiable(forward, x, damage=damage), seed=seed)
    before = point.forward, point.backward
    with np.errstate(all="ignore"):
        found = look(Place.of(SurveyedPoint(point, known), 0, 0, pattern))
    return Found(found.columns, found.outputs, point.forward - before[0], point.backward - before[1])


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("output", "column"), [(70, 90), (64, 64), (95, 65)])
def test_one_wrong_entry_of_a_block_is_named(output, column, seed):
    found = located(softmax_with([(output, column, 1e-4)]), X, along_last(R, C), 2, seed)
    assert (found.columns.tolist(), found.outputs.tolist()) == ([column], [output])
    assert found.forward <= 6 * (1 + 5 + 2)
    assert found.backward <= 1 + 6


def test_one_of_several_wrong_entries_is_named():
    wrong = [(70, 90, 1e-3), (71, 65, -1e-3), (95, 80, 1e-3)]
    found = located(softmax_with(wrong), X, along_last(R, C), 2)
    assert (int(found.outputs[0]), int(found.columns[0])) in [(output, column) for output, column, _ in wrong]


def test_a_gradient_element_that_is_off_is_named():
    def damage(grads):
        g = grads[0].clone()
        g.view(-1)[77] *= 1.01
        return [g]

    found = located(F.gelu, X, elementwise(R, C), 77, damage=damage)
    assert (found.columns.tolist(), found.outputs.tolist()) == ([77], [77])
    assert located(torch.erf, X.view(-1), dense((R * C,), R * C), 0, damage=damage).columns.tolist() == [77]


def test_an_output_outside_of_the_block_that_is_pulled_back_into_it_is_named():
    found = located(softmax_with([(5 * C + 3, 2 * C + 7, 1e-4)]), X, along_last(R, C), 2)
    assert (found.columns.tolist(), found.outputs.tolist()) == ([2 * C + 7], [5 * C + 3])


def test_an_input_outside_of_the_block_that_the_forward_leaks_in_is_named():
    def forward(x):
        return x.softmax(-1) + 0.1 * x[5, 3].detach().sin() * torch.eye(R * C, dtype=DOUBLE)[2 * C + 7].view(R, C)

    found = located(forward, X, along_last(R, C), 2)
    assert (found.columns.tolist(), found.outputs.tolist()) == ([5 * C + 3], [2 * C + 7])


def test_nothing_is_named_in_a_block_that_is_right():
    found = located(lambda x: x.softmax(-1), X, along_last(R, C), 2)
    assert not len(found.columns) and not len(found.outputs)


def test_a_kink_along_the_way_is_followed_to_its_column():
    x = X.clone()
    x[2, 9] = 1e-12

    def forward(x):
        return (x.abs() * torch.linspace(1, 2, C, dtype=DOUBLE)).cumsum(-1)

    found = located(forward, x - 0.0, along_last(R, C), 2)
    assert set(found.columns.tolist()) <= {2 * C + 9}


def test_a_flagged_column_leads_to_the_output_whose_cotangent_it_wrongly_hears():
    forward = softmax_with([(5 * C + 3, 2 * C + 7, 1e-4)])
    column = 2 * C + 7
    found = counted(forward, X, along_last(R, C), lambda place: localise_column(place, column, 0))
    assert found.outputs.tolist() == [5 * C + 3]
    assert found.backward <= 1 + int(np.ceil(np.log2(R * C))) + 1
    right = counted(forward, X, along_last(R, C), lambda place: localise_column(place, column + 1, 0))
    assert not len(right.outputs) and not len(right.columns)
