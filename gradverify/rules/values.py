"""What came of comparing gradients and values, element by element, with the finite differences of
forward, or with what the spec names beside them (a reference, given numbers); at the inputs, and at
another point of the same kind (GV113), with repeated indices (GV223). And what could not be judged:
a forward that is not finite, elements that stay open, nothing to compare, or that could fail."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from gradverify.evidence import Evidence
from gradverify.model.case import Case
from gradverify.model.result import Comparison, Finding, RuleRun, Severity
from gradverify.numerics.estimate.noise import POINTS
from gradverify.numerics.function.coordinates import flat_all, flat_real
from gradverify.numerics.function.point import Point
from gradverify.numerics.pairs.pair import (
    DEVIATES,
    SMALLEST_DEVIATION,
    ElementRecord,
    Outcome,
    Pair,
)
from gradverify.numerics.rungs import Z
from gradverify.numerics.verdict import Limit, Verdict
from gradverify.oracles.along import Screen, screened
from gradverify.oracles.convergence import without_leftovers
from gradverify.oracles.finite_difference import Filled, Gives, Jacobian, Wishes, jacobian
from gradverify.rules.at_line import at_culprit
from gradverify.rules.catalogue import asked
from gradverify.rules.shown import (
    Findings,
    NotApplicable,
    Told,
    apart,
    comparison,
    differs,
    element_name,
    named,
    place_name,
    refused,
    unfinished,
)
from gradverify.subject.another import (
    BOLD,
    MILD,
    looks_symmetric,
    names_of_whole,
    other_points,
    with_other_numbers,
)
from gradverify.subject.draw import generator
from gradverify.subject.failure import UserCodeError, type_name
from gradverify.subject.forms import out_of_reach, specified
from gradverify.subject.modules import Hooks, after_accumulation, hooks_of
from gradverify.subject.snapshot import alike, same
from gradverify.subject.subject import Argument, Subject
from gradverify.subject.target import Target
from gradverify.subject.wide import sixteen_inside

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


def _meant(evidence: Evidence, pair: Pair) -> str | None:
    """A hint, or None."""
    if evidence.surrogate is not None:
        detaches = evidence.surrogate.differentiates_to(evidence.cotangents("base"))
        return (DETACHED if detaches else EITHER).format(name=evidence.surrogate.name)
    bad = (element for element in pair.worst if element.outcome is Outcome.MISMATCH)
    if all(element.numeric == 0 for element in bad) and pair.output in evidence.flat:
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
UNREGISTERED = "WarnNotImplemented"  # torch's node behind an operator that has kernels only


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


# ---- GV103 non-finite-gradient: backward gives NaN or inf where the function has a derivative
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


# ---- GV104 not-a-subgradient: at a kink, backward gives no slope between the left and the right
# one
SHOWN = 3  # of the elements of a sum
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
        # No −0
        low, high = (f"{slope + 0.0:.6g}" for slope in sorted((bad[0].left, bad[0].right)))
        message = (
            f"at the kink {place_name(evidence, pair, bad[0])} backward gives "
            f"{bad[0].analytic:.6g}, which is no slope "
            f"between {low} and {high}, the ones from left and right"
        )
        if together:  # each gradient is a slope at its kink, their sum is none
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
LATER = "let the iteration stop later, if these elements matter"
RETURNED = "return the gradient, if it matters"


def gv114(evidence: Evidence) -> Findings:
    left = evidence.jacobian.left
    others = {key: pair for key, pair in evidence.jacobian.pairs.items() if key not in left}
    for argument, place, _, pair in (*named(evidence, left), *named(evidence, others)):
        what = f"d {evidence.name_of(place)} / d {argument.name} is"
        if (pair.input, pair.output) in left:
            # The cause is named where the function is seen to iterate
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
    """Is each deviation no more than the operations of backward make of their own roundings, as the
    inverse of a nearly singular matrix?

    Nine backwards a row, of the rows that are off most.
    """
    seen = pair.entries
    if seen is None or evidence.wishes.symmetric[pair.input]:
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


# ---- Where another opinion and backward differ: whose fault it is, as far as finite differences
# tell
def blamed(
    finding: Finding, evidence: Evidence, pairs: Sequence[Pair], name: str, target: Target | None
) -> Finding:
    """The finding with the oracle to blame in its place, where backward agrees with finite
    differences on every element of these pairs. `target`: where the oracle stands."""
    if any(pair.count(Outcome.MISMATCH) for pair in pairs):
        return replace(
            finding, hint=f"{evidence.difference} differs from backward too: look at backward first"
        )
    if any(pair.count(Outcome.PASS, Outcome.KINK) != pair.compared for pair in pairs):
        return finding
    spec = evidence.subject.case.spec
    return replace(
        finding,
        message=f"{name} is wrong, not backward: {finding.message}",
        file=(target and target.file) or spec.path,
        line=target.line if target else spec.line,
        source=target.source if target else None,
        hint=f"backward agrees with {evidence.difference} on every element: correct {name}",
    )


# ---- GV105 reference-value: the forward differs from the reference's
SHARE = 1e-4  # of the numbers may stay undecided in a check that passes
FEWER_BITS = "look for an approximation, and for fewer bits than float32"


def gv105(evidence: Evidence) -> Findings:
    _named(evidence)
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
    """Of values in float32 that their own noise leaves undecided: how far they are off, where that
    is beyond the tolerance and no rounding of float32, in the reference's way to compute them or in
    the function's own."""
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
def gv106(evidence: Evidence) -> Told:
    _named(evidence)
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
            # Where the forwards differ (GV105) the two are other functions, and their gradients
            # say nothing of who is at fault
            if not values[key[1]].count(Outcome.MISMATCH):
                own = [evidence.jacobian.pairs[key]]
                found = blamed(found, evidence, own, name, evidence.reference.target)
            yield found


