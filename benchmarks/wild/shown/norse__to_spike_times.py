"""Backward of ToSpikeTimes raises as soon as a neuron spikes less often than `spike_count`: only
the times of spikes index its gradient."""

import torch
from norse.torch.functional.spikes_to_times_decoder import ToSpikeTimes

# Neuron 0 spikes twice, neuron 1 once
spikes = torch.tensor([[[1.0, 0.0]], [[0.0, 0.0]], [[1.0, 1.0]]], requires_grad=True)
times = ToSpikeTimes.apply(spikes, 2)
print("forward returns", times.tolist())
try:
    print("gradient", torch.autograd.grad(times, spikes, torch.ones_like(times)))
    raise SystemExit("backward did not raise")
except (RuntimeError, IndexError) as error:
    print(
        f"backward raises {type(error).__name__}: {error}\nright, as its documentation says: -1 at "
        "each of the three spikes, 0 elsewhere"
    )
