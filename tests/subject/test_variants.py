"""The same numbers in other places of memory: what is read properly is equal, what is read as contiguous is not, and stays inside."""

from __future__ import annotations

import pytest
import torch
from live import randn

from gradverify.subject.variants import conjugated, constant, copied, permuted, relaid, sliced

SHAPES = [(), (1,), (5,), (2, 3), (2, 3, 4), (1, 2, 3, 2), (1, 2, 2, 2, 3), (0, 3)]
DTYPES = [torch.float64, torch.float32, torch.complex128, torch.int64]


def numbers(shape, dtype=torch.float64):
    return randn(*shape).mul(10).to(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("layout", [sliced, permuted])
def test_a_layout_changes_no_number(layout, shape, dtype):
    x = numbers(shape, dtype)
    for y in (layout(x), copied(layout(x)), relaid(layout(x))):
        assert (y.dtype, y.shape) == (x.dtype, x.shape)
        assert torch.equal(y, x)


@pytest.mark.parametrize("shape", [(5,), (2, 3), (2, 3, 4), (1, 2, 3, 2)])
def test_sliced_has_an_offset_and_gaps_that_no_view_can_flatten(shape):
    y = sliced(numbers(shape))
    assert y.storage_offset() == 1
    assert not y.is_contiguous()
    assert y.stride(-1) == 2
    if len(shape) > 1:
        with pytest.raises(RuntimeError, match="view size"):
            y.view(-1)


def test_permuted_is_channels_last_for_images_and_reversed_otherwise():
    assert permuted(numbers((2, 3, 4, 5))).is_contiguous(memory_format=torch.channels_last)
    assert permuted(numbers((2, 3, 2, 2, 2))).is_contiguous(memory_format=torch.channels_last_3d)
    assert permuted(numbers((2, 3, 4))).stride() == (1, 2, 6)
    assert permuted(numbers((5,))).is_contiguous()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", [sliced, permuted, lambda x: constant(x, 2)])
def test_who_takes_it_for_contiguous_reads_other_numbers_of_the_same_kind_and_never_leaves_the_storage(layout, dtype):
    x = numbers((3, 4), dtype)
    y = layout(x)
    read = y.as_strided(x.shape, (4, 1))        # raises outside the storage
    assert not torch.equal(read, y)
    if layout in (sliced, permuted):
        assert set(read.reshape(-1).tolist()) <= set(x.reshape(-1).tolist())


def test_a_constant_is_one_number_with_strides_0():
    y = constant(numbers((2, 3)), -1.75)
    assert y.tolist() == [[-1.75] * 3] * 2
    assert y.stride() == (0, 0)


def test_conjugated_has_the_bit_and_the_same_value():
    z = numbers((2, 3), torch.complex128) * (1 + 2j)
    y = conjugated(z)
    assert y.is_conj() and not z.is_conj()
    assert torch.equal(y, z)


def test_a_copy_has_the_layout_and_a_storage_of_its_own():
    y = sliced(numbers((2, 3)))
    z = copied(y)
    assert (z.stride(), z.storage_offset()) == (y.stride(), y.storage_offset())
    assert z.requires_grad_().is_leaf
    z.data.zero_()
    assert y.any()


def test_a_differentiable_copy_keeps_the_strides_and_is_no_view():
    x = sliced(numbers((2, 3))).requires_grad_()
    y = relaid(x)
    assert y.stride() == x.stride()
    assert not y._is_view() and not y.is_leaf
    y.sum().backward()
    assert torch.equal(x.grad, torch.ones(2, 3, dtype=torch.float64))


def test_sparse_tensors_are_copied_as_they_are():
    sparse = torch.eye(2).to_sparse()
    assert copied(sparse).layout == relaid(sparse).layout == torch.sparse_coo
