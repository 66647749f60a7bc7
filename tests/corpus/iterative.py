"""Right Functions whose forward, backward or both iterate until an absolute tolerance is met, their truth in closed form, and wrong twins.

Of each: `make(tolerance)` is right up to what its iterations leave; `make(tolerance, fault)` has one of `faults` in backward: a sign, a term that is
dropped, a system that should be transposed.
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

from corpus.solvers import (
    Linear,
    anderson,
    bicgstab,
    broyden,
    cg,
    conjugate_residuals,
    gauss_seidel,
    gmres,
    jacobi,
    richardson,
    runge_kutta,
    settle,
    sor,
    sweeps,
)

TOLERANCES = (1e-6, 1e-8, 1e-10, 1e-12, 1e-14)
SIGN, DROPPED, UNTRANSPOSED = "sign", "dropped", "untransposed"


@dataclass(frozen=True)
class Iterative:
    """`truth`: the same function in closed form, through which torch differentiates; it takes the arguments of `make(…).apply`."""

    name: str
    make: Callable[..., type[Function]]
    arguments: Callable[[], tuple[Any, ...]]
    truth: Callable[..., Tensor]
    faults: tuple[str, ...]
    tolerances: tuple[float, ...] = TOLERANCES


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def uniform(low: float, high: float, *shape: int, seed: int = 0) -> Tensor:
    return low + (high - low) * torch.rand(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def dominant(n: int = 4) -> Tensor:
    """Diagonally dominant, not symmetric: what every splitting converges on."""
    return normal(n, n) * 0.3 + 2.5 * torch.eye(n, dtype=torch.float64)


# ---- linear systems
def general(solve: Linear, guess: bool = False) -> Callable[..., type[Function]]:
    """x = A⁻¹ b by an iteration; `guess`: a third argument that the answer does not depend on."""
    def make(tolerance: float, fault: str | None = None) -> type[Function]:
        class Solve(Function):
            @staticmethod
            def forward(ctx: Any, a: Tensor, b: Tensor, *start: Tensor) -> Tensor:
                x = start[0] + solve(a, b - a @ start[0], tolerance) if start else solve(a, b, tolerance)
                ctx.save_for_backward(a, x)
                return x

            @staticmethod
            def backward(ctx: Any, g: Tensor) -> Any:
                a, x = ctx.saved_tensors
                w = solve(a if fault == UNTRANSPOSED else a.T.contiguous(), g, tolerance)
                to_a = torch.outer(w, x) if fault == SIGN else -torch.outer(w, x)
                return (torch.zeros_like(a) if fault == DROPPED else to_a, w, *[None] * guess)
        return Solve
    return make


def symmetric(solve: Linear, shift: float) -> Callable[..., type[Function]]:
    """x = (M Mᵀ + shift·1)⁻¹ b."""
    def make(tolerance: float, fault: str | None = None) -> type[Function]:
        class Solve(Function):
            @staticmethod
            def forward(ctx: Any, m: Tensor, b: Tensor) -> Tensor:
                a = m @ m.T + shift * torch.eye(len(m), dtype=m.dtype)
                x = solve(a, b, tolerance)
                ctx.save_for_backward(m, a, x)
                return x

            @staticmethod
            @once_differentiable
            def backward(ctx: Any, g: Tensor) -> Any:
                m, a, x = ctx.saved_tensors
                w = solve(a, g, tolerance)
                outer = torch.outer(w, x)
                both = outer if fault == DROPPED else outer + outer.T
                return (both if fault == SIGN else -both) @ m, w
        return Solve
    return make


def plain_solve(a: Tensor, b: Tensor, *_: Tensor) -> Tensor:
    return torch.linalg.solve(a, b)


def gram_solve(shift: float) -> Callable[..., Tensor]:
    return lambda m, b: torch.linalg.solve(m @ m.T + shift * torch.eye(len(m), dtype=m.dtype), b)


def system(n: int = 4) -> tuple[Tensor, Tensor]:
    return dominant(n), normal(n, seed=1)


def gram() -> tuple[Tensor, Tensor]:
    return normal(4, 3), normal(4, seed=1)


# ---- roots, elementwise
def root(find: Callable[[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor], Tensor, float], Tensor], f: Callable[[Tensor, Tensor], Tensor],
         slope: Callable[[Tensor, Tensor], Tensor], by_x: Callable[[Tensor, Tensor], Tensor], zeros: bool = False) -> Callable[..., type[Function]]:
    """y with f(y, x) = 0, from an initial guess that gets no gradient (`zeros`: zeros); `slope` and `by_x` are ∂f/∂y and ∂f/∂x."""
    def make(tolerance: float, fault: str | None = None) -> type[Function]:
        class Root(Function):
            @staticmethod
            def forward(ctx: Any, x: Tensor, start: Tensor) -> Tensor:
                y = find(lambda y: f(y, x), lambda y: slope(y, x), start, tolerance)
                ctx.save_for_backward(x, y)
                return y

            @staticmethod
            def backward(ctx: Any, g: Tensor) -> Any:
                x, y = ctx.saved_tensors
                to_x = -g * by_x(y, x) / slope(y, x)
                if fault == SIGN:
                    to_x = -to_x
                if fault == DROPPED:
                    to_x = -g * by_x(y, x)
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


def secant(f: Any, slope: Any, y: Tensor, tolerance: float) -> Tensor:
    before, now = y, y + 0.1
    at_before, at_now = f(before), f(now)
    for _ in range(100):
        if at_now.abs().max() <= tolerance:
            break
        moves = (at_now - at_before).abs() > 1e-300
        step = torch.where(moves, at_now * (now - before) / torch.where(moves, at_now - at_before, 1.0), 0.0)
        before, at_before, now = now, at_now, now - step
        at_now = f(now)
    return now


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
    """Newton's method with the slope at the start: linear convergence, so that the guess is never quite forgotten."""
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


