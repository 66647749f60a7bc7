"""GV112 low-precision: in bfloat16 or float16 the function is further off than that dtype costs anyway

What. With `dtype: bfloat16` or `float16`, the output or a gradient of the function in that dtype differs from the same function in float64 (or
from the `reference`) by more than rounding explains.

Why it matters. Kernels are trained in 16 bits and tested in others. A branch that only 16 bits take, an accumulator of 8 bits, a tail that is not
written: finite differences of 16-bit numbers are too coarse to see any of them.

How it is measured. Two legs. First, the function in float64, at inputs that 16 bits can hold, is checked by finite differences like any other
(what it asks for in fewer bits, as by `.float()`, is float64 too). Second, the function in its own dtype, forward and the gradients of three
random cotangents, against that. What it may be off by is the native error, row by row: what the same computation (the reference's, where one is
named, its sums over more than 64 rows as they are) loses when its operations run in 16 bits, at the point and beside it, and when its inputs
move by half an ulp. Wrong are an element that is off by more than 8 native errors of its row (or 3 times the most that the computation itself
lost in it) and 3 ulp, a row by 2 and 0.2 ulp, the tensor by 1.5 and 0.15 ulp, a gain ⟨kernel, exact⟩ / ⟨exact, exact⟩ by 8 of its standard
deviations and one roundoff, and what is infinite or NaN where the right number fits. Rows and tensors are never held to less than the computation
itself lost in any of its runs. Numbers that the dtype cannot hold are left out. Finite differences are never taken of 16-bit numbers. What three
identical calls of the kernel differ by (atomic adds) counts as native error, up to as much again as there is.

With `dtype: float32` finite differences judge the gradient, of the same function in float64 where its values are the same there. Where they are
others, by more than the tolerance and than float32 costs, and no `reference` says which are right, that is a warning.

How to repair. Accumulate and exponentiate in float32; subtract the maximum first; keep constants as Python numbers; look for branches on the dtype
and for the tail of the last block. A function that refuses float64 needs a `reference` in torch operations.

Example.
    @staticmethod
    def backward(ctx, grad_output):
        x, = ctx.saved_tensors
        if x.dtype == torch.bfloat16:
            return grad_output * x      # the fast path forgot the 2
        return grad_output * 2 * x
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from gradverify.evidence import Evidence
from gradverify.model.result import Comparison, Entry, Finding, Reproduced
from gradverify.numerics.function.coordinates import UNITS, place
from gradverify.numerics.sixteen_bit import ELEMENT, TensorResult
from gradverify.oracles.legs import Kernel
from gradverify.oracles.reference import off_itself
from gradverify.oracles.widened import OTHERS
from gradverify.rules.at_forward import at_forward_of
from gradverify.rules.repeats import Repeats, in_words
from gradverify.rules.shown import element_name
from gradverify.subject.returned_line import returned_line
from gradverify.subject.wide import is_narrow

CATCHES = "forgets_in_bfloat16"
ORDER = 345
VERDICT = "fail"
OWN_DTYPE = True
KINDS = {"element": "", "row": "; no element is far off by itself, but the row is", "whole": "; no row is far off by itself, but all together are",
         "gain": "; every element is within rounding, but all are off by one factor"}
INTEGERS = "Triton's interpreter computes with bfloat16 as with integers, so that this may be its fault and not the kernel's"
CAST = "cast to float32 after `tl.load`, and to bfloat16 before `tl.store`, or check it on a GPU"
HINTS = {
    "overflow": "something before it leaves the range of {dtype}: scale first, or compute it in float32",
    "": "look for what differs in {dtype} from float32",
}


def applies(evidence: Evidence, found: frozenset[str]) -> str | None:
    if evidence.subject.narrow is None and not _another_in_float32(evidence):
        return "no differentiable input has 16 bits"
    wrong = sorted(code for code in found if code.startswith(("GV1", "GV2")))
    return f"it is wrong in float64 already ({wrong[0]})" if wrong else None


def check(evidence: Evidence) -> Iterator[Finding | Comparison | str]:
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
        yield from _trusted(evidence, kernel, _finding(kernel, each, evidence.name_of(number), y, evidence.name_of(number), output=number))
        seen.append(each)
    for argument, each in zip(evidence.inputs, kernel.gradients, strict=True):
        yield _comparison(argument.name, None, argument.value, each, is_output=False)
        found = _finding(kernel, each, f"grad of `{argument.name}`", argument.value, argument.name, input_name=argument.name)
        yield from _trusted(evidence, kernel, found)
        seen.append(each)
    evidence.reproduced += (repeats := list(_repeated(evidence, kernel)))
    yield "; ".join(filter(None, (_told(kernel, seen), in_words(repeats))))


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
    line, source = (made.number, made.text) if made else (target.line, target.source)
    return replace(finding, file=target.file, line=line, source=source) if target.file else finding


def _finding(kernel: Kernel, each: TensorResult, what: str, tensor: Tensor, name: str, input_name: str | None = None,
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
    index = place(tensor.shape, False, each.index)[0] if each.elements else ()
    error = abs(each.kernel - each.exact)
    entry = Entry(index if is_output else (), () if is_output else index, each.kernel, each.exact, 0.0, each.tolerance, error,
                  error / abs(each.exact) if each.exact else 0.0, "mismatch" if each.miss else "pass")
    return Comparison("GV112", name, number, each.elements, mismatched=max(each.wrong, int(bool(each.miss))), max_abs_error=each.max_error,
                      max_rel_error=entry.rel_error, resolution=each.sees, worst=(entry,) if each.elements else ())


def _told(kernel: Kernel, seen: list[TensorResult]) -> str:
    """Describe the errors that a pass would have found."""
    worst, share = max(each.ratio for each in seen), max(each.share for each in seen)
    beyond = sum(each.beyond for each in seen)
    left = f"; {beyond:,} numbers that {kernel.name} cannot hold were left out" if beyond else ""
    return (f"in {kernel.name} at most {worst:#.3g} × the native error in a row; would see a row that is off by {100 * share:.2g} % of its size, "
            f"an element by {ELEMENT:g} native errors{left}")
