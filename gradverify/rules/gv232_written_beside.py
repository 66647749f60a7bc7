"""GV232 written-beside: a call writes beside its tensor

What. Bytes before or behind an input, a result or `grad_output` are others after the call.

Why it matters. The memory belongs to somebody else: another tensor holds wrong numbers from then on, or the process
ends later, somewhere else. What is computed after such a call says nothing, so nothing else is looked at.

How it is measured. In the first call of the check 512 bytes before and behind each input, each cotangent, and the result
of each operation of torch (`torch.empty_like`, `zeros`, `clone`, what backward reads of what forward saved) hold a pattern
that is compared afterwards. They lie outside of the tensor's storage. Memory that a kernel gets elsewhere is not seen, and
no code that resizes or frees the storage of its tensors.

How to repair. Look at the first and the last index: `i < n` in the loop, a mask on the store of the last tile.

Example.
    @staticmethod
    def backward(ctx, grad_output):
        x, = ctx.saved_tensors
        grad = torch.empty_like(x)
        kernel(grad_output.data_ptr(), x.data_ptr(), grad.data_ptr(), x.numel() + 1)    # one too many
        return grad
"""

from __future__ import annotations

from collections.abc import Iterator

from gradverify.evidence import Evidence
from gradverify.model.result import Finding
from gradverify.rules.at_forward import at_forward

CATCHES = "writes_one_too_many"
ORDER = 2
RANK = 4
STOPS = True


def applies(evidence: Evidence, found: frozenset[str]) -> str | None:
    return None


def check(evidence: Evidence) -> Iterator[Finding]:
    beside = evidence.memory.beside
    if beside is not None:
        who = "backward" if evidence.memory.backward else "forward"
        count = abs(beside.element)
        where = "before the first" if beside.element < 0 else "behind the last"
        found = Finding("GV232", f"{who} writes beside its tensor: {count} element{'s' * (count > 1)} {where} of {beside.tensor} "
                        "there is another number after the call", hint="look at the first and the last index that is written")
        yield found if evidence.memory.backward else at_forward(found, evidence)
