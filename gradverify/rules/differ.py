"""Do two ways to call one function agree? What the rules that repeat or vary the base call share;
and calls that are made again: identical ones, of one graph, after a call elsewhere, accumulated.

Differences are judged against the gradient of a dense cotangent and its natural size ‖v‖‖f‖/‖x‖,
never against the two compared numbers alone (softmax and norms under a constant cotangent are pure
rounding). Where the two calls may round differently (another layout, another subset of inputs),
what is then still too large must stand out from what a nudge of the cotangents, and of the inputs,
does to the same element: gradients that are rounding throughout and ties go far under a nudge. So
does it from what other roundings in every operation make of it (`rounded_anew`): of numbers that
cancel, of a part in float32. Two calls of a function that iterates agree to `rtol` only."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import chain, combinations, islice
from typing import Any, NamedTuple

import torch
from torch import Tensor

from gradverify.evidence import Evidence
from gradverify.model.case import Settings
from gradverify.model.result import Finding, Reproduced
from gradverify.numerics.function.coordinates import UNITS, flat_all, flat_real, numbers
from gradverify.numerics.roundoff import Bits
from gradverify.rules.at_line import at_forward
from gradverify.rules.shown import (
    Findings,
    NotApplicable,
    Told,
    apart,
    changed,
    element_name,
    refused,
)
from gradverify.subject.another import leaf_elsewhere
from gradverify.subject.differentiable import Differentiable, Gradients, Graph, Returned, copied
from gradverify.subject.draw import generator, signed
from gradverify.subject.failure import UserCodeError
from gradverify.subject.rounding import Anew
from gradverify.subject.snapshot import change, overlaps, same
from gradverify.subject.subject import Argument, Subject
from gradverify.subject.vmapped import Accumulated, accumulated, straight
from gradverify.torch_private import is_zerotensor


class Called(NamedTuple):
    """What one call gives: the checked outputs, and the gradient of each input."""

    outputs: Sequence[Any]
    gradients: Gradients


class Variant(NamedTuple):
    """The same function called in another way: the rule, the words for that call (`through
    torch.compile`) and for the usual one (`as in eager mode`), and what to look for where they
    differ."""

    code: str
    words: str
    usual: str
    hint: str

    def found(self, each: Difference) -> Finding:
        """Where the two differ."""
        text = f"{self.words} {each.text} {self.usual}"
        return Finding(self.code, text, input=each.input, output=each.output, hint=self.hint)

    def raised(self, error: UserCodeError) -> Finding:
        text = f"{self.words} {error.message}"
        return Finding(self.code, text, frames=error.frames, hint=self.hint)


class Difference(NamedTuple):
    """The element where two calls differ most: of an input's gradient (`input` its name), or of an
    output (`output` its place among all)."""

    input: str | None
    output: int | None
    where: str
    expected: float
    seen: float

    @property
    def text(self) -> str:
        """the gradient at x[0,1] is 1.5, and not 2"""
        what = f"the gradient at {self.where}" if self.input is not None else self.where
        seen, expected = self.numbers
        return f"{what} is {seen}, and not {expected}"

    @property
    def numbers(self) -> tuple[str, str]:
        """The one that was seen and the one that was expected, with as many digits as tell them
        apart."""
        return apart(self.seen, self.expected)


# Roundoffs from which a forward computes in float32, in 16 bits
SINGLE, SIXTEEN = 2.0**-24, 2.0**-12
DUST = 16.0  # roundings of the gradient's natural size ‖v‖‖f‖/‖x‖
# Of the tolerance, by which inputs are nudged: far above their rounding, and DUST times it stays
# below the tolerance
NUDGE = 1 / 32
ANOTHER = (
    "look for state that is kept from call to call, memory that was never written, random numbers "
    "or a race"
)
RANDOM_BACKWARD = "backward draws random numbers, which fall on other elements in another layout"
# directions; the inputs are nudged to both sides of each, which breaks a tie both ways
NUDGES = 2


def side(subject: Subject, evidence: Evidence, v: Sequence[Tensor]) -> Called:
    """What one fresh forward and its backward for the cotangents v give. Raises UserCodeError."""
    return Called(
        *Differentiable(subject, evidence.forward.checked).once(
            [cotangent.clone() for cotangent in v]
        )
    )


def varied(
    evidence: Evidence,
    variant: Variant,
    call: Callable[[], Called],
    base: Called | None = None,
    v: Sequence[Tensor] | None = None,
) -> Findings:
    """What is found of a variant: that it raises, or where it differs from the base call (or
    `base`)."""
    try:
        seen = call()
    except UserCodeError as error:
        yield variant.raised(error)
        return
    yield from differ(evidence, variant, seen, base, v)


def differ(
    evidence: Evidence,
    variant: Variant,
    seen: Called,
    base: Called | None = None,
    v: Sequence[Tensor] | None = None,
) -> Findings:
    """What the same function called in another way gives, against the base call (or `base`):
    another dtype or shape of an output, else other numbers than both calls may round. `v`: the
    cotangents, the base ones if none are given."""
    here = base or Called(evidence.outputs, evidence.worked.gradients)
    for place, y, usual in zip(evidence.forward.checked, seen.outputs, here.outputs, strict=True):
        if not isinstance(y, Tensor) or (y.dtype, y.shape) != (usual.dtype, usual.shape):
            given, wanted = (
                f"{str(each.dtype).removeprefix('torch.')} {list(each.shape)}"
                if isinstance(each, Tensor)
                else "no tensor"
                for each in (y, usual)
            )
            yield Finding(
                variant.code,
                f"{variant.words} {evidence.name_of(place)} is {given}, and not {wanted} "
                f"{variant.usual}",
                output=place,
                hint=variant.hint,
            )
            return
    gradients = differences(
        evidence, here.gradients, seen.gradients, evidence.cotangents("base") if v is None else v
    )
    for each in chain(
        differences(evidence, here.outputs, seen.outputs, (), outputs=True), gradients
    ):
        yield variant.found(each)


def differences(
    evidence: Evidence,
    expected: Sequence[Tensor | None],
    seen: Sequence[Tensor | None],
    v: Sequence[Tensor] | None = None,
    *,
    outputs: bool = False,
) -> Iterator[Difference]:
    """The element where two calls differ most, of each input's gradient (None counts as zeros) or
    each output that differs by more than rounding.

    `v`: the cotangents (none for `outputs`) of two computations, which may round differently. The
    function is called again where they differ.
    """
    named = (
        [
            (None, place, evidence.name_of(place), y)
            for place, y in zip(evidence.forward.checked, evidence.outputs, strict=True)
        ]
        if outputs
        else [(argument.name, None, argument.name, argument.value) for argument in evidence.inputs]
    )
    for n, (input_, output, name, x) in enumerate(named):
        if equal(expected[n], seen[n]):
            continue
        wanted, given = (
            flat_real(torch.zeros_like(x) if each is None else each.clone())
            for each in (expected[n], seen[n])
        )
        base = wanted if outputs else flat(evidence.inputs[n], evidence.worked.gradients[n])
        # Wrong already, or infinite by right: that is not for the rules on calls
        wanted[~base.isfinite()] = torch.nan
        unit = (
            evidence.precision
            if outputs
            else max(evidence.precision, Bits().seen(numbers(base)).unit)
        )
        size, off_by = max(largest(wanted), largest(base)), off(wanted, given)
        # a sum that cancels (of `layer_norm(x)`) is rounding of the inputs' size
        own = (
            DUST * evidence.precision * float(_finite(flat_all(evidence.subject.inputs)).norm())
            + evidence.settings.nondeterminism
            if outputs
            else dust(evidence, x)
        )
        allowed: Tensor | float = size * tolerance(unit) + own
        worst = worst_of(off_by, allowed)
        if worst is not None and v is not None:
            measure = (
                partial(_output_at, evidence, n)
                if outputs
                else partial(gradient_at, evidence, v, n)
            )
            for spread in (
                partial(nudged, size=NUDGE * tolerance(evidence.precision)),
                rounded_anew,
            ):
                if worst is not None:
                    allowed = allowed + DUST * spread(evidence, measure)
                    worst = worst_of(off_by, allowed)
        if worst is None or (
            evidence.leftover and worst_of(off_by, allowed + size * evidence.leftover) is None
        ):
            continue
        yield Difference(
            input_, output, element_name(name, x, worst), float(wanted[worst]), float(given[worst])
        )


def other_gradient(evidence: Evidence, seen: Gradients) -> Difference | None:
    """The first input whose gradient differs by more than rounding from that of the base call, for
    the same cotangents."""
    return next(differences(evidence, evidence.worked.gradients, seen), None)


def on_another_graph(
    evidence: Evidence, expected: Gradients, seen: Gradients, v: Sequence[Tensor], which: str
) -> Findings:
    """GV206, where the gradients of a graph of the same inputs are not those of the base graph, for
    the same cotangents. `which`: of that graph."""
    if evidence.settings.looks_for("GV206"):
        for apart in differences(evidence, expected, seen, v):
            yield Finding(
                "GV206",
                f"backward of another graph, {which}, gives another gradient: {apart.text}",
                input=apart.input,
                hint=ANOTHER,
            )


def random_backward(evidence: Evidence) -> str | None:
    """Why gradients in two layouts cannot be compared; None where they can. A backward draws random
    numbers if an equal call gives others where the generators start elsewhere: every call is seeded
    alike, so that it seems to repeat itself. Asked only where the gradients of two layouts differ.
    """

    def again() -> Gradients:
        return evidence.subject.seeded_elsewhere(
            lambda: copied(evidence.function.vjp(evidence.cotangents("base")))
        )

    # A backward may be wrong now and then
    twice = (other_gradient(evidence, again()) for _ in range(2))
    return RANDOM_BACKWARD if all(each is not None for each in twice) else None


def dust(evidence: Evidence, x: Tensor) -> float:
    """The rounding of a gradient whose natural size is ‖v‖‖f‖/‖x‖: sums over softmax rows and norms
    are made of it. Never less than some of the smallest number that x's dtype has, which products
    that underflow are rounded to."""
    values, size = _finite(flat_all(evidence.outputs)), float(_finite(flat_real(x)).norm())
    least = DUST * torch.finfo(x.dtype).tiny * torch.finfo(x.dtype).eps
    return least + (
        DUST * evidence.precision * float(values.numel() ** 0.5 * values.norm()) / size
        if size
        else 0.0
    )


# ---- elements
def equal(a: Tensor | None, b: Tensor | None) -> bool:
    """Return whether both hold the same numbers, without NaN: the usual case, checked a hundred
    times faster than a distance. None counts as zeros."""
    if a is None or b is None:
        there = a if b is None else b
        return there is None or (
            there.layout is torch.strided and not is_zerotensor(there) and not bool(there.any())
        )
    if a.dtype is not b.dtype or not a.layout is b.layout is torch.strided or a.shape != b.shape:
        return False
    return not (is_zerotensor(a) or is_zerotensor(b)) and torch.equal(a, b)


def tolerance(unit: float) -> float:
    """T of two gradients, relative, by the roundoff that the forward computes in."""
    return 5e-2 if unit > SIXTEEN else 3e-5 if unit >= SINGLE else 1e-9


def loosened(evidence: Evidence) -> float:
    """The relative tolerance, or what an iteration leaves if that is more. Calls the function; use
    it for numbers that differ."""
    return max(tolerance(evidence.precision), evidence.leftover)


def flat(argument: Argument, gradient: Tensor | None) -> Tensor:
    """The real coordinates of a gradient, copied, as backward may use its memory again; zeros where
    there is none."""
    return flat_real(torch.zeros_like(argument.value) if gradient is None else gradient.clone())


def off(wanted: Tensor, given: Tensor) -> Tensor:
    """|difference|, infinite where only `given` is not finite, 0 where `wanted` is not: that is
    another rule's."""
    return torch.where(
        wanted.isfinite(),
        (wanted - given).abs().nan_to_num(nan=torch.inf),
        torch.zeros_like(wanted),
    )


