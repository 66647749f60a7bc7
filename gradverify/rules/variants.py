"""Rules that call the function in another way, which must give the same outputs and gradients:
compiled, on another device, under autocast or vmap, with scaled cotangents, in other layouts, for
fewer inputs or outputs."""

from __future__ import annotations

import linecache
import math
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import cached_property, partial
from itertools import chain, islice
from typing import Any

import torch
from torch import Tensor

from gradverify.evidence import Evidence
from gradverify.model.result import Finding, Frame, Severity
from gradverify.oracles.legs import Kernel
from gradverify.rules.at_line import at_forward
from gradverify.rules.differ import (
    DUST,
    SIXTEEN,
    Called,
    Difference,
    Variant,
    differ,
    differences,
    dust,
    flat,
    gradient_at,
    largest,
    off,
    random_backward,
    rounded_anew,
    seldom,
    side,
    subsets,
    tolerance,
    varied,
    worst_of,
)
from gradverify.rules.engine import NotApplicable, refused
from gradverify.rules.low_precision import CASTS, beyond_native
from gradverify.rules.shown import Findings, RuleResults, element_name, results
from gradverify.rules.shown import apart as in_digits
from gradverify.subject.another import other_points
from gradverify.subject.differentiable import Gradients, batched_gradients, copied
from gradverify.subject.failure import UserCodeError, attempted, tried
from gradverify.subject.fewer_bits import in_all_bits
from gradverify.subject.graph import lacking
from gradverify.subject.layout import conjugated, constant, expanded, offset, permuted, sliced
from gradverify.subject.on_device import Compiler, back, no_compiler, on_device
from gradverify.subject.subject import Argument
from gradverify.subject.vmapped import SIZE, Batches, Dims
from gradverify.subject.wide import casts_inside, wide
from gradverify.torch_private import CPP_NODE, undefined

# ---- GV116 compiled: through torch.compile the function gives other numbers, or raises
TRACED = "look for what Python decides or keeps, which is fixed where torch.compile traces it"
# What torch writes before the message of the original error
BACKEND = re.compile(r"BackendCompilerFailed: backend='\w+' raised: ")
LONGEST = 400  # characters of an error's message


def gv116(evidence: Evidence) -> Findings:
    if (
        reason := no_compiler()
        if evidence.settings.compile
        else "the spec does not say `compile: true`"
    ):
        raise NotApplicable(reason)
    compiler = Compiler()
    found = list(_compiled(compiler, evidence, ""))
    if not compiler.graphs and not found:
        raise NotApplicable(
            "torch.compile finds nothing in it that it can compile, and runs it eagerly"
        )
    yield from found
    for there in islice(map(evidence.at, other_points(evidence.subject)), not found):
        where = " at another point of the same kind"
        yield from tried(list, _compiled(compiler, there, where, evidence)) or ()


def _compiled(
    compiler: Compiler, evidence: Evidence, where: str, first: Evidence | None = None
) -> Findings:
    """Yield the differences between compiled and eager mode. At another point, the function was
    compiled at the `first` one."""

    def call() -> Called:
        with compiler.compiling(evidence.subject):
            for each in (first, evidence) if first else (evidence,):
                seen = side(compiler.through(each.subject), evidence, each.cotangents("base"))
        return seen

    eager = Called(evidence.outputs, evidence.worked.gradients)
    for found in varied(
        evidence,
        Variant("GV116", f"through torch.compile{where}", "as in eager mode", TRACED),
        call,
        eager,
    ):
        text = BACKEND.sub("", found.message).partition(" Set TORCH")[0]
        yield replace(found, message=text if len(text) <= LONGEST else f"{text[:LONGEST]}…")


# ---- GV118 devices: on one device the function gives other numbers than on another
WHICH_DEVICE = (
    "the other rules, on each device, say which of the two is wrong; where they find nothing, "
    "forward is another function there"
)


def gv118(evidence: Evidence) -> RuleResults:
    own, device = evidence.subject.own, evidence.settings.device
    before = own.case.other_device
    if before is None or torch.device(before) == torch.device(device):
        raise NotApplicable(
            f"both devices are {before}"
            if before
            else "the spec's `matrix` names no device before this one"
        )
    with in_all_bits():
        with refused("GV118", f"on {before}", only=""):
            other = on_device(own, before)
            if evidence.kernel is not None:
                judged = evidence.kernel.apart(
                    Kernel(on_device(evidence.subject, before), other, evidence.forward.checked)
                )
                found = beyond_native(
                    evidence, "GV118", judged, f"on {before}", f"on {device}", WHICH_DEVICE
                )
            else:
                v = evidence.cotangents("base")
                found = compared(evidence, side(own, evidence, v), side(other, evidence, v), before)
        yield from found
    yield f"compared with {before}"


def compared(evidence: Evidence, here: Called, there: Called, other: str) -> Findings:
    """Compare the results on the `other` device with those on the check's own, both for the base
    cotangents."""
    moved = Called(
        [back(x, y) for x, y in zip(there.outputs, here.outputs, strict=True)],
        tuple(
            None if g is None else back(g, x)
            for g, x in zip(there.gradients, evidence.subject.inputs, strict=True)
        ),
    )
    return differ(
        evidence,
        Variant("GV118", f"on {other}", f"as on {evidence.settings.device}", WHICH_DEVICE),
        moved,
        here,
    )


