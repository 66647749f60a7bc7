"""Coordinates are written where they lie, in every layout and precision, and nothing else is."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gradverify.numerics.function.buffers import Buffers
from gradverify.numerics.function.coordinates import numbers
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
    buffers.restore()
    assert np.array_equal(state(buffers), before)
    assert buffers.tensors[0].data_ptr() == address
    assert buffers.tensors[0].stride() == INPUTS[name].stride()


def test_what_was_written_goes_home_before_something_else_is():
    buffers = Buffers([INPUTS["contiguous"], INPUTS["transposed"]])
    buffers.write(buffers.selected(np.array([0, 5, 13])), np.array([1.0, 2.0, 3.0]))
    buffers.write(buffers.selected(np.array([5, 6])), np.array([4.0, 5.0]))
    changed = np.flatnonzero(state(buffers) != buffers.x)
    assert (changed.tolist(), state(buffers)[changed].tolist()) == ([5, 6], [4.0, 5.0])


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


@pytest.mark.parametrize("x", [
    torch.complex(normal(6, 2, 3), normal(7, 2, 3)).T, torch.complex(normal(6, 2, 3), normal(7, 2, 3)).conj(), normal(1, 1, 3).expand(4, 3),
    normal(1, 6).half(), normal(1, 12)[::2], torch.complex(normal(6, 4), normal(7, 4)).imag,
], ids=["complex transposed", "conjugated", "expanded", "float16", "strided", "imaginary part"])
def test_however_an_input_lies_one_number_of_it_is_written_and_no_other(x):
    before, buffers = x.clone(), Buffers([x])
    wanted = torch.view_as_real(x.resolve_conj()).flatten() if x.is_complex() else x.flatten()
    assert buffers.x.tolist() == wanted.tolist()
    selection = buffers.selected(np.array([4 if len(wanted) > 4 else 2]))
    buffers.write(selection, np.array([-8.0]))
    changed = np.flatnonzero(state(buffers) != buffers.x)
    assert changed.tolist() == [4 if len(wanted) > 4 else 2]
    assert state(buffers)[changed].tolist() == [-8.0]
    buffers.restore()
    assert torch.equal(buffers.tensors[0], x) and torch.equal(x, before)


def test_inputs_without_elements_take_no_places():
    buffers = Buffers([normal(1, 2), normal(2, 0), normal(3, 3), normal(4, 0, 2)])
    assert buffers.starts.tolist() == [0, 2, 2, 5, 5]
    for places in ([2], [1, 2], [4, 0], [0, 1, 2, 3, 4]):
        selection = buffers.selected(np.array(places))
        buffers.write(selection, 10.0 + np.arange(len(places)))
        assert state(buffers)[places].tolist() == [10.0 + k for k in range(len(places))]
        buffers.restore()
        assert np.array_equal(state(buffers), buffers.x)


def test_there_may_be_no_inputs():
    buffers = Buffers([])
    buffers.write(buffers.selected(np.zeros(0, np.intp)), np.zeros(0))
    assert (len(buffers.x), buffers.starts.tolist()) == (0, [0])
