"""What torch's own derivative of the forward says of one element, as a note: where it does not pass, or where it is always asked."""

from __future__ import annotations

import numpy as np

from gradverify.element.places import Found
from gradverify.evidence import Evidence
from gradverify.oracles.along import real_size
from gradverify.oracles.witness import Absent, witness
from gradverify.subject.failure import UserCodeError


def forwards_own(evidence: Evidence, moved: Found, seen: Found) -> str:
    """A note; nothing where the check does not ask for it."""
    if evidence.surrogate is not None or not evidence.settings.witness or evidence.settings.eps != "auto":
        return ""
    with witness(evidence.subject, evidence.forward.checked, evidence.outputs, evidence.wishes) as called:
        try:
            row = called if isinstance(called, Absent) else called.row(seen.tensor, seen.coordinate)
        except UserCodeError as error:
            row = Absent(error.message)
    if isinstance(row, Absent):
        return f"forward has no derivative of its own to ask: {row.reason}"
    before = sum(real_size(x) for x in evidence.subject.inputs[:moved.tensor])
    return f"forward's own derivative, by torch: {np.float64(row[before + moved.coordinate]):.10g}"