def largest(values: Tensor) -> float:
    """The largest finite magnitude."""
    finite = values[values.isfinite()]
    return float(finite.abs().max()) if finite.numel() else 0.0


def worst_of(apart: Tensor, allowed: Tensor | float) -> int | None:
    """The element furthest above what is allowed."""
    excess = apart - allowed
    if not excess.numel():
        return None
    worst = int(excess.argmax())
    return worst if float(excess[worst]) > 0 else None


def _finite(values: Tensor) -> Tensor:
    return values.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)


# ---- what rounding, and a nudge of the inputs, make of a measurement
# To round: all but one off by less than a tenth of the usual is one element in fifty thousand
WAYS = 6
# roundings: what two calls in the same way may differ by, as atomic adds do; one that is wrong now
# and then does by more
STEADY = 2.0**10


def rounded_anew(evidence: Evidence, measure: Callable[[Sequence[Tensor]], Tensor]) -> Tensor:
    """How far each element of a measurement goes at the same inputs when every operation rounds in
    another way.

    The second largest of all ways, the smaller of two equal calls each, and 0 where the function is
    another one when it is asked again: one that is wrong now and then must not excuse itself. 0 too
    where it refuses.
    """
    inputs, check = evidence.subject.inputs, evidence.subject.case.check
    try:
        here, far = measure(inputs), list[Tensor]()
        for way in range(WAYS):
            both = list[Tensor]()
            for _ in range(2):
                with Anew(generator(way, check, "anew")):
                    both.append(_finite(measure(inputs) - here).abs())
            far.append(torch.minimum(*both))
        again = measure(inputs)
    except UserCodeError:
        return torch.zeros(())
    size = _finite(here).abs().max() if here.numel() else 0.0
    second: Tensor = torch.stack(far).sort(0).values[-2]
    steady = _finite(again - here).abs() <= STEADY * evidence.precision * size
    return second if bool(steady.all()) else torch.zeros(())


