"""GV205 forward-deterministic: the forward gives other values when it is called again

What. Two forwards with the same inputs and the same seed differ by more than `nondeterminism`. Up to 2¹⁰ roundings of the output's size are a
warning: that is what a sum in another order does (atomic adds, split-k). With `deterministic: true` any difference is an error.

Why it matters. A forward that depends on more than its inputs (a counter, a buffer, a generator of its own) has no gradient that could be
compared, and activation checkpointing, which computes it again, trains on another function than it differentiates.

How it is measured. Two further forwards at the same point, compared bit by bit with the first. torch's generators (and NumPy's and Python's
global ones) are set to the check's seed before every forward, so that dropout and samplers pass. The generators of the second forward start
elsewhere where the first was not seen to draw: one that draws and puts their state back (`torch.random.fork_rng`) is then treated as any other
that draws, so that a backward that draws again meets other numbers, as it does in training. After an error the Jacobian is not judged; roundings are
noise to its finite differences, which measure it. Where any bit differs, 3 more calls count the different results, which `-v` and the JSON report
tell. A function that iterates (it goes on where the tolerance that it stops at is tighter) may differ within `rtol`: a warning.

How to repair. Draw random numbers with torch; keep no state between calls; sum in a fixed order. Where larger differences are meant, say
`nondeterminism: 1e-9`.

Example.
    class Dropout(Function):
        own = torch.Generator()         # no seed of the check's reaches it
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from gradverify.evidence import Evidence
from gradverify.model.result import Finding
from gradverify.numerics.function.coordinates import flat_real
from gradverify.rules.agreement import largest
from gradverify.rules.repeats import ANOTHER, ATOMIC, LEFT, ORDER_OF_SUMS, Repeats, in_words
from gradverify.rules.shown import apart, element_name
from gradverify.subject.snapshot import same

CATCHES = "draws_from_its_own_generator"
ORDER = 30
METHOD = "forward"
RANK = 20
MORE = 3        # calls, to count the different results of a forward that has some


def applies(evidence: Evidence, found: frozenset[str]) -> str | None:
    return None


def check(evidence: Evidence) -> Iterator[Finding | str]:
    """What differs by roundings is told when all calls were made: a later one may differ by more."""
    before = torch.default_generator.get_state()
    counts = [Repeats(evidence.name_of(place)) for place in evidence.forward.checked]
    _count(counts, evidence.outputs)
    slight: Finding | None = None
    for again in _repeats(evidence):
        _count(counts, again)
        for place, first, second in zip(evidence.forward.checked, evidence.outputs, again, strict=True):
            accepted = 0.0 if evidence.settings.deterministic else evidence.settings.nondeterminism
            difference = _difference(first, second, accepted, evidence.name_of(place))
            if difference is None:
                continue
            told = Finding("GV205", f"the forward is not deterministic: {difference}", output=place)
            if _rounded(evidence, first, second):
                slight = slight or replace(told, severity="warning", hint=f"{ORDER_OF_SUMS}, `nondeterminism` accepts it")
            elif _converges(evidence, first, second):
                yield replace(told, severity="warning", hint=LEFT)
                return
            else:
                drawn = not evidence.settings.reseed and not torch.equal(before, torch.default_generator.get_state())
                yield replace(told, hint=_hint(drawn))
                return
    yield from _counted(evidence, counts, slight)


def _counted(evidence: Evidence, counts: Sequence[Repeats], slight: Finding | None) -> Iterator[Finding | str]:
    """What differs is called a few times more, to be counted."""
    if any(count.told(1.0).distinct > 1 for count in counts):
        for _ in range(MORE):
            _count(counts, evidence.function.here())
    found = [count.told(evidence.precision) for count in counts]
    evidence.reproduced += found
    if slight is not None:
        yield slight
    if in_words(found):
        yield in_words(found)


def _count(counts: Sequence[Repeats], outputs: Sequence[Tensor]) -> None:
    for count, y in zip(counts, outputs, strict=True):
        count.add(y)


def _rounded(evidence: Evidence, first: Tensor, second: Tensor) -> bool:
    """Is the difference no more than what a sum in another order makes?"""
    if first.shape != second.shape:
        return False
    a, b = flat_real(first), flat_real(second)
    return float((a - b).abs().nan_to_num(nan=torch.inf).max()) <= ATOMIC * evidence.precision * largest(a)


def _converges(evidence: Evidence, first: Tensor, second: Tensor) -> bool:
    """Is the difference no more than what an iteration leaves? It calls the function only where that would excuse it."""
    if first.shape != second.shape:
        return False
    a, b = flat_real(first), flat_real(second)
    off, size = float((a - b).abs().nan_to_num(nan=torch.inf).max()), largest(a)
    return off <= evidence.settings.tolerances(low_precision=evidence.low_precision)[1] * size and off <= evidence.leftover * size


def _repeats(evidence: Evidence) -> Iterator[Sequence[Tensor]]:
    """Those of the first call of all, where they are others; two further ones, the second with generators that start
    elsewhere, unless that alone makes the difference."""
    if evidence.poisoned.earliest is not None:
        yield evidence.poisoned.earliest
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
    return f"{ANOTHER}; `nondeterminism` accepts small differences"
