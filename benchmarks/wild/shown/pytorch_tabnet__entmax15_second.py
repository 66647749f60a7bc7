"""Second derivatives of Entmax15Function are NaN where an output is 0: backward takes the square
root of the output."""

import torch
from pytorch_tabnet.sparsemax import Entmax15Function

x = torch.tensor([[2.0, 1.8, -3.0]], dtype=torch.float64, requires_grad=True)


def gradient(x):
    return torch.autograd.grad(Entmax15Function.apply(x, -1)[0, 0], x, create_graph=True)[0]


(wrong,) = torch.autograd.grad(gradient(x)[0, 0], x)
step = torch.tensor([[1e-5, 0.0, 0.0]], dtype=torch.float64)
right = ((gradient(x + step) - gradient(x - step)) / 2e-5)[0, 0].item()
print(
    "double backward:",
    wrong.tolist(),
    f"\nright, a difference of the gradient, at [0, 0]: {right:.6f}",
)
assert wrong.isnan().any() and right == right
