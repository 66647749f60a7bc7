"""Backward raises where grad_output is a lazy conjugate, as the gradient of z.conj() is: it views
it as real numbers."""

import torch
from torchkbnufft import KbInterpAdjoint, calc_tensor_spmatrix

omega = torch.tensor([[-2.0, -0.7, 0.3, 1.1, 2.6]], dtype=torch.float64)
made = KbInterpAdjoint(im_size=(4,), grid_size=(8,), numpoints=3, dtype=torch.complex128)
matrices = calc_tensor_spmatrix(omega, im_size=(4,), grid_size=(8,), numpoints=3)
x = torch.ones(1, 1, 5, dtype=torch.complex128, requires_grad=True)
y = made(x, omega, interp_mats=matrices)
weights = torch.full((1, 1, 8), 1 + 2j, dtype=torch.complex128)
right = (
    torch.autograd.grad(y, x, weights.conj().resolve_conj(), retain_graph=True)[0]
    .flatten()[0]
    .item()
)
try:
    wrong = torch.autograd.grad(y, x, weights.conj())[0]
except RuntimeError as error:
    wrong = error
print("backward raises", repr(wrong)[:60], f"\nright, for the same numbers in memory: {right:.6f}")
assert isinstance(wrong, RuntimeError)
