"""GV226 narrow-dtype: in float32 the outputs are not float32, or the gradient is another one

What. The same Function on the same inputs in float32 (complex64): its outputs have another dtype, its gradient is not that of float64, or backward
raises.

Why it matters. Checks run in float64, training runs in float32. A branch by dtype, a kernel instance for float, a constant in the wrong precision are
executed there only.

How it is measured. One forward and one backward with every float64 input cast, against the base call. The gradient may differ by 1e-3 of its
size, or by 300 times what the forward's own values differ by, where that is more; what differs is compared again with float64 at the inputs that
casting left. Rounding is left alone: what comes and goes at points a few float32 numbers away, up to 64 roundings of the cotangents times the
inputs, and 64 roundings of the gradient at inputs of a half to an eighth, where a function that saturates has its slope. A forward that refuses
float32, overflows or loses its digits in it, or iterates without an end for a tolerance that only float64 reaches, is no fault: not applicable.

How to repair. Test with `dtype: float32` as well; make the dtype a parameter of the kernel, accumulate in more bits.

Example.
    @staticmethod
    def backward(ctx, grad_output):
        x, = ctx.saved_tensors
        if x.dtype == torch.float32:
            return grad_output * x      # the fast path forgot the 2
        return grad_output * 2 * x
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from gradverify.evidence import Evidence
from gradverify.model.result import Finding
from gradverify.numerics.function.coordinates import WIDE, flat_all, flat_real
from gradverify.numerics.rungs import U32, U64
from gradverify.rules.agreement import DUST, dust, flat, gradient_at, is_double, largest, nudged, off, unsteady, worst_of
from gradverify.rules.protocol import NotApplicable
from gradverify.rules.shown import element_name
from gradverify.subject.differentiable import Differentiable, Gradients
from gradverify.subject.disguised import undisguised
from gradverify.subject.draw import generator
from gradverify.subject.failure import UserCodeError
from gradverify.subject.iterating import Endless, watched
from gradverify.subject.subject import Argument

CATCHES = "forgets_in_float32"
ORDER = 270
PRICE, WORTH = (1, 1), 60
APART = True
NARROW = {wide: narrow for narrow, wide in WIDE.items()}
LEAST, TIMES = 1e-3, 300    # of the gradient's size; of the forward's own deviation
ROUNDINGS = 4               # of float32: how far the inputs are nudged to see whether the gradient is steady
POINTS, SPREADS = 8, 4.0    # nearby, and standard deviations between them: a gradient that is off by so much is rounding
SHRUNK = (0.5, 0.25, 0.125) # of the inputs: where a function that saturates has its slope
CAP = 64.0                  # roundings of the cotangents' norm times the largest input, and of the gradient: more is backward's own fault


def applies(evidence: Evidence, found: frozenset[str]) -> str | None:
    if evidence.subject.target.kind != "autograd.Function":
        return "the target is no autograd Function"
    if not is_double(evidence):
        return "an input is of lower precision already"
    return unsteady(found)


def check(evidence: Evidence) -> Iterator[Finding]:
    with _float32_itself(evidence):
        arguments = _cast(evidence.subject.arguments, NARROW)
    if not _suspected(evidence, arguments):
        return
    try:
        with _float32_itself(evidence):
            outputs, gradients = _once(evidence, arguments)
    except UserCodeError as error:
        if error.code != "GV003":
            raise NotApplicable(f"in float32 {error.message}") from None
        yield Finding("GV226", f"with float32 inputs {error.message}", frames=error.frames, hint="check backward with `dtype: float32`")
        return
    wrong = list(_dtypes(evidence, outputs))
    yield from wrong
    if not wrong:
        yield from _compared(evidence, arguments, gradients, _share(evidence, outputs))


def _suspected(evidence: Evidence, arguments: Sequence[Argument]) -> bool:
    """Does a call that is watched for its end show anything? Then a plain one tells. Raises NotApplicable where it is ended."""
    try:
        with _float32_itself(evidence):
            outputs, gradients = watched(lambda: _once(evidence, arguments))
        return any(True for _ in _dtypes(evidence, outputs)) or _some_off(evidence, gradients, _share(evidence, outputs))
    except Endless as endless:
        raise NotApplicable(f"in float32 {endless}: is its tolerance one of float64?") from None
    except (UserCodeError, NotApplicable):
        return True


def _cast(arguments: Sequence[Argument], to: Mapping[torch.dtype, torch.dtype]) -> list[Argument]:
    """The arguments in another precision. Raises NotApplicable where numbers are lost altogether."""
    cast = [replace(a, value=a.value.to(dtype=to[a.value.dtype])) if a.is_tensor and a.value.dtype in to else a for a in arguments]
    for before, after in zip(arguments, cast, strict=True):
        if before.is_tensor and before.value.is_floating_point():
            lost = (before.value.isfinite() & ~after.value.isfinite()) | ((before.value != 0) & (after.value == 0))
            if bool(lost.any()):
                raise NotApplicable(f"the numbers of {before.name} do not fit in float32")
    return cast


def _float32_itself(evidence: Evidence) -> AbstractContextManager[None]:
    """Where float32 is float32, in a check of 16 bits too."""
    return undisguised() if evidence.standing.lifted else nullcontext()


def _once(evidence: Evidence, arguments: Sequence[Argument], factor: float = 1.0) -> tuple[list[Tensor], Gradients]:
    return Differentiable(evidence.subject.twin(arguments), evidence.forward.checked).once([factor * v for v in evidence.cotangents("base")])


def _dtypes(evidence: Evidence, outputs: Sequence[Tensor]) -> Iterator[Finding]:
    for number, y, wide in zip(evidence.forward.checked, outputs, evidence.outputs, strict=True):
        wanted = NARROW.get(wide.dtype, wide.dtype)
        if y.dtype != wanted:
            names = [str(dtype).removeprefix("torch.") for dtype in (y.dtype, wanted)]
            yield Finding("GV226", f"with float32 inputs {evidence.name_of(number)} is {names[0]}, and not {names[1]}", output=number,
                          hint="make what forward computes in the dtype of its inputs")


def _deviation(evidence: Evidence, outputs: Sequence[Tensor]) -> float:
    """How far the forward's values in float32 are from those in float64, relative to each output's largest. Raises NotApplicable."""
    deviation = 0.0
    for y, wide in zip(outputs, evidence.outputs, strict=True):
        wanted, given = flat_real(wide), flat_real(y)
        if bool((wanted.isfinite() & ~given.isfinite()).any()):
            raise NotApplicable("the forward overflows in float32")
        size = largest(wanted)
        deviation = max(deviation, largest(off(wanted, given)) / size if size else 0.0)
    return deviation


def _share(evidence: Evidence, outputs: Sequence[Tensor]) -> float:
    """How far gradients may be off, of their size. Raises NotApplicable."""
    share = max(LEAST, TIMES * _deviation(evidence, outputs))
    if share >= 1:
        raise NotApplicable("the forward loses its digits in float32")
    return share


def _some_off(evidence: Evidence, gradients: Gradients, share: float) -> bool:
    return any(_worst(evidence, place, evidence.worked.gradients, gradients, share) is not None for place in range(len(gradients)))


def _compared(evidence: Evidence, arguments: Sequence[Argument], gradients: Gradients, share: float) -> Iterator[Finding]:
    if not _some_off(evidence, gradients, share):
        return
    wanted = _once(evidence, _cast(arguments, WIDE))[1]      # casting moved the inputs: once more, at where they are now
    for place, argument in enumerate(evidence.inputs):
        worst = _worst(evidence, place, wanted, gradients, share, steady=True)
        if worst is not None and not _rounding(evidence, arguments, place, worst):
            expected, given = (float(flat(argument, each[place])[worst]) for each in (wanted, gradients))
            where = element_name(argument.name, argument.value, worst)
            yield Finding("GV226", f"with float32 inputs the gradient at {where} is {given:.6g}, and not {expected:.6g} as in float64",
                          input=argument.name, hint="check backward with `dtype: float32`")
            return


def _worst(evidence: Evidence, place: int, wanted: Gradients, given: Gradients, share: float, steady: bool = False) -> int | None:
    """The element that is too far off; `steady`: leaving out what a rounding of the inputs moves as far."""
    argument = evidence.inputs[place]
    expected, got = flat(argument, wanted[place]), flat(argument, given[place])
    apart = off(expected, got)
    allowed = torch.full_like(apart, share * largest(expected) + dust(evidence, argument.value) * U32 / U64)
    if steady and bool((apart > allowed).any()):
        allowed += DUST * nudged(evidence, partial(gradient_at, evidence, evidence.cotangents("base"), place), ROUNDINGS * U32)
        allowed += CAP * U32 * _slope(evidence, place)
    return worst_of(apart, allowed)


def _slope(evidence: Evidence, place: int) -> float:
    """The largest gradient of one input where all inputs are smaller."""
    most = 0.0
    for share in SHRUNK:
        with suppress(UserCodeError):
            most = max(most, largest(gradient_at(evidence, evidence.cotangents("base"), place, [share * x for x in evidence.subject.inputs])))
    return most


def _rounding(evidence: Evidence, arguments: Sequence[Argument], place: int, worst: int) -> bool:
    """Does the float32 gradient of one element differ from float64 by what comes and goes from point to point, and by no more than the cap?"""
    source = generator(evidence.settings.seed, evidence.subject.case.check, "narrow")
    off, most = list[float](), 0.0
    try:
        for n in range(POINTS + 1):
            factor = 1 + n / (POINTS + 3)       # no power of two: what backward rounds inside is rounded anew
            with _float32_itself(evidence):
                beside = [_beside(a, source) if n and a.differentiable and a.is_tensor else a for a in arguments]
                own = _once(evidence, beside, factor)[1][place]
            both = own, _once(evidence, _cast(beside, WIDE), factor)[1][place]
            narrow, wide = (flat(evidence.inputs[place], gradient) / factor for gradient in both)
            off.append(float(narrow[worst] - wide[worst]))
            most = max(most, largest(wide))
    except (UserCodeError, Endless):
        return False
    size = float(flat_all(evidence.cotangents("base")).norm()) * max(1.0, largest(flat_all(evidence.subject.inputs))) + most
    away = torch.tensor(off, dtype=torch.float64)
    return bool(away.isfinite().all()) and abs(off[0]) <= CAP * U32 * size and abs(off[0]) <= SPREADS * float(away[1:].std())


def _beside(argument: Argument, source: torch.Generator) -> Argument:
    """The argument a few float32 numbers away."""
    x = argument.value
    return replace(argument, value=(x + ROUNDINGS * U32 * x.abs() * torch.randn(x.shape, generator=source).to(x)).to(x.dtype))
