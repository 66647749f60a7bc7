"""GV119 fewer-bits: with products in TF32, or 16-bit sums in fewer bits, the gradient leaves its tolerance

What. With torch's switches for products in fewer bits on, outputs or gradients for the same `grad_output` are further from those with them
off than the check allows; or forward or backward raises.

Why it matters. Tensor cores read operands of float32 as TF32, ten bits of mantissa, where `torch.backends.cuda.matmul.allow_tf32` says so, and in
convolutions unless told otherwise. Most functions bear that. One that subtracts what is nearly equal (distances by |x|² + |y|² - 2xy, a variance by
squares) does not, and its training differs between GPUs. A kernel that reads the switch has a path of its own for it, which may be wrong.

How it is measured. Under `tf32: true`, in a check with `dtype: float32`, by two calls of forward and backward: no element may be off by more
than `atol` and `rtol` of the largest of its tensor. What rounding every number to ten bits costs stands beside it: far more than that comes from
another formula, and not from TF32. Under `reduced_sums: true`, with `dtype: bfloat16` or `float16`, row by row, within the native errors of both
(GV112): `allow_bf16_reduced_precision_reduction`, `allow_fp16_reduced_precision_reduction` and `allow_fp16_accumulation` are off, and then on. All
other rules judge the function without TF32. Both settings may stand in a `matrix:`; the switches are put back afterwards, whatever is raised.

How to repair. Another formula, or `torch.backends.cuda.matmul.allow_tf32 = False` around this product alone.

Example.
    @staticmethod
    def forward(ctx, x, y):                     # squared distances: in TF32 nothing is left of them
        ctx.save_for_backward(x, y)
        return x.square().sum(1)[:, None] + y.square().sum(1) - 2 * x @ y.T
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext

import torch
from torch import Tensor

from gradverify.evidence import Evidence
from gradverify.model.result import Finding
from gradverify.numerics.function.coordinates import flat_real
from gradverify.rules.agreement import flat, largest, off, unsteady, worst_of
from gradverify.rules.gv118_devices import beyond_native, side, where
from gradverify.rules.protocol import NotApplicable
from gradverify.subject.draw import generator
from gradverify.subject.failure import UserCodeError
from gradverify.subject.fewer_bits import in_all_bits, reduced_sums, tf32
from gradverify.subject.lowered import TF32, rounded, shaken

CATCHES = "subtracts_squares_in_tf32"
ORDER = 451
PRICE, WORTH = (6, 6), 58
APART = True
RUNS = 4        # with every number rounded, for what that costs
FAR = 8.0       # of what that costs, as GV117 has it: beyond it the formula is another
SAME = "it computes the same bits: nothing in it heeds the switch here"
ROUNDING = "its numbers need all bits of float32: keep TF32 away from it, or allow more (`rtol`)"
NO_FLOAT32 = "TF32 is a format for products of float32: say `dtype: float32`"
OTHERWISE = "rounding does not explain it: look for what else depends on the switch"


def applies(evidence: Evidence, found: frozenset[str]) -> str | None:
    settings, sixteen = evidence.settings, evidence.kernel is not None
    if not (settings.tf32 or settings.reduced_sums):
        return "the spec says neither `tf32: true` nor `reduced_sums: true`"
    if sixteen:
        return unsteady(found) if settings.reduced_sums else NO_FLOAT32
    if not settings.tf32:
        return "only products of 16 bits have such sums: say `dtype: bfloat16` or `float16`"
    return unsteady(found) if any(x.dtype is torch.float32 for x in evidence.subject.inputs) else NO_FLOAT32


def check(evidence: Evidence) -> Iterator[Finding | str]:
    kernel = evidence.kernel
    name = "TF32" if kernel is None else "sums in fewer bits"
    try:
        with in_all_bits():
            if kernel is None:
                yield from _in_tf32(evidence)
            else:
                beside = kernel.apart(kernel, reduced_sums(True))
                yield from beyond_native(evidence, "GV119", beside, f"with {name}", "without", OTHERWISE)
    except UserCodeError as error:
        yield Finding("GV119", f"with {name} {error.message}", frames=error.frames, hint=OTHERWISE)
    yield f"compared with {name}"


def _in_tf32(evidence: Evidence) -> Iterator[Finding]:
    wanted = _numbers(evidence)
    with tf32(True):
        given = _numbers(evidence)
    if all(map(torch.equal, wanted, given)):
        raise NotApplicable(f"with TF32 {SAME}")
    atol, rtol = evidence.settings.tolerances(low_precision=True)
    source = generator(evidence.settings.seed, evidence.subject.case.check, "TF32")
    runs = list[list[Tensor]]()
    for n, (x, y) in enumerate(zip(wanted, given, strict=True)):
        allowed, apart = atol + rtol * largest(x), off(x, y)
        worst = worst_of(apart, allowed)
        if worst is not None:
            runs = runs or [_numbers(evidence, source) for _ in range(RUNS)]
            cost = max(largest(run[n] - x) for run in runs)
            place, name, what = where(evidence, n, worst)
            told = (f"with TF32 {what} is {float(y[worst]):.6g}, and not {float(x[worst]):.6g} as without: off by {float(apart[worst]):.2g}, "
                    f"where the check allows {allowed:.2g} and rounding every number to ten bits costs {cost:.2g}")
            yield Finding("GV119", told, input=name, output=place, hint=ROUNDING if float(apart[worst]) <= FAR * cost else OTHERWISE)


def _numbers(evidence: Evidence, lowered: torch.Generator | None = None) -> list[Tensor]:
    """Real coordinates of each output, then of each gradient; `lowered`: with every number rounded to TF32, a little off each time.

    Raises UserCodeError.
    """
    v = [cotangent if lowered is None else shaken(cotangent, TF32, lowered) for cotangent in evidence.cotangents("base")]
    with rounded(TF32, lowered) if lowered else nullcontext():
        seen = side(evidence.subject.own, evidence, v)
    return [*map(flat_real, seen.outputs), *(flat(argument, g) for argument, g in zip(evidence.inputs, seen.gradients, strict=True))]