# ---- GV225 autocast: under autocast forward or backward gives other numbers, in float64
def gv225(evidence: Evidence) -> Findings:
    if evidence.low_precision:
        raise NotApplicable(
            "the forward computes in lower precision inside, which autocast may lower further"
        )
    device = evidence.inputs[0].value.device.type
    outside = not torch.is_autocast_enabled(device)

    def autocast(inside: bool) -> AbstractContextManager[Any]:
        return torch.autocast(device, enabled=inside)

    def call(inside: bool) -> Called:
        """Call forward inside autocast and backward outside, or the reverse. A forward outside
        autocast is that of the base call, whose graph is used if it can be used again."""
        with autocast(not inside):
            if not inside and outside and evidence.reusable:
                return Called(
                    evidence.outputs,
                    evidence.function.gradients(
                        evidence.base, evidence.cotangents("base"), retain=True
                    ),
                )
            twin = evidence.subject.twin()
            twin.around = partial(autocast, inside)
            return side(twin, evidence, evidence.cotangents("base"))

    for inside, words in (
        (True, "forward inside autocast and backward outside"),
        (False, "forward outside autocast and backward inside"),
    ):
        variant = Variant("GV225", f"with {words},", "as without", CASTS)
        for finding in varied(evidence, variant, partial(call, inside)):
            # A function that casts inside may rightly give other numbers under autocast
            if casts_inside(evidence.subject):
                return
            if next(varied(evidence, variant, partial(call, inside)), None) is None:
                yield seldom(finding)
            else:
                yield at_forward(finding, evidence) if inside and not finding.frames else finding
            return


# ---- GV218 grad-mode: the result depends on the grad mode
SAME = "compute the same in every grad mode"
# A description, the mode, and whether inputs require a gradient.
# A dependence on no_grad most often shows under inference_mode too, but not the reverse
INFERENCE = ("under torch.inference_mode", torch.inference_mode, False)
NO_GRAD = ("under torch.no_grad", torch.no_grad, True)
# Called only to name the cause more closely
FROZEN = ("where no input requires a gradient", torch.enable_grad, False)


def gv218(evidence: Evidence) -> Findings:
    def under(
        when: str, mode: Callable[[], AbstractContextManager[Any]], required: bool
    ) -> Finding | UserCodeError | None:
        """Return the finding under this mode, None where nothing differs; an error where forward
        refuses the mode."""
        leaves = [leaf.requires_grad_(required) for leaf in evidence.subject.leaves()]
        called = attempted(evidence.subject.called, leaves, mode)
        if isinstance(called, UserCodeError):
            return called
        ys = called.outputs
        seen = Called(
            [ys[place] if place < len(ys) else None for place in evidence.forward.checked],
            worked.gradients,
        )
        return next(
            differ(evidence, Variant("GV218", when, "as with gradients", SAME), seen, v=()), None
        )

    worked = evidence.worked
    found = under(*INFERENCE)
    if found is not None:
        closer = (
            under(*mode)
            for mode in ((NO_GRAD, FROZEN) if isinstance(found, Finding) else (NO_GRAD,))
        )
        found = next((each for each in closer if isinstance(each, Finding)), found)
    if isinstance(found, Finding):
        yield found
    # leaf .backward() with create_graph leaves reference cycles behind
    if evidence.function.leaf_only:
        return
    v = worked.cotangents
    created = tried(lambda: evidence.function.gradients(evidence.usable(), v, create=True))
    variant = Variant("GV218", "under create_graph=True", "as without it", SAME)
    for each in differences(evidence, worked.gradients, created, v) if created else ():
        # torch's `det` computes in another way there, which loses digits
        if abs(each.seen - each.expected) > evidence.rtol * abs(each.expected):
            yield variant.found(each)


# ---- GV208 input-subset: a gradient is wrong or missing when other inputs need none
WHICHEVER_OTHERS = (
    "outputs and gradients must be the same whichever others are wanted: "
    "ctx.needs_input_grad[i] is about argument i alone, and must not change what forward returns"
)


def gv208(evidence: Evidence) -> Findings:
    reported = set[str | None]()
    for subset in evidence.spending.some(subsets(len(evidence.inputs)), 1, 1, "subsets"):
        for finding in _for_subset(evidence, subset):
            if finding.input not in reported:
                reported.add(finding.input)
                yield finding


def _for_subset(evidence: Evidence, subset: tuple[int, ...]) -> Findings:
    """Yield what differs when only these inputs require a gradient."""
    leaves = [
        leaf.requires_grad_(place in subset) for place, leaf in enumerate(evidence.subject.leaves())
    ]
    first = evidence.inputs[subset[0]].name
    when = (
        f"when only {' and '.join(evidence.inputs[place].name for place in subset)} "
        f"require{'s' if len(subset) == 1 else ''} a gradient"
    )
    with _recorded() as texts:
        graph = tried(evidence.function.graph, leaves)
    if graph is None:
        return
    ys = evidence.function.of(graph)
    if texts and not any(y.requires_grad for y in ys):
        with _recorded() as usual:
            evidence.function.graph(evidence.subject.leaves())
        if own := [text for text in texts if text not in usual]:
            yield Finding(
                "GV208",
                f"no output has a gradient {when}, and forward warns of it: {own[0]}",
                severity="warning",
                input=first,
                hint="let an input of that part need a gradient too",
            )
            return

    def call() -> Called:
        seen = zip(
            evidence.function.gradients(graph, worked.cotangents), worked.gradients, strict=True
        )
        return Called(
            ys, tuple(g if place in subset else usual for place, (g, usual) in enumerate(seen))
        )

    worked, variant = evidence.worked, Variant("GV208", when, "as when all do", WHICHEVER_OTHERS)
    for found in varied(evidence, variant, call, v=worked.cotangents):
        yield replace(found, input=found.input or (first if found.output is None else None))
        if found.output is not None:
            return


