"""Comparison of 16-bit numbers with float64, relative to the error that 16 bits cause anyway: the
native error, row by row.

The native error of a row (the last dimension) is the root mean square of two errors: that of the
verified computation when its operations run in 16 bits, at the point and at several points an ulp
away, and the change of its exact value when its inputs move by half an ulp. The accepted error of a
kernel is defined per element, per row, over the whole tensor, and for the gain ⟨kernel, exact⟩ /
⟨exact, exact⟩; it is at least the error of the computation itself in any of its runs, to allow for
errors that depend on few numbers and vary more.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import Literal

import torch
from torch import Tensor

# Accepted multiples of the native error: of an element, a row, the tensor, and its gain
ELEMENT, ROW, WHOLE, GAIN = 8.0, 2.0, 1.5, 8.0
# Multiple of the largest error of the verified computation in an element: for rows whose elements
# are of several kinds
OWN_RUNS = 3.0
ELEMENT_ULPS, ROW_ULPS, WHOLE_ULPS = 3.0, 0.2, 0.15  # in addition
WIDE_ROW = 8  # elements of a row from which on its root mean square is reliable
MANY = 64  # elements of a tensor from which on its gain and root mean square are reliable
ONE_ROUNDING = 0.29  # of an ulp: the root mean square of one rounding
# Of a tensor's root mean square: a smaller row is zero, and a kernel's values there are dust from
# other rows
NOTHING = 2.0**-30
DUST = 8.0  # unit roundoffs of the tensor's root mean square

Miss = Literal["", "overflow", "element", "row", "whole", "gain"]


@dataclass(frozen=True, slots=True)
class Legs:
    """The data of one tensor: the kernel's values [draw, …], one draw per cotangent; the exact
    values for the same draws; the errors of the verified computation in 16 bits [run, …]; the
    changes of the exact value with half an ulp [run, …]; the exact values of these runs [run,
    …]."""

    kernel: Tensor
    exact: Tensor
    rounded: Tensor
    moved: Tensor
    exact_runs: Tensor
    spread: Tensor | None = None
    """By how much the kernel's own results differ from call to call [call, …], where they do."""


@dataclass(frozen=True, slots=True)
class TensorResult:
    """The result for one tensor. `miss`: what is wrong, empty where all is right; `wrong`: number
    of elements that individually exceed their tolerance.

    draw, index: the worst element; row: the worst row; ratio: that row's error over its native one;
    beyond: elements left out because the dtype cannot hold their exact value. sees: the smallest
    error of an element that would have been detected everywhere; share: the error, relative to a
    row's size, that would have been detected in half of the rows.
    """

    elements: int
    miss: Miss = ""
    wrong: int = 0
    draw: int = 0
    index: int = 0
    row: int = 0
    kernel: float = 0.0
    exact: float = 0.0
    tolerance: float = 0.0
    ratio: float = 0.0
    gain: float = 1.0
    beyond: int = 0
    sees: float = 0.0
    share: float = 0.0
    max_error: float = 0.0


