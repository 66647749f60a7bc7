"""Right Functions whose forward, backward or both iterate until an absolute tolerance is met, their
truth in closed form, and wrong twins.

Of each: `make(tolerance)` is right up to what its iterations leave; `make(tolerance, fault)` has
one of `faults` in backward: a sign, a term that is dropped, a system that should be transposed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from corpus.functions import between, normal

MOST = 2000  # iterations: a tolerance below rounding is never met
SIGN, DROPPED, UNTRANSPOSED = "sign", "dropped", "untransposed"
Make = Callable[..., type[Function]]


@dataclass(frozen=True)
class Iterative:
    """`truth`: the same function in closed form, through which torch differentiates; it takes the
    arguments of `make(…).apply`."""

    name: str
    make: Make
    arguments: Callable[[], tuple[Any, ...]]
    truth: Callable[..., Tensor]
    faults: tuple[str, ...]
    tolerances: tuple[float, ...] = (1e-6, 1e-10, 1e-14)


def eye(n: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.eye(n, dtype=dtype)


# ---- linear systems
def cg(a: Tensor, b: Tensor, tolerance: float) -> Tensor:
    """Conjugate gradients: A symmetric positive definite."""
    x, r = torch.zeros_like(b), b
    p, rr = r, r @ r
    for _ in range(10 * len(b)):
        if rr.sqrt() <= tolerance:
            break
        step = rr / (p @ a @ p)
        x, r = x + step * p, r - step * (a @ p)
        p, rr = r + (r @ r) / rr * p, r @ r
    return x


def jacobi(a: Tensor, b: Tensor, tolerance: float, x: Tensor) -> Tensor:
    for _ in range(MOST):
        r = b - a @ x
        if r.norm() <= tolerance:
            break
        x = x + r / a.diagonal()
    return x


def general(tolerance: float, fault: str | None = None) -> type[Function]:
    """x = A⁻¹ b by Jacobi's iteration from a guess, on which the answer does not depend."""

    class Solve(Function):
        @staticmethod
        def forward(ctx: Any, a: Tensor, b: Tensor, start: Tensor) -> Tensor:
            x = jacobi(a, b, tolerance, start)
            ctx.save_for_backward(a, x)
            return x

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Any:
            a, x = ctx.saved_tensors
            w = jacobi(a if fault == UNTRANSPOSED else a.T, g, tolerance, torch.zeros_like(g))
            return (
                torch.zeros_like(a)
                if fault == DROPPED
                else torch.outer(w, x) * (1 if fault == SIGN else -1),
                w,
                None,
            )

    return Solve


def symmetric(tolerance: float, fault: str | None = None) -> type[Function]:
    """x = (M Mᵀ + 1)⁻¹ b."""

    class Solve(Function):
        @staticmethod
        def forward(ctx: Any, m: Tensor, b: Tensor) -> Tensor:
            x = cg(m @ m.T + eye(len(m), m.dtype), b, tolerance)
            ctx.save_for_backward(m, x)
            return x

        @staticmethod
        @once_differentiable
        def backward(ctx: Any, g: Tensor) -> Any:
            m, x = ctx.saved_tensors
            w = cg(m @ m.T + eye(len(m), m.dtype), g, tolerance)
            outer = torch.outer(w, x)
            both = outer if fault == DROPPED else outer + outer.T
            return (both if fault == SIGN else -both) @ m, w

    return Solve


def system() -> tuple[Tensor, Tensor]:
    """Diagonally dominant, not symmetric: what every splitting converges on."""
    return normal(3, 3) * 0.3 + 4 * eye(3), normal(3, seed=1)


# ---- roots, elementwise
def root(
    find: Callable[..., Tensor],
    f: Callable[..., Tensor],
    slope: Callable[..., Tensor],
    zeros: bool = False,
) -> Make:
    """y with f(y) = x, from an initial guess that gets no gradient (`zeros`: zeros); `slope` is
    f'."""

    def make(tolerance: float, fault: str | None = None) -> type[Function]:
        class Root(Function):
            @staticmethod
            def forward(ctx: Any, x: Tensor, start: Tensor) -> Tensor:
                y = find(lambda y: f(y) - x, slope, start, tolerance)
                ctx.save_for_backward(y)
                return y

            @staticmethod
            def backward(ctx: Any, g: Tensor) -> Any:
                (y,) = ctx.saved_tensors
                to_x = g if fault == DROPPED else g / slope(y) * (-1 if fault == SIGN else 1)
                return to_x, torch.zeros_like(y) if zeros else None

        return Root

    return make


def newton(f: Any, slope: Any, y: Tensor, tolerance: float) -> Tensor:
    for _ in range(100):
        value = f(y)
        if value.abs().max() <= tolerance:
            break
        y = y - value / slope(y)
    return y


