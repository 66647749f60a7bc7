from __future__ import annotations

import pytest
import torch

from gradverify.subject.snapshot import overlaps

FLAT = torch.arange(24.0)
GRID = FLAT.view(4, 6)


@pytest.mark.parametrize(
    ("a", "b", "common"),
    [
        (FLAT, FLAT, True),
        (FLAT, GRID.T, True),
        (FLAT[:12], FLAT[11:], True),
        (FLAT[:12], FLAT[12:], False),
        (*GRID.chunk(2, 1), False),  # their spans overlap, their elements do not
        (FLAT[::2], FLAT[1::2], False),
        (FLAT[::2], FLAT[::3], True),
        (FLAT[3].expand(5), FLAT[:3], False),
        (FLAT[3].expand(5), FLAT[:4], True),
        (FLAT, FLAT.clone(), False),
        (FLAT[:0], FLAT, False),
        (FLAT, FLAT.view(torch.int32), True),
        (FLAT[:12], FLAT.view(torch.float64)[6:], False),
        (FLAT, torch.ones(24).to_sparse(), False),
        (FLAT, torch._efficientzerotensor(24), False),
    ],
)
def test_memory_is_compared_element_by_element(a, b, common):
    assert overlaps(a, b) is overlaps(b, a) is common


def test_freed_memory_is_nobodys():
    freed = torch.ones(3)
    freed.untyped_storage().resize_(0)
    assert not overlaps(freed, freed)
