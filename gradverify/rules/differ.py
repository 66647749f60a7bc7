"""Do two ways to call one function agree? What the rules that repeat or vary the base call
share.

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
from functools import partial
from itertools import chain, combinations
from typing import Any, NamedTuple

import torch
from torch import Tensor

from gradverify.evidence import Evidence
from gradverify.model.result import Finding, Reproduced
from gradverify.numerics.function.coordinates import flat_all, flat_real, numbers
from gradverify.numerics.roundoff import Bits
from gradverify.rules.shown import Findings, Result, apart, element_name, results
from gradverify.subject.differentiable import Differentiable, Gradients, copied
from gradverify.subject.draw import generator, signed
from gradverify.subject.failure import UserCodeError, attempted, tried
from gradverify.subject.forms import dtype_name
from gradverify.subject.rounding import Anew
from gradverify.subject.snapshot import same
from gradverify.subject.subject import Argument, Subject
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

    def found(self, each: Difference, more: str = "") -> Finding:
        """Where the two differ."""
        text = f"{self.words} {each.text} {self.usual}{more}"
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


def difference(of: Result, coordinate: int, expected: float, seen: float) -> Difference:
    """Of one real coordinate."""
    where = element_name(of.name, of.tensor, coordinate)
    return Difference(of.input, of.output, where, expected, seen)


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
# Directions; the inputs are nudged to both sides of each, which breaks a tie both ways
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
    seen = attempted(call)
    if isinstance(seen, UserCodeError):
        yield variant.raised(seen)
    else:
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
                f"{dtype_name(each)} {list(each.shape)}"
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
    named = [each for each in results(evidence) if outputs is (each.input is None)]
    for n, of in enumerate(named):
        if equal(expected[n], seen[n]):
            continue
        x = of.tensor
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
        # A sum that cancels (of `layer_norm(x)`) is rounding of the inputs' size
        own = (
            DUST * evidence.precision * float(_finite(flat_all(evidence.subject.inputs)).norm())
            + evidence.settings.nondeterminism
            if outputs
            else dust(evidence, x)
        )
        allowed: Tensor | float = size * tolerance(unit) + own
        worst = worst_of(off_by, allowed)
        if worst is not None and v is not None:
            measure = partial(_output_at if outputs else gradient_at, evidence, v, n)
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
        yield difference(of, worst, float(wanted[worst]), float(given[worst]))


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
# Roundings: what two calls in the same way may differ by, as atomic adds do; one that is wrong now
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

    def measured() -> Tensor | None:
        here, far = measure(inputs), list[Tensor]()
        for way in range(WAYS):
            both = list[Tensor]()
            for _ in range(2):
                with Anew(generator(way, check, "anew")):
                    both.append(_finite(measure(inputs) - here).abs())
            far.append(torch.minimum(*both))
        again = measure(inputs)
        size = _finite(here).abs().max() if here.numel() else 0.0
        steady = _finite(again - here).abs() <= STEADY * evidence.precision * size
        return torch.stack(far).sort(0).values[-2] if bool(steady.all()) else None

    found = tried(measured)
    return torch.zeros(()) if found is None else found


def nudged(
    evidence: Evidence, measure: Callable[[Sequence[Tensor]], Tensor], size: float
) -> Tensor:
    """How far each element of a measurement goes when all inputs are nudged by `size` of theirs; 0
    where the function refuses that.

    The second largest of all nudges: a tie breaks to one side in each direction, while a call that
    is wrong now and then must not excuse itself.
    """
    inputs, far = evidence.subject.inputs, list[Tensor]()

    def measured() -> None:
        here = measure(inputs)
        for nudge in range(NUDGES):
            source = evidence.subject.generator(f"input nudge {nudge}")
            signs = [signed(x, source) for x in inputs]
            for side in (size, -size):
                there = measure(
                    [x + side * x.abs() * sign for x, sign in zip(inputs, signs, strict=True)]
                )
                far.append(_finite(there - here).abs())

    tried(measured)
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


def _output_at(
    evidence: Evidence, _: Sequence[Tensor], place: int, inputs: Sequence[Tensor]
) -> Tensor:
    return flat_real(evidence.function.values([x.detach().clone() for x in inputs])[place])


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

    def summary(self, unit: float) -> Reproduced:
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
