"""Backward of LeakyIntegratorStep raises where the decay is trained, and neither its input nor its
state needs a gradient."""

import torch
from spikingjelly.activation_based.lava_exchange import LeakyIntegratorStep

x, state, decay = torch.ones(2), torch.full((2,), 8.0), torch.tensor(1024.0, requires_grad=True)
y = LeakyIntegratorStep.apply(x, decay, state, 64)
try:
    print("d y / d decay:", torch.autograd.grad(y.sum(), decay))
    raise SystemExit("backward did not raise")
except ValueError as error:
    print(f"backward raises ValueError: {error}")
(right,) = torch.autograd.grad(
    LeakyIntegratorStep.apply(x.requires_grad_(), decay, state, 64).sum(), decay
)
print(f"right, as where x needs one: {right.item()}")
