"""The second derivative of log_normal_cdf is silently 0 below -1."""

import torch
from gpytorch.functions import log_normal_cdf

z = torch.tensor(-2.0, dtype=torch.float64)
wrong = torch.autograd.functional.hessian(log_normal_cdf, z).item()
right = torch.autograd.functional.hessian(torch.special.log_ndtr, z).item()
print(f"second derivative {wrong}\nright, torch.special.log_ndtr: {right:.6f}")
assert wrong == 0 and abs(right) > 0.5
