"""GV202 grad-output-modified: backward writes into grad_output

What. The tensor that backward was given holds other numbers afterwards.

Why it matters. The caller's tensor is damaged: wherever autograd hands the same tensor to a second consumer (a residual connection, a
sum), that one computes with the wrong numbers. The gradient of this Function alone looks right.

How it is measured. The cotangents are compared by value before and after the base backward.

How to repair. Work on a copy: `grad_input = grad_output.clone()`, or `torch.where`, or multiply by a mask.

Example.
    @staticmethod
    def backward(ctx, grad_output):
        x, = ctx.saved_tensors
        grad_output[x < 0] = 0          # the caller's tensor
        return grad_output
"""

from __future__ import annotations

from collections.abc import Iterator

from gradverify.evidence import Evidence
from gradverify.model.result import Finding
from gradverify.rules.shown import element_name

CATCHES = "relu_modifies_grad_output"
ORDER = 90
METHOD = "backward"
RANK = 60
SPREADS = True


def applies(evidence: Evidence, found: frozenset[str]) -> str | None:
    return None


def check(evidence: Evidence) -> Iterator[Finding]:
    for output, change in evidence.worked.damaged:
        y = evidence.forward.outputs[output]
        detail = ""
        if change is not None:
            index, before, after = change
            detail = f": {element_name(f'grad_{evidence.name_of(output)}', y, index)} was {before:.6g} before, {after:.6g} after"
        yield Finding("GV202", f"backward writes into grad_output of {evidence.name_of(output)}{detail}", output=output,
                      hint="work on a copy: grad_output.clone(), torch.where, or a product with a mask")