def nudged(
    evidence: Evidence, measure: Callable[[Sequence[Tensor]], Tensor], size: float
) -> Tensor:
    """How far each element of a measurement goes when all inputs are nudged by `size` of theirs; 0
    where the function refuses that.

    The second largest of all nudges: a tie breaks to one side in each direction, while a call that
    is wrong now and then must not excuse itself.
    """
    inputs = evidence.subject.inputs
    far = list[Tensor]()
    try:
        here = measure(inputs)
        for nudge in range(NUDGES):
            source = generator(
                evidence.settings.seed, evidence.subject.case.check, f"input nudge {nudge}"
            )
            signs = [signed(x, source) for x in inputs]
            for side in (size, -size):
                there = measure(
                    [x + side * x.abs() * sign for x, sign in zip(inputs, signs, strict=True)]
                )
                far.append(_finite(there - here).abs())
    except UserCodeError:
        pass
    if len(far) < 2 * NUDGES:
        return torch.stack(far).amax(0) if far else torch.zeros(())
    return torch.stack(far).sort(0).values[-2]


def gradient_at(
    evidence: Evidence, v: Sequence[Tensor], place: int, inputs: Sequence[Tensor]
) -> Tensor:
    """The gradient of one input at other inputs."""
    return flat(
        evidence.inputs[place], evidence.function.vjp([c.clone() for c in v], inputs)[place]
    )