@contextmanager
def _recorded() -> Iterator[list[str]]:
    """Record the Python warnings inside the block: the first line of each, in the list, after the
    block."""
    texts = list[str]()
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        yield texts
    texts += [str(each.message).partition("\n")[0] for each in given]


# ---- GV209 unused-output: backward is wrong when not all outputs are used
MAY_BE_ZERO = (
    "treat every incoming gradient as one that may be zero, or None under "
    "set_materialize_grads(False)"
)
NOTHING, ONLY = "with no gradient for any output", "with a gradient for {} only"


def gv209(evidence: Evidence) -> Findings:
    v = evidence.cotangents("base")
    several = len(evidence.outputs) > 1 or evidence.function.refuses_none
    if several and (found := next(_some_used(evidence, v), None)) is not None:
        yield found
        return
    # With no output's gradient defined, backward may return None or zeros, and should not raise
    with refused(
        "GV209",
        f"{NOTHING}, as behind a Function that returns None,",
        MAY_BE_ZERO,
        severity="warning",
    ):
        gradients: Gradients | None = None
        if evidence.reusable:
            gradients = tried(
                evidence.function.gradients, evidence.base, v, retain=True, through=undefined
            )
        # Otherwise, and where the base graph refuses it, on a fresh graph
        if gradients is None:
            gradients = evidence.function.once(v, through=undefined)[1]
    for apart in differences(
        evidence, (None,) * len(gradients), gradients, [torch.zeros_like(c) for c in v]
    ):
        yield Finding("GV209", f"{NOTHING} {apart.text}", input=apart.input, hint=MAY_BE_ZERO)


def _some_used(evidence: Evidence, v: Sequence[Tensor]) -> Findings:
    """Yield what differs when only one output has a gradient, then when all but one have: backward
    may branch rightly for all outputs and for each individually, but not for some of them."""
    numbers = evidence.forward.checked

    def pulled(cotangents: Sequence[Tensor | None], words: str, number: int | None) -> Gradients:
        with refused("GV209", f"{words},", MAY_BE_ZERO, output=number):
            seen = copied(
                evidence.function.vjp([None if c is None else c.clone() for c in cotangents])
            )
            if evidence.function.refuses_none:
                raise evidence.function.refuses_none
            return seen

    def apart(
        expected: Gradients,
        seen: Gradients,
        weights: Sequence[Tensor],
        words: str,
        usual: str,
        number: int | None = None,
    ) -> Findings:
        variant = Variant("GV209", f"{words},", f"as {usual}", MAY_BE_ZERO)
        for each in differences(evidence, expected, seen, weights):
            yield replace(variant.found(each), output=number)

    alone = [
        pulled(
            [c if place == n else None for n, c in enumerate(v)],
            ONLY.format(evidence.name_of(number)),
            number,
        )
        for place, number in enumerate(numbers)
    ]
    yield from apart(
        evidence.worked.gradients,
        _summed(alone),
        v,
        "with a gradient for one output at a time, summed",
        "with gradients for all outputs at once",
    )
    zeros = [torch.zeros_like(c) if place else c for place, c in enumerate(v)]
    only = ONLY.format(evidence.name_of(numbers[0]))
    yield from apart(
        pulled(zeros, only, numbers[0]),
        alone[0],
        zeros,
        only,
        "with zeros for the others",
        numbers[0],
    )
    # With two outputs, all but one was covered above
    for place, number in enumerate(numbers) if len(alone) > 2 else ():
        words = f"without a gradient for {evidence.name_of(number)}"
        seen = pulled([None if n == place else c for n, c in enumerate(v)], words, number)
        yield from apart(
            _summed([*alone[:place], *alone[place + 1 :]]),
            seen,
            v,
            words,
            "those of the others one at a time, summed",
            number,
        )


def _summed(apart: Sequence[Gradients]) -> Gradients:
    """Sum the gradients of each input; None where all are None."""
    given = ([part for part in parts if part is not None] for parts in zip(*apart, strict=True))
    return tuple(torch.stack(parts).sum(0) if parts else None for parts in given)


# ---- GV210 cotangent-layout: backward gives another gradient when grad_output is not contiguous
# Instead of 1, the cotangent of a sum, for which backward may take a shortcut: a power of two, so
# that products are exact, of the other sign
TIMES = -2.0
CONTIGUOUS = "call grad_output.contiguous(), or .resolve_conj(), before its memory is read"
OFFSET = (
    "read from data_ptr(), and give as_strided the tensor's own storage_offset(): a storage may "
    "begin before the tensor does"
)
SHORTCUT = "backward must treat a grad_output of one number throughout as any other"
SUM = "a constant with strides 0 (as behind a sum)"
SLICED = "sliced (every second column of wider rows)"
PERMUTED = "permuted (its dimensions in another order in memory)"
BEHIND = "contiguous behind other numbers (as a part of what `torch.cat` gets)"


