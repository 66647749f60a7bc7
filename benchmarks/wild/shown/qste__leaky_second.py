"""A gradient penalty through the leaky ReLU silently lacks the weights behind it: backward
multiplies grad_output where autograd does not look."""

import torch
from qste.nn import _LeakyFn

x = torch.tensor([[0.3, 0.8, 0.1]], requires_grad=True)
v = torch.tensor([[1.0, 2.0, -1.0]], requires_grad=True)


def loss(v):
    y = (_LeakyFn.apply(x, 0.1) * v).sum()
    # With a gradient penalty
    return y + (torch.autograd.grad(y, x, create_graph=True)[0] ** 2).sum()


wrong = torch.autograd.grad(loss(v), v)[0][0, 1].item()
step = torch.tensor([[0.0, 1e-2, 0.0]])
right = ((loss(v + step) - loss(v - step)) / 2e-2).item()
print(f"d loss / d v[1] = {wrong:.4f}\nright, a difference of the loss: {right:.4f}")
assert abs(wrong - right) > 0.02