def _output_at(evidence: Evidence, among: int, inputs: Sequence[Tensor]) -> Tensor:
    return flat_real(evidence.function.values([x.detach().clone() for x in inputs])[among])


# ---- Identical calls compared: how many different results they gave, and how far apart these are
class Repeats:
    """The results of identical calls for one tensor, added one by one."""

    def __init__(self, of: str) -> None:
        self._of, self._calls = of, 0
        self._different = set[bytes]()
        self._first = self._low = self._high = torch.empty(0)

    def add(self, values: Tensor) -> None:
        self._calls += 1
        flat = flat_real(values.detach())
        if self._calls == 1:
            self._first = self._low = self._high = flat
        elif flat.shape == self._first.shape and not same(flat, self._first):
            self._different.add(flat.cpu().numpy().tobytes())
            self._low, self._high = torch.fmin(self._low, flat), torch.fmax(self._high, flat)

    def again(self) -> None:
        """A call more that gave what the first one did."""
        self._calls += 1

    def told(self, unit: float) -> Reproduced:
        """`unit`: the roundoff that the values are computed with."""
        apart = (
            float((self._high - self._low).nan_to_num(nan=0.0).max())
            if self._first.numel()
            else 0.0
        )
        size = largest(self._first)
        return Reproduced(
            self._of,
            self._calls,
            1 + len(self._different),
            apart,
            apart / max(unit * size, math.ulp(0.0)) if size else 0.0,
        )


def in_words(found: Iterable[Reproduced]) -> str:
    """Of those that came out in several ways: `y0: 3 different results in 5 calls, up to 4.4e-16
    apart (2 roundings)`; empty without any."""
    return "; ".join(
        f"{each.of}: {each.distinct} different results in {each.calls} calls, up to "
        f"{each.spread:.2g} apart ({each.roundings:.2g} rounding{'s' * (each.roundings > 1)})"
        for each in found
        if each.distinct > 1
    )


# ---- Identical calls compared: how many different results they gave, and how far apart these are
ATOMIC = 2.0**10  # roundings of a tensor's size: sums in another order
ASKS = ("GV205", "GV206")
LEFT = (
    "that is what an iteration leaves that starts from other numbers, or rounds in another order: "
    "within `rtol`"
)
ORDER_OF_SUMS = (
    "that is what a sum in another order does (atomic adds, split-k); `deterministic: true` makes "
    "it an error"
)
DRAWS = (
    "it draws from torch's generator: leave out `reseed: false`, and every forward draws the same "
    "numbers"
)


def graded(findings: Iterable[Finding], settings: Settings) -> tuple[Finding, ...]:
    """As severe as the spec wants them, when all is found: under `strict` every one is an error,
    under `deterministic` what differs between calls."""
    return tuple(
        replace(finding, severity="error")
        if settings.strict or (settings.deterministic and finding.code in ASKS)
        else finding
        for finding in findings
    )


# ---- GV205 forward-deterministic: the forward gives other values when it is called again
MORE = 3  # calls, to count the different results of a forward that has some


