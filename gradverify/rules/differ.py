"""Compare two ways of calling one function: shared by the rules that repeat or vary the base call.

Differences are judged against the gradient of a dense cotangent and its natural size ‖v‖‖f‖/‖x‖,
never against the two compared numbers alone (softmax and norms under a constant cotangent are pure
rounding). Where the two calls may round differently (another layout, another subset of inputs), a
difference that is still too large must also exceed the change of the same element under a nudge of
the inputs (`nudged`), which is large for gradients that are pure rounding and for ties, and under
other roundings in every operation (`rounded_anew`), which is large for numbers that cancel and for
parts in float32. Two calls of a function that iterates agree to `rtol` only."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
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
from gradverify.subject.draw import generator, shifted
from gradverify.subject.failure import UserCodeError, attempted, tried
from gradverify.subject.forms import dtype_name
from gradverify.subject.rounding import Anew
from gradverify.subject.snapshot import same
from gradverify.subject.subject import Argument, Subject
from gradverify.torch_private import is_zerotensor


class Called(NamedTuple):
    """The results of one call: the checked outputs, and the gradient of each input."""

    outputs: Sequence[Any]
    gradients: Gradients


class Variant(NamedTuple):
    """Another way to call the function: the code of the rule, the words for that call (`through
    torch.compile`) and for the usual one (`as in eager mode`), and the hint where they differ."""

    code: str
    words: str
    usual: str
    hint: str

    def found(self, each: Difference, more: str = "") -> Finding:
        """Return the finding for a difference of the two calls."""
        text = f"{self.words} {each.text} {self.usual}{more}"
        return Finding(self.code, text, input=each.input, output=each.output, hint=self.hint)

    def raised(self, error: UserCodeError) -> Finding:
        text = f"{self.words} {error.message}"
        return Finding(self.code, text, frames=error.frames, hint=self.hint)


class Difference(NamedTuple):
    """The element at which two calls differ most: of an input's gradient (`input`: its name), or of
    an output (`output`: its place among all outputs)."""

    input: str | None
    output: int | None
    where: str
    expected: float
    seen: float

    @property
    def text(self) -> str:
        """The difference in words: `the gradient at x[0,1] is 1.5, and not 2`."""
        what = f"the gradient at {self.where}" if self.input is not None else self.where
        seen, expected = self.numbers
        return f"{what} is {seen}, and not {expected}"

    @property
    def numbers(self) -> tuple[str, str]:
        """The seen and the expected number, with enough digits to distinguish them."""
        return apart(self.seen, self.expected)


def difference(of: Result, coordinate: int, expected: float, seen: float) -> Difference:
    """Return the difference at one real coordinate."""
    where = element_name(of.name, of.tensor, coordinate)
    return Difference(of.input, of.output, where, expected, seen)


# Unit roundoffs from which a forward counts as float32; above which, as 16 bits
SINGLE, SIXTEEN = 2.0**-24, 2.0**-12
DUST = 16.0  # roundings of the gradient's natural size ‖v‖‖f‖/‖x‖
# Size of a nudge of the inputs, as a share of the tolerance: far above their rounding, while DUST
# times the nudge stays below the tolerance
NUDGE = 1 / 32
ANOTHER = (
    "look for state that is kept from call to call, memory that was never written, random numbers "
    "or a race"
)
RANDOM_BACKWARD = "backward draws random numbers, which fall on other elements in another layout"
# Directions in which inputs are nudged, each to both sides, which breaks a tie both ways
NUDGES = 2


def side(subject: Subject, evidence: Evidence, v: Sequence[Tensor]) -> Called:
    """Run a forward and its backward for the cotangents v. Raises UserCodeError."""
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
    """Yield the findings for a variant: that it raises, or where it differs from the base call (or
    from `base`)."""
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
    """Compare the results of a variant with the base call (or with `base`): yield an output of
    another dtype or shape, else numbers that differ by more than rounding. `v`: the cotangents, by
    default those of the base call."""
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
    """Yield the element at which two calls differ most, for each input's gradient (None counts as
    zeros) or each output that differs by more than rounding.

    `v`: the cotangents (empty for `outputs`), where the two computations may round differently; the
    function is then called again where they differ.
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
        # Numbers of the base call that are not finite are not compared: other rules report them
        wanted[~base.isfinite()] = torch.nan
        unit = (
            evidence.precision
            if outputs
            else max(evidence.precision, Bits().seen(numbers(base)).unit)
        )
        size, off_by = max(largest(wanted), largest(base)), off(wanted, given)
        # A sum that cancels (of `layer_norm(x)`) has the rounding of the inputs' size
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
    """Return the difference for the first input whose gradient is not that of the base call up to
    rounding, for the same cotangents; None where there is none."""
    return next(differences(evidence, evidence.worked.gradients, seen), None)


