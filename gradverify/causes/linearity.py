"""What a backward that is not linear in grad_output does with it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gradverify.causes.precision import narrower
from gradverify.model.result import Cause
from gradverify.numerics.rungs import Array

SAME = 2.0**-20  # relative: the same numbers, up to the roundings of any dtype from float32 on


def explain(name: str, replies: Sequence[Array], unit: float) -> Cause | None:
    """`replies`: the gradient of `name` for several different cotangents; `unit`: the roundoff of its dtype."""
    first = replies[0]
    size = float(np.abs(first).max(initial=0.0))
    if len(replies) < 2 or not np.isfinite(size) or size == 0:
        return None
    if all((np.abs(reply - first) <= SAME * size).all() for reply in replies[1:]):
        return Cause("ignores grad_output",
                     f"backward gives the same {len(first)} numbers for {name} whatever grad_output is, for {len(replies)} of them")
    narrow = narrower(np.concatenate(list(replies)), unit)
    if narrow is not None:
        return Cause(f"computed in {narrow}", f"every number that backward returns for {name} is a {narrow}, for {len(replies)} random grad_outputs")
    return None
