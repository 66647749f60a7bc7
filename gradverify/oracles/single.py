"""A float32 function on two legs: its values against the reference's in float64, and against its own there, each beside what float32 costs.

Where forward is so noisy that its values do not decide, the noise is either float32's own (numbers that cancel, in that way to compute it) or the
kernel's (fewer bits inside). Run in float32 under `Disguised`, the function shows the first and not the second.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from gradverify.numerics.sixteen_bit import TensorResult
from gradverify.oracles.legs import Kernel, as_reference
from gradverify.subject.failure import UserCodeError
from gradverify.subject.subject import Subject
from gradverify.subject.wide import InDouble, widened


def off_both(subject: Subject, checked: Sequence[int]) -> list[tuple[TensorResult, TensorResult] | None]:
    """Of each checked output, how far it is from the reference and from the function itself in float64, where both are more than float32 explains.

    None of all where nothing tells whose noise it is: as in `off_itself`, and where the reference refuses float64.
    """
    if any(argument.parameter for argument in subject.arguments):
        return [None] * len(checked)
    itself = off_itself(subject, checked)
    if not any(itself):
        return [None] * len(checked)
    try:
        reference = Kernel(as_reference(_wide(subject)), subject, checked).outputs
    except UserCodeError:
        return [None] * len(checked)
    return [(a, b) if a.miss and b else None for a, b in zip(reference, itself, strict=True)]


def off_itself(subject: Subject, checked: Sequence[int]) -> list[TensorResult | None]:
    """Of each checked output, how far it is from the same function in float64, where that is more than float32 costs it.

    None of all where a differentiable input is not float32, where the function refuses float64, and where it computes out of torch's sight.
    """
    if any(x.dtype != torch.float32 for x in subject.inputs):
        return [None] * len(checked)
    wide = _wide(subject)
    wide.case = replace(wide.case, oracles=replace(wide.case.oracles, reference=None))
    kernel = Kernel(wide, subject, checked)
    try:
        return [each if each.miss and kernel.rounds else None for each in kernel.outputs]
    except UserCodeError:
        return [None] * len(checked)


def _wide(subject: Subject) -> Subject:
    return widened(subject, InDouble(lifts=True))
