"""The same function called in another way gives the same outputs and gradients."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from functools import partial
from itertools import combinations, islice
from typing import Any

import torch
from torch import Tensor

from gradverify.evidence import Evidence
from gradverify.model.result import Finding
from gradverify.oracles.legs import Kernel
from gradverify.rules.at_line import at_forward
from gradverify.rules.differ import (
    ANOTHER,
    Called,
    Difference,
    Variant,
    differ,
    differences,
    random_backward,
    side,
    varied,
)
from gradverify.rules.low_precision import CASTS, beyond_native
from gradverify.rules.shown import Findings, NotApplicable, Told, refused
from gradverify.subject.another import other_points
from gradverify.subject.differentiable import Gradients, copied
from gradverify.subject.failure import UserCodeError
from gradverify.subject.fewer_bits import in_all_bits
from gradverify.subject.layout import conjugated, constant, expanded, offset, permuted, sliced
from gradverify.subject.on_device import Compiler, back, no_compiler, on_device
from gradverify.subject.subject import Argument
from gradverify.subject.wide import casts_inside
from gradverify.torch_private import undefined

# ---- GV116 compiled: through torch.compile the function gives other numbers, or raises
TRACED = "look for what Python decides or keeps, which is fixed where torch.compile traces it"
# What torch says before what was raised
BACKEND = re.compile(r"BackendCompilerFailed: backend='\w+' raised: ")
TOLD = 400  # characters of what was raised


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
        with suppress(UserCodeError):
            assert there.worked is not None
            yield from _compiled(compiler, there, " at another point of the same kind", evidence)


def _compiled(
    compiler: Compiler, evidence: Evidence, where: str, first: Evidence | None = None
) -> Findings:
    """Yield what differs between compiled and eager mode. At another point: of a function compiled
    at the `first` one."""

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
        yield replace(found, message=text if len(text) <= TOLD else f"{text[:TOLD]}…")


# ---- GV118 devices: on one device the function gives other numbers than on another
WHICH_DEVICE = (
    "the other rules, on each device, say which of the two is wrong; where they find nothing, "
    "forward is another function there"
)


def gv118(evidence: Evidence) -> Told:
    own, device = evidence.subject.own, evidence.settings.device
    beside = own.case.beside
    if beside is None or torch.device(beside) == torch.device(device):
        raise NotApplicable(
            f"both devices are {beside}"
            if beside
            else "the spec's `matrix` names no device before this one"
        )
    with in_all_bits():
        try:
            other = on_device(own, beside)
            if evidence.kernel is not None:
                judged = evidence.kernel.apart(
                    Kernel(on_device(evidence.subject, beside), other, evidence.forward.checked)
                )
                found = beyond_native(
                    evidence, "GV118", judged, f"on {beside}", f"on {device}", WHICH_DEVICE
                )
            else:
                v = evidence.cotangents("base")
                found = compared(evidence, side(own, evidence, v), side(other, evidence, v), beside)
        except UserCodeError as error:
            raise NotApplicable(f"on {beside} {error.message}") from None
        yield from found
    yield f"compared with {beside}"


def compared(evidence: Evidence, here: Called, there: Called, beside: str) -> Findings:
    """What the device `beside` gives against what is computed here, both for the base
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
        Variant("GV118", f"on {beside}", f"as on {evidence.settings.device}", WHICH_DEVICE),
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
        """Forward outside autocast, where the base call was: its graph serves if it may be asked
        again."""
        with autocast(not inside):
            if not inside and outside and evidence.reusable:
                return Called(
                    evidence.outputs,
                    evidence.function.gradients(
                        evidence.base, evidence.cotangents("base"), retain=True
                    ),
                )
            twin = evidence.subject.twin(evidence.subject.arguments)
            twin.around = partial(autocast, inside)
            return side(twin, evidence, evidence.cotangents("base"))

    for inside, words in (
        (True, "forward inside autocast and backward outside"),
        (False, "forward outside autocast and backward inside"),
    ):
        variant = Variant("GV225", f"with {words},", "as without", CASTS)
        for finding in varied(evidence, variant, partial(call, inside)):
            # What is computed in 16 bits is autocast's to lower
            if casts_inside(evidence.subject):
                return
            if next(varied(evidence, variant, partial(call, inside)), None) is None:
                yield _seldom(finding)
            else:
                yield at_forward(finding, evidence) if inside and not finding.frames else finding
            return


