"""Backward of the transform of type 2 raises where grad_output is a lazy conjugate, as the gradient
of z.conj() is."""

import torch
from pytorch_finufft.functional import finufft_type2

points = torch.tensor([-2.0, 0.3, 1.1], dtype=torch.float64)
x = torch.ones(5, dtype=torch.complex128, requires_grad=True)
y, weights = finufft_type2(points, x, eps=1e-13), torch.full((3,), 1 + 2j, dtype=torch.complex128)
right = torch.autograd.grad(y, x, weights.conj().resolve_conj(), retain_graph=True)[0][0].item()
try:
    wrong = torch.autograd.grad(y, x, weights.conj())[0]
except RuntimeError as error:
    wrong = error
print("backward raises", repr(wrong)[:60], f"\nright, for the same numbers in memory: {right:.6f}")
assert isinstance(wrong, RuntimeError)
