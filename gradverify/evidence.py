"""The measurements of one Subject, which the rules share: each is made once, on first use. Tallies
are kept, never a whole Jacobian."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from math import inf

from torch import Tensor

from gradverify.model.fault import fault_of
from gradverify.model.interrupt import is_interrupt
from gradverify.model.result import Fault, Reproduced
from gradverify.modes import Modes
from gradverify.numerics.choose import Choice
from gradverify.numerics.compare import Watch
from gradverify.numerics.function.coordinates import UNITS, flat_real, numbers
from gradverify.numerics.pairs.pair import Requested
from gradverify.numerics.roundoff import Bits
from gradverify.numerics.rungs import U32, U64
from gradverify.numerics.seeds import Seed
from gradverify.numerics.verdict import Limit
from gradverify.oracles.catalogue import GIVEN
from gradverify.oracles.convergence import (
    left_open,
    noise_left_open,
    without_leftovers,
    zeros_left_open,
)
from gradverify.oracles.finite_difference import (
    Constraints,
    Filled,
    Jacobian,
    WithBackward,
    jacobian,
)
from gradverify.oracles.given import Given
from gradverify.oracles.implementation import Surrogate
from gradverify.oracles.legs import (
    FirstLeg,
    InFloat64,
    Kernel,
    RefusedError,
    in_float64,
    refined_by_lifted,
)
from gradverify.oracles.oracle import Checked
from gradverify.oracles.reference import AgainstReference
from gradverify.subject.another import elsewhere
from gradverify.subject.differentiable import Differentiable
from gradverify.subject.draw import shifted
from gradverify.subject.failure import Line, Spent, UserCodeError, Value, attempted, tried
from gradverify.subject.forms import specified
from gradverify.subject.interpreted import launches
from gradverify.subject.iterating import Tightened, stopping_tests
from gradverify.subject.spending import Spending
from gradverify.subject.subject import Argument, Subject
from gradverify.subject.wide import casts_to_single, is_narrow, lifted

STEP = 1e-3  # of each element's size
MOVING = 0.1  # of the elements: an output of which fewer move by such a step is flat


class Evidence(Checked):
    """The measurements of a subject. Properties raise UserCodeError where the user's code
    raises."""

    def __init__(
        self,
        subject: Subject,
        watch: Watch | None = None,
        differentiate: Callable[[Subject, Sequence[int]], Differentiable] = Differentiable,
    ) -> None:
        super().__init__(subject, differentiate)
        self.watch = watch
        # A check in 16 bits is made on another subject (the function in float64, or its reference)
        self.first_leg = FirstLeg(subject)
        settings = subject.case.settings
        # Not shared with other evidence of the same subject
        self.spending = Spending(subject, settings.budget, settings.timeout if watch else inf)
        self.reproduced: list[Reproduced] = []  # by the rules that compare identical calls
        self.missing: list[Fault] = []  # faults of gradverify that cost a cause, a hint or the like
        self.doubted = False  # whether a rule has found anything
        # Whether a part of a float64 function was found to compute in float32, which is looked for
        # only where its own finite differences left elements undecided
        self.cast_inside = False

    def place_of(self, name: str | None) -> int | None:
        """Return the place of the differentiable input of this name; None where there is none."""
        return next((n for n, each in enumerate(self.inputs) if each.name == name), None)

    def spared(self, what: str, measure: Callable[[], Value | None]) -> Value | None:
        """Measure what the verdict does not depend on (a cause, a hint); None where the user's
        code, or gradverify itself, fails. `what`: described so in the fault."""
        try:
            return tried(measure)
        except BaseException as error:
            if is_interrupt(error) or issubclass(type(error), Spent):
                raise
            self.missing.append(fault_of(error, what, costs=False))
            return None

    @cached_property
    def unit(self) -> float:
        """The unit roundoff of the coarsest differentiable input's dtype."""
        return max((UNITS[x.dtype] for x in self.subject.inputs), default=U64)

    @property
    def precision(self) -> float:
        """The unit roundoff of the forward's computations: of the coarsest dtype of inputs and
        outputs, or as the outputs' bits show."""
        return max([self.unit, *self.precisions, U32 if self.cast_inside else U64])

    @cached_property
    def precisions(self) -> tuple[float, ...]:
        """The unit roundoff of each checked output, as in `precision`."""
        declared = [max(self.unit, UNITS.get(y.dtype, U64)) for y in self.outputs]
        bits = [Bits().seen(numbers(y)) for y in self.outputs]
        # Short significands may come from inputs that are round numbers: look again at a point
        # nearby, if the function is defined there
        if max([0.0, *(each.unit for each in bits)]) > max([self.unit, *declared]):
            near = shifted(self.subject.inputs, STEP, self.subject.generator("beside"))
            there = tried(self.function.values, near) or self.outputs
            bits = [each.seen(numbers(y)) for each, y in zip(bits, there, strict=True)]
        return tuple(
            max(unit, each.unit_where(self._coarsest))
            for unit, each in zip(declared, bits, strict=True)
        )

    def _coarsest(self) -> float:
        """Return the coarsest unit roundoff among forward's torch operations; 0 where it has
        none."""
        found = tried(Filled(self.function).shaken, self.subject.inputs, 0)
        return found[1] if found else 0.0

    @property
    def low_precision(self) -> bool:
        """Whether the forward computes in less than float64."""
        return self.precision > U64

    @property
    def rtol(self) -> float:
        """The relative tolerance, by the precision that the forward computes in."""
        return self.settings.tolerances(low_precision=self.low_precision)[1]

    @property
    def infinite(self) -> int:
        """The number of real coordinates of the checked outputs that are not finite; masks, where
        GV006 finds nothing."""
        return sum(int((~flat_real(y).isfinite()).sum()) for y in self.outputs)

    # ---- comparisons
    @cached_property
    def jacobian(self) -> Jacobian:
        """The comparison of backward with finite differences (of the surrogate, where there is
        one), without the error that an unconverged iteration leaves."""
        return self.compared()

    def compared(self, requested: Requested | None = None) -> Jacobian:
        """Measure the `jacobian` anew; with the result of the one requested element, where it was
        judged individually."""
        self.forget_repeats()
        with self.spending.patient():
            first = self._by_differences(requested)
        found = refined_by_lifted(
            first, lambda: self._by_differences(requested) if self._lifts_inside() else None
        )
        if self.cast_inside and found is first:
            self.in_float64, self.cast_inside = "", False
        return found

    def _by_differences(self, requested: Requested | None) -> Jacobian:
        """Compare with finite differences, without errors that are known not to be backward's."""

        subject, constraints = self.subject, self.constraints

        def measure() -> Jacobian:
            return jacobian(
                self.measured,
                self.settings,
                constraints,
                self.watch,
                subject.clock,
                self.spending.short_of,
                requested,
            )

        found = measure() if self.draws else subject.seldom_seeded(measure)
        found = self.converged(found, subject, constraints)
        found = left_open(found, Limit.RESTLESS) if subject.restless else noise_left_open(found)
        return (
            zeros_left_open(found, constraints, self._uncast) if self.surrogate is None else found
        )

    def _uncast(self) -> WithBackward | None:
        """Return the function with its casts to a narrower dtype turned to float64; None where it
        has no such casts, or refuses float64."""
        twin, casts = lifted(self.subject)
        function = self._differentiate(twin, self.forward.checked)
        return function if tried(function.values, twin.leaves()) and casts.replaced else None

    def _lifts_inside(self) -> bool:
        """Return whether a float64 function casts to float32 inside, and is the same function
        without these casts; if so, `in_float64` is set, and later comparisons use it.

        Takes one call where it does not cast; where it does, two, and those that show that it is
        the same function.
        """
        if (
            self.unit != U64
            or self.surrogate is not None
            or self.subject.narrow is not None
            or self.in_float64
            or not casts_to_single(self.subject)
        ):
            return False
        found = self._in_float64(self.subject, self.function, self.outputs)
        if isinstance(found, UserCodeError) or not found.lifted:
            return False
        self.in_float64, self.cast_inside = found, True
        return True

    @cached_property
    def stopping_tests(self) -> Mapping[Line, float]:
        """The lines at which the function tests whether an iteration has converged, each with the
        factor that tightens the test; empty where it does not iterate."""
        return stopping_tests(
            self.function,
            self.cotangents("base"),
            [elsewhere(argument) for argument in self.inputs],
            self.rtol,
        )

    @property
    def leftover(self) -> float:
        """The largest error that an iteration may leave, as a share of a row or of the largest
        number: `rtol` where the function iterates, else 0."""
        return self.rtol if self.stopping_tests else 0.0

    def tighter(self, measure: Callable[[Differentiable], Value]) -> Value:
        """Measure the function while it iterates to a tighter tolerance."""
        with Tightened(self.stopping_tests):
            twin = self.subject.twin()
            return measure(self._differentiate(twin, self.forward.checked))

    def converged(self, found: Jacobian, subject: Subject, constraints: Constraints) -> Jacobian:
        """Return a comparison (of the subject, or of its function at other arguments) without the
        error that an iteration leaves, found by repeating it with a tighter tolerance of the
        iteration."""

        def again() -> Jacobian:
            with Tightened(self.stopping_tests):
                twin = subject.twin()
                return twin.seldom_seeded(
                    lambda: jacobian(self.measured_at(twin), self.settings, constraints)
                )

        return without_leftovers(found, subject.inputs, constraints, lambda: self.leftover, again)

    @cached_property
    def constraints(self) -> Constraints:
        """What the spec declares for the differentiable inputs."""
        return Constraints(
            tuple(argument.domain for argument in self.inputs),
            tuple(argument.symmetric for argument in self.inputs),
            specified(self.inputs),
            Seed(self.settings.seed, self.subject.case.check),
        )

    @cached_property
    def surrogate(self) -> Surrogate | None:
        """The function whose finite differences are used in place of the checked function's."""
        if self.subject.case.oracles.surrogate is None:
            return None
        return Surrogate(self.subject, self.function, self.forward.checked, self.outputs)

    def measured_at(self, twin: Subject) -> WithBackward:
        """Return what `measured` is, for the same function at other arguments. Raises UserCodeError
        (GV002) where the function is not defined there."""
        function = self._given_by(twin)
        if isinstance(self.in_float64, str):
            return function
        found = self._in_float64(twin, function)
        return function if isinstance(found, UserCodeError) else found

    def _given_by(self, twin: Subject) -> Surrogate | Differentiable:
        function = self._differentiate(twin, self.forward.checked)
        if self.surrogate is None:
            return function
        return Surrogate(twin, function, self.forward.checked, function.values(twin.leaves()))

    def _in_float64(
        self,
        subject: Subject,
        function: Surrogate | Differentiable,
        outputs: Sequence[Tensor] | None = None,
    ) -> InFloat64 | UserCodeError:
        """Return the function in float64, or the error that it raises where it refuses float64.
        `outputs`: those in its own dtype; computed if not given."""
        return attempted(
            lambda: in_float64(
                subject,
                function,
                function.values(subject.leaves()) if outputs is None else outputs,
                self._given_by,
            )
        )

    def at(self, arguments: Sequence[Argument]) -> Evidence:
        """Return evidence of the same function at other arguments, with the same mode of comparison
        where one was chosen."""
        twin = self.subject.twin(arguments)
        if self.choice is not None:
            twin.case = replace(
                twin.case, settings=replace(twin.case.settings, mode=self.choice.mode.value)
            )
        return Evidence(twin, differentiate=self._differentiate)

    @property
    def measured(self) -> WithBackward:
        """The function whose finite differences are taken, with the backward that is compared."""
        found = self.in_float64
        return self.surrogate or self.function if isinstance(found, str) else found

    @cached_property
    def in_float64(self) -> InFloat64 | str:
        """The float64 values of a function that computes in float32, with its own backward; or the
        reason why there are none, "" where none are needed."""
        narrow = is_narrow(self.subject)
        if self.settings.eps != "auto" or not (
            narrow
            # A float64 function that computes every output in float32
            or (
                self.unit == U64
                and self.surrogate is None
                and self.outputs
                and all(unit == U32 for unit in self.precisions)
            )
        ):
            return ""
        found = (
            self._in_float64(self.subject, self.function, self.outputs)
            if self.surrogate is None
            else self._in_float64(self.subject, self.surrogate)
        )
        if isinstance(found, UserCodeError):
            given = "" if isinstance(found, RefusedError) else "given float64 "
            # Without a reason, the function itself is measured
            return f"{given}{found.message}" if narrow else ""
        return found if found.lifted or narrow else ""

    @property
    def numeric_precision(self) -> str:
        """A clause that names the precision of the finite differences, for a check in 16 bits or
        float32; "" for others."""
        if self.kernel is not None:
            of = (
                "those of the reference" if self.first_leg.of_reference else "those of the function"
            )
            return (
                f"finite differences in float64 ({of}), {self.kernel.name} held against its "
                "gradients (GV112)"
            )
        found = self.in_float64
        if isinstance(found, str):
            return f"finite differences in float32: {found}" if found else ""
        if found.of_reference:
            return "finite differences in float64, of the reference, gradients in float32"
        inside = ", also of what forward casts to float32" if found.lifted else ""
        return f"finite differences in float64{inside}, gradients in float32"

    @cached_property
    def kernel(self) -> Kernel | None:
        """The function in its own dtype, where that has 16 bits; the other measurements are of the
        function (or its reference) in float64."""
        narrow = self.subject.narrow
        if narrow is None:
            return None
        return Kernel(self.subject, narrow, self.forward.checked, self.first_leg.of_reference)

    @property
    def difference(self) -> str:
        """What backward is compared with, in words."""
        of = f" of {self.surrogate.name}" if self.surrogate else ""
        return f"the finite difference{of}"

    @cached_property
    def flat(self) -> frozenset[int]:
        """The checked outputs (by place among them) hardly any element of which moves when all
        inputs move a little."""
        moved = self.function.values(
            shifted(self.subject.inputs, STEP, self.subject.generator("flat"))
        )
        shares = [
            float((a != b).double().mean()) if a.shape == b.shape and a.numel() else 1.0
            for a, b in zip(moved, self.outputs, strict=True)
        ]
        return frozenset(place for place, share in enumerate(shares) if share < MOVING)

    @property
    def choice(self) -> Choice | None:
        """The chosen mode of comparing the Jacobian; None before that, or under a fixed step."""
        found: Jacobian | None = vars(self).get("jacobian")
        return found.choice if found else None

    @cached_property
    def interpreter(self) -> str | None:
        """`triton` where the function's Triton kernels run under Triton's interpreter. Takes one
        more forward and backward, where that is loaded."""
        found = self.spared(
            "the look for Triton kernels",
            lambda: launches(lambda: self.function.once(self.cotangents("base"))),
        )
        return "triton" if found else None

    @cached_property
    def given(self) -> Sequence[Given]:
        """The oracles that give the gradient for one cotangent per output: numbers in the spec, a
        hand-written function."""
        return [oracle for make in GIVEN if (oracle := make(self)) is not None]

    @cached_property
    def reference(self) -> AgainstReference:
        """The comparison with the reference that the spec names."""
        return AgainstReference(self)

    @cached_property
    def modes(self) -> Modes:
        """Forward mode, double backward and vmap. Raises UserCodeError (GV002)."""
        return Modes(self)
