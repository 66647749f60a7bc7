"""What fewer bits cost: 16 bits, autocast, TF32, float32."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from gradverify.evidence import Evidence
from gradverify.model.result import Comparison, Entry, Finding, Reproduced
from gradverify.numerics.function.coordinates import UNITS, WIDE, flat_all, flat_real
from gradverify.numerics.function.coordinates import place as index_of
from gradverify.numerics.rungs import U32, U64
from gradverify.numerics.sixteen_bit import ELEMENT, TensorResult
from gradverify.oracles.legs import Kernel
from gradverify.oracles.reference import off_itself
from gradverify.oracles.widened import OTHERS
from gradverify.rules.at_line import at_forward_of
from gradverify.rules.differ import DUST, Called, dust, flat, gradient_at, is_double, largest, nudged, off, unsteady, worst_of
from gradverify.rules.protocol import NotApplicable
from gradverify.rules.repeats import Repeats, in_words
from gradverify.rules.shown import element_name, unjudged
from gradverify.subject.differentiable import Differentiable, Gradients
from gradverify.subject.draw import DTYPES, generator
from gradverify.subject.failure import UserCodeError
from gradverify.subject.fewer_bits import in_all_bits, reduced_sums, tf32
from gradverify.subject.iterating import Endless, watched
from gradverify.subject.lines import returned_line
from gradverify.subject.rounding import ROUNDOFF, TF32, rounded, shaken, undisguised
from gradverify.subject.subject import Argument, Subject
from gradverify.subject.wide import is_narrow

# ---- GV112 low-precision: in bfloat16 or float16 the function is further off than that dtype costs anyway
KINDS = {"element": "", "row": "; no element is far off by itself, but the row is", "whole": "; no row is far off by itself, but all together are",
         "gain": "; every element is within rounding, but all are off by one factor"}
INTEGERS = "Triton's interpreter computes with bfloat16 as with integers, so that this may be its fault and not the kernel's"
CAST = "cast to float32 after `tl.load`, and to bfloat16 before `tl.store`, or check it on a GPU"
HINTS = {
    "overflow": "something before it leaves the range of {dtype}: scale first, or compute it in float32",
    "": "look for what differs in {dtype} from float32",
}


def gv112_applies(evidence: Evidence, found: frozenset[str]) -> str | None:
    if evidence.subject.narrow is None and not _another_in_float32(evidence):
        return "no differentiable input has 16 bits"
    wrong = sorted(code for code in found if code.startswith(("GV1", "GV2")))
    return f"it is wrong in float64 already ({wrong[0]})" if wrong else None


def gv112(evidence: Evidence) -> Iterator[Finding | Comparison | str]:
    kernel = evidence.kernel
    if kernel is None:
        yield from _in_float32(evidence)
        return
    if evidence.draws:
        yield Finding("GV007", f"forward draws random numbers, which are others in {kernel.name} than in float64: what it gives cannot be compared",
                      severity="error", hint="give the random numbers as an input, or check without them (evaluation mode, `p: 0`)")
        return
    if evidence.interpreter and not evidence.subject.case.oracles.reference:
        yield Finding("GV007", f"what {kernel.name} costs anyway is not known of kernels in Triton, whose operations are none of torch's",
                      severity="error", hint="name a `reference` in torch operations, of which it is known")
        return
    seen = list[TensorResult]()
    for n, each in enumerate(kernel.outputs):
        y, number = evidence.outputs[n], evidence.forward.checked[n]
        yield _comparison("", number, y, each, is_output=True)
        yield from _trusted(evidence, kernel, _of_16_bits(kernel, each, evidence.name_of(number), y, evidence.name_of(number), output=number))
        seen.append(each)
    for argument, each in zip(evidence.inputs, kernel.gradients, strict=True):
        yield _comparison(argument.name, None, argument.value, each, is_output=False)
        found = _of_16_bits(kernel, each, f"grad of `{argument.name}`", argument.value, argument.name, input_name=argument.name)
        yield from _trusted(evidence, kernel, found)
        seen.append(each)
    evidence.reproduced += (repeats := list(_repeated(evidence, kernel)))
    yield "; ".join(filter(None, (_resolution(kernel, seen), in_words(repeats))))


def _another_in_float32(evidence: Evidence) -> bool:
    """Are the values of a function of float32 others in float64, and is there no reference to say which are right?"""
    if not is_narrow(evidence.subject) or evidence.draws or evidence.surrogate is not None or evidence.subject.case.oracles.reference is not None:
        return False
    found = evidence.in_float64
    return found == OTHERS if isinstance(found, str) else found.others or found.far


def _in_float32(evidence: Evidence) -> Iterator[Finding]:
    """Warnings: float32 is what the function is, and its gradient may be right for it; beyond the tolerance, and what float32 costs."""
    atol, rtol = evidence.settings.tolerances()
    for n, each in enumerate(off_itself(evidence.subject, evidence.forward.checked)):
        if each is not None and abs(each.kernel - each.exact) > atol + rtol * max(abs(each.kernel), abs(each.exact)):
            number, y = evidence.forward.checked[n], evidence.outputs[n]
            name = evidence.name_of(number)
            yield Finding("GV112", f"in float32 {name} is {each.kernel:.5g} at {element_name(name, y, each.index)}, in float64 {each.exact:.5g}: "
                          f"{each.ratio:.3g} × the native error", output=number, severity="warning",
                          hint="look for a branch on the dtype and for fewer bits inside, or name a `reference`, which says what is right")


def _repeated(evidence: Evidence, kernel: Kernel) -> Iterator[Reproduced]:
    """Count the different results of identical calls of the kernel."""
    names = [*map(evidence.name_of, evidence.forward.checked), *(f"grad of {argument.name}" for argument in evidence.inputs)]
    for name, results in zip(names, kernel.repeated, strict=True):
        repeats = Repeats(f"{name} in {kernel.name}")
        for each in results:
            repeats.add(each)
        yield repeats.told(UNITS[kernel.dtype])


def _trusted(evidence: Evidence, kernel: Kernel, found: Iterator[Finding]) -> Iterator[Finding]:
    """Make findings undecided where Triton's interpreter, which computes with bfloat16 as with integers, may be at fault."""
    doubtful = evidence.interpreter is not None and kernel.dtype == torch.bfloat16
    for each in found:
        placed = _at_kernel(each, evidence)
        yield replace(placed, code="GV007", severity="error", message=f"{each.message}; {INTEGERS}", hint=CAST) if doubtful else placed


