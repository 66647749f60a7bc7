"""What was measured of one Subject: lazily, once, shared by the rules. Holds tallies, never a whole Jacobian."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from gradverify.model.case import Settings
from gradverify.numerics.flat import flat_all, flat_real
from gradverify.numerics.steps import UNIT
from gradverify.numerics.tally import Tally
from gradverify.oracles.exact import compare_rows
from gradverify.oracles.finite_difference import jacobian
from gradverify.oracles.gradient import hand_written
from gradverify.oracles.literal import expected_gradients
from gradverify.oracles.reference import Reference, reference_gradients, reference_values
from gradverify.subject.differentiable import Differentiable, Gradients
from gradverify.subject.draw import generator
from gradverify.subject.failure import UserCodeError, blamed
from gradverify.subject.graph import RawReturn, function_classes, tapped
from gradverify.subject.snapshot import Snapshot
from gradverify.subject.subject import Argument, Subject

LOW, HIGH = 0.7, 1.4            # magnitudes of random cotangents: continuous and signed (method.md 3.1)
GROW, SHRINK = -3.0 * 2.0**18, 2.0**-40     # GV201's forced factors; one is no power of two
LINEAR_TOLERANCE = {2.0**-53: 1e-9, 2.0**-24: 3e-5}     # by the roundoff of the forward (rules.md)


@dataclass(frozen=True, slots=True)
class ForwardSeen:
    """The base forward. `outputs` are all flattened ones; `checked` the places of the compared ones; `detached` of floating ones
    without a graph; `classes` the custom Functions in the graph; `written` the arguments that the call changed."""

    leaves: tuple[Tensor, ...]
    outputs: tuple[Any, ...]
    checked: tuple[int, ...]
    detached: tuple[int, ...]
    classes: tuple[type, ...]
    written: tuple[str, ...]
    packed: int


@dataclass(frozen=True, slots=True)
class BackwardSeen:
    """The base backward, for a dense random cotangent. `error`: what it raised; `damaged`: (output, flat index, before, after) of a
    cotangent that backward wrote to; `unpacked`: how many saved tensors it asked for."""

    cotangents: tuple[Tensor, ...]
    gradients: Gradients
    raw: tuple[RawReturn, ...]
    error: UserCodeError | None
    damaged: tuple[tuple[int, tuple[int, float, float] | None], ...]
    unpacked: int


@dataclass(frozen=True, slots=True)
class NonLinear:
    """Where backward was not linear: Jᵀ(v), and the same from two scaled halves, at the worst element of an input."""

    input: str
    index: int
    together: float
    apart: float


class Evidence:
    """Measurements of a subject. Properties raise UserCodeError where the user's code raises."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self._packed, self._unpacked = [0], [0]

    @property
    def settings(self) -> Settings:
        return self.subject.case.settings

    @property
    def inputs(self) -> tuple[Argument, ...]:
        return self.subject.differentiable

    @cached_property
    def unit(self) -> float:
        """The roundoff of the coarsest differentiable input's dtype."""
        return max((UNIT[x.dtype] for x in self.subject.inputs), default=2.0**-53)

    @cached_property
    def empty(self) -> bool:
        """Did the spec ask for a zero size?"""
        return any(argument.is_tensor and argument.value.numel() == 0 for argument in self.subject.arguments)

    # ---- the base call
    @cached_property
    def forward(self) -> ForwardSeen:
        """One forward, watched: what it returns, writes, packs and leaves in the graph."""
        subject = self.subject
        others = [a for a in subject.arguments if a.is_tensor and not a.differentiable]
        leaves = subject.leaves()
        before = Snapshot([*leaves, *(a.value for a in others)])
        with torch.autograd.graph.saved_tensors_hooks(self._pack, self._unpack):
            outputs = subject.probe(leaves)
        names = [a.name for a in [*subject.differentiable, *others]]
        written = tuple(names[i] for i in before.changed())
        if written and not subject.writes:
            subject.writes = True
            _restore(others, before, len(leaves))
            leaves = subject.leaves()
            outputs = subject.forward(leaves)
        return self._described(leaves, outputs, written)

    def _described(self, leaves: list[Tensor], outputs: list[Any], written: tuple[str, ...]) -> ForwardSeen:
        numeric = [place for place, output in enumerate(outputs) if isinstance(output, Tensor) and _is_number(output)]
        wanted = numeric if self.settings.outputs is None else [place for place in numeric if place in self.settings.outputs]
        checked = tuple(place for place in wanted if outputs[place].requires_grad)
        detached = tuple(place for place in numeric if not outputs[place].requires_grad)
        classes = function_classes([outputs[place] for place in numeric])
        return ForwardSeen(tuple(leaves), tuple(outputs), checked, detached, classes, written, self._packed[0])

    def _pack(self, tensor: Tensor) -> Tensor:
        self._packed[0] += 1
        return tensor

    def _unpack(self, tensor: Tensor) -> Tensor:
        self._unpacked[0] += 1
        return tensor

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
        return tuple(_signed(output, source) for output in self.outputs)

    @cached_property
    def backward(self) -> BackwardSeen:
        """One backward of the base graph, watched: raw returns, a damaged cotangent, tensors unpacked, what it raised."""
        cotangents, raw = self.cotangents("base"), list[RawReturn]()
        before, error = Snapshot(cotangents), None
        gradients: Gradients = (None,) * len(self.inputs)
        self.subject.counted_backward()
        with tapped(self.forward.classes, raw):
            try:
                gradients = self._first_gradients(cotangents)
            except UserCodeError as raised:
                error = raised
        damaged = tuple((self.forward.checked[i], before.difference(i)) for i in before.changed())
        return BackwardSeen(cotangents, gradients, tuple(raw), error, damaged, self._unpacked[0])

    @property
    def worked(self) -> BackwardSeen:
        """The base backward. Raises UserCodeError (GV003) where it raised."""
        if self.backward.error is not None:
            raise self.backward.error
        return self.backward

    def _first_gradients(self, cotangents: tuple[Tensor, ...]) -> Gradients:
        try:
            with blamed("GV003", "backward"):
                return torch.autograd.grad(self.outputs, self.forward.leaves, cotangents, retain_graph=True, allow_unused=True)
        except UserCodeError as refused:
            try:
                return self.function.vjp([cotangent.clone() for cotangent in cotangents])
            except UserCodeError:
                raise refused from None

    # ---- linearity of backward (GV201)
    @cached_property
    def non_linear(self) -> NonLinear | None:
        """a = Jᵀ(−3·2¹⁸·v∘m), b = Jᵀ(2⁻⁴⁰·v∘(1−m)): a/(−3·2¹⁸) + b·2⁴⁰ must be Jᵀv (rules.md, GV201)."""
        source = generator(self.settings.seed, self.subject.case.check, "mask")
        v = self.cotangents("linear")
        masks = [torch.randint(0, 2, output.shape, generator=source).to(device=output.device, dtype=output.dtype) for output in self.outputs]
        together = self.function.vjp([cotangent.clone() for cotangent in v])
        large = self.function.vjp([GROW * cotangent * mask for cotangent, mask in zip(v, masks, strict=True)])
        small = self.function.vjp([SHRINK * cotangent * (1 - mask) for cotangent, mask in zip(v, masks, strict=True)])
        for argument, whole, a, b in zip(self.inputs, together, large, small, strict=True):
            found = self._unequal(argument, whole, a, b)
            if found is not None:
                return found
        return None

    def _unequal(self, argument: Argument, whole: Tensor | None, large: Tensor | None, small: Tensor | None) -> NonLinear | None:
        zero = torch.zeros_like(argument.value)
        expected = flat_real(zero if whole is None else whole)
        apart = flat_real(zero if large is None else large) / GROW + flat_real(zero if small is None else small) / SHRINK
        finite = expected.isfinite() & apart.isfinite()
        if not finite.any():
            return None
        difference = torch.where(finite, (expected - apart).abs(), torch.zeros_like(expected))
        worst = int(difference.argmax())
        scale = float(expected[finite].abs().max()) * LINEAR_TOLERANCE[self.unit] + self._rounding(argument.value)
        return NonLinear(argument.name, worst, float(expected[worst]), float(apart[worst])) if float(difference[worst]) > scale else None

    def _rounding(self, x: Tensor) -> float:
        """The dust of a gradient whose natural size is ‖v‖‖f‖/‖x‖: sums over softmax rows and norms are made of it."""
        values = flat_all(self.outputs).nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)
        size = float(flat_real(x).norm())
        return 16 * self.unit * values.numel() ** 0.5 * float(values.norm()) / size if size else 0.0

    # ---- comparisons
    @cached_property
    def jacobian(self) -> dict[tuple[int, int], Tally]:
        """Backward against finite differences: {(differentiable input, checked output): Tally}."""
        return jacobian(self.function, self.settings)

    @cached_property
    def reference(self) -> Reference:
        return Reference(self.subject, self.forward.checked)

    @cached_property
    def reference_values(self) -> dict[int, Tally | str]:
        return reference_values(self.outputs, self.reference, self.settings)

    @cached_property
    def reference_gradients(self) -> dict[tuple[int, int], Tally]:
        return reference_gradients(self.function, self.outputs, self.reference, self.settings)

    @cached_property
    def expected(self) -> dict[int, Tally]:
        """Backward of the sum of all checked outputs against the spec's numbers, per input named there."""
        numbers = expected_gradients(self.subject, self.subject.case.oracles.expected or {})
        return self._against(numbers, tuple(torch.ones_like(output) for output in self.outputs))

    @cached_property
    def hand_written(self) -> dict[int, Tally]:
        """Backward against the hand-written gradient, for one dense random cotangent, per input that it gives."""
        cotangents = self.cotangents("hand-written")
        return self._against(hand_written(self.subject, cotangents[0]), cotangents)

    def _against(self, numbers: Gradients, cotangents: tuple[Tensor, ...]) -> dict[int, Tally]:
        ours = self.function.vjp([cotangent.clone() for cotangent in cotangents])
        result = {}
        for place, (x, gradient, wanted) in enumerate(zip(self.subject.inputs, ours, numbers, strict=True)):
            if wanted is not None:
                mine = flat_real(torch.zeros_like(x) if gradient is None else gradient).unsqueeze(0)
                result[place] = compare_rows(mine, flat_real(wanted).unsqueeze(0), x, slice(0, None), self.settings, self.unit, False)
        return result


def _is_number(output: Tensor) -> bool:
    return output.is_floating_point() or output.is_complex()


def _signed(like: Tensor, source: torch.Generator) -> Tensor:
    """Random numbers ±[0.7, 1.4] of the shape and dtype of `like` (complex: both parts)."""
    def real() -> Tensor:
        sign = torch.randint(0, 2, like.shape, generator=source, dtype=torch.float64) * 2 - 1
        return sign * (LOW + (HIGH - LOW) * torch.rand(like.shape, generator=source, dtype=torch.float64))

    values = torch.complex(real(), real()) if like.is_complex() else real()
    return values.to(dtype=like.dtype).to(device=like.device)


def _restore(arguments: list[Argument], before: Snapshot, offset: int) -> None:
    """Puts back what a forward wrote into arguments that are not differentiated."""
    for place, argument in enumerate(arguments):
        with torch.no_grad():
            argument.value.copy_(before.value(offset + place))