CUBIC = (lambda y, x: y**3 + 3 * y - x, lambda y, x: 3 * y**2 + 3, lambda y, x: -torch.ones_like(x))
LAMBERT = (lambda y, x: y * y.exp() - x, lambda y, x: (1 + y) * y.exp(), lambda y, x: -torch.ones_like(x))
LOGARITHM = (lambda y, x: y.exp() - x, lambda y, x: y.exp(), lambda y, x: -torch.ones_like(x))


def guessed() -> tuple[Tensor, Tensor]:
    return normal(5), 0.3 * normal(5, seed=1)


# ---- fixed points
def equilibrium(find: Callable[..., Tensor], guess: bool = False) -> Callable[..., type[Function]]:
    """z = W z + tanh(x)/2: a fixed point that can be written down; the backward iterates on the adjoint system."""
    def make(tolerance: float, fault: str | None = None) -> type[Function]:
        class Equilibrium(Function):
            @staticmethod
            def forward(ctx: Any, w: Tensor, x: Tensor, *start: Tensor) -> Tensor:
                z = find(lambda z: w @ z + x.tanh() / 2, start[0] if start else torch.zeros_like(x), tolerance)
                ctx.save_for_backward(w, x, z)
                return z

            @staticmethod
            def backward(ctx: Any, g: Tensor) -> Any:
                w, x, z = ctx.saved_tensors
                adjoint = w if fault == UNTRANSPOSED else w.T
                u = g if fault == DROPPED else find(lambda u: adjoint @ u + g, g, tolerance)
                to_w = -torch.outer(u, z) if fault == SIGN else torch.outer(u, z)
                return (to_w, u * (1 - x.tanh() ** 2) / 2, *[None] * guess)
        return Equilibrium
    return make


def equilibrium_truth(w: Tensor, x: Tensor, *_: Tensor) -> Tensor:
    return torch.linalg.solve(torch.eye(len(x), dtype=x.dtype) - w, x.tanh() / 2)


def contracting() -> tuple[Tensor, Tensor]:
    return 0.12 * normal(4, 4), normal(4, seed=1)


def as_root(step: Callable[[Tensor], Tensor], start: Tensor, tolerance: float) -> Tensor:
    return broyden(lambda z: step(z) - z, start, tolerance)