def halved(f: Any, slope: Any, y: Tensor, tolerance: float) -> Tensor:
    """Bisection of a bracket around the guess, finished by one step of Newton's method."""
    low, high = y - 4.0, y + 4.0
    for _ in range(60):
        if (high - low).max() <= tolerance:
            break
        middle = (low + high) / 2
        above = f(middle) > 0
        low, high = torch.where(above, low, middle), torch.where(above, middle, high)
    y = (low + high) / 2
    return y - f(y) / slope(y)


def chord(f: Any, slope: Any, y: Tensor, tolerance: float) -> Tensor:
    """Newton's method with the slope at the start: linear convergence, so that the guess is never
    quite forgotten."""
    first = slope(y)
    for _ in range(500):
        step = f(y) / first
        y = y - step
        if step.abs().max() <= tolerance:
            break
    return y


def cubic_root(x: Tensor, *_: Tensor) -> Tensor:
    """y³ + 3y = x, by hyperbolic functions."""
    return 2 * torch.sinh(torch.asinh(x / 2) / 3)


CUBIC = (lambda y: y**3 + 3 * y, lambda y: 3 * y**2 + 3)


def guessed() -> tuple[Tensor, Tensor]:
    return normal(3), 0.3 * normal(3, seed=1)


# ---- fixed points
def settle(step: Callable[[Tensor], Tensor], z: Tensor, tolerance: float) -> Tensor:
    """z ← step(z) until it moves by no more than the tolerance."""
    for _ in range(MOST):
        before, z = z, step(z)
        if (z - before).norm() <= tolerance:
            break
    return z


def equilibrium(tolerance: float, fault: str | None = None) -> type[Function]:
    """z = W z + tanh(x)/2, from a guess: a fixed point that can be written down; the backward
    iterates on the adjoint system."""

    class Equilibrium(Function):
        @staticmethod
        def forward(ctx: Any, w: Tensor, x: Tensor, start: Tensor) -> Tensor:
            z = settle(lambda z: w @ z + x.tanh() / 2, start, tolerance)
            ctx.save_for_backward(w, x, z)
            return z

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Any:
            w, x, z = ctx.saved_tensors
            adjoint = w if fault == UNTRANSPOSED else w.T
            u = g if fault == DROPPED else settle(lambda u: adjoint @ u + g, g, tolerance)
            return (
                torch.outer(u, z) * (-1 if fault == SIGN else 1),
                u * (1 - x.tanh() ** 2) / 2,
                None,
            )

    return Equilibrium


# ---- matrices
def inverse(tolerance: float, fault: str | None = None) -> type[Function]:
    """A⁻¹ by Newton and Schulz."""

    class Inverse(Function):
        @staticmethod
        def forward(ctx: Any, a: Tensor) -> Tensor:
            y = a.T / (a.abs().sum(0).max() * a.abs().sum(1).max())
            for _ in range(200):
                residual = eye(len(a), a.dtype) - a @ y
                if residual.norm() <= tolerance:
                    break
                y = y + y @ residual
            ctx.save_for_backward(y)
            return y

        @staticmethod
        @once_differentiable
        def backward(ctx: Any, g: Tensor) -> Tensor:
            (y,) = ctx.saved_tensors
            return (
                -y @ g @ y
                if fault == UNTRANSPOSED
                else y.T @ g @ y.T * (1 if fault == SIGN else -1)
            )

    return Inverse


def dominant_pair(tolerance: float, fault: str | None = None) -> type[Function]:
    """The largest eigenvalue and its vector, of M + Mᵀ, by power iteration from a vector of ones;
    backward by conjugate gradients across it."""

    class Pair(Function):
        @staticmethod
        def forward(ctx: Any, m: Tensor) -> Tensor:
            s = m + m.T
            v = settle(
                lambda v: (s @ v) / (s @ v).norm(),
                torch.ones(len(m), dtype=m.dtype) / math.sqrt(len(m)),
                tolerance,
            )
            ctx.save_for_backward(s, v)
            return torch.cat([(v @ s @ v)[None], v])

        @staticmethod
        @once_differentiable
        def backward(ctx: Any, g: Tensor) -> Tensor:
            s, v = ctx.saved_tensors
            u = cg(
                (v @ s @ v) * (eye(len(v), v.dtype) + torch.outer(v, v)) - s,
                g[1:] - v * (v @ g[1:]),
                tolerance,
            )
            outer = torch.outer(v, v) * g[0] + torch.outer(u - v * (v @ u), v) * (
                -1 if fault == SIGN else 1
            )
            return outer if fault == DROPPED else outer + outer.T

    return Pair