# ---- GV218 grad-mode: the result depends on the grad mode
SAME = "compute the same in every grad mode"
# in words, the mode, whether inputs require a gradient
# In which the one below most often shows too, but not the reverse
INFERENCE = ("under torch.inference_mode", torch.inference_mode, False)
NO_GRAD = ("under torch.no_grad", torch.no_grad, True)
# Only to say that it is this one
FROZEN = ("where no input requires a gradient", torch.enable_grad, False)


def gv218(evidence: Evidence) -> Findings:
    def under(
        when: str, mode: Callable[[], AbstractContextManager[Any]], required: bool
    ) -> Finding | UserCodeError | None:
        """None where nothing differs; an error where forward refuses the mode."""
        try:
            ys = evidence.subject.called(
                [leaf.requires_grad_(required) for leaf in evidence.subject.leaves()], mode
            ).outputs
        except UserCodeError as refusal:
            return refusal
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
    if evidence.function.leaf_only:  # leaf .backward() with create_graph leaves circles behind
        return
    with suppress(UserCodeError):
        seen = evidence.function.gradients(evidence.usable(), worked.cotangents, create=True)
        for each in differences(evidence, worked.gradients, seen, worked.cotangents):
            # torch's `det` takes another way there, that loses digits
            if abs(each.seen - each.expected) > evidence.rtol * abs(each.expected):
                yield Finding(
                    "GV218",
                    f"under create_graph=True {each.text} as without it",
                    input=each.input,
                    hint=SAME,
                )


# ---- GV208 input-subset: a gradient is wrong or missing when other inputs need none
ALL_SUBSETS = 4  # up to so many inputs every subset is tried
PAIRS = 8  # up to so many every two that need none together
WHICHEVER_OTHERS = (
    "outputs and gradients must be the same whichever others are wanted: "
    "ctx.needs_input_grad[i] is about argument i alone, and must not change what forward returns"
)


def gv208(evidence: Evidence) -> Findings:
    reported = set[str | None]()
    for subset in evidence.spending.some(subsets(len(evidence.inputs)), 1, 1, "subsets"):
        for finding in _alone(evidence, subset):
            if finding.input not in reported:
                reported.add(finding.input)
                yield finding


def subsets(count: int) -> list[tuple[int, ...]]:
    """Places of the inputs that require a gradient, without none and without all, few first; pairs
    that require none last, as they are most."""
    sizes = (
        range(1, count)
        if count <= ALL_SUBSETS
        else (1, count - 1, count - 2)
        if count <= PAIRS
        else (1, count - 1)
    )
    return [subset for size in sizes for subset in combinations(range(count), size)]


def _alone(evidence: Evidence, subset: tuple[int, ...]) -> Findings:
    leaves = [
        leaf.requires_grad_(place in subset) for place, leaf in enumerate(evidence.subject.leaves())
    ]
    first = evidence.inputs[subset[0]].name
    when = (
        f"when only {' and '.join(evidence.inputs[place].name for place in subset)} "
        f"require{'s' if len(subset) == 1 else ''} a gradient"
    )
    try:
        with _recorded() as texts:
            graph = evidence.function.graph(leaves)
    except UserCodeError:
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
    """The texts of the Python warnings that are given inside."""
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
    # no output's gradient defined: backward may give None or zeros, and should not raise
    with refused(
        "GV209",
        f"{NOTHING}, as behind a Function that returns None,",
        MAY_BE_ZERO,
        severity="warning",
    ):
        gradients: Gradients | None = None
        # else, and where the base graph refuses it, a fresh one, in every way there is
        if evidence.reusable:
            with suppress(UserCodeError):
                gradients = evidence.function.gradients(
                    evidence.base, v, retain=True, through=undefined
                )
        gradients = (
            evidence.function.once(v, through=undefined)[1] if gradients is None else gradients
        )
    for apart in differences(
        evidence, (None,) * len(gradients), gradients, [torch.zeros_like(c) for c in v]
    ):
        yield Finding("GV209", f"{NOTHING} {apart.text}", input=apart.input, hint=MAY_BE_ZERO)


