"""Backward of the LIF step with a refractory period reads p.tau_syn_inv, which is
p.lif.tau_syn_inv."""

import torch
from norse.torch.functional.adjoint.lif_refrac_adjoint import LIFAdjointRefracFunction

x, zeros, i = torch.ones(2, 3), torch.zeros(2, 4), torch.zeros(2, 4, requires_grad=True)
_, _, current, _ = LIFAdjointRefracFunction.apply(
    x, zeros, zeros, i, zeros, torch.ones(4, 3), torch.ones(4, 4)
)
try:
    print("d i' / d i:", torch.autograd.grad(current.sum(), i))
    raise SystemExit("backward did not raise")
except AttributeError as error:
    print(
        f"backward raises {type(error).__name__}: {error}\nright: d i' / d i = 0.8 (1 - dt / "
        "tau_syn)"
    )
