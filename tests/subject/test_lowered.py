"""Arguments a random part of float32's roundoff off: what rounds is moved by as much, what an
operation only picks is not moved at all."""

import pytest
import torch

from gradverify.numerics.rungs import U32
from gradverify.subject.rounding import Perturbed

X = torch.randn(64, 64, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


def perturbed(f, seed=0):
    with Perturbed(torch.Generator().manual_seed(seed)):
        return f(X)


def test_a_product_is_off_by_what_float32_would_be_and_otherwise_for_another_seed():
    off = perturbed(lambda x: x @ x) - X @ X
    assert 0.5 < off.std() / (U32 * 64**0.5) < 2  # sums of 64 products
    assert not torch.equal(off, perturbed(lambda x: x @ x, 1) - X @ X)


COMPLEX = {
    "matmul": lambda x: x.mH @ x,
    "product": lambda x: x.conj() * x[0],
    "solve": lambda x: torch.linalg.solve(x.mH, x.conj()),
    "imaginary part": lambda x: x.mH.imag @ x.real,
    "sum of products": lambda x: torch.einsum("ij,kj->ik", x, x.conj()),
    "one input": lambda x: x.mH.exp(),
}


@pytest.mark.parametrize("f", COMPLEX.values(), ids=COMPLEX)
def test_a_conjugate_stays_one(f):
    """Below autograd x.conj() is the memory of x with a mark, which only some operations read."""
    z = torch.randn(8, 8, dtype=torch.complex128, generator=torch.Generator().manual_seed(0))
    with Perturbed(torch.Generator().manual_seed(0)):
        off = f(z) - f(z).resolve_conj()
        rounded = f(z)
    assert float(off.abs().max()) > 0
    torch.testing.assert_close(rounded, f(z), rtol=1e-3, atol=1e-4)