def _some_used(evidence: Evidence, v: Sequence[Tensor]) -> Findings:
    """Each output alone; then all but each, as backward may branch rightly for all outputs and for
    each alone, and not for some of them."""
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
        for each in differences(evidence, expected, seen, weights):
            yield Finding(
                "GV209",
                f"{words}, {each.text} as {usual}",
                input=each.input,
                output=number,
                hint=MAY_BE_ZERO,
            )

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
    zeros, only = (
        [torch.zeros_like(c) if place else c for place, c in enumerate(v)],
        ONLY.format(evidence.name_of(numbers[0])),
    )
    yield from apart(
        pulled(zeros, only, numbers[0]),
        alone[0],
        zeros,
        only,
        "with zeros for the others",
        numbers[0],
    )
    # Of two, all but one is one alone
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
    """Of each input; None where all are."""
    given = ([part for part in parts if part is not None] for parts in zip(*apart, strict=True))
    return tuple(torch.stack(parts).sum(0) if parts else None for parts in given)


# ---- GV210 cotangent-layout: backward gives another gradient when grad_output is not contiguous
# Times the cotangent of a sum, 1, which shortcuts of backward ask for: exact, of the other sign
TIMES = -2.0
CONTIGUOUS = "call grad_output.contiguous(), or .resolve_conj(), before its memory is read"
SHORTCUT = "backward must treat a grad_output of one number throughout as any other"
SUM = "a constant with strides 0 (as behind a sum)"
SLICED, PERMUTED = (
    "sliced (every second column of wider rows)",
    "permuted (its dimensions in another order in memory)",
)


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
    if evidence.function.reusable:
        layouts["contiguous behind other numbers (as a part of what `torch.cat` gets)"] = offset
    for what, layout in evidence.spending.some(list(layouts.items()), 0, 2, "layouts"):
        if findings := list(_laid_out(evidence, what, list(map(layout, v)))):
            yield from findings
            return


def _laid_out(evidence: Evidence, what: str, cotangents: Sequence[Tensor]) -> Iterator[Finding]:
    words, v, expected = (
        f"with a grad_output that is {what},",
        evidence.cotangents("base"),
        evidence.worked.gradients,
    )
    if what == SUM:
        v = tuple(torch.full_like(c, TIMES) for c in cotangents)
        try:
            expected = tuple(None if g is None else TIMES * g for g in evidence.for_ones[1])
        except UserCodeError:  # it raises for ones, and need not for others
            expected = copied(evidence.function.vjp(v))
    with refused("GV210", words, CONTIGUOUS):
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
        if same is None:  # the number makes it, and not the layout
            yield from _of_ones(evidence, each)
        else:
            yield Finding(
                "GV210",
                f"{words} {same.text} as with the same numbers contiguous",
                input=each.input,
                hint=CONTIGUOUS,
            )


def _of_ones(evidence: Evidence, apart: Difference) -> Iterator[Finding]:
    """GV201, where backward is linear but for constants: it takes a shortcut for them. By more than
    `rtol`, unlike a solver that stops early."""
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
Layout = Callable[[Tensor], Tensor]


