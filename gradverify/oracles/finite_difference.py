"""Finite differences of the function itself: the oracle that is always there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

import torch
from torch import Tensor

from gradverify.model.case import Budget, Settings
from gradverify.model.result import WORST as WORST
from gradverify.numerics.choose import Choice, Limits, Mode
from gradverify.numerics.compare import Watch, compare
from gradverify.numerics.fixed import check_fixed
from gradverify.numerics.function.coordinates import UNITS, Columns, columns_of
from gradverify.numerics.function.point import Clock, Function, Narrow, Point
from gradverify.numerics.judging import OverBudget, Structure, no_budget
from gradverify.numerics.pairs.pair import Asked, Pair
from gradverify.numerics.rungs import U64, ULP
from gradverify.numerics.seeds import Seed
from gradverify.subject.draw import generator, signed
from gradverify.subject.failure import UserCodeError
from gradverify.subject.rounding import Anew, Perturbed

# The smallest normal number of float32: what is below, sigmoid's slope at −280, is rightly zero
# there
UNDERFLOW = 2.0**-126


Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Jacobian:
    """Backward against finite differences: a Pair per (differentiable input, checked output);
    `absent` those whose gradient is always None;
    `choice`: how they were compared and why; None for a fixed step. `left`: pairs that pass because
    no more is off than an iteration leaves, as they were measured. `structure`: that of the
    Jacobian, as it held; nothing for a fixed step."""

    pairs: Mapping[tuple[int, int], Pair]
    absent: frozenset[tuple[int, int]]
    choice: Choice | None
    left: Mapping[tuple[int, int], Pair] = field(default_factory=dict)
    structure: Structure = field(default_factory=Structure)


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the spec says of the inputs: where each is defined (None: everywhere), and which are
    read as symmetric matrices.
    `specified`: the elements that a sparse input has (None: every one). `seed`: of all that is
    drawn."""

    domains: tuple[tuple[float, float] | None, ...]
    symmetric: tuple[bool, ...]
    specified: tuple[Tensor | None, ...] = ()
    seed: Seed = Seed()

    def columns(self, inputs: Sequence[Tensor]) -> Columns:
        """The columns of these inputs."""
        return columns_of(inputs, self.domains, self.symmetric, self.specified)

    def point(self, function: Function) -> Point:
        """The function around its inputs."""
        return Point(function, self.columns(function.inputs), seed=self.seed)


def jacobian(
    function: Gives,
    settings: Settings,
    wishes: Wishes,
    watch: Watch | None = None,
    clock: Clock | None = None,
    over_budget: OverBudget = no_budget,
    asked: Asked | None = None,
) -> Jacobian:
    """Every (input, output) pair against finite differences; `watch` is told the choice before the
    comparison begins. `asked`: see `Pair`."""
    filled = Filled(function)
    if settings.eps != "auto":
        atol, rtol = settings.tolerances()
        found = check_fixed(filled, settings.eps, atol=atol, rtol=rtol, keep=WORST, asked=asked)
        choice, structure = None, Structure()
    else:
        mode = None if settings.mode == "auto" else Mode(settings.mode)
        limits = Limits(
            settings.budget.calls, settings.budget.seconds, lenient=settings.budget == Budget()
        )
        atol = max(
            settings.atol or 0.0, UNDERFLOW if settings.dtype in ("float32", "complex64") else 0.0
        )
        compared = compare(
            filled,
            mode=mode,
            limits=limits,
            atol=atol,
            rtol=settings.rtol,
            domains=wishes.domains,
            symmetric=wishes.symmetric,
            specified=wishes.specified,
            seed=wishes.seed,
            keep=WORST,
            watch=watch,
            clock=clock,
            over_budget=over_budget,
            asked=asked,
        )
        found, choice, structure = compared.pairs, compared.choice, compared.structure
    pairs = {(pair.input, pair.output): pair for pair in found}
    return Jacobian(pairs, frozenset(pairs) - frozenset(filled.given), choice, structure=structure)


class Gives(Protocol):
    """A function whose backward may give None. It may have what `Function` may, and `vjps`: many
    cotangents pulled back at once."""

    @property
    def inputs(self) -> Sequence[Tensor]: ...

    def values(self, inputs: Sequence[Tensor]) -> Sequence[Tensor]: ...

    def vjp(self, cotangents: Sequence[Tensor | None]) -> Sequence[Tensor | None]: ...

    def vjp_at(
        self, inputs: Sequence[Tensor], cotangents: Sequence[Tensor | None]
    ) -> Sequence[Tensor | None]: ...


