"""The same function called in another way gives the same outputs and gradients."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import chain, combinations, islice
from typing import Any

import torch
from torch import Tensor

from gradverify.evidence import Evidence
from gradverify.model.result import Finding, Frame
from gradverify.oracles.legs import Kernel
from gradverify.rules.at_line import at_forward
from gradverify.rules.differ import (
    ANOTHER,
    DUST,
    NUDGE,
    SINGLE,
    Called,
    Difference,
    Variant,
    clearly_differing,
    clearly_differing_output,
    differ,
    differing,
    flat,
    gradients_apart,
    is_double,
    largest,
    nudged,
    other_gradient,
    outputs_apart,
    random_backward,
    tolerance,
    torchs_own,
    unsteady,
)
from gradverify.rules.low_precision import CASTS, Context, beyond_native, side
from gradverify.rules.protocol import NotApplicable
from gradverify.rules.shown import NO_FUNCTION, RANDOM
from gradverify.subject.another import other_points
from gradverify.subject.differentiable import Differentiable, Gradients, copied
from gradverify.subject.failure import UserCodeError
from gradverify.subject.fewer_bits import in_all_bits
from gradverify.subject.layout import conjugated, constant, expanded, offset, permuted, sliced
from gradverify.subject.on_device import Compiler, back, no_compiler, on_device
from gradverify.subject.subject import Argument
from gradverify.subject.wide import casts_inside
from gradverify.torch_private import undefined

# ---- GV116 compiled: through torch.compile the function gives other numbers, or raises
TRACED = "look for what Python decides or keeps, which is fixed where torch.compile traces it"
BACKEND = re.compile(r"BackendCompilerFailed: backend='\w+' raised: ")     # what torch says before what was raised
TOLD = 400      # characters of what was raised


def gv116_applies(evidence: Evidence, found: frozenset[str]) -> str | None:
    if not evidence.settings.compile:
        return "the spec does not say `compile: true`"
    if evidence.draws:
        return "random numbers may be drawn in another order when compiled"
    return unsteady(found) or no_compiler()


def gv116(evidence: Evidence) -> Iterator[Finding | str]:
    compiler = Compiler()
    found = tuple(_compiled(compiler, evidence, ""))
    yield from found
    if not compiler.graphs and not found:
        raise NotApplicable("torch.compile finds nothing in it that it can compile, and runs it eagerly")
    if found:
        return
    for arguments in islice(other_points(evidence.subject), 1):
        there = evidence.at(arguments)
        try:
            assert there.worked is not None
        except UserCodeError:
            return
        yield from _compiled(compiler, there, " at another point of the same kind", evidence)


def _compiled(compiler: Compiler, evidence: Evidence, where: str, first: Evidence | None = None) -> Iterator[Finding]:
    """Yield what differs between compiled and eager mode. At another point: of a function compiled at the `first` one."""
    eager = Called(evidence.outputs, evidence.worked.gradients)
    try:
        with compiler.compiling(evidence.subject):
            if first is not None:
                Differentiable(compiler.through(first.subject), first.forward.checked).once(first.cotangents("base"))
            seen = side(compiler.through(evidence.subject), evidence, evidence.cotangents("base"))
    except UserCodeError as error:
        text = BACKEND.sub("", error.message).partition(" Set TORCH")[0]
        yield Finding("GV116", f"through torch.compile{where} {text if len(text) <= TOLD else f'{text[:TOLD]}…'}", frames=error.frames)
        return
    yield from differ(evidence, Variant("GV116", f"through torch.compile{where}", "as in eager mode", TRACED), seen, eager)


# ---- GV118 devices: on one device the function gives other numbers than on another
WHICH_DEVICE = "the other rules, on each device, say which of the two is wrong; where they find nothing, forward is another function there"


def gv118_applies(evidence: Evidence, found: frozenset[str]) -> str | None:
    beside = evidence.subject.own.case.beside
    if beside is None:
        return "the spec's `matrix` names no device before this one"
    if torch.device(beside) == torch.device(evidence.settings.device):
        return f"both devices are {beside}"
    if evidence.draws:
        return "random numbers are others on another device"
    return unsteady(found)


def gv118(evidence: Evidence) -> Iterator[Finding | str]:
    own = evidence.subject.own
    beside = str(own.case.beside)
    with in_all_bits():
        try:
            other = on_device(own, beside)
            if evidence.kernel is not None:
                judged = evidence.kernel.apart(Kernel(on_device(evidence.subject, beside), other, evidence.forward.checked))
            else:
                v = evidence.cotangents("base")
                here, there = side(own, evidence, v), side(other, evidence, v)
        except UserCodeError as error:
            raise NotApplicable(f"on {beside} {error.message}") from None
        if evidence.kernel is not None:
            yield from beyond_native(evidence, "GV118", judged, f"on {beside}", f"on {evidence.settings.device}", WHICH_DEVICE)
        else:
            yield from compared(evidence, here, there, beside)
    yield f"compared with {beside}"


def compared(evidence: Evidence, here: Called, there: Called, beside: str) -> Iterator[Finding]:
    """What the device `beside` gives against what is computed here, both for the base cotangents."""
    moved = Called([back(x, y) for x, y in zip(there.outputs, here.outputs, strict=True)],
                   tuple(None if g is None else back(g, x) for g, x in zip(there.gradients, evidence.subject.inputs, strict=True)))
    return differ(evidence, Variant("GV118", f"on {beside}", f"as on {evidence.settings.device}", WHICH_DEVICE), moved, here)


# ---- GV225 autocast: under autocast forward or backward gives other numbers, in float64

def gv225_applies(evidence: Evidence, found: frozenset[str]) -> str | None:
    if evidence.odd is not None:
        return evidence.odd
    if not is_double(evidence):
        return "an input is of lower precision, which autocast may lower further"
    if evidence.low_precision:
        return "the forward computes in lower precision inside, which autocast may lower further"
    return torchs_own(evidence) or unsteady(found)


def gv225(evidence: Evidence) -> Iterator[Finding]:
    device = evidence.inputs[0].value.device.type

    def autocast() -> AbstractContextManager[Any]:
        return torch.autocast(device)

    def plain() -> AbstractContextManager[Any]:
        return torch.autocast(device, enabled=False)

    of_forward = _under_autocast(evidence, "forward inside autocast and backward outside", autocast, plain)
    of_backward = _under_autocast(evidence, "forward outside autocast and backward inside", plain, autocast, not torch.is_autocast_enabled(device))
    for finding in chain((each if each.frames else at_forward(each, evidence) for each in of_forward), of_backward):
        if not casts_inside(evidence.subject):      # what is computed in 16 bits is autocast's to lower
            yield finding
        return


def _under_autocast(evidence: Evidence, what: str, forward: Context, backward: Context, outside: bool = False) -> Iterator[Finding]:
    """What differs from the base call with forward in one context and backward in another."""
    v = evidence.cotangents("base")
    try:
        outputs, gradients = _inside(evidence, v, forward, backward, outside)
    except UserCodeError as error:
        yield Finding("GV225", f"with {what}, {error.message}", frames=error.frames, hint=CASTS)
        return
    yield from differ(evidence, Variant("GV225", f"with {what},", "as without", CASTS, shapes=False), Called(outputs, gradients))


def _inside(evidence: Evidence, v: Sequence[Tensor], forward: Context, backward: Context, outside: bool) -> tuple[Sequence[Tensor], Gradients]:
    """Outputs and gradients. `outside`: forward outside autocast, where the base call was, whose graph serves if it may be asked again."""
    if outside and evidence.reusable:
        with backward():
            return evidence.outputs, evidence.function.gradients(evidence.base, v, retain=True)
    twin = evidence.subject.twin(evidence.subject.arguments)
    twin.around = forward
    with backward():
        return Differentiable(twin, evidence.forward.checked).once(v)


# ---- GV218 grad-mode: the result depends on the grad mode
NO_GRAD = ("under torch.no_grad", torch.no_grad, True)        # in words, the mode, whether inputs require a gradient
BOTH = ("under torch.inference_mode", torch.inference_mode, False)
FROZEN = ("where no input requires a gradient", torch.enable_grad, False)       # found by BOTH: asked for by itself only to say which it is


def gv218_applies(evidence: Evidence, found: frozenset[str]) -> str | None:
    return RANDOM if "GV205" in found else None


def gv218(evidence: Evidence) -> Iterator[Finding]:
    found = _under(evidence, *NO_GRAD)
    if found is None:           # else all take the same path
        found = _under(evidence, *BOTH)
        found = found and (_under(evidence, *FROZEN) or found)
    if found is not None:
        yield found
    yield from _gradients(evidence)


def _under(evidence: Evidence, when: str, mode: Callable[[], AbstractContextManager[Any]], required: bool) -> Finding | None:
    """Nothing where forward refuses the mode."""
    leaves = [leaf.requires_grad_(required) for leaf in evidence.subject.leaves()]
    try:
        return _values(evidence, when, evidence.subject.called(leaves, mode).outputs)
    except UserCodeError:
        return None


def _values(evidence: Evidence, when: str, seen: tuple[object, ...]) -> Finding | None:
    for place, expected in zip(evidence.forward.checked, evidence.outputs, strict=True):
        y = seen[place] if place < len(seen) else None
        if not isinstance(y, Tensor) or y.shape != expected.shape:
            return _of_mode(f"{when} forward returns no {evidence.name_of(place)} of shape {list(expected.shape)}", None, place)
        difference = clearly_differing_output(evidence, place, expected, y)
        if difference is not None:
            given, usual = difference.numbers
            return _of_mode(f"{when} forward gives {given} at {difference.where}, with gradients {usual}", None, place)
    return None


def _gradients(evidence: Evidence) -> Iterator[Finding]:
    v = evidence.worked.cotangents
    if evidence.function.leaf_only:     # leaf .backward() with create_graph leaves circles behind
        return
    try:
        seen = evidence.function.gradients(evidence.usable(), v, create=True)
    except UserCodeError:
        return
    for argument, expected, gradient in zip(evidence.inputs, evidence.worked.gradients, seen, strict=True):
        difference = clearly_differing(evidence, argument, expected, gradient, v)
        if difference is not None and abs(difference.seen - difference.expected) > DUST * _noise(evidence, argument):
            given, without = difference.numbers
            yield _of_mode(f"under create_graph=True the gradient is {given} at {difference.where}, without it {without}", argument.name, None)


def _noise(evidence: Evidence, argument: Argument) -> float:
    """How far the gradient under create_graph goes when the inputs are nudged: torch's `det` takes another way there, that loses digits."""
    def measured(inputs: Sequence[Tensor]) -> Tensor:
        graph = evidence.function.graph([x.detach().clone().requires_grad_() for x in inputs])
        gradients = evidence.function.gradients(graph, evidence.worked.cotangents, create=True)
        return flat(argument, gradients[evidence.inputs.index(argument)]).detach()

    return largest(nudged(evidence, measured, NUDGE * tolerance(evidence.precision)))


