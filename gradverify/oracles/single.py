"""A float32 function on two legs: its values against the reference's in float64, and against its own there, each beside what float32 costs.

Where forward is so noisy that its values do not decide, the noise is either float32's own (numbers that cancel, in that way to compute it) or the
kernel's (fewer bits inside). Run in float32 under `Disguised`, the function shows the first and not the second.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from gradverify.numerics.native import Judged
from gradverify.oracles.legs import Kernel, as_reference
from gradverify.subject.failure import UserCodeError
from gradverify.subject.subject import Subject
from gradverify.subject.wide import InDouble, widened


def off_both(subject: Subject, checked: Sequence[int]) -> list[tuple[Judged, Judged] | None]:
    """Of each checked output, how far it is from the reference and from the function itself in float64, where both are more than float32 explains.

    None of all where a differentiable input is not float32, where the function or the reference refuses float64, and where the function computes out
    of torch's sight: then nothing tells whose noise it is.
    """
    if any(x.dtype != torch.float32 for x in subject.inputs) or any(argument.parameter for argument in subject.arguments):
        return [None] * len(checked)
    wide = widened(subject, InDouble(lifts=True))
    alone = replace(subject.case, oracles=replace(subject.case.oracles, reference=None))
    try:
        by_reference = Kernel(as_reference(wide), subject, checked).outputs
        wide.case = alone
        itself = Kernel(wide, subject, checked)
        pairs = zip(by_reference, itself.outputs, strict=True)
        return [(a, b) if a.miss and b.miss and itself.rounds else None for a, b in pairs]
    except UserCodeError:
        return [None] * len(checked)