# ---- matrices
def matrix_iteration(forward: Callable[[Tensor, float], Tensor], pull: Callable[[Tensor, Tensor, Tensor, float, str | None], Tensor]
                     ) -> Callable[..., type[Function]]:
    """Y(A) by `forward`; `pull(A, Y, g, tolerance, fault)` gives the gradient."""
    def make(tolerance: float, fault: str | None = None) -> type[Function]:
        class Matrix(Function):
            @staticmethod
            def forward(ctx: Any, a: Tensor) -> Tensor:
                y = forward(a, tolerance)
                ctx.save_for_backward(a, y)
                return y

            @staticmethod
            @once_differentiable
            def backward(ctx: Any, g: Tensor) -> Any:
                return pull(*ctx.saved_tensors, g, tolerance, fault)
        return Matrix
    return make


def newton_schulz_inverse(a: Tensor, tolerance: float) -> Tensor:
    eye = torch.eye(len(a), dtype=a.dtype)
    x = a.T / (a.abs().sum(0).max() * a.abs().sum(1).max())
    for _ in range(200):
        residual = eye - a @ x
        if residual.norm() <= tolerance:
            break
        x = x + x @ residual
    return x


def pull_inverse(a: Tensor, y: Tensor, g: Tensor, tolerance: float, fault: str | None) -> Tensor:
    if fault == UNTRANSPOSED:
        return -y @ g @ y
    return y.T @ g @ y.T * (1 if fault == SIGN else -1)


def newton_schulz_root(m: Tensor, tolerance: float) -> Tensor:
    """(M Mᵀ + 1)^½ by Newton and Schulz."""
    eye = torch.eye(len(m), dtype=m.dtype)
    a = m @ m.T + eye
    size = a.norm()
    y, z = a / size, eye
    for _ in range(200):
        step = (3 * eye - z @ y) / 2
        new = y @ step
        z, moved, y = step @ z, (new - y).norm(), new
        if moved <= tolerance:
            break
    return y * size.sqrt()


def pull_root(m: Tensor, y: Tensor, g: Tensor, tolerance: float, fault: str | None) -> Tensor:
    """Y X + X Y = g by conjugate gradients on the symmetric positive definite operator."""
    eye = torch.eye(len(m), dtype=m.dtype)
    operator = torch.kron(y, eye) if fault == DROPPED else torch.kron(y, eye) + torch.kron(eye, y)
    x = cg(operator, g.reshape(-1), tolerance).reshape(g.shape)
    return (x + x.T) @ m * (-1 if fault == SIGN else 1)


def root_truth(m: Tensor) -> Tensor:
    values, vectors = torch.linalg.eigh(m @ m.T + torch.eye(len(m), dtype=m.dtype))
    return vectors @ torch.diag(values.sqrt()) @ vectors.T


def log_series(a: Tensor, tolerance: float) -> Tensor:
    """log(1 + A) by its power series until the terms are small."""
    term, total = a, a.clone()
    for k in range(2, MOST_TERMS):
        term = -term @ a
        total = total + term / k
        if term.norm() / k <= tolerance:
            break
    return total


MOST_TERMS = 400


def pull_log(a: Tensor, y: Tensor, g: Tensor, tolerance: float, fault: str | None) -> Tensor:
    """The derivative as a block of the logarithm of a block matrix, by the same series; the blocks are transposed for the adjoint."""
    n, at = len(a), a if fault == UNTRANSPOSED else a.T
    block = torch.cat([torch.cat([at, g], 1), torch.cat([torch.zeros_like(a), at], 1)])
    return log_series(block, tolerance)[:n, n:] * (-1 if fault == SIGN else 1)


def log_truth(a: Tensor) -> Tensor:
    values, vectors = torch.linalg.eig(a)
    return (vectors @ torch.diag((1 + values).log()) @ torch.linalg.inv(vectors)).real


def power(m: Tensor, tolerance: float) -> Tensor:
    """The largest eigenvalue and its vector, of M + Mᵀ, by power iteration from a vector of ones."""
    s = m + m.T
    v = torch.ones(len(m), dtype=m.dtype) / math.sqrt(len(m))
    for _ in range(3000):
        new = s @ v
        new = new / new.norm()
        moved = (new - v).norm()
        v = new
        if moved <= tolerance:
            break
    return torch.cat([(v @ s @ v)[None], v])


