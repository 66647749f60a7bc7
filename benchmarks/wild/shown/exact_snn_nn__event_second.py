"""Second derivatives of the event-driven layer are silently wrong: the time of the spike counts as
a constant in them."""

import torch
from exact_snn.event import _ExactEventLayerFn

W = torch.tensor([[0.9, 1.1, 1.3]], dtype=torch.float64, requires_grad=True)
times = torch.tensor([[1.0], [2.0]], dtype=torch.float64)


def gradient(W):
    spike = _ExactEventLayerFn.apply(W, times, 0.0, 1.0, 50.0, 10.0, 2.5, 0.0625, 0.01)
    return torch.autograd.grad(spike.sum(), W, create_graph=True)[0]


wrong = torch.autograd.grad(gradient(W)[0, 2], W)[0][0, 2].item()
step = torch.tensor([[0.0, 0.0, 1e-5]], dtype=torch.float64)
right = ((gradient(W + step) - gradient(W - step)) / 2e-5)[0, 2].item()
print(
    f"double backward: d2 t / d W[2]2 = {wrong:.6f}\nright, a difference of the gradient: "
    f"{right:.6f}"
)
assert abs(wrong - right) > 1e-3
