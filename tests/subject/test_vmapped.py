from __future__ import annotations

import pytest
import torch
from live import fixed, randn, subject

from gradverify.subject.failure import UserCodeError
from gradverify.subject.vmapped import Batcher

X, W = randn(4, 3), randn(2, 3, seed=1)
POINTS = [[X, W], [2 * X, W - 1], [X + 1, W]]
COTANGENTS = [[randn(4, 2, seed=seed)] for seed in range(3)]


def linear(x, w):
    return x @ w.mT


def truth(dims):
    """Outputs, and gradients as torch computes them by hand-written vmapped VJPs."""
    xs, ws = (torch.stack([point[i] for point in POINTS]) if dims[i] is not None else POINTS[0][i].expand(3, *POINTS[0][i].shape) for i in (0, 1))
    v = torch.stack([cotangent[0] for cotangent in COTANGENTS])
    gradients = [v @ ws, v.mT @ xs]
    return xs @ ws.mT, [g if dim is not None else g.sum(0) for g, dim in zip(gradients, dims, strict=True)]


@pytest.mark.parametrize("dims", [(0, 0), (-1, -1), (None, 0), (-1, None), (1, 0)])
@pytest.mark.parametrize("way", ["vmap", "loop"])
def test_outputs_and_gradients_of_every_example_are_right(way, dims):
    points = [[x if dim is not None else POINTS[0][i] for i, (x, dim) in enumerate(zip(point, dims, strict=True))] for point in POINTS]
    batch = getattr(Batcher(subject(linear, X, W), (0,)), way)(points, COTANGENTS, dims)
    outputs, gradients = truth(dims)
    assert torch.allclose(batch.outputs[0], outputs)
    assert all(torch.allclose(mine, right) for mine, right in zip(batch.gradients, gradients, strict=True))


def test_what_the_vmapped_call_raises_is_the_users():
    with pytest.raises(UserCodeError, match="the vmapped call raised RuntimeError") as raised:
        Batcher(subject(lambda x: x * x.sum().item(), X), (0,)).vmap([[X], [X]], [[X], [X]], (0,))
    assert raised.value.code == "GV110"


def test_shapes_that_depend_on_values_are_refused():
    with pytest.raises(UserCodeError, match="depend on values"):
        Batcher(subject(lambda x: x[x > 0], X), (0,)).loop([[X], [X.abs()]], [[X[X > 0]], [X[X > 0]]], (0,))
