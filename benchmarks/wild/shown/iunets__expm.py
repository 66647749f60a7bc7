"""The gradient of the matrix exponential is wrong for matrices of small norm."""

import torch
from iunets.expm import expm

weights = torch.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=torch.float64)
# skew-symmetric, as it is used
A = torch.tensor([[0.0, 0.3], [-0.3, 0.0]], dtype=torch.float64, requires_grad=True)
(wrong,) = torch.autograd.grad((expm.apply(A) * weights).sum(), A)
(right,) = torch.autograd.grad((torch.linalg.matrix_exp(A) * weights).sum(), A)
print("backward returns", wrong.tolist(), "\nright, by torch: ", right.tolist())
assert not torch.allclose(wrong, right, rtol=1e-3)
