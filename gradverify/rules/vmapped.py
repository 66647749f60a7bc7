"""Calls under vmap, and batched cotangents."""

from __future__ import annotations

import linecache
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from gradverify.evidence import Evidence
from gradverify.model.result import Finding, Frame, Severity
from gradverify.numerics.function.coordinates import flat_real
from gradverify.rules.differ import DUST, NUDGE, clearly_differing, loosened, tolerance, torchs_own
from gradverify.rules.protocol import NotApplicable
from gradverify.rules.shown import apart, element_name
from gradverify.rules.sound import unasked, wrong_here
from gradverify.subject.differentiable import batched_gradients
from gradverify.subject.failure import UserCodeError
from gradverify.subject.graph import lacking
from gradverify.subject.vmapped import SIZE, Batch, Batches, Dims
from gradverify.torch_private import CPP_NODE

# ---- GV110 vmap: a vmapped call differs from a loop
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


def gv110_applies(evidence: Evidence, found: frozenset[str]) -> str | None:
    reason = unasked(evidence, "vmap", found)
    if not reason and evidence.settings.vmap == "auto":
        reason = _undeclared(evidence)
    return reason or evidence.modes.batches.impossible


def gv110(evidence: Evidence) -> Iterator[Finding]:
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
    seen = batches.vmapped(dims)
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


# ---- GV228 unbatchable: backward does not take several cotangents at once
FACTORS = (1.0, -0.5)       # of the base cotangent: backward is linear, or GV201 stands
ASKS = re.compile(r"aten::(item|_local_scalar_dense|is_nonzero|equal|allclose)\b")      # torch's words for a number out of a batch
WRITES = re.compile(r"vmap: (aten::)?(\w+)\(self, ")                # and for a batch that is written into one tensor
PLACES = ("index_add_", "scatter_add_", "scatter_", "scatter_reduce_", "index_put_", "index_copy_", "copy_")      # of rows and slices
HINT_ASKS = "use torch.where, or compute both branches, in place of .item(), float() or `if` on grad_output"
HINT_WRITES = "compute the gradient out of place, or write it into torch.zeros_like(grad_output)"


def gv228_applies(evidence: Evidence, found: frozenset[str]) -> str | None:
    if evidence.odd is not None:
        return evidence.odd
    wrong = wrong_here(found)
    if wrong is not None:
        return f"{wrong} has to be repaired first"
    if evidence.subject.writes:
        return "the function writes into its inputs"
    if evidence.draws:
        return "the function draws random numbers"
    if evidence.function.leaf_only:
        return "torch.autograd.grad is refused"
    if any(type(node).__name__ == CPP_NODE for node in evidence.forward.nodes):
        return "a Function written in C++ reads memory that a batch has not"
    return torchs_own(evidence)


def gv228(evidence: Evidence) -> Iterator[Finding]:
    v = evidence.worked.cotangents
    try:
        seen = batched_gradients(evidence.subject, evidence.function, evidence.usable(), evidence.forward.classes, v, FACTORS)
    except UserCodeError as error:
        yield _refused(error)
        return
    yield from _differing(evidence, v, seen)


def _refused(error: UserCodeError) -> Finding:
    """Raises NotApplicable where it is torch that cannot, or backward leaves torch."""
    asks, writes = ASKS.search(error.message), WRITES.search(error.message)
    if asks and _ends_a_loop(error.frames):
        raise NotApplicable("backward iterates until grad_output has converged, which each cotangent does in its own time")
    if asks:
        return Finding("GV228", "backward refuses batched cotangents (is_grads_batched): it asks grad_output for a number "
                       f"({'.item()' if asks[1] in ('item', '_local_scalar_dense') else 'an `if`' if asks[1] == 'is_nonzero' else asks[1]})",
                       hint=HINT_ASKS, frames=error.frames)
    if writes and writes[2] not in PLACES:
        return Finding("GV228", f"backward refuses batched cotangents (is_grads_batched): it writes them in place ({writes[2]}) into a tensor that "
                       "has no batch", hint=HINT_WRITES, frames=error.frames)
    raise NotApplicable(f"a batched {error.message}")


def _ends_a_loop(frames: Sequence[Frame]) -> bool:
    """Is the question whether to go on, as a solver asks: `while …`, or `if …: break`?"""
    if not frames:
        return False
    last = frames[-1]
    answer = f"{last.text} {linecache.getline(last.file, last.line + 1).strip()}"
    return last.text.startswith("while ") or bool(re.match(r"(el)?if .*:\s*break\b", answer))


def _differing(evidence: Evidence, v: Sequence[Tensor], seen: Sequence[Tensor | None]) -> Iterator[Finding]:
    for argument, expected, batch in zip(evidence.inputs, evidence.worked.gradients, seen, strict=True):
        for place, factor in enumerate(FACTORS):
            wanted = None if expected is None else factor * expected
            difference = clearly_differing(evidence, argument, wanted, None if batch is None else batch[place], [factor * c for c in v])
            if difference is not None:
                many, alone = difference.numbers
                yield Finding("GV228", f"of batched cotangents (is_grads_batched) the gradient at {difference.where} is {many}, of one alone {alone}",
                              input=argument.name, hint="let backward treat every grad_output of the batch by itself")
                break
