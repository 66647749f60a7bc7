"""The oracles there are: each makes, of what is checked, what it knows of its derivative; None where the check has none of its kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gradverify.oracles import (
    gradient,
    literal,
    measured,
    reference,
)
from gradverify.oracles.oracle import Checked, Oracle

ORACLES: Mapping[str, Callable[[Checked], Oracle | None]] = {
    "finite differences": measured.oracle,
    "reference": reference.oracle,
    "expected": literal.oracle,
    "gradient": gradient.oracle,
}