def gv210(evidence: Evidence) -> Iterator[Finding]:
    if all(y.numel() < 2 for y in evidence.outputs):
        raise NotApplicable("no output has two elements")
    if evidence.worked.damaged:
        raise NotApplicable("backward writes into grad_output")
    v = evidence.cotangents("base")
    layouts: dict[str, Callable[[Tensor], Tensor]] = {SLICED: sliced}
    if not all(permuted(c).is_contiguous() for c in v):
        layouts[PERMUTED] = permuted
    layouts[SUM] = lambda c: constant(c, TIMES)
    if any(c.is_complex() for c in v):
        layouts["stored as its conjugate, with the conjugate bit set"] = lambda c: (
            conjugated(c) if c.is_complex() else c.clone()
        )
    if evidence.poisoned.from_the_start:
        layouts[BEHIND] = offset
    for what, layout in evidence.spending.some(list(layouts.items()), 0, 2, "layouts"):
        if findings := list(_laid_out(evidence, what, list(map(layout, v)))):
            yield from findings
            return


def _laid_out(evidence: Evidence, what: str, cotangents: Sequence[Tensor]) -> Iterator[Finding]:
    words = f"with a grad_output that is {what},"
    hint = OFFSET if what == BEHIND else CONTIGUOUS
    v = evidence.cotangents("base")
    expected = evidence.worked.gradients
    if what == SUM:
        v = tuple(torch.full_like(c, TIMES) for c in cotangents)
        ones = tried(lambda: evidence.for_ones[1])
        expected = (
            copied(evidence.function.vjp(v))
            if ones is None  # backward raises for ones, and may not for other numbers
            else tuple(None if g is None else TIMES * g for g in ones)
        )
    with refused("GV210", words, hint):
        got = copied(evidence.function.vjp(cotangents))
    apart = list(differences(evidence, expected, got, v))
    if apart and (why := random_backward(evidence)):
        raise NotApplicable(why)
    of_layout = (
        apart
        if not apart or what != SUM
        else list(differences(evidence, copied(evidence.function.vjp(v)), got, v))
    )
    for each in apart:
        same = next((other for other in of_layout if other.input == each.input), None)
        if same is None:  # the number causes the difference, and not the layout
            yield from _of_ones(evidence, each)
        else:
            variant = Variant("GV210", words, "as with the same numbers contiguous", hint)
            yield variant.found(same)


def _of_ones(evidence: Evidence, apart: Difference) -> Iterator[Finding]:
    """Yield GV201 where backward is linear except for constant cotangents, for which it takes a
    shortcut: by more than `rtol`, unlike a solver that stops early."""
    again = copied(evidence.function.vjp([-TIMES * c for c in evidence.cotangents("base")]))
    halved = [None if g is None else g / -TIMES for g in again]
    linear = all(
        each.input != apart.input
        for each in differences(evidence, evidence.worked.gradients, halved)
    )
    _, rtol = evidence.settings.tolerances(low_precision=evidence.low_precision)
    if (
        linear
        and evidence.settings.looks_for("GV201")
        and abs(apart.seen - apart.expected) > rtol * max(abs(apart.seen), abs(apart.expected))
    ):
        yield Finding(
            "GV201",
            f"backward is not linear in grad_output: at {apart.where} it gives "
            f"{apart.expected / TIMES:.6g} for a grad_output of "
            f"ones, but {apart.seen:.6g} for one of {TIMES:g} throughout",
            input=apart.input,
            hint=SHORTCUT,
        )


# ---- GV211 input-layout: an input that is not contiguous gives other numbers
CONTIGUOUS_INPUT = (
    "call .contiguous() on it before its memory is read, or refuse what is not contiguous"
)
SLICE = "contiguous behind other numbers (as a slice of a larger tensor)"
Layout = Callable[[Tensor], Tensor]


def gv211(evidence: Evidence) -> RuleResults:
    own = [a for a in evidence.subject.arguments if a.is_tensor]
    if evidence.forward.freed:
        raise NotApplicable("forward gives the memory of its input back, which a view shares")
    if all(a.value.numel() < 2 for a in own):
        raise NotApplicable("no input has two elements")
    if wanted := list(_as_wanted(evidence)):
        yield wanted[0]
        return
    refusals = list[str]()
    layouts: list[tuple[str, Layout]] = [
        (what, layout)
        for what, layout in ((SLICED, sliced), (PERMUTED, permuted))
        if not all(layout(a.value).is_contiguous() for a in own)
    ]
    if evidence.poisoned.from_the_start:
        layouts.append((SLICE, offset))
    chosen = evidence.spending.some(layouts, 1, 1, "layouts")
    for what, layout in chosen:
        found = attempted(_fault, evidence, f"all inputs {what}", layout)
        if isinstance(found, UserCodeError):
            refusals.append(f"with inputs {what} {found.message}")
            continue
        if found is not None and tried(_comes_again, evidence, layout) is False:
            yield seldom(found)
            return
        if found is not None:  # reported for the first argument that causes it on its own
            for argument in (a for a in own if a.value.numel() > 1):
                alone = tried(_fault, evidence, f"{argument.name} {what}", layout, [argument])
                if alone is not None:
                    found = replace(alone, input=argument.name)
                    break
            else:
                found = replace(found, input=None)
            yield found
            return
    if refusals and len(refusals) == len(chosen):
        raise NotApplicable(refusals[0])
    yield from refusals