class Split:
    """The values of one function beside the backward of another, whose inputs and outputs may have
    other dtypes."""

    def __init__(self, values_of: Gives, backward_of: Gives, outputs: Sequence[Tensor]) -> None:
        """`outputs`: of the function whose backward it is."""
        self._full, self._narrow, self._outputs = values_of, backward_of, tuple(outputs)

    @property
    def inputs(self) -> Sequence[Tensor]:
        return self._full.inputs

    def values(self, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
        return self._full.values(inputs)

    def vjp(self, cotangents: Sequence[Tensor | None]) -> Sequence[Tensor | None]:
        return self._narrow.vjp(self._cast(cotangents))

    def vjp_at(
        self, inputs: Sequence[Tensor], cotangents: Sequence[Tensor | None]
    ) -> Sequence[Tensor | None]:
        """At other inputs, rounded to its dtypes."""
        own = [x.to(dtype=own.dtype) for x, own in zip(inputs, self._narrow.inputs, strict=True)]
        return self._narrow.vjp_at(own, self._cast(cotangents))

    def _cast(self, cotangents: Sequence[Tensor | None]) -> list[Tensor | None]:
        return [
            None if v is None else v.to(dtype=y.dtype, device=y.device)
            for v, y in zip(cotangents, self._outputs, strict=True)
        ]


class Filled:
    """A function whose missing gradients are zeros; `given` are the (input, output) pairs for which
    backward ever gave one."""

    def __init__(self, function: Gives) -> None:
        self._function = function
        self.given: set[tuple[int, int]] = set()

    @property
    def narrow(self) -> Narrow | None:
        """Its backward, where that computes in less than its values."""
        return getattr(self._function, "narrow", None)

    @property
    def inputs(self) -> Sequence[Tensor]:
        return self._function.inputs

    def here(self) -> Sequence[Tensor] | None:
        """Its values at its inputs, of the forward that backward is asked of; None where it keeps
        none."""
        return self._function.here() if hasattr(self._function, "here") else None

    @property
    def earlier(self) -> Sequence[Tensor] | None:
        """What an earlier forward there gave, if one is known."""
        return getattr(self._function, "earlier", None)

    def values(self, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
        """With gradients on, as in training."""
        return self._function.values([x.detach().requires_grad_() for x in inputs])

    def shaken(self, inputs: Sequence[Tensor], number: int) -> tuple[Sequence[Tensor], float]:
        """Its values as they may round, and the coarsest roundoff of its operations."""
        mode = Anew(generator(number, "forward", "rounding"))
        with mode:
            found = self.values(inputs)
        return found, mode.coarsest

    def shaken_vjp(
        self,
        number: int,
        cotangents: Sequence[Tensor | None],
        inputs: Sequence[Tensor],
        roundings: float = ULP,
    ) -> Sequence[Tensor] | None:
        """Its gradients as they may round in float64, at inputs so many roundings away: fewer bits
        inside are no excuse for a backward. None where it raises."""
        source = generator(number, "backward", "rounding")
        try:
            with Perturbed(source, ULP * U64):
                return self.vjp(cotangents, nudged(inputs, source, roundings))
        except UserCodeError:
            return None

    def vjp(
        self, cotangents: Sequence[Tensor | None], inputs: Sequence[Tensor] | None = None
    ) -> Sequence[Tensor]:
        gradients = (
            self._function.vjp(cotangents)
            if inputs is None
            else self._function.vjp_at(inputs, cotangents)
        )
        asked = [k for k, cotangent in enumerate(cotangents) if cotangent is not None]
        self.given.update(
            (i, k) for i, gradient in enumerate(gradients) if gradient is not None for k in asked
        )
        return [
            torch.zeros_like(x) if gradient is None else gradient
            for x, gradient in zip(self.inputs, gradients, strict=True)
        ]

    def vjps(self, output: int, cotangents: Tensor, wanted: Sequence[int]) -> list[Tensor] | None:
        """Many cotangents [n, …] of one output at once: the gradients [n, …] of the wanted inputs;
        None where the function does not offer it."""
        found = (
            self._function.vjps(output, cotangents, wanted)
            if hasattr(self._function, "vjps")
            else None
        )
        if found is None:
            return None
        self.given.update(
            (i, output) for i, gradient in zip(wanted, found, strict=True) if gradient is not None
        )
        asked = [self.inputs[i] for i in wanted]
        return [
            torch.zeros((len(cotangents), *x.shape), dtype=x.dtype, device=x.device)
            if gradient is None
            else gradient
            for x, gradient in zip(asked, found, strict=True)
        ]


def rounded_anew(
    source: torch.Generator, inputs: Sequence[Tensor], compute: Callable[[Sequence[Tensor]], Value]
) -> Value:
    """What is computed where every operation rounds at random in its own dtype, of inputs a
    rounding away (for code that leaves torch)."""
    with Anew(source):
        return compute(nudged(inputs, source))


def nudged(
    inputs: Sequence[Tensor], source: torch.Generator, roundings: float = 1.0
) -> list[Tensor]:
    """The inputs so many roundings away, each number by itself."""
    return [x + roundings * UNITS[x.dtype] * x.abs() * signed(x, source) for x in inputs]
