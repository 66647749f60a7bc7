"""Backward of quad raises where a limit needs a gradient and the parameters need none: it counts
them as if they did."""

import torch
from xitorch.integrate import quad

w, low = torch.tensor([0.4], dtype=torch.float64), torch.tensor(-0.3, dtype=torch.float64)
high = torch.tensor(0.8, dtype=torch.float64, requires_grad=True)
try:
    wrong = torch.autograd.grad(
        quad(lambda x, w: torch.exp(w * x), low, high, params=(w,), n=20).sum(), high
    )[0]
except ValueError as error:
    wrong = error
print(
    "backward raises",
    repr(wrong),
    f"\nright, the integrand at the limit: {torch.exp(w * high).item():.6f}",
)
assert isinstance(wrong, ValueError)