def _comes_again(evidence: Evidence, layout: Layout) -> bool:
    """Return whether the fault shows in two more calls, with one between them that makes their
    distance odd: a fault of every nth call does not. Raises UserCodeError."""
    if _fault(evidence, "", layout) is None:
        return False
    evidence.function.once(evidence.cotangents("base"))
    return _fault(evidence, "", layout) is not None


def _as_wanted(evidence: Evidence) -> Findings:
    """Yield what differs for inputs of `layout: expanded`: their Jacobian is measured on separate
    elements, and elements that share memory must give the same.

    Raises UserCodeError (GV002) where forward refuses the layout that the spec requests.
    """
    wanted = [a for a in evidence.subject.arguments if a.layout == "expanded"]
    names = " and ".join(a.name for a in wanted)
    if wanted and evidence.subject.writes:
        raise UserCodeError(
            "GV002",
            f"the function writes into its inputs, which {names}, expanded, cannot take: its "
            "elements share memory",
        )
    laid = f"{names} expanded (stride 0)"
    found = attempted(_fault, evidence, laid, expanded, wanted) if wanted else None
    if isinstance(found, UserCodeError):
        message = f"with {laid} {found.message}"
        raise UserCodeError(found.code, message, found.frames, found.hint) from found
    if found is not None:
        yield found


def _fault(
    evidence: Evidence, laid: str, layout: Layout, chosen: Sequence[Argument] | None = None
) -> Finding | None:
    """Return what differs from the base call with arguments (the `chosen` ones, by default all) in
    this layout. Raises UserCodeError where forward refuses them, NotApplicable where backward is
    random."""
    own = evidence.subject.arguments
    arguments = [
        replace(a, value=layout(a.value), layout=None)
        if a.is_tensor and (chosen is None or a in chosen)
        else a
        for a in own
    ]
    usual = (
        "contiguous"
        if all(a.layout in ("contiguous", "expanded") for a in own)
        else "laid out as the spec says"
    )
    hint = OFFSET if layout is offset else CONTIGUOUS_INPUT
    variant = Variant("GV211", f"with {laid},", f"as with the same numbers {usual}", hint)
    twin = evidence.subject.twin(arguments)
    seen = attempted(side, twin, evidence, evidence.cotangents("base"))
    if isinstance(seen, UserCodeError):
        if seen.code != "GV003":
            raise seen
        return variant.raised(seen)
    found = next(differ(evidence, variant, seen), None)
    if found is not None and found.input is not None and (why := random_backward(evidence)):
        raise NotApplicable(why)
    if found is not None and found.input is None:
        return at_forward(found, evidence)
    return found


# ---- GV110 vmap: a vmapped call differs from a loop
AS_A_LOOP = (
    "the vmap rule returns (outputs, out_dims), as a loop over the examples would: in_dims holds "
    "one entry per argument, the "
    "dimension that is batched, or None for an argument that all examples share"
)
GENERATED = (
    "the generated rule runs forward and backward on all examples at once, under vmap, where each "
    "must do what it does for one example"
)

LOUD = (
    "the generated rule runs forward and backward under vmap, which refuses this: do without it, "
    "write the rule by hand, or leave out generate_vmap_rule"
)
SHARED = (
    "torch's generated rule counts the gradient of an output that no batched argument reaches once "
    "for each example: return that output from a Function of its own, or write the rule by hand"
)


def gv110(evidence: Evidence) -> Findings:
    # Why the graph contains no vmap rule of the user; None where all its Functions declare one
    cls = lacking(evidence.forward.classes, "vmap", "generate_vmap_rule")
    undeclared = cls and f"{cls} declares no vmap rule"
    if not evidence.forward.classes:
        undeclared = (
            "no custom Function is in the graph, and torch's operators have torch's own rules "
            "(`vmap: true` runs them)"
        )
    if (
        reason := (evidence.settings.vmap == "auto" and undeclared)
        or evidence.modes.batches.impossible
    ):
        raise NotApplicable(reason)
    if undeclared is not None and evidence.forward.classes:
        yield Finding(
            "GV110",
            f"the spec says `vmap: true`, but {undeclared}",
            hint="say generate_vmap_rule = True, or leave out `vmap: true`",
        )
        return
    raised: Finding | None = None
    for dims in evidence.spending.some(
        evidence.modes.batches.variants, 2 * SIZE, 2 * SIZE, "choices of in_dims"
    ):
        finding = _tried(evidence, evidence.modes.batches, dims)
        if finding is not None and finding.severity == "error":
            yield finding
            return
        raised = raised or finding
    if raised is not None:
        yield raised


