"""Checks whose elements are of all kinds: right and wrong by little and by much, kinks, noise, rounding, cancellation, every dtype and mode."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from live import Oracles, fixed, randn, subject
from torch import Tensor
from torch.autograd import Function

from gradverify.model.case import Budget
from gradverify.subject.subject import Subject

HERE = "element.kinds"
DOUBLE = torch.float64
Formula = Callable[..., Any]


@dataclass(frozen=True)
class Kind:
    """What is known by construction. `wrong`: of the first input, every derivative that is not zero ("all"), or "none" of any input.
    `open`: it may be undecided."""

    make: Callable[[], Subject]
    wrong: Literal["all", "some", "none"] = "none"
    open: bool = False


def given(*values: Any, dtype: torch.dtype = DOUBLE) -> Tensor:
    return torch.tensor(values, dtype=dtype)


def of_one(forward: Formula, backward: Formula) -> type[Function]:
    """`backward(x, g)` gives the gradient."""
    class OfOne(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Any:
            ctx.save_for_backward(x)
            return forward(x)

        @staticmethod
        def backward(ctx: Any, *g: Tensor) -> Any:
            return backward(ctx.saved_tensors[0], *g)
    return OfOne


def of_two(forward: Formula, backward: Formula) -> type[Function]:
    """`backward(x, w, g)` gives both gradients."""
    class OfTwo(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, w: Tensor) -> Any:
            ctx.save_for_backward(x, w)
            return forward(x, w)

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Any:
            return backward(*ctx.saved_tensors, g)
    return OfTwo


def given_slope(forward: Formula, slope: Formula, *values: Any, **settings: Any) -> Subject:
    """Element by element."""
    return subject(of_one(forward, lambda x, g: g * slope(x)), given(*values), **settings)


# ---- smooth
def tanh_product(factor: float = 1.0, entry: tuple[int, int] | None = None) -> type[Function]:
    """tanh(x @ w); the gradient of x by `factor`, all of it or one entry."""
    def backward(x: Tensor, w: Tensor, g: Tensor) -> Any:
        inner = g * (1 - torch.tanh(x @ w) ** 2)
        gradient = inner @ w.T
        if entry is None:
            return gradient * factor, x.T @ inner
        weights = torch.ones_like(gradient)
        weights[entry] = factor
        return gradient * weights, x.T @ inner
    return of_two(lambda x, w: torch.tanh(x @ w), backward)


def product(factor: float = 1.0, entry: tuple[int, int] | None = None, **settings: Any) -> Subject:
    return subject(tanh_product(factor, entry), randn(2, 3), randn(3, 2, seed=1), **settings)


# ---- kinks
def hinged(subgradient: float, *values: float) -> Subject:
    return given_slope(torch.relu, lambda x: torch.where(x == 0, torch.full_like(x, subgradient), (x > 0).to(x.dtype)), *values)


# ---- noise
def hashed(x: Tensor) -> Tensor:
    """Noise in [−0.5, 0.5) that depends on every bit of x."""
    bits = x.detach().contiguous().view(torch.int64)
    mixed = (bits * 0x9E3779B97F4A7C15 % 2**63) ^ (bits >> 29)
    return (mixed % 1_000_003).to(DOUBLE) / 1_000_003 - 0.5


def noisy(size: float, factor: float = 1.0) -> Subject:
    return given_slope(lambda x: torch.sin(x) + size * hashed(x), lambda x: factor * torch.cos(x), 1.0, 0.3, -2.0)


def rounded(factor: float = 1.0) -> Subject:
    """Numbers that larger ones round, which torch differentiates through."""
    def forward(x: Tensor) -> Tensor:
        y = x.tanh()
        large = 2.0 ** 28
        return sum(((y * a + large) - large) / a for a in (1 + 0.37 * k / 16 for k in range(16))) / 16

    return given_slope(forward, lambda x: factor * (1 - torch.tanh(x) ** 2), 0.3, -1.0, 0.7)


# ---- narrow
def narrow(factor: float = 1.0, refuses: bool = False, dtype: torch.dtype = torch.float32) -> Subject:
    def forward(x: Tensor) -> Tensor:
        if refuses and x.dtype == DOUBLE:
            raise TypeError("float32 only")
        return torch.tanh(x) * x

    def backward(x: Tensor, g: Tensor) -> Tensor:
        t = torch.tanh(x)
        return factor * g * (t + x * (1 - t * t))

    return subject(of_one(forward, backward), randn(4).to(dtype), dtype=str(dtype)[6:])


def rounds_inside(factor: float = 1.0) -> Subject:
    """float64 outside, float32 inside."""
    return given_slope(lambda x: torch.exp(x.float()).double(), lambda x: factor * torch.exp(x), 0.3, -1.1, 2.0)


# ---- complex
def squared(conjugate: bool) -> Subject:
    return subject(of_one(lambda x: x * x, lambda x, g: g * 2 * (x if conjugate else x.conj())), given(1 + 2j, -0.5 + 0.1j, dtype=torch.complex128))


# ---- sizes
def beside_large(factor: float = 1.0) -> Subject:
    """Sizes of the input from 1e-12 to 1e6."""
    return given_slope(lambda x: torch.sin(x), lambda x: torch.cos(x) * torch.where(x.abs() < 1e-3, factor, 1.0), 1e-12, -3e-7, 1.0, 2e3, 1e6)


def sum_of_sizes(factor: float = 1.0) -> Subject:
    weights = given(1e-9, 1e-3, 1.0, 1e6)
    factors = given(factor, 1.0, 1.0, 1.0)
    return subject(of_one(lambda x: (x * x * weights).sum(), lambda x, g: g * 2 * x * weights * factors), given(1.0, -0.7, 2.0, 0.4))


# ---- inner rounding
def sleeping(offset: float, size: float, factor: float = 1.0, awake: float = 1.0, **argument: Any) -> Subject:
    """x[:2] as they are beside x[2:] that an inner rounding takes."""
    def forward(x: Tensor) -> Tensor:
        return torch.cat([x[:2] + ((x[2:] + offset) - offset), x[:2]])

    def backward(x: Tensor, g: Tensor) -> Tensor:
        return torch.cat([awake * (g[:2] + g[2:]), factor * g[:2]])

    x = size * given(0.7, -1.2, 1.1, 0.6)
    made = subject(of_one(forward, backward), x)
    return with_arguments(made, **argument) if argument else made


def with_arguments(made: Subject, **changes: Any) -> Subject:
    """The same with its first argument described otherwise."""
    return made.twin([replace(made.arguments[0], **changes), *made.arguments[1:]])


def cancelling(forward: Formula, slope: Formula, *values: float, factor: float = 1.0) -> Subject:
    return given_slope(forward, lambda x: factor * slope(x), *values)


def erf_slope(x: Tensor) -> Tensor:
    return 2 / torch.pi**0.5 * torch.exp(-x * x)


def root(slope: float) -> Subject:
    """The first number lies on the border of its domain."""
    return with_arguments(given_slope(torch.sqrt, lambda x: slope / x.sqrt(), 1e-3, 0.5, 4.0), domain=(1e-3, float("inf")))


# ---- matrices
def symmetric_matrix() -> Tensor:
    a = randn(3, 3, seed=3)
    return a @ a.T + 3 * torch.eye(3, dtype=DOUBLE)


def determinant(symmetric: bool, factor: float = 1.0, half: bool = False) -> Subject:
    """log det of a symmetric matrix; `half`: read from its lower half only."""
    def forward(x: Tensor) -> Tensor:
        own = torch.tril(x) + torch.tril(x, -1).mT if half else x
        return torch.logdet(own)

    def backward(x: Tensor, g: Tensor) -> Tensor:
        return factor * g * torch.linalg.inv(x).mT
    made = subject(of_one(forward, backward), symmetric_matrix())
    return with_arguments(made, symmetric=True) if symmetric else made


# ---- surrogates
def soft(x: Tensor) -> Tensor:
    return torch.tanh(2 * x)


def stepped(factor: float = 1.0, dtype: torch.dtype = DOUBLE) -> Subject:
    """sign(x) whose backward is the gradient of tanh(2x)."""
    function = of_one(torch.sign, lambda x, g: g * factor * 2 * (1 - torch.tanh(2 * x) ** 2))
    return subject(function, given(0.3, -1.0, 0.0, 0.01, dtype=dtype), oracles=Oracles(surrogate=f"{HERE}:soft"), dtype=str(dtype)[6:])


def reference(x: Tensor) -> Tensor:
    return x.exp()


def with_reference(factor: float = 1.0) -> Subject:
    function = of_one(torch.exp, lambda x, g: g * factor * x.exp())
    return subject(function, given(0.3, -1.0), oracles=Oracles(reference=f"{HERE}:reference"))


def with_expected(factor: float = 1.0) -> Subject:
    function = of_one(torch.square, lambda x, g: g * factor * 2 * x)
    return subject(function, given(1.5, -2.0), oracles=Oracles(expected={"x": [3.0, -4.0]}))


# ---- shapes of a call
def laid_out(layout: str, factor: float = 1.0) -> Subject:
    return with_arguments(subject(of_one(torch.sin, lambda x, g: g * factor * x.cos()), randn(2, 3)), layout=layout)


def two_outputs(factor: float = 1.0) -> Subject:
    def backward(x: Tensor, g: Tensor, h: Tensor) -> Tensor:
        return g * x.cos() + factor * h * 2 * x
    return subject(of_one(lambda x: (x.sin(), (x * x).sum()), lambda x, g, h: backward(x, g, h)), randn(3))


class Scaled(torch.nn.Module):
    def __init__(self, factor: float = 1.0) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(given(0.5, -1.5))
        self.function = of_two(lambda x, w: x * w * w, lambda x, w, g: (g * w * w, factor * g * 2 * x * w))

    def forward(self, x: Tensor) -> Tensor:
        return self.function.apply(x, self.weight)


class Counting(torch.nn.Module):
    """A buffer that each forward moves."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(2, dtype=DOUBLE)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x).tanh()