def _named(evidence: Evidence) -> None:
    if not evidence.subject.case.oracles.reference:
        raise NotApplicable("the spec names no `reference`")


# ---- GV107 expected-gradient: backward differs from the gradient that the spec gives
def gv107(evidence: Evidence) -> Told:
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
                    oracle.says,
                    "check these numbers",
                    "expected",
                )
                own = [each for (i, _), each in evidence.jacobian.pairs.items() if i == index]
                yield blamed(finding, evidence, own, oracle.name, oracle.target)


COARSE = 1e-5  # rtol
DECIDED = (Screen.AGREES, Screen.DIFFERS)


class Look(NamedTuple):
    """The result of one random direction at another point. `numbers`: plain numbers that were
    changed too, in words."""

    twin: Subject
    function: Gives
    wishes: Wishes
    seen: Screen
    numbers: Mapping[str, str]
    point: str = "at another point of the same kind"

    @property
    def where(self) -> str:
        words = " and ".join(self.numbers.values())
        return (
            self.point + (", with " if self.point and words else "with " if words else "") + words
        )


def gv113(evidence: Evidence) -> Told:
    if evidence.subject.restless:
        raise NotApplicable(
            "the module's buffers, which forward updates and reads, do not come to rest"
        )
    refusal, constant = "there is no other point: every input is zero", None
    for arguments in other_points(evidence.subject):
        varied = _varied(evidence, arguments)
        if varied is not None and varied.seen is Screen.AGREES:
            break
        try:
            with refused("GV113", "at another point of the same kind", only="GV003"):
                look = look_at(evidence, evidence.subject.twin(arguments))
        except NotApplicable as there:
            refusal = str(there)
            continue
        if look.seen not in DECIDED:
            constant = look if look.seen is Screen.CONSTANT else constant
            refusal = f"at another point {look.seen.value}"
            continue
        if look.seen is Screen.DIFFERS:
            yield from _by_element(evidence, look)
        elif varied is not None:
            yield from _by_numbers(evidence, arguments, varied)
        break
    else:
        if constant is None:
            raise NotApplicable(refusal)
    if constant is not None:
        yield from _by_element(
            evidence,
            constant._replace(point=f"{constant.point}, where forward is constant"),
            "warning",
        )


def look_at(
    evidence: Evidence, twin: Subject, numbers: Mapping[str, str] = MappingProxyType({})
) -> Look:
    """Raises UserCodeError."""
    given = twin.differentiable
    wishes = Wishes(
        tuple(x.domain for x in given),
        tuple(x.symmetric or looks_symmetric(x.value) for x in given),
        specified(given),
        evidence.wishes.seed,
    )
    source = generator(
        evidence.settings.seed, evidence.subject.case.check, "second point's direction"
    )
    function = evidence.measured_at(twin)
    invented = any(each.invented for each in given)
    return Look(
        twin,
        function,
        wishes,
        screened(function, wishes, source, evidence.rtol, evidence.infinite, invented),
        numbers,
    )


