"""Without a gradient for the low frequencies there is none for the high ones: backward asks
needs_input_grad[0] for both."""

import torch
from pytorch_wavelets import DWT1DInverse

made = DWT1DInverse(wave="db2", mode="zero").double()
low = torch.zeros(1, 1, 6, dtype=torch.float64)
high = torch.ones(1, 1, 6, dtype=torch.float64, requires_grad=True)
(wrong,) = torch.autograd.grad(made((low, [high])).sum(), high, allow_unused=True)
step = torch.zeros(1, 1, 6, dtype=torch.float64)
step.view(-1)[0] = 1.0
right = (made((low, [high.detach() + step])) - made((low, [high.detach()]))).sum()
print(
    f"gradient of high: {wrong}\nright, as the transform is linear, at its first element: "
    f"{right:.6f}"
)
assert wrong is None and abs(right) > 0.01
