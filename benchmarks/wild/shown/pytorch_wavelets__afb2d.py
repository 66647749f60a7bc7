"""Backward of a wavelet analysis of an image ignores how forward pads the image at its edges."""

import torch
from pytorch_wavelets import DWTForward

made = DWTForward(J=1, wave="db2", mode="reflect").double()


def f(x):
    return made(x.reshape(1, 1, 6, 6))[0].flatten()


wrong = torch.autograd.functional.jacobian(f, torch.ones(36, dtype=torch.float64))
right = torch.stack([f(step) for step in torch.eye(36, dtype=torch.float64)], dim=1)
i, j = divmod(int((wrong - right).abs().argmax()), 36)
print(
    f"d y[{i}] / d x[{j}]: backward returns {wrong[i, j]:.6f}\nright, as the transform is linear: "
    f"{right[i, j]:.6f}"
)
assert abs(wrong[i, j] - right[i, j]) > 0.1
