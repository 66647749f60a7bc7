"""A gradient penalty through the reversible layers is silently ignored: their backward detaches
what it computes."""

import torch
from linformer.reversible import ReversibleBlock, _ReversibleFunction

block = ReversibleBlock(torch.nn.Tanh(), torch.nn.Sigmoid()).double()
x = torch.tensor([[[0.3, -0.8]]], dtype=torch.float64, requires_grad=True)


def loss(x):
    y = _ReversibleFunction.apply(x, torch.nn.ModuleList([block]), [{"f_args": {}, "g_args": {}}])
    # With a gradient penalty
    return y.sum() + (torch.autograd.grad(y.sum(), x, create_graph=True)[0] ** 2).sum()


wrong = torch.autograd.grad(loss(x), x)[0][0, 0, 0].item()
step = torch.tensor([[[1e-5, 0.0]]], dtype=torch.float64)
right = ((loss(x + step) - loss(x - step)) / 2e-5).item()
print(f"d loss / d x[0] = {wrong:.6f}\nright, a difference of the loss: {right:.6f}")
assert abs(wrong - right) > 1e-3
