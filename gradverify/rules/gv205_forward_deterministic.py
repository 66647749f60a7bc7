"""GV205 forward-deterministic: the forward gives other values when it is called again

What. Two forwards with the same inputs and the same seed differ by more than `nondeterminism`.

Why it matters. A forward that depends on more than its inputs (a counter, a buffer, a generator of its own) has no gradient that could be
compared, and activation checkpointing, which computes it again, trains on another function than it differentiates.

How it is measured. Two further forwards at the same point, compared bit by bit with the first. torch's generators (and NumPy's and Python's
global ones) are set to the check's seed before every forward, so that dropout and samplers pass. The generators of the second forward start
elsewhere where the first was not seen to draw: one that draws and puts their state back (`torch.random.fork_rng`) is then treated as any other
that draws, so that a backward that draws again meets other numbers, as it does in training. After this finding the Jacobian is not judged. A
function that iterates (it reads numbers of its tensors to decide when to stop) may differ within `rtol`: a warning.

How to repair. Draw random numbers with torch; keep no state between calls. Where small differences are meant (atomic adds), say
`nondeterminism: 1e-12`.

Example.
    class Dropout(Function):
        own = torch.Generator()         # no seed of the check's reaches it
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from gradverify.evidence import Evidence
from gradverify.model.result import Finding
from gradverify.numerics.function.flat import flat_real
from gradverify.rules.agreement import largest
from gradverify.rules.shown import apart, element_name
from gradverify.subject.snapshot import same

CATCHES = "draws_from_its_own_generator"
ORDER = 30
RANK = 20
LEFT = "that is what an iteration leaves that starts from other numbers, or rounds in another order: within `rtol`"


def applies(evidence: Evidence, found: frozenset[str]) -> str | None:
    return None


def check(evidence: Evidence) -> Iterator[Finding]:
    before = torch.default_generator.get_state()
    for again in _repeats(evidence):
        for place, first, second in zip(evidence.forward.checked, evidence.outputs, again, strict=True):
            difference = _difference(first, second, evidence.settings.nondeterminism, evidence.name_of(place))
            if difference is not None and _converges(evidence, first, second):
                yield Finding("GV205", f"the forward is not deterministic: {difference}", severity="warning", output=place, hint=LEFT)
                return
            if difference is not None:
                drawn = not evidence.settings.reseed and not torch.equal(before, torch.default_generator.get_state())
                yield Finding("GV205", f"the forward is not deterministic: {difference}", output=place, hint=_hint(drawn))
                return


def _converges(evidence: Evidence, first: Tensor, second: Tensor) -> bool:
    """Is the difference no more than what an iteration leaves? It calls the function only where that would excuse it."""
    if first.shape != second.shape:
        return False
    a, b = flat_real(first), flat_real(second)
    off, size = float((a - b).abs().nan_to_num(nan=torch.inf).max()), largest(a)
    return off <= evidence.settings.tolerances(low_precision=evidence.low_precision)[1] * size and off <= evidence.leftover * size


def _repeats(evidence: Evidence) -> Iterator[Sequence[Tensor]]:
    """Two further outputs; the second with generators that start elsewhere, unless that alone makes the difference."""
    yield evidence.function.here()
    if evidence.forward.random:
        yield evidence.function.values(evidence.subject.leaves())
        return
    again = evidence.reseeded
    if not evidence.draws:
        yield again


def _difference(first: Tensor, second: Tensor, accepted: float, name: str) -> str | None:
    """How two outputs of one point differ, in words; None where they do not."""
    if first.shape != second.shape:
        return f"{name} had shape {list(first.shape)}, and {list(second.shape)} when called again"
    if same(first, second):
        return None
    a, b = flat_real(first), flat_real(second)
    off = torch.where((a == b) | (a.isnan() & b.isnan()), torch.zeros_like(a), (a - b).abs().nan_to_num(nan=torch.inf))
    worst = int(off.argmax())
    if float(off[worst]) <= accepted:
        return None
    was, now = apart(float(a[worst]), float(b[worst]))
    return f"{element_name(name, first, worst)} was {was}, and {now} when called again with the same input"


def _hint(drawn: bool) -> str:
    if drawn:
        return "it draws from torch's generator: leave out `reseed: false`, and every forward draws the same numbers"
    return "keep no state between calls, draw random numbers with torch; `nondeterminism` accepts small differences"