def _of_mode(message: str, name: str | None, output: int | None) -> Finding:
    return Finding("GV218", message, input=name, output=output, hint="compute the same in every grad mode")


# ---- GV208 input-subset: a gradient is wrong or missing when other inputs need none
ALL_SUBSETS = 4         # up to so many inputs every subset is tried
PAIRS = 8               # up to so many every two that need none together
WHICHEVER_OTHERS = "each gradient must be the same whichever others are wanted: ctx.needs_input_grad[i] is about argument i alone"


def gv208_applies(evidence: Evidence, found: frozenset[str]) -> str | None:
    if "GV205" in found:
        return RANDOM
    if len(evidence.inputs) < 2:
        return "there is one differentiable input"
    return None if evidence.forward.nodes else NO_FUNCTION


def gv208(evidence: Evidence) -> Iterator[Finding]:
    told = set[str | None]()
    for subset in evidence.spending.some(subsets(len(evidence.inputs)), 1, 1, "subsets"):
        for finding in _alone(evidence, subset):
            if finding.input not in told:
                told.add(finding.input)
                yield finding


def subsets(count: int) -> list[tuple[int, ...]]:
    """Places of the inputs that require a gradient, without none and without all, few first; pairs that require
    none last, as they are most."""
    sizes = range(1, count) if count <= ALL_SUBSETS else (1, count - 1, count - 2) if count <= PAIRS else (1, count - 1)
    return [subset for size in sizes for subset in combinations(range(count), size)]


