"""The oracles that know the gradient for one cotangent per output: functions that make an oracle
for a checked function, or return None where the spec has none of that kind."""

from __future__ import annotations

from collections.abc import Callable

from gradverify.oracles import (
    gradient,
    literal,
)
from gradverify.oracles.given import Given
from gradverify.oracles.oracle import Checked

GIVEN: tuple[Callable[[Checked], Given | None], ...] = (
    literal.oracle,
    gradient.oracle,
)
