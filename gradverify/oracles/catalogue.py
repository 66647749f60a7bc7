"""What knows the gradient for one cotangent per output: each makes its oracle of what is checked,
None where the check has none of its kind."""

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