def _alone(evidence: Evidence, subset: tuple[int, ...]) -> Iterator[Finding]:
    leaves = [leaf.requires_grad_(place in subset) for place, leaf in enumerate(evidence.subject.leaves())]
    when = f"when only {' and '.join(evidence.inputs[place].name for place in subset)} require{'s' if len(subset) == 1 else ''} a gradient"
    v = evidence.worked.cotangents
    try:
        with _recorded() as said:
            graph = evidence.function.graph(leaves)
    except UserCodeError:
        return
    ys = evidence.function.of(graph)
    if said and not any(y.requires_grad for y in ys):
        with _recorded() as usual:
            evidence.function.graph(evidence.subject.leaves())
        own = [text for text in said if text not in usual]
        if own:
            yield Finding("GV208", f"no output has a gradient {when}, and forward warns of it: {own[0]}", severity="warning",
                          input=evidence.inputs[subset[0]].name, hint="let an input of that part need a gradient too")
            return
    if all(y.shape == expected.shape for y, expected in zip(ys, evidence.outputs, strict=True)):
        for apart in outputs_apart(evidence, ys):
            yield at_forward(Finding("GV208", f"forward depends on which inputs need a gradient: {apart.text}, {when}", output=apart.output,
                                     hint="compute the same values whatever ctx.needs_input_grad says"), evidence)
            return
    try:
        gradients = evidence.function.gradients(graph, v)
    except UserCodeError as error:
        yield Finding("GV208", f"{error.message} {when}", input=evidence.inputs[subset[0]].name, hint=WHICHEVER_OTHERS, frames=error.frames)
        return
    for place in subset:
        argument, gradient = evidence.inputs[place], gradients[place]
        difference = clearly_differing(evidence, argument, evidence.worked.gradients[place], gradient, v)
        if difference is not None:
            given, wanted = difference.numbers
            seen = "there is none" if gradient is None else f"it is {given}"
            yield Finding("GV208", f"the gradient of {argument.name} depends on which inputs need one: at {difference.where} it is "
                          f"{wanted} when all do, and {seen} {when}", input=argument.name, hint=WHICHEVER_OTHERS)