def gv205(evidence: Evidence) -> Told:
    """What differs by roundings is reported when all calls were made: a later one may differ by
    more."""
    before = torch.default_generator.get_state()
    counts = [Repeats(evidence.name_of(place)) for place in evidence.forward.checked]
    accepted = 0.0 if evidence.settings.deterministic else evidence.settings.nondeterminism
    slight = list[Finding]()

    def count(outputs: Sequence[Tensor]) -> None:
        for each, y in zip(counts, outputs, strict=True):
            each.add(y)

    count(evidence.outputs)
    for again in _forwards(evidence):
        count(again)
        for place, first, second in zip(
            evidence.forward.checked, evidence.outputs, again, strict=True
        ):
            name = evidence.name_of(place)
            if first.shape != second.shape:
                worst = math.inf
                words = (
                    f"{name} had shape {list(first.shape)}, and {list(second.shape)} when called "
                    "again"
                )
            elif same(first, second):
                continue
            else:
                a, b = flat_real(first), flat_real(second)
                away = _off(a, b)
                element = int(away.argmax())
                worst = float(away[element])
                was, now = apart(float(a[element]), float(b[element]))
                words = (
                    f"{element_name(name, first, element)} was {was}, and {now} when called again "
                    "with the same input"
                )
            if worst <= accepted:
                continue
            size = largest(flat_real(first))
            found = Finding("GV205", f"the forward is not deterministic: {words}", output=place)
            if worst <= ATOMIC * evidence.precision * size:
                slight.append(
                    replace(
                        found,
                        severity="warning",
                        hint=f"{ORDER_OF_SUMS}, `nondeterminism` accepts it",
                    )
                )
            elif worst <= evidence.rtol * size and worst <= evidence.leftover * size:
                yield replace(found, severity="warning", hint=LEFT)
                return
            else:
                drawn = not evidence.settings.reseed and not torch.equal(
                    before, torch.default_generator.get_state()
                )
                yield replace(
                    found,
                    hint=DRAWS
                    if drawn
                    else f"{ANOTHER}; `nondeterminism` accepts small differences",
                )
                return
    # What differs is called a few times more
    for _ in range(MORE if any(each.told(1.0).distinct > 1 for each in counts) else 0):
        count(evidence.function.here())
    results = [each.told(evidence.precision) for each in counts]
    evidence.reproduced += results
    yield from slight[:1]
    if in_words(results):
        yield in_words(results)


def _forwards(evidence: Evidence) -> Iterator[Sequence[Tensor]]:
    """Those of the first call of all, where they are others; two further ones, the second with
    generators that start elsewhere, unless that alone makes the difference."""
    if evidence.poisoned.earliest is not None:
        yield evidence.poisoned.earliest
    yield evidence.function.here()
    if evidence.forward.random:
        yield evidence.function.values(evidence.subject.leaves())
        return
    again = evidence.reseeded
    if not evidence.draws:
        yield again


def _off(a: Tensor, b: Tensor) -> Tensor:
    """|difference|, 0 where both are the same infinity or NaN."""
    equal = (a == b) | (a.isnan() & b.isnan())
    return torch.where(equal, torch.zeros_like(a), (a - b).abs().nan_to_num(nan=torch.inf))


# ---- Which inputs need a gradient
ALL_SUBSETS = 4  # up to so many inputs every subset is tried
PAIRS = 8  # up to so many every two that need none together


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


# ---- GV206 backward-deterministic: backward gives other gradients when it is called again
CALLS, FEW = 20, 4  # compared calls; where each needs a forward of its own
LEFT_OF_60 = 32  # backward calls, for an input and an output of which other rules take 28
# Calls of a backward that draws: a mask that drops 5 % of three elements is missed once in 10,000
SEEDS = 60
ASKED = 2  # calls of one graph that show whether it may be asked again
ULPS = 4
DRAWN = (
    "backward must be the derivative of the forward that ran: what that drew must be saved, and "
    "nothing drawn anew"
)


class Odd(NamedTuple):
    """An input's gradients that differ from those of the second call: `calls`, and the worst
    difference."""

    place: int
    calls: tuple[int, ...]
    where: str
    here: float
    there: float
    off: float
    size: float
    rounding: float

    def sentence(self, number: int, what: str = "") -> str:
        which = (
            "the first call of all"
            if self.calls == (1,)
            else f"call {self.calls[0]}"
            if len(self.calls) == 1
            else f"{len(self.calls)} of the calls"
        )
        return (
            f"of {number} calls with the same grad_output{what} {which} "
            f"differ{'' if len(self.calls) > 1 else 's'} from the second; at "
            f"{self.where} {' and '.join(apart(self.here, self.there))}"
        )


