"""A second derivative through RxSO3_AdjXa is silently wrong: backward's own gradient of a group
element is none of a motion to its left."""

import torch
from pypose.lietensor.operation import RxSO3_AdjXa, rxso3_Exp

z = torch.linspace(0.3, 0.9, 8, dtype=torch.float64)


def f(z):
    return RxSO3_AdjXa.apply(rxso3_Exp.apply(z[:4]), z[4:]).cumsum(0).sin().sum()


def gradient(z):
    return torch.autograd.functional.jacobian(f, z)


wrong = torch.autograd.functional.hessian(f, z)
right = torch.stack(
    [
        (gradient(z + step) - gradient(z - step)) / 2e-5
        for step in 1e-5 * torch.eye(8, dtype=torch.float64)
    ]
)
i, j = divmod(int((wrong - right).abs().argmax()), 8)
print(
    f"Hessian: d2 f / d z[{i}] d z[{j}] = {wrong[i, j]:.6f}\nright, a difference of the gradient: "
    f"{right[i, j]:.6f}"
)
assert abs(wrong[i, j] - right[i, j]) > 0.01