def pull_power(m: Tensor, y: Tensor, g: Tensor, tolerance: float, fault: str | None) -> Tensor:
    """(λ − S) u = g − v vᵀg across v, by conjugate gradients, the direction of v made regular."""
    value, v = y[0], y[1:]
    s = m + m.T
    right = g[1:] - v * (v @ g[1:])
    u = cg(value * (torch.eye(len(v), dtype=v.dtype) + torch.outer(v, v)) - s, right, tolerance)
    u = u - v * (v @ u)
    outer = torch.outer(v, v) * g[0] + torch.outer(u, v) * (-1 if fault == SIGN else 1)
    return outer if fault == DROPPED else outer + outer.T


def power_truth(m: Tensor) -> Tensor:
    values, vectors = torch.linalg.eigh(m + m.T)
    v = vectors[:, -1] * vectors[:, -1].sum().sign()
    return torch.cat([values[-1:], v])


def gapped() -> tuple[Tensor]:
    q, _ = torch.linalg.qr(normal(4, 4))
    q[:, 0] = q[:, 0] * q[:, 0].sum().sign()
    half = q @ torch.diag(torch.tensor([2.5, 0.8, 0.5, 0.2], dtype=torch.float64)) @ q.T
    skew = 0.3 * normal(4, 4, seed=3)
    return (half + skew - skew.T,)


# ---- optimal transport, proximal steps, expectation and maximisation
def transport(tolerance: float, fault: str | None = None) -> type[Function]:
    """Sinkhorn's dual value max ⟨f, a⟩ + ⟨g, b⟩ − ε Σ exp((f + g − C)/ε): its gradient is the plan (by the envelope theorem)."""
    class Transport(Function):
        @staticmethod
        def forward(ctx: Any, cost: Tensor) -> Tensor:
            n, m = cost.shape
            a, b, eps = torch.full((n,), 1 / n, dtype=cost.dtype), torch.full((m,), 1 / m, dtype=cost.dtype), 0.5
            f, g = torch.zeros_like(a), torch.zeros_like(b)
            for _ in range(3000):
                f = eps * (a.log() - torch.logsumexp((g - cost) / eps, 1))
                new = eps * (b.log() - torch.logsumexp((f[:, None] - cost) / eps, 0))
                moved = (new - g).norm()
                g = new
                if moved <= tolerance:
                    break
            plan = ((f[:, None] + g - cost) / eps).exp()
            ctx.save_for_backward(plan)
            return f @ a + g @ b - eps * plan.sum()

        @staticmethod
        @once_differentiable
        def backward(ctx: Any, g: Tensor) -> Any:
            plan, = ctx.saved_tensors
            wrong = plan - plan.mean() if fault == DROPPED else plan.flip(0) if fault == UNTRANSPOSED else -plan
            return g * (plan if fault is None else wrong)
    return Transport


def transport_truth(cost: Tensor) -> Tensor:
    """The dual's optimum by Newton's method, its last step on the graph: the gradient of an optimum needs no more."""
    n, m = cost.shape
    z = torch.zeros(n + m, dtype=cost.dtype)

    def value(z: Tensor, c: Tensor) -> Tensor:
        return z[:n].sum() / n + z[n:].sum() / m - 0.5 * ((z[:n, None] + z[n:] - c) / 0.5).exp().sum() - 0.5 * z[-1] ** 2

    fixed = cost.detach()
    for _ in range(60):
        gradient = torch.func.grad(value)(z, fixed)
        z = z - torch.linalg.solve(torch.func.hessian(value)(z, fixed), gradient)
    return value(z, cost)


def shrinkage(tolerance: float, fault: str | None = None) -> type[Function]:
    """Proximal gradient steps (ISTA) for ½|A x − b|² + 4|x|² + 0.1|x|₁; the backward solves on the support."""
    class Shrinkage(Function):
        @staticmethod
        def forward(ctx: Any, a: Tensor, b: Tensor) -> Tensor:
            size = 1 / (torch.linalg.matrix_norm(a, 2) ** 2 + 8)

            def step(x: Tensor) -> Tensor:
                moved = x - size * (a.T @ (a @ x - b) + 8 * x)
                return moved.sign() * (moved.abs() - 0.1 * size).clamp_min(0)

            x = settle(step, torch.zeros(a.shape[1], dtype=a.dtype), tolerance)
            ctx.save_for_backward(a, b, x)
            return x

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Any:
            a, b, x = ctx.saved_tensors
            own = (x != 0).to(x.dtype)
            h = own[:, None] * (a.T @ a) * own + 8 * torch.eye(len(x), dtype=x.dtype)
            u = cg(h, g * own, tolerance) * own
            to_b = a @ u
            to_a = torch.outer(b - a @ x, u) - (0 if fault == DROPPED else torch.outer(a @ u, x))
            return to_a, -to_b if fault == SIGN else to_b
    return Shrinkage


