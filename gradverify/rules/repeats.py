"""Identical calls compared: how many different results they gave, and how far apart these are."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor

from gradverify.model.result import Reproduced
from gradverify.numerics.function.coordinates import flat_real
from gradverify.subject.snapshot import same


class Repeats:
    """The results of identical calls for one tensor, added one by one."""

    def __init__(self, of: str) -> None:
        self._of, self._calls = of, 0
        self._different = set[bytes]()
        self._first = self._low = self._high = torch.empty(0)

    def add(self, values: Tensor) -> None:
        self._calls += 1
        flat = flat_real(values.detach())
        if self._calls == 1:
            self._first = self._low = self._high = flat
        elif flat.shape == self._first.shape and not same(flat, self._first):
            self._different.add(flat.cpu().numpy().tobytes())
            self._low, self._high = torch.fmin(self._low, flat), torch.fmax(self._high, flat)

    def again(self) -> None:
        """A call more that gave what the first one did."""
        self._calls += 1

    def told(self, unit: float) -> Reproduced:
        """`unit`: the roundoff that the values are computed with."""
        apart = float((self._high - self._low).nan_to_num(nan=0.0).max()) if self._first.numel() else 0.0
        size = float(self._first.abs().nan_to_num(nan=0.0, posinf=0.0).max()) if self._first.numel() else 0.0
        return Reproduced(self._of, self._calls, 1 + len(self._different), apart, apart / max(unit * size, math.ulp(0.0)) if size else 0.0)


def in_words(found: Iterable[Reproduced]) -> str:
    """Of those that came out in several ways: `y0: 3 different results in 5 calls, up to 4.4e-16 apart (2 roundings)`; empty without any."""
    return "; ".join(f"{each.of}: {each.distinct} different results in {each.calls} calls, up to {each.spread:.2g} apart ({each.roundings:.2g} "
                     f"rounding{'s' * (each.roundings > 1)})" for each in found if each.distinct > 1)
