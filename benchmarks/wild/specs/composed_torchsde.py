"""A stochastic differential equation along one path of noise, solved by the reversible method whose
adjoint is exact."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torchsde import BrownianInterval, sdeint_adjoint


class _Equation(nn.Module):
    noise_type, sde_type = "diagonal", "stratonovich"

    def __init__(self, w: Tensor) -> None:
        super().__init__()
        self.w = w

    def f(self, t: Tensor, y: Tensor) -> Tensor:
        return torch.tanh(y @ self.w)

    def g(self, t: Tensor, y: Tensor) -> Tensor:
        return 0.3 + 0.1 * torch.sin(y)


def path(y: Tensor, w: Tensor) -> Tensor:
    times = torch.tensor([0.0, 0.5], dtype=y.dtype)
    noise = BrownianInterval(0.0, 0.5, size=(1, 2), dtype=y.dtype, entropy=7)
    end: Tensor = sdeint_adjoint(
        _Equation(w),
        y,
        times,
        bm=noise,
        method="reversible_heun",
        adjoint_method="adjoint_reversible_heun",
        adjoint_params=(w,),
        dt=0.125,
    )[-1]
    return end