def gv211(evidence: Evidence) -> Told:
    own = evidence.subject.arguments
    if evidence.forward.freed:
        raise NotApplicable("forward gives the memory of its input back, which a view shares")
    if all(a.value.numel() < 2 for a in own if a.is_tensor):
        raise NotApplicable("no input has two elements")
    if wanted := list(_as_wanted(evidence)):
        yield wanted[0]
        return
    refused = list[str]()
    layouts: Sequence[tuple[str, Layout]] = evidence.spending.some(
        [(SLICED, sliced), (PERMUTED, permuted)], 1, 1, "layouts"
    )
    for what, layout in layouts:
        if all(layout(a.value).is_contiguous() for a in own if a.is_tensor):
            continue
        try:
            found = _fault(evidence, f"all inputs {what}", layout)
        except UserCodeError as error:
            refused.append(f"with inputs {what} {error.message}")
            continue
        if found is not None and not _comes_again(evidence, layout):
            yield _seldom(found)
            return
        if found is not None:  # named by the first argument that does it alone
            for argument in (a for a in own if a.is_tensor and a.value.numel() > 1):
                with suppress(UserCodeError):
                    if (
                        alone := _fault(evidence, f"{argument.name} {what}", layout, [argument])
                    ) is not None:
                        found = replace(alone, input=argument.name)
                        break
            else:
                found = replace(found, input=None)
            yield found
            return
    if len(refused) == len(layouts):
        raise NotApplicable(refused[0])
    yield from refused


def _seldom(found: Finding) -> Finding:
    """What differs at one call and not at the next, which is no matter of how it is called."""
    who, code = ("backward", "GV206") if found.output is None else ("forward", "GV205")
    return replace(
        found,
        code=code,
        message=f"{who} is not deterministic: {found.message}; and the same call again gives these",
        hint=ANOTHER,
    )


def _comes_again(evidence: Evidence, layout: Layout) -> bool:
    """Does it come twice more, an odd call between? What is wrong at every nth call does not."""
    try:
        if _fault(evidence, "", layout) is None:
            return False
        evidence.function.once(evidence.cotangents("base"))
        return _fault(evidence, "", layout) is not None
    except UserCodeError:
        return True


def _as_wanted(evidence: Evidence) -> Findings:
    """The Jacobian of `layout: expanded` is measured on separate elements; elements that share
    memory must give the same.

    Raises UserCodeError (GV002) where forward refuses what the spec asks for.
    """
    asked = [a for a in evidence.subject.arguments if a.layout == "expanded"]
    names = " and ".join(a.name for a in asked)
    if asked and evidence.subject.writes:
        raise UserCodeError(
            "GV002",
            f"the function writes into its inputs, which {names}, expanded, cannot take: its "
            "elements share memory",
        )
    try:
        if (
            asked
            and (found := _fault(evidence, f"{names} expanded (stride 0)", expanded, asked))
            is not None
        ):
            yield found
    except UserCodeError as error:
        raise UserCodeError(
            error.code,
            f"with {names} expanded (stride 0) {error.message}",
            error.frames,
            error.hint,
        ) from error


def _fault(
    evidence: Evidence, laid: str, layout: Layout, chosen: Sequence[Argument] | None = None
) -> Finding | None:
    """What differs from the base call with arguments (all, if none are `chosen`) in that layout.
    Raises UserCodeError where forward refuses them, NotApplicable where backward is random."""
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
    variant = Variant(
        "GV211", f"with {laid},", f"as with the same numbers {usual}", CONTIGUOUS_INPUT
    )
    try:
        seen = side(evidence.subject.twin(arguments), evidence, evidence.cotangents("base"))
    except UserCodeError as error:
        if error.code != "GV003":
            raise
        return Finding(
            "GV211", f"{variant.words} {error.message}", frames=error.frames, hint=variant.hint
        )
    found = next(differ(evidence, variant, seen), None)
    if found is not None and found.input is not None and (why := random_backward(evidence)):
        raise NotApplicable(why)
    return found