@contextmanager
def _recorded() -> Iterator[list[str]]:
    """The texts of the Python warnings that are given inside."""
    texts = list[str]()
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        yield texts
    texts += [str(each.message).partition("\n")[0] for each in given]


# ---- GV209 unused-output: backward is wrong when not all outputs are used
MAY_BE_ZERO = "treat every incoming gradient as one that may be zero, or None under set_materialize_grads(False)"


def gv209_applies(evidence: Evidence, found: frozenset[str]) -> str | None:
    if evidence.odd is not None:
        return evidence.odd
    if not any(y.numel() for y in evidence.outputs):
        return "there are no elements"
    return torchs_own(evidence) or unsteady(found) or ("backward is not linear" if "GV201" in found else None)


def gv209(evidence: Evidence) -> Iterator[Finding]:
    findings = list(_each_alone(evidence)) if len(evidence.outputs) > 1 or evidence.function.refuses_none else []
    yield from findings
    if not findings:
        yield from _none_used(evidence)


def _each_alone(evidence: Evidence) -> Iterator[Finding]:
    v, alone = evidence.cotangents("base"), list[Gradients]()
    for place, number in enumerate(evidence.forward.checked):
        asked = _asked(evidence, [c.clone() if i == place else None for i, c in enumerate(v)])
        if isinstance(asked, UserCodeError):
            yield _refused(f"with a gradient for {evidence.name_of(number)} only", number, asked)
            return
        alone.append(asked)
    for apart in gradients_apart(evidence, evidence.worked.gradients, _summed(alone), v):
        yield Finding("GV209", f"with a gradient for one output at a time, summed, {apart.text} as with gradients for all outputs at once",
                      input=apart.input, hint=MAY_BE_ZERO)
        return
    zeros = [c.clone() if i == 0 else torch.zeros_like(c) for i, c in enumerate(v)]
    for apart in gradients_apart(evidence, evidence.function.vjp(zeros), alone[0], zeros):
        first = evidence.forward.checked[0]
        yield Finding("GV209", f"with a gradient for {evidence.name_of(first)} only, {apart.text} as with zeros for the others",
                      input=apart.input, output=first, hint=MAY_BE_ZERO)
        return
    if len(alone) > 2:      # of two, all but one is one alone
        yield from _all_but_each(evidence, alone)


