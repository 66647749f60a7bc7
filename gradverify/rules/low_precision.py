"""Rules for what fewer bits cost: 16 bits, autocast, TF32, float32."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from gradverify.evidence import Evidence
from gradverify.model.result import Comparison, Entry, Finding, Reproduced
from gradverify.numerics.function.coordinates import DOUBLE, UNITS, WIDE, flat_real
from gradverify.numerics.function.coordinates import place as index_of
from gradverify.numerics.rungs import U32
from gradverify.numerics.sixteen_bit import ELEMENT, TensorResult
from gradverify.rules.at_line import at_forward_of, at_returned
from gradverify.rules.differ import (
    Difference,
    Repeats,
    Variant,
    difference,
    in_words,
    largest,
    off,
    side,
    worst_of,
)
from gradverify.rules.engine import NotApplicable, refused
from gradverify.rules.shown import Findings, Result, RuleResults, results
from gradverify.subject.draw import DTYPES
from gradverify.subject.failure import UserCodeError, attempted, tried
from gradverify.subject.fewer_bits import in_all_bits, reduced_sums, tf32
from gradverify.subject.forms import dtype_name
from gradverify.subject.iterating import Endless, watched
from gradverify.subject.rounding import ROUNDOFF, TF32, Perturbed, Rounded, shaken
from gradverify.subject.subject import Argument, Subject, filled
from gradverify.torch_private import without_modes

# ---- GV112 low-precision: in bfloat16 or float16 the function is further off than rounding every
# number to that dtype explains
KINDS = {
    "element": "",
    "row": "; no element is far off by itself, but the row is",
    "whole": "; no row is far off by itself, but all together are",
    "gain": "; every element is within rounding, but all are off by one factor",
}
INTEGERS = (
    "Triton's interpreter computes with bfloat16 as with integers, so that this may be its fault "
    "and not the kernel's"
)
CAST = "cast to float32 after `tl.load`, and to bfloat16 before `tl.store`, or check it on a GPU"
WITHOUT = "give the random numbers as an input, or check without them (evaluation mode, `p: 0`)"
NAME_ONE = "name a `reference` in torch operations, of which it is known"
OVERFLOW = "an overflow on the way there"


def gv112(evidence: Evidence) -> RuleResults:
    kernel = evidence.kernel
    if kernel is None:
        raise NotApplicable("no differentiable input has 16 bits")
    unknown = ""
    if evidence.draws:
        unknown = (
            f"forward draws random numbers, which are others in {kernel.name} than in float64: "
            "what it gives cannot be compared"
        )
    elif evidence.interpreter and not evidence.subject.case.oracles.reference:
        unknown = (
            f"what {kernel.name} costs anyway is not known of kernels in Triton, whose operations "
            "are none of torch's"
        )
    if unknown:
        yield Finding(
            "GV007", unknown, severity="error", hint=WITHOUT if evidence.draws else NAME_ONE
        )
        return
    # Triton's interpreter, which treats bfloat16 as integers, may be at fault
    doubtful = evidence.interpreter is not None and kernel.dtype == torch.bfloat16
    seen = kernel.judged
    for of, each in zip(results(evidence), seen, strict=True):
        yield _comparison(of, each)
    for found in beyond_native(
        evidence,
        "GV112",
        seen,
        f"in {kernel.name}",
        "in float64",
        f"look for what differs in {kernel.name} from float32",
    ):
        found = _at_kernel(found, evidence)
        if doubtful:
            message = f"{found.message}; {INTEGERS}"
            found = replace(found, code="GV007", severity="error", message=message, hint=CAST)
        elif found.message.endswith(OVERFLOW):
            hint = (
                f"something before it leaves the range of {kernel.name}: scale first, or compute "
                "it in float32"
            )
            found = replace(found, hint=hint)
        yield found
    repeats = list[Reproduced]()  # the different results of identical calls
    for of, given in zip(results(evidence), kernel.repeated, strict=True):
        name = of.name if of.input is None else f"grad of {of.name}"
        count = Repeats(f"{name} in {kernel.name}")
        for result in given:
            count.add(result)
        repeats.append(count.summary(UNITS[kernel.dtype]))
    evidence.reproduced += repeats
    beyond = sum(each.beyond for each in seen)
    left = f"; {beyond:,} numbers that {kernel.name} cannot hold were left out" if beyond else ""
    sees = (
        f"in {kernel.name} at most {max(each.ratio for each in seen):#.3g} × the native error in a "
        f"row; would see a row that is off by {100 * max(each.share for each in seen):.2g} % of "
        f"its size, an element by {ELEMENT:g} native errors{left}"
    )
    yield "; ".join(filter(None, (sees, in_words(repeats))))


def _at_kernel(finding: Finding, evidence: Evidence) -> Finding:
    """Place a finding at the kernel's backward or forward, also where its reference is the function
    that runs in float64."""
    subject = evidence.subject.narrow or evidence.subject
    if finding.input is None and subject.target.kind == "autograd.Function":
        return at_forward_of(finding, subject.target.subject)
    return at_returned(finding, subject)


def _comparison(of: Result, each: TensorResult) -> Comparison:
    index = index_of(of.tensor.shape, False, each.index)[0] if each.elements else ()
    error = abs(each.kernel - each.exact)
    entry = Entry(
        index if of.input is None else (),
        () if of.input is None else index,
        each.kernel,
        each.exact,
        0.0,
        each.tolerance,
        error,
        error / abs(each.exact) if each.exact else 0.0,
        "mismatch" if each.miss else "pass",
    )
    return Comparison(
        "GV112",
        of.input or "",
        of.output,
        each.elements,
        mismatched=max(each.wrong, int(bool(each.miss))),
        max_abs_error=each.max_error,
        max_rel_error=entry.rel_error,
        resolution=each.sees,
        worst=(entry,) if each.elements else (),
    )


# ---- GV117 under-autocast: with forward inside autocast outputs or gradients are off by far more
# than 16 bits cost, or something raises
NATIVE = 4  # runs with every number rounded, for the native error
# Points near the inputs at which a row has to be off too: a number that rounds to the other side of
# a step at one point does not at another
NEARBY = 2
FAR = 8.0  # native errors
# Share of its size by which rounding may change a row that is judged (the layer_norm of nearly
# constant numbers changes by more)
LOST = 0.25
CASTS = (
    "look for a cast or a branch on the dtype; torch.amp.custom_fwd and custom_bwd run backward "
    "under the autocast of forward"
)
Point = Sequence[Tensor]


class Judged(NamedTuple):
    """The rows [R] of one output or gradient: their numbers as usual and in fewer bits [R, N], how
    far apart these are, the native error, and which rows are wrong or can be judged at all."""

    usual: Tensor
    seen: Tensor
    off: Tensor
    cost: Tensor
    wrong: Tensor
    known: Tensor


def beyond_rounding(
    here: Point,
    nearby: Callable[[], Point],
    usual: Callable[[Point], Point],
    seen: Callable[[Point], Point],
    native: Callable[[], Point],
    unit: float,
    least: float = 0.0,
) -> list[Judged]:
    """Judge every output, then every gradient, of a call in fewer bits (`seen`) against the usual
    one, at the inputs (`here`) and at points near them.

    A row is wrong where at each of these points it is off by more than FAR times what rounding
    every number costs (`native`, at the inputs), and by more than `least` of its size. Raises
    UserCodeError where the function raises.
    """
    pairs = list[tuple[list[Tensor], list[Tensor]]]()
    costs = list[list[Tensor]]()
    judged = list[Judged]()
    most = torch.finfo(torch.float64).max
    for times in (1, 2):  # a row may be steep by chance: a wrong one is judged again by more runs
        points = [*([] if pairs else [here]), *(nearby() for _ in range(NEARBY * times))]
        pairs += [(_rows(usual(point)), _rows(seen(point))) for point in points]
        costs += [_rows(native()) for _ in range(NATIVE * times**2)]
        judged.clear()
        for n, base in enumerate(pairs[0][0]):
            cost = torch.stack(
                [(run[n] - base).norm(dim=1) for run in (*costs, *(pair[0] for pair in pairs[1:]))]
            ).amax(0)
            size = base.norm(dim=1)
            off_by = torch.stack(
                [(b[n] - a[n]).norm(dim=1).nan_to_num(nan=most, posinf=most) for a, b in pairs]
            ).amin(0)
            known = cost.isfinite() & size.isfinite() & (cost <= LOST * size)
            allowed = torch.maximum(FAR * (cost + unit * size), least * size)
            judged.append(
                Judged(base, pairs[0][1][n], off_by, cost, known & (off_by > allowed), known)
            )
        if not any(bool(each.wrong.any()) for each in judged):
            break
    return judged


def _rows(tensors: Point) -> list[Tensor]:
    """Return the real coordinates of each tensor as rows along its last dimension, in float64."""
    found = list[Tensor]()
    for x in tensors:
        if x.is_complex():
            x = torch.view_as_real(x.resolve_conj()).reshape(*x.shape[:-1], -1)
        parts = x.detach().double()
        by_row = parts.dim() and parts.numel()
        found.append(parts.reshape(-1, parts.shape[-1]) if by_row else parts.reshape(1, -1))
    return found


def worst_element(of: Result, each: Judged) -> tuple[Difference, float, float]:
    """Return the worst element of the wrong row that is furthest off, how far the row is off, and
    its native error."""
    row = int(
        torch.where(each.wrong, each.off / (each.cost + each.usual.norm(dim=1)), -1.0).argmax()
    )
    column = int((each.seen[row] - each.usual[row]).abs().nan_to_num(nan=torch.inf).argmax())
    at = row * each.usual.shape[1] + column
    found = difference(of, at, float(each.usual[row, column]), float(each.seen[row, column]))
    return found, float(each.off[row]), float(each.cost[row])


def _filled(evidence: Evidence, subject: Subject, v: Sequence[Tensor]) -> list[Tensor]:
    """Return all outputs of one call, then all gradients, zeros for those that are None."""
    seen = side(subject, evidence, v)
    return [*seen.outputs, *filled(seen.gradients, evidence.subject.inputs)]


def _at(evidence: Evidence, point: Point) -> Subject:
    moved = iter(point)
    return evidence.subject.mapped(lambda a: next(moved).detach() if a.differentiable else a.value)


def gv117(evidence: Evidence) -> RuleResults:
    name = evidence.settings.autocast
    if name is None:
        raise NotApplicable("the spec does not name a dtype under `autocast`")
    if any(x.dtype is not torch.float32 for x in evidence.subject.inputs):
        raise NotApplicable(
            "an input is not float32: autocast leaves float64 alone (`dtype: float32`)"
        )
    dtype, here = DTYPES[name], evidence.subject.leaves()
    source = evidence.subject.generator("autocast")
    v = [c.float() for c in evidence.cotangents("base")]

    def usual(point: Point) -> Point:
        return _filled(evidence, _at(evidence, point), v)

    def seen(point: Point) -> Point:
        twin = _at(evidence, point)
        twin.around = partial(torch.autocast, here[0].device.type, dtype=dtype)
        return _filled(evidence, twin, v)

    def native() -> Point:
        with Rounded(dtype, source):
            return _filled(evidence, _at(evidence, here), [shaken(c, dtype, source) for c in v])

    with refused("GV117", f"under autocast in {name}", CASTS):
        judged = beyond_rounding(
            here,
            lambda: [shaken(x, dtype, source) for x in here],
            usual,
            seen,
            native,
            ROUNDOFF[dtype],
        )
    variant = Variant("GV117", f"under autocast in {name}", "as without", CASTS)
    for of, each in zip(results(evidence), judged, strict=True):
        if each.wrong.any():
            found, off_by, cost = worst_element(of, each)
            yield variant.found(
                found,
                f": its row is off by {off_by:.2g}, where rounding every number costs {cost:.2g}",
            )
    unjudged = sum(int((~each.known).sum()) for each in judged)
    if unjudged:
        lost = "are lost or overflow when every number is rounded, and are not judged"
        yield f"{unjudged} rows {lost}"


def beyond_native(
    evidence: Evidence, code: str, judged: Sequence[TensorResult], inside: str, here: str, hint: str
) -> Findings:
    """Yield a finding for every output and every gradient in 16 bits whose numbers `inside` differ
    from those `here` by more than the native error."""
    variant = Variant(code, inside, f"as {here}", hint)
    for of, each in zip(results(evidence), judged, strict=True):
        if each.miss:
            row = f", row {each.row} worst" if of.tensor.dim() > 1 else ""
            by = (
                OVERFLOW
                if each.miss == "overflow"
                else f"{each.ratio:.3g} × the native error{row}{KINDS[each.miss]}"
            )
            yield variant.found(difference(of, each.index, each.exact, each.kernel), f": {by}")


# ---- GV119 fewer-bits: with products in TF32, or 16-bit sums in fewer bits, the gradient leaves
# its tolerance
RUNS = 4  # runs with every number rounded, for what that costs
SAME = "it computes the same bits: nothing in it heeds the switch here"
ROUNDING = "its numbers need all bits of float32: keep TF32 away from it, or allow more (`rtol`)"
NO_FLOAT32 = "TF32 is a format for products of float32: say `dtype: float32`"
OTHERWISE = "rounding does not explain it: look for what else depends on the switch"


def gv119(evidence: Evidence) -> RuleResults:
    settings, kernel = evidence.settings, evidence.kernel
    if not (settings.tf32 or settings.reduced_sums):
        raise NotApplicable("the spec says neither `tf32: true` nor `reduced_sums: true`")
    if kernel is None and not settings.tf32:
        raise NotApplicable(
            "only products of 16 bits have such sums: say `dtype: bfloat16` or `float16`"
        )
    if (
        not settings.reduced_sums
        if kernel
        else all(x.dtype is not torch.float32 for x in evidence.subject.inputs)
    ):
        raise NotApplicable(NO_FLOAT32)
    name = "sums in fewer bits" if kernel else "TF32"
    yield f"compared with {name}"
    with refused("GV119", f"with {name}", OTHERWISE), in_all_bits():
        if kernel is None:
            yield from _in_tf32(evidence)
        else:
            judged = kernel.apart(kernel, reduced_sums(True))
            yield from beyond_native(
                evidence, "GV119", judged, f"with {name}", "without", OTHERWISE
            )


def _in_tf32(evidence: Evidence) -> Findings:
    v, own = evidence.cotangents("base"), evidence.subject.own
    source = evidence.subject.generator("TF32")

    def numbers(cotangents: Sequence[Tensor] = v) -> list[Tensor]:
        return list(map(flat_real, _filled(evidence, own, cotangents)))

    def native() -> list[Tensor]:
        with Rounded(TF32, source):
            return numbers([shaken(c, TF32, source) for c in v])

    usual = numbers()
    with tf32(True):
        seen = numbers()
    if all(map(torch.equal, usual, seen)):
        raise NotApplicable(f"with TF32 {SAME}")
    atol, rtol = evidence.settings.tolerances(low_precision=True)
    runs = list[list[Tensor]]()
    for n, (of, x, y) in enumerate(zip(results(evidence), usual, seen, strict=True)):
        allowed, apart = atol + rtol * largest(x), off(x, y)
        worst = worst_of(apart, allowed)
        if worst is not None:
            runs = runs or [native() for _ in range(RUNS)]
            cost, by = max(largest(run[n] - x) for run in runs), float(apart[worst])
            hint = ROUNDING if by <= FAR * cost else OTHERWISE
            yield Variant("GV119", "with TF32", "as without", hint).found(
                difference(of, worst, float(x[worst]), float(y[worst])),
                f": off by {by:.2g}, where the check allows {allowed:.2g} and rounding every "
                f"number to ten bits costs {cost:.2g}",
            )


# ---- GV222 precision-inside: the forward computes in fewer bits than it claims
# Unit roundoff and name, the coarsest first
FORMATS = ((2.0**-8, "bfloat16"), (2.0**-11, "float16"), (2.0**-24, "float32"))


def gv222(evidence: Evidence) -> Findings:
    seen = {
        output: max(pair.unit, evidence.precisions[output])
        for (_, output), pair in evidence.jacobian.pairs.items()
        if pair.low_precision
    }
    for output, unit in seen.items():
        if unit >= FORMATS[-1][0] and evidence.outputs[output].dtype in DOUBLE:
            y = results(evidence)[output]
            name = next(name for least, name in FORMATS if unit >= least)
            yield Finding(
                "GV222",
                f"every value of {y.name}, which is {dtype_name(y.tensor)}, is a {name} number: "
                f"forward computes in {name}, or rounds to it",
                output=y.output,
                hint="compute in the inputs' own dtype, unless forward is meant to round",
            )


# ---- GV226 narrow-dtype: in float32 the outputs are not float32, or the gradient is another one
NARROW = {wide: narrow for narrow, wide in WIDE.items()}
LEAST = 1e-4  # of a row's size
ROUNDINGS = 4  # of float32: how far nearby points are from the inputs
IN_FLOAT32 = "check backward with `dtype: float32`"
LOSES = "the forward loses its digits in float32"


def gv226(evidence: Evidence) -> Findings:
    v, count = evidence.cotangents("base"), len(evidence.forward.checked)
    source = evidence.subject.generator("narrow")
    # float32 is float32, in a check of 16 bits too
    itself: Callable[[], AbstractContextManager[None]] = (
        without_modes if evidence.first_leg.lifted else nullcontext
    )

    def usual(point: Point) -> Point:
        with itself():
            subject = _cast(_at(evidence, point), NARROW, WIDE)
        return _filled(evidence, subject, v)

    def seen(point: Point) -> Point:
        with itself():
            return _filled(evidence, _cast(_at(evidence, point), NARROW), v)

    def nearby() -> Point:
        with itself():
            return [
                (x + ROUNDINGS * U32 * x.abs() * torch.randn(x.shape, generator=source).to(x)).to(
                    x.dtype
                )
                for x in here
            ]

    def native() -> Point:
        with Perturbed(source):
            return usual(here)

    with itself():
        here = [x.to(NARROW[x.dtype]) for x in evidence.subject.inputs]
        narrow = _cast(evidence.subject, NARROW)
        for argument, cast in zip(evidence.subject.arguments, narrow.arguments, strict=True):
            if argument.is_tensor and argument.value.is_floating_point():
                before, after = argument.value, cast.value
                lost = (before.isfinite() & ~after.isfinite()) | ((before != 0) & (after == 0))
                if bool(lost.any()):
                    raise NotApplicable(f"the numbers of {argument.name} do not fit in float32")
    with refused("GV226", "with float32 inputs", IN_FLOAT32, only="GV003"):
        try:
            first = attempted(watched, lambda: seen(here))
        except Endless as endless:
            raise NotApplicable(f"in float32 {endless}: is its tolerance one of float64?") from None
        if isinstance(first, UserCodeError):
            if tried(usual, here) is None:
                raise NotApplicable("with inputs rounded to float32 it raises in float64 too")
            raise first
        if not _odd_dtypes(evidence, first) and _like_float64(evidence, first):
            return
        odd = _odd_dtypes(evidence, seen(here))
        judged = [] if odd else beyond_rounding(here, nearby, usual, seen, native, U32, LEAST)
    for number, given, wanted in odd:
        yield Finding(
            "GV226",
            f"with float32 inputs {evidence.name_of(number)} is {given}, and not {wanted}",
            output=number,
            hint="make what forward computes in the dtype of its inputs",
        )
    if any(bool((each.usual.isfinite() & ~each.seen.isfinite()).any()) for each in judged[:count]):
        raise NotApplicable("the forward overflows in float32")
    if not all(bool(each.known.all()) for each in judged[:count]):
        raise NotApplicable(LOSES)
    # What is drawn at random is, say
    if any(bool(each.wrong.any()) for each in judged[:count]):
        raise NotApplicable("the forward gives other numbers in float32")
    for n, each in enumerate(judged):
        off_by, size = each.off, each.usual.norm(dim=1)
        if (
            n >= count
            and each.wrong.any()
            and bool((each.wrong & (off_by > evidence.leftover * size)).any())
        ):
            variant = Variant("GV226", "with float32 inputs", "as in float64", IN_FLOAT32)
            yield variant.found(worst_element(results(evidence)[n], each)[0])
            return


def _odd_dtypes(evidence: Evidence, seen: Point) -> list[tuple[int, str, str]]:
    """Return the outputs that are float64 usually, but not float32 for float32 inputs: place,
    dtype, and the dtype that it should be."""
    dtypes = (
        (number, y.dtype, NARROW.get(wide.dtype, wide.dtype))
        for number, y, wide in zip(evidence.forward.checked, seen, evidence.outputs, strict=False)
    )
    return [
        (number, dtype_name(given), dtype_name(wanted))
        for number, given, wanted in dtypes
        if given != wanted
    ]


def _like_float64(evidence: Evidence, seen: Point) -> bool:
    """Return whether the numbers are those of the base call, up to LEAST."""
    base = [*evidence.outputs, *filled(evidence.worked.gradients, evidence.subject.inputs)]
    pairs = [(flat_real(wide), flat_real(y)) for wide, y in zip(base, seen, strict=True)]
    return all(worst_of(off(wide, y), LEAST * largest(wide)) is None for wide, y in pairs)


def _cast(subject: Subject, *to: Mapping[torch.dtype, torch.dtype]) -> Subject:
    """Return the same function with its tensors cast by each of these mappings in turn."""

    def value(argument: Argument) -> Tensor:
        x: Tensor = argument.value
        for dtypes in to:
            x = x.to(dtypes.get(x.dtype, x.dtype))
        return x

    return subject.mapped(value)


def without_float64(dtype: str, refusal: str) -> Finding:
    """Return the finding that a function in 16 bits cannot be judged, as it refuses float64.
    `refusal`: the message with which it does."""
    message = (
        f"gradients in {dtype} are judged against float64, which the function refuses "
        f"({refusal.rstrip('.')}), and the spec names no `reference` in its place"
    )
    return Finding(
        "GV007",
        message,
        hint="let the function take float64, or name a `reference` in torch operations",
    )
