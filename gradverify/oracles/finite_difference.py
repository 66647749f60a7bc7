"""Finite differences of the function itself: the oracle that every check has."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

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
from gradverify.numerics.pairs.pair import Pair, Requested
from gradverify.numerics.rungs import U64, ULP
from gradverify.numerics.seeds import Seed
from gradverify.subject.draw import generator, signed
from gradverify.subject.failure import Value, tried
from gradverify.subject.rounding import Anew, Perturbed
from gradverify.subject.subject import Cotangents, Tensors, filled

# The smallest normal number of float32: smaller derivatives, as sigmoid's slope at −280, are
# rightly zero in it
UNDERFLOW = 2.0**-126


@dataclass(frozen=True, slots=True)
class Jacobian:
    """Backward against finite differences: a Pair per (differentiable input, checked output);
    `absent`: the pairs whose gradient is always None;
    `choice`: how they were compared and why; None for a fixed step. `left`: the measured pairs that
    pass because an iteration's remaining error explains their mismatches. `structure`: of the
    Jacobian, as confirmed; empty for a fixed step."""

    pairs: Mapping[tuple[int, int], Pair]
    absent: frozenset[tuple[int, int]]
    choice: Choice | None
    left: Mapping[tuple[int, int], Pair] = field(default_factory=dict)
    structure: Structure = field(default_factory=Structure)


@dataclass(frozen=True, slots=True)
class Constraints:
    """The spec's constraints on the inputs: the domain of each (None: unrestricted), and which are
    read as symmetric matrices.
    `specified`: the elements that a sparse input has (None: all). `seed`: of all random draws."""

    domains: tuple[tuple[float, float] | None, ...]
    symmetric: tuple[bool, ...]
    specified: tuple[Tensor | None, ...] = ()
    seed: Seed = Seed()

    def columns(self, inputs: Tensors) -> Columns:
        """Return the columns of these inputs."""
        return columns_of(inputs, self.domains, self.symmetric, self.specified)

    def point(self, function: Function) -> Point:
        """Return the function at its inputs."""
        return Point(function, self.columns(function.inputs), seed=self.seed)


def jacobian(
    function: WithBackward,
    settings: Settings,
    constraints: Constraints,
    watch: Watch | None = None,
    clock: Clock | None = None,
    over_budget: OverBudget = no_budget,
    requested: Requested | None = None,
) -> Jacobian:
    """Compare every (input, output) pair with finite differences; `watch` receives the choice
    before the comparison begins. `requested`: see `Pair`."""
    filled = Filled(function)
    if settings.eps != "auto":
        atol, rtol = settings.tolerances()
        found = check_fixed(
            filled, settings.eps, atol=atol, rtol=rtol, keep=WORST, requested=requested
        )
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
            domains=constraints.domains,
            symmetric=constraints.symmetric,
            specified=constraints.specified,
            seed=constraints.seed,
            keep=WORST,
            watch=watch,
            clock=clock,
            over_budget=over_budget,
            requested=requested,
        )
        found, choice, structure = compared.pairs, compared.choice, compared.structure
    pairs = {(pair.input, pair.output): pair for pair in found}
    return Jacobian(pairs, frozenset(pairs) - frozenset(filled.given), choice, structure=structure)


class WithBackward(Protocol):
    """A function whose backward may return None. It may have the optional members of `Function`,
    and `vjps`, which pulls many cotangents back at once."""

    @property
    def inputs(self) -> Tensors: ...

    def values(self, inputs: Tensors) -> Tensors: ...

    def vjp(self, cotangents: Cotangents, inputs: Tensors | None = None) -> Cotangents: ...


class Split:
    """The values of one function with the backward of another, whose inputs and outputs may have
    other dtypes."""

    def __init__(
        self, values_of: WithBackward, backward_of: WithBackward, outputs: Tensors
    ) -> None:
        """`outputs`: of the function whose backward it is."""
        self._full, self._narrow, self._outputs = values_of, backward_of, tuple(outputs)
        self.inputs = values_of.inputs

    def values(self, inputs: Tensors) -> Tensors:
        return self._full.values(inputs)

    def vjp(self, cotangents: Cotangents, inputs: Tensors | None = None) -> Cotangents:
        """Return the gradients, at `inputs` rounded to the dtypes of the backward's function."""
        own = self._narrow.inputs
        return self._narrow.vjp(
            [
                None if v is None else v.to(dtype=y.dtype, device=y.device)
                for v, y in zip(cotangents, self._outputs, strict=True)
            ],
            inputs and [x.to(dtype=a.dtype) for x, a in zip(inputs, own, strict=True)],
        )


