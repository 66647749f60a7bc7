"""One column by itself, or several moved together: realised steps, domains, derivatives along."""

import numpy as np
import pytest
import torch

from gradverify.numerics.estimate.climb import Outputs, derivative
from gradverify.numerics.function.point import DirectionLine, element_line
from numerics.differentiable import Differentiable, leaf, normal
from numerics.windows import point_of


def point(forward, *inputs, **options):
    return point_of(Differentiable(forward, *inputs), **options)


def outputs(p):
    return Outputs(p.f0, np.zeros(len(p.f0)), lambda: p.unit, rounds_x=False)


def test_the_step_is_the_realised_one_in_float32():
    p = point(lambda x: x.double() * 1.0, leaf(1.0, dtype=torch.float32))
    f, t = element_line(p, 0).at(1e-3)
    assert t != 1e-3
    assert f[0] - p.f0[0] == t
    assert element_line(p, 0).at(1e-9) is None


def test_outside_the_domain_f_is_not_called():
    p = point(torch.log, leaf(0.5), domains=[(0.4, 0.6)])
    before = p.forward
    assert np.isnan(element_line(p, 0).at(0.2)[0]).all()
    assert p.forward == before
    assert np.isfinite(element_line(p, 0).at(0.05)[0]).all()


@pytest.mark.parametrize("scales", [1.0, 1e-6])
def test_a_dense_direction_has_the_derivative_of_the_whole(scales):
    x = normal(1, 7, k=scales)
    p = point(lambda x: (x / scales).sin().cumsum(0), x)
    direction = normal(2, 7).numpy() * p.columns.scale
    d = derivative(DirectionLine(p, np.arange(7), direction), outputs(p), rtol=1e-9)
    truth = np.cumsum(np.cos(x.numpy() / scales) * direction / scales)
    assert (np.abs(d.value - truth) <= d.bar + 1e-12).all()
    assert (d.bar < 1e-8).all()


def test_a_group_of_elements_moves_only_its_outputs():
    p = point(torch.exp, normal(1, 6))
    d = derivative(DirectionLine(p, np.array([1, 4]), np.array([1.0, -2.0])), outputs(p), rtol=1e-9)
    truth = np.zeros(6)
    truth[[1, 4]] = np.exp(p.x[[1, 4]]) * [1.0, -2.0]
    assert d.value == pytest.approx(truth, abs=1e-8)
    assert d.unchanged.tolist() == [True, False, True, True, False, True]