# ---- other plain numbers
def _varied(
    evidence: Evidence, arguments: Sequence[Argument], size: float = BOLD, only: str | None = None
) -> Look | None:
    """Look with other plain numbers; None where there are none, where the function refuses them, or
    where nothing can be said."""
    if evidence.surrogate is not None:
        return None
    varied = with_other_numbers(evidence.subject, arguments, size, _real(evidence, arguments), only)
    if varied is None:
        return None
    try:
        look = look_at(evidence, *varied)
    except UserCodeError:
        return None
    return look if look.seen in DECIDED else None


def _real(evidence: Evidence, arguments: Sequence[Argument]) -> frozenset[str]:
    """The whole numbers in whose place forward takes a real one, and gives outputs of the same
    shapes."""
    here, found = [y.shape for y in evidence.outputs], []
    for name in names_of_whole(evidence.subject, arguments):
        varied = with_other_numbers(evidence.subject, arguments, BOLD, {name}, name)
        with suppress(UserCodeError):
            twin = varied[0] if varied else evidence.subject
            outputs = evidence.measured_at(twin).values(twin.leaves())
            if (
                varied
                and [y.shape for y in outputs] == here
                and all(bool(y.isfinite().any()) for y in outputs)
            ):
                found.append(name)
    return frozenset(found)


def _by_numbers(evidence: Evidence, arguments: Sequence[Argument], varied: Look) -> Told:
    """Right with the numbers of the check, wrong with others: which one is it? A number of a
    formula must be wrong nearby too: a solver does not converge with any step. By one direction;
    where the tolerance is that of float32, by element too: there a few percent hide in the sum of
    all."""
    coarse = evidence.rtol > COARSE
    for name in varied.numbers:
        look = _varied(evidence, arguments, BOLD, name)
        near = _varied(evidence, arguments, MILD, name)
        if (
            look is not None
            and look.seen is Screen.DIFFERS
            and near is not None
            and (
                near.seen is Screen.DIFFERS
                or (
                    coarse
                    and any(
                        pair.count(Outcome.MISMATCH)
                        for pair in _jacobian_at(evidence, near).pairs.values()
                    )
                )
            )
        ):
            yield from _by_element(evidence, look)
            return
    yield (
        f"{varied.where} a direction differed, but no number by itself makes a formula wrong: left "
        "at that"
    )


# ---- by element
def _jacobian_at(evidence: Evidence, look: Look) -> Jacobian:
    compared = jacobian(look.function, evidence.settings, look.wishes, clock=evidence.subject.clock)
    return without_leftovers(
        compared,
        look.function.inputs,
        look.wishes,
        lambda: evidence.leftover,
        lambda: evidence.iterated_on(look.twin, look.wishes),
    )


def _by_element(evidence: Evidence, look: Look, severity: Severity = "error") -> Told:
    found = False
    for argument, place, y, pair in wrong_pairs(evidence, look):
        found, against = True, f"{evidence.difference} {look.where}"
        finding = differs("GV113", evidence, argument, place, y, pair, against)
        if severity == "error":
            yield comparison("GV113", argument, place, y, pair)
        yield replace(
            at_culprit(finding, evidence, look.function, pair),
            severity=severity,
        )
    if not found:
        yield f"{look.where} a direction differed, but no element did"


def wrong_pairs(evidence: Evidence, look: Look) -> Iterator[tuple[Argument, int, Tensor, Pair]]:
    """The pairs that are wrong there and not at the point of the check: with the input, and with
    the output's place and value."""
    outputs = look.function.values(look.twin.leaves())
    for (index, output), pair in _jacobian_at(evidence, look).pairs.items():
        if pair.count(Outcome.MISMATCH) and not evidence.jacobian.pairs[index, output].count(
            Outcome.MISMATCH
        ):
            yield (
                look.twin.differentiable[index],
                evidence.forward.checked[output],
                outputs[output],
                pair,
            )


ADD_UP = (
    "look at what backward does with an index that repeats: an assignment keeps one of them, "
    "index_add and scatter_add add them up"
)
STEP = 1e-3  # of an element's size: does it move the forward, is an infinity no mask?


