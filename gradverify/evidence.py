"""What was measured of one Subject: lazily, once, shared by the rules. Holds tallies, never a whole Jacobian."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from gradverify.model.case import Settings
from gradverify.numerics.columns.tally import Outcome, Pair, Tally
from gradverify.numerics.exact import add_exact, dust
from gradverify.numerics.flat import numbers
from gradverify.numerics.noise import Bits
from gradverify.numerics.point import UNITS, columns_of
from gradverify.numerics.rungs import U64
from gradverify.oracles.finite_difference import WORST, Filled, Jacobian, Wishes, jacobian
from gradverify.oracles.gradient import hand_written
from gradverify.oracles.literal import expected_gradients
from gradverify.oracles.reference import Reference, reference_gradients, reference_values
from gradverify.subject.differentiable import Differentiable, Gradients
from gradverify.subject.draw import generator
from gradverify.subject.observe import BackwardSeen, ForwardSeen, Saved, observe_backward, observe_forward
from gradverify.subject.snapshot import same
from gradverify.subject.subject import Argument, Subject

STEP = 1e-3     # of each element's size: a detached output that moves depends on the inputs
LOW, HIGH = 0.7, 1.4            # magnitudes of random cotangents: continuous and signed (method.md 3.1)


class Evidence:
    """Measurements of a subject. Properties raise UserCodeError where the user's code raises."""

    def __init__(self, subject: Subject, differentiate: Callable[[Subject, Sequence[int]], Differentiable] = Differentiable) -> None:
        """`differentiate` makes the function whose gradients are looked at; another one than the subject's own is damaged on purpose."""
        self.subject = subject
        self._differentiate = differentiate
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
        seen = [max(UNITS.get(y.dtype, U64), Bits().seen(numbers(y)).unit) for y in self.outputs]
        return max([self.unit, *seen])

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

    def cotangents(self, purpose: str) -> tuple[Tensor, ...]:
        """Dense random signed cotangents, one per checked output, magnitudes in [0.7, 1.4]."""
        source = generator(self.settings.seed, self.subject.case.check, f"cotangent {purpose}")
        return tuple(_signed(output, source) for output in self.outputs)

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


def _signed(like: Tensor, source: torch.Generator) -> Tensor:
    """Random numbers ±[0.7, 1.4] of the shape and dtype of `like` (complex: both parts)."""
    def real() -> Tensor:
        sign = torch.randint(0, 2, like.shape, generator=source, dtype=torch.float64) * 2 - 1
        return sign * (LOW + (HIGH - LOW) * torch.rand(like.shape, generator=source, dtype=torch.float64))

    values = torch.complex(real(), real()) if like.is_complex() else real()
    return values.to(dtype=like.dtype).to(device=like.device)