def _at_kernel(finding: Finding, evidence: Evidence) -> Finding:
    """At the line of the kernel's backward or forward, also where its reference is what runs in float64."""
    subject = evidence.subject.narrow or evidence.subject
    target = subject.target
    if finding.input is None and target.kind == "autograd.Function":
        return at_forward_of(finding, target.subject)
    made = returned_line(subject, finding.input) if finding.input else None
    line, source = (made.line, made.source) if made else (target.line, target.source)
    return replace(finding, file=target.file, line=line, source=source) if target.file else finding


def _of_16_bits(kernel: Kernel, each: TensorResult, what: str, tensor: Tensor, name: str, input_name: str | None = None,
             output: int | None = None) -> Iterator[Finding]:
    if not each.miss:
        return
    where = element_name(name, tensor, each.index)
    hint = HINTS.get(each.miss, HINTS[""]).format(dtype=kernel.name)
    if each.miss == "overflow":
        message = f"in {kernel.name} {what} is {each.kernel:g} at {where}, where {each.exact:.4g} is right, which fits: an overflow on the way there"
    elif each.miss == "gain":
        message = f"in {kernel.name} {what} is {each.gain:.4f} × what it is in float64{KINDS['gain']}"
    else:
        row = f", row {each.row} worst" if tensor.dim() > 1 else ""
        message = (f"in {kernel.name} {what}: {each.ratio:.3g} × the native error{row}; at {where} {each.kernel:.5g}, in float64 {each.exact:.5g}, "
                   f"{each.ulps:.3g} ulp off{KINDS[each.miss]}")
    yield Finding("GV112", message, input=input_name, output=output, hint=hint)


