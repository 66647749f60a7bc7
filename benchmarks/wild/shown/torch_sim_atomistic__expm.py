"""Backward of the matrix exponential takes the Fréchet derivative at A in place of the transpose of
A."""

import torch
from torch_sim.math import expm

A = torch.tensor(
    [[0.1, 0.9, 0.0], [0.0, 0.2, -0.7], [0.3, 0.0, -0.1]], dtype=torch.float64, requires_grad=True
)
weights = torch.linspace(-1.0, 1.0, 9, dtype=torch.float64).reshape(3, 3)
(wrong,) = torch.autograd.grad((expm.apply(A) * weights).sum(), A)
(right,) = torch.autograd.grad((torch.linalg.matrix_exp(A) * weights).sum(), A)
print("backward returns", wrong[0].tolist(), "\nright, by torch: ", right[0].tolist())
assert torch.allclose(expm.apply(A), torch.linalg.matrix_exp(A)) and not torch.allclose(
    wrong, right, atol=1e-3
)
