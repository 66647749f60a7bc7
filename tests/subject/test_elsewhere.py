from __future__ import annotations

import pytest
import torch
from live import randn

from gradverify.subject.elsewhere import elsewhere
from gradverify.subject.subject import Argument


@pytest.mark.parametrize("x", [torch.tensor([1.0, -2.0, 4.0]), torch.tensor(3.0), torch.zeros(2), torch.ones(2, 2),
                               randn(2, 2, dtype=torch.complex128)])
def test_it_is_another_point_of_the_same_form(x):
    moved = elsewhere(Argument("x", x, True))
    assert (moved.shape, moved.dtype) == (x.shape, x.dtype)
    assert not (moved == x).all()
    assert moved.untyped_storage().data_ptr() != x.untyped_storage().data_ptr()


def test_elements_move_on_by_one_and_stretch():
    torch.testing.assert_close(elsewhere(Argument("x", torch.tensor([1.0, -2.0, 4.0]), True)), torch.tensor([4.04, 1.01, -2.02]))


def test_a_symmetric_matrix_stays_symmetric_and_a_domain_is_kept():
    x = torch.tensor([[2.0, 1.0], [1.0, 5.0]])
    moved = elsewhere(Argument("x", x, True, symmetric=True))
    assert torch.equal(moved, moved.mT)
    assert elsewhere(Argument("x", torch.tensor([0.5, 1.0]), True, domain=(0.0, 1.0))).tolist() == [1.0, pytest.approx(0.505)]