def _tried(evidence: Evidence, batches: Batches, dims: Dims) -> Finding | None:
    """Return the finding for one choice of in_dims; None where there is none."""
    shown = f"with in_dims ({', '.join(map(str, dims))}{',' if len(dims) == 1 else ''})"
    # All vmap rules are written by hand, and none is generated
    by_hand = all(lacking([cls], "vmap") is None for cls in evidence.forward.classes)
    seen = attempted(batches.vmapped, dims)
    if isinstance(seen, UserCodeError):
        severity: Severity = "error" if evidence.settings.vmap is True else "warning"
        return Finding(
            "GV110",
            f"{shown} {seen.message}",
            severity=severity,
            frames=seen.frames,
            hint=None if by_hand else LOUD,
        )
    looped, hint = batches.looped(dims), AS_A_LOOP if by_hand else GENERATED
    both = (*seen.outputs, *seen.gradients), (*looped.outputs, *looped.gradients)
    for result, vmapped, loop in zip(results(evidence), *both, strict=True):
        if vmapped.shape != loop.shape:
            name = result.name if result.input is None else f"grad_{result.name}"
            return Finding(
                "GV110",
                f"{shown} {name} has shape {list(vmapped.shape)}, but {list(loop.shape)} from a "
                "loop",
                hint=hint,
            )
    own = [dim for dim, wanted in zip(dims, batches.differentiable, strict=True) if wanted]
    batched = {x.name: dim is not None for x, dim in zip(evidence.inputs, own, strict=True)}
    for example in range(SIZE):
        ours, theirs = ([y[example] for y in each.outputs] for each in (seen, looped))
        mine, loops = (
            [
                g[example] if own else g
                for g, own in zip(each.gradients, batched.values(), strict=True)
            ]
            for each in (seen, looped)
        )
        of_gradients = differences(evidence, loops, mine, evidence.cotangents(f"example {example}"))
        for each in chain(differences(evidence, theirs, ours, (), outputs=True), of_gradients):
            where = each.where if each.input is None else f"grad_{each.where}"
            of = f" of example {example}" if batched.get(each.input or "", True) else ""
            # A generated rule is at fault itself where an output is the same for all examples
            same = not by_hand and any(torch.equal(y, y[:1].expand_as(y)) for y in looped.outputs)
            given, wanted = each.numbers
            return Finding(
                "GV110",
                f"{shown} {where}{of} is {given}, but {wanted} from a loop",
                hint=SHARED if same else hint,
            )
    return None


# ---- GV228 unbatchable: backward does not take several cotangents at once
OF_THE_BASE = (1.0, -0.5)  # factors of the base cotangent: backward is linear, or GV201 was found
# torch's words for a number that is read out of a batch
READS = re.compile(r"aten::(item|_local_scalar_dense|is_nonzero|equal|allclose)\b")
# torch's words for a batch that is written into one tensor
WRITES = re.compile(r"vmap: (aten::)?(\w+)\(self, ")
# Operations on rows and slices, for which torch is at fault
PLACES = (
    "index_add_",
    "scatter_add_",
    "scatter_",
    "scatter_reduce_",
    "index_put_",
    "index_copy_",
    "copy_",
)
HINT_READS = (
    "use torch.where, or compute both branches, in place of .item(), float() or `if` on grad_output"
)
HINT_WRITES = "compute the gradient out of place, or write it into torch.zeros_like(grad_output)"


def gv228(evidence: Evidence) -> Findings:
    if evidence.function.leaf_only:
        raise NotApplicable("torch.autograd.grad is refused")
    if any(type(node).__name__ == CPP_NODE for node in evidence.forward.nodes):
        raise NotApplicable("a Function written in C++ reads memory that a batch has not")
    v = evidence.worked.cotangents
    subject, function, classes = evidence.subject, evidence.function, evidence.forward.classes
    seen = attempted(
        lambda: batched_gradients(subject, function, evidence.usable(), classes, v, OF_THE_BASE)
    )
    if isinstance(seen, UserCodeError):
        yield _refused(seen)
    else:
        yield from _differing(evidence, v, seen)


def _refused(error: UserCodeError) -> Finding:
    """Return the finding for an error under batched cotangents. Raises NotApplicable where torch is
    at fault, or backward leaves torch."""
    reads, writes = READS.search(error.message), WRITES.search(error.message)
    if reads and _ends_a_loop(error.frames):
        raise NotApplicable(
            "backward iterates until grad_output has converged, which each cotangent does in its "
            "own time"
        )
    if reads:
        other = {"is_nonzero": "an `if`", "equal": "equal", "allclose": "allclose"}
        operation = other.get(reads[1], ".item()")
        return Finding(
            "GV228",
            "backward refuses batched cotangents (is_grads_batched): it asks grad_output for a "
            f"number ({operation})",
            hint=HINT_READS,
            frames=error.frames,
        )
    if writes and writes[2] not in PLACES:
        return Finding(
            "GV228",
            "backward refuses batched cotangents (is_grads_batched): it writes them in place "
            f"({writes[2]}) into a tensor that has no batch",
            hint=HINT_WRITES,
            frames=error.frames,
        )
    raise NotApplicable(f"a batched {error.message}")


def _ends_a_loop(frames: Sequence[Frame]) -> bool:
    """Return whether the failing line decides if a loop goes on, as in a solver: `while …`, or
    `if …: break`."""
    if not frames:
        return False
    last = frames[-1]
    answer = f"{last.text} {linecache.getline(last.file, last.line + 1).strip()}"
    return last.text.startswith("while ") or bool(re.match(r"(el)?if .*:\s*break\b", answer))


def _differing(evidence: Evidence, v: Sequence[Tensor], seen: Sequence[Tensor | None]) -> Findings:
    reported = set[str | None]()
    for place, factor in enumerate(OF_THE_BASE):
        wanted = [
            None if gradient is None else factor * gradient
            for gradient in evidence.worked.gradients
        ]
        given = [None if batch is None else batch[place] for batch in seen]
        for difference in differences(evidence, wanted, given, [factor * c for c in v]):
            many, single = difference.numbers
            if difference.input not in reported:
                reported.add(difference.input)
                yield Finding(
                    "GV228",
                    f"of batched cotangents (is_grads_batched) the gradient at {difference.where} "
                    f"is {many}, of one alone {single}",
                    input=difference.input,
                    hint="let backward treat every grad_output of the batch by itself",
                )


