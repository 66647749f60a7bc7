"""The gradient of log_normal_cdf just below -1 comes from an approximation that is meant for much
smaller numbers."""

import torch
from gpytorch.functions import log_normal_cdf

z = torch.tensor([-1.05], dtype=torch.float64, requires_grad=True)
(wrong,) = torch.autograd.grad(log_normal_cdf(z).sum(), z)
(right,) = torch.autograd.grad(torch.special.log_ndtr(z).sum(), z)
print(f"backward returns {wrong.item():.6f}\nright, torch.special.log_ndtr: {right.item():.6f}")
assert abs(wrong - right).item() > 1e-3
