"""Backward of a one-dimensional wavelet synthesis pads as if it were the analysis: the synthesis is
linear and pads nothing so."""

import torch
from pytorch_wavelets import DWT1DInverse

made = DWT1DInverse(wave="db2", mode="symmetric").double()
high = torch.zeros(1, 1, 6, dtype=torch.float64)


def f(low):
    return made((low.reshape(1, 1, 6), [high])).flatten()


wrong = torch.autograd.functional.jacobian(f, torch.ones(6, dtype=torch.float64))
right = torch.stack([f(step) for step in torch.eye(6, dtype=torch.float64)], dim=1)
i, j = divmod(int((wrong - right).abs().argmax()), 6)
print(
    f"d y[{i}] / d low[{j}]: backward returns {wrong[i, j]:.6f}\nright, as the transform is "
    f"linear: {right[i, j]:.6f}"
)
assert abs(wrong[i, j] - right[i, j]) > 0.1
