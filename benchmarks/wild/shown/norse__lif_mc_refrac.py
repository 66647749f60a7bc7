"""Backward of the multi-compartment LIF step with a refractory period calls torch.linear, which
torch does not have."""

import torch
from norse.torch.functional.adjoint.lif_mc_refrac_adjoint import LIFMCRefracAdjointFunction

x, zeros, i = torch.ones(2, 3), torch.zeros(2, 4), torch.zeros(2, 4, requires_grad=True)
_, _, current, _ = LIFMCRefracAdjointFunction.apply(
    x, zeros, zeros, i, zeros, torch.ones(4, 3), torch.ones(4, 4), torch.ones(4, 4)
)
try:
    print("d i' / d i:", torch.autograd.grad(current.sum(), i))
    raise SystemExit("backward did not raise")
except AttributeError as error:
    print(f"backward raises {type(error).__name__}: {error}\nright: a gradient, as forward runs")
