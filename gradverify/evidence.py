"""What was measured of one Subject: lazily, once, shared by the rules. Holds tallies, never a whole Jacobian."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from gradverify.model.case import Settings
from gradverify.numerics.columns.tally import Outcome, Pair, Tally
from gradverify.numerics.exact import add_exact, dust
from gradverify.numerics.flat import flat_real, numbers
from gradverify.numerics.noise import Bits
from gradverify.numerics.point import UNITS, columns_of
from gradverify.numerics.rungs import U64
from gradverify.oracles.finite_difference import WORST, Filled, Jacobian, Wishes, jacobian
from gradverify.oracles.gradient import hand_written
from gradverify.oracles.literal import expected_gradients
from gradverify.oracles.reference import Reference, reference_gradients, reference_values
from gradverify.subject.differentiable import Differentiable, Gradients
from gradverify.subject.draw import generator, signed
from gradverify.subject.failure import UserCodeError
from gradverify.subject.observe import BackwardSeen, ForwardSeen, Saved, observe_backward, observe_forward
from gradverify.subject.snapshot import same
from gradverify.subject.subject import Argument, Subject

STEP = 1e-3     # of each element's size: a detached output that moves depends on the inputs


class Evidence:
    """Measurements of a subject. Properties raise UserCodeError where the user's code raises."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self._saved = Saved()

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
        return Differentiable(self.subject, self.forward.checked)

    @cached_property
    def outputs(self) -> tuple[Tensor, ...]:
        """The checked outputs at the point."""
        return tuple(self.forward.outputs[place] for place in self.forward.checked)

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

    # ---- comparisons
    @cached_property
    def jacobian(self) -> Jacobian:
        """Backward against finite differences."""
        wishes = Wishes(tuple(argument.domain for argument in self.inputs), tuple(argument.symmetric for argument in self.inputs))
        return jacobian(self.function, self.settings, wishes)

    @cached_property
    def reference(self) -> Reference:
        return Reference(self.subject, self.forward.checked)

    @cached_property
    def reference_values(self) -> dict[int, Pair | str]:
        return reference_values(self.outputs, self.reference, self.settings)

    @cached_property
    def reference_gradients(self) -> dict[tuple[int, int], Pair]:
        return reference_gradients(Filled(self.function), Filled(self.reference), self.settings)

    @cached_property
    def expected(self) -> dict[int, Pair]:
        """Backward of the sum of all checked outputs against the spec's numbers, per input named there."""
        numbers = expected_gradients(self.subject, self.subject.case.oracles.expected or {})
        return self._against(numbers, tuple(torch.ones_like(output) for output in self.outputs))

    @cached_property
    def hand_written(self) -> dict[int, Pair]:
        """Backward against the hand-written gradient, for one dense random cotangent, per input that it gives."""
        cotangents = self.cotangents("hand-written")
        return self._against(hand_written(self.subject, cotangents[0]), cotangents)

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
        return tally.result(self.unit, False)
