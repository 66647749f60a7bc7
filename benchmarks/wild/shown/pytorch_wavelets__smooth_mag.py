"""Backward of the smooth modulus raises where only the imaginary part needs a gradient: it asks for
that of the real one."""

import torch
from pytorch_wavelets.scatternet.lowlevel import SmoothMagFn

x = torch.tensor(3.0, dtype=torch.float64)
y = torch.tensor(4.0, dtype=torch.float64, requires_grad=True)
right = torch.autograd.grad((x**2 + y**2 + 0.01**2).sqrt(), y)[0].item()
try:
    wrong = torch.autograd.grad(SmoothMagFn.apply(x, y, 0.01), y)[0]
except UnboundLocalError as error:
    wrong = error
print("backward raises", repr(wrong), f"\nright, by torch: {right:.6f}")
assert isinstance(wrong, UnboundLocalError)
