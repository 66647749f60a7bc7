"""The dtypes that a spec may name, by torch's names, and their ranges and roundoff.
`numerics/function/coordinates.py` has the torch objects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

Floating = Literal["float64", "float32", "bfloat16", "float16", "complex128", "complex64"]
Whole = Literal["int64", "int32", "int16", "int8", "uint8", "bool"]
Dtype = Literal[Floating, Whole]


@dataclass(frozen=True, slots=True)
class Held:
    """Properties of a dtype. roundoff: half the distance from 1 to the next number, None for
    integers. real: the dtype of a complex number's parts. double: the corresponding dtype in double
    precision, if this is a lower one. integers: the smallest integer, and the largest + 1."""

    roundoff: float | None = None
    real: Floating | None = None
    double: Floating | None = None
    integers: tuple[int, int] | None = None


TABLE: Mapping[Dtype, Held] = {
    "float64": Held(2.0**-53),
    "float32": Held(2.0**-24, double="float64"),
    "bfloat16": Held(2.0**-8, double="float64"),
    "float16": Held(2.0**-11, double="float64"),
    "complex128": Held(2.0**-53, "float64"),
    "complex64": Held(2.0**-24, "float32", "complex128"),
    "int64": Held(integers=(-(2**63), 2**63)),
    "int32": Held(integers=(-(2**31), 2**31)),
    "int16": Held(integers=(-(2**15), 2**15)),
    "int8": Held(integers=(-128, 128)),
    "uint8": Held(integers=(0, 256)),
    "bool": Held(integers=(0, 2)),
}
FLOATING: tuple[Floating, ...] = get_args(Floating)
RUN = FLOATING
"""The dtypes that a differentiable input may have."""
LEGS: tuple[Floating, ...] = ("bfloat16", "float16")
"""Dtypes in which finite differences are of no use: judged in two legs, one of them in float64
(rule GV112)."""
COMPLEX = tuple(name for name in FLOATING if TABLE[name].real)
WIDER: Mapping[str, Floating] = {
    name: double for name in FLOATING if name not in LEGS and (double := TABLE[name].double)
}
"""Dtype of single precision → the same in double."""
