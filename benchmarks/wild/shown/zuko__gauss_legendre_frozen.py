"""Backward raises where a parameter in phi is frozen: it asks torch for the gradients of all of
them."""

import torch
from zuko.utils import gauss_legendre

y = torch.tensor([0.5], dtype=torch.float64, requires_grad=True)
w = torch.tensor([0.3], dtype=torch.float64)


def f(y):
    return gauss_legendre(lambda x: torch.exp(w * x), torch.zeros_like(y), y, n=16, phi=(w,))


right = ((f(y + 1e-6) - f(y - 1e-6)) / 2e-6).item()
try:
    wrong = torch.autograd.grad(f(y).sum(), y)[0].item()
except RuntimeError as error:
    wrong = error
print("backward raises", repr(wrong), f"\nright, a difference of forward: {right:.6f}")
assert isinstance(wrong, RuntimeError)
