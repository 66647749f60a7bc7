"""Backward of a one-dimensional wavelet analysis ignores how forward pads the signal at its
ends."""

import torch
from pytorch_wavelets import DWT1DForward

made = DWT1DForward(J=1, wave="db2", mode="symmetric").double()


def f(x):
    return made(x.reshape(1, 1, 8))[0].flatten()


x = torch.linspace(-1.0, 1.0, 8, dtype=torch.float64)
wrong = torch.autograd.functional.jacobian(f, x)
right = torch.stack([f(step) for step in torch.eye(8, dtype=torch.float64)], dim=1)
print(
    f"d y[0] / d x[1]: backward returns {wrong[0, 1]:.6f}\nright, as the transform is linear: "
    f"{right[0, 1]:.6f}"
)
assert abs(wrong[0, 1] - right[0, 1]) > 0.1