def gv206(evidence: Evidence) -> Told:
    before = evidence.poisoned.repeats
    inputs, outputs = len(evidence.inputs), len(evidence.forward.checked)
    calls = (
        CALLS
        if inputs > ALL_SUBSETS
        else max(FEW, min(CALLS, LEFT_OF_60 - len(subsets(inputs)) - inputs - 3 * outputs))
    )
    planned = evidence.spending.some(range(2 + len(before), calls + 1), 0, 1, "repeats")
    odd, number, counted = _compared(evidence, _backwards(evidence, planned), before)
    if odd and evidence.repeats is not None:
        first = odd[0].calls[0]
        odd, number, counted = _compared(
            evidence,
            (evidence.function.once(evidence.cotangents("base"))[1] for _ in range(CALLS)),
            before,
        )
        if not odd:
            yield f"call {first} of one graph differs, but fresh graphs agree: not for this rule"
    for each in odd:
        error = each.off > ATOMIC * each.rounding
        left = error and each.off <= evidence.leftover * each.size
        yield Finding(
            "GV206",
            f"backward is not deterministic: {each.sentence(number)}",
            input=evidence.inputs[each.place].name,
            severity="error" if error and not left else "warning",
            hint=LEFT if left else ANOTHER if error else ORDER_OF_SUMS,
        )
    drawn, ended = evidence.worked.drawn
    if (
        not odd
        and evidence.settings.reseed
        and drawn != ended
        and (evidence.function.reusable or not evidence.draws)
    ):
        evidence.function.here()  # a forward that draws is not to be made with another seed
        others = (
            evidence.subject.seeded_elsewhere(
                lambda: evidence.function.vjp(evidence.cotangents("base")), number
            )
            for number in evidence.spending.some(range(SEEDS), 0, 1, "other seeds")
        )
        found, seeds, _ = _compared(evidence, others)
        for each in found:
            within = each.off <= evidence.rtol * each.size
            message = (
                "backward draws random numbers, and its gradient depends on them: "
                f"{each.sentence(seeds, ' and other seeds')}"
            )
            yield Finding(
                "GV206",
                message,
                severity="warning" if within else "error",
                input=evidence.inputs[each.place].name,
                hint="the differences are within `rtol`" if within else DRAWN,
            )
    evidence.reproduced += counted
    yield f"{number} identical calls compared, the first of the process among them"
    if in_words(counted):
        yield in_words(counted)


def _backwards(evidence: Evidence, numbers: Sequence[int]) -> Iterator[Gradients]:
    """The base call's backward again, on another graph as long as one is allowed; among them the
    repeats that GV207 and GV227 ask for as well.

    These come when that graph was asked twice: of the base graph, whose saved tensors are watched,
    torch would not see that they were written to.
    """
    for _ in numbers[:ASKED]:
        yield evidence.function.vjp(evidence.cotangents("base"))
    again = (evidence.repeats or ())[: len(numbers) - ASKED] if len(numbers) > ASKED else ()
    yield from (returned.values for returned in again)
    for number in numbers[ASKED + len(again) :]:
        if number > FEW and not evidence.function.reusable:
            return
        yield evidence.function.vjp(evidence.cotangents("base"))


def _compared(
    evidence: Evidence, repeats: Iterator[Gradients], before: Sequence[Gradients] = ()
) -> tuple[list[Odd], int, list[Reproduced]]:
    """The base call and its repeats, all against the second: the inputs whose gradients differ, the
    number of calls, and the different results of each input. `before`: the first call of all, and
    what else was called before the base call."""
    calls = chain([*before[:1], evidence.worked.gradients, *before[1:]], repeats)
    first, given = next(calls), copied(next(calls))
    inputs = evidence.inputs
    second = [flat(argument, gradient) for argument, gradient in zip(inputs, given, strict=True)]
    counts = [Repeats(f"grad of {argument.name}") for argument in inputs]
    units = [max(evidence.precision, UNITS[argument.value.dtype]) for argument in inputs]
    for count, each in zip(counts, second, strict=True):
        count.add(each)
    found, number = dict[int, Odd](), 2
    for number, returned in chain([(1, first)], enumerate(calls, 3)):
        for place, (argument, gradient) in enumerate(zip(inputs, returned, strict=True)):
            if equal(given[place], gradient):
                counts[place].again()
                continue
            other, wanted = flat(argument, gradient), second[place]
            counts[place].add(other)
            away, size = _off(wanted, other), largest(wanted)
            worst, rounding = int(away.argmax()), units[place] * size
            off = float(away[worst])
            if not off or not (
                evidence.settings.deterministic
                or off > max(2 * ULPS * rounding, dust(evidence, argument.value))
            ):
                continue
            odd = Odd(
                place,
                (number,),
                element_name(argument.name, argument.value, worst),
                float(other[worst]),
                float(wanted[worst]),
                off,
                size,
                rounding,
            )
            earlier = found.get(place, odd)
            numbers = earlier.calls + odd.calls * (earlier is not odd)
            worse = max(earlier, odd, key=lambda each: each.off)
            found[place] = worse._replace(calls=numbers)
    return (
        list(found.values()),
        max(number, 2),
        [count.told(unit) for count, unit in zip(counts, units, strict=True)],
    )


