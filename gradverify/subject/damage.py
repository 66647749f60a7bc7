"""Standard damage to analytic gradients, applied to the results of a correct backward."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from gradverify.subject.differentiable import Differentiable, Gradients, Graph
from gradverify.subject.snapshot import copied
from gradverify.subject.subject import Cotangents, Subject, Tensors, as_leaves

TILE = 16  # elements: the smallest tile that kernels for whole tensors use
FLAT = 2.0**10  # roundoffs of a gradient's largest element: a mean below it is rounding

Change = Callable[[Tensor, Cotangents], Tensor]
"""(gradient of one input, cotangents) → the damaged gradient."""


@dataclass(frozen=True)
class Damage:
    """One kind of damage to the gradients of `inputs`, indices among the differentiable inputs.

    element: `change` alters the gradient of one input; swap: those of two are exchanged; deaf:
    grad_output is replaced by ones; stale: the gradient is taken at the inputs of the last forward.
    `needs`: a sentence on what the shape lacks for the damage to have an effect; None if it has
    one.
    """

    name: str
    inputs: tuple[int, ...]
    how: Literal["element", "swap", "deaf", "stale"] = "element"
    change: Change | None = None
    needs: str | None = None


def done(damage: Damage, gradients: Gradients, cotangents: Cotangents) -> Gradients:
    """Return the gradients with damage of the kinds element and swap applied; unchanged for the
    other kinds."""
    result = list(gradients)
    if damage.how == "swap":
        a, b = damage.inputs
        result[a], result[b] = result[b], result[a]
    for place in damage.inputs:
        gradient = result[place]
        if gradient is not None and damage.change is not None:
            dense = gradient if gradient.layout == torch.strided else gradient.to_dense()
            result[place] = damage.change(dense, cotangents)
    return tuple(result)


class Damaged(Differentiable):
    """A function whose backward is damaged."""

    def __init__(self, subject: Subject, checked: Sequence[int], damage: Damage) -> None:
        super().__init__(subject, checked)
        self._damage = damage
        # The inputs of the last forward, for damage of the kind stale
        self._last: Tensors | None = None

    def values(self, inputs: Tensors) -> list[Tensor]:
        self._remember(inputs)
        return super().values(inputs)

    def here(self) -> Tensors:
        self._remember(self.inputs)
        return super().here()

    def graph(self, leaves: Tensors | None = None, inputs: Tensors | None = None) -> Graph:
        self._remember(inputs or leaves or self.inputs)
        return super().graph(leaves, inputs)

    def vjps(self, output: int, cotangents: Tensor, wanted: Sequence[int] | None = None) -> None:
        """Batched VJPs are not supported: damage applies to single ones."""

    def gradients(self, graph: Graph, cotangents: Cotangents, **options: Any) -> Gradients:
        if self._last is not None:
            graph = super().graph(as_leaves(self._last))
        deaf = self._damage.how == "deaf"
        found = super().gradients(
            graph,
            [v if v is None or not deaf else torch.ones_like(v) for v in cotangents],
            **options,
        )
        return done(self._damage, found, cotangents)

    def _remember(self, inputs: Tensors) -> None:
        if self._damage.how == "stale":
            self._last = copied(inputs)


# ---- the catalogue
def damages(inputs: Tensors) -> Iterator[Damage]:
    """Yield all damage that applies to the gradients of these inputs: first to one gradient each,
    then to several."""
    places = tuple(place for place, x in enumerate(inputs) if x.numel())
    for place in places:
        x = inputs[place]
        for name, dimensions, change, needs, suits in KINDS:
            if x.ndim >= dimensions:
                lacks = None if suits(x) else needs
                yield Damage(name, (place,), "element", change, lacks)
    for a, b in combinations(places, 2):
        if (inputs[a].shape, inputs[a].dtype) == (inputs[b].shape, inputs[b].dtype):
            yield Damage("swap inputs", (a, b), "swap")
    if places:
        yield Damage("ignore grad_output", places, "deaf")
        yield Damage("stale state", places, "stale")


class Kind(NamedTuple):
    """Damage to one gradient of at least `dimensions` dimensions. It has no effect for shapes that
    do not `suit`, whose deficiency `needs` describes."""

    name: str
    dimensions: int
    change: Change
    needs: str = ""
    suits: Callable[[Tensor], bool] = lambda x: True


def _zero_row(g: Tensor, _: Cotangents) -> Tensor:
    result = g.clone()
    result[len(g) // 2] = 0
    return result


def _drop_tail(g: Tensor, _: Cotangents) -> Tensor:
    """Set the last tile in memory order to zero; a tensor of one tile is unchanged."""
    start = (g.numel() - 1) // TILE * TILE
    flat = g.reshape(-1).clone()
    flat[start or g.numel() :] = 0
    return flat.reshape(g.shape)


def _drop_mean(g: Tensor, cotangents: Cotangents) -> Tensor:
    """Subtract the mean along the last dimension; to a gradient whose mean is zero (softmax, norms)
    add the mean of grad_output, which backward should have removed."""
    if g.shape[-1] == 1:
        return g
    mean = g.mean(-1, keepdim=True)
    if bool((mean.abs() > FLAT * torch.finfo(g.dtype).eps * g.abs().amax()).any()):
        return g - mean
    alike = next(
        (v for v in cotangents if v is not None and v.shape == g.shape and v.dtype == g.dtype), None
    )
    return g if alike is None else g + alike.mean(-1, keepdim=True)


LONGER = "only a last dimension above 1 can show it"
KINDS = (
    Kind("×1.01", 0, lambda g, _: g * 1.01),
    Kind("×(1 + 1e-4)", 0, lambda g, _: g * (1 + 1e-4)),
    Kind("sign", 0, lambda g, _: -g),
    Kind("zero a row", 1, _zero_row),
    Kind(
        "drop the last tile",
        1,
        _drop_tail,
        f"only a shape of more than {TILE} elements can show it",
        lambda x: x.numel() > TILE,
    ),
    Kind(
        "transpose",
        2,
        lambda g, _: g.mT.reshape(g.shape),
        "only a shape whose last two sizes are both above 1 can show it",
        lambda x: min(x.shape[-2:]) > 1,
    ),
    Kind("shift by one", 1, lambda g, _: g.roll(1, -1), LONGER, lambda x: x.shape[-1] > 1),
    Kind("drop the mean term", 1, _drop_mean, LONGER, lambda x: x.shape[-1] > 1),
)