# Factors of the two halves: both negative, far apart, one of them no power of two; then for 16 bits
FACTORS = (-3.0 * 2.0**20, -(2.0**-40))
FACTORS_16 = (-12.0, -(2.0**-4))
SMALL, OF_ORDER_ONE = -3.0, -5 / 8  # instead of the large factor, and of the small one
ROUNDED = 1e-6  # of the largest gradient: float64 rounds by less
ONCE = "every gradient that backward returns must contain grad_output exactly once, as a factor"
OVER = "the scale of a loss in mixed precision makes grad_output large"
UNDER = (
    "look for an absolute tolerance or threshold inside backward: losses that are averages make "
    "grad_output small"
)


def gv201(evidence: Evidence) -> Findings:
    halves = _Halves(evidence)
    coarse = evidence.precision > SIXTEEN
    factors = FACTORS_16 if coarse else FACTORS
    seen = halves.apart(*factors)
    # They came of one graph, which gives other gradients the second time
    if evidence.repeats is not None and not evidence.reusable:
        seen = halves.apart(*factors)
    alone = halves.one_alone()
    for place, argument in enumerate(evidence.inputs):
        whole, parts = halves.together[place], seen[place]
        worst = _worst(evidence, argument, whole, parts)
        apart = worst is None and alone is not None
        if worst is None and alone is not None:
            parts = alone[place]
            worst = _worst(evidence, argument, whole, parts, evidence.rtol)
        # Where any backward loses it
        if (
            worst is not None
            and not coarse
            and float(torch.stack([whole, parts])[:, worst].abs().max())
            < torch.finfo(argument.value.dtype).tiny / abs(FACTORS[1])
        ):
            parts = halves.apart(FACTORS[0], OF_ORDER_ONE)[place]
            worst = _worst(evidence, argument, whole, parts)
        if worst is None:
            continue
        rounding = rounded_anew(
            evidence, partial(gradient_at, evidence, halves.v, place)
        ).expand_as(whole)
        if float((whole - parts)[worst].abs()) <= DUST * float(rounding[worst]):
            continue
        mine, theirs = in_digits(float(whole[worst]), float(parts[worst]))
        where = element_name(argument.name, argument.value, worst)
        if apart:
            yield Finding(
                "GV201",
                f"backward is not linear in grad_output: at {where} it gives {mine} for one "
                f"grad_output, but {theirs} when the largest element of each output comes alone, "
                "then the rest",
                input=argument.name,
                hint=ONCE,
            )
            return
        yield _found(
            halves,
            argument.name,
            f"at {where} it gives {mine} for one grad_output, but {theirs} when",
            coarse,
        )
        return


def _found(halves: _Halves, name: str, gives: str, coarse: bool) -> Finding:
    """Return the finding: a warning where backward is linear up to `rtol` for factors of order 1,
    and zeros give zeros, so that only the small or only the large factor shows a difference."""

    def of_small() -> bool | None:
        """Return whether the small factor causes the difference (True), or the large one (False);
        None where neither alone does."""
        zeros = [bool(g.any()) for g in halves.gradients([torch.zeros_like(v) for v in halves.v])]
        mild = not (coarse or any(zeros)) and halves.linear_at(SMALL, OF_ORDER_ONE)
        if mild and (halves.linear_at(FACTORS[0], OF_ORDER_ONE) or halves.linear_in_float64()):
            return halves.share(SMALL, FACTORS[1]) > halves.share(FACTORS[0], OF_ORDER_ONE)
        return None

    small = tried(of_small)
    if small is not None:
        size, words = (
            ("2⁻⁴⁰", "but not for small ones")
            if small
            else ("3·2²⁰", "but loses digits for large ones")
        )
        return Finding(
            "GV201",
            f"backward is linear in grad_output for factors of order 1, {words}: {gives} a "
            f"part of it comes {size} as large",
            severity="warning",
            input=name,
            hint=UNDER if small else OVER,
        )
    return Finding(
        "GV201",
        f"backward is not linear in grad_output: {gives} the same grad_output comes in two scaled "
        "halves",
        input=name,
        hint=ONCE,
    )


