"""Checks whose elements are of all kinds: right and wrong by little and by much, kinks, noise,
rounding, cancellation, every dtype and mode."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import torch
from live import Oracles, randn, subject
from torch.autograd import Function

from gradverify.model.case import Budget
from gradverify.subject.subject import Subject

HERE = "element.kinds"
DOUBLE = torch.float64


@dataclass(frozen=True)
class Kind:
    """What is known by construction. `wrong`: of the first input, every derivative that is not zero
    ("all"), or "none" of any input.
    `open`: it may be undecided."""

    make: Callable[[], Subject]
    wrong: Literal["all", "some", "none"] = "none"
    open: bool = False


def given(*values, dtype=DOUBLE):
    return torch.tensor(values, dtype=dtype)


def of_one(forward, backward):
    """`backward(x, g)` gives the gradient."""

    class OfOne(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return forward(x)

        @staticmethod
        def backward(ctx, *g):
            return backward(ctx.saved_tensors[0], *g)

    return OfOne


def of_two(forward, backward):
    """`backward(x, w, g)` gives both gradients."""

    class OfTwo(Function):
        @staticmethod
        def forward(ctx, x, w):
            ctx.save_for_backward(x, w)
            return forward(x, w)

        @staticmethod
        def backward(ctx, g):
            return backward(*ctx.saved_tensors, g)

    return OfTwo


def given_slope(forward, slope, *values, **settings):
    """Element by element."""
    return subject(of_one(forward, lambda x, g: g * slope(x)), given(*values), **settings)


# ---- smooth
def tanh_product(factor=1.0, entry=None):
    """tanh(x @ w); the gradient of x by `factor`, all of it or one entry."""

    def backward(x, w, g):
        inner = g * (1 - torch.tanh(x @ w) ** 2)
        gradient = inner @ w.T
        if entry is None:
            return gradient * factor, x.T @ inner
        weights = torch.ones_like(gradient)
        weights[entry] = factor
        return gradient * weights, x.T @ inner

    return of_two(lambda x, w: torch.tanh(x @ w), backward)


def product(factor=1.0, entry=None, **settings):
    return subject(tanh_product(factor, entry), randn(2, 3), randn(3, 2, seed=1), **settings)


# ---- kinks
def hinged(subgradient, *values):
    return given_slope(
        torch.relu,
        lambda x: torch.where(x == 0, torch.full_like(x, subgradient), (x > 0).to(x.dtype)),
        *values,
    )


# ---- noise
def hashed(x):
    """Noise in [−0.5, 0.5) that depends on every bit of x."""
    bits = x.detach().contiguous().view(torch.int64)
    mixed = (bits * 0x9E3779B97F4A7C15 % 2**63) ^ (bits >> 29)
    return (mixed % 1_000_003).to(DOUBLE) / 1_000_003 - 0.5


def noisy(size, factor=1.0):
    return given_slope(
        lambda x: torch.sin(x) + size * hashed(x), lambda x: factor * torch.cos(x), 1.0, 0.3, -2.0
    )


def rounded(factor=1.0):
    """Numbers that larger ones round, which torch differentiates through."""

    def forward(x):
        y = x.tanh()
        large = 2.0**28
        return (
            sum(((y * a + large) - large) / a for a in (1 + 0.37 * k / 16 for k in range(16))) / 16
        )

    return given_slope(forward, lambda x: factor * (1 - torch.tanh(x) ** 2), 0.3, -1.0, 0.7)


# ---- narrow
def narrow(factor=1.0, refuses=False, dtype=torch.float32):
    def forward(x):
        if refuses and x.dtype == DOUBLE:
            raise TypeError("float32 only")
        return torch.tanh(x) * x

    def backward(x, g):
        t = torch.tanh(x)
        return factor * g * (t + x * (1 - t * t))

    return subject(of_one(forward, backward), randn(4).to(dtype), dtype=str(dtype)[6:])


def rounds_inside(factor=1.0):
    """float64 outside, float32 inside."""
    return given_slope(
        lambda x: torch.exp(x.float()).double(), lambda x: factor * torch.exp(x), 0.3, -1.1, 2.0
    )


# ---- complex
def squared(conjugate):
    return subject(
        of_one(lambda x: x * x, lambda x, g: g * 2 * (x if conjugate else x.conj())),
        given(1 + 2j, -0.5 + 0.1j, dtype=torch.complex128),
    )


# ---- sizes
def beside_large(factor=1.0):
    """Sizes of the input from 1e-12 to 1e6."""
    return given_slope(
        lambda x: torch.sin(x),
        lambda x: torch.cos(x) * torch.where(x.abs() < 1e-3, factor, 1.0),
        1e-12,
        -3e-7,
        1.0,
        2e3,
        1e6,
    )


# ---- inner rounding
def sleeping(offset, size, factor=1.0, awake=1.0, **argument):
    """x[:2] as they are beside x[2:] that an inner rounding takes."""

    def forward(x):
        return torch.cat([x[:2] + ((x[2:] + offset) - offset), x[:2]])

    def backward(x, g):
        return torch.cat([awake * (g[:2] + g[2:]), factor * g[:2]])

    x = size * given(0.7, -1.2, 1.1, 0.6)
    made = subject(of_one(forward, backward), x)
    return with_arguments(made, **argument) if argument else made


def with_arguments(made, **changes):
    """The same with its first argument described otherwise."""
    return made.twin([replace(made.arguments[0], **changes), *made.arguments[1:]])


def cancelling(forward, slope, *values, factor=1.0):
    return given_slope(forward, lambda x: factor * slope(x), *values)


def root(slope):
    """The first number lies on the border of its domain."""
    return with_arguments(
        given_slope(torch.sqrt, lambda x: slope / x.sqrt(), 1e-3, 0.5, 4.0),
        domain=(1e-3, float("inf")),
    )


# ---- matrices
def symmetric_matrix():
    a = randn(3, 3, seed=3)
    return a @ a.T + 3 * torch.eye(3, dtype=DOUBLE)


def determinant(symmetric, factor=1.0, half=False):
    """log det of a symmetric matrix; `half`: read from its lower half only."""

    def forward(x):
        own = torch.tril(x) + torch.tril(x, -1).mT if half else x
        return torch.logdet(own)

    def backward(x, g):
        return factor * g * torch.linalg.inv(x).mT

    made = subject(of_one(forward, backward), symmetric_matrix())
    return with_arguments(made, symmetric=True) if symmetric else made


# ---- surrogates
def soft(x):
    return torch.tanh(2 * x)


def stepped(factor=1.0, dtype=DOUBLE):
    """sign(x) whose backward is the gradient of tanh(2x)."""
    function = of_one(torch.sign, lambda x, g: g * factor * 2 * (1 - torch.tanh(2 * x) ** 2))
    return subject(
        function,
        given(0.3, -1.0, 0.0, 0.01, dtype=dtype),
        oracles=Oracles(surrogate=f"{HERE}:soft"),
        dtype=str(dtype)[6:],
    )


# ---- shapes of a call
def two_outputs(factor=1.0):
    def backward(x, g, h):
        return g * x.cos() + factor * h * 2 * x

    return subject(
        of_one(lambda x: (x.sin(), (x * x).sum()), lambda x, g, h: backward(x, g, h)), randn(3)
    )


class Scaled(torch.nn.Module):
    def __init__(self, factor=1.0):
        super().__init__()
        self.weight = torch.nn.Parameter(given(0.5, -1.5))
        self.function = of_two(
            lambda x, w: x * w * w, lambda x, w, g: (g * w * w, factor * g * 2 * x * w)
        )

    def forward(self, x):
        return self.function.apply(x, self.weight)


class Counting(torch.nn.Module):
    """A buffer that each forward moves."""

    def __init__(self):
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(2, dtype=DOUBLE)

    def forward(self, x):
        return self.norm(x).tanh()


def iterating(share, steps):
    """x² and a share of the start, whose gradient is None; it reads numbers on the way."""

    def forward(x, w):
        for _ in range(steps):
            assert float(x.norm()) > 0
        return x * x + share * w

    return subject(of_two(forward, lambda x, w, g: (2 * x * g, None)), randn(2), randn(2, seed=1))


def many(mode, wrong=None, factor=1.01, size=14):
    """Element by element, so that columns can be moved in groups."""

    def slope(x):
        weights = torch.ones_like(x)
        if wrong is not None:
            weights[wrong] = factor
        return x.cos() * weights

    return subject(of_one(torch.sin, lambda x, g: g * slope(x)), randn(size), mode=mode)


def dense(mode, entry=None, factor=1.1):
    return product(factor if entry else 1.0, entry, mode=mode)


KINDS = {
    "right": Kind(product),
    **{
        f"times {factor:g}": Kind(lambda factor=factor: product(factor), "all")
        for factor in (1 + 1e-5, 0.0)
    },
    "one entry": Kind(lambda: product(1.01, (1, 2)), "some"),
    "kink inside": Kind(lambda: hinged(0.4, 0.0, 1.0, -1.0, 1e-9, -1e-9)),
    "kinks that add up": Kind(
        lambda: subject(
            of_one(lambda x: x.abs().sum(), lambda x, g: g * given(1.0, -1.0, 1.0)),
            given(0.0, 0.0, 3.0),
        ),
        "some",
    ),
    "noise": Kind(lambda: noisy(3e-6), open=True),
    "noise, off by 1e-5": Kind(lambda: noisy(1e-9, 1 + 1e-5), "all", open=True),
    "rounded": Kind(rounded, open=True),
    "float32, off by 1e-5": Kind(lambda: narrow(1 + 1e-5), "some", open=True),
    "only float32, wrong": Kind(lambda: narrow(1.1, refuses=True), "all"),
    "bfloat16": Kind(lambda: narrow(dtype=torch.bfloat16), open=True),
    "float32 inside, wrong": Kind(lambda: rounds_inside(1.1), "all"),
    "complex, not conjugate": Kind(lambda: squared(True), "some"),
    "tiny beside large, wrong": Kind(lambda: beside_large(1.5), "some"),
    "asleep": Kind(lambda: sleeping(1e4, 1e-13), open=True),
    "asleep, zero": Kind(lambda: sleeping(1e4, 1e-13, 0.0), "some", open=True),
    "asleep with a domain, zero": Kind(
        lambda: sleeping(1e4, 1e-13, 0.0, domain=(-1.0, 1.0)), "some", open=True
    ),
    "1 - cos, wrong": Kind(
        lambda: cancelling(lambda x: 1 - torch.cos(x), torch.sin, 1e-9, 1e-5, 1.0, factor=2.0),
        "some",
        open=True,
    ),
    "domain": Kind(lambda: root(0.5), open=True),
    "symmetric, wrong": Kind(lambda: determinant(True, 1.2), "all"),
    "symmetric, not said": Kind(lambda: determinant(False, half=True), open=True),
    "surrogate, float32, wrong": Kind(lambda: stepped(1.1, dtype=torch.float32), "all"),
    "two outputs, second wrong": Kind(lambda: two_outputs(1.5), "some"),
    "parameter, wrong": Kind(lambda: subject(Scaled, randn(2), init={"factor": 1.5}), "some"),
    "buffers": Kind(lambda: subject(Counting, randn(3, 2), init={})),
    "an iteration's start": Kind(lambda: iterating(7e-12, 0), "some", open=True),
    "what an iteration leaves": Kind(lambda: iterating(1e-8, 5), "some", open=True),
    "staircase": Kind(
        lambda: given_slope(lambda x: torch.round(x * 1000) / 1000, torch.ones_like, 0.3, -1.7),
        open=True,
    ),
    "jump": Kind(lambda: given_slope(torch.floor, torch.zeros_like, 1.0, 0.3), open=True),
    "not finite": Kind(
        lambda: given_slope(torch.sqrt, lambda x: 0.5 / x.sqrt(), 0.0, 1.0), open=True
    ),
    "masked": Kind(
        lambda: subject(
            of_one(
                lambda x: torch.stack([x[0] - torch.inf, x[1] * x[1]]),
                lambda x, g: torch.stack([g[0] * 0, g[1] * 2 * x[1]]),
            ),
            given(1.0, 2.0),
        ),
        open=True,
    ),
    "groups, one wrong": Kind(lambda: many("auto", 5), "some"),
    **{
        f"{mode}, groups, one wrong": Kind(lambda mode=mode: many(mode, 5), "some")
        for mode in ("rows", "blocks")
    },
    **{
        f"{mode}, one wrong": Kind(lambda mode=mode: dense(mode, (1, 2)), "some")
        for mode in ("rows", "blocks")
    },
    "fixed step, wrong": Kind(lambda: product(1.1, eps=1e-6), "all"),
    "no calls left": Kind(lambda: product(1.01, budget=Budget(calls=60)), "some", open=True),
}
