from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from gradverify.numerics.function.coordinates import flat_all, flat_real, one_hot, place, rms


def test_real_and_complex_tensors_have_their_real_coordinates_in_order():
    z = torch.tensor([[1 + 2j, 3 - 4j]], dtype=torch.complex64)
    assert flat_real(z).tolist() == [1, 2, 3, -4]
    assert flat_real(z).dtype == torch.float64
    assert flat_real(z.conj()).tolist() == [1, -2, 3, 4]
    assert flat_real(z.conj().imag).tolist() == [-2, 4]      # carries the negative bit
    assert flat_all([torch.tensor(5.0), z]).tolist() == [5, 1, 2, 3, -4]
    assert flat_all([]).shape == (0,)


def test_a_zero_tensor_without_memory_is_read_as_zeros():
    assert flat_real(torch._efficientzerotensor((2,), dtype=torch.float64)).numpy().tolist() == [0, 0]


def test_a_sparse_tensor_is_read_densely():
    assert flat_real(torch.tensor([0.0, 2.0]).to_sparse()).tolist() == [0, 2]


def test_a_one_hot_cotangent_is_one_or_i_at_one_coordinate():
    cpu = torch.device("cpu")
    assert one_hot((2, 2), torch.float64, cpu, 2).tolist() == [[0, 0], [1, 0]]
    assert one_hot((2,), torch.complex64, cpu, 3).tolist() == [0, 1j]
    assert one_hot((), torch.float32, cpu, 0).item() == 1


@pytest.mark.parametrize("factor", [1e-200, 1.0, 1e200])
def test_the_typical_magnitude_neither_overflows_nor_vanishes(factor):
    assert rms(factor * np.array([3.0, 4.0])) == pytest.approx(factor * math.sqrt(12.5))


def test_the_typical_magnitude_of_nothing_is_zero():
    assert rms(np.zeros(0)) == rms(np.zeros(3)) == rms(np.array([np.nan, np.inf])) == 0.0


@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (4, 1, 2)])
def test_every_coordinate_has_the_index_that_torch_gives_it(shape):
    numbers = torch.arange(math.prod(shape)).reshape(shape)
    for coordinate in range(math.prod(shape)):
        index, part = place(shape, False, coordinate)
        assert (numbers[index].item(), part) == (coordinate, None)
        assert place(shape, True, 2 * coordinate) == (index, "re")
        assert place(shape, True, 2 * coordinate + 1) == (index, "im")
