"""An in-place operation on the output of the reversible layers silently changes their gradient:
backward reads the output without asking for it."""

import torch
from revtorch.revtorch import ReversibleBlock, _ReversibleModuleFunction

block = ReversibleBlock(torch.nn.Tanh(), torch.nn.Sigmoid(), split_along_dim=2).double()


def gradient(add):
    x = torch.tensor([[[0.3, -0.8]]], dtype=torch.float64, requires_grad=True)
    y = _ReversibleModuleFunction.apply(x, torch.nn.ModuleList([block]), False)
    return torch.autograd.grad(add(y).sum(), x)[0].tolist()


wrong, right = gradient(lambda y: y.add_(1)), gradient(lambda y: y + 1)
print(f"with y.add_(1): {wrong}\nright, with y + 1: {right}")
assert wrong != right
