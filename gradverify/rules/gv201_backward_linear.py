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

import torch
from torch import Tensor

from gradverify.evidence import Evidence
from gradverify.model.result import Finding
from gradverify.rules.agreement import DUST, SIXTEEN, dust, flat, largest, noise, tolerance
from gradverify.rules.shown import element_name
from gradverify.subject.draw import generator
from gradverify.subject.subject import Argument

CATCHES = "mul_ignores_grad_output"
FACTORS, FACTORS_16 = (-3.0 * 2.0**18, 2.0**-40), (-12.0, 2.0**-4)  # forced: signed, far apart, one no power of two; the second for 16 bits


def applies(evidence: Evidence, found: frozenset[str]) -> str | None:
    return "there are no elements" if sum(y.numel() for y in evidence.outputs) == 0 else None


def check(evidence: Evidence) -> Iterator[Finding]:
    source = generator(evidence.settings.seed, evidence.subject.case.check, "mask")
    v = evidence.cotangents("linear")
    masks = [torch.randint(0, 2, y.shape, generator=source).to(device=y.device, dtype=y.dtype) for y in evidence.outputs]
    grow, shrink = FACTORS_16 if evidence.precision > SIXTEEN else FACTORS
    together = _flat_vjp(evidence, [cotangent.clone() for cotangent in v])
    large = _flat_vjp(evidence, [grow * cotangent * mask for cotangent, mask in zip(v, masks, strict=True)])
    small = _flat_vjp(evidence, [shrink * cotangent * (1 - mask) for cotangent, mask in zip(v, masks, strict=True)])
    for argument, expected, a, b in zip(evidence.inputs, together, large, small, strict=True):
        apart = a / grow + b / shrink
        worst = _differing(evidence, argument, expected, apart)
        if worst is not None and float((expected - apart)[worst].abs()) > DUST * noise(evidence, argument, v, expected):
            where = element_name(argument.name, argument.value, worst)
            yield Finding("GV201", f"backward is not linear in grad_output: at {where} it gives {float(expected[worst]):.6g} for a cotangent, but "
                          f"{float(apart[worst]):.6g} when the same cotangent comes in two scaled halves", input=argument.name,
                          hint="every gradient that backward returns must contain grad_output exactly once, as a factor")
            return


def _flat_vjp(evidence: Evidence, cotangents: list[Tensor]) -> list[Tensor]:
    """Each input's gradient before the next call is made, which may use its memory again."""
    gradients = evidence.function.vjp(cotangents)
    return [flat(argument, gradient) for argument, gradient in zip(evidence.inputs, gradients, strict=True)]


def _differing(evidence: Evidence, argument: Argument, expected: Tensor, apart: Tensor) -> int | None:
    """The element where the two differ most, if by more than the tolerance; non-finite ones are another rule's."""
    finite = expected.isfinite() & apart.isfinite()
    if not finite.any():
        return None
    difference = torch.where(finite, (expected - apart).abs(), torch.zeros_like(expected))
    worst = int(difference.argmax())
    allowed = largest(expected[finite]) * tolerance(evidence.precision) + dust(evidence, argument.value)
    return worst if float(difference[worst]) > allowed else None
