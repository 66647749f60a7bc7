"""Backward of Sim3_Log ends the series of its inverse Jacobian after four terms, and that of
sim3_Exp after five: together no identity."""

import torch
from pypose.lietensor.operation import Sim3_Log, sim3_Exp

x = torch.linspace(0.5, 1.1, 7, dtype=torch.float64)
a = torch.linspace(-0.6, 0.8, 7, dtype=torch.float64)


def f(x):
    return Sim3_Log.apply(sim3_Exp.apply(x))


wrong = torch.autograd.functional.jacobian(f, x)
right = torch.stack(
    [(f(x + step) - f(x - step)) / 2e-5 for step in 1e-5 * torch.eye(7, dtype=torch.float64)], dim=1
)
i, j = divmod(int((wrong - right).abs().argmax()), 7)
print(
    f"d y[{i}] / d x[{j}]: backward returns {wrong[i, j]:.6f}\nright, a difference of forward: "
    f"{right[i, j]:.6f}"
)
assert abs(wrong[i, j] - right[i, j]) > 1e-3
