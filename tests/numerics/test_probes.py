"""An input tensor as a probe: what is perturbed, by how much, and what counts as moved."""

import numpy as np
import pytest
import torch

from gradverify.numerics.seeds import Seed
from gradverify.numerics.sparsity.detect import STEP, PointProbe
from numerics.differentiable import Differentiable, leaf, normal
from numerics.windows import point_of


def probe(forward, *inputs, tensor=0, domain=None, threshold=None):
    f, domains = Differentiable(forward, *inputs), [None] * len(inputs)
    domains[tensor] = domain
    return PointProbe(point_of(f, domains), tensor, Seed(), threshold)


def seen(inputs):
    """A forward that keeps what it was called with."""
    def forward(x):
        inputs.append(x.detach().clone())
        return x * 1
    return forward


def only(n, *slices):
    return np.isin(np.arange(n), slices)


def test_only_the_slices_of_the_axis_are_perturbed_by_signed_parts_of_their_scale():
    calls, x = [], normal(0, 40, 30, k=5)
    p = probe(seen(calls), x)
    moved = p.moved(1, only(30, 3, 7))
    change = (calls[-1] / x - 1).abs() / STEP
    rest = [n for n in range(30) if n not in (3, 7)]
    assert not change[:, rest].any()
    assert 0.7 <= change[:, [3, 7]].min() < 0.8 < 1.3 < change[:, [3, 7]].max() <= 1.4
    assert 20 < (calls[-1] > x).sum() < 60
    assert np.array_equal(moved, np.tile(only(30, 3, 7), 40))
    assert np.array_equal(p.point.values(), p.point.f0)
    assert p.calls == 1


def test_weights_are_new_in_every_call_and_the_sign_alternates():
    calls, x = [], leaf(1.0, 2.0, 4.0)
    p = probe(seen(calls), x)
    for _ in range(4):
        p.moved(0, only(3, 0, 1, 2))
    change = torch.stack(calls[1:]) - x
    assert (change[:-1] * change[1:] < 0).all()
    assert len(set(change.abs().reshape(-1).tolist())) == 12


def test_an_output_on_a_kink_is_seen_in_one_of_two_calls():
    p = probe(torch.relu, leaf(0.0, 0.0, 0.0, 0.0, 1.0))
    first, second = p.moved(0, only(5, *range(5))), p.moved(0, only(5, *range(5)))
    assert np.array_equal(first[:4], ~second[:4])
    assert first[4] and second[4]


def test_differences_of_equal_elements_do_not_cancel():
    p = probe(lambda x: x[::2] - x[1::2], leaf(*[3.0] * 64))
    assert p.moved(0, only(64, *range(64))).all()


def test_real_and_imaginary_part_are_an_axis():
    p = probe(lambda z: z * 1, leaf(1 + 2j, 3 - 1j, dtype=torch.complex128))
    assert p.shape == (2, 2)
    assert p.moved(1, only(2, 1)).tolist() == [False, True, False, True]
    assert p.moved(0, only(2, 1)).tolist() == [False, False, True, True]


def test_a_number_is_one_slice():
    p = probe(lambda a, x: (a * x, x * 1), leaf(2.0)[0], leaf(1.0, 0.0))
    assert p.shape == ()
    assert p.moved(0, np.ones(1, bool)).tolist() == [True, False, False, False]


def test_other_tensors_stay():
    p = probe(lambda x, y: (x * 1, y * 1), leaf(1.0, 2.0), leaf(3.0, 4.0), tensor=1)
    assert p.moved(0, only(2, 0)).tolist() == [False, False, True, False]


def test_the_border_of_a_domain_is_not_crossed():
    calls, x = [], leaf(*[0.0, 1.0] * 50)
    p = probe(seen(calls), x, domain=(0.0, 1.0))
    assert p.moved(0, only(100, *range(100))).all()
    assert p.moved(0, only(100, *range(100))).all()
    assert all(c.min() >= 0 and c.max() <= 1 for c in calls)


def test_an_element_without_room_stays():
    p = probe(lambda x: x * 1, leaf(1.0, 1.0), domain=(1.0, 1.0))
    assert not p.moved(0, only(2, 0, 1)).any()


def test_elements_that_are_not_finite_stay_and_nan_equals_nan():
    p = probe(lambda x: x * 1, leaf(torch.inf, torch.nan, 1.0))
    assert p.moved(0, only(3, 0, 1, 2)).tolist() == [False, False, True]


def test_zeros_of_two_signs_are_the_same():
    p = probe(lambda x: torch.where(x > 3, x, x * 0), leaf(*[1.0, -1.0] * 10))
    assert not p.moved(0, only(20, *range(20))).any()


def raising(x):
    if x[0] != 1.0:
        raise ValueError("only at the point")
    return torch.stack([x[1], x[0] * torch.nan])


def test_a_call_that_raises_moves_all_that_was_finite():
    p = probe(raising, leaf(1.0, 2.0))
    assert p.moved(0, only(2, 0)).tolist() == [True, False]
    assert p.moved(0, only(2, 1)).tolist() == [True, False]


@pytest.mark.parametrize("threshold", [None, np.full(2, 1e-3)])
def test_a_value_that_ends_or_begins_to_be_finite_moved(threshold):
    def ends_and_begins(x):
        return torch.stack([torch.where(x[0] == 1, x[0], torch.nan), torch.where(x[1] == 1, torch.nan, x[1])])

    p = probe(ends_and_begins, leaf(1.0, 1.0), threshold=threshold)
    assert p.moved(0, only(2, 0)).tolist() == [True, False]
    assert p.moved(0, only(2, 1)).tolist() == [False, True]


def test_below_the_threshold_nothing_moved():
    generator = torch.Generator().manual_seed(0)
    noise = 1e-9
    p = probe(lambda x: x + noise * torch.randn(50, generator=generator, dtype=x.dtype), leaf(*[1.0] * 50), threshold=np.full(50, 8 * noise))
    assert np.array_equal(p.moved(0, only(50, 4, 5)), only(50, 4, 5))


def test_single_precision_is_perturbed_in_its_own_numbers():
    calls = []
    p = probe(seen(calls), leaf(*[0.1] * 8, dtype=torch.float32), domain=(0.1 - 1e-8, torch.inf))
    assert p.moved(0, only(8, *range(8))).all()
    assert calls[-1].dtype == torch.float32
