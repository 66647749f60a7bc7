"""Modules as networks are trained: checkpoints, recomputation, reversible blocks, offloading,
weights made of others. Right ones, and damaged ones.

`make(mistake)` builds the module, right for "".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.utils.checkpoint import checkpoint

from corpus.functions import normal


@dataclass(frozen=True)
class Trained:
    make: Callable[[str], nn.Module]
    mistakes: tuple[str, ...] = ("sign", "factor", "dropped")
    inputs: tuple[Any, ...] = ()


def seeded(module: nn.Module, seed: int = 0) -> nn.Module:
    """The module in float64, its parameters drawn anew."""
    module.double()
    with torch.no_grad():
        for place, parameter in enumerate(module.parameters()):
            parameter.copy_(0.5 * normal(*parameter.shape, seed=1000 * seed + place + 7))
    return module


def damaged(
    gradients: Sequence[Tensor | None], mistake: str, place: int
) -> tuple[Tensor | None, ...]:
    """The gradient at `place` with a sign, a factor, or none; the others as they are."""
    change: dict[str, Callable[[Tensor], Tensor | None]] = {
        "sign": torch.neg,
        "factor": lambda g: 1.01 * g,
        "dropped": lambda g: None,
    }
    return tuple(
        change[mistake](g) if n == place and mistake and g is not None else g
        for n, g in enumerate(gradients)
    )


# ---- what the layers are made of
def linear_of(mistake: str) -> type[Function]:
    class Linear(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
            ctx.save_for_backward(x, weight)
            return x @ weight.mT + bias

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
            x, weight = ctx.saved_tensors
            rows = g.reshape(-1, g.shape[-1])
            return damaged(
                (g @ weight, rows.mT @ x.reshape(-1, x.shape[-1]), rows.sum(0)), mistake, 1
            )

    return Linear


class Layer(nn.Module):
    """A linear layer by a hand-written Function, and a nonlinearity by torch."""

    def __init__(self, n: int, m: int, mistake: str = "") -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(m, n))
        self.bias = nn.Parameter(torch.empty(m))
        self.function = linear_of(mistake)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.function.apply(x, self.weight, self.bias)
        return y.tanh()


def layers(mistake: str) -> nn.Sequential:
    return nn.Sequential(Layer(3, 4), Layer(4, 3, mistake))


# ---- checkpoints
class Checkpointed(nn.Module):
    """`head`: a layer before the checkpoint, without which a re-entrant one gives the parameters
    nothing where x needs no gradient."""

    def __init__(self, mistake: str, reentrant: bool) -> None:
        super().__init__()
        self.head, self.inner, self.reentrant = nn.Linear(3, 3), layers(mistake), reentrant

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = checkpoint(self.inner, self.head(x), use_reentrant=self.reentrant)
        return y * y


class MicroBatches(nn.Module):
    """The mean of a loss over micro-batches, each checkpointed."""

    def __init__(self, mistake: str) -> None:
        super().__init__()
        self.inner = layers(mistake)

    def forward(self, x: Tensor) -> Tensor:
        losses = [
            checkpoint(lambda y: self.inner(y).square().mean(), part, use_reentrant=False)
            for part in x.split(1)
        ]
        return torch.stack(losses).mean()


# ---- Functions that run forward again
def recomputing(mistake: str, reads: str) -> type[Function]:
    """`reads`: the parameters that backward differentiates by: those that forward was "given",
    those that the "layer" has then, or "grad", that is by `.backward()` into their `.grad`."""

    class Recomputes(Function):
        @staticmethod
        def forward(ctx: Any, layer: nn.Module, x: Tensor, *parameters: Tensor) -> Tensor:
            ctx.layer, ctx.parameters = layer, parameters
            ctx.save_for_backward(x)
            with torch.no_grad():
                y: Tensor = layer(x)
            return y

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
            x = ctx.saved_tensors[0].detach().requires_grad_()
            with torch.enable_grad():
                y = ctx.layer(x)
            if reads == "grad":
                torch.autograd.backward(
                    y, *damaged((g,), mistake if mistake != "dropped" else "", 0)
                )
                return (
                    None,
                    *damaged((x.grad,), mistake if mistake == "dropped" else "", 0),
                    *[None] * len(ctx.parameters),
                )
            parameters = ctx.parameters if reads == "given" else list(ctx.layer.parameters())
            wanted = [p for p in parameters if p.requires_grad]
            of_x, *found = torch.autograd.grad(y, (x, *wanted), g)
            each = iter(found)
            return None, *damaged(
                (of_x, *(next(each) if p.requires_grad else None for p in parameters)), mistake, 2
            )

    return Recomputes


class Recomputed(nn.Module):
    def __init__(self, mistake: str, reads: str) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 3))
        self.function = recomputing(mistake, reads)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.function.apply(self.inner, x, *self.inner.parameters())
        return y * y


# ---- reversible blocks
def reversing(mistake: str) -> type[Function]:
    """A coupling whose input is not saved: backward makes it from the output, which it drops, and
    refuses `torch.autograd.grad`."""

    class Reversible(Function):
        @staticmethod
        def forward(ctx: Any, block: nn.Module, x: Tensor, *parameters: Tensor) -> Tensor:
            ctx.block, ctx.parameters = block, parameters
            with torch.no_grad():
                y = added(block, x)
            ctx.outputs = [y.detach()]
            return y

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
            if not torch.autograd._is_checkpoint_valid():
                raise RuntimeError(
                    "a reversible block is not compatible with .grad(), use .backward()"
                )
            if not ctx.outputs:
                raise RuntimeError("a second backward of a reversible block")
            y = ctx.outputs.pop()
            with torch.no_grad():
                x = subtracted(ctx.block, y)
            with torch.enable_grad():
                x = x.detach().requires_grad_()
                again = added(ctx.block, x)
            of_x, *found = torch.autograd.grad(
                again, (x, *(p for p in ctx.parameters if p.requires_grad)), g
            )
            each = iter(found)
            return None, *damaged(
                (of_x, *(next(each) if p.requires_grad else None for p in ctx.parameters)),
                mistake,
                1,
            )

    return Reversible


def added(block: Any, x: Tensor) -> Tensor:
    a, b = x.chunk(2, -1)
    y = a + block.f(b)
    return torch.cat([y, b + block.g(y)], -1)


def subtracted(block: Any, y: Tensor) -> Tensor:
    a, b = y.chunk(2, -1)
    x = b - block.g(a)
    return torch.cat([a - block.f(x), x], -1)


class Coupled(nn.Module):
    def __init__(self, mistake: str) -> None:
        super().__init__()
        self.f, self.g, self.function = nn.Linear(2, 2), nn.Linear(2, 2), reversing(mistake)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.function.apply(self, x, *self.parameters())
        return y.sin()


# ---- saved tensors elsewhere
class Offloaded(nn.Module):
    def __init__(self, mistake: str) -> None:
        super().__init__()
        self.inner = layers(mistake)

    def forward(self, x: Tensor) -> Tensor:
        with by_number():
            y: Tensor = self.inner(x)
            return y * y


def by_number() -> Any:
    """Hooks that keep every saved tensor in a dictionary, under a number."""
    kept: dict[int, Tensor] = {}

    def pack(x: Tensor) -> int:
        kept[len(kept)] = x.detach().clone()
        return len(kept) - 1

    return torch.autograd.graph.saved_tensors_hooks(pack, kept.__getitem__)


# ---- weights that are made of others
class Symmetric(nn.Module):
    """A parametrisation by a hand-written Function."""

    def __init__(self, mistake: str) -> None:
        super().__init__()

        class Symmetrise(Function):
            @staticmethod
            def forward(ctx: Any, w: Tensor) -> Tensor:
                return w + w.mT

            @staticmethod
            def backward(ctx: Any, g: Tensor) -> Tensor | None:
                return damaged((g + g.mT,), mistake, 0)[0]

        self.function = Symmetrise

    def forward(self, w: Tensor) -> Tensor:
        result: Tensor = self.function.apply(w)
        return result


def parametrised(mistake: str) -> nn.Module:
    layer = nn.Linear(3, 3)
    nn.utils.parametrize.register_parametrization(layer, "weight", Symmetric(mistake))
    return nn.Sequential(layer, nn.Tanh())


class Averaged(nn.Module):
    """A student beside the average of its own weights, which is swapped in for the teacher's
    forward and moved afterwards."""

    def __init__(self, mistake: str) -> None:
        super().__init__()
        self.inner = layers(mistake)
        self.averages = [normal(*p.shape, seed=n) for n, p in enumerate(self.inner.parameters())]

    @contextmanager
    def swapped(self) -> Iterator[None]:
        own = [p.data for p in self.inner.parameters()]
        for p, average in zip(self.inner.parameters(), self.averages, strict=True):
            p.data = average
        try:
            yield
        finally:
            for p, value in zip(self.inner.parameters(), own, strict=True):
                p.data = value

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad(), self.swapped():
            target = self.inner(torch.ones_like(x))
        return (checkpoint(self.inner, x, use_reentrant=False) - target).square()


class Momentum(nn.Module):
    """Divides by a running size, a buffer that forward replaces by another tensor; checkpointed
    parts read what they were given."""

    size: Tensor

    def __init__(self, mistake: str) -> None:
        super().__init__()
        self.inner = layers(mistake)
        self.register_buffer("size", torch.ones(()))

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = checkpoint(
            lambda z, size: self.inner(z) / size, x, self.size, use_reentrant=False
        )
        if self.training:
            self.size = 0.9 * self.size + 0.1 * y.detach().abs().mean()
        return y


X, PAIRS = normal(3, 3, seed=3), normal(2, 4, seed=5)
BUILT: dict[str, Callable[[str], nn.Module]] = {
    "a checkpoint": lambda mistake: Checkpointed(mistake, False),
    "a re-entrant checkpoint": lambda mistake: Checkpointed(mistake, True),
    "checkpointed micro-batches": MicroBatches,
    "recomputation, parameters given": lambda mistake: Recomputed(mistake, "given"),
    "recomputation, parameters of the layer": lambda mistake: Recomputed(mistake, "layer"),
    "recomputation, by .backward()": lambda mistake: Recomputed(mistake, "grad"),
    "an additive coupling": Coupled,
    "saved under numbers": Offloaded,
    "a parametrisation": parametrised,
    "an average swapped in": Averaged,
    "a running size": Momentum,
}
TRAINED = {
    name: Trained(
        lambda mistake, build=build: seeded(build(mistake)),
        inputs=(PAIRS if build is Coupled else X,),
    )
    for name, build in BUILT.items()
}
