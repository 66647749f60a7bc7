"""Soft-DTW of float64 numbers is computed in float32, and so is its gradient, and returned as
float64."""

import torch
from pysdtw.sdtw_cpu import SoftDTWcpu

D = torch.tensor([[[0.3, 0.1], [0.7, 0.2]]], dtype=torch.float64, requires_grad=True)
value = SoftDTWcpu.apply(D, torch.tensor([[2, 2]]), 1.0, 0.0).sum()
(wrong,) = torch.autograd.grad(value, D)
(a, b), (c, d) = D[0]
# Two rows and columns have three paths
exact = a + d - torch.logsumexp(torch.stack([-b, -c, 0 * a]), 0)
(right,) = torch.autograd.grad(exact, D)
print(
    f"forward returns {value.item():.12f} for {exact.item():.12f}\nbackward "
    f"{wrong[0, 0, 1].item():.12f} for {right[0, 0, 1].item():.12f}"
)
assert wrong.dtype == torch.float64 and 1e-10 < (wrong - right).abs().max() < 1e-6