def pair_truth(m: Tensor) -> Tensor:
    values, vectors = torch.linalg.eigh(m + m.T)
    return torch.cat([values[-1:], vectors[:, -1] * vectors[:, -1].sum().sign()])


def gapped() -> tuple[Tensor]:
    q, _ = torch.linalg.qr(normal(3, 3))
    q[:, 0] = q[:, 0] * q[:, 0].sum().sign()
    return (
        q @ torch.diag(torch.tensor([2.5, 0.8, 0.2], dtype=torch.float64)) @ q.T
        + torch.triu(normal(3, 3, seed=3), 1)
        - torch.triu(normal(3, 3, seed=3), 1).T,
    )


# ---- initial value problems
def adaptively(f: Callable[[Tensor], Tensor], y: Tensor, span: float, tolerance: float) -> Tensor:
    """Two steps of half the size against a whole one, of the classical method of Runge and Kutta;
    an absolute tolerance chooses the size."""

    def step(y: Tensor, h: float) -> Tensor:
        k1 = f(y)
        k2 = f(y + h / 2 * k1)
        k3 = f(y + h / 2 * k2)
        return y + h / 6 * (k1 + 2 * k2 + 2 * k3 + f(y + h * k3))

    left, h = span, span / 2
    while abs(left) > 1e-14:
        h = math.copysign(min(abs(h), abs(left)), span)
        halves = step(step(y, h / 2), h / 2)
        off = (halves - step(y, h)) / 15
        error = float(off.detach().norm())
        if error <= tolerance:
            left, y = left - h, halves + off
        h = h * min(4.0, max(0.2, 0.9 * (tolerance / max(error, 1e-300)) ** (1 / 5)))
    return y


def flow(tolerance: float, fault: str | None = None) -> type[Function]:
    """y(½) of y' = A y, y(0) = y₀, adaptively; backward integrates the adjoint equation, with the
    state and the gradient of A alongside."""

    class Flow(Function):
        @staticmethod
        def forward(ctx: Any, a: Tensor, y0: Tensor) -> Tensor:
            y = adaptively(lambda y: a @ y, y0, 0.5, tolerance)
            ctx.save_for_backward(a, y)
            return y

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Any:
            a, y = ctx.saved_tensors
            n, adjoint = len(y), a if fault == UNTRANSPOSED else a.T

            def back(z: Tensor) -> Tensor:
                return torch.cat(
                    [
                        a @ z[:n],
                        -adjoint @ z[n : 2 * n],
                        -torch.outer(z[n : 2 * n], z[:n]).reshape(-1),
                    ]
                )

            z = adaptively(back, torch.cat([y, g, y.new_zeros(n * n)]), -0.5, tolerance)
            to_a = z[2 * n :].reshape(n, n)
            return -to_a if fault == SIGN else torch.outer(g, y) if fault == DROPPED else to_a, z[
                n : 2 * n
            ]

    return Flow


ALL, TWO = (SIGN, DROPPED, UNTRANSPOSED), (DROPPED, SIGN)
ITERATIVE = (
    Iterative(
        "conjugate gradients",
        symmetric,
        lambda: (normal(3, 2), normal(3, seed=1)),
        lambda m, b: torch.linalg.solve(m @ m.T + eye(3), b),
        TWO,
    ),
    Iterative(
        "jacobi from a guess",
        general,
        lambda: (*system(), normal(3, seed=2)),
        lambda a, b, _: torch.linalg.solve(a, b),
        ALL,
    ),
    Iterative("bisection", root(halved, *CUBIC), guessed, cubic_root, TWO),
    Iterative("chord", root(chord, *CUBIC), guessed, cubic_root, TWO),
    Iterative(
        "logarithm by newton, zeros for the guess",
        root(newton, torch.exp, torch.exp, zeros=True),
        lambda: (between(0.5, 3, 3), between(0, 1, 3)),
        lambda x, _: x.log(),
        TWO,
    ),
    Iterative(
        "fixed point from a guess",
        equilibrium,
        lambda: (0.12 * normal(3, 3), normal(3, seed=1), normal(3, seed=2)),
        lambda w, x, _: torch.linalg.solve(eye(3) - w, x.tanh() / 2),
        ALL,
    ),
    Iterative(
        "inverse by newton and schulz",
        inverse,
        lambda: system()[:1],
        torch.linalg.inv,
        (UNTRANSPOSED, SIGN),
    ),
    Iterative("power iteration", dominant_pair, gapped, pair_truth, TWO),
    Iterative(
        "adaptive runge kutta",
        flow,
        lambda: (0.8 * normal(2, 2), normal(2, seed=1)),
        lambda a, y: torch.linalg.matrix_exp(a / 2) @ y,
        ALL,
        (1e-6,),
    ),
)
