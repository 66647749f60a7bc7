"""Columns of a function of tensors: pairs, domains, precision, rows."""

import numpy as np
import pytest
import torch

from gradverify.numerics.function.point import element_line
from gradverify.numerics.rungs import U32, U64
from numerics.differentiable import Differentiable, leaf, normal, spd
from numerics.windows import point_of


def point(forward, *inputs, **options):
    return point_of(Differentiable(forward, *inputs), **options)


def test_a_complex_input_has_two_columns_an_element_with_the_scale_of_its_modulus():
    p = point(lambda z: z * z, leaf(3 + 4j, dtype=torch.complex128))
    assert p.columns.x.tolist() == [3, 4]
    assert p.columns.scale.tolist() == [5, 5]
    assert len(p.f0) == 2


def test_scales_fall_back_to_the_rms_and_ignore_infinities():
    c = point(torch.sin, leaf(3.0, 0.0, torch.inf)).columns
    assert c.scale == pytest.approx([3, np.sqrt(4.5), np.sqrt(4.5)])


def test_symmetric_columns_move_with_their_mirror_image():
    p = point(lambda a: a, spd(n=3), symmetric=[True])
    assert len(p.columns) == 6
    f, _ = element_line(p, 1).at(0.5)
    moved = np.flatnonzero(f != p.f0)
    assert moved.tolist() == [1, 3]
    assert p.row(1)[1] == 1
    assert np.array_equal(p.values(), p.f0)


def test_hermitian_pairs_move_conjugately_and_the_diagonal_stays_real():
    b = normal(1, 2, 2, dtype=torch.complex128)
    p = point(lambda a: a, b @ b.mH, symmetric=[True])
    assert len(p.columns) == 4
    imaginary = [n for n, (c, s) in enumerate(zip(p.columns.coordinate, p.columns.sign, strict=True)) if s < 0 and c == 3]
    f, t = element_line(p, imaginary[0]).at(0.25)
    assert f[3] - p.f0[3] == pytest.approx(t)
    assert f[5] - p.f0[5] == pytest.approx(-t)


def test_a_forward_that_raises_or_changes_shape_has_no_value_there():
    def forward(x):
        if float(x[0]) > 2:
            raise ValueError
        return x[: 1 + int(x[0] > 1.5)]

    p = point(forward, leaf(1.0, 2.0))
    assert np.isnan(p.values_at(np.array([0]), np.array([3.0]))).all()
    assert np.isnan(p.values_at(np.array([0]), np.array([1.6]))).all()
    assert np.array_equal(p.values(), p.f0)


def test_precision_is_that_of_the_dtype_or_of_the_bits_whichever_is_coarser():
    assert point(torch.sin, normal(1, 5, dtype=torch.float32)).unit[0] == U32
    assert point(lambda x: x.float().sin().double(), normal(1, 5)).unit[0] == U32
    assert point(torch.sin, normal(1, 5)).unit[0] == U64


def test_rows_are_those_of_the_jacobian():
    w = normal(3, 4, 2)
    p = point(lambda x: x @ w, normal(1, 3, 4))
    full = np.array([p.row(j) for j in range(6)])
    assert full == pytest.approx(np.kron(np.eye(3), w.T.numpy()))


def test_the_layout_of_an_input_is_kept():
    x = normal(1, 3, 4).T
    strides = []

    def forward(x):
        strides.append(x.stride())
        return x.sin()

    p = point(forward, x)
    f, _ = element_line(p, 5).at(0.5)
    assert np.flatnonzero(f != p.f0).tolist() == [5]
    assert set(strides) == {x.stride()}
    assert np.array_equal(p.values(), p.f0)


@pytest.mark.parametrize("last", ["moved", "raised", "row"])
def test_the_inputs_are_at_home_whenever_somebody_looks_at_them(last):
    def forward(x):
        if float(x[0].detach()) > 2:
            raise ValueError
        return x * x

    x = leaf(1.0, 2.0, 1.5)
    p = point(forward, x)
    if last == "row":
        assert p.row(1, np.array([1.0, -3.0, 1.5])).tolist() == [0, -6, 0]
    else:
        p.values_at(np.array([0, 2]), np.array([3.0 if last == "raised" else 1.25, 5.0]))
        assert p.values_at(np.array([1]), np.array([-3.0])).tolist() == [1, 9, 2.25]
    assert p.values().tolist() == [1, 4, 2.25]
    p.values_at(np.array([0]), np.array([0.5]))
    assert p.buffers[0].tolist() == x.tolist()