# ---- GV207 reentrant: a call changes what an earlier call returned or will return
OF_ONE_CALL = (
    "what belongs to one call must not be kept where other calls reach it: on the class, in a "
    "module, in a shared buffer"
)
AGAIN = (
    "backward must leave what it reads as it is (ctx, the class, buffers), so that the next call "
    "of it finds the same"
)
FRESH = "return fresh tensors: what was handed out is the caller's"
REMEMBERED = (
    "compute it from the tensor in every call, or let what is remembered depend on its `_version`, "
    "which every write in place raises: a tensor's address, `id` and shape stay as they are"
)
UPDATED = "after the inputs were updated in place, as an optimizer does,"


def gv207(evidence: Evidence) -> Findings:
    yield from islice(_seen(evidence), 1)


def _seen(evidence: Evidence) -> Findings:
    """What each step of the sequence shows."""
    for again in evidence.repeats or ():
        yield from _other(
            other_gradient(evidence, again.values),
            "backward of one graph gives another gradient when it is called again",
            AGAIN,
        )
    first = evidence.usable()
    watched = [
        *_outputs(evidence, first),
        *(each for returned in evidence.repeats or () for each in _handed_out(evidence, returned)),
    ]
    leaves = [
        leaf_elsewhere(argument, leaf)
        for argument, leaf in zip(evidence.inputs, evidence.forward.leaves, strict=True)
    ]
    works = False
    # A function that is not defined there says so, and is left alone
    with suppress(UserCodeError):
        graph = evidence.function.graph(leaves)
        watched += _outputs(evidence, graph)
        watched += _handed_out(
            evidence, Returned.now(evidence.function.gradients(graph, evidence.worked.cotangents))
        )
        works = True
    with refused(
        "GV207",
        "a forward and backward with other inputs breaks the backward of an earlier call, which "
        "works without them:",
        OF_ONE_CALL,
    ):
        changed_it = other_gradient(evidence, _backward(evidence, first))
    yield from _other(
        changed_it,
        "a forward and backward with other inputs changes the gradient of an earlier call",
    )
    # do they lie in memory as those of the base call do, and is it still theirs? A function that
    # writes into its inputs gets clones
    alike = all(
        leaf.stride() == own.stride()
        for leaf, own in zip(leaves, evidence.forward.leaves, strict=True)
    )
    if works and alike and not evidence.subject.writes and not evidence.forward.freed:
        # It is written with them by right
        watched = [each for each in watched if not any(overlaps(each[1], leaf) for leaf in leaves)]
        with suppress(UserCodeError):
            yield from _updated(evidence, leaves)
    for found in _other(
        _other_values(evidence, evidence.later),
        "forward gives other values after a call with other inputs",
    ):
        yield at_forward(found, evidence)
    for name, now, then in watched:
        if not same(then, now):
            how = changed("", now, change(then, now))
            yield Finding(
                "GV207",
                f"{name}, returned by an earlier call, is overwritten by a later one{how}",
                hint=FRESH,
            )


Watched = tuple[str, Tensor, Tensor]
"""A name, what was handed out under it, and a copy of what that held then."""


def _outputs(evidence: Evidence, graph: Graph) -> list[Watched]:
    named = zip(
        map(evidence.name_of, evidence.forward.checked), evidence.function.of(graph), strict=True
    )
    return [(name, y, y.detach().clone()) for name, y in named if y.layout == torch.strided]


def _handed_out(evidence: Evidence, returned: Returned) -> list[Watched]:
    triples = zip(evidence.inputs, returned.handed_out, returned.values, strict=True)
    return [
        (f"the gradient of {argument.name}", tensor, value)
        for argument, tensor, value in triples
        if tensor is not None and value is not None and tensor.layout == torch.strided
    ]


def _backward(evidence: Evidence, graph: Graph) -> Gradients:
    return evidence.function.gradients(
        graph, evidence.worked.cotangents, retain=evidence.repeats is not None
    )


def _other(difference: Difference | None, what: str, hint: str = OF_ONE_CALL) -> Findings:
    if difference is not None:
        expected, seen = apart(difference.expected, difference.seen)
        yield Finding(
            "GV207", f"{what}: {expected} at {difference.where} was first, {seen} then", hint=hint
        )


def _other_values(evidence: Evidence, graph: Graph) -> Difference | None:
    """Where a forward with the numbers of the base call has other outputs."""
    ys = evidence.function.of(graph)
    if any(y.shape != usual.shape for y, usual in zip(ys, evidence.outputs, strict=True)):
        return None
    return next(differences(evidence, evidence.outputs, ys, outputs=True), None)


