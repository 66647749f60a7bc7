"""The gradient of symmetric quantisation for its scale is that of another range than the one that
forward clips to."""

import torch
from nncf.torch.quantization.quantize_functions import QuantizeSymmetricTorch


def clipped(scale):
    return QuantizeSymmetricTorch.apply(torch.tensor([[-3.0, 3.0]]), (1, 2), scale, -8, 7, 16)


scale = torch.ones(1, 1, requires_grad=True)
wrong = [torch.autograd.grad(y, scale, retain_graph=True)[0].item() for y in clipped(scale)[0]]
# It is linear in the scale
right = ((clipped(torch.tensor([[1.25]])) - clipped(torch.tensor([[0.75]]))) / 0.5)[0].tolist()
print(
    "forward clips to",
    clipped(scale)[0].tolist(),
    "at scale 1; backward returns",
    wrong,
    "\nright, a difference:",
    right,
)
assert max(abs(a - b) for a, b in zip(wrong, right, strict=True)) > 0.1
