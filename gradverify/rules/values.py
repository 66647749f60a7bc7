"""Rules that compare gradients and values element by element with finite differences of forward, or
with what the spec names instead (a reference, given numbers)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from gradverify.evidence import Evidence
from gradverify.model.result import Finding
from gradverify.numerics.estimate.noise import POINTS
from gradverify.numerics.function.point import Point
from gradverify.numerics.pairs.pair import (
    DEVIATES,
    SMALLEST_DEVIATION,
    Outcome,
    Pair,
)
from gradverify.numerics.rungs import Z
from gradverify.numerics.verdict import Limit
from gradverify.oracles.finite_difference import Filled
from gradverify.rules.at_line import at, at_forward
from gradverify.rules.engine import NotApplicable
from gradverify.rules.shown import (
    Findings,
    RuleResults,
    apart,
    comparison,
    differs,
    element_name,
    named,
    place_name,
    unfinished,
)
from gradverify.rules.unjudged import SHARE
from gradverify.subject.failure import tried
from gradverify.subject.modules import Hooks, after_accumulation, hooks_of
from gradverify.subject.subject import Argument
from gradverify.subject.target import Target

# ---- Gradients that probably differ from the forward's own slope on purpose: the hint names the
# key of the spec that declares this
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


def _meant(evidence: Evidence, pair: Pair) -> str | None:
    """Return a hint where the difference is probably meant, or comes from the surrogate; else
    None."""
    if evidence.surrogate is not None:
        detaches = tried(evidence.surrogate.differentiates_to, evidence.cotangents("base"))
        return (DETACHED if detaches else EITHER).format(name=evidence.surrogate.name)
    bad = (element for element in pair.worst if element.outcome is Outcome.MISMATCH)
    if all(element.numeric == 0 for element in bad) and pair.output in evidence.flat:
        return FLAT
    return None


# ---- GV101 jacobian: backward differs from the finite difference
def gv101(evidence: Evidence) -> RuleResults:
    if all(argument.parameter for argument in evidence.inputs):
        raise NotApplicable("all differentiable inputs are parameters (GV111)")
    yield from _compared(evidence, "GV101", {})


def _compared(evidence: Evidence, code: str, hooks: Mapping[str, Hooks]) -> RuleResults:
    """Compare every pair of a parameter (GV111), or of another input (GV101). The hooks of a
    parameter change its gradient, and are named in the finding."""
    own = {
        key: pair
        for key, pair in evidence.jacobian.pairs.items()
        if evidence.inputs[pair.input].parameter is (code == "GV111")
    }
    yield from unfinished(evidence, own.values())
    eps = evidence.settings.eps
    fixed = (
        None
        if eps == "auto"
        else (
            f"the step is fixed at {eps:g}; without `eps` it is chosen for each element, and has "
            "an error bar"
        )
    )
    for argument, output, y, pair in named(evidence, own):
        yield comparison(code, argument, output, y, pair)
        if pair.count(Outcome.MISMATCH):
            meant = evidence.spared("the search for a hint", partial(_meant, evidence, pair))
            finding = differs(
                code, evidence, argument, output, y, pair, evidence.difference, meant or fixed
            )
            shown = ", ".join(
                getattr(hook, "__qualname__", type(hook).__name__)
                for hook in hooks.get(argument.name, ())
            )
            also = f"; the hook on it took part, as in training: {shown}" if shown else ""
            yield replace(finding, message=finding.message + also)


# ---- GV102 missing-gradient: no gradient where the function has one
UNREGISTERED = "WarnNotImplemented"  # torch's node for an operator that has only kernels


def gv102(evidence: Evidence) -> Findings:
    missing: dict[int, list[Pair]] = {}
    for key, pair in evidence.jacobian.pairs.items():
        if key in evidence.jacobian.absent and pair.count(Outcome.MISMATCH):
            missing.setdefault(pair.input, []).append(pair)
    for index, pairs in missing.items():
        # One finding per input, however many outputs depend on it; it names the output if there is
        # only one
        argument, worst = evidence.inputs[index], pairs[0].worst[0]
        places = [evidence.forward.checked[pair.output] for pair in pairs]
        *others, last = map(evidence.name_of, places)
        shown = f"{', '.join(others)} and {last} depend" if others else f"{last} depends"
        yield Finding(
            "GV102",
            f"the gradient of {argument.name} is None, but {shown} on it: the finite difference at "
            f"{place_name(evidence, pairs[0], worst)} is {worst.numeric:.6g}",
            input=argument.name,
            output=None if others else places[0],
            hint=_hint(evidence, argument),
        )
    for place in evidence.moving:
        yield Finding(
            "GV102",
            f"{evidence.name_of(place)} moves with the inputs, but has no graph that leads back "
            "to them",
            output=place,
            hint="take it out of `outputs` if it is meant to have no gradient",
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


# ---- GV103 non-finite-gradient: backward returns NaN or inf where the function has a derivative
def gv103(evidence: Evidence) -> Findings:
    for argument, place, y, pair in named(evidence, evidence.jacobian.pairs):
        bad = (
            element
            for element in pair.worst
            if element.outcome is Outcome.MISMATCH and not math.isfinite(element.analytic)
        )
        if (worst := next(bad, None)) is not None:
            x = element_name(argument.name, argument.value, worst.input_index)
            where = element_name(evidence.name_of(place), y, worst.output_index)
            yield Finding(
                "GV103",
                f"backward gives {worst.analytic} for {x} at {where}, where the "
                f"finite difference is {worst.numeric:.6g}",
                input=argument.name,
                output=place,
                hint="look for the first number inside backward that is not finite: 0/0, 0 · ∞, "
                "∞ − ∞, an overflow, memory that was never written",
            )


# ---- GV104 not-a-subgradient: at a kink, backward's slope is not between the left and the right
# one
SHOWN = 3  # elements of a sum that are listed
BETWEEN = "at a kink backward may return the slope of either side, or a number between them"
SHARED = "give the gradient to one of the inputs that share the kink, or share it out among them"


def gv104(evidence: Evidence) -> Findings:
    for argument, place, _, pair in named(evidence, evidence.jacobian.pairs):
        bad = [
            element
            for element in pair.worst
            if element.outcome is Outcome.MISMATCH and element.at_kink
        ]
        if not bad:
            continue
        together = bad[0].limit is Limit.KINK_SUM
        # + 0.0: no −0
        low, high = (f"{slope + 0.0:.6g}" for slope in sorted((bad[0].left, bad[0].right)))
        message = (
            f"at the kink {place_name(evidence, pair, bad[0])} backward gives "
            f"{bad[0].analytic:.6g}, which is no slope "
            f"between {low} and {high}, the ones from left and right"
        )
        if together:  # each gradient is a slope at its own kink, but their sum is not
            own = [
                each
                for each in bad
                if each.output_index == bad[0].output_index and each.limit is Limit.KINK_SUM
            ]
            names = ", ".join(place_name(evidence, pair, each) for each in own[:SHOWN])
            values = ", ".join(f"{each.analytic:.6g}" for each in own[:SHOWN])
            more = " and others" if len(own) > SHOWN else ""
            slopes = f"is {low}" if low == high else f"lies between {low} and {high}"
            message = (
                f"at the kinks {names}{more} backward gives {values}: each is a slope of f along "
                "its own input, but "
                f"their sum is no slope along all of them together, which {slopes}"
            )
        yield Finding(
            "GV104",
            message,
            input=argument.name,
            output=place,
            hint=SHARED if together else BETWEEN,
        )


# ---- GV111 parameters: the gradient of a module's parameter differs from the finite difference
def gv111(evidence: Evidence) -> RuleResults:
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
ROWS = 8  # of a pair, whose rounding is measured
HINT = (
    "look for a rounded constant, an approximation, an eps or fewer bits that forward and backward "
    "do not share"
)
LATER = "let the iteration stop later, if these elements matter"
RETURNED = "return the gradient, if it matters"


def gv114(evidence: Evidence) -> Findings:
    left = evidence.jacobian.left
    others = {key: pair for key, pair in evidence.jacobian.pairs.items() if key not in left}
    for argument, place, _, pair in (*named(evidence, left), *named(evidence, others)):
        what = f"d {evidence.name_of(place)} / d {argument.name} is"
        if (pair.input, pair.output) in left:
            # An iteration is named as the cause only where the function is seen to iterate
            off, hint = (
                ("off by what an iteration leaves,", LATER)
                if evidence.leftover
                else ("zero, where the output moves by what is", RETURNED)
            )
            worst = pair.worst[0]
            analytic, numeric = apart(worst.analytic, worst.numeric)
            what += (
                f" {off} small compared with its row: at {place_name(evidence, pair, worst)} "
                f"analytic {analytic}, numeric {numeric}"
            )
        elif (
            pair.deviation
            and not (pair.low_precision or pair.count(Outcome.MISMATCH))
            and not _is_rounding(evidence, pair)
        ):
            hint = HINT
            what += (
                f" within the tolerance, but off by {pair.deviation:.2g} of its size, more than "
                "ten times the error bar"
            )
        else:
            continue
        yield Finding("GV114", what, input=argument.name, output=place, hint=hint)


def _is_rounding(evidence: Evidence, pair: Pair) -> bool:
    """Return whether every deviation is within what the roundings of backward's own operations
    cause, as for the inverse of a nearly singular matrix.

    Takes nine backwards per row, for the `ROWS` rows that deviate most.
    """
    seen = pair.entries
    if seen is None or evidence.constraints.symmetric[pair.input]:
        return False
    off = np.abs(seen.analytic - seen.numeric)
    size = np.maximum(np.abs(seen.analytic), np.abs(seen.numeric))
    worst = np.flatnonzero(
        (off > DEVIATES * seen.bar)
        & (off > SMALLEST_DEVIATION * size)
        & (seen.outcome == Outcome.PASS)
    )
    worst = worst[np.argsort(-off[worst] / size[worst])]
    point = Point(Filled(evidence.function), evidence.modes.columns)
    column = np.searchsorted(point.columns.coordinate, int(point.starts[pair.input]) + seen.input)
    for row in list(dict.fromkeys(seen.output[worst].tolist()))[:ROWS]:
        own = worst[seen.output[worst] == row]
        sigma = point.row_rounding(point.parts[pair.output].start + row, POINTS)
        if sigma is None or not (off[own] <= seen.bar[own] + Z * sigma[column[own]]).all():
            return False
    return True


# ---- Where an oracle and backward differ: which of them finite differences agree with
def blamed(
    finding: Finding, evidence: Evidence, pairs: Sequence[Pair], name: str, target: Target | None
) -> Finding:
    """Return the finding with the blame on the oracle `name`, where backward agrees with finite
    differences on every element of these pairs. `target`: the oracle's definition."""
    if any(pair.count(Outcome.MISMATCH) for pair in pairs):
        return replace(
            finding, hint=f"{evidence.difference} differs from backward too: look at backward first"
        )
    if any(pair.count(Outcome.PASS, Outcome.KINK) != pair.compared for pair in pairs):
        return finding
    spec = evidence.subject.case.spec
    found = replace(
        finding,
        message=f"{name} is wrong, not backward: {finding.message}",
        file=spec.path,
        line=None if target else spec.line,
        source=None,
        hint=f"backward agrees with {evidence.difference} on every element: correct {name}",
    )
    return at(found, target.place if target else None)


