"""Backward of the multi-compartment LIF step calls torch.linear, which torch does not have."""

import torch
from norse.torch.functional.adjoint.lif_mc_adjoint import LIFMCAdjointFunction

x = torch.ones(2, 3)
z = torch.zeros(2, 4)
v = torch.zeros(2, 4)
i = torch.zeros(2, 4, requires_grad=True)
_, _, current = LIFMCAdjointFunction.apply(
    x, z, v, i, torch.ones(4, 3), torch.ones(4, 4), torch.ones(4, 4)
)
try:
    print("d i' / d i:", torch.autograd.grad(current.sum(), i))
    raise SystemExit("backward did not raise")
except AttributeError as error:
    print(
        f"backward raises {type(error).__name__}: {error}\nright: d i' / d i = 0.8 (1 - dt / "
        "tau_syn, and the coupling)"
    )
