"""Backward of LeakySpikeOperator returns one gradient for two arguments."""

import torch
from snntorch.surrogate import LeakySpikeOperator

x = torch.tensor([-1.0, 2.0], requires_grad=True)
spikes = LeakySpikeOperator.apply(x, 0.1)
try:
    spikes.sum().backward()
    raise SystemExit("backward did not raise")
except RuntimeError as error:
    print(
        f"backward raises: {error}\nright, as its documentation says: the slope 0.1 where there is "
        "no spike, 1 where there is one"
    )
