"""The gradient of the Cayley transform, by which iUNets sample down and up unless told otherwise,
is wrong; at 0 its sign is."""

import torch
from iunets.cayley import cayley

weights = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
for a in (0.0, 0.5):
    A = torch.tensor([[0.0, a], [-a, 0.0]], requires_grad=True)  # skew-symmetric, as it is used
    (wrong,) = torch.autograd.grad((cayley.apply(A) * weights).sum(), A)
    (right,) = torch.autograd.grad(
        (torch.linalg.solve(torch.eye(2) + A, torch.eye(2) - A) * weights).sum(), A
    )
    print(f"at {a}: backward returns {wrong.tolist()}\nright, by torch: {right.tolist()}")
    assert not torch.allclose(wrong, right)