def _all_but_each(evidence: Evidence, alone: Sequence[Gradients]) -> Iterator[Finding]:
    """Backward may branch rightly for all outputs and for each alone, and not for some of them."""
    v = evidence.cotangents("base")
    for place, number in enumerate(evidence.forward.checked):
        without = f"without a gradient for {evidence.name_of(number)}"
        asked = _asked(evidence, [None if i == place else c.clone() for i, c in enumerate(v)])
        if isinstance(asked, UserCodeError):
            yield _refused(without, number, asked)
            return
        for apart in gradients_apart(evidence, _summed([*alone[:place], *alone[place + 1:]]), asked, v):
            yield Finding("GV209", f"{without}, {apart.text} as those of the others one at a time, summed", input=apart.input, output=number,
                          hint=MAY_BE_ZERO)
            return


def _asked(evidence: Evidence, cotangents: Sequence[Tensor | None]) -> Gradients | UserCodeError:
    """Copies of the gradients, or what backward raised for the undefined ones."""
    try:
        gradients = copied(evidence.function.vjp(cotangents))
    except UserCodeError as raised:
        return raised
    return evidence.function.refuses_none or gradients


def _refused(when: str, number: int, error: UserCodeError) -> Finding:
    return Finding("GV209", f"{when}, {error.message}", output=number, frames=error.frames, hint=MAY_BE_ZERO)


def _none_used(evidence: Evidence) -> Iterator[Finding]:
    """No output's gradient defined: backward may give None or zeros, and should not raise."""
    v = evidence.cotangents("base")
    try:
        gradients = _through_nothing(evidence, v)
    except UserCodeError as error:
        yield Finding("GV209", f"with no gradient for any output, as behind a Function that returns None, {error.message}", severity="warning",
                      frames=error.frames, hint=MAY_BE_ZERO)
        return
    nothing: Gradients = (None,) * len(gradients)
    for apart in gradients_apart(evidence, nothing, gradients, [torch.zeros_like(c) for c in v]):
        yield Finding("GV209", f"with no gradient for any output {apart.text}", input=apart.input, hint=MAY_BE_ZERO)


def _through_nothing(evidence: Evidence, v: Sequence[Tensor]) -> Gradients:
    """Of the base graph where that serves once more; of a fresh one, in every way there is, where it refuses. Raises UserCodeError."""
    if evidence.reusable:
        with suppress(UserCodeError):
            return evidence.function.gradients(evidence.base, v, retain=True, through=undefined)
    return evidence.function.once(v, through=undefined)[1]



def _summed(apart: Sequence[Gradients]) -> Gradients:
    """Of each input; None where all are."""
    given = ([part for part in parts if part is not None] for parts in zip(*apart, strict=True))
    return tuple(torch.stack(parts).sum(0) if parts else None for parts in given)


# ---- GV210 cotangent-layout: backward gives another gradient when grad_output is not contiguous
TIMES = -2.0            # times the cotangent of a sum, 1, which shortcuts of backward ask for: exact, of the other sign
LARGE = 2.0**21         # times the base cotangents, exactly: above a million, at which gradients are clipped
SLICED = "sliced (every second column of wider rows)"
CLIPS = "a bound, a threshold or a number that overflows inside backward makes it another gradient than the loss's"
CONTIGUOUS = "call grad_output.contiguous(), or .resolve_conj(), before its memory is read"
SHORTCUT = "backward must treat a grad_output of one number throughout as any other"