# ---- GV105 reference-value: the forward differs from the reference's
FEWER_BITS = "look for an approximation, and for fewer bits than float32"


def gv105(evidence: Evidence) -> Findings:
    for index, seen in evidence.reference.value_pairs.items():
        place = evidence.forward.checked[index]
        if isinstance(seen, str):
            yield Finding("GV105", f"{evidence.name_of(place)}: {seen}", output=place)
            continue
        wrong, undecided = seen.count(Outcome.MISMATCH), seen.count(Outcome.UNDECIDED)
        if not wrong and undecided <= max(1.0, SHARE * seen.compared):
            continue
        worst, of = seen.worst[0], f"of {seen.compared} numbers of {evidence.name_of(place)}"
        where = element_name(evidence.name_of(place), evidence.outputs[index], worst.output_index)
        if wrong:
            yield Finding(
                "GV105",
                f"{wrong} {of} differ from {evidence.reference.name}; worst at {where}: "
                f"{worst.analytic:.6g}, reference {worst.numeric:.6g}",
                output=place,
                hint="decide which of the two forwards is right",
            )
        elif (beyond := _beyond(evidence, index, seen)) is not None:
            yield Finding(
                "GV105",
                f"{evidence.name_of(place)} differs from {evidence.reference.name}; {beyond}",
                output=place,
                hint=FEWER_BITS,
            )
        else:
            yield Finding(
                "GV007",
                f"{undecided} {of} could not be compared with {evidence.reference.name}: at "
                f"{where} the two are known to "
                f"±{worst.bar:.2g} only, the tolerance is {worst.tolerance:.2g}",
                output=place,
                hint="both lose more to rounding than the tolerance allows: give `rtol` or `atol`",
            )


