"""GV110 vmap: a vmapped call differs from a loop

What. `torch.vmap` of the function gives other outputs or gradients than one call per example; or the Function declares a vmap rule (a `vmap`
staticmethod, or `generate_vmap_rule = True`), and it raises: a warning, as the caller is told (an error where the spec says `vmap: true`).

Why it matters. Per-example gradients, ensembles and `jacrev` run the function under vmap. A rule that takes every argument as batched along its
first dimension is right in the first test and wrong where a weight is shared.

How it is measured. Three examples (x, a second point, 1.01 x) along in_dims 0 of all tensor arguments, along −1, and of each argument alone
along −1 with the others shared; output and gradient against a loop. Functions that write into their inputs or draw random numbers are left
out. Runs where every Function in the graph declares a rule, which then must not raise; `vmap: true` makes a missing one a finding, and runs
torch's own operators too.

How to repair. Where forward is made of torch operations, write it with `setup_context` and say `generate_vmap_rule = True`. Else move each
batched argument's dimension to where the kernel wants it, by `in_dims`; None means that the argument is shared.

Example.
    @staticmethod
    def vmap(info, in_dims, x, weight):         # of x @ weight.T
        return MatMul.apply(x, weight), 0       # weight may be batched too: in_dims[1] was not looked at
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from gradverify.evidence import Evidence
from gradverify.model.result import Finding, Severity
from gradverify.numerics.function.coordinates import flat_real
from gradverify.rules.agreement import DUST, NUDGE, loosened, tolerance
from gradverify.rules.shown import apart, element_name
from gradverify.rules.sound import unasked
from gradverify.subject.batches import SIZE, Batches
from gradverify.subject.declared import lacking
from gradverify.subject.failure import UserCodeError
from gradverify.subject.vmapped import Batch, Dims

CATCHES = "vmap_ignores_in_dims"
ORDER = 390
METHOD = "vmap"
PRICE, WORTH = (6, 6), 70
APART = True
HINT = ("the vmap rule returns (outputs, out_dims), as a loop over the examples would: in_dims holds one entry per argument, the "
        "dimension that is batched, or None for an argument that all examples share")
GENERATED = "the generated rule runs forward and backward on all examples at once, under vmap, where each must do what it does for one example"

LOUD = ("the generated rule runs forward and backward under vmap, which refuses this: do without it, write the rule by hand, or leave out "
        "generate_vmap_rule")
SHARED = ("torch's generated rule counts the gradient of an output that no batched argument reaches once for each example: return that output from a "
          "Function of its own, or write the rule by hand")


@dataclass(frozen=True, slots=True)
class Pair:
    """One tensor from vmap and from a loop; `batched`: its first dimension is the example."""

    name: str
    mine: Tensor
    theirs: Tensor
    batched: bool

    def element(self, coordinate: int) -> str:
        """`y0[2,1] of example 1`."""
        if not self.batched:
            return element_name(self.name, self.theirs, coordinate)
        example, rest = divmod(coordinate, flat_real(self.theirs[0]).numel())
        return f"{element_name(self.name, self.theirs[0], rest)} of example {example}"


def applies(evidence: Evidence, found: frozenset[str]) -> str | None:
    reason = unasked(evidence, "vmap", found)
    if not reason and evidence.settings.vmap == "auto":
        reason = _undeclared(evidence)
    return reason or evidence.modes.batches.impossible


def check(evidence: Evidence) -> Iterator[Finding]:
    undeclared = _undeclared(evidence) if evidence.forward.classes else None
    if undeclared is not None:
        yield Finding("GV110", f"the spec says `vmap: true`, but {undeclared}", hint="say generate_vmap_rule = True, or leave out `vmap: true`")
        return
    raised: Finding | None = None
    for dims in evidence.spending.some(evidence.modes.batches.variants, 2 * SIZE, 2 * SIZE, "choices of in_dims"):
        finding = _tried(evidence, evidence.modes.batches, dims)
        if finding is not None and finding.severity == "error":
            yield finding
            return
        raised = raised or finding
    if raised is not None:
        yield raised


def _undeclared(evidence: Evidence) -> str | None:
    """Why no vmap rule of the user's is in the graph; None where all Functions there declare one."""
    if not evidence.forward.classes:
        return "no custom Function is in the graph, and torch's operators have torch's own rules (`vmap: true` runs them)"
    cls = lacking(evidence.forward.classes, "vmap", "generate_vmap_rule")
    return None if cls is None else f"{cls} declares no vmap rule"


