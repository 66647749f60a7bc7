"""What was measured of one Subject: lazily, once, shared by the rules. Holds tallies, never a whole Jacobian."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from gradverify.model.case import Settings
from gradverify.model.fault import fault_of
from gradverify.model.interrupt import is_interrupt
from gradverify.model.result import Fault
from gradverify.modes import Modes
from gradverify.numerics.columns.choose import Choice
from gradverify.numerics.columns.tally import Outcome, Pair, Tally
from gradverify.numerics.comparison import Watch
from gradverify.numerics.exact import add_exact, dust
from gradverify.numerics.flat import flat_real, numbers
from gradverify.numerics.noise import Bits
from gradverify.numerics.point import UNITS, columns_of
from gradverify.numerics.rungs import U64
from gradverify.oracles.convergence import beside_largest, without_leftovers
from gradverify.oracles.finite_difference import WORST, Filled, Gives, Jacobian, Wishes, jacobian
from gradverify.oracles.gradient import hand_written
from gradverify.oracles.literal import expected_gradients, weights
from gradverify.oracles.reference import Reference, reference_gradients
from gradverify.oracles.surrogate import Surrogate
from gradverify.oracles.values import reference_values
from gradverify.oracles.widened import InFloat64, RefusedError
from gradverify.subject.another import beside
from gradverify.subject.custody import saved_tensors
from gradverify.subject.differentiable import Differentiable, Gradients, Graph, Returned
from gradverify.subject.draw import generator, signed
from gradverify.subject.elsewhere import elsewhere
from gradverify.subject.failure import Spent, UserCodeError
from gradverify.subject.graph import RawReturn, Wrote, function_nodes, tapped, watched
from gradverify.subject.iterating import iterates
from gradverify.subject.native import called_again
from gradverify.subject.observe import BackwardSeen, ForwardSeen, Saved, kept, known, observe_backward, observe_forward
from gradverify.subject.snapshot import alike, same
from gradverify.subject.spending import Spending
from gradverify.subject.subject import Argument, Subject
from gradverify.subject.wide import is_narrow, widened

Told = TypeVar("Told")
STEP = 1e-3     # of each element's size: a detached output that moves depends on the inputs
MOVING = 0.1    # of the elements: a forward of which fewer move under such a step is flat
REPEATS = 2     # further backwards of the base graph


class Evidence:
    """Measurements of a subject. Properties raise UserCodeError where the user's code raises."""

    def __init__(self, subject: Subject, watch: Watch | None = None,
                 differentiate: Callable[[Subject, Sequence[int]], Differentiable] = Differentiable) -> None:
        """`differentiate` makes the function whose gradients are looked at; another one than the subject's own is damaged on purpose."""
        self.subject, self.watch = subject, watch
        self.spending = Spending(subject, subject.case.settings.budget)     # of this evidence: another one of the subject has a budget of its own
        self.missing: list[Fault] = []      # faults of ours that cost words or pictures
        self._differentiate = differentiate
        self._saved = Saved()

    def spared(self, what: str, measure: Callable[[], Told | None]) -> Told | None:
        """What is nice to know (a cause, a hint), and not worth a verdict: None where the user's code, or gradverify, fails over it."""
        try:
            return measure()
        except UserCodeError:
            return None
        except BaseException as error:
            if is_interrupt(error) or issubclass(type(error), Spent):
                raise
            self.missing.append(fault_of(error, what, costs=False))
            return None

    @property
    def settings(self) -> Settings:
        return self.subject.case.settings

    @property
    def inputs(self) -> tuple[Argument, ...]:
        return self.subject.differentiable

    @cached_property
    def unit(self) -> float:
        """The roundoff of the coarsest differentiable input's dtype."""
        return max((UNITS[x.dtype] for x in self.subject.inputs), default=U64)

    @cached_property
    def precision(self) -> float:
        """The roundoff that the forward computes in: of the coarsest dtype of inputs and outputs, or as the outputs' bits show."""
        declared = max([self.unit, *(UNITS.get(y.dtype, U64) for y in self.outputs)])
        bits = [Bits().seen(numbers(y)) for y in self.outputs]
        if max([declared, *(each.unit for each in bits)]) > declared:      # or the inputs are round numbers: look again beside them
            bits = [each.seen(numbers(y)) for each, y in zip(bits, self._beside, strict=True)]
        return max([declared, *(each.unit for each in bits)])

    @cached_property
    def _beside(self) -> Sequence[Tensor]:
        """The checked outputs at inputs that are no round numbers, nearby; at the point itself where the function refuses that."""
        source = generator(self.settings.seed, self.subject.case.check, "beside")
        try:
            outputs = self.function.values([(x + STEP * x.abs() * signed(x, source)).requires_grad_() for x in self.subject.inputs])
        except UserCodeError:
            return self.outputs
        return outputs

    @property
    def low_precision(self) -> bool:
        """Does the forward compute in less than float64?"""
        return self.precision > U64

    @property
    def infinite(self) -> int:
        """How many real numbers of the checked outputs are not finite at the point: masks, where GV006 has nothing to say."""
        return sum(int((~flat_real(y).isfinite()).sum()) for y in self.outputs)

    @cached_property
    def empty(self) -> bool:
        """Did the spec ask for a zero size?"""
        return any(argument.is_tensor and argument.value.numel() == 0 for argument in self.subject.arguments)

    # ---- the base call
    @cached_property
    def forward(self) -> ForwardSeen:
        """One forward, watched."""
        return observe_forward(self.subject, self.settings.outputs, self._saved)

    @cached_property
    def moving(self) -> tuple[int, ...]:
        """The outputs without a graph that the spec names under `outputs`, and that move with the inputs nevertheless."""
        named = [place for place in self.forward.detached if place in (self.settings.outputs or ())]
        if not named:
            return ()
        moved = self.subject.probe([(x + STEP * x.abs().clamp_min(STEP)).detach().requires_grad_() for x in self.subject.inputs])
        return tuple(place for place in named if not same(self.forward.outputs[place], moved[place]))

    @cached_property
    def function(self) -> Differentiable:
        """The checked outputs as a function of the differentiable inputs."""
        return self._differentiate(self.subject, self.forward.checked)

    @cached_property
    def outputs(self) -> tuple[Tensor, ...]:
        """The checked outputs at the point."""
        return tuple(self.forward.outputs[place] for place in self.forward.checked)

    @cached_property
    def reseeded(self) -> tuple[Tensor, ...]:
        """The checked outputs of one more forward at the point, whose generators start elsewhere."""
        return self._seeded_elsewhere()

    def _seeded_elsewhere(self) -> tuple[Tensor, ...]:
        return tuple(y.detach() for y in self.subject.seeded_elsewhere(lambda: self.function.values(self.subject.leaves())))

    @property
    def draws(self) -> bool:
        """Does the forward draw random numbers? Also where it puts the generator's state back (`fork_rng`), as far as `reseeded` was asked for."""
        return self.forward.random or ("reseeded" in self.__dict__ and self._draws_in_hiding)

    @cached_property
    def _draws_in_hiding(self) -> bool:
        """The outputs are others where the generators start elsewhere, and come again with each of the two starts."""
        if alike(self.outputs, self.reseeded):
            return False
        return alike(self.outputs, self.function.values(self.subject.leaves())) and alike(self.reseeded, self._seeded_elsewhere())

    def name_of(self, place: int) -> str:
        """An output by its path: `y0`, or `y.loss` of a dict."""
        names = self.subject.output_names
        return names[place] if place < len(names) else f"y{place}"

    def cotangents(self, purpose: str) -> tuple[Tensor, ...]:
        """Dense random signed cotangents, one per checked output, magnitudes in [0.7, 1.4]."""
        source = generator(self.settings.seed, self.subject.case.check, f"cotangent {purpose}")
        return tuple(signed(output, source) for output in self.outputs)

    @cached_property
    def backward(self) -> BackwardSeen:
        """One backward of the base graph, watched, for dense random cotangents."""
        return observe_backward(self.subject, self.forward, self.function, self.cotangents("base"), self._saved)

    @property
    def worked(self) -> BackwardSeen:
        """The base backward. Raises UserCodeError (GV003) where it raised."""
        if self.backward.error is not None:
            raise self.backward.error
        return self.backward

    @cached_property
    def base(self) -> Graph:
        """The graph of the base forward."""
        return Graph(self.forward.leaves, self.forward.called)

    @cached_property
    def repeats(self) -> tuple[Returned, ...] | None:
        """Further backwards of the base graph for the base cotangents; None where a graph serves one backward only."""
        if not (self.worked.direct and self.function.reusable):
            return None
        try:
            return tuple(Returned.now(self.function.gradients(self.base, self.worked.cotangents, retain=True)) for _ in range(REPEATS))
        except UserCodeError:
            return None

    @cached_property
    def refused(self) -> UserCodeError | None:
        """What a second backward of the base graph raised, though the first one retained it; None where it runs."""
        if self.repeats is not None or not self.worked.direct:
            return None
        if self.function.refused is not None:
            return self.function.refused
        try:
            self.function.gradients(self.base, self.worked.cotangents, retain=True)
        except UserCodeError as error:
            return error
        return None

    def usable(self) -> Graph:
        """A graph for one more backward: the base graph, or that of a fresh forward. Raises UserCodeError (GV002)."""
        return self.base if self.repeats is not None else self.function.graph(self.subject.leaves())

    @cached_property
    def for_ones(self) -> tuple[RawReturn, ...]:
        """What backward returns for a cotangent of ones. Raises UserCodeError."""
        graph, raw = self.usable(), list[RawReturn]()
        base = graph is self.base
        nodes = self.forward.nodes if base else function_nodes(self.function.of(graph))
        saves, packed = (self.forward.saved, self._saved.tensors) if base else (saved_tensors(nodes), [])
        with (called_again(nodes, raw, lambda: known(self.subject, graph.called, packed, ()), self.subject.counted_backward),
              tapped(self.forward.classes, raw, kept(self.subject, graph.called, saves))):
            self.function.gradients(graph, [torch.ones_like(y) for y in self.outputs], retain=True)
        return tuple(raw)

    @cached_property
    def inner_writes(self) -> tuple[Wrote, ...]:
        """What the Functions inside a callable or module write into their own arguments, seen in one more forward."""
        inner = [cls for cls in self.forward.classes if cls is not self.subject.target.subject]
        if not inner:
            return ()
        found = list[Wrote]()
        with watched(inner, found):
            self.subject.probe(self.subject.leaves())
        return tuple(found)

    # ---- comparisons
    @cached_property
    def jacobian(self) -> Jacobian:
        """Backward against finite differences, of the surrogate where there is one, less what an iteration leaves."""
        def measure() -> Jacobian:
            return jacobian(self.measured, self.settings, self.wishes, self.watch, self.subject.clock, lambda: self.spending.over)
        found = measure() if self.draws else self.subject.seldom_seeded(measure)
        return without_leftovers(found, self.subject.inputs, self.wishes, lambda: self.leftover)

    @cached_property
    def leftover(self) -> float:
        """What may be left of an iteration, as a share of a row or of the largest number: `rtol` where the function iterates, else 0."""
        if not iterates(self.function, self.cotangents("base"), [elsewhere(argument) for argument in self.inputs]):
            return 0.0
        return self.settings.tolerances(low_precision=self.low_precision)[1]

    @cached_property
    def wishes(self) -> Wishes:
        """What the spec says of the differentiable inputs."""
        return Wishes(tuple(argument.domain for argument in self.inputs), tuple(argument.symmetric for argument in self.inputs))

    @cached_property
    def surrogate(self) -> Surrogate | None:
        """The function whose finite differences count in the place of the checked one's."""
        if self.subject.case.oracles.surrogate is None:
            return None
        return Surrogate(self.subject, self.function, self.forward.checked, self.outputs)

    def measured_at(self, twin: Subject) -> Gives:
        """As `measured`, for the same function at other arguments. Raises UserCodeError (GV002) where it is not defined there."""
        function = self._given_by(twin)
        if not isinstance(self.measured, InFloat64):
            return function
        try:
            return self._in_float64(twin, function, function.values(twin.leaves()))
        except (UserCodeError, RefusedError):
            return function

    def _given_by(self, twin: Subject) -> Surrogate | Differentiable:
        function = self._differentiate(twin, self.forward.checked)
        return function if self.surrogate is None else Surrogate(twin, function, self.forward.checked, function.values(twin.leaves()))

    def _in_float64(self, subject: Subject, function: Surrogate | Differentiable, outputs: Sequence[Tensor]) -> InFloat64:
        """Raises UserCodeError or RefusedError where the function refuses float64."""
        return InFloat64(function, self._given_by(widened(subject)), outputs, partial(beside, subject))

    def at(self, arguments: Sequence[Argument]) -> Evidence:
        """Of the same function at other arguments, compared in the same mode where that was chosen."""
        twin = self.subject.twin(arguments)
        if self.choice is not None:
            twin.case = replace(twin.case, settings=replace(twin.case.settings, mode=self.choice.mode.value))
        return Evidence(twin, differentiate=self._differentiate)

    @property
    def measured(self) -> Gives:
        """What finite differences are taken of, beside the backward that they are held against."""
        return self.surrogate or self.function if isinstance(self.in_float64, str) else self.in_float64

    @cached_property
    def in_float64(self) -> InFloat64 | str:
        """The values of a float32 function in float64, beside its backward; or why there are none, "" where nobody asks."""
        if self.settings.eps != "auto" or not is_narrow(self.subject):
            return ""
        function = self.surrogate or self.function
        try:
            return self._in_float64(self.subject, function, self.outputs if self.surrogate is None else function.values(self.subject.leaves()))
        except UserCodeError as error:
            return f"given float64 {error.message}"
        except RefusedError as reason:
            return str(reason)

    @property
    def numeric_precision(self) -> str:
        """In a clause, for a check in float32: what its finite differences are taken in. Nothing for others."""
        reason = self.in_float64
        if isinstance(reason, str):
            return f"finite differences in float32: {reason}" if reason else ""
        return "finite differences in float64, gradients in float32"

    @property
    def difference(self) -> str:
        """In words."""
        return f"the finite difference of {self.surrogate.name}" if self.surrogate else "the finite difference"

    @cached_property
    def flat(self) -> frozenset[int]:
        """The checked outputs (by place among them) of which hardly an element moves when all inputs move a little."""
        source = generator(self.settings.seed, self.subject.case.check, "flat")
        moved = self.function.values([(x + STEP * x * signed(x, source)).detach().requires_grad_() for x in self.subject.inputs])
        shares = [float((a != b).double().mean()) if a.shape == b.shape and a.numel() else 1.0 for a, b in zip(moved, self.outputs, strict=True)]
        return frozenset(place for place, share in enumerate(shares) if share < MOVING)

    @property
    def choice(self) -> Choice | None:
        """How the Jacobian was compared; None where it was not, or under a fixed step."""
        found: Jacobian | None = self.__dict__.get("jacobian")
        return found.choice if found else None

    @cached_property
    def reference(self) -> Reference:
        return Reference(self.subject, self.forward.checked)

    @cached_property
    def reference_values(self) -> dict[int, Pair | str]:
        found = reference_values(self.outputs, self.reference.outputs, Filled(self.function), Filled(self.reference), self.settings, self.wishes)
        return {place: seen if isinstance(seen, str) else beside_largest(seen, lambda: self.leftover) for place, seen in found.items()}

    @cached_property
    def reference_gradients(self) -> dict[tuple[int, int], Pair]:
        found = reference_gradients(Filled(self.function), Filled(self.reference), self.settings)
        return {key: beside_largest(pair, lambda: self.leftover) for key, pair in found.items()}

    @cached_property
    def expected(self) -> dict[int, Pair]:
        """Backward of the weighted sum of all checked outputs against the spec's numbers, per input named there."""
        oracles = self.subject.case.oracles
        return self._against(expected_gradients(self.subject, oracles.expected or {}), weights(oracles.grad_output, self.outputs))

    @cached_property
    def hand_written(self) -> dict[int, Pair]:
        """Backward against the hand-written gradient, for one dense random cotangent per output, per input that it gives."""
        cotangents = self.cotangents("hand-written")
        return self._against(hand_written(self.subject, cotangents), cotangents)

    @cached_property
    def modes(self) -> Modes:
        """Forward mode, backward of backward, vmap. Raises UserCodeError (GV002)."""
        return Modes(self.subject, self.forward, self.function, self.cotangents, self.draws)

    def _against(self, wanted: Gradients, cotangents: tuple[Tensor, ...]) -> dict[int, Pair]:
        ours = self.function.vjp([cotangent.clone() for cotangent in cotangents])
        result = {}
        for place, (x, gradient, numbers_wanted) in enumerate(zip(self.subject.inputs, ours, wanted, strict=True)):
            if numbers_wanted is not None:
                result[place] = self._exactly(place, x, torch.zeros_like(x) if gradient is None else gradient, numbers_wanted)
        return result

    def _exactly(self, place: int, x: Tensor, gradient: Tensor, wanted: Tensor) -> Pair:
        """One gradient against an oracle's, element by element."""
        columns = columns_of([x], [None], [False])
        mine, theirs = numbers(gradient)[None], numbers(wanted)[None]
        tally, (atol, rtol) = Tally(place, 0, (1, mine.size), WORST), self.settings.tolerances()
        with np.errstate(all="ignore"):
            add_exact(tally, mine, theirs, dust(self.unit, mine, theirs, columns.scale, columns.size), atol=atol, rtol=rtol, unit=self.unit,
                      rows=np.zeros(1, np.intp), first=0, broken=Outcome.MISMATCH)
        return beside_largest(tally.result(self.unit, False), lambda: self.leftover)