def _comparison(name: str, number: int | None, tensor: Tensor, each: TensorResult, is_output: bool) -> Comparison:
    index = index_of(tensor.shape, False, each.index)[0] if each.elements else ()
    error = abs(each.kernel - each.exact)
    entry = Entry(index if is_output else (), () if is_output else index, each.kernel, each.exact, 0.0, each.tolerance, error,
                  error / abs(each.exact) if each.exact else 0.0, "mismatch" if each.miss else "pass")
    return Comparison("GV112", name, number, each.elements, mismatched=max(each.wrong, int(bool(each.miss))), max_abs_error=each.max_error,
                      max_rel_error=entry.rel_error, resolution=each.sees, worst=(entry,) if each.elements else ())


def _resolution(kernel: Kernel, seen: list[TensorResult]) -> str:
    """Describe the errors that a pass would have found."""
    worst, share = max(each.ratio for each in seen), max(each.share for each in seen)
    beyond = sum(each.beyond for each in seen)
    left = f"; {beyond:,} numbers that {kernel.name} cannot hold were left out" if beyond else ""
    return (f"in {kernel.name} at most {worst:#.3g} × the native error in a row; would see a row that is off by {100 * share:.2g} % of its size, "
            f"an element by {ELEMENT:g} native errors{left}")


# ---- GV117 under-autocast: with forward inside autocast outputs or gradients are off by far more than 16 bits cost, or something raises
NATIVE = 4      # runs with every number rounded, for the native error
BESIDE = 2      # points beside the inputs, where a row has to be off too: what rounds to the other side of a step here does not there
FAR = 8.0       # native errors
LOST = 0.25     # of its size: of a row that rounding takes so far nothing can be said (layer_norm of what is nearly constant)
CASTS = "look for a cast or a branch on the dtype; torch.amp.custom_fwd and custom_bwd run backward under the autocast of forward"
Context = Callable[[], AbstractContextManager[Any]]


def gv117_applies(evidence: Evidence, found: frozenset[str]) -> str | None:
    if evidence.settings.autocast is None:
        return "the spec does not name a dtype under `autocast`"
    if is_double(evidence):
        return "autocast leaves float64 alone: say `dtype: float32`"
    if any(x.dtype is not torch.float32 for x in evidence.subject.inputs):
        return "an input is not float32"
    if evidence.draws:
        return "random numbers may be drawn in another order under autocast"
    return unsteady(found)


def gv117(evidence: Evidence) -> Iterator[Finding | str]:
    runs = _Runs(evidence)
    try:
        runs.more(BESIDE, NATIVE)
        if any(bool(each.wrong.any()) for each in runs.judged()):      # a row that is steep by chance: look harder before it is accused
            runs.more(2 * BESIDE, 4 * NATIVE)
    except UserCodeError as error:
        yield Finding("GV117", f"under autocast in {evidence.settings.autocast} {error.message}", frames=error.frames, hint=CASTS)
        return
    unjudged = 0
    for place, each in enumerate(runs.judged()):
        unjudged += each.unjudged
        if each.wrong.any():
            row = int(torch.where(each.wrong, each.off / each.allowed, torch.zeros_like(each.off)).argmax())
            yield _of_autocast(evidence, place, row, runs.usual[0][place], runs.seen[0][place], float(each.off[row]), float(each.cost[row]))
    if unjudged:
        yield f"{unjudged} rows are lost or overflow when every number is rounded, and are not judged"


