"""_SimplexProject: forward subtracts the norm of the projection, and backward is that of half its
square."""

import torch
from torch_struct.semirings.sparse_max import _SimplexProject, project_simplex

x = torch.tensor([[1.0, 0.7, -2.0]], dtype=torch.float64, requires_grad=True)
(wrong,) = torch.autograd.grad(_SimplexProject.apply(x, -1).sum(), x)
w = project_simplex(x, -1)
(right,) = torch.autograd.grad(((x * w).sum(-1) - w.norm(p=2, dim=-1)).sum(), x)
print("backward returns", wrong.tolist(), "\nright, by torch: ", right.tolist())
assert not torch.allclose(wrong, right)
