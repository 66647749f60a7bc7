"""Finite differences as an oracle: of the function itself, or of its surrogate in its place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gradverify.numerics.pairs.pair import Pair
from gradverify.oracles.oracle import Checked, Key


@dataclass(frozen=True)
class Measured:
    """What every check has."""

    checked: Checked
    target: None = None

    @property
    def name(self) -> str:
        return self.checked.difference

    @property
    def pairs(self) -> Mapping[Key, Pair]:
        return {(i, o): pair for (i, o), pair in self.checked.jacobian.pairs.items()}


def oracle(checked: Checked) -> Measured:
    return Measured(checked)
