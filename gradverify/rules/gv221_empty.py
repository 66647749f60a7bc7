"""GV221 empty: backward fails on the empty tensor that the spec gives

What. Where the spec gives a zero size, backward raises, or its gradients are not what the sum over nothing is: zeros.

Why it matters. The last batch of a filtered data set, or an expert that got no token, is empty. It comes after hours of training.

How it is measured. The base backward on the inputs of the spec. Zero sizes are never tried unasked: some of torch's own operators crash on them.

How to repair. Do not loop, stack, divide by a count or take memory with `torch.empty` without thinking of zero.

Example.
    @staticmethod
    def backward(ctx, grad_output):
        return torch.stack([row.flip(0) for row in grad_output])        # no rows: stack raises
"""

from __future__ import annotations

from collections.abc import Iterator

from gradverify.evidence import Evidence
from gradverify.model.result import Finding
from gradverify.numerics.function.coordinates import flat_real

CATCHES = "stacks_no_rows"
ORDER = 70
REFUSED = True


def applies(evidence: Evidence, found: frozenset[str]) -> str | None:
    if "GV212" in found:
        return "GV212 was found already"
    return None if evidence.empty else "the spec gives no zero size"


def check(evidence: Evidence) -> Iterator[Finding]:
    error = evidence.backward.error
    if error is not None:
        shapes = ", ".join(f"{a.name} {list(a.value.shape)}" for a in evidence.subject.arguments if a.is_tensor)
        yield Finding("GV221", f"on an empty tensor ({shapes}) {error.message}", frames=error.frames,
                      hint="gradients have the inputs' shapes there too, and are zero where the sum is over nothing")
        return
    if any(y.numel() for y in evidence.outputs):
        return
    for argument, gradient in zip(evidence.inputs, evidence.backward.gradients, strict=True):
        if gradient is not None and bool((flat_real(gradient) != 0).any()):
            yield Finding("GV221", f"the output is empty, so the gradient of {argument.name} must be zero, but it holds "
                          f"{float(flat_real(gradient).abs().max()):.6g}", input=argument.name,
                          hint="a sum over nothing is zero")