class _Halves:
    """The base cotangent v, split into two halves that get different factors. `together` are the
    gradients for the whole of v, from a repeat of the base call.

    A single element cannot be split: it is passed whole under each factor, as a half of zeros would
    test nothing.
    """

    def __init__(self, evidence: Evidence) -> None:
        self._evidence, self.v = evidence, evidence.worked.cotangents
        source = evidence.subject.generator("mask")
        drawn = [torch.randint(0, 2, y.shape, generator=source) for y in evidence.outputs]
        count, ones = sum(mask.numel() for mask in drawn), sum(int(mask.sum()) for mask in drawn)
        if ones in (0, count):
            first = next(mask for mask in drawn if mask.numel())
            first.view(-1)[0] = 1 - first.view(-1)[0]
        masks = [
            mask.to(device=y.device, dtype=y.dtype)
            for mask, y in zip(drawn, evidence.outputs, strict=True)
        ]
        self._whole = count == 1
        self._large = (
            self.v
            if self._whole
            else [
                _with_a_row_of_sum_zero(v, v * mask) for v, mask in zip(self.v, masks, strict=True)
            ]
        )
        self._small = (
            self.v
            if self._whole
            else [v - half for v, half in zip(self.v, self._large, strict=True)]
        )

    @cached_property
    def together(self) -> list[Tensor]:
        """The gradients for the whole of v: on a graph without watched tensors, as for the halves;
        there are no repeats if that graph refuses a second backward."""
        repeats = self._evidence.repeats
        if repeats and self._evidence.reusable:
            return self._known(repeats[0].values)
        return self.gradients(self.v)

    def apart(self, grow: float, shrink: float) -> list[Tensor]:
        """Return the sum of the gradients for the two halves, each divided by its factor; for a
        single element their mean."""
        large = self.gradients([grow * half for half in self._large])
        small = self.gradients([shrink * half for half in self._small])
        return [
            (a / grow + b / shrink) / (1 + self._whole) for a, b in zip(large, small, strict=True)
        ]

    def one_alone(self) -> list[Tensor] | None:
        """Return the sum of the gradients for the largest element of each output's v alone, and
        for all others: a backward may take another way for a grad_output that is zero but for an
        element. An output of one element gets half of it twice, as GV209 leaves outputs without.
        None where v has one element, or where each backward costs a forward."""
        if self._whole or not self._evidence.reusable:
            return None
        one = [v / 2 if v.numel() == 1 else torch.zeros_like(v).contiguous() for v in self.v]
        for v, each in zip(self.v, one, strict=True):
            if v.numel() > 1:
                at = int(v.reshape(-1).abs().argmax())
                each.view(-1)[at] = v.reshape(-1)[at]
        rest = [v - each for v, each in zip(self.v, one, strict=True)]
        return [a + b for a, b in zip(self.gradients(one), self.gradients(rest), strict=True)]

    def linear_in_float64(self) -> bool:
        """Return whether backward is linear in float64, so that only float32 loses digits of the
        large half."""
        full = self._evidence.in_float64
        halves = ((1.0, self.v), (FACTORS[0], self._large), (FACTORS[1], self._small))
        found = [
            None if isinstance(full, str) else full.full([wide(factor * c) for c in part])
            for factor, part in halves
        ]
        if any(each is None for each in found):
            return False
        whole, large, small = (self._known(tuple(each or ())) for each in found)
        return all(
            largest((a / FACTORS[0] + b / FACTORS[1]) / (1 + self._whole) - w)
            <= ROUNDED * largest(w)
            for w, a, b in zip(whole, large, small, strict=True)
        )

    def share(self, grow: float, shrink: float) -> float:
        """Return how far the halves under these factors are from the whole, as a share of the
        whole's largest number."""
        pairs = zip(self.together, self.apart(grow, shrink), strict=True)
        off = ((largest(whole), (apart - whole).abs()) for whole, apart in pairs)
        shares = (float(by.nan_to_num(nan=torch.inf).max()) / size for size, by in off if size)
        return max(shares, default=0.0)

    def linear_at(self, grow: float, shrink: float) -> bool:
        """Return whether the halves under these factors give the whole, within `rtol`."""
        each = zip(self._evidence.inputs, self.together, self.apart(grow, shrink), strict=True)
        return all(
            bool(apart.isfinite().all())
            and _worst(self._evidence, argument, whole, apart, self._evidence.rtol) is None
            for argument, whole, apart in each
        )

    def gradients(self, cotangents: Sequence[Tensor]) -> list[Tensor]:
        """Return each input's gradient, copied, as the next call may reuse its memory."""
        return self._known(
            self._evidence.function.vjp([cotangent.clone() for cotangent in cotangents])
        )

    def _known(self, gradients: Gradients) -> list[Tensor]:
        return [
            flat(argument, gradient)
            for argument, gradient in zip(self._evidence.inputs, gradients, strict=True)
        ]


def _worst(
    evidence: Evidence, argument: Argument, expected: Tensor, apart: Tensor, relative: float = 0.0
) -> int | None:
    """Return the element where the two differ most, if by more than the tolerance; non-finite
    elements are left to other rules."""
    known = expected.where(apart.isfinite(), torch.nan)
    return worst_of(
        off(known, apart),
        largest(known) * max(relative, tolerance(evidence.precision))
        + dust(evidence, argument.value),
    )


def _with_a_row_of_sum_zero(v: Tensor, half: Tensor) -> Tensor:
    """Return the half of a cotangent v with one row (along the last dimension) replaced by ±2ᵏ, as
    many of one sign as of the other, which add up to exactly zero.

    The signs are those of v where its row has both, and 2ᵏ is at most its smallest magnitude.
    """
    if v.is_complex():
        parts = (_with_a_row_of_sum_zero(part(v), part(half)) for part in (torch.real, torch.imag))
        return torch.complex(*parts)
    if not v.dim() or v.shape[-1] < 2 or not v.numel():
        return half
    rows = v.reshape(-1, v.shape[-1])
    pairs = torch.minimum((rows > 0).sum(-1), (rows < 0).sum(-1))
    place = int((pairs > 0).to(torch.uint8).argmax())
    row, most = rows[place], int(pairs[place])
    if not bool(row.all()):
        return half
    if most:
        signs = (
            sum((each & (each.cumsum(0) <= most)).to(v.dtype) for each in (row > 0, row < 0))
            * row.sign()
        )
    else:  # all of one sign, in every row
        signs = torch.ones_like(row)
        signs[1::2] = -1
        signs[len(row) // 2 * 2 :] = 0
    size = 2.0 ** math.floor(math.log2(float(row.abs().min())))
    found = half.clone().reshape(rows.shape)
    found[place] = size * signs
    return found.reshape(v.shape)
