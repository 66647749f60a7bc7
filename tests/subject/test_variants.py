"""The same numbers in other places of memory: what is read properly is equal, what is read as
contiguous is not, and stays inside."""

from __future__ import annotations

import pytest
import torch
from live import randn

from gradverify.subject.layout import conjugated, constant, permuted, sliced

DTYPES = [torch.float64, torch.float32, torch.complex128, torch.int64]


def numbers(shape, dtype=torch.float64):
    return randn(*shape).mul(10).to(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", [sliced, permuted, lambda x: constant(x, 2)])
def test_who_takes_it_for_contiguous_reads_other_numbers_of_the_same_kind_and_never_leaves_the_storage(
    layout, dtype
):
    x = numbers((3, 4), dtype)
    y = layout(x)
    read = y.as_strided(x.shape, (4, 1))  # raises outside the storage
    assert not torch.equal(read, y)
    if layout in (sliced, permuted):
        assert set(read.reshape(-1).tolist()) <= set(x.reshape(-1).tolist())


def test_conjugated_has_the_bit_and_the_same_value():
    z = numbers((2, 3), torch.complex128) * (1 + 2j)
    y = conjugated(z)
    assert y.is_conj() and not z.is_conj()
    assert torch.equal(y, z)
