"""Calls under vmap, and batched cotangents."""

from __future__ import annotations

import linecache
import re
from collections.abc import Sequence
from itertools import chain

import torch
from torch import Tensor

from gradverify.evidence import Evidence
from gradverify.model.result import Finding, Frame, Severity
from gradverify.rules.differ import differences
from gradverify.rules.shown import Findings, NotApplicable
from gradverify.subject.differentiable import batched_gradients
from gradverify.subject.failure import UserCodeError, attempted
from gradverify.subject.graph import lacking
from gradverify.subject.vmapped import SIZE, Batches, Dims
from gradverify.torch_private import CPP_NODE

# ---- GV110 vmap: a vmapped call differs from a loop
HINT = (
    "the vmap rule returns (outputs, out_dims), as a loop over the examples would: in_dims holds "
    "one entry per argument, the "
    "dimension that is batched, or None for an argument that all examples share"
)
GENERATED = (
    "the generated rule runs forward and backward on all examples at once, under vmap, where each "
    "must do what it does for one example"
)

LOUD = (
    "the generated rule runs forward and backward under vmap, which refuses this: do without it, "
    "write the rule by hand, or leave out generate_vmap_rule"
)
SHARED = (
    "torch's generated rule counts the gradient of an output that no batched argument reaches once "
    "for each example: return that output from a Function of its own, or write the rule by hand"
)


def gv110(evidence: Evidence) -> Findings:
    # why no vmap rule of the user's is in the graph; None where all Functions there declare one
    cls = lacking(evidence.forward.classes, "vmap", "generate_vmap_rule")
    undeclared = cls and f"{cls} declares no vmap rule"
    if not evidence.forward.classes:
        undeclared = (
            "no custom Function is in the graph, and torch's operators have torch's own rules "
            "(`vmap: true` runs them)"
        )
    if (
        reason := (evidence.settings.vmap == "auto" and undeclared)
        or evidence.modes.batches.impossible
    ):
        raise NotApplicable(reason)
    if undeclared is not None and evidence.forward.classes:
        yield Finding(
            "GV110",
            f"the spec says `vmap: true`, but {undeclared}",
            hint="say generate_vmap_rule = True, or leave out `vmap: true`",
        )
        return
    raised: Finding | None = None
    for dims in evidence.spending.some(
        evidence.modes.batches.variants, 2 * SIZE, 2 * SIZE, "choices of in_dims"
    ):
        finding = _tried(evidence, evidence.modes.batches, dims)
        if finding is not None and finding.severity == "error":
            yield finding
            return
        raised = raised or finding
    if raised is not None:
        yield raised


def _tried(evidence: Evidence, batches: Batches, dims: Dims) -> Finding | None:
    """The finding of one choice of in_dims."""
    shown = f"with in_dims ({', '.join(map(str, dims))}{',' if len(dims) == 1 else ''})"
    # A vmap rule that was written, and not generated
    by_hand = all(lacking([cls], "vmap") is None for cls in evidence.forward.classes)
    seen = attempted(batches.vmapped, dims)
    if isinstance(seen, UserCodeError):
        severity: Severity = "error" if evidence.settings.vmap is True else "warning"
        return Finding(
            "GV110",
            f"{shown} {seen.message}",
            severity=severity,
            frames=seen.frames,
            hint=None if by_hand else LOUD,
        )
    looped, hint = batches.looped(dims), HINT if by_hand else GENERATED
    names = [
        *map(evidence.name_of, evidence.forward.checked),
        *(f"grad_{argument.name}" for argument in evidence.inputs),
    ]
    for name, vmapped, loop in zip(
        names, (*seen.outputs, *seen.gradients), (*looped.outputs, *looped.gradients), strict=True
    ):
        if vmapped.shape != loop.shape:
            return Finding(
                "GV110",
                f"{shown} {name} has shape {list(vmapped.shape)}, but {list(loop.shape)} from a "
                "loop",
                hint=hint,
            )
    batched = [
        dim is not None for dim, wanted in zip(dims, batches.differentiable, strict=True) if wanted
    ]
    for example in range(SIZE):
        ours, theirs = ([y[example] for y in each.outputs] for each in (seen, looped))
        mine, loops = (
            [g[example] if own else g for g, own in zip(each.gradients, batched, strict=True)]
            for each in (seen, looped)
        )
        of_gradients = differences(evidence, loops, mine, evidence.cotangents(f"example {example}"))
        for each in chain(differences(evidence, theirs, ours, (), outputs=True), of_gradients):
            where, of = (
                each.where if each.input is None else f"grad_{each.where}",
                f" of example {example}",
            )
            if (
                each.input is not None
                and not batched[[argument.name for argument in evidence.inputs].index(each.input)]
            ):
                of = ""
            # a rule that torch generated is at fault where an output is the same for all examples
            same = not by_hand and any(torch.equal(y, y[:1].expand_as(y)) for y in looped.outputs)
            given, wanted = each.numbers
            return Finding(
                "GV110",
                f"{shown} {where}{of} is {given}, but {wanted} from a loop",
                hint=SHARED if same else hint,
            )
    return None