def _beyond(evidence: Evidence, index: int, seen: Pair) -> str | None:
    """Describe how far float32 values that their noise leaves undecided are off.

    None where this is within the tolerance, or within what float32 rounding costs either the
    reference or the function itself.
    """
    outside = not evidence.draws and any(
        abs(each.analytic - each.numeric) > each.tolerance for each in seen.worst
    )
    if (found := evidence.reference.beyond_float32[index] if outside else None) is None:
        return None
    theirs, own = found
    where = element_name(
        evidence.name_of(evidence.forward.checked[index]), evidence.outputs[index], theirs.index
    )
    return (
        f"at {where} it is {theirs.kernel:.6g}, and {theirs.exact:.6g} in float64: a row is off by "
        f"{theirs.ratio:.3g} × what float32 costs the "
        f"reference, and by {own.ratio:.3g} × what it costs the function itself"
    )


# ---- GV106 reference-gradient: backward differs from autograd through the reference
def gv106(evidence: Evidence) -> RuleResults:
    values = {
        output: seen
        for output, seen in evidence.reference.value_pairs.items()
        if not isinstance(seen, str)
    }
    if len(values) < len(evidence.reference.value_pairs):
        raise NotApplicable("the reference returns other shapes (GV105)")
    for place, theirs in zip(evidence.forward.checked, evidence.reference.outputs, strict=True):
        if not theirs.requires_grad:
            yield Finding(
                "GV106",
                f"{evidence.name_of(place)} of {evidence.reference.name} has no graph: autograd "
                "gives no gradient",
                output=place,
                hint="write the reference with differentiable torch operations, or give the "
                "gradient itself: `gradient:`",
            )
    name = evidence.reference.name
    for key, pair in evidence.reference.rows.items():
        argument, place, y, _ = next(named(evidence, {key: pair}))
        yield comparison("GV106", argument, place, y, pair)
        if pair.count(Outcome.MISMATCH) and evidence.reference.outputs[key[1]].requires_grad:
            found = differs(
                "GV106",
                evidence,
                argument,
                place,
                y,
                pair,
                f"autograd through {name}",
                theirs="expected",
            )
            # Where the forwards differ (GV105), the two are different functions, and their
            # gradients do not show which of them is at fault
            if values[key[1]].count(Outcome.MISMATCH):
                yield at_forward(found, evidence)
            else:
                own = [evidence.jacobian.pairs[key]]
                yield blamed(found, evidence, own, name, evidence.reference.target)


# ---- GV107 expected-gradient: backward differs from the gradient that the spec gives
def gv107(evidence: Evidence) -> RuleResults:
    if not evidence.given:
        raise NotApplicable("the spec gives neither `expected` nor `gradient`")
    for oracle in evidence.given:
        for index, pair in oracle.pairs.items():
            argument = evidence.inputs[index]
            yield comparison("GV107", argument, None, None, pair)
            if pair.count(Outcome.MISMATCH):
                finding = differs(
                    "GV107",
                    evidence,
                    argument,
                    None,
                    None,
                    pair,
                    oracle.phrase,
                    "check these numbers",
                    "expected",
                )
                own = [each for (i, _), each in evidence.jacobian.pairs.items() if i == index]
                yield blamed(finding, evidence, own, oracle.name, oracle.target)