@dataclass(frozen=True, slots=True)
class Judged:
    """The rows of one output or gradient: how far off, the native error, what is allowed, and which are further off."""

    off: Tensor
    cost: Tensor
    allowed: Tensor
    wrong: Tensor
    unjudged: int


class _Runs:
    """Outputs and gradients at points beside the inputs, with autocast (`seen`) and without (`usual`); at the inputs with all rounded (`native`)."""

    def __init__(self, evidence: Evidence) -> None:
        self._evidence, self._dtype = evidence, DTYPES[str(evidence.settings.autocast)]
        self._source = generator(evidence.settings.seed, evidence.subject.case.check, "autocast")
        self._here = evidence.subject.leaves()
        self.seen, self.usual, self.native = list[list[Tensor]](), list[list[Tensor]](), list[list[Tensor]]()

    def more(self, beside: int, native: int) -> None:
        """Raises UserCodeError where the function raises under autocast, but not where it refuses numbers beside its own."""
        device = self._here[0].device.type
        points = [*([] if self.seen else [self._here]), *([shaken(x, self._dtype, self._source) for x in self._here] for _ in range(beside))]
        for point in points:
            self.usual.append(_flat(self._evidence, point, nullcontext))
            self.seen.append(_flat(self._evidence, point, lambda: torch.autocast(device, dtype=self._dtype)))
        self.native += [_flat(self._evidence, self._here, nullcontext, (self._dtype, self._source)) for _ in range(native)]

    def judged(self) -> list[Judged]:
        """Judge every output, then every gradient."""
        return [self._judged(place) for place in range(len(self.usual[0]))]

    def _judged(self, place: int) -> Judged:
        base, unit = self.usual[0][place], ROUNDOFF[self._dtype]
        cost = torch.stack([_rows(run[place] - base).norm(dim=1) for run in (*self.native, *self.usual[1:])]).amax(0)
        size = _rows(base).norm(dim=1)
        known = cost.isfinite() & size.isfinite() & (cost <= LOST * size)
        pairs = zip(self.seen, self.usual, strict=True)
        most = torch.finfo(torch.float64).max
        off = torch.stack([_rows(a[place] - b[place]).norm(dim=1).nan_to_num(nan=most, posinf=most) for a, b in pairs]).amin(0)
        allowed = FAR * (cost + unit * size)
        return Judged(off, cost, allowed, known & (off > allowed), int((~known).sum()))


def _of_autocast(evidence: Evidence, place: int, row: int, base: Tensor, seen: Tensor, off: float, cost: float) -> Finding:
    """About the element of a row that is furthest off."""
    outputs = len(evidence.forward.checked)
    wanted, given = _rows(base), _rows(seen)
    column = int((given[row] - wanted[row]).abs().nan_to_num(nan=torch.inf).argmax())
    index = row * wanted.shape[1] + column
    if place < outputs:
        what = element_name(evidence.name_of(evidence.forward.checked[place]), base, index)
    else:
        argument = evidence.inputs[place - outputs]
        what = f"the gradient at {element_name(argument.name, argument.value, index)}"
    told = (f"under autocast in {evidence.settings.autocast} {what} is {float(given[row, column]):.6g}, and not {float(wanted[row, column]):.6g} as "
            f"without: its row is off by {off:.2g}, where rounding every number costs {cost:.2g}")
    return Finding("GV117", told, input=None if place < outputs else evidence.inputs[place - outputs].name,
                   output=evidence.forward.checked[place] if place < outputs else None, hint=CASTS)


def _flat(evidence: Evidence, point: Sequence[Tensor], around: Context, lowered: tuple[torch.dtype, torch.Generator] | None = None) -> list[Tensor]:
    """Outputs and gradients at a point in float64, forward inside `around`; `lowered`: forward and backward with every number rounded."""
    moved = iter(point)
    twin = evidence.subject.twin([replace(argument, value=next(moved).detach()) if argument.differentiable else argument
                                  for argument in evidence.subject.arguments])
    twin.around = around
    v = [cotangent.float() if lowered is None else shaken(cotangent.float(), *lowered) for cotangent in evidence.cotangents("base")]
    with rounded(*lowered) if lowered else nullcontext():
        outputs, gradients = Differentiable(twin, evidence.forward.checked).once(v)
    found = [torch.zeros_like(x) if g is None else g.detach() for g, x in zip(gradients, evidence.subject.inputs, strict=True)]
    return [y.double() for y in (*outputs, *found)]


