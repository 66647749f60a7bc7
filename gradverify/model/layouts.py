"""What a memory layout asks of a tensor's shape: told to the writer of a spec, and kept when the tensor is made."""

from __future__ import annotations

import math

DIMENSIONS = {"transposed": (2, math.inf), "strided": (1, math.inf), "expanded": (1, math.inf), "channels_last": (4, 5)}
"""Layout → the least and the most dimensions; the others take any number."""

MATRICES = ("spd", "orthogonal", "lower_triangular")


def dimension_complaint(layout: str, shape: tuple[int, ...]) -> str | None:
    """Why a tensor of this shape cannot lie so in memory, or None."""
    least, most = DIMENSIONS.get(layout, (0, math.inf))
    if least <= len(shape) <= most:
        return None
    need = f"{least} or {most:.0f} dimensions" if most < math.inf else f"at least {least} dimension{'s' * (least > 1)}"
    return f"`{layout}` needs {need}, and the shape is {list(shape)}"


def core(kind: str | None, symmetric: bool) -> int:
    """How many of the last dimensions hold one structure, which no repetition may cut through."""
    if kind in MATRICES or symmetric:
        return 2
    return 1 if kind is not None else 0


def is_cut(kind: str | None, symmetric: bool, shape: tuple[int, ...]) -> bool:
    """Would one slice repeated along the first dimension cut through the tensor's structure?"""
    return len(shape) <= core(kind, symmetric) and bool(shape) and shape[0] > 1
