"""GV201 backward-linear: backward is not linear in grad_output

What. Backward of a combination of two cotangents is not the same combination of the two backwards.

Why it matters. A vector-Jacobian product is linear in its cotangent, whatever the function. A backward that ignores `grad_output`, clips,
masks or rounds it is right for `loss = y.sum()` only, which is how it was tested: the loss in training scales it, and then it is wrong.

How it is measured. With v a dense random cotangent and m a random 0/1 mask per element: a = backward(−3·2¹⁸·v·m), b = backward(2⁻⁴⁰·v·(1 − m));
then a/(−3·2¹⁸) + b·2⁴⁰ must be backward(v), relative to the size of the gradient. After this finding the Jacobian is not judged.

How to repair. Every gradient that backward returns must contain `grad_output` exactly once, as a factor.

Example.
    @staticmethod
    def backward(ctx, grad_output):
        x, y = ctx.saved_tensors
        return y, x                     # must be grad_output * y, grad_output * x
"""

from __future__ import annotations

from collections.abc import Iterator

from gradverify.evidence import Evidence
from gradverify.model.result import Finding
from gradverify.rules.shown import element_name

CATCHES = "mul_ignores_grad_output"


def applies(evidence: Evidence, found: frozenset[str]) -> str | None:
    return "there are no elements" if sum(y.numel() for y in evidence.outputs) == 0 else None


def check(evidence: Evidence) -> Iterator[Finding]:
    seen = evidence.non_linear
    if seen is not None:
        argument = next(argument for argument in evidence.inputs if argument.name == seen.input)
        yield Finding("GV201", "backward is not linear in grad_output: at "
                      f"{element_name(seen.input, argument.value, seen.index)} it gives {seen.together:.6g} for a cotangent, but {seen.apart:.6g} "
                      "when the same cotangent comes in two scaled halves", input=seen.input,
                      hint="every gradient that backward returns must contain grad_output exactly once, as a factor")
