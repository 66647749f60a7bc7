"""What xitorch solves and integrates, for one function with a parameter."""

from __future__ import annotations

import torch
from torch import Tensor
from xitorch import LinearOperator
from xitorch.integrate import quad, solve_ivp
from xitorch.linalg import solve, symeig
from xitorch.optimize import equilibrium, minimize, rootfinder


def linear(A: Tensor, B: Tensor) -> Tensor:
    found: Tensor = solve(LinearOperator.m(A, is_hermitian=False), B)
    return found


def linear_cg(A: Tensor, B: Tensor) -> Tensor:
    symmetric = A + A.mT
    found: Tensor = solve(
        LinearOperator.m(symmetric, is_hermitian=True), B, method="cg", rtol=1e-12, atol=1e-13
    )
    return found


def eigen(A: Tensor) -> tuple[Tensor, Tensor]:
    values, vectors = symeig(LinearOperator.m(A + A.mT), neig=2, method="exacteig")
    return values, vectors**2


def davidson(A: Tensor) -> Tensor:
    values: Tensor = symeig(LinearOperator.m(A + A.mT), neig=2, method="davidson", min_eps=1e-12)[0]
    return values


def root(w: Tensor) -> Tensor:
    found: Tensor = rootfinder(
        lambda y, w: y**3 + 3 * y - w, torch.zeros_like(w), params=(w,), f_tol=1e-13, x_tol=1e-13
    )
    return found


def fixed(w: Tensor) -> Tensor:
    found: Tensor = equilibrium(
        lambda y, w: torch.cos(w * y) / 2,
        torch.zeros_like(w),
        params=(w,),
        f_tol=1e-13,
        x_tol=1e-13,
    )
    return found


def minimum(w: Tensor) -> Tensor:
    found: Tensor = minimize(
        lambda y, w: (y**4 + y**2 - w * y).sum(),
        torch.zeros_like(w),
        params=(w,),
        f_tol=1e-13,
        x_tol=1e-13,
    )
    return found


def area(w: Tensor, low: Tensor, high: Tensor) -> Tensor:
    found: Tensor = quad(lambda x, w: torch.exp(w * x), low, high, params=(w,), n=20)
    return found


def flow(y: Tensor, w: Tensor) -> Tensor:
    found: Tensor = solve_ivp(
        lambda t, y, w: torch.tanh(w @ y),
        torch.tensor([0.0, 0.5], dtype=y.dtype),
        y,
        params=(w,),
        method="rk45",
        rtol=1e-11,
        atol=1e-12,
    )
    return found
