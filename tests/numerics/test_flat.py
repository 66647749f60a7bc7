from __future__ import annotations

import math

import pytest
import torch

from gradverify.numerics.flat import flat_all, flat_real, one_hot, place, reaches, real_size, root_mean_square, scales, writable_view


def test_real_and_complex_tensors_have_their_real_coordinates_in_order():
    z = torch.tensor([[1 + 2j, 3 - 4j]], dtype=torch.complex64)
    assert real_size(z) == 4
    assert flat_real(z).tolist() == [1, 2, 3, -4]
    assert flat_real(z).dtype == torch.float64
    assert flat_real(z.conj()).tolist() == [1, -2, 3, 4]
    assert flat_real(z.conj().imag).tolist() == [-2, 4]      # carries the negative bit
    assert flat_all([torch.tensor(5.0), z]).tolist() == [5, 1, 2, 3, -4]
    assert flat_all([]).shape == (0,)


def test_a_sparse_tensor_is_read_densely():
    assert flat_real(torch.tensor([0.0, 2.0]).to_sparse()).tolist() == [0, 2]


def test_writing_to_the_view_moves_the_tensor():
    z = torch.zeros(2, 1, dtype=torch.complex128)
    writable_view(z)[3] = 7.0
    assert z.tolist() == [[0], [7j]]


def test_a_one_hot_cotangent_is_one_or_i_at_one_coordinate():
    assert one_hot(torch.zeros(2, 2), 2).tolist() == [[0, 0], [1, 0]]
    assert one_hot(torch.zeros(2, dtype=torch.complex64), 3).tolist() == [0, 1j]
    assert one_hot(torch.tensor(3.0), 0).item() == 1


@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (4, 1, 2)])
def test_every_coordinate_has_the_index_that_torch_gives_it(shape):
    numbers = torch.arange(math.prod(shape)).reshape(shape)
    for coordinate in range(math.prod(shape)):
        index, part = place(shape, False, coordinate)
        assert (numbers[index].item(), part) == (coordinate, None)
        assert place(shape, True, 2 * coordinate) == (index, "re")
        assert place(shape, True, 2 * coordinate + 1) == (index, "im")


def test_the_step_scale_is_the_magnitude_or_the_typical_one_at_zero():
    assert scales(torch.tensor([3.0, -4.0, 0.0])).tolist() == pytest.approx([3, 4, math.sqrt(25 / 3)])
    assert scales(torch.tensor([3 + 4j])).tolist() == [5, 5]
    assert scales(torch.zeros(2)).tolist() == [1, 1]
    assert scales(torch.tensor([torch.inf, 2.0])).tolist() == [2, 2]
    assert scales(torch.zeros(0)).shape == (0,)


def test_the_reach_is_never_below_the_typical_magnitude():
    assert reaches(torch.tensor([3.0, -4.0])).tolist() == pytest.approx([math.sqrt(12.5), 4])


@pytest.mark.parametrize("factor", [1e-200, 1.0, 1e200])
def test_the_typical_magnitude_neither_overflows_nor_vanishes(factor):
    assert root_mean_square(factor * torch.tensor([3.0, 4.0], dtype=torch.float64)) == pytest.approx(factor * math.sqrt(12.5))


def test_the_typical_magnitude_of_nothing_is_one():
    assert root_mean_square(torch.zeros(0)) == root_mean_square(torch.zeros(3)) == root_mean_square(torch.tensor([torch.nan])) == 1.0