def _rows(x: Tensor) -> Tensor:
    return x.reshape(-1, x.shape[-1]) if x.dim() and x.numel() else x.reshape(1, -1)


def side(subject: Subject, evidence: Evidence, v: Sequence[Tensor]) -> Called:
    """Of one fresh forward and its backward for the cotangents v. Raises UserCodeError."""
    return Called(*Differentiable(subject, evidence.forward.checked).once([cotangent.clone() for cotangent in v]))


def where(evidence: Evidence, n: int, index: int) -> tuple[int | None, str | None, str]:
    """Of tensor n of outputs, then gradients: the output's place, or the input's name; and the element in words."""
    places = evidence.forward.checked
    if n < len(places):
        return places[n], None, element_name(evidence.name_of(places[n]), evidence.outputs[n], index)
    argument = evidence.inputs[n - len(places)]
    return None, argument.name, f"the gradient at {element_name(argument.name, argument.value, index)}"


def beyond_native(evidence: Evidence, code: str, judged: Sequence[TensorResult], inside: str, here: str, hint: str) -> Iterator[Finding]:
    """Of every output, then of every gradient in 16 bits: what it is `inside`, where that is off what it is `here` beyond the native error."""
    for n, each in enumerate(judged):
        if each.miss:
            place, name, what = where(evidence, n, each.index)
            told = (f"{inside} {what} is {each.kernel:.5g}, and not {each.exact:.5g} as {here}: {each.ratio:.3g} × the native error"
                    f"{KINDS.get(each.miss, '')}")
            yield Finding(code, told, input=name, output=place, hint=hint)


# ---- GV119 fewer-bits: with products in TF32, or 16-bit sums in fewer bits, the gradient leaves its tolerance
RUNS = 4        # with every number rounded, for what that costs
SAME = "it computes the same bits: nothing in it heeds the switch here"
ROUNDING = "its numbers need all bits of float32: keep TF32 away from it, or allow more (`rtol`)"
NO_FLOAT32 = "TF32 is a format for products of float32: say `dtype: float32`"
OTHERWISE = "rounding does not explain it: look for what else depends on the switch"


def gv119_applies(evidence: Evidence, found: frozenset[str]) -> str | None:
    settings, sixteen = evidence.settings, evidence.kernel is not None
    if not (settings.tf32 or settings.reduced_sums):
        return "the spec says neither `tf32: true` nor `reduced_sums: true`"
    if sixteen:
        return unsteady(found) if settings.reduced_sums else NO_FLOAT32
    if not settings.tf32:
        return "only products of 16 bits have such sums: say `dtype: bfloat16` or `float16`"
    return unsteady(found) if any(x.dtype is torch.float32 for x in evidence.subject.inputs) else NO_FLOAT32


def gv119(evidence: Evidence) -> Iterator[Finding | str]:
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


# ---- GV222 precision-inside: the forward computes in fewer bits than it claims
DOUBLE = ("float64", "complex128")
FORMATS = ((2.0**-8, "bfloat16"), (2.0**-11, "float16"), (2.0**-24, "float32"))     # by unit roundoff


def gv222_applies(evidence: Evidence, found: frozenset[str]) -> str | None:
    if any(str(x.dtype).removeprefix("torch.") not in DOUBLE for x in evidence.subject.inputs):
        return "an input is of lower precision itself"
    return unjudged(found) or ("a fixed `eps` does not look at bits" if evidence.settings.eps != "auto" else None)


