"""Iterations that stop at an absolute tolerance, as people write them: linear systems, roots, fixed points, initial value problems."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

MOST = 2000     # iterations: a tolerance below rounding is never met
Linear = Callable[[Tensor, Tensor, float], Tensor]      # A [n, n], b [n], tolerance -> x [n]


def cg(a: Tensor, b: Tensor, tolerance: float) -> Tensor:
    """Conjugate gradients: A symmetric positive definite."""
    x = torch.zeros_like(b)
    r = b - a @ x
    p, rr = r.clone(), r @ r
    for _ in range(10 * len(b)):
        if rr.sqrt() <= tolerance:
            break
        step = rr / (p @ a @ p)
        x, r = x + step * p, r - step * (a @ p)
        new = r @ r
        p, rr = r + new / rr * p, new
    return x


def conjugate_residuals(a: Tensor, b: Tensor, tolerance: float) -> Tensor:
    """What MINRES minimises, by conjugate residuals: A symmetric."""
    x, r = torch.zeros_like(b), b.clone()
    p, ar = r.clone(), a @ r
    ap, rar = ar.clone(), r @ ar
    for _ in range(10 * len(b)):
        if r.norm() <= tolerance or ap @ ap == 0 or rar == 0:
            break
        step = rar / (ap @ ap)
        x, r = x + step * p, r - step * ap
        ar = a @ r
        new = r @ ar
        p, ap = r + new / rar * p, ar + new / rar * ap
        rar = new
    return x


def gmres(a: Tensor, b: Tensor, tolerance: float) -> Tensor:
    """Arnoldi with a least squares problem a step."""
    beta = b.norm()
    if beta <= tolerance:
        return torch.zeros_like(b)
    basis, h = [b / beta], b.new_zeros(len(b) + 1, len(b))
    for k in range(len(b)):
        w = a @ basis[k]
        for i, q in enumerate(basis):
            h[i, k] = q @ w
            w = w - h[i, k] * q
        h[k + 1, k] = w.norm()
        right = b.new_zeros(k + 2)
        right[0] = beta
        y = torch.linalg.lstsq(h[:k + 2, :k + 1], right[:, None]).solution[:, 0]
        residual = (h[:k + 2, :k + 1] @ y - right).norm()
        if residual <= tolerance or h[k + 1, k] <= 1e-14 * beta:
            break
        basis.append(w / h[k + 1, k])
    return torch.stack(basis[:len(y)], 1) @ y


def bicgstab(a: Tensor, b: Tensor, tolerance: float) -> Tensor:
    x, r = torch.zeros_like(b), b.clone()
    shadow, p, rho = r.clone(), r.clone(), r @ r
    for _ in range(10 * len(b)):
        if r.norm() <= tolerance or rho == 0:
            break
        v = a @ p
        alpha = rho / (shadow @ v)
        s = r - alpha * v
        t = a @ s
        omega = (t @ s) / (t @ t) if t @ t > 0 else t.new_zeros(())
        x, r = x + alpha * p + omega * s, s - omega * t
        new = shadow @ r
        if omega == 0:
            break
        p, rho = r + new / rho * alpha / omega * (p - omega * v), new
    return x


def _splitting(part: Callable[[Tensor], Callable[[Tensor], Tensor]]) -> Linear:
    """x ← x + M⁻¹(b − A x) until the residual is small."""
    def solve(a: Tensor, b: Tensor, tolerance: float) -> Tensor:
        x, apply = torch.zeros_like(b), part(a)
        for _ in range(MOST):
            r = b - a @ x
            if r.norm() <= tolerance:
                break
            x = x + apply(r)
        return x
    return solve


def _lower(a: Tensor, omega: float = 1.0) -> Tensor:
    return torch.tril(a, -1) + torch.diag(a.diagonal()) / omega


def _symmetric_sweep(a: Tensor) -> Callable[[Tensor], Tensor]:
    """Forward and backward substitution with the triangles of A itself; nothing is factorised."""
    low, up, d = torch.tril(a), torch.triu(a), a.diagonal()
    return lambda r: torch.linalg.solve_triangular(up, d[:, None] * torch.linalg.solve_triangular(low, r[:, None], upper=False), upper=True)[:, 0]


jacobi = _splitting(lambda a: lambda r: r / a.diagonal())
gauss_seidel = _splitting(lambda a: lambda r: torch.linalg.solve_triangular(_lower(a), r[:, None], upper=False)[:, 0])
sor = _splitting(lambda a: lambda r: torch.linalg.solve_triangular(_lower(a, 1.2), r[:, None], upper=False)[:, 0])
sweeps = _splitting(_symmetric_sweep)
richardson = _splitting(lambda a: lambda r: r / a.diagonal().max() * 0.8)


# ---- nonlinear
def settle(step: Callable[[Tensor], Tensor], start: Tensor, tolerance: float) -> Tensor:
    """z ← step(z) until it moves by no more than the tolerance."""
    z = start
    for _ in range(MOST):
        new = step(z)
        done = (new - z).norm() <= tolerance
        z = new
        if done:
            break
    return z


def anderson(step: Callable[[Tensor], Tensor], start: Tensor, tolerance: float, depth: int = 3) -> Tensor:
    z, kept, residuals = start, list[Tensor](), list[Tensor]()
    for _ in range(MOST):
        r = step(z) - z
        if r.norm() <= tolerance:
            break
        kept, residuals = [*kept, z + r][-depth:], [*residuals, r][-depth:]
        stack = torch.stack(residuals, 1)
        gram = stack.T @ stack + 1e-14 * (stack * stack).sum() * torch.eye(stack.shape[1], dtype=z.dtype)
        weights = torch.linalg.solve(gram, z.new_ones(stack.shape[1]))
        z = torch.stack(kept, 1) @ (weights / weights.sum())
    return z


def broyden(f: Callable[[Tensor], Tensor], start: Tensor, tolerance: float) -> Tensor:
    """f(z) = 0 with a secant approximation of the inverse Jacobian, −1 at first."""
    z, value = start, f(start)
    inverse = -torch.eye(len(start), dtype=start.dtype)
    for _ in range(200):
        if value.norm() <= tolerance:
            break
        dz = -inverse @ value
        z, new = z + dz, f(z + dz)
        df = new - value
        denominator = dz @ inverse @ df
        if denominator == 0:
            break
        inverse, value = inverse + torch.outer(dz - inverse @ df, dz @ inverse) / denominator, new
    return z


C = (1 / 5, 3 / 10, 4 / 5, 8 / 9, 1.0)
A = ((1 / 5,), (3 / 40, 9 / 40), (44 / 45, -56 / 15, 32 / 9), (19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729),
     (9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656))
FIFTH = (35 / 384, 0.0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84)
APART = (71 / 57600, 0.0, -71 / 16695, 71 / 1920, -17253 / 339200, 22 / 525, -1 / 40)


def runge_kutta(f: Callable[[float, Tensor], Tensor], start: Tensor, t0: float, t1: float, tolerance: float) -> Tensor:
    """Dormand and Prince's pair of orders 5 and 4, the step chosen by an absolute tolerance; t1 may lie before t0."""
    t, y, h = t0, start, (t1 - t0) / 8
    for _ in range(MOST):
        if abs(t1 - t) <= 1e-14:
            break
        h = max(h, t1 - t) if t1 < t0 else min(h, t1 - t)
        k = [f(t, y)]
        for c, row in zip(C, A, strict=True):
            k.append(f(t + c * h, y + h * sum(a * each for a, each in zip(row, k, strict=True))))
        new = y + h * sum(b * each for b, each in zip(FIFTH, k, strict=True))
        k.append(f(t + h, new))
        error = float((h * sum(e * each for e, each in zip(APART, k, strict=True))).norm())
        if error <= tolerance:
            t, y = t + h, new
        h = h * min(4.0, max(0.2, 0.9 * (tolerance / max(error, 1e-300)) ** (1 / 5)))
    return y
