"""GV227 single-backward: a second backward of one graph is refused

What. `backward(retain_graph=True)` works, and the next backward of the same graph raises, because the first one dropped or overwrote what it needs.
(Where the second one runs and gives another gradient, that is GV207, an error.)

Why it matters. Two losses on one output, a gradient penalty, `torch.autograd.functional.jacobian` and every check of gradients ask one graph more
than once, and say so with `retain_graph=True`. Autograd frees what `save_for_backward` holds as soon as nobody may ask again: a backward that
frees by itself saves nothing. A warning, as it raises and gives no wrong number: reversible networks do so on purpose.

How it is measured. The base backward runs with `retain_graph=True`, and is asked once more. Not where `torch.autograd.grad` itself is refused, as a
re-entrant checkpoint does, nor where backward is seen to overwrite its tensors (GV204).

How to repair. Leave on ctx what is on ctx: no `del ctx.x`, `ctx.x = None` or freed storage in backward.

Example.
    @staticmethod
    def backward(ctx, grad_output):
        mask = ctx.mask
        del ctx.mask                    # must stay: the next backward reads it
        return grad_output * mask
"""

from __future__ import annotations

from collections.abc import Iterator

from gradverify.evidence import Evidence
from gradverify.model.result import Finding
from gradverify.rules.agreement import torchs_own

SEVERITY = "warning"
CATCHES = "drops_its_mask_in_backward"
ORDER = 140
PRICE, WORTH = (0, 2), 200
APART = True
DAMAGED = ("GV202", "GV203", "GV204")


def applies(evidence: Evidence, found: frozenset[str]) -> str | None:
    damaged = min(found.intersection(DAMAGED), default=None)
    if damaged is not None:
        return f"{damaged} was found already"
    if not evidence.worked.direct:
        return "torch.autograd.grad is refused, as a re-entrant checkpoint does"
    return torchs_own(evidence)


def check(evidence: Evidence) -> Iterator[Finding]:
    refused = evidence.refused
    if refused is not None:
        yield Finding("GV227", f"a second backward of one graph is refused, though it was retained: {refused.message}", frames=refused.frames,
                      hint="a second backward must find on ctx what the first one found; what save_for_backward holds is freed by autograd itself")
