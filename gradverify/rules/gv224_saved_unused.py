"""GV224 saved-unused: forward saves tensors that backward never reads

What. `ctx.save_for_backward` was called, and backward never looked at `ctx.saved_tensors`.

Why it matters. The tensors stay in memory from forward to backward, for every call in the graph, for nothing. A warning.

How it is measured. Hooks count what is packed in the base forward and unpacked in the base backward. Only where every floating input needs a
gradient: otherwise a branch of backward may rightly leave them alone.

How to repair. Do not save them.

Example.
    @staticmethod
    def forward(ctx, x, y):
        result = x + y
        ctx.save_for_backward(result)   # backward returns grad_output, grad_output
        return result
"""

from __future__ import annotations

from collections.abc import Iterator

from gradverify.evidence import Evidence
from gradverify.model.result import Finding

SEVERITY = "warning"
CATCHES = "add_saves_unused"
ORDER = 130
METHOD = "saving"
APART = True


def applies(evidence: Evidence, found: frozenset[str]) -> str | None:
    if evidence.subject.target.kind != "autograd.Function":
        return "the target is no autograd Function"
    floating = [a for a in evidence.subject.arguments if a.is_tensor and (a.value.is_floating_point() or a.value.is_complex())]
    if any(not a.differentiable for a in floating):
        return "a floating input needs no gradient here"
    if evidence.forward.packed is None:
        return "what forward saves cannot be counted: it calls torch.func, which refuses the hooks that would"
    return None


def check(evidence: Evidence) -> Iterator[Finding]:
    packed = evidence.forward.packed
    if packed and not evidence.worked.unpacked:
        yield Finding("GV224", f"forward saves {packed} tensor{'s' if packed > 1 else ''} for backward, which never reads ctx.saved_tensors",
                      hint="what save_for_backward holds stays in memory until backward; what backward does not need can be left out")