def gv223(evidence: Evidence) -> Told:
    """All repeated at once, or where forward refuses that, the first alone that it takes.
    Permutations never repeat."""
    indices = [a for a in evidence.subject.arguments if _is_index(a)]
    chosen = [a for a in indices if not _is_permutation(a.value)]
    if not chosen:
        raise NotApplicable(
            "its indices are permutations" if indices else "no input holds two or more integers"
        )
    refusal = "every integer repeats already"
    for some in (chosen, *([each] for each in chosen if len(chosen) > 1)):
        arguments = [_repeated(a) if a in some else a for a in evidence.subject.arguments]
        if all(
            same(a.value, b.value)
            for a, b in zip(evidence.subject.arguments, arguments, strict=True)
            if a in some
        ):
            continue
        where = f"with repeated indices in {' and '.join(a.name for a in some)}"
        try:
            found = list(_judged(evidence, arguments, where))
        except UserCodeError as error:
            refusal = f"with repeated indices {error.message}"
            if error.code != "GV003":
                continue
            found = [Finding("GV223", f"{where} {error.message}", frames=error.frames, hint=ADD_UP)]
        if any(isinstance(each, Finding) for each in found) and (
            name := _of_backward_only(evidence)
        ):
            raise NotApplicable(
                f"{name} moves backward and not forward: it goes with the other integers, which "
                "cannot be repeated without it"
            )
        yield from found
        return
    raise NotApplicable(refusal)


def _judged(evidence: Evidence, arguments: list[Argument], where: str) -> Told:
    """The finding, if there is one. Raises UserCodeError where forward or backward refuses,
    NotApplicable where nothing can be said."""
    look = look_at(evidence, evidence.subject.twin(arguments))
    if look.seen not in DECIDED:
        raise NotApplicable(f"with repeated indices {look.seen.value}")
    lost, of = list[str](), f" of {evidence.surrogate.name}" if evidence.surrogate else ""
    here = look.function.values(evidence.subject.leaves()) if look.seen is Screen.DIFFERS else ()
    for argument, place, y, pair in wrong_pairs(evidence, look) if here else ():
        for worst in (each for each in pair.worst if each.outcome == Outcome.MISMATCH):
            name = element_name(argument.name, argument.value, worst.input_index)
            if _moves(look.function, here, pair.input, worst):
                yield comparison("GV223", argument, place, y, pair)
                yield Finding(
                    "GV223",
                    f"{where}, d {element_name(evidence.name_of(place), y, worst.output_index)} / "
                    f"d {name} is {worst.analytic:.6g} by backward and {worst.numeric:.6g} by "
                    f"finite differences{of}",
                    input=argument.name,
                    output=place,
                    hint=ADD_UP,
                )
                break
            lost.append(name)
    if lost:
        yield (
            f"{lost[0]} does not move the forward where an index repeats: it is overwritten, and "
            "has no derivative there"
        )


def _is_permutation(value: Tensor) -> bool:
    """0 … n − 1, each once, along the last dimension."""
    rows = value.reshape(-1, value.shape[-1]).long()  # torch does not sort unsigned ones
    return bool((rows.sort(-1).values == torch.arange(value.shape[-1], device=value.device)).all())


def _is_index(argument: Argument) -> bool:
    value = argument.value
    if not isinstance(value, Tensor) or value.is_floating_point() or value.is_complex():
        return False
    return value.dtype != torch.bool and value.numel() > 1 and value.layout == torch.strided


def _repeated(argument: Argument) -> Argument:
    """Every second entry is the first one; of what is in order, the one before it, and the last
    stays: offsets end there."""
    flat = argument.value.clone().reshape(-1)
    if _in_order(argument.value):
        flat[1:-1:2] = flat[:-2:2].clone()
    else:
        flat[1::2] = flat[0].clone()
    return replace(argument, value=flat.reshape(argument.value.shape))


def _in_order(value: Tensor) -> bool:
    return value.dim() == 1 and len(value) > 2 and bool((value.long().diff() >= 0).all())


def _of_backward_only(evidence: Evidence) -> str | None:
    """An integer input that backward follows and forward does not."""
    here, v = evidence.measured, evidence.cotangents("base")
    for index in filter(_is_index, evidence.subject.arguments):
        twin = evidence.subject.twin(
            [_repeated(a) if a is index else a for a in evidence.subject.arguments]
        )
        try:
            there = evidence.measured_at(twin)
            if alike(
                here.values(evidence.subject.leaves()), there.values(twin.leaves())
            ) and not alike(here.vjp(v), there.vjp(v)):
                return index.name
        except UserCodeError as error:
            if error.code == "GV003":
                return index.name
    return None