# ---- GV228 unbatchable: backward does not take several cotangents at once
FACTORS = (1.0, -0.5)  # of the base cotangent: backward is linear, or GV201 stands
# torch's words for a number out of a batch
ASKS = re.compile(r"aten::(item|_local_scalar_dense|is_nonzero|equal|allclose)\b")
# And for a batch that is written into one tensor
WRITES = re.compile(r"vmap: (aten::)?(\w+)\(self, ")
# Of rows and slices
PLACES = (
    "index_add_",
    "scatter_add_",
    "scatter_",
    "scatter_reduce_",
    "index_put_",
    "index_copy_",
    "copy_",
)
HINT_ASKS = (
    "use torch.where, or compute both branches, in place of .item(), float() or `if` on grad_output"
)
HINT_WRITES = "compute the gradient out of place, or write it into torch.zeros_like(grad_output)"


def gv228(evidence: Evidence) -> Findings:
    if evidence.function.leaf_only:
        raise NotApplicable("torch.autograd.grad is refused")
    if any(type(node).__name__ == CPP_NODE for node in evidence.forward.nodes):
        raise NotApplicable("a Function written in C++ reads memory that a batch has not")
    v = evidence.worked.cotangents
    try:
        seen = batched_gradients(
            evidence.subject,
            evidence.function,
            evidence.usable(),
            evidence.forward.classes,
            v,
            FACTORS,
        )
    except UserCodeError as error:
        yield _refused(error)
        return
    yield from _differing(evidence, v, seen)


def _refused(error: UserCodeError) -> Finding:
    """Raises NotApplicable where it is torch that cannot, or backward leaves torch."""
    asks, writes = ASKS.search(error.message), WRITES.search(error.message)
    if asks and _ends_a_loop(error.frames):
        raise NotApplicable(
            "backward iterates until grad_output has converged, which each cotangent does in its "
            "own time"
        )
    if asks:
        item = asks[1] in ("item", "_local_scalar_dense")
        operation = ".item()" if item else "an `if`" if asks[1] == "is_nonzero" else asks[1]
        return Finding(
            "GV228",
            "backward refuses batched cotangents (is_grads_batched): it asks grad_output for a "
            f"number ({operation})",
            hint=HINT_ASKS,
            frames=error.frames,
        )
    if writes and writes[2] not in PLACES:
        return Finding(
            "GV228",
            "backward refuses batched cotangents (is_grads_batched): it writes them in place "
            f"({writes[2]}) into a tensor that has no batch",
            hint=HINT_WRITES,
            frames=error.frames,
        )
    raise NotApplicable(f"a batched {error.message}")


def _ends_a_loop(frames: Sequence[Frame]) -> bool:
    """Is the question whether to go on, as a solver asks: `while …`, or `if …: break`?"""
    if not frames:
        return False
    last = frames[-1]
    answer = f"{last.text} {linecache.getline(last.file, last.line + 1).strip()}"
    return last.text.startswith("while ") or bool(re.match(r"(el)?if .*:\s*break\b", answer))


def _differing(evidence: Evidence, v: Sequence[Tensor], seen: Sequence[Tensor | None]) -> Findings:
    reported = set[str | None]()
    for place, factor in enumerate(FACTORS):
        wanted = [
            None if gradient is None else factor * gradient
            for gradient in evidence.worked.gradients
        ]
        given = [None if batch is None else batch[place] for batch in seen]
        for difference in differences(evidence, wanted, given, [factor * c for c in v]):
            many, alone = difference.numbers
            if difference.input not in reported:
                reported.add(difference.input)
                yield Finding(
                    "GV228",
                    f"of batched cotangents (is_grads_batched) the gradient at {difference.where} "
                    f"is {many}, of one alone {alone}",
                    input=difference.input,
                    hint="let backward treat every grad_output of the batch by itself",
                )
