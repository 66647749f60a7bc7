"""Compressed VJPs, taken apart again, are the entries of the Jacobian; what belongs to no entry is handed over as a stray."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gradverify.numerics import grouped_vjps
from gradverify.numerics.entries.colour_groups import Compressed
from gradverify.numerics.judging.bundle import Grouping
from gradverify.numerics.judging.run import Reach, Run
from gradverify.numerics.prepare import Plan
from gradverify.numerics.seed_vectors import cotangent, gradient_of_rows, signed_weights
from gradverify.numerics.sparsity.pattern import column_groups, row_groups
from numerics.differentiable import DOUBLE, Differentiable, normal
from numerics.windows import along_last, elementwise, prepared, product, windows

X, W = normal(1, 3, 4), normal(2, 4, 5)


class Records(Differentiable):
    """Keeps the cotangents that it is given."""

    def vjp(self, cotangents, inputs=None):
        self.seen = [*getattr(self, "seen", []), *(c.clone() for c in cotangents if c is not None)]
        return super().vjp(cotangents, inputs)


def compress(function, patterns):
    """By patterns [inputs][outputs] from hand."""
    point, known = prepared(function)
    generator = np.random.default_rng(0)
    run = Run(point, known, 0.0, None, Reach(point))
    weights = signed_weights(len(point.columns), generator)
    plans = [Plan(Grouping(t, int(point.starts[t]), column_groups(own), weights), tuple(row_groups(p) for p in own))
             for t, own in enumerate(patterns)]
    return Compressed(run, plans, signed_weights(len(point.f0), generator))


def filled(made):
    return made.fill({p.tensor: range(p.grouping.groups.count) for p in made.plans})


def softmax(x):
    return torch.softmax(x, -1)


def softmax_columns(x):
    """Entry (row, j) by column `group` of the same row: s_j (δ_j,group − s_group), [groups, outputs]."""
    s = np.exp(x) / np.exp(x).sum(-1, keepdims=True)
    return np.stack([s * (np.eye(x.shape[1])[group] - s[:, group : group + 1]) for group in range(x.shape[1])]).reshape(x.shape[1], -1)


@pytest.mark.parametrize("batch", [1 << 18, 24, 1])
def test_the_entries_of_a_softmax_come_from_one_backward_a_column_of_its_output(monkeypatch, batch):
    monkeypatch.setattr(grouped_vjps, "BATCH", batch)
    function = Differentiable(softmax, X)
    made = compress(function, [[along_last(3, 4)]])
    values, strays = filled(made)
    np.testing.assert_allclose(values[0], softmax_columns(X.numpy()), atol=1e-15)
    assert (strays, function.backwards, made.run.point.backward) == ([], 4, 4)


def test_the_entries_of_a_product_are_the_other_factor():
    made = compress(Differentiable(torch.matmul, X, W), product(3, 4, 5))
    values, strays = filled(made)
    by_x, by_w = (values[t].reshape(4, 3, 5) for t in (0, 1))
    np.testing.assert_allclose(by_x, np.repeat(W.numpy()[:, None], 3, 1), rtol=1e-14)     # ∂(xw)_bo / ∂x_bi = w_io
    np.testing.assert_allclose(by_w, np.repeat(X.numpy().T[:, :, None], 5, 2), rtol=1e-14)
    assert not strays
    assert made.run.point.backward == 5 + 3


def test_inputs_whose_outputs_fall_into_the_same_groups_share_their_backwards():
    function = Differentiable(torch.mul, X, X.exp())
    made = compress(function, [[elementwise(3, 4)], [elementwise(3, 4)]])
    values, _ = filled(made)
    np.testing.assert_allclose(values[0][0], X.exp().flatten(), rtol=1e-14)
    np.testing.assert_allclose(values[1][0], X.flatten(), rtol=1e-14)
    assert function.backwards == 1


def test_outputs_are_pulled_back_each_for_itself():
    made = compress(Differentiable(lambda x: (x.sin(), x.exp()), X), [[elementwise(3, 4), elementwise(3, 4)]])
    values, _ = filled(made)
    np.testing.assert_allclose(values[0][0], torch.cat([X.cos().flatten(), X.exp().flatten()]), rtol=1e-14)
    assert made.run.point.backward == 2


def test_members_of_a_group_have_weights_and_an_output_by_itself_has_one():
    function = Records(lambda x: (x.sin(), x.sum()), X)
    nothing = [np.zeros(1, np.intp)] * 2
    made = compress(function, [[elementwise(3, 4), windows((3, 4), nothing, [nothing[0] + 2, nothing[0] + 3])]])
    function.seen = []
    values, _ = filled(made)
    together, alone = function.seen
    assert alone.item() == 1.0
    assert ((together.abs() >= 0.7) & (together.abs() <= 1.4)).all() and together.unique().numel() == 12
    np.testing.assert_allclose(values[0], np.hstack([np.diag(X.cos().flatten().numpy()), np.ones((12, 1))]), rtol=1e-14)


def test_only_the_groups_asked_for_are_filled():
    made = compress(Differentiable(softmax, X), [[along_last(3, 4)]])
    values, _ = made.fill({0: range(1, 3)})
    np.testing.assert_allclose(values[0], softmax_columns(X.numpy())[1:3], atol=1e-15)


def halves(damage=None):
    """12 inputs of which 5 have outputs."""
    places = np.arange(5)
    return compress(Differentiable(lambda x: x[:5].sin(), normal(1, 12), damage=damage), [[windows((12,), [places], [places])]])


def test_a_gradient_where_no_output_depends_is_a_stray():
    def leak(grads):
        grads[0][[7, 9]] += torch.tensor([0.25, -0.5], dtype=DOUBLE)
        return grads

    values, (stray,) = filled(halves(leak))
    np.testing.assert_allclose(values[0][0], normal(1, 12)[:5].cos(), rtol=1e-14)
    assert (stray.tensor, stray.output, stray.group) == (0, 0, 0)
    assert stray.size == pytest.approx(max(0.25 * abs(normal(1, 12)[7]), 0.5 * abs(normal(1, 12)[9])).item() / 0.7, rel=0.5)


def test_zeros_where_no_output_depends_are_none():
    assert filled(halves())[1] == []


def test_a_pull_is_one_backward_for_the_rows_weighted():
    made = compress(Differentiable(lambda x: (x.sin(), x @ W), X), [[elementwise(3, 4), along_last(3, 4)]])
    before = made.run.point.backward
    found = gradient_of_rows(made.run.point, 1, np.array([12 + 1, 12 + 14]), np.array([2.0, -3.0]))       # y1[0, 1] and y1[2, 4]
    wanted = np.zeros((3, 4))
    wanted[0], wanted[2] = 2 * W[:, 1].numpy(), -3 * W[:, 4].numpy()
    np.testing.assert_allclose(found, wanted.ravel(), rtol=1e-14)
    assert made.run.point.backward == before + 1


@pytest.mark.parametrize(("dtype", "vector", "wanted"), [
    (torch.float64, [1.0, 2.0, 3.0, 4.0], [[1, 2], [3, 4]]),
    (torch.float32, [1.0, 2.0, 3.0, 4.0], [[1, 2], [3, 4]]),
    (torch.complex128, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0], [[1 + 2j, 3 + 4j], [5 + 6j, 7 + 8j]])])
def test_a_cotangent_has_the_shape_and_dtype_of_its_output(dtype, vector, wanted):
    point, _ = prepared(Differentiable(lambda x: x * 1, torch.ones(2, 2, dtype=dtype)))
    assert torch.equal(cotangent(point, 0, np.array(vector)), torch.tensor(wanted, dtype=dtype))