@dataclass(frozen=True)
class Variation:
    """The cotangents in another layout; `contiguous`: the same numbers, None: the base ones."""

    what: str
    cotangents: tuple[Tensor, ...]
    contiguous: tuple[Tensor, ...] | None = None


def gv210_applies(evidence: Evidence, found: frozenset[str]) -> str | None:
    if evidence.odd is not None:
        return evidence.odd
    if all(y.numel() < 2 for y in evidence.outputs):
        return "no output has two elements"
    return torchs_own(evidence) or unsteady(found) or ("backward writes into grad_output" if evidence.worked.damaged else None)


def gv210(evidence: Evidence) -> Iterator[Finding]:
    for variation in evidence.spending.some(list(_variations(evidence.cotangents("base"), evidence.function.reusable)), 0, 2, "layouts"):
        large = variation.what == SLICED and evidence.precision < SINGLE
        if large and _agrees_for_large(evidence):
            continue
        findings = list(_laid_out(evidence, variation)) or (list(_of_large(evidence)) if large else [])
        yield from findings
        if findings:
            return


def _variations(v: tuple[Tensor, ...], behind: bool) -> Iterator[Variation]:
    yield Variation(SLICED, tuple(map(sliced, v)))
    if not all(permuted(c).is_contiguous() for c in v):
        yield Variation("permuted (its dimensions in another order in memory)", tuple(map(permuted, v)))
    yield Variation("a constant with strides 0 (as behind a sum)", tuple(constant(c, TIMES) for c in v),
                    tuple(torch.full_like(c, TIMES) for c in v))
    if any(c.is_complex() for c in v):
        yield Variation("stored as its conjugate, with the conjugate bit set", tuple(conjugated(c) if c.is_complex() else c.clone() for c in v))
    if behind:
        yield Variation("contiguous behind other numbers (as a part of what `torch.cat` gets)", tuple(map(offset, v)))


def _laid_out(evidence: Evidence, variation: Variation) -> Iterator[Finding]:
    contiguous = variation.contiguous
    v, expected = contiguous or evidence.cotangents("base"), evidence.worked.gradients if contiguous is None else _of_a_sum(evidence, contiguous)
    try:
        got = copied(evidence.function.vjp(variation.cotangents))
    except UserCodeError as error:
        yield Finding("GV210", f"with a grad_output that is {variation.what}, {error.message}", frames=error.frames, hint=CONTIGUOUS)
        return
    differences = list(gradients_apart(evidence, expected, got, v))
    if not differences:
        return
    if why := random_backward(evidence):
        raise NotApplicable(why)
    of_layout = differences if contiguous is None else list(gradients_apart(evidence, copied(evidence.function.vjp(v)), got, v))
    by_input = {each.input: each for each in of_layout}
    for apart in differences:
        if apart.input not in by_input:     # the number makes it, and not the layout
            yield from _of_ones(evidence, apart)
            continue
        yield Finding("GV210", f"with a grad_output that is {variation.what}, {by_input[apart.input].text} as with the same numbers contiguous",
                      input=apart.input, hint=CONTIGUOUS)


def _agrees_for_large(evidence: Evidence) -> bool:
    """Are the gradients for the base cotangents, sliced and LARGE times as large, LARGE times those of the base call?"""
    try:
        got = _for_large(evidence, sliced)
    except UserCodeError:
        return False
    return other_gradient(evidence, got) is None


def _for_large(evidence: Evidence, laid: Callable[[Tensor], Tensor]) -> Gradients:
    """What they are, divided by LARGE. Raises UserCodeError."""
    found = evidence.function.vjp([laid(LARGE * c) for c in evidence.cotangents("base")])
    return tuple(None if gradient is None else gradient / LARGE for gradient in found)


