"""The second derivative of a determinant is silently wrong: it takes the inverse for a constant."""

import torch
from torch_sla import SparseTensor

row, col = torch.tensor([0, 0, 1, 1, 1, 2, 2]), torch.tensor([0, 1, 0, 1, 2, 1, 2])
val = torch.tensor([4.0, 0.5, 0.3, 3.0, 0.7, 0.2, 2.0], dtype=torch.float64)


def f(val):
    return SparseTensor(val, row, col, (3, 3)).det()


def gradient(val):
    return torch.autograd.functional.jacobian(f, val)


wrong = torch.autograd.functional.hessian(f, val)
right = torch.stack(
    [
        (gradient(val + step) - gradient(val - step)) / 2e-5
        for step in 1e-5 * torch.eye(7, dtype=torch.float64)
    ]
)
i, j = divmod(int((wrong - right).abs().argmax()), 7)
print(
    f"Hessian: d2 f / d val[{i}] d val[{j}] = {wrong[i, j]:.6f}\nright, a difference of the "
    f"gradient: {right[i, j]:.6f}"
)
assert abs(wrong[i, j] - right[i, j]) > 1e-3