def _moves(function: Gives, here: Sequence[Tensor], index: int, element: ElementRecord) -> bool:
    """Does any output move with this one element of an input?"""
    inputs = [x.detach().clone() for x in function.inputs]
    moved = inputs[index].contiguous()  # places count in this order, whatever the layout
    flat = (torch.view_as_real(moved) if moved.is_complex() else moved).view(-1)
    flat[element.input_index] += STEP * max(float(flat[element.input_index].abs()), STEP)
    inputs[index].copy_(moved)
    there = function.values([x.requires_grad_() for x in inputs])
    return not all(same(before, after) for before, after in zip(here, there, strict=True))


class Words(NamedTuple):
    """`because`: what explains the reason. `advice`: in hints and sentences."""

    reason: str
    because: str = ""
    advice: str | None = None

    @property
    def explained(self) -> str:
        """Without advice."""
        return f"{self.reason}: {self.because}" if self.because else self.reason

    @property
    def whole(self) -> str:
        """With the advice."""
        return f"{self.explained}: {self.advice}" if self.advice else self.explained


OFF_THE_KINK = "keep the inputs off the kink: `avoid`, with a `margin`"
WORDS: Mapping[Limit, Words] = {
    Limit.NONE: Words("nothing"),
    Limit.NOISE: Words(
        "the forward's own noise is larger than the tolerance",
        advice="compute in float64 inside, choose inputs of moderate size, or give `rtol` if less "
        "accuracy will do",
    ),
    Limit.TRUNCATION: Words(
        "estimates from neighbouring steps differ by more than the tolerance allows",
        advice="choose inputs of moderate size where the function varies less, or give `rtol`",
    ),
    Limit.INCONSISTENT: Words(
        "no two steps agree on a derivative",
        advice="is the forward an iteration or a table? give `rtol`, or check it against a "
        "`reference`",
    ),
    Limit.KINK: Words(
        "f has a kink at x, and its slopes from left and right are not sharp enough",
        advice=OFF_THE_KINK,
    ),
    Limit.KINK_SUM: Words(
        "the gradients at several kinks add up to no slope of f at x, and the slopes nearby are "
        "not sharp enough",
        advice=OFF_THE_KINK,
    ),
    Limit.TIE: Words(
        "several equal inputs are tied",
        "f does not move with one of them, but does with all, and has no derivative there",
        "keep equal numbers apart: give that input `distinct`",
    ),
    Limit.JUMP: Words(
        "f jumps at x",
        "there is no derivative",
        "keep the inputs off the jump: `avoid`, with a `margin`",
    ),
    Limit.STAIRCASE: Words(
        "f moves in steps",
        "the steps and the trend above them have different derivatives",
        "a rounded or tabulated forward has no useful derivative at small steps: give `rtol`, "
        "check against a `reference`, or name the `surrogate` that backward is the gradient of",
    ),
    Limit.CANCELS: Words(
        "f moves in steps of the rounding of larger numbers inside it, which hide the deviation",
        advice="compute without the cancellation (`expm1`, `log1p`, `erfc`), choose larger inputs, "
        "or compute in float64 inside",
    ),
    Limit.BORDER: Words(
        "f ends at x",
        "only one side has values, and no order of convergence is sure there",
        "say where the function is defined with `domain`, or keep the inputs off the border: "
        "`avoid`",
    ),
    Limit.INFINITE: Words(
        "the slope of f grows without bound at x, or f has no finite values around it",
        advice="choose inputs inside the function's domain: `uniform`, `avoid`",
    ),
    Limit.MASKED: Words(
        "f is one and the same infinity at every step", "the element is left out of the comparison"
    ),
    Limit.ROUNDED: Words(
        "float32 rounds f, or the sums inside backward, by as much as that",
        advice="check with `dtype: float64` as well, choose inputs where less cancels, or give "
        "`rtol` or `atol`",
    ),
    Limit.ANALYTIC_NOISE: Words(
        "the deviation is within the rounding noise of the backward",
        advice="compute in float64 inside backward, or give `rtol`",
    ),
    Limit.STUCK: Words(
        "the step does not move the input (x + eps = x)",
        advice="leave out `eps`, so that the step is chosen for each element, or give a larger one",
    ),
    Limit.COMPANY: Words(
        "elements that were measured together with it turned out right when measured alone",
        advice="check a smaller input with `mode: entries`",
    ),
    Limit.ALONE: Words(
        "other elements that differ in the same way could not be decided either when measured alone"
    ),
    Limit.LINE: Words(
        "as a whole it is off by more than its tolerance, or rounding hides whether it is, and no "
        "element of it was found wrong",
        advice="give `mode: entries`, which judges every element by itself",
    ),
    Limit.BUDGET: Words(
        "the budget or the time limit ended before they were compared, or before it was known "
        "whether rounding explains a deviation",
        advice="raise `budget`",
    ),
    Limit.RESTLESS: Words(
        "the module's buffers follow its parameters from call to call and do not come to rest, "
        "and backward takes them for constants",
        advice="check the module in evaluation mode, or where its buffers come to rest (singular "
        "values that lie further apart)",
    ),
    Limit.SYMMETRY: Words(
        "right on symmetric matrices", advice="say `symmetric: true` on that input"
    ),
}