def _of_large(evidence: Evidence) -> Iterator[Finding]:
    """GV201, where the layout is right and the size of the numbers makes it: backward clips what it gets."""
    if not evidence.settings.looks_for("GV201"):
        return
    base, (_, rtol) = evidence.cotangents("base"), evidence.settings.tolerances(low_precision=evidence.low_precision)
    got = _for_large(evidence, Tensor.clone)
    for apart in gradients_apart(evidence, evidence.worked.gradients, got, base):
        if abs(apart.seen - apart.expected) > rtol * max(abs(apart.seen), abs(apart.expected)):
            yield Finding("GV201", f"backward is not linear in grad_output: at {apart.where} it gives {apart.expected:.6g} for one grad_output, but "
                          f"{LARGE * apart.seen:.6g} for one {LARGE:.0f} times as large", input=apart.input, hint=CLIPS)


def _of_a_sum(evidence: Evidence, v: Sequence[Tensor]) -> Gradients:
    """The gradients for TIMES throughout, by those for ones; for v itself, which is that, where backward raises for ones."""
    try:
        return tuple(None if gradient is None else TIMES * gradient for gradient in evidence.for_ones[1])
    except UserCodeError:
        return copied(evidence.function.vjp(v))


def _of_ones(evidence: Evidence, apart: Difference) -> Iterator[Finding]:
    """GV201, where backward is linear but for constants: it takes a shortcut for them. By more than `rtol`, unlike a solver that stops early."""
    place = next(n for n, argument in enumerate(evidence.inputs) if argument.name == apart.input)
    base = evidence.cotangents("base")
    given = copied(evidence.function.vjp([-TIMES * c for c in base]))[place]
    linear = differing(evidence, evidence.inputs[place], evidence.worked.gradients[place], None if given is None else given / -TIMES) is None
    _, rtol = evidence.settings.tolerances(low_precision=evidence.low_precision)
    if linear and evidence.settings.looks_for("GV201") and abs(apart.seen - apart.expected) > rtol * max(abs(apart.seen), abs(apart.expected)):
        yield Finding("GV201", f"backward is not linear in grad_output: at {apart.where} it gives {apart.expected / TIMES:.6g} for a grad_output of "
                      f"ones, but {apart.seen:.6g} for one of {TIMES:g} throughout", input=apart.input, hint=SHORTCUT)


# ---- GV211 input-layout: an input that is not contiguous gives other numbers
LAYOUTS: tuple[tuple[str, Callable[[Tensor], Tensor]], ...] = (
    ("sliced (every second column of wider rows)", sliced), ("permuted (its dimensions in another order in memory)", permuted))
CONTIGUOUS_INPUT = "call .contiguous() on it before its memory is read, or refuse what is not contiguous"


@dataclass(frozen=True)
class Fault:
    """What a layout did: to an element (of an output, of the gradient of an input), or what backward raised."""

    text: str
    input: str | None = None
    output: int | None = None
    frames: tuple[Frame, ...] = ()


def gv211_applies(evidence: Evidence, found: frozenset[str]) -> str | None:
    if evidence.forward.freed:
        return "forward gives the memory of its input back, which a view shares"
    tensors = [a.value for a in evidence.subject.arguments if a.is_tensor]
    if evidence.odd is not None:
        return evidence.odd
    if all(x.numel() < 2 for x in tensors):
        return "no input has two elements"
    return "it draws random numbers, which fall on other elements in another layout" if evidence.draws else unsteady(found)


def gv211(evidence: Evidence) -> Iterator[Finding | str]:
    wanted = _as_wanted(evidence)
    if wanted is not None:
        yield wanted
        return
    refused: list[str] = []
    layouts = evidence.spending.some(LAYOUTS, 1, 1, "layouts")
    for what, layout in layouts:
        arguments = [_laid(argument, layout) for argument in evidence.subject.arguments]
        if all(a.value.is_contiguous() for a in arguments if a.is_tensor):
            continue
        try:
            fault = _fault(evidence, arguments)
        except UserCodeError as error:
            refused.append(f"with inputs {what} {error.message}")
            continue
        if fault is not None:
            yield _named(evidence, what, layout, fault) if _comes_again(evidence, arguments) else _now_and_then(what, fault)
            return
    if len(refused) == len(layouts):
        raise NotApplicable(refused[0])
    yield from refused


