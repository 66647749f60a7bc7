"""SparsemaxFunction overwrites its input: what the same tensor gives elsewhere in the graph, and
its gradient, are those of other numbers."""

import torch
from pytorch_tabnet.sparsemax import SparsemaxFunction

a = torch.tensor([[1.0, 2.0]], requires_grad=True)
x = a * 1
SparsemaxFunction.apply(x, -1)
(wrong,) = torch.autograd.grad((x * x).sum(), a)
print(
    "x is now",
    x.tolist(),
    "and d (x * x) / d x is",
    wrong.tolist(),
    "\nright: [[1.0, 2.0]] and [[2.0, 4.0]]",
)
assert wrong.tolist() != [[2.0, 4.0]]
