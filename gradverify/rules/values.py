"""Gradients that differ from the finite differences of forward, element by element."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import numpy as np

from gradverify.evidence import Evidence
from gradverify.model.result import Finding
from gradverify.numerics.estimate.noise import POINTS
from gradverify.numerics.function.point import Point
from gradverify.numerics.pairs.pair import DEVIATES, SMALLEST_DEVIATION, Outcome, Pair
from gradverify.numerics.rungs import Z
from gradverify.numerics.verdict import Limit
from gradverify.oracles.finite_difference import Filled
from gradverify.rules.shown import (
    Findings,
    NotApplicable,
    Told,
    apart,
    comparison,
    differs,
    element_name,
    place_name,
    unfinished,
)
from gradverify.subject.modules import Hooks, after_accumulation, hooks_of
from gradverify.subject.subject import Argument

# ---- Is a gradient that differs from the forward's own slope likely to be meant? Then the hint
# names the key that says so
FLAT = (
    "the forward does not move here, so its slope is zero: if this gradient is meant (a "
    "straight-through estimator, a spike), "
    "name the function that it is the gradient of: `surrogate`"
)
EITHER = "either backward or {name} is not what it is meant to be"
DETACHED = (
    "backward is what torch differentiates {name} to, which detaches on the way: finite "
    "differences see all that moves its values; write it without `detach`, as the function that "
    "has this gradient (`x.clamp(-1, 1)`, and not `x + (x.sign() - x).detach()`)"
)


def _meant(evidence: Evidence, output: int, pair: Pair) -> str | None:
    """A hint, or None. `output`: its place among all outputs."""
    if evidence.surrogate is not None:
        detaches = evidence.surrogate.differentiates_to(evidence.cotangents("base"))
        return (DETACHED if detaches else EITHER).format(name=evidence.surrogate.name)
    bad = [element for element in pair.worst if element.outcome is Outcome.MISMATCH]
    if (
        all(element.numeric == 0 for element in bad)
        and evidence.forward.checked.index(output) in evidence.flat
    ):
        return FLAT
    return None


# ---- GV101 jacobian: backward differs from the finite difference
def gv101(evidence: Evidence) -> Told:
    if all(argument.parameter for argument in evidence.inputs):
        raise NotApplicable("all differentiable inputs are parameters (GV111)")
    yield from _compared(evidence, "GV101", {})


def _compared(evidence: Evidence, code: str, hooks: Mapping[str, Hooks]) -> Told:
    """Every pair of a parameter (GV111), or of another input. The hooks of a parameter take part in
    its gradient, and are named."""
    own = [
        pair
        for pair in evidence.jacobian.pairs.values()
        if evidence.inputs[pair.input].parameter is (code == "GV111")
    ]
    yield from unfinished(evidence, own)
    eps = evidence.settings.eps
    fixed = (
        None
        if eps == "auto"
        else (
            f"the step is fixed at {eps:g}; without `eps` it is chosen for each element, and has "
            "an error bar"
        )
    )
    for pair in own:
        argument, output, y = (
            evidence.inputs[pair.input],
            evidence.forward.checked[pair.output],
            evidence.outputs[pair.output],
        )
        yield comparison(code, argument, output, y, pair)
        if pair.count(Outcome.MISMATCH):
            hint = (
                evidence.spared("the search for a hint", partial(_meant, evidence, output, pair))
                or fixed
            )
            finding = differs(
                code,
                argument,
                output,
                y,
                pair,
                evidence.difference,
                hint,
                "numeric",
                evidence.name_of(output),
            )
            shown = ", ".join(
                getattr(hook, "__qualname__", type(hook).__name__)
                for hook in hooks.get(argument.name, ())
            )
            also = f"; the hook on it took part, as in training: {shown}" if shown else ""
            yield replace(finding, message=finding.message + also)


# ---- GV102 missing-gradient: no gradient where the function has one
UNREGISTERED = "WarnNotImplemented"  # torch's node behind an operator that has kernels only


def gv102(evidence: Evidence) -> Findings:
    missing: dict[int, list[int]] = {}
    for (index, output), pair in evidence.jacobian.pairs.items():
        if (index, output) in evidence.jacobian.absent and pair.count(Outcome.MISMATCH):
            missing.setdefault(index, []).append(output)
    yield from (_missing(evidence, index, outputs) for index, outputs in missing.items())
    for place in evidence.moving:
        yield Finding(
            "GV102",
            f"{evidence.name_of(place)} moves with the inputs, but has no graph that leads back "
            "to them",
            output=place,
            hint="take it out of `outputs` if it is meant to have no gradient",
        )


def _missing(evidence: Evidence, index: int, outputs: list[int]) -> Finding:
    """Build one finding per input, however many outputs depend on it; it names the output if there
    is only one."""
    argument, worst = evidence.inputs[index], evidence.jacobian.pairs[index, outputs[0]].worst[0]
    names = [evidence.name_of(evidence.forward.checked[output]) for output in outputs]
    shown = names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
    message = (
        f"the gradient of {argument.name} is None, but {shown} "
        f"{'depends' if len(names) == 1 else 'depend'} on it: the finite difference at "
        f"{place_name(evidence, index, outputs[0], worst)} is {worst.numeric:.6g}"
    )
    return Finding(
        "GV102",
        message,
        input=argument.name,
        output=evidence.forward.checked[outputs[0]] if len(outputs) == 1 else None,
        hint=_hint(evidence, argument),
    )


def _hint(evidence: Evidence, argument: Argument) -> str:
    if any(y.grad_fn is not None and UNREGISTERED in y.grad_fn.name() for y in evidence.returned):
        return (
            "the operator has no autograd: register one for the dispatch key Autograd, or with "
            "torch.library.register_autograd"
        )
    if argument.of and evidence.subject.target.kind == "autograd.Function":
        return (
            f"autograd does not look into lists: let `apply` take the tensors of {argument.whole} "
            "as arguments of their own"
        )
    return f"say `requires_grad: false` if {argument.name} is meant to have no gradient"


# ---- GV103 non-finite-gradient: backward gives NaN or inf where the function has a derivative
def gv103(evidence: Evidence) -> Findings:
    for (index, output), pair in evidence.jacobian.pairs.items():
        bad = [
            element
            for element in pair.worst
            if element.outcome is Outcome.MISMATCH and not math.isfinite(element.analytic)
        ]
        if bad:
            argument, y, place = (
                evidence.inputs[index],
                evidence.outputs[output],
                evidence.forward.checked[output],
            )
            x = element_name(argument.name, argument.value, bad[0].input_index)
            where = element_name(evidence.name_of(place), y, bad[0].output_index)
            yield Finding(
                "GV103",
                f"backward gives {bad[0].analytic} for {x} at {where}, where the "
                f"finite difference is {bad[0].numeric:.6g}",
                input=argument.name,
                output=place,
                hint="look for the first number inside backward that is not finite: 0/0, 0 · ∞, "
                "∞ − ∞, an overflow, memory that was never written",
            )


# ---- GV104 not-a-subgradient: at a kink, backward gives no slope between the left and the right
# one
SHOWN = 3  # of the elements of a sum
BETWEEN = "at a kink backward may return the slope of either side, or a number between them"
SHARED = "give the gradient to one of the inputs that share the kink, or share it out among them"


def gv104(evidence: Evidence) -> Findings:
    for (index, output), pair in evidence.jacobian.pairs.items():
        bad = [
            element
            for element in pair.worst
            if element.outcome is Outcome.MISMATCH and element.at_kink
        ]
        if not bad:
            continue
        together = bad[0].limit is Limit.KINK_SUM
        # No −0
        low, high = (f"{slope + 0.0:.6g}" for slope in sorted((bad[0].left, bad[0].right)))
        message = (
            f"at the kink {place_name(evidence, index, output, bad[0])} backward gives "
            f"{bad[0].analytic:.6g}, which is no slope "
            f"between {low} and {high}, the ones from left and right"
        )
        if together:  # each gradient is a slope at its kink, their sum is none
            own = [
                each
                for each in bad
                if each.output_index == bad[0].output_index and each.limit is Limit.KINK_SUM
            ]
            names, values = (
                ", ".join(each)
                for each in zip(
                    *(
                        (place_name(evidence, index, output, each), f"{each.analytic:.6g}")
                        for each in own[:SHOWN]
                    ),
                    strict=True,
                )
            )
            more, slopes = (
                " and others" if len(own) > SHOWN else "",
                f"is {low}" if low == high else f"lies between {low} and {high}",
            )
            message = (
                f"at the kinks {names}{more} backward gives {values}: each is a slope of f along "
                "its own input, but "
                f"their sum is no slope along all of them together, which {slopes}"
            )
        yield Finding(
            "GV104",
            message,
            input=evidence.inputs[index].name,
            output=evidence.forward.checked[output],
            hint=SHARED if together else BETWEEN,
        )


# ---- GV111 parameters: the gradient of a module's parameter differs from the finite difference
def gv111(evidence: Evidence) -> Told:
    if not any(argument.parameter for argument in evidence.inputs):
        raise NotApplicable("the function has no parameters")
    module = evidence.subject.target.subject
    if later := after_accumulation(module):
        yield (
            f"the post-accumulate-grad hooks of {', '.join(later)} did not run: they see `.grad`, "
            "which is not written here"
        )
    yield from _compared(evidence, "GV111", hooks_of(module))


# ---- GV114 small-deviation: everything is within the tolerance, but off by far more than the error
# bars
ROWS = 8  # of a pair whose rounding is asked for
HINT = (
    "look for a rounded constant, an approximation, an eps or fewer bits that forward and backward "
    "do not share"
)


def gv114(evidence: Evidence) -> Findings:
    for (index, output), pair in evidence.jacobian.left.items():
        yield _left(evidence, index, output, pair)
    for (index, output), pair in evidence.jacobian.pairs.items():
        if (index, output) in evidence.jacobian.left or pair.low_precision:
            continue
        name, place = evidence.inputs[index].name, evidence.forward.checked[output]
        if pair.deviation and not pair.count(Outcome.MISMATCH) and not _is_rounding(evidence, pair):
            yield Finding(
                "GV114",
                f"d {evidence.name_of(place)} / d {name} is within the tolerance, but off by "
                f"{pair.deviation:.2g} of its size, more than ten times the error bar",
                input=name,
                output=place,
                hint=HINT,
            )


def _left(evidence: Evidence, index: int, output: int, pair: Pair) -> Finding:
    """What is small compared with its row, whose cause is named where the function is seen to
    iterate."""
    name, place, worst = (
        evidence.inputs[index].name,
        evidence.forward.checked[output],
        pair.worst[0],
    )
    analytic, numeric = apart(worst.analytic, worst.numeric)
    off, hint = (
        "off by what an iteration leaves,",
        "let the iteration stop later, if these elements matter",
    )
    if not evidence.leftover:
        off, hint = "zero, where the output moves by what is", "return the gradient, if it matters"
    return Finding(
        "GV114",
        f"d {evidence.name_of(place)} / d {name} is {off} small compared with its row: at "
        f"{place_name(evidence, index, output, worst)} analytic {analytic}, numeric {numeric}",
        input=name,
        output=place,
        hint=hint,
    )


def _is_rounding(evidence: Evidence, pair: Pair) -> bool:
    """Is each deviation no more than the operations of backward make of their own roundings, as the
    inverse of a nearly singular matrix?

    Nine backwards a row, of the rows that are off most.
    """
    seen = pair.entries
    if seen is None or evidence.wishes.symmetric[pair.input]:
        return False
    off, size = (
        np.abs(seen.analytic - seen.numeric),
        np.maximum(np.abs(seen.analytic), np.abs(seen.numeric)),
    )
    worst = np.flatnonzero(
        (off > DEVIATES * seen.bar)
        & (off > SMALLEST_DEVIATION * size)
        & (seen.outcome == Outcome.PASS)
    )
    worst = worst[np.argsort(-off[worst] / size[worst])]
    point = Point(Filled(evidence.function), evidence.modes.columns)
    column = np.searchsorted(point.columns.coordinate, int(point.starts[pair.input]) + seen.input)
    for row in list(dict.fromkeys(seen.output[worst].tolist()))[:ROWS]:
        own, sigma = (
            worst[seen.output[worst] == row],
            point.row_rounding(point.parts[pair.output].start + row, POINTS),
        )
        if sigma is None or not (off[own] <= seen.bar[own] + Z * sigma[column[own]]).all():
            return False
    return True
