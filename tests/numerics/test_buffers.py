"""Coordinates are written where they lie, in every layout and precision, and nothing else is."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gradverify.numerics.function.buffers import Buffers
from gradverify.numerics.function.flat import numbers
from numerics.differentiable import normal


def state(buffers):
    return np.concatenate([numbers(t) for t in buffers.tensors])


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