# ---- GV006 non-finite: the forward is NaN or infinite at the point of the check


def gv006(evidence: Evidence) -> Findings:
    moved = None
    for place, output in zip(evidence.forward.checked, evidence.outputs, strict=True):
        values = flat_real(output)
        # By torch: its gelu is five times as fast after its first abs (measured)
        if values.isfinite().all():
            continue
        bad = values.isnan()
        if values.isinf().any():
            moved = (
                evidence.function.values(
                    [(x * (1 + STEP)).requires_grad_() for x in evidence.subject.inputs]
                )
                if moved is None
                else moved
            )
            there = flat_all([moved[evidence.forward.checked.index(place)]])
            bad = bad | (values.isinf() & (there != values))
        if bad.any():
            first = int(bad.nonzero()[0])
            where = element_name(evidence.name_of(place), output, first)
            yield Finding(
                "GV006",
                f"{int(bad.sum())} of {values.numel()} numbers of {evidence.name_of(place)} are "
                f"not finite; first at {where}: {float(values[first])}",
                output=place,
                hint="repair forward, or choose inputs where it is finite (`uniform`, `avoid`)",
            )
        elif values.numel() and bool(torch.isinf(values).all()):
            yield Finding(
                "GV006",
                f"{evidence.name_of(place)} is infinite throughout: there is nothing to compare",
                output=place,
            )


# ---- GV007 undecided: the error bar is wider than the tolerance
CODE = "GV007"
INDICES = "whole numbers that are indices or counts need `dtype: int64`"
SEEMS = 0.5  # of the larger of both: what rounding leaves open is seldom off by so much
STEPS = frozenset(
    {
        Limit.NOISE,
        Limit.TRUNCATION,
        Limit.INCONSISTENT,
        Limit.JUMP,
        Limit.STAIRCASE,
        Limit.CANCELS,
        Limit.INFINITE,
        Limit.ROUNDED,
    }
)
"""What the steps of a narrow type look like."""

ALONE = (
    "it runs in float32 alone, whose rounding is in the way: name a `reference` in torch "
    "operations, or give `atol: {0}` if that will do"
)
INSIDE = (
    "check it with `dtype: {0}`, where the finite differences have float64 for what it casts; or "
    "compute in float64 inside"
)
_OPEN = (Outcome.UNDECIDED, Outcome.JUMP, Outcome.STAIRCASE, Outcome.NON_FINITE)


def not_finished(rule: str, why: object) -> Finding:
    """Of a comparison of gradients that ended early: nothing is known of the rest."""
    return Finding(
        CODE,
        f"{rule} was not finished: {why}",
        hint="check a smaller input, or raise `budget` and `timeout`",
    )