def _as_wanted(evidence: Evidence) -> Finding | None:
    """The Jacobian of `layout: expanded` is measured on separate elements; elements that share memory must give the same.

    Raises UserCodeError (GV002) where forward refuses what the spec asks for.
    """
    subject = evidence.subject
    names = " and ".join(a.name for a in subject.arguments if a.layout == "expanded")
    if not names:
        return None
    if subject.writes:
        raise UserCodeError("GV002", f"the function writes into its inputs, which {names}, expanded, cannot take: its elements share memory")
    try:
        fault = _fault(evidence, [_laid(a, expanded) if a.layout == "expanded" else a for a in subject.arguments])
    except UserCodeError as error:
        raise UserCodeError(error.code, f"with {names} expanded (stride 0) {error.message}", error.frames, error.hint) from error
    if fault is None:
        return None
    return _found(evidence, f"{names} expanded (stride 0)", fault.input, fault)


def _laid(argument: Argument, layout: Callable[[Tensor], Tensor]) -> Argument:
    return replace(argument, value=layout(argument.value), layout=None) if argument.is_tensor else argument


def _fault(evidence: Evidence, arguments: Sequence[Argument]) -> Fault | None:
    """What differs from the base call with these arguments. Raises UserCodeError where forward refuses them, NotApplicable where it is random."""
    v = evidence.cotangents("base")
    function = Differentiable(evidence.subject.twin(arguments), evidence.forward.checked)
    try:
        outputs, gradients = function.once(v)
    except UserCodeError as error:
        if error.code != "GV003":
            raise
        return Fault(error.message, frames=error.frames)
    apart = next(chain(outputs_apart(evidence, outputs), gradients_apart(evidence, evidence.worked.gradients, gradients, v)), None)
    if apart is None:
        return None
    if apart.input is not None and (why := random_backward(evidence)):
        raise NotApplicable(why)
    return Fault(f"{apart.text} as with the same numbers {_usual(evidence)}", apart.input, apart.output)


def _comes_again(evidence: Evidence, arguments: Sequence[Argument]) -> bool:
    """Does it come twice more, an odd call between? What is wrong at every nth call does not."""
    try:
        if _fault(evidence, arguments) is None:
            return False
        evidence.function.once(evidence.cotangents("base"))
        return _fault(evidence, arguments) is not None
    except UserCodeError:
        return True


def _now_and_then(what: str, fault: Fault) -> Finding:
    code, who = ("GV206", "backward") if fault.output is None else ("GV205", "forward")
    return Finding(code, f"{who} is not deterministic: with inputs {what}, {fault.text}; and the same call again gives these", input=fault.input,
                   output=fault.output, hint=ANOTHER)


def _usual(evidence: Evidence) -> str:
    """How the inputs of the base call lie in memory."""
    contiguous = all(a.layout in ("contiguous", "expanded") for a in evidence.subject.arguments)
    return "contiguous" if contiguous else "laid out as the spec says"


def _named(evidence: Evidence, what: str, layout: Callable[[Tensor], Tensor], fault: Fault) -> Finding:
    """The finding, with the first argument that does it alone."""
    own, name = evidence.subject.arguments, None
    for place, argument in enumerate(own):
        if not argument.is_tensor or argument.value.numel() < 2:
            continue
        try:
            alone = _fault(evidence, [_laid(a, layout) if i == place else a for i, a in enumerate(own)])
        except UserCodeError:
            continue
        if alone is not None:
            fault, name = alone, argument.name
            break
    return _found(evidence, f"{name or 'all inputs'} {what}", name, fault)


def _found(evidence: Evidence, laid: str, name: str | None, fault: Fault) -> Finding:
    """The finding; at forward, where an output is another."""
    found = Finding("GV211", f"with {laid}, {fault.text}", input=name, output=fault.output, hint=CONTIGUOUS_INPUT, frames=fault.frames)
    return found if fault.output is None else at_forward(found, evidence)
