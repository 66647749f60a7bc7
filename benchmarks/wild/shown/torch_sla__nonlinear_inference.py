"""The solution of nonlinear equations is NaN under inference_mode, without a word."""

import torch
from torch_sla import SparseTensor

row, col = torch.tensor([0, 0, 1, 1, 1, 2, 2]), torch.tensor([0, 1, 0, 1, 2, 1, 2])
val = torch.full((7,), 0.2, dtype=torch.float64)
b = torch.tensor([1.0, 2.0, -1.0], dtype=torch.float64)


def solve():
    """Of A x + 3 x + x³ = b."""
    start = torch.zeros(3, dtype=val.dtype)
    return SparseTensor(val, row, col, (3, 3)).nonlinear_solve(
        lambda x, A, b: A @ x + 3 * x + x**3 - b, start, b, tol=1e-13
    )


with torch.inference_mode():
    wrong = solve()
right = solve()
print(
    f"under inference_mode: {wrong.tolist()}\nwithout it: {[round(x, 6) for x in right.tolist()]}"
)
assert wrong.isnan().all() and right.isfinite().all()
