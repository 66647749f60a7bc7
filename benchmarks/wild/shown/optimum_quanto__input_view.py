"""Backward of QuantizedLinearFunction calls view on its input: it raises where that is transposed,
which forward takes."""

import torch
from optimum.quanto.tensor.function import QuantizedLinearFunction

torch.manual_seed(0)
x, weight = torch.randn(2, 3, 4).transpose(1, 2), torch.randn(5, 3, requires_grad=True)
y = QuantizedLinearFunction.apply(x, weight)
(right,) = torch.autograd.grad((x @ weight.T).sum(), weight)
try:
    torch.autograd.grad((y * torch.ones(2, 4, 5)).sum(), weight)
    raise SystemExit("backward did not raise")
except RuntimeError as error:
    print(
        f"backward raises: {error}\nright, by torch: a gradient, {right[0, 0].item():.4f} at [0, 0]"
    )
