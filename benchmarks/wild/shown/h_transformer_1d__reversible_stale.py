"""An in-place operation on the output of the reversible layers silently changes their gradient:
backward reads the output without asking for it."""

import torch
from h_transformer_1d.reversible import ReversibleBlock, _ReversibleFunction

block = ReversibleBlock(torch.nn.Tanh(), torch.nn.Sigmoid()).double()


def gradient(add):
    x = torch.tensor([[[0.3, -0.8]]], dtype=torch.float64, requires_grad=True)
    y = _ReversibleFunction.apply(x, torch.nn.ModuleList([block]), [{"f_args": {}, "g_args": {}}])
    return torch.autograd.grad(add(y).sum(), x)[0].tolist()


wrong, right = gradient(lambda y: y.add_(1)), gradient(lambda y: y + 1)
print(f"with y.add_(1): {wrong}\nright, with y + 1: {right}")
assert wrong != right
