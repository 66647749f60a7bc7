"""GV117 under-autocast: with forward inside autocast outputs or gradients are off by far more than 16 bits cost, or something raises."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from gradverify.evidence import Evidence
from gradverify.model.result import Finding
from gradverify.rules.agreement import is_double, unsteady
from gradverify.rules.shown import element_name
from gradverify.subject.differentiable import Differentiable
from gradverify.subject.draw import DTYPES, generator
from gradverify.subject.failure import UserCodeError
from gradverify.subject.lowered import ROUNDOFF, rounded, shaken

NATIVE = 4      # runs with every number rounded, for the native error
BESIDE = 2      # points beside the inputs, where a row has to be off too: what rounds to the other side of a step here does not there
FAR = 8.0       # native errors
LOST = 0.25     # of its size: of a row that rounding takes so far nothing can be said (layer_norm of what is nearly constant)
HINT = "look for a cast or a branch on the dtype; torch.amp.custom_fwd and custom_bwd run backward under the autocast of forward"
Context = Callable[[], AbstractContextManager[Any]]


def applies(evidence: Evidence, found: frozenset[str]) -> str | None:
    if evidence.settings.autocast is None:
        return "the spec does not name a dtype under `autocast`"
    if is_double(evidence):
        return "autocast leaves float64 alone: say `dtype: float32`"
    if any(x.dtype is not torch.float32 for x in evidence.subject.inputs):
        return "an input is not float32"
    if evidence.draws:
        return "random numbers may be drawn in another order under autocast"
    return unsteady(found)


def check(evidence: Evidence) -> Iterator[Finding | str]:
    runs = _Runs(evidence)
    try:
        runs.more(BESIDE, NATIVE)
        if any(bool(each.wrong.any()) for each in runs.judged()):      # a row that is steep by chance: look harder before it is accused
            runs.more(2 * BESIDE, 4 * NATIVE)
    except UserCodeError as error:
        yield Finding("GV117", f"under autocast in {evidence.settings.autocast} {error.message}", frames=error.frames, hint=HINT)
        return
    unjudged = 0
    for place, each in enumerate(runs.judged()):
        unjudged += each.unjudged
        if each.wrong.any():
            row = int(torch.where(each.wrong, each.off / each.allowed, torch.zeros_like(each.off)).argmax())
            yield _finding(evidence, place, row, runs.usual[0][place], runs.seen[0][place], float(each.off[row]), float(each.cost[row]))
    if unjudged:
        yield f"{unjudged} rows are lost or overflow when every number is rounded, and are not judged"


@dataclass(frozen=True, slots=True)
class Judged:
    """The rows of one output or gradient: how far off, the native error, what is allowed, and which are further off."""

    off: Tensor
    cost: Tensor
    allowed: Tensor
    wrong: Tensor
    unjudged: int


class _Runs:
    """Outputs and gradients at points beside the inputs, with autocast (`seen`) and without (`usual`); at the inputs with all rounded (`native`)."""

    def __init__(self, evidence: Evidence) -> None:
        self._evidence, self._dtype = evidence, DTYPES[str(evidence.settings.autocast)]
        self._source = generator(evidence.settings.seed, evidence.subject.case.check, "autocast")
        self._here = evidence.subject.leaves()
        self.seen, self.usual, self.native = list[list[Tensor]](), list[list[Tensor]](), list[list[Tensor]]()

    def more(self, beside: int, native: int) -> None:
        """Raises UserCodeError where the function raises under autocast, but not where it refuses numbers beside its own."""
        device = self._here[0].device.type
        points = [*([] if self.seen else [self._here]), *([shaken(x, self._dtype, self._source) for x in self._here] for _ in range(beside))]
        for point in points:
            self.usual.append(_flat(self._evidence, point, nullcontext))
            self.seen.append(_flat(self._evidence, point, lambda: torch.autocast(device, dtype=self._dtype)))
        self.native += [_flat(self._evidence, self._here, nullcontext, (self._dtype, self._source)) for _ in range(native)]

    def judged(self) -> list[Judged]:
        """Judge every output, then every gradient."""
        return [self._judged(place) for place in range(len(self.usual[0]))]

    def _judged(self, place: int) -> Judged:
        base, unit = self.usual[0][place], ROUNDOFF[self._dtype]
        cost = torch.stack([_rows(run[place] - base).norm(dim=1) for run in (*self.native, *self.usual[1:])]).amax(0)
        size = _rows(base).norm(dim=1)
        known = cost.isfinite() & size.isfinite() & (cost <= LOST * size)
        pairs = zip(self.seen, self.usual, strict=True)
        most = torch.finfo(torch.float64).max
        off = torch.stack([_rows(a[place] - b[place]).norm(dim=1).nan_to_num(nan=most, posinf=most) for a, b in pairs]).amin(0)
        allowed = FAR * (cost + unit * size)
        return Judged(off, cost, allowed, known & (off > allowed), int((~known).sum()))


def _finding(evidence: Evidence, place: int, row: int, base: Tensor, seen: Tensor, off: float, cost: float) -> Finding:
    """About the element of a row that is furthest off."""
    outputs = len(evidence.forward.checked)
    wanted, given = _rows(base), _rows(seen)
    column = int((given[row] - wanted[row]).abs().nan_to_num(nan=torch.inf).argmax())
    index = row * wanted.shape[1] + column
    if place < outputs:
        what = element_name(evidence.name_of(evidence.forward.checked[place]), base, index)
    else:
        argument = evidence.inputs[place - outputs]
        what = f"the gradient at {element_name(argument.name, argument.value, index)}"
    told = (f"under autocast in {evidence.settings.autocast} {what} is {float(given[row, column]):.6g}, and not {float(wanted[row, column]):.6g} as "
            f"without: its row is off by {off:.2g}, where rounding every number costs {cost:.2g}")
    return Finding("GV117", told, input=None if place < outputs else evidence.inputs[place - outputs].name,
                   output=evidence.forward.checked[place] if place < outputs else None, hint=HINT)


def _flat(evidence: Evidence, point: Sequence[Tensor], around: Context, lowered: tuple[torch.dtype, torch.Generator] | None = None) -> list[Tensor]:
    """Outputs and gradients at a point in float64, forward inside `around`; `lowered`: forward and backward with every number rounded."""
    moved = iter(point)
    twin = evidence.subject.twin([replace(argument, value=next(moved).detach()) if argument.differentiable else argument
                                  for argument in evidence.subject.arguments])
    twin.around = around
    v = [cotangent.float() if lowered is None else shaken(cotangent.float(), *lowered) for cotangent in evidence.cotangents("base")]
    with rounded(*lowered) if lowered else nullcontext():
        outputs, gradients = Differentiable(twin, evidence.forward.checked).once(v)
    found = [torch.zeros_like(x) if g is None else g.detach() for g, x in zip(gradients, evidence.subject.inputs, strict=True)]
    return [y.double() for y in (*outputs, *found)]


def _rows(x: Tensor) -> Tensor:
    return x.reshape(-1, x.shape[-1]) if x.dim() and x.numel() else x.reshape(1, -1)