def _updated(evidence: Evidence, leaves: Sequence[Tensor]) -> Findings:
    """A call with tensors that held other numbers in an earlier call, and hold now those of the
    base call; a forward that refuses them raises. It is the update, if new tensors do not show the
    same."""
    with torch.no_grad():
        for leaf, x in zip(leaves, evidence.subject.inputs, strict=True):
            leaf.copy_(x)
    graph, seen = _called(evidence, leaves)
    if seen is None:
        if evidence.repeats is not None:
            evidence.later = graph
        return
    others = _called(evidence, evidence.subject.leaves())[1]
    found = others or seen
    raised = isinstance(found, UserCodeError)
    who = "forward" if isinstance(found, Difference) and found.output is not None else "backward"
    text = found.message if isinstance(found, UserCodeError) else found.text
    if others is None and _called(evidence, leaves)[1] is None:
        yield Finding(
            "GV205" if who == "forward" else "GV206",
            f"{who} is not deterministic: {text}; the same call again is as the first one",
            hint=ANOTHER,
        )
        return
    when, hint, kept = "after a call with other inputs", OF_ONE_CALL, ""
    if others is None:
        when, hint = UPDATED, REMEMBERED
        kept = (
            ""
            if raised
            else (
                f", which it is with new tensors of the same numbers: {who} goes on with what was "
                "kept of the old ones"
            )
        )
    one = Finding(
        "GV207",
        f"{when} {text}{kept}",
        hint=hint,
        frames=found.frames if isinstance(found, UserCodeError) else (),
    )
    yield at_forward(one, evidence) if who == "forward" else one


def _called(
    evidence: Evidence, leaves: Sequence[Tensor]
) -> tuple[Graph, Difference | UserCodeError | None]:
    """A forward and a backward with the numbers of the base call: where they differ from it, or
    what backward raises. Raises UserCodeError."""
    graph = evidence.function.graph(leaves)
    try:
        return graph, _other_values(evidence, graph) or other_gradient(
            evidence, _backward(evidence, graph)
        )
    except UserCodeError as error:
        return graph, error


# ---- GV220 accumulation: gradients that accumulate in .grad come out wrong
UNHELD = (
    "return grad_output itself or a tensor that nothing else holds: autograd may keep what it gets "
    "as .grad, and add to it"
)


def gv220(evidence: Evidence) -> Findings:
    if any(
        isinstance(each, Tensor) and is_zerotensor(each)
        for raw in evidence.worked.raw
        for each in raw.returned
    ):
        raise NotApplicable(
            "a gradient is torch's zeros without memory, to which autograd itself cannot add"
        )
    direct = straight(evidence.forward.nodes, evidence.forward.leaves)
    if not any(direct):
        raise NotApplicable("no input goes straight into a custom Function")
    with refused("GV220", "`.backward(ones)` twice:"):
        seen: Accumulated = accumulated(
            evidence.subject, evidence.function, evidence.later, evidence.reusable
        )
    if "for_ones" in vars(evidence):  # asked for by GV213, of the base graph
        ones = [torch.ones_like(y) for y in evidence.outputs]
        yield from on_another_graph(
            evidence, evidence.for_ones[1], seen.first, ones, "made after a call elsewhere"
        )
    own = dict(zip((argument.name for argument in evidence.inputs), direct, strict=True))
    twice = [None if gradient is None else torch.mul(gradient, 2) for gradient in seen.first]
    for difference in differences(evidence, twice, seen.both):
        if own[str(difference.input)]:
            given, wanted = difference.numbers
            yield Finding(
                "GV220",
                f".grad of {difference.input} after two backwards is {given} at "
                f"{difference.where}, not twice the first: {wanted}",
                input=difference.input,
                hint=UNHELD,
            )
    for each in seen.written:
        if each.held.name not in {written.held.name for written in evidence.worked.written}:
            yield Finding(
                "GV220",
                "adding to .grad writes into "
                f"{each.held.name}{changed(each.held.name, each.held.tensor, each.change)}",
                input=each.held.name,
                hint=UNHELD,
            )


# ---- GV227 single-backward: a second backward of one graph is refused
def gv227(evidence: Evidence) -> Findings:
    if not evidence.worked.direct:
        raise NotApplicable("torch.autograd.grad is refused, as a re-entrant checkpoint does")
    refused = evidence.refused
    if refused is not None:
        yield Finding(
            "GV227",
            f"a second backward of one graph is refused, though it was retained: {refused.message}",
            frames=refused.frames,
            hint="a second backward must find on ctx what the first one found; what "
            "save_for_backward holds is freed by autograd itself",
        )
