"""Backward of ExportQuantizeToONNXQuantDequant returns one gradient for four arguments."""

import torch
from nncf.torch.quantization.quantize_functions import ExportQuantizeToONNXQuantDequant

x = torch.tensor([0.3, 0.8], requires_grad=True)
y = ExportQuantizeToONNXQuantDequant.apply(x, 0.125, 8, 0)
try:
    y.sum().backward()
    raise SystemExit("backward did not raise")
except RuntimeError as error:
    print(f"backward raises: {error}\nright: grad_output, and None for the others")