def ulp(values: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the spacing of numbers of `dtype` at each value."""
    held = torch.finfo(dtype)
    _, exponent = torch.frexp(values.abs().double().clamp_min(held.smallest_normal))
    return torch.ldexp(torch.full_like(values, held.eps, dtype=torch.float64), exponent - 1)


def nudged(x: Tensor, dtype: torch.dtype, source: torch.Generator) -> Tensor:
    """Return numbers of `dtype`, in float64, each moved to one of its neighbours. Zeros stay."""
    signs = (
        torch.randint(0, 2, x.shape, generator=source).to(device=x.device, dtype=torch.float64) * 2
        - 1
    )
    wanted = (x + torch.where(x == 0, 0.0, signs * ulp(x, dtype))).to(dtype=dtype).double()
    return torch.where(wanted.isfinite(), wanted, x)


def judge(legs: Legs, dtype: torch.dtype) -> TensorResult:
    """Judge the kernel against exact values. By row [R]: the native error, the largest error of any
    run, and the accepted dust."""
    kernel = _in_rows(legs.kernel)
    exact = _in_rows(legs.exact)
    runs = _in_rows(legs.exact_runs)
    held, finite = torch.finfo(dtype), exact.isfinite()
    fits = finite & (exact.abs() <= held.max)
    if not exact.numel():
        return TensorResult(0)
    rounded, moved = (
        torch.where(each.isfinite(), each, 0.0)
        for each in (_in_rows(legs.rounded), _in_rows(legs.moved))
    )
    size = _mean_square(torch.cat([exact, runs])).sqrt()
    native = (_mean_square(rounded) + _mean_square(moved)).sqrt()
    if legs.spread is not None:  # at most doubles its square: a race is no rounding
        native = (
            native.square() + torch.minimum(native.square(), _mean_square(_in_rows(legs.spread)))
        ).sqrt()
    alive = size > NOTHING * size.max()
    native = torch.maximum(native, ONE_ROUNDING * ulp(size, dtype) * alive)
    if bool(alive.any()):
        native = torch.maximum(native, (native[alive] / size[alive]).median() * size)
    dust = torch.where(alive, 0.0, DUST * held.eps / 2 * _mean_square(exact).mean().sqrt())
    by_run = _rms(rounded)
    largest = torch.maximum(native, by_run.amax(0))
    exact = torch.where(fits, exact, 0.0)
    ulps, lost = ulp(exact, dtype), fits & ~kernel.isfinite()
    error = torch.where(fits & ~lost, kernel - exact, 0.0)
    limit = (
        torch.maximum(ELEMENT * native[:, None], OWN_RUNS * rounded.abs().amax(0))[None]
        + ELEMENT_ULPS * ulps
        + dust[None, :, None]
    )
    over = error.abs() / limit
    off = _rms(error)
    of_ulps = _rms(ulps)
    rows = (
        float((off / (ROW * largest + ROW_ULPS * of_ulps + dust)).max())
        if error.shape[2] >= WIDE_ROW
        else 0.0
    )
    whole = 0.0
    gain = 0.0
    gain_over = 0.0
    if error[0].numel() >= MANY:
        own = max(
            1.0, float(by_run.div(native + dust).nan_to_num(0.0).square().mean(1).sqrt().max())
        )
        each = off.div(native + WHOLE_ULPS / WHOLE * of_ulps + dust).nan_to_num(0.0)
        whole = float(each.square().mean(1).sqrt().max()) / (WHOLE * own)
        squares = float(exact.square().sum())
        if squares and isfinite(squares):  # a scalar that is rounded once is no error
            gain = float((error * exact).sum()) / squares
            gain_over = abs(gain) / (GAIN * _gain(rounded, runs, native) + held.eps / 2)
    wrong = int((over > 1).sum() + lost.sum())
    place = int((torch.where(lost, torch.inf, over)).argmax())
    draw, index = divmod(place, exact[0].numel())
    ratios = (off / native[None]).nan_to_num(0.0)
    worst = int(torch.where(lost.any(2), torch.inf, ratios).argmax()) % len(native)
    miss: Miss = (
        "overflow"
        if lost.any()
        else "element"
        if wrong
        else "row"
        if rows > 1
        else "whole"
        if whole > 1
        else "gain"
        if gain_over > 1
        else ""
    )
    sizes = _rms(exact)
    shares = torch.where(sizes > 0, (ROW * largest[None] + ROW_ULPS * of_ulps) / sizes, 0.0)
    return TensorResult(
        int(fits.sum()),
        miss,
        wrong,
        draw,
        index,
        worst,
        float(kernel.flatten()[place]),
        float(exact.flatten()[place]),
        float(limit.flatten()[place]),
        float(ratios.max()),
        1 + gain,
        int((finite & ~fits).sum()),
        float(limit.max()),
        float(shares.median()),
        float(error.abs().max()),
    )


def _gain(rounded: Tensor, runs: Tensor, native: Tensor) -> float:
    """Return the standard deviation of the gain: as seen in the runs, or as for independent errors,
    where that is larger."""
    runs = torch.where(runs.isfinite(), runs, 0.0)
    squares = runs.square().sum((1, 2))
    seen = ((rounded * runs).sum((1, 2)) / squares).nan_to_num(0.0).square().mean().sqrt()
    alone = (
        ((native.square()[None, :, None] * runs.square()).sum((1, 2)).sqrt() / squares)
        .nan_to_num(0.0)
        .mean()
    )
    return float(torch.maximum(seen, alone))


def _in_rows(values: Tensor) -> Tensor:
    """Return the values as [draw, row, element]; a vector is one row."""
    shape = values.shape[1:]
    if values.numel():
        return values.double().reshape(len(values), -1, shape[-1] if shape else 1)
    return values.double().reshape(len(values), 0, 0)


def _rms(values: Tensor) -> Tensor:
    return values.square().mean(2).sqrt()


def _mean_square(values: Tensor) -> Tensor:
    """Return the mean square of each row, over all draws."""
    return torch.where(values.isfinite(), values, 0.0).square().mean((0, 2))
