"""Backward of ExportQuantizeToFakeQuantize returns one gradient for eleven arguments."""

import torch
from nncf.torch.quantization.quantize_functions import ExportQuantizeToFakeQuantize

x = torch.tensor([0.3, 0.8], requires_grad=True)
y = ExportQuantizeToFakeQuantize.apply(x, 16, -1.0, 1.0, -1.0, 1.0, 0.125, 8, 0, 15, None)
try:
    y.sum().backward()
    raise SystemExit("backward did not raise")
except RuntimeError as error:
    print(f"backward raises: {error}\nright: grad_output, and None for the others")
