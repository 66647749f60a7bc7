"""Nested numbers, as in `values` and `expected`: every element a number, every row of one length."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from gradverify.model.case import Json
from gradverify.model.dtypes import COMPLEX, TABLE
from gradverify.spec.fault import Fault, Path, shown
from gradverify.spec.values import COMPLEX_NUMBER
from gradverify.spec.wording import number_hint

INTEGER_RANGES: Mapping[str, tuple[int, int]] = {name: held.integers for name, held in TABLE.items() if held.integers}
"""dtype → the integers it holds, high excluded."""


def shape_of(value: Json) -> tuple[int, ...]:
    """The shape that the first elements suggest."""
    if not isinstance(value, list):
        return ()
    return (len(value), *(shape_of(value[0]) if value else ()))


def number_faults(value: Json, path: Path, dtype: str) -> Iterator[Fault]:
    """What keeps nested numbers from being a tensor of `dtype`."""
    yield from _faults(value, path, dtype, shape_of(value))


def _faults(value: Json, path: Path, dtype: str, shape: tuple[int, ...]) -> Iterator[Fault]:
    if not shape:
        complaint = f"expected a number, got {shown(value)}: the rows are ragged" if isinstance(value, list) else scalar_complaint(value, dtype)
        if complaint:
            yield Fault(path, complaint)
    elif not isinstance(value, list):
        yield Fault(path, f"expected a list of {shape[0]}, got {shown(value)}: the rows are ragged")
    elif len(value) != shape[0]:
        yield Fault(path, f"expected a row of {shape[0]} like the first, got {len(value)}: the rows are ragged")
    else:
        for index, item in enumerate(value):
            yield from _faults(item, (*path, index), dtype, shape[1:])


def scalar_complaint(value: Json, dtype: str) -> str | None:
    """Why a value cannot be an element of a tensor of `dtype`, or None."""
    if isinstance(value, bool):
        return None if dtype == "bool" else f"expected a number, got {shown(value)}; booleans need `dtype: bool`"
    if isinstance(value, str):
        return _text_complaint(value, dtype)
    if not isinstance(value, (int, float)):
        return f"expected a number, got {shown(value)}"
    if dtype in INTEGER_RANGES:
        low, high = INTEGER_RANGES[dtype]
        return None if value == value and low <= value < high and int(value) == value else f"{shown(value)} is no {dtype}"
    return None


def _text_complaint(value: str, dtype: str) -> str | None:
    if not COMPLEX_NUMBER.fullmatch(value):
        hint = number_hint(value, finite=False)
        return f"expected a number, got {shown(value)}" + (f"; {hint}" if hint else "")
    return None if dtype in COMPLEX else f"the complex number {value} needs `dtype: complex128`, the dtype here is {dtype}"
