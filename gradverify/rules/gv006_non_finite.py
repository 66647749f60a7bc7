"""GV006 non-finite: the forward is NaN or infinite at the point of the check

What. An output holds NaN, or an infinity that changes when the inputs move. An infinity that stays (a mask of −inf) is left out and
counted, and is no finding.

Why it matters. No derivative exists there, so no gradient can be compared: an error (exit code 3), never a pass.

How it is measured. The base forward, and where it holds infinities one more along a random direction.

How to repair. Choose inputs inside the domain: `uniform: [0.5, 2]` for a logarithm, `avoid: 0` for a quotient. If the inputs are fine,
the forward overflows: that is a fault of its own.

Example.
    inputs:
      x: {values: [-1.0, 2.0]}          # log(-1) is NaN
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from gradverify.evidence import Evidence
from gradverify.model.result import Finding
from gradverify.numerics.function.coordinates import flat_all, flat_real
from gradverify.rules.shown import element_name

ORDER = 20
RANK = 10
VERDICT = "error"
STOPS = True
STEP = 1e-3     # of each element: an infinity that such a step does not change is a mask


def applies(evidence: Evidence, found: frozenset[str]) -> str | None:
    return None


def check(evidence: Evidence) -> Iterator[Finding]:
    moved = None
    for place, output in zip(evidence.forward.checked, evidence.outputs, strict=True):
        values = flat_real(output)
        if values.isfinite().all():     # by torch: its gelu is five times as fast after its first abs (measured)
            continue
        bad = values.isnan()
        if values.isinf().any():
            moved = evidence.function.values([(x * (1 + STEP)).requires_grad_() for x in evidence.subject.inputs]) if moved is None else moved
            there = flat_all([moved[evidence.forward.checked.index(place)]])
            bad = bad | (values.isinf() & (there != values))
        if bad.any():
            first = int(bad.nonzero()[0])
            where = element_name(evidence.name_of(place), output, first)
            yield Finding("GV006", f"{int(bad.sum())} of {values.numel()} numbers of {evidence.name_of(place)} are not finite; first at {where}: "
                          f"{float(values[first])}", output=place, hint="repair forward, or choose inputs where it is finite (`uniform`, `avoid`)")
        elif values.numel() and bool(torch.isinf(values).all()):
            yield Finding("GV006", f"{evidence.name_of(place)} is infinite throughout: there is nothing to compare", output=place)
