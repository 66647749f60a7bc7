"""Backward of the mixed-precision linear layer calls view on its input: it raises where that is
transposed, which forward takes."""

import torch
from torchao.prototype.quantized_training import int8_mixed_precision as int8

torch.manual_seed(0)
x, weight = torch.randn(2, 3, 4).transpose(1, 2), torch.randn(5, 3, requires_grad=True)
config = int8.Int8MixedPrecisionTrainingConfig(output=False, grad_input=False, grad_weight=False)
y = int8._Int8MixedPrecisionTrainingLinearFunction.apply(x, weight, None, config)
(right,) = torch.autograd.grad((x @ weight.T).sum(), weight)
try:
    torch.autograd.grad((y * torch.ones(2, 4, 5)).sum(), weight)
    raise SystemExit("backward did not raise")
except RuntimeError as error:
    print(
        f"backward raises: {error}\nright, by torch: a gradient, {right[0, 0].item():.4f} at [0, 0]"
    )
