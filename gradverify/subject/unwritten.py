"""Does a result depend on memory that nobody wrote, or a call write beside its tensors? Calls with poisoned memory tell.

The first call of a check is one with guard elements around its inputs, cotangents and results of operations, and NaN in
all memory that is handed out unwritten. Where it got such memory, or differs from the base call, another one follows with large numbers
there. Only where these two differ, each is made twice more: what then depends on the filling alone was left unwritten.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import isnan
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from gradverify.numerics.function.coordinates import UNITS, flat_real
from gradverify.subject.ambient import ambient, left_as_found
from gradverify.subject.differentiable import Gradients, Graph, copied
from gradverify.subject.failure import UserCodeError
from gradverify.subject.guard import comparable, is_plain
from gradverify.subject.poison import Beside, Poisoned
from gradverify.subject.snapshot import alike

if TYPE_CHECKING:
    from gradverify.subject.base_call import BaseCall

Elsewhere = tuple[tuple[Tensor, ...], tuple[object, ...]]
STEADY = 2.0**10    # roundings by which two calls in the same way may differ, as atomic adds do


@dataclass
class Probe:
    """One forward, and as far as it came one backward, with poisoned memory.

    `graph`: of the forward; `states`: what the generators would draw after it; `places`: of the compared outputs among
    all. `error`: what it raised.
    """

    mode: Poisoned
    graph: Graph | None = None
    states: tuple[object, ...] = ()
    places: tuple[int, ...] = ()
    outputs: tuple[Tensor, ...] = ()
    gradients: Gradients | None = None
    error: UserCodeError | None = None

    @property
    def results(self) -> tuple[Tensor | None, ...]:
        """What it gave."""
        return (*self.outputs, *(self.gradients or ()))

    @property
    def beside(self) -> Beside | None:
        """Where it wrote beside a tensor."""
        return self.mode.beside()


@dataclass(frozen=True, slots=True)
class Depends:
    """What the filling of unwritten memory changes: an output (by its place among all) or the gradient of an input; how
    many of its real numbers, the first of them, and what it is with NaN and with large numbers. `raised`: in the place
    of all that, what one of the two raises."""

    tensor: Tensor
    output: int | None = None
    input: int | None = None
    count: int = 0
    size: int = 0
    first: int = 0
    numbers: tuple[float, float] = (0.0, 0.0)
    raised: UserCodeError | None = None


@dataclass(frozen=True, slots=True)
class Memory:
    """What poisoned calls show: a write that missed, in forward or in `backward`; what depends on unwritten memory, of
    which some was `allocated`. Where nothing is wrong with them they count as calls like others: `repeats` are their
    gradients for the base cotangents, `elsewhere` the outputs of a call whose generators started elsewhere, and what
    they would draw after it; `earliest` the outputs of the first call of all, where they differ from those after it.
    `behind`: such calls give other gradients again and again, and not by what they are filled with: it may be that
    their cotangents begin behind other numbers in memory."""

    beside: Beside | None = None
    backward: bool = False
    depends: tuple[Depends, ...] = ()
    allocated: bool = False
    repeats: tuple[Gradients, ...] = ()
    elsewhere: Elsewhere | None = None
    earliest: tuple[Tensor, ...] | None = None
    behind: bool = False


def measured(base: BaseCall) -> Memory:
    """Raises UserCodeError where forward raises."""
    return _Calls(base).memory()


class _Calls:
    """The poisoned calls beside a base call."""

    def __init__(self, base: BaseCall) -> None:
        self._base, self._subject = base, base.subject
        self._unit = max((UNITS[x.dtype] for x in base.subject.inputs), default=0.0)
        self._pulls = False     # the base call is known, and there is something to pull back
        self._guards = True

    def memory(self) -> Memory:
        first, raised = self._forward(True), None
        if first.beside is not None:
            return Memory(beside=first.beside)
        writes = self._subject.writes
        try:
            seen, outputs = self._base.forward, self._base.outputs
            if self._subject.writes != writes:      # into its inputs: from now on it gets clones
                first = self._forward(True)
            if first.error is not None:     # as what gives its memory back does, which lies within another one's
                self._guards = False
                first = self._forward(True)
            pulls = seen.checked and (seen.nodes or first.mode.unwritten())      # a backward of torch's own writes all it returns
            self._pulls = bool(pulls) and all(bool(y.isfinite().all()) for y in outputs)
        except UserCodeError as error:
            if not first.mode.handed_out:
                raise
            raised = error
        if self._pulls:
            self._backward(first, behind=True)
            if first.beside is not None:
                return Memory(beside=first.beside, backward=True)
            if first.error is not None and self._base.backward.error is None:
                self._guards = False        # and the base call found the way in which backward can be called
                first = self._again(True)
        quiet = self._again(False) if self._doubtful(first, raised is not None) else None
        if quiet is not None and not self._agree(first, quiet):
            found = self._depends(quiet)
            if found:
                return Memory(depends=found, allocated=first.mode.handed_out)
        if raised is not None:
            raise raised
        return self._counted(first, quiet)

    def _doubtful(self, first: Probe, raised: bool) -> bool:
        """Is another filling to be tried?"""
        if raised or first.error is not None or first.mode.unwritten():
            return True
        if self._base.forward.random:       # the generators started elsewhere
            return not all(y is None or bool(y.isfinite().all()) for y in first.results)
        return not close(first.results, self._results, self._unit)

    def _depends(self, quiet: Probe) -> tuple[Depends, ...]:
        """In an order in which no counter of calls that comes round keeps step with the filling. Without NaN it may be
        chance, of a function that draws: then in more calls."""
        loud = [self._again(True) for _ in range(2)]
        quiets = [quiet, self._again(False)]
        found = depends(loud, quiets, self._unit)
        if any(each.raised is None and not isnan(each.numbers[0]) for each in found):
            for again in (True, True, False, True, False, False, True, False):
                (loud if again else quiets).append(self._again(again))
            found = depends(loud, quiets, self._unit)
        return found

    def _counted(self, first: Probe, quiet: Probe | None) -> Memory:
        """Nothing is wrong with memory: what the calls are good for else."""
        if first.error is not None:
            return Memory(allocated=first.mode.handed_out)
        base, random, found = self._base, self._base.forward.random, Memory(allocated=first.mode.handed_out)
        if random or alike(first.outputs, base.outputs):
            found = replace(found, elsewhere=(first.outputs if random else base.outputs, first.states))
        elif quiet is not None and quiet.error is None and not close(first.outputs, base.outputs, self._unit):
            found = replace(found, earliest=first.outputs) if close(quiet.outputs, base.outputs, self._unit) else found
        if random or not (self._pulls and close(first.outputs, base.outputs, self._unit)):
            return found
        calls = [probe.gradients for probe in (first, quiet) if probe is not None and probe.gradients is not None]
        gradients = base.backward.gradients
        if not all(close(each, gradients, self._unit) for each in calls) and self._same_way(first):
            return replace(found, behind=True)
        same = [alike(each, gradients) for each in calls]
        return replace(found, repeats=tuple(gradients if equal else each for each, equal in zip(calls, same, strict=True)
                                            if equal or not close(each, gradients, self._unit)))

    @property
    def _results(self) -> tuple[Tensor | None, ...]:
        """Of the base call."""
        gradients = self._base.backward.gradients if self._pulls else ()
        return (*self._base.outputs, *(gradients if _can_be_compared(gradients) else ()))

    def _agree(self, some: Probe, others: Probe) -> bool:
        return some.error is None and others.error is None and close(some.results, others.results, self._unit)

    def _again(self, loud: bool, behind: bool = False) -> Probe:
        probe = self._forward(loud)
        if self._pulls:
            self._backward(probe, behind)
        return probe

    def _same_way(self, first: Probe) -> bool:
        """Does a call like the first one give what that gave? Then its way makes it another one, and not its number."""
        again = self._again(True, behind=True)
        return again.error is None and close(again.results, first.results, self._unit)

    def _forward(self, loud: bool) -> Probe:
        """A forward."""
        subject, wanted, probe = self._subject, self._base.settings.outputs, Probe(Poisoned(loud, self._guards))
        named = zip(subject.differentiable, subject.leaves(), strict=True)
        leaves = [probe.mode.guarded(leaf.detach(), argument.name).requires_grad_() for argument, leaf in named]

        def call() -> Graph:
            with subject.fenced(probe.mode.guarded), probe.mode.numpys(), probe.mode:
                return Graph(tuple(leaves), subject.probed(leaves))

        with left_as_found(ambient()):
            try:
                probe.graph, probe.states = subject.seeded_elsewhere(lambda: (call(), subject.states()))
            except UserCodeError as error:
                probe.error = error
                return probe
        flat = probe.graph.called.outputs
        probe.places = tuple(place for place, y in enumerate(flat)
                             if comparable(y) and y.requires_grad and (wanted is None or place in wanted))
        probe.outputs = tuple(flat[place].detach().clone() for place in probe.places)
        return probe

    def _backward(self, probe: Probe, behind: bool = False) -> None:
        """The backward of its graph. `behind`: the cotangents begin behind guard elements, in one storage."""
        if probe.graph is None:
            return
        given = [probe.mode.guarded(v, "grad_output", behind) for v in self._base.cotangents("base")]
        with left_as_found(ambient()):
            try:
                with probe.mode.numpys(), probe.mode:
                    gradients = self._base.function.gradients(probe.graph, given, fresh=True)
                probe.gradients = copied(gradients) if _can_be_compared(gradients) else None
            except UserCodeError as error:
                probe.error = error


def _can_be_compared(gradients: Gradients) -> bool:
    """Are they all plain tensors? Others are for the rules on what backward returns."""
    return all(gradient is None or is_plain(gradient) for gradient in gradients)


def depends(loud: Sequence[Probe], quiet: Sequence[Probe], unit: float) -> tuple[Depends, ...]:
    """What depends on the filling alone: equal in all calls with one, and another one in those with the other."""
    raised = [{probe.error is not None for probe in both} for both in (loud, quiet)]
    if raised in ([{True}, {False}], [{False}, {True}]):
        return (Depends(torch.empty(0), raised=next(probe.error for probe in (*loud, *quiet) if probe.error is not None)),)
    if raised != [{False}, {False}]:
        return ()
    if not all(close(probe.results, both[0].results, unit) for both in (loud, quiet) for probe in both[1:]):
        return ()
    one, other = loud[0], quiet[0]
    found = list[Depends]()
    for place, a, b in zip(one.places, one.outputs, other.outputs, strict=False):
        found += _apart(a, b, unit, Depends(a, output=place))
    for place, (g, h) in enumerate(zip(one.gradients or (), other.gradients or (), strict=False)):
        if g is not None and h is not None:
            found += _apart(g, h, unit, Depends(g, input=place))
    return tuple(found)


def _apart(one: Tensor, other: Tensor, unit: float, at: Depends) -> list[Depends]:
    """What is clearly another number in one than in the other."""
    if one.shape != other.shape:
        return []
    a, b = flat_real(one), flat_real(other)
    size = a.nan_to_num(0.0, 0.0, 0.0).abs().max() if a.numel() else 0.0
    roundings = STEADY * max(unit, UNITS.get(one.dtype, 0.0)) * size
    far = ((a - b).abs() > roundings) | (a.isnan() != b.isnan()) | (a.isinf() != b.isinf())
    if not bool(far.any()):
        return []
    first = int(far.nonzero()[0])
    return [replace(at, count=int(far.sum()), size=a.numel(), first=first, numbers=(float(a[first]), float(b[first])))]


def close(some: Sequence[Tensor | None], others: Sequence[Tensor | None], unit: float) -> bool:
    """Do two calls give the same, but for what a sum in another order does?"""
    if alike(some, others):
        return True
    if len(some) != len(others) or any((a is None) != (b is None) for a, b in zip(some, others, strict=True)):
        return False
    pairs = [(a, b) for a, b in zip(some, others, strict=True) if a is not None and b is not None]
    return not any(a.shape != b.shape or _apart(a, b, unit, Depends(a)) for a, b in pairs)