def gv007(evidence: Evidence) -> Findings:
    pairs = evidence.jacobian.pairs
    total = sum(pair.compared for pair in pairs.values())
    undecided = sum(pair.count(*_OPEN) for pair in pairs.values())
    # A single line may be all that was compared
    least = 0.0 if any(pair.lines for pair in pairs.values()) else 1.0
    few = undecided <= max(least, SHARE * total) and undecided < total
    if not undecided or (few and not any(map(_seems_wrong, pairs.values()))):
        return
    worst = max(pairs.values(), key=lambda pair: pair.count(*_OPEN))
    argument, steps = evidence.inputs[worst.input], any(limit in STEPS for limit, _ in worst.limits)
    # rounding to a narrow type inside may hide the derivative; a 16-bit check removes it
    asks = (
        steps
        and evidence.subject.narrow is None
        and evidence.surrogate is None
        and evidence.settings.eps == "auto"
    )
    narrow = sixteen_inside(evidence.subject) if asks else ""
    limit = worst.limits[0][0] if worst.limits else Limit.NOISE
    hint = WORDS[limit].advice
    if (
        limit is Limit.JUMP
        and argument.value.is_floating_point()
        and bool((argument.value == argument.value.round()).all())
    ):
        hint = f"{hint}; {INDICES}"
    if narrow:
        hint = INSIDE.format(narrow)
    # A float32 function that refuses float64
    elif steps and isinstance(evidence.in_float64, str) and evidence.in_float64:
        needed = (
            each.error + each.bar
            for seen in pairs.values()
            for each in seen.worst
            if each.outcome in _OPEN and math.isfinite(each.error + each.bar)
        )
        largest = max(needed, default=0.0)
        hint = (
            ALONE.format(f"1e{math.ceil(math.log10(largest)):03d}")
            if largest > 0
            else WORDS[Limit.STAIRCASE].advice
        )
    why = (
        f"forward computes in {narrow} inside, and moves in its steps"
        if narrow
        else _why(evidence, worst)
    )
    yield Finding(
        CODE,
        f"{undecided:,} of {total:,} {worst.lines or 'elements'} could not be decided: {why}",
        input=argument.name,
        output=evidence.forward.checked[worst.output],
        hint=hint,
    )


def _seems_wrong(pair: Pair) -> bool:
    """Is an open element off by half and more, and by more than the bar of the finite difference
    that it is held against?

    At a jump, and on treads too flat for the gradient, that bar bounds no derivative: the imaginary
    part of a complex logarithm, at its branch cut.
    """
    measured = (
        each
        for each in pair.worst
        if each.limit is not Limit.STUCK
        and (
            each.outcome is Outcome.UNDECIDED
            or (each.outcome is Outcome.STAIRCASE and abs(each.analytic) < abs(each.numeric))
        )
    )
    return any(
        each.error - each.bar > SEEMS * max(abs(each.analytic), abs(each.numeric))
        for each in measured
    )


def _why(evidence: Evidence, pair: Pair) -> str:
    element = next((each for each in pair.worst if each.outcome in _OPEN), None)
    if element is None:
        return WORDS[pair.limits[0][0] if pair.limits else Limit.NOISE].reason
    where = f"at {place_name(evidence, pair, element)}"
    if element.limit is Limit.STUCK:
        argument = evidence.inputs[pair.input]
        x = element_name(argument.name, argument.value, element.input_index)
        return (
            f"{where} the step does not move the input: {x} + {evidence.settings.eps:g} = {x} in "
            f"{evidence.settings.dtype}"
        )
    reason = WORDS[element.limit].reason
    if element.outcome is Outcome.UNDECIDED:
        return (
            f"{where} the numeric value is {element.numeric:.6g} ± {element.bar:.2g}, the "
            f"tolerance {element.tolerance:.2g}; {reason}"
        )
    return f"{where} {reason}"


# ---- GV008 nothing-checked: there is nothing to compare
PLAIN = "a list of numbers is no tensor: say `{values: …}` or `{shape: …}`"
# Of what a rule looks for causes in, if it compares gradients
COMPARE = ("finite differences", "reference", "given numbers")


def gv008(evidence: Evidence) -> Findings:
    reason = _reason(evidence)
    if reason is not None:
        yield Finding("GV008", reason, hint=None if evidence.inputs else PLAIN)
    for argument in evidence.subject.arguments:
        if not argument.is_tensor and out_of_reach(argument.value):
            kind = type_name(argument.value)
            message = (
                f"the tensors inside {argument.name} (a {kind}) are not differentiated: they "
                "cannot be taken out of it"
            )
            yield Finding(
                "GV008",
                message,
                severity="warning",
                input=argument.name,
                hint="check a function that takes them as arguments, or in a dict, list or "
                "dataclass",
            )


