"""GV228 unbatchable: backward does not take several cotangents at once."""

from __future__ import annotations

import linecache
import re
from collections.abc import Iterator, Sequence

from torch import Tensor

from gradverify.evidence import Evidence
from gradverify.model.result import Finding, Frame
from gradverify.rules.agreement import clearly_differing, torchs_own
from gradverify.rules.protocol import NotApplicable
from gradverify.rules.sound import wrong_here
from gradverify.subject.batched import batched_gradients
from gradverify.subject.failure import UserCodeError
from gradverify.torch_private import CPP_NODE

FACTORS = (1.0, -0.5)       # of the base cotangent: backward is linear, or GV201 stands
ASKS = re.compile(r"aten::(item|_local_scalar_dense|is_nonzero|equal|allclose)\b")      # torch's words for a number out of a batch
WRITES = re.compile(r"vmap: (aten::)?(\w+)\(self, ")                # and for a batch that is written into one tensor
PLACES = ("index_add_", "scatter_add_", "scatter_", "scatter_reduce_", "index_put_", "index_copy_", "copy_")      # of rows and slices
HINT_ASKS = "use torch.where, or compute both branches, in place of .item(), float() or `if` on grad_output"
HINT_WRITES = "compute the gradient out of place, or write it into torch.zeros_like(grad_output)"


def applies(evidence: Evidence, found: frozenset[str]) -> str | None:
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


def check(evidence: Evidence) -> Iterator[Finding]:
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
