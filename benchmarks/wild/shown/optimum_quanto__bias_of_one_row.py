"""The gradient of the bias for an input without a batch is summed over its own elements."""

import torch
from optimum.quanto.tensor.function import QuantizedLinearFunction

torch.manual_seed(0)
x, weight, bias = torch.randn(3), torch.randn(2, 3), torch.randn(2, requires_grad=True)
try:
    print(torch.autograd.grad(QuantizedLinearFunction.apply(x, weight, bias).sum(), bias))
    raise SystemExit("backward did not raise")
except RuntimeError as error:
    right = torch.autograd.grad((x @ weight.T + bias).sum(), bias)[0].tolist()
    print(f"backward raises: {error}\nright, by torch: {right}")