def uncompared(
    evidence: Evidence, runs: Mapping[str, RuleRun], comparisons: Iterable[Comparison]
) -> Finding | None:
    """Of a check under all rules that found no error: that it did not compare what it was asked to
    compare."""
    if all(run.status == "ignored" for code, run in runs.items() if not code.startswith("GV0")):
        return Finding("GV008", "every rule that looks at a gradient is ignored")
    settings, book = evidence.settings, {info.code: info for info in asked()}
    compare = [code for code, info in book.items() if info.causes in COMPARE]
    if not any(not settings.select or code.startswith(settings.select) for code in compare):
        return None
    if any(each.elements and each.rule in compare for each in comparisons) or (
        evidence.empty and runs["GV221"].status == "ran"
    ):
        return None
    if evidence.empty:
        return Finding(
            "GV008",
            "there is no element to compare, and GV221, which looks at empty tensors, is not to "
            "run",
            hint="select GV221 too, or give a tensor with elements",
        )
    run = next((runs[code] for code in compare if runs[code].status == "ran"), runs["GV101"])
    if run.status == "ignored":
        return Finding(
            "GV008",
            "GV101 is ignored, and no other rule compared an element of a gradient",
            hint="for the other rules alone select them, as in `rules: {select: [GV2]}`",
        )
    return Finding(
        "GV008",
        f"{run.code} compared no element of a gradient" + (f": {run.reason}" if run.reason else ""),
    )


def _may_be_empty(case: Case) -> bool:
    """Does a zero size come from the spec, or from whoever handed the tensors over, and not from a
    function or a file that the spec names?"""
    recipes = [recipe for argument in (*case.inputs, *case.keywords) for recipe in argument.recipes]
    made = case.inputs_from is not None or any(recipe.draw == "file" for recipe in recipes)
    return not made or any(
        0 in (recipe.shape or ()) or recipe.arguments == [] for recipe in recipes
    )


def _graphless(outputs: Sequence[Any]) -> str:
    """Why no output can be differentiated: there is no tensor, none of floating numbers, or none
    with a graph."""
    tensors = [(place, y) for place, y in enumerate(outputs) if isinstance(y, Tensor)]
    if not tensors:
        kinds = dict.fromkeys("None" if y is None else type_name(y) for y in outputs)
        return f"the function returned no tensor: {', '.join(kinds) or 'nothing at all'}"
    if not any(y.is_floating_point() or y.is_complex() for _, y in tensors):
        place, y = tensors[0]
        return (
            f"no output has floating or complex numbers: y{place} is "
            f"{str(y.dtype).removeprefix('torch.')}"
        )
    return "no output has a graph that leads back to the inputs"


def _reason(evidence: Evidence) -> str | None:
    if not evidence.inputs:
        return (
            "no input is differentiable: give at least one floating or complex tensor without "
            "`requires_grad: false`"
        )
    seen = evidence.forward
    missing = [
        place
        for place in evidence.settings.outputs or ()
        if place not in seen.checked and place not in seen.detached
    ]
    if missing:
        returned = "1 output" if len(seen.outputs) == 1 else f"{len(seen.outputs)} outputs"
        return (
            f"outputs: there is no floating output {missing[0]}; the function returned {returned}"
        )
    if not seen.checked and not evidence.moving:
        return _graphless(seen.outputs)
    elements = sum(y.numel() for y in evidence.outputs) * sum(
        x.numel() for x in evidence.subject.inputs
    )
    if (
        elements == 0
        and seen.checked
        and not (evidence.empty and _may_be_empty(evidence.subject.case))
    ):
        return "the outputs have no elements, and no input of the spec asks for an empty tensor"
    return None


# ---- GV009 could-not-fail: at these inputs a wrong gradient would pass too
ELSEWHERE = (
    "draw inputs at which the function changes, or check an output that does, if there are any"
)


def gv009(evidence: Evidence) -> Findings:
    pairs = evidence.jacobian.pairs.values()
    largest = max((pair.largest for pair in pairs), default=0.0)
    atol, _ = evidence.settings.tolerances()
    zero = "zero" if all(pair.largest == 0.0 for pair in pairs) else "zero up to rounding"
    rounding = largest <= 1.0 and atol == 0 and all(pair.verdict == Verdict.PASS for pair in pairs)
    if zero == "zero" or rounding:
        yield Finding(
            "GV009",
            f"every gradient is {zero} at these inputs: a backward that returns nothing would pass "
            "too",
            hint=ELSEWHERE,
        )
    elif largest <= 1.0 and atol > 0:
        yield Finding(
            "GV009",
            f"the tolerance (atol {atol:g}) is above every gradient: a backward that returns "
            "zeros would pass too",
            hint="lower `atol`, or leave it out",
        )
