"""What a backward that is not linear in grad_output does with it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gradverify.model.result import Cause
from gradverify.numerics.rungs import Array

SAME = 2.0**-20  # relative: the same numbers, up to the roundings of any dtype from float32 on


def explain(name: str, replies: Sequence[Array]) -> Cause | None:
    """`replies`: the gradient of `name` for several different cotangents."""
    first = replies[0]
    size = float(np.abs(first).max(initial=0.0))
    if len(replies) < 2 or not np.isfinite(size) or size == 0:
        return None
    if all((np.abs(reply - first) <= SAME * size).all() for reply in replies[1:]):
        return Cause("ignores grad_output",
                     f"backward gives the same {len(first)} numbers for {name} whatever grad_output is, for {len(replies)} of them")
    return None
