"""The Hessian through special_procrustes is silently wrong: backward computes with singular vectors
that autograd takes for constants."""

import torch
from roma.mappings import _ProcrustesManualDerivatives

m = torch.tensor([1.0, 0.4, -0.3, 0.2, 1.5, 0.6, 0.1, -0.7, 2.0], dtype=torch.float64)


def f(m):
    return (
        _ProcrustesManualDerivatives.apply(m.reshape(1, 3, 3), True, 0.0)[0]
        .flatten()
        .cumsum(0)
        .sin()
        .sum()
    )


def gradient(m):
    return torch.autograd.functional.jacobian(f, m)


wrong = torch.autograd.functional.hessian(f, m)
right = torch.stack(
    [
        (gradient(m + step) - gradient(m - step)) / 2e-5
        for step in 1e-5 * torch.eye(9, dtype=torch.float64)
    ]
)
i, j = divmod(int((wrong - right).abs().argmax()), 9)
print(
    f"Hessian: d2 f / d m[{i}] d m[{j}] = {wrong[i, j]:.6f}\nright, a difference of the gradient: "
    f"{right[i, j]:.6f}"
)
assert abs(wrong[i, j] - right[i, j]) > 0.01