def _tried(evidence: Evidence, batches: Batches, dims: Dims) -> Finding | None:
    """The finding of one choice of in_dims."""
    shown = f"with in_dims ({', '.join(map(str, dims))}{',' if len(dims) == 1 else ''})"
    seen = batches.first if dims == batches.variants[0] else batches.vmapped(dims)
    if isinstance(seen, UserCodeError):
        severity: Severity = "error" if evidence.settings.vmap is True else "warning"
        return Finding("GV110", f"{shown} {seen.message}", severity=severity, frames=seen.frames, hint=None if _by_hand(evidence) else LOUD)
    pairs = _pairs(evidence, dims, seen, batches.looped(dims))
    for pair in pairs:
        if pair.mine.shape != pair.theirs.shape:
            return Finding("GV110", f"{shown} {pair.name} has shape {list(pair.mine.shape)}, but {list(pair.theirs.shape)} from a loop",
                           hint=_hint(evidence, []))
    wrong = {place: worst for place, pair in enumerate(pairs) if (worst := _worst(pair, tolerance(evidence.precision), 0.0)) is not None}
    if not wrong:
        return None
    noise = _noise(evidence, batches, dims)
    for place in wrong:
        pair, worst = pairs[place], _worst(pairs[place], loosened(evidence), noise[place])
        if worst is not None:
            mine, theirs = apart(float(flat_real(pair.mine)[worst]), float(flat_real(pair.theirs)[worst]))
            return Finding("GV110", f"{shown} {pair.element(worst)} is {mine}, but {theirs} from a loop", hint=_hint(evidence, pairs))
    return None


def _hint(evidence: Evidence, pairs: Sequence[Pair]) -> str:
    """What to change where numbers differ: a rule that torch generated is at fault where an output is the same for all examples."""
    outputs = [pair.theirs for pair in pairs[:len(evidence.forward.checked)]]
    if _by_hand(evidence):
        return HINT
    return SHARED if any(torch.equal(y, y[:1].expand_as(y)) for y in outputs) else GENERATED


def _by_hand(evidence: Evidence) -> bool:
    """Is there a vmap rule that was written, and not generated?"""
    return all(lacking([cls], "vmap") is None for cls in evidence.forward.classes)


def _pairs(evidence: Evidence, dims: Dims, seen: Batch, looped: Batch) -> list[Pair]:
    """Outputs, then gradients."""
    own = [dim for dim, wanted in zip(dims, evidence.modes.batches.differentiable, strict=True) if wanted]
    outputs = zip(evidence.forward.checked, seen.outputs, looped.outputs, strict=True)
    gradients = zip(evidence.inputs, own, seen.gradients, looped.gradients, strict=True)
    return [*(Pair(evidence.name_of(place), mine, theirs, True) for place, mine, theirs in outputs),
            *(Pair(f"grad_{argument.name}", mine, theirs, dim is not None) for argument, dim, mine, theirs in gradients)]


def _worst(pair: Pair, relative: float, noise: float) -> int | None:
    """The element that differs most, if by more than the tolerance; where the loop has no number, nothing is compared."""
    mine, theirs = flat_real(pair.mine), flat_real(pair.theirs)
    known = theirs.isfinite()
    if not known.any():
        return None
    off = torch.where(known, (mine - theirs).abs().nan_to_num(nan=torch.inf), torch.zeros_like(theirs))
    worst = int(off.argmax())
    return None if float(off[worst]) <= relative * float(theirs[known].abs().max()) + DUST * noise else worst


def _noise(evidence: Evidence, batches: Batches, dims: Dims) -> list[float]:
    """How far each tensor goes when the points are nudged: only what is rounding throughout (a sum over a norm's rows) goes far."""
    looped = batches.looped(dims)
    moved = batches.nudged(dims, NUDGE * tolerance(evidence.precision))
    changes = [(flat_real(pair.mine) - flat_real(pair.theirs)).abs() for pair in _pairs(evidence, dims, moved, looped)]
    return [float(change[change.isfinite()].max()) if change.isfinite().any() else 0.0 for change in changes]
