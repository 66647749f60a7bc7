"""How far outputs go, learnt from rows, entries and secants; floors follow."""

import numpy as np
import pytest
import torch

from gradverify.numerics.judging.run import Reach, Run
from numerics.differentiable import Differentiable, normal
from numerics.windows import prepared

U = 2.0**-53


def run(forward, *inputs, rtol=None):
    point, known = prepared(Differentiable(forward, *inputs))
    return Run(point, known, 0.0, rtol, Reach(point))


def test_the_floor_is_ten_thousand_roundings_of_the_largest_entry_of_the_row():
    at = run(lambda x: (3 * x).sum(0, keepdim=True), normal(1, 4))
    at.reach.add_row(0, np.full(4, 3.0))
    at.reach.add(np.arange(4), np.zeros(4, int), np.full(4, 3.0), np.full(4, 1e-12))
    largest = 3 * float(np.abs(at.point.columns.x).max())
    assert 1e4 * U * largest <= at.floors()[0] <= 16e4 * U * largest * 1e3


def test_a_secant_teaches_no_more_than_the_row_holds():
    w = normal(2, 30, 20)
    at = run(lambda x: w @ x, normal(1, 20))
    secant, = at.survey.secants
    noise = np.maximum(at.survey.sigma, at.point.unit * at.survey.size)
    at.reach.add_secant(secant.columns, secant.moved_by, secant.change, noise)
    rows = w.numpy() * np.abs(at.point.columns.scale)
    reach = at.reach.rows(at.survey).reach
    assert np.all(reach <= np.linalg.norm(rows, axis=1) * 1.01)
    assert np.median(reach / np.abs(rows).max(1)) > 0.05


def test_a_secant_within_the_noise_teaches_nothing():
    at = run(lambda x: x * 1.0, normal(1, 20))
    at.reach.add_secant(np.arange(20), np.full(20, 1e-9), np.full(20, 1e-12), np.full(20, 1e-12))
    assert not at.reach.rows(at.survey).reach.any()


@pytest.mark.parametrize(("dtype", "rtol", "expected"), [(torch.float64, None, 1e-6), (torch.float32, None, 1e-3), (torch.float32, 1e-4, 1e-4)])
def test_the_relative_tolerance_is_that_of_the_precision_unless_given(dtype, rtol, expected):
    at = run(torch.sin, normal(1, 5, dtype=dtype), rtol=rtol)
    assert at.rtols().tolist() == [expected] * 5
    assert at.low_precision().all() == (dtype is torch.float32)


def test_bounds_of_an_entry_are_in_units_of_its_column():
    at = run(lambda x: x[0] * x, torch.tensor([1.0, 1e3], dtype=torch.float64))
    at.reach.add_row(1, np.array([1e3, 1.0]))
    both = at.tolerances(np.array([0, 1]), np.array([1, 1]))
    size = at.point.columns.size
    assert both.floor[0] / both.floor[1] == pytest.approx(size[1] / size[0])
