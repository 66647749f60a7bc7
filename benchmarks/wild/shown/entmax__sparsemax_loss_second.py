"""The Hessian of sparsemax_loss is silently 0: backward multiplies with a tensor that autograd does
not know to depend on x."""

import torch
from entmax import sparsemax_loss

x = torch.tensor([[1.0, 0.7, 0.3]], dtype=torch.float64, requires_grad=True)
target = torch.tensor([0])
wrong = torch.autograd.functional.hessian(lambda x: sparsemax_loss(x, target).sum(), x)[
    0, 0, 0, 0
].item()
up, down = (x + torch.tensor([[step, 0.0, 0.0]]) for step in (1e-6, -1e-6))
slopes = [
    torch.autograd.grad(sparsemax_loss(each, target).sum(), each)[0][0, 0].item()
    for each in (up, down)
]
right = (slopes[0] - slopes[1]) / 2e-6
print(f"Hessian: d2 loss / d x[0]2 = {wrong}\nright, a difference of the gradient: {right:.6f}")
assert wrong == 0 and abs(right) > 0.01
