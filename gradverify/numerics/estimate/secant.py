"""The derivative of a linear function from one wide pair of points: there is no truncation error, so that the bar is rounding and noise alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gradverify.numerics.estimate.plain import ARITHMETIC
from gradverify.numerics.estimate.samples import LOW_UNIT
from gradverify.numerics.rungs import Array, Z, finite_size


@dataclass(frozen=True)
class Slope:
    """Derivatives [m], value ± bar, of which `noise` is what f's values are uncertain by; not finite where a value is missing."""

    value: Array
    bar: Array
    noise: Array


def secant(up: Array, down: Array, width: Array | float, f0: Array, sigma: Array, unit: Array, rounding_of_x: Array | float | None) -> Slope:
    """From f [m] at the two ends of a step of this width; f(x), its noise and its unit roundoff [m].

    Each end is off by its noise, at least by the rounding of the largest of f's values (f is computed from numbers as large as f(x) even where it
    passes 0 at an end), and by |f'|·u·|x| where a low-precision forward rounds x: `rounding_of_x` is |x| along the step then, and None elsewhere.
    """
    value = (up - down) / width
    noise = np.maximum(sigma, unit * np.maximum(np.maximum(np.abs(up), np.abs(down)), finite_size(f0)))
    low = unit > LOW_UNIT
    if rounding_of_x is not None and low.any():
        noise = np.where(low, np.maximum(noise, unit * np.abs(value) * rounding_of_x), noise)
    noise = Z * np.sqrt(2.0) * noise / width
    return Slope(value, noise + ARITHMETIC * np.abs(value), noise)