class Filled:
    """A function whose missing gradients are zeros; `given`: the (input, output) pairs for which
    backward has returned a gradient."""

    def __init__(self, function: WithBackward) -> None:
        self._function, self.inputs = function, function.inputs
        # Its backward, if that is less precise than its values
        self.narrow: Narrow | None = getattr(function, "narrow", None)
        # The outputs of an earlier forward at its inputs, if known
        self.earlier: Tensors | None = getattr(function, "earlier", None)
        self.given: set[tuple[int, int]] = set()

    def here(self) -> Tensors | None:
        """Return the values at its inputs, of the forward whose graph backward uses; None where
        these are not kept."""
        found: Tensors | None = getattr(self._function, "here", lambda: None)()
        return found

    def values(self, inputs: Tensors) -> Tensors:
        """Return the values, computed with gradients enabled, as in training."""
        return self._function.values([x.detach().requires_grad_() for x in inputs])

    def shaken(self, inputs: Tensors, number: int) -> tuple[Tensors, float]:
        """Return the values with random rounding errors, and the coarsest roundoff of the
        operations."""
        mode = Anew(generator(number, "forward", "rounding"))
        with mode:
            found = self.values(inputs)
        return found, mode.coarsest

    def shaken_vjp(
        self, number: int, cotangents: Cotangents, inputs: Tensors, roundings: float = ULP
    ) -> Tensors | None:
        """Return the gradients with random rounding errors of float64, at inputs so many
        `roundings` away; None where backward raises. Lower precision inside is no excuse for a
        backward."""
        source = generator(number, "backward", "rounding")
        with Perturbed(source, ULP * U64):
            return tried(self.vjp, cotangents, nudged(inputs, source, roundings))

    def vjp(self, cotangents: Cotangents, inputs: Tensors | None = None) -> Tensors:
        gradients = self._function.vjp(cotangents, inputs)
        pulled = [k for k, cotangent in enumerate(cotangents) if cotangent is not None]
        self.given.update(
            (i, k) for i, gradient in enumerate(gradients) if gradient is not None for k in pulled
        )
        return filled(gradients, self.inputs)

    def vjps(self, output: int, cotangents: Tensor, wanted: Sequence[int]) -> list[Tensor] | None:
        """Pull many cotangents [n, …] of one output back at once; return the gradients [n, …] of
        the wanted inputs, or None where the function does not support it."""
        offered = getattr(self._function, "vjps", None)
        found = offered and offered(output, cotangents, wanted)
        if found is None:
            return None
        given = dict(zip(wanted, found, strict=True))
        self.given.update((i, output) for i, gradient in given.items() if gradient is not None)
        return [
            self.inputs[i].new_zeros((len(cotangents), *self.inputs[i].shape)) if g is None else g
            for i, g in given.items()
        ]


def rounded_anew(
    source: torch.Generator, inputs: Tensors, compute: Callable[[Tensors], Value]
) -> Value:
    """Return the result of `compute` with random roundings of every operation in its own dtype, at
    inputs a rounding away (which also affects code outside of torch)."""
    with Anew(source):
        return compute(nudged(inputs, source))


def nudged(inputs: Tensors, source: torch.Generator, roundings: float = 1.0) -> list[Tensor]:
    """Return the inputs with each number moved by a random part of so many `roundings`."""
    return [x + roundings * UNITS[x.dtype] * x.abs() * signed(x, source) for x in inputs]
