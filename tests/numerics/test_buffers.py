"""Coordinates are written where they lie, in every layout and precision, and nothing else is."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gradverify.numerics.buffers import Buffers
from gradverify.numerics.flat import numbers
from numerics.differentiable import DOUBLE, normal

INPUTS = {
    "contiguous": normal(1, 4, 3),
    "transposed": normal(2, 3, 4).T,
    "channels last": normal(3, 2, 3, 2, 2).contiguous(memory_format=torch.channels_last),
    "float32": normal(4, 5).float(),
    "bfloat16": normal(5, 5).bfloat16(),
    "complex": torch.complex(normal(6, 2, 3), normal(7, 2, 3)),
    "a number": torch.tensor(2.0, dtype=DOUBLE),
}


def state(buffers):
    return np.concatenate([numbers(t) for t in buffers.tensors])


@pytest.mark.parametrize("name", INPUTS)
def test_a_selection_is_written_in_its_order_and_restored(name):
    buffers = Buffers([INPUTS[name]])
    before, places = state(buffers), np.random.default_rng(0).permutation(len(buffers.x))[:3]
    address = buffers.tensors[0].data_ptr()
    selection = buffers.selected(places)
    buffers.write(selection, np.array([1.5, -2.0, 0.25])[: len(places)])
    expected = before.copy()
    expected[places] = [1.5, -2.0, 0.25][: len(places)]
    assert np.array_equal(state(buffers), expected)
    buffers.restore(selection)
    assert np.array_equal(state(buffers), before)
    assert buffers.tensors[0].data_ptr() == address
    assert buffers.tensors[0].stride() == INPUTS[name].stride()


def test_one_selection_may_reach_into_several_inputs():
    inputs = [INPUTS["contiguous"], INPUTS["transposed"], INPUTS["float32"]]
    buffers = Buffers(inputs)
    places = np.array([25, 3, 13])
    buffers.write(buffers.selected(places), np.array([1.0, 2.0, 4.0]))
    assert state(buffers)[places].tolist() == [1.0, 2.0, 4.0]
    assert (state(buffers) != buffers.x).sum() == 3
    assert [t[0] for t in buffers.starts.reshape(-1, 1).tolist()] == [0, 12, 24, 29]


@pytest.mark.parametrize("places", [[0, 1, 2, 3], [3, 2, 1, 0], [4, 5, 6], [0, 2, 4], [1, 3, 2], [7]])
def test_places_in_a_row_and_others_mean_the_same(places):
    buffers = Buffers([normal(1, 8)])
    values = 10.0 + np.arange(len(places))
    buffers.write(buffers.selected(np.array(places)), values)
    assert state(buffers)[places].tolist() == values.tolist()


def test_nothing_is_selected_where_nothing_is_asked_for():
    buffers = Buffers([normal(1, 3)])
    buffers.write(buffers.selected(np.zeros(0, np.intp)), np.zeros(0))
    assert np.array_equal(state(buffers), buffers.x)


def test_the_inputs_themselves_are_never_written():
    x = normal(1, 3)
    before, buffers = x.clone(), Buffers([x])
    buffers.write(buffers.selected(np.arange(3)), np.zeros(3))
    assert torch.equal(x, before)