def shrinkage_truth(a: Tensor, b: Tensor) -> Tensor:
    """On the support and with the signs of a long run, the solution is linear in b."""
    with torch.no_grad():
        x = shrinkage(1e-15).apply(a.detach(), b.detach())
    own = (x != 0).nonzero()[:, 0]
    part = a[:, own]
    found = torch.linalg.solve(part.T @ part + 8 * torch.eye(len(own), dtype=a.dtype), part.T @ b - 0.1 * x[own].sign())
    return torch.zeros_like(x).index_put((own,), found)


def location(tolerance: float, fault: str | None = None) -> type[Function]:
    """The maximum likelihood location of Student's t (3 degrees) by expectation and maximisation: weights, weighted mean, again."""
    class Location(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            def step(m: Tensor) -> Tensor:
                weights = 4 / (3 + (x - m) ** 2)
                return (weights * x).sum() / weights.sum()

            m = settle(step, x.mean(), tolerance)
            ctx.save_for_backward(x, m)
            return m

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Any:
            x, m = ctx.saved_tensors
            r = x - m
            curvature = 1 / (3 + r**2) if fault == DROPPED else (3 - r**2) / (3 + r**2) ** 2
            return g * curvature / curvature.sum() * (-1 if fault == SIGN else 1)
    return Location


def location_truth(x: Tensor) -> Tensor:
    """One step of Newton's method at the optimum, on the graph."""
    m = location(0.0).apply(x.detach())
    r = x - m
    return m + (r / (3 + r**2)).sum() / ((3 - r**2) / (3 + r**2) ** 2).sum().detach()


# ---- initial value problems
def flow(tolerance: float, fault: str | None = None) -> type[Function]:
    """y(1) of y' = A y, y(0) = y₀, adaptively; backward integrates the adjoint equation, with the state and the gradient of A alongside."""
    class Flow(Function):
        @staticmethod
        def forward(ctx: Any, a: Tensor, y0: Tensor) -> Tensor:
            y = runge_kutta(lambda t, y: a @ y, y0, 0.0, 1.0, tolerance)
            ctx.save_for_backward(a, y)
            return y

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Any:
            a, y = ctx.saved_tensors
            n, adjoint = len(y), a if fault == UNTRANSPOSED else a.T

            def back(t: float, z: Tensor) -> Tensor:
                state, u = z[:n], z[n:2 * n]
                return torch.cat([a @ state, -adjoint @ u, -torch.outer(u, state).reshape(-1)])

            z = runge_kutta(back, torch.cat([y, g, torch.zeros(n * n, dtype=y.dtype)]), 1.0, 0.0, tolerance)
            to_a = z[2 * n:].reshape(n, n)
            return -to_a if fault == SIGN else torch.outer(g, y) if fault == DROPPED else to_a, z[n:2 * n]
    return Flow


# ---- one parameter series
def means(tolerance: float, fault: str | None = None) -> type[Function]:
    """The complete elliptic integral K(m) by the arithmetic-geometric mean; its derivative by E(m) from the same iteration."""
    class Means(Function):
        @staticmethod
        def forward(ctx: Any, m: Tensor) -> Tensor:
            a, b, total, weight = torch.ones_like(m), (1 - m).sqrt(), m / 2, 1.0
            before = math.inf
            while True:
                c = (a - b) / 2
                size = float(c.abs().max())
                if not size < before:      # rounding, or no number
                    break
                a, b = (a + b) / 2, (a * b).sqrt()
                total, weight, before = total + weight * c**2, 2 * weight, size
                if size <= tolerance:
                    break
            k = math.pi / 2 / a
            ctx.save_for_backward(m, k, k * (1 - total))
            return k

        @staticmethod
        @once_differentiable
        def backward(ctx: Any, g: Tensor) -> Any:
            m, k, e = ctx.saved_tensors
            slope = e / (1 - m) / (2 * m) - (0 if fault == DROPPED else k / (2 * m))
            return -g * slope if fault == SIGN else g * slope
    return Means


def means_truth(m: Tensor) -> Tensor:
    """∫ dθ / √(1 − m sin²θ) by the midpoint rule, which is exact to rounding for periodic functions."""
    theta = (torch.arange(64, dtype=m.dtype) + 0.5) * (math.pi / 2) / 64
    return (1 / (1 - m[:, None] * theta.sin() ** 2).sqrt()).sum(1) * (math.pi / 2) / 64


ALL, NOT_SYMMETRIC, TWO = (SIGN, DROPPED, UNTRANSPOSED), (SIGN, DROPPED, UNTRANSPOSED), (SIGN, DROPPED)
ITERATIVE = (
    Iterative("conjugate gradients", symmetric(cg, 1.0), gram, gram_solve(1.0), TWO),
    Iterative("conjugate residuals", symmetric(conjugate_residuals, -0.7), gram, gram_solve(-0.7), TWO),
    Iterative("gmres", general(gmres), system, plain_solve, ALL),
    Iterative("bicgstab", general(bicgstab), system, plain_solve, ALL),
    Iterative("jacobi", general(jacobi), system, plain_solve, ALL),
    Iterative("gauss seidel", general(gauss_seidel), system, plain_solve, ALL),
    Iterative("sor", general(sor), system, plain_solve, ALL),
    Iterative("triangular sweeps", general(sweeps), system, plain_solve, ALL),
    Iterative("richardson from a guess", general(richardson, True), lambda: (*system(), normal(4, seed=2)), plain_solve, ALL),
    Iterative("newton", root(newton, *CUBIC), guessed, cubic_root, TWO),
    Iterative("secant", root(secant, *CUBIC), guessed, cubic_root, TWO),
    Iterative("bisection", root(halved, *CUBIC), guessed, cubic_root, TWO),
    Iterative("chord", root(chord, *CUBIC), guessed, cubic_root, TWO),
    Iterative("logarithm by newton, zeros for the guess", root(newton, *LOGARITHM, zeros=True), lambda: (uniform(0.5, 3, 5), uniform(0, 1, 5)),
              lambda x, *_: x.log(), TWO),
    Iterative("fixed point", equilibrium(settle), contracting, equilibrium_truth, ALL),
    Iterative("fixed point from a guess", equilibrium(settle, True), lambda: (*contracting(), normal(4, seed=2)), equilibrium_truth, ALL),
    Iterative("anderson", equilibrium(anderson), contracting, equilibrium_truth, ALL),
    Iterative("broyden", equilibrium(as_root), contracting, equilibrium_truth, ALL),
    Iterative("inverse by newton and schulz", matrix_iteration(newton_schulz_inverse, pull_inverse), lambda: (dominant(),), torch.linalg.inv,
              (SIGN, UNTRANSPOSED)),
    Iterative("square root by newton and schulz", matrix_iteration(newton_schulz_root, pull_root), lambda: (normal(3, 4),), root_truth, TWO),
    Iterative("logarithm by series", matrix_iteration(log_series, pull_log), lambda: (0.2 * normal(3, 3),), log_truth, (SIGN, UNTRANSPOSED)),
    Iterative("power iteration", matrix_iteration(power, pull_power), gapped, power_truth, TWO),
    Iterative("sinkhorn", transport, lambda: (uniform(0, 2, 3, 4),), transport_truth, ALL),
    Iterative("proximal", shrinkage, lambda: (normal(6, 4), normal(6, seed=1)), shrinkage_truth, TWO),
    Iterative("expectation and maximisation", location, lambda: (normal(6),), location_truth, TWO),
    Iterative("adaptive runge kutta", flow, lambda: (0.8 * normal(3, 3), normal(3, seed=1)), lambda a, y: torch.linalg.matrix_exp(a) @ y, ALL,
              (1e-6, 1e-8)),
    Iterative("arithmetic geometric mean", means, lambda: (uniform(0.1, 0.8, 4),), means_truth, TWO),
)
