from __future__ import annotations

import pytest
import torch
from live import randn

from gradverify.subject.elsewhere import elsewhere
from gradverify.subject.subject import Argument


def test_a_symmetric_matrix_stays_symmetric_and_a_domain_is_kept():
    x = torch.tensor([[2.0, 1.0], [1.0, 5.0]])
    moved = elsewhere(Argument("x", x, True, symmetric=True))
    assert torch.equal(moved, moved.mT)
    assert elsewhere(Argument("x", torch.tensor([0.5, 1.0]), True, domain=(0.0, 1.0))).tolist() == [1.0, pytest.approx(0.505)]
