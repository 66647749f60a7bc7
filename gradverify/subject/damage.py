"""Standard damage to analytic gradients, done between a right backward and whoever looks at its gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

import torch
from torch import Tensor

from gradverify.subject.differentiable import Differentiable, Gradients
from gradverify.subject.subject import Subject

TILE = 16  # elements: the smallest that a kernel walks in
FLAT = 1e-9  # of a gradient's size: a mean below it is rounding

Cotangents = Sequence[Tensor | None]
Change = Callable[[Tensor, Cotangents], Tensor]
"""(gradient of one input, cotangents) → the damaged gradient; the very same numbers where it does nothing here."""


@dataclass(frozen=True)
class Damage:
    """`inputs` are the places whose gradients it changes; `spares`: the input at which it would make a difference where it makes none.

    At most one of: `change` of each gradient, `swap` of two, `deaf` (ones instead of grad_output), `stale` (the state of the last forward).
    """

    name: str
    inputs: tuple[int, ...]
    spares: str
    change: Change | None = None
    swap: bool = False
    deaf: bool = False
    stale: bool = False


class Damaged(Differentiable):
    """A function whose backward is damaged."""

    def __init__(self, subject: Subject, checked: Sequence[int], damage: Damage) -> None:
        super().__init__(subject, checked)
        self._damage = damage
        self._last: tuple[Tensor, ...] | None = None

    def values(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        if self._damage.stale:
            self._last = tuple(x.detach().clone() for x in inputs)
        return super().values(inputs)

    def vjp(self, cotangents: Cotangents) -> Gradients:
        if self._last is not None:
            return super().vjp_at(self._last, cotangents)
        return self._done(super().vjp(self._heard(cotangents)), cotangents)

    def vjp_at(self, inputs: Sequence[Tensor], cotangents: Cotangents) -> Gradients:
        return self._done(super().vjp_at(inputs, self._heard(cotangents)), cotangents)

    def _heard(self, cotangents: Cotangents) -> Cotangents:
        return [None if v is None else torch.ones_like(v) for v in cotangents] if self._damage.deaf else cotangents

    def _done(self, gradients: Gradients, cotangents: Cotangents) -> Gradients:
        damage, result = self._damage, list(gradients)
        if damage.swap:
            a, b = damage.inputs
            result[a], result[b] = result[b], result[a]
        for place in damage.inputs if damage.change else ():
            gradient = result[place]
            if gradient is not None and damage.change is not None:
                result[place] = damage.change(gradient, cotangents)
        return tuple(result)


def damages(inputs: Sequence[Tensor]) -> Iterator[Damage]:
    """All damage that can be done to the gradients of these inputs: each to one gradient alone, then what concerns several."""
    for place, x in enumerate(inputs):
        if x.numel():
            for name, least, spares, change in CHANGES:
                if x.ndim >= least:
                    yield Damage(name, (place,), spares, change)
    places = tuple(place for place, x in enumerate(inputs) if x.numel())
    for a, b in combinations(places, 2):
        if (inputs[a].shape, inputs[a].dtype) == (inputs[b].shape, inputs[b].dtype):
            yield Damage("swap inputs", (a, b), "inputs whose gradients differ: unequal ones, if the function is not symmetric in them", swap=True)
    if places:
        yield Damage("ignore grad_output", places, "inputs at which the gradient is not zero", deaf=True)
        yield Damage("stale state", places, "a function that is not linear in its inputs, or inputs at which the gradient moves with them", stale=True)


def _zero_row(g: Tensor, _: Cotangents) -> Tensor:
    result = g.clone()
    result[len(g) // 2] = 0
    return result


def _drop_tail(g: Tensor, _: Cotangents) -> Tensor:
    """The last tile of TILE elements in memory order; a tensor of one tile keeps it."""
    start = (g.numel() - 1) // TILE * TILE
    flat = g.reshape(-1).clone()
    flat[start or g.numel() :] = 0
    return flat.reshape(g.shape)


def _transpose(g: Tensor, _: Cotangents) -> Tensor:
    return g.mT.reshape(g.shape)


def _shift(g: Tensor, _: Cotangents) -> Tensor:
    return g.roll(1, -1)


def _drop_mean(g: Tensor, cotangents: Cotangents) -> Tensor:
    """Without its mean along the last dimension; a gradient that has none (softmax, norms) keeps the one of grad_output that it should have lost."""
    if g.shape[-1] == 1:
        return g
    mean = g.mean(-1, keepdim=True)
    if bool((mean.abs() > FLAT * g.abs().amax()).any()):
        return g - mean
    alike = next((v for v in cotangents if v is not None and v.shape == g.shape and v.dtype == g.dtype), None)
    return g if alike is None else g + alike.mean(-1, keepdim=True)


NOT_ZERO = "inputs at which the gradient is not zero"
CHANGES: tuple[tuple[str, int, str, Change], ...] = (  # name, dimensions needed, where it would make a difference, what it does
    ("×1.01", 0, NOT_ZERO, lambda g, _: g * 1.01),
    ("×(1 + 1e-4)", 0, NOT_ZERO, lambda g, _: g * (1 + 1e-4)),
    ("sign", 0, NOT_ZERO, lambda g, _: -g),
    ("zero a row", 1, NOT_ZERO, _zero_row),
    ("drop the last tile", 1, f"more than one tile: more than {TILE} elements, and no zeros at the end", _drop_tail),
    ("transpose", 2, "both of the last two sizes above 1, best a non-square shape, and unequal inputs", _transpose),
    ("shift by one", 1, "more than one element along the last dimension, and unequal inputs", _shift),
    ("drop the mean term", 1, "more than one element along the last dimension, and a gradient with a mean", _drop_mean),
)
