"""The gradient of ExactSpike for its threshold is not linear: it is clamped from above after
grad_output was multiplied in."""

import torch
from gsmc_torch.surrogate import ExactSpike

x = torch.tensor([[1.05]])
theta = torch.tensor([1.0], requires_grad=True)


def gradient(scale):
    return torch.autograd.grad(ExactSpike.apply(x, theta) * scale, theta)[0].item()


print(
    f"of the loss y: {gradient(1.0):.4f}, of 2 y: {gradient(2.0):.4f}, of -y: {gradient(-1.0):.4f}"
)
print(f"right: of 2 y twice {gradient(1.0):.4f}, of -y its opposite")
assert gradient(2.0) != 2 * gradient(1.0) and gradient(-1.0) != -gradient(1.0)