def gv222(evidence: Evidence) -> Iterator[Finding]:
    seen = {output: max(pair.unit, evidence.precisions[output]) for (_, output), pair in evidence.jacobian.pairs.items() if pair.low_precision}
    for output, unit in seen.items():
        if unit >= FORMATS[-1][0] and str(evidence.outputs[output].dtype).removeprefix("torch.") in DOUBLE:
            place = evidence.forward.checked[output]
            name = next((name for least, name in FORMATS if unit >= least), "lower precision")
            y = evidence.name_of(place)
            own = str(evidence.outputs[output].dtype).removeprefix("torch.")
            yield Finding("GV222", f"every value of {y}, which is {own}, is a {name} number: forward computes in {name}, or rounds to it",
                          output=place, hint="compute in the inputs' own dtype, unless forward is meant to round")


# ---- GV226 narrow-dtype: in float32 the outputs are not float32, or the gradient is another one
NARROW = {wide: narrow for narrow, wide in WIDE.items()}
LEAST, TIMES = 1e-3, 300    # of the gradient's size; of the forward's own deviation
ROUNDINGS = 4               # of float32: how far the inputs are nudged to see whether the gradient is steady
POINTS, SPREADS = 8, 4.0    # nearby, and standard deviations between them: a gradient that is off by so much is rounding
SHRUNK = (0.5, 0.25, 0.125) # of the inputs: where a function that saturates has its slope
CAP = 64.0                  # roundings of the cotangents' norm times the largest input, and of the gradient: more is backward's own fault


def gv226_applies(evidence: Evidence, found: frozenset[str]) -> str | None:
    if evidence.subject.target.kind != "autograd.Function":
        return "the target is no autograd Function"
    if not is_double(evidence):
        return "an input is of lower precision already"
    return unsteady(found)


def gv226(evidence: Evidence) -> Iterator[Finding]:
    with _float32_itself(evidence):
        arguments = _cast(evidence.subject.arguments, NARROW)
    if not _suspected(evidence, arguments):
        return
    try:
        with _float32_itself(evidence):
            outputs, gradients = _once_in_float32(evidence, arguments)
    except UserCodeError as error:
        if error.code != "GV003":
            raise NotApplicable(f"in float32 {error.message}") from None
        yield Finding("GV226", f"with float32 inputs {error.message}", frames=error.frames, hint="check backward with `dtype: float32`")
        return
    wrong = list(_dtypes(evidence, outputs))
    yield from wrong
    if not wrong:
        yield from _compared_with_float64(evidence, arguments, gradients, _share(evidence, outputs))


def _suspected(evidence: Evidence, arguments: Sequence[Argument]) -> bool:
    """Does a call that is watched for its end show anything? Then a plain one tells. Raises NotApplicable where it is ended."""
    try:
        with _float32_itself(evidence):
            outputs, gradients = watched(lambda: _once_in_float32(evidence, arguments))
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


def _once_in_float32(evidence: Evidence, arguments: Sequence[Argument], factor: float = 1.0) -> tuple[list[Tensor], Gradients]:
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


def _compared_with_float64(evidence: Evidence, arguments: Sequence[Argument], gradients: Gradients, share: float) -> Iterator[Finding]:
    if not _some_off(evidence, gradients, share):
        return
    wanted = _once_in_float32(evidence, _cast(arguments, WIDE))[1]      # casting moved the inputs: once more, at where they are now
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
                own = _once_in_float32(evidence, beside, factor)[1][place]
            both = own, _once_in_float32(evidence, _cast(beside, WIDE), factor)[1][place]
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


def without_a_leg(dtype: str, refusal: str) -> Finding:
    """`refusal`: what the function says to float64."""
    message = (f"gradients in {dtype} are judged against float64, which the function refuses ({refusal.rstrip('.')}), and the spec names no "
               "`reference` in its place")
    return Finding("GV007", message, hint="let the function take float64, or name a `reference` in torch operations")
