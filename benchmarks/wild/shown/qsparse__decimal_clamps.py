"""Backward of DecimalQuantization clamps the gradient it is given, in place: what else is made of
that gradient is of other numbers."""

import torch
from qsparse.quantize import DecimalQuantization

x = torch.tensor([0.25, 0.5], requires_grad=True)
given = torch.tensor([3.0, -3.0])
(wrong,) = torch.autograd.grad(DecimalQuantization.apply(x, 4, 3), x, given)
print(
    "for grad_output [3.0, -3.0] backward returns",
    wrong.tolist(),
    "and leaves grad_output as",
    given.tolist(),
)
print("right: [3.0, -3.0], as no number is out of range, and grad_output as it was")
assert given.tolist() != [3.0, -3.0] and wrong.tolist() != [3.0, -3.0]
