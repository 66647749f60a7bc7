"""Second derivatives of entmax_bisect are NaN where alpha > 2 and an output is 0; the difference of
the gradient is finite."""

import torch
from entmax import entmax_bisect

x = torch.tensor([2.0, 1.8, -3.0], dtype=torch.float64, requires_grad=True)


def gradient(x):
    return torch.autograd.grad(entmax_bisect(x, alpha=2.25)[0], x, create_graph=True)[0]


wrong = torch.autograd.grad(gradient(x)[0], x)[0]
step = torch.tensor([1e-5, 0.0, 0.0], dtype=torch.float64)
right = ((gradient(x + step) - gradient(x - step)) / 2e-5)[0].item()
print("entmax", entmax_bisect(x, alpha=2.25).tolist(), "gradient", gradient(x).tolist())
print(
    f"double backward: d2 p[0] / d x[0]2 = {wrong[0].item()}\nright, a difference of the gradient: "
    f"{right:.6f}"
)
assert wrong.isnan().any() and right == right