def on_another_graph(
    evidence: Evidence, expected: Gradients, seen: Gradients, v: Sequence[Tensor], which: str
) -> Findings:
    """Yield GV206 findings where another graph of the same inputs gives other gradients for the
    same cotangents. `which`: a description of that graph."""
    if evidence.settings.looks_for("GV206"):
        for apart in differences(evidence, expected, seen, v):
            yield Finding(
                "GV206",
                f"backward of another graph, {which}, gives another gradient: {apart.text}",
                input=apart.input,
                hint=ANOTHER,
            )


def seldom(found: Finding) -> Finding:
    """Return the finding (GV205 or GV206) for a difference that shows in one call and not in the
    next, so that it does not depend on the way of the call."""
    who, code = ("backward", "GV206") if found.output is None else ("forward", "GV205")
    return replace(
        found,
        code=code,
        message=f"{who} is not deterministic: {found.message}; and the same call again gives these",
        hint=ANOTHER,
    )


def random_backward(evidence: Evidence) -> str | None:
    """Return why gradients in two layouts cannot be compared: backward draws random numbers. None
    where it does not.

    As every call has the same seed, this shows only in a call with another seed. Called only where
    the gradients in two layouts differ.
    """

    def again() -> Gradients:
        return evidence.subject.seeded_elsewhere(
            lambda: copied(evidence.function.vjp(evidence.cotangents("base")))
        )

    # Twice, as a backward may be wrong in some calls only
    twice = (other_gradient(evidence, again()) for _ in range(2))
    return RANDOM_BACKWARD if all(each is not None for each in twice) else None


def dust(evidence: Evidence, x: Tensor) -> float:
    """Return the rounding of a gradient whose natural size is ‖v‖‖f‖/‖x‖, to which sums over
    softmax rows and norms may cancel. At least DUST times the smallest positive number of x's
    dtype, to which products that underflow are rounded."""
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
    """Return the relative tolerance for two gradients, by the unit roundoff of the forward."""
    return 5e-2 if unit > SIXTEEN else 3e-5 if unit >= SINGLE else 1e-9


def loosened(evidence: Evidence) -> float:
    """Return the relative tolerance, or the error that an iteration leaves, whichever is larger.
    Calls the function, so use it only for numbers that differ."""
    return max(tolerance(evidence.precision), evidence.leftover)


def flat(argument: Argument, gradient: Tensor | None) -> Tensor:
    """Return the real coordinates of a gradient, copied, as backward may reuse its memory; zeros
    for None."""
    return flat_real(torch.zeros_like(argument.value) if gradient is None else gradient.clone())


def off(wanted: Tensor, given: Tensor) -> Tensor:
    """Return |wanted − given|: infinite where only `given` is not finite, 0 where `wanted` is not
    (other rules report that)."""
    return torch.where(
        wanted.isfinite(),
        (wanted - given).abs().nan_to_num(nan=torch.inf),
        torch.zeros_like(wanted),
    )


