"""Second derivatives of normmax_bisect are NaN where an output is 0."""

import torch
from entmax import normmax_bisect

x = torch.tensor([2.0, 1.8, -3.0], dtype=torch.float64, requires_grad=True)


def gradient(x):
    return torch.autograd.grad(normmax_bisect(x, alpha=3)[0], x, create_graph=True)[0]


wrong = torch.autograd.grad(gradient(x)[0], x)[0]
step = torch.tensor([1e-5, 0.0, 0.0], dtype=torch.float64)
right = ((gradient(x + step) - gradient(x - step)) / 2e-5)[0].item()
print("normmax", normmax_bisect(x, alpha=3).tolist(), "gradient", gradient(x).tolist())
print(
    f"double backward: d2 p[0] / d x[0]2 = {wrong[0].item()}\nright, a difference of the gradient: "
    f"{right:.6f}"
)
assert wrong.isnan().any() and right == right
