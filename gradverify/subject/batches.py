"""Which batches vmap is tried on: three points of the same kind, and the in_dims they come along."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import torch
from torch import Tensor

from gradverify.subject.failure import UserCodeError
from gradverify.subject.subject import Subject
from gradverify.subject.variants import reversed_along
from gradverify.subject.vmapped import Batch, Batcher, Dims

SPREAD = 0.3            # of each element: how far the second point is from the first; zeros, signs and symmetry stay
NEARBY = 0.02           # where the function is not defined there
THIRD = 1.01            # times x
SIZE = 3


class Batches:
    """`cotangents`: one per checked output for each of SIZE examples; `random`: does the function draw random numbers? Loops are run once for
    each choice of in_dims."""

    def __init__(self, subject: Subject, checked: Sequence[int], cotangents: Sequence[Sequence[Tensor]], source: torch.Generator,
                 random: bool = False) -> None:
        self._subject, self._batcher, self._cotangents, self._random = subject, Batcher(subject, checked), cotangents, random
        self._arguments = [argument for argument in subject.arguments if argument.is_tensor]
        self._noise = [torch.rand(x.shape, generator=source, dtype=torch.float64) * 2 - 1 for x in self._batcher.base]
        self._loops: dict[Dims, Batch] = {}

    @property
    def differentiable(self) -> tuple[bool, ...]:
        """Of each tensor argument."""
        return self._batcher.differentiable

    @cached_property
    def variants(self) -> tuple[Dims, ...]:
        """in_dims: all along 0, all along −1, each alone along −1."""
        n = len(self._arguments)
        alone = [tuple(-1 if i == k else None for i in range(n)) for k in range(n)] if n > 1 else []
        return ((0,) * n, (-1,) * n, *alone)

    def points(self, dims: Dims) -> list[list[Tensor]]:
        """Per example its tensor arguments; one that is not batched stays where it is."""
        base = self._batcher.base
        return [[x if dim is not None else base[i] for i, (x, dim) in enumerate(zip(point, dims, strict=True))] for point in self._chosen[0]]

    @cached_property
    def impossible(self) -> str | None:
        """Why there is nothing to compare; None where there is a loop."""
        if self._subject.writes:
            return "the function writes into its inputs"
        if self._random:
            return "the function draws random numbers"
        if any(argument.value.layout != torch.strided for argument in self._arguments):
            return "an argument is sparse"
        return self._chosen[1]

    @cached_property
    def first(self) -> Batch | UserCodeError:
        """The vmapped call along in_dims 0."""
        return self.vmapped(self.variants[0])

    def vmapped(self, dims: Dims) -> Batch | UserCodeError:
        """The vmapped call, or what it raised."""
        try:
            return self._batcher.vmap(self.points(dims), self._cotangents, dims)
        except UserCodeError as error:
            return error

    def looped(self, dims: Dims) -> Batch:
        """One call per example. Raises UserCodeError."""
        if dims not in self._loops:
            self._loops[dims] = self._batcher.loop(self.points(dims), self._cotangents, dims)
        return self._loops[dims]

    def nudged(self, dims: Dims, step: float) -> Batch:
        """The loop at points a little off: every element by up to `step` of itself. Raises UserCodeError."""
        moved = [[_scaled(x, 1 + step * noise) if wanted else x for x, noise, wanted in zip(point, self._noise, self.differentiable, strict=True)]
                 for point in self.points(dims)]
        return self._batcher.loop(moved, self._cotangents, dims)

    @cached_property
    def _chosen(self) -> tuple[list[list[Tensor]], str | None]:
        """x, a second point, 1.01 x: far apart where the function is defined there, else near; and why there are none."""
        error = "the function is not defined at other points"
        for spread in (SPREAD, NEARBY):
            points = self._drawn(spread)
            try:
                looped = self._batcher.loop(points, self._cotangents, self.variants[0])
            except UserCodeError as raised:
                error = raised.message
                continue
            if all(bool(torch.isfinite(y[1:]).all()) or not bool(torch.isfinite(y[0]).all()) for y in looped.outputs):
                self._loops[self.variants[0]] = looped
                return points, None
        return [], f"a loop over other points is refused: {error}"

    def _drawn(self, spread: float) -> list[list[Tensor]]:
        base, second, third = list(self._batcher.base), [], []
        for argument, noise in zip(self._arguments, self._noise, strict=True):
            x = argument.value
            if not argument.differentiable:
                second.append(reversed_along(x, (0,)) if x.dim() and spread == SPREAD else x)     # the same indices or classes in another order
                third.append(x)
                continue
            both = noise if not argument.symmetric else (noise + noise.mT) / 2
            second.append(_inside(_scaled(x, 1 + spread * both), argument.domain))
            third.append(_inside(_scaled(x, torch.tensor(THIRD)), argument.domain))
        return [base, second, third]


def _scaled(x: Tensor, factor: Tensor) -> Tensor:
    return x * factor.to(device=x.device, dtype=x.dtype)


def _inside(x: Tensor, domain: tuple[float, float] | None) -> Tensor:
    return x if domain is None else x.clamp(*domain)