def largest(values: Tensor) -> float:
    """Return the largest finite magnitude, 0 if there is none."""
    finite = values[values.isfinite()]
    return float(finite.abs().max()) if finite.numel() else 0.0


def worst_of(apart: Tensor, allowed: Tensor | float) -> int | None:
    """Return the index of the element that exceeds what is allowed by most; None where none
    does."""
    excess = apart - allowed
    if not excess.numel():
        return None
    worst = int(excess.argmax())
    return worst if float(excess[worst]) > 0 else None


def _finite(values: Tensor) -> Tensor:
    return values.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)


# ---- How far a measurement changes by rounding, and by a nudge of the inputs
# Ways to round: all but one of them are less than a tenth of the usual change for one element in
# fifty thousand
WAYS = 6
# Roundings by which two equal calls may differ (atomic adds); a function that is wrong in some
# calls differs by more
STEADY = 2.0**10


def rounded_anew(evidence: Evidence, measure: Callable[[Sequence[Tensor]], Tensor]) -> Tensor:
    """Return how far each element of a measurement changes, at the same inputs, when every
    operation rounds in another way.

    This is the second largest change of all ways, where each is the smaller of two equal calls; 0
    where equal calls without other roundings differ, as a function that is wrong in some calls must
    not be excused by that, and where the function raises.
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
    """Return how far each element of a measurement changes when all inputs are nudged by `size`,
    relative to their own; 0 where the function raises.

    This is the second largest change of all nudges: a tie breaks in each direction, while a
    function that is wrong in some calls must not be excused by that.
    """
    inputs, far = evidence.subject.inputs, list[Tensor]()

    def measured() -> None:
        here = measure(inputs)
        for nudge in range(NUDGES):
            for side in (size, -size):
                source = evidence.subject.generator(f"input nudge {nudge}")
                there = measure(shifted(inputs, side, source))
                far.append(_finite(there - here).abs())

    tried(measured)
    if len(far) < 2 * NUDGES:
        return torch.stack(far).amax(0) if far else torch.zeros(())
    return torch.stack(far).sort(0).values[-2]


def gradient_at(
    evidence: Evidence, v: Sequence[Tensor], place: int, inputs: Sequence[Tensor]
) -> Tensor:
    """Return the gradient of one input at other inputs, as real coordinates."""
    return flat(
        evidence.inputs[place], evidence.function.vjp([c.clone() for c in v], inputs)[place]
    )


def _output_at(
    evidence: Evidence, _: Sequence[Tensor], place: int, inputs: Sequence[Tensor]
) -> Tensor:
    return flat_real(evidence.function.values([x.detach().clone() for x in inputs])[place])


# ---- The number of different results of identical calls, and how far apart these are
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
        """Count a further call whose result is equal to the first."""
        self._calls += 1

    def summary(self, unit: float) -> Reproduced:
        """Return how many different results there were, and how far apart. `unit`: the unit
        roundoff that the values are computed with."""
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
    """Describe the tensors with several different results: `y0: 3 different results in 5 calls, up
    to 4.4e-16 apart (2 roundings)`; "" where there are none."""
    return "; ".join(
        f"{each.of}: {each.distinct} different results in {each.calls} calls, up to "
        f"{each.spread:.2g} apart ({each.roundings:.2g} rounding{'s' * (each.roundings > 1)})"
        for each in found
        if each.distinct > 1
    )


# ---- Which inputs need a gradient
ALL_SUBSETS = 4  # inputs up to which every subset is tried
PAIRS = 8  # inputs up to which every pair is left out together


def subsets(count: int) -> list[tuple[int, ...]]:
    """Return the subsets of inputs (by place) that require a gradient, other than none and all:
    the smallest first, or, where only some are tried, those without a pair of inputs last."""
    sizes = (
        range(1, count)
        if count <= ALL_SUBSETS
        else (1, count - 1, count - 2)
        if count <= PAIRS
        else (1, count - 1)
    )
    return [subset for size in sizes for subset in combinations(range(count), size)]