def iterating(share: float, steps: int) -> Subject:
    """x² and a share of the start, whose gradient is None; it reads numbers on the way."""
    def forward(x: Tensor, w: Tensor) -> Tensor:
        for _ in range(steps):
            assert float(x.norm()) > 0
        return x * x + share * w
    return subject(of_two(forward, lambda x, w, g: (2 * x * g, None)), randn(2), randn(2, seed=1))


def many(mode: str, wrong: int | None = None, factor: float = 1.01, size: int = 14) -> Subject:
    """Element by element, so that columns can be moved in groups."""
    def slope(x: Tensor) -> Tensor:
        weights = torch.ones_like(x)
        if wrong is not None:
            weights[wrong] = factor
        return x.cos() * weights
    return subject(of_one(torch.sin, lambda x, g: g * slope(x)), randn(size), mode=mode)


def dense(mode: str, entry: tuple[int, int] | None = None, factor: float = 1.1) -> Subject:
    return product(factor if entry else 1.0, entry, mode=mode)


KINDS: dict[str, Kind] = {
    "right": Kind(product),
    **{f"times {factor:g}": Kind(lambda factor=factor: product(factor), "all") for factor in (1 + 1e-5, 1.001, 2.0, -1.0, 0.0)},
    "one entry": Kind(lambda: product(1.01, (1, 2)), "some"),
    "kink inside": Kind(lambda: hinged(0.4, 0.0, 1.0, -1.0, 1e-9, -1e-9)),
    "kink outside": Kind(lambda: hinged(1.4, 0.0, 1.0, 1e-4), "some"),
    "tie": Kind(lambda: subject(of_one(torch.max, lambda x, g: g * given(0.9, 0.9, 0.0)), given(2.0, 2.0, 1.0)), "some", open=True),
    "kinks that add up": Kind(lambda: subject(of_one(lambda x: x.abs().sum(), lambda x, g: g * given(1.0, -1.0, 1.0)), given(0.0, 0.0, 3.0)), "some"),
    "little noise": Kind(lambda: noisy(1e-12)),
    "noise": Kind(lambda: noisy(1e-8), open=True),
    "noise, wrong": Kind(lambda: noisy(1e-8, 2.0), "all"),
    "noise, off by 1e-5": Kind(lambda: noisy(1e-9, 1 + 1e-5), "all", open=True),
    "rounded, but torch's derivative knows": Kind(rounded, open=True),
    "rounded, off by 1e-6": Kind(lambda: rounded(1 + 1e-6), "all", open=True),
    "float32": Kind(narrow),
    "float32, wrong": Kind(lambda: narrow(1.01), "all"),
    "float32, off by 1e-5": Kind(lambda: narrow(1 + 1e-5), "some", open=True),
    "only float32": Kind(lambda: narrow(refuses=True)),
    "only float32, wrong": Kind(lambda: narrow(1.1, refuses=True), "all"),
    "bfloat16": Kind(lambda: narrow(dtype=torch.bfloat16), open=True),
    "float16, wrong": Kind(lambda: narrow(2.0, dtype=torch.float16), "all"),
    "float32 inside": Kind(rounds_inside),
    "float32 inside, wrong": Kind(lambda: rounds_inside(1.1), "all"),
    "complex": Kind(lambda: squared(False)),
    "complex, not conjugate": Kind(lambda: squared(True), "some"),
    "tiny beside large": Kind(beside_large),
    "tiny beside large, wrong": Kind(lambda: beside_large(1.5), "some"),
    "sum of sizes": Kind(sum_of_sizes),
    "sum of sizes, smallest wrong": Kind(lambda: sum_of_sizes(3.0), "some"),
    "asleep": Kind(lambda: sleeping(1e4, 1e-13), open=True),
    "asleep, zero": Kind(lambda: sleeping(1e4, 1e-13, 0.0), "some", open=True),
    "asleep, wrong beside": Kind(lambda: sleeping(1e4, 1e-13, awake=1.5), "some", open=True),
    "asleep, larger": Kind(lambda: sleeping(1e8, 1e-6), open=True),
    "asleep with a domain": Kind(lambda: sleeping(1e4, 1e-13, domain=(-1.0, 1.0)), open=True),
    "asleep with a domain, zero": Kind(lambda: sleeping(1e4, 1e-13, 0.0, domain=(-1.0, 1.0)), "some", open=True),
    "1 + erf": Kind(lambda: cancelling(lambda x: 1 + torch.erf(x), erf_slope, -5.6, -4.0, -1.0), open=True),
    "1 + erf, wrong": Kind(lambda: cancelling(lambda x: 1 + torch.erf(x), erf_slope, -5.6, -4.0, -1.0, factor=1.5), "some", open=True),
    "1 - cos": Kind(lambda: cancelling(lambda x: 1 - torch.cos(x), torch.sin, 1e-9, 1e-5, 1.0), open=True),
    "1 - cos, wrong": Kind(lambda: cancelling(lambda x: 1 - torch.cos(x), torch.sin, 1e-9, 1e-5, 1.0, factor=2.0), "some", open=True),
    "domain": Kind(lambda: root(0.5), open=True),
    "domain, wrong": Kind(lambda: root(0.6), "all", open=True),
    "symmetric": Kind(lambda: determinant(True)),
    "symmetric, wrong": Kind(lambda: determinant(True, 1.2), "all"),
    "symmetric, not said": Kind(lambda: determinant(False, half=True), open=True),
    "surrogate": Kind(stepped),
    "surrogate, wrong": Kind(lambda: stepped(1.01), "all"),
    "surrogate, float32": Kind(lambda: stepped(dtype=torch.float32)),
    "surrogate, float32, wrong": Kind(lambda: stepped(1.1, dtype=torch.float32), "all"),
    "reference": Kind(with_reference),
    "reference, wrong": Kind(lambda: with_reference(1.1), "all"),
    "expected": Kind(with_expected),
    "expected, wrong": Kind(lambda: with_expected(0.5), "all"),
    "transposed": Kind(lambda: laid_out("transposed")),
    "expanded, wrong": Kind(lambda: laid_out("expanded", 1.1), "all"),
    "two outputs": Kind(two_outputs),
    "two outputs, second wrong": Kind(lambda: two_outputs(1.5), "some"),
    "parameter": Kind(lambda: subject(Scaled, randn(2), init={})),
    "parameter, wrong": Kind(lambda: subject(Scaled, randn(2), init={"factor": 1.5}), "some"),
    "buffers": Kind(lambda: subject(Counting, randn(3, 2), init={})),
    "an iteration's start": Kind(lambda: iterating(7e-12, 0), "some", open=True),
    "what an iteration leaves": Kind(lambda: iterating(1e-8, 5), "some", open=True),
    "what no iteration leaves": Kind(lambda: iterating(1e-4, 5), "some"),
    "staircase": Kind(lambda: given_slope(lambda x: torch.round(x * 1000) / 1000, torch.ones_like, 0.3, -1.7), open=True),
    "jump": Kind(lambda: given_slope(torch.floor, torch.zeros_like, 1.0, 0.3), open=True),
    "not finite": Kind(lambda: given_slope(torch.sqrt, lambda x: 0.5 / x.sqrt(), 0.0, 1.0), open=True),
    "masked": Kind(lambda: subject(of_one(lambda x: torch.stack([x[0] - torch.inf, x[1] * x[1]]),
                                          lambda x, g: torch.stack([g[0] * 0, g[1] * 2 * x[1]])), given(1.0, 2.0)), open=True),
    "linear": Kind(lambda: subject(of_one(lambda x: 3 * x, lambda x, g: 3 * g), randn(12))),
    "linear, one wrong": Kind(lambda: subject(of_one(lambda x: 3 * x, lambda x, g: g * given(*[3.0] * 11, 3.1)), randn(12)), "some"),
    "groups": Kind(lambda: many("auto")),
    "groups, one wrong": Kind(lambda: many("auto", 5), "some"),
    "groups, one off by 1e-5": Kind(lambda: many("auto", 5, 1 + 1e-5), "some"),
    **{f"{mode}, groups": Kind(lambda mode=mode: many(mode)) for mode in ("rows", "blocks")},
    **{f"{mode}, groups, one wrong": Kind(lambda mode=mode: many(mode, 5), "some") for mode in ("rows", "blocks")},
    **{f"{mode}, one wrong": Kind(lambda mode=mode: dense(mode, (1, 2)), "some") for mode in ("rows", "blocks")},
    "fixed step": Kind(lambda: product(eps=1e-6)),
    "fixed step, wrong": Kind(lambda: product(1.1, eps=1e-6), "all"),
    "fixed step, too small": Kind(lambda: product(eps=1e-20), open=True),
    "no calls left": Kind(lambda: product(1.01, budget=Budget(calls=60)), "some", open=True),
    "beside an integer": Kind(lambda: subject(lambda x, k: x[k] ** 3, randn(3), fixed(torch.tensor([0, 2])))),
}
