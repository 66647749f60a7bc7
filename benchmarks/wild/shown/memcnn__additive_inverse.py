"""Backward of the inverse additive coupling returns the gradients of the two halves in the wrong
order."""

import torch
from memcnn.models.additive import AdditiveBlockInverseFunction

F, G = torch.nn.Tanh(), torch.nn.Sigmoid()
y = torch.tensor([[0.3, -0.8]], dtype=torch.float64, requires_grad=True)
weights = torch.tensor([[1.0, 3.0]], dtype=torch.float64)
(wrong,) = torch.autograd.grad((AdditiveBlockInverseFunction.apply(y, F, G) * weights).sum(), y)
y1, y2 = y.chunk(2, dim=1)
x2 = y2 - G(y1)
(right,) = torch.autograd.grad((torch.cat([y1 - F(x2), x2], dim=1) * weights).sum(), y)
print("backward returns", wrong.tolist(), "\nright, by torch: ", right.tolist())
assert not torch.allclose(wrong, right) and torch.allclose(wrong, right.flip(1))
