"""Modules as networks are trained: checkpoints, recomputation, reversible blocks, offloading, weights made of others. Right ones, and damaged ones.

`make(mistake)` builds the module, right for "".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd import Function
from torch.utils.checkpoint import checkpoint


@dataclass(frozen=True)
class Trained:
    make: Callable[[str], nn.Module]
    mistakes: tuple[str, ...] = ("sign", "factor", "dropped")
    inputs: tuple[Any, ...] = ()


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def seeded(module: nn.Module, seed: int = 0) -> nn.Module:
    """The module in float64, its parameters drawn anew."""
    module.double()
    with torch.no_grad():
        for place, parameter in enumerate(module.parameters()):
            parameter.copy_(0.5 * normal(*parameter.shape, seed=1000 * seed + place + 7))
    return module


def damaged(gradients: Sequence[Tensor | None], mistake: str, place: int) -> tuple[Tensor | None, ...]:
    """The gradient at `place` with a sign, a factor, or none; the others as they are."""
    change: dict[str, Callable[[Tensor], Tensor | None]] = {"sign": torch.neg, "factor": lambda g: 1.01 * g, "dropped": lambda g: None}
    return tuple(change[mistake](g) if n == place and mistake and g is not None else g for n, g in enumerate(gradients))


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
            return damaged((g @ weight, rows.mT @ x.reshape(-1, x.shape[-1]), rows.sum(0)), mistake, 1)

    return Linear


class Layer(nn.Module):
    """A linear layer by a hand-written Function, and a nonlinearity by torch."""

    def __init__(self, n: int, m: int, mistake: str = "") -> None:
        super().__init__()
        self.weight, self.bias, self.function = nn.Parameter(torch.empty(m, n)), nn.Parameter(torch.empty(m)), linear_of(mistake)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.function.apply(x, self.weight, self.bias)
        return y.tanh()


def layers(mistake: str) -> nn.Sequential:
    return nn.Sequential(Layer(3, 4), Layer(4, 3, mistake))


# ---- checkpoints
class Checkpointed(nn.Module):
    """`head`: a layer before the checkpoint, without which a re-entrant one gives the parameters nothing where x needs no gradient."""

    def __init__(self, mistake: str, reentrant: bool) -> None:
        super().__init__()
        self.head, self.inner, self.reentrant = nn.Linear(3, 3), layers(mistake), reentrant

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = checkpoint(self.inner, self.head(x), use_reentrant=self.reentrant)
        return y * y


class Block(nn.Module):
    """A transformer block whose attention and feed-forward parts are checkpointed."""

    def __init__(self, mistake: str, reentrant: bool) -> None:
        super().__init__()
        self.norm, self.inner, self.outer, self.reentrant = nn.LayerNorm(4), nn.Linear(4, 12), nn.Linear(4, 4), reentrant
        self.after, self.wide, self.narrow = nn.LayerNorm(4), Layer(4, 6, mistake), nn.Linear(6, 4)

    def attention(self, x: Tensor) -> Tensor:
        q, k, v = (part.unflatten(-1, (2, 2)).transpose(-2, -3) for part in self.inner(self.norm(x)).chunk(3, -1))
        return self.outer(F.scaled_dot_product_attention(q, k, v).transpose(-2, -3).flatten(-2))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.norm(x)
        x = x + checkpoint(self.attention, x, use_reentrant=self.reentrant)
        y: Tensor = x + checkpoint(lambda z: self.narrow(self.wide(self.after(z))), x, use_reentrant=self.reentrant)
        return y


class MicroBatches(nn.Module):
    """The mean of a loss over micro-batches, each checkpointed."""

    def __init__(self, mistake: str) -> None:
        super().__init__()
        self.inner = layers(mistake)

    def forward(self, x: Tensor) -> Tensor:
        losses = [checkpoint(lambda y: self.inner(y).square().mean(), part, use_reentrant=False) for part in x.split(1)]
        return torch.stack(losses).mean()


# ---- Functions that run forward again
def recomputing(mistake: str, reads: str) -> type[Function]:
    """`reads`: the parameters that backward differentiates by: those that forward was "given", those that the "layer" has then, or "grad", that is
    by `.backward()` into their `.grad`."""
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
                torch.autograd.backward(y, *damaged((g,), mistake if mistake != "dropped" else "", 0))
                return None, *damaged((x.grad,), mistake if mistake == "dropped" else "", 0), *[None] * len(ctx.parameters)
            parameters = ctx.parameters if reads == "given" else list(ctx.layer.parameters())
            wanted = [p for p in parameters if p.requires_grad]
            of_x, *found = torch.autograd.grad(y, (x, *wanted), g)
            each = iter(found)
            return None, *damaged((of_x, *(next(each) if p.requires_grad else None for p in parameters)), mistake, 2)

    return Recomputes


class Recomputed(nn.Module):
    def __init__(self, mistake: str, reads: str) -> None:
        super().__init__()
        self.inner, self.function = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 3)), recomputing(mistake, reads)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.function.apply(self.inner, x, *self.inner.parameters())
        return y * y


# ---- reversible blocks
def reversing(mistake: str, couple: Callable[..., Any], part: Callable[..., Any]) -> type[Function]:
    """A coupling whose input is not saved: backward makes it from the output, which it drops, and refuses `torch.autograd.grad`."""
    class Reversible(Function):
        @staticmethod
        def forward(ctx: Any, block: nn.Module, x: Tensor, *parameters: Tensor) -> Tensor:
            ctx.block, ctx.parameters = block, parameters
            with torch.no_grad():
                y: Tensor = couple(block, x)
            ctx.outputs = [y.detach()]
            return y

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
            if not torch.autograd._is_checkpoint_valid():
                raise RuntimeError("a reversible block is not compatible with .grad(), use .backward()")
            if not ctx.outputs:
                raise RuntimeError("a second backward of a reversible block")
            y = ctx.outputs.pop()
            with torch.no_grad():
                x = part(ctx.block, y)
            with torch.enable_grad():
                x = x.detach().requires_grad_()
                again = couple(ctx.block, x)
            of_x, *found = torch.autograd.grad(again, (x, *(p for p in ctx.parameters if p.requires_grad)), g)
            each = iter(found)
            return None, *damaged((of_x, *(next(each) if p.requires_grad else None for p in ctx.parameters)), mistake, 1)

    return Reversible


def added(block: Any, x: Tensor, mistake: str = "") -> Tensor:
    a, b = x.chunk(2, -1)
    bias = block.f.bias.detach() if mistake else block.f.bias
    y = a + F.linear(b, block.f.weight, bias)
    return torch.cat([y, b + block.g(y)], -1)


def subtracted(block: Any, y: Tensor) -> Tensor:
    a, b = y.chunk(2, -1)
    x = b - block.g(a)
    return torch.cat([a - block.f(x), x], -1)


def scaled(block: Any, x: Tensor) -> Tensor:
    a, b = x.chunk(2, -1)
    y = b * (block.f(a).tanh()).exp() + block.g(a)
    return torch.cat([a, y], -1)


def unscaled(block: Any, y: Tensor) -> Tensor:
    a, b = y.chunk(2, -1)
    return torch.cat([a, (b - block.g(a)) * (-block.f(a).tanh()).exp()], -1)


class Coupled(nn.Module):
    def __init__(self, mistake: str, couple: Callable[..., Any], part: Callable[..., Any]) -> None:
        super().__init__()
        self.f, self.g, self.function = nn.Linear(2, 2), nn.Linear(2, 2), reversing(mistake, couple, part)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.function.apply(self, x, *self.parameters())
        return y.sin()


def stack_of(mistake: str) -> type[Function]:
    """A stack of additive blocks as one Function, whose backward calls `.backward()` block by block."""
    class Stack(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, blocks: nn.ModuleList, *parameters: Tensor) -> Tensor:
            ctx.blocks, ctx.others = blocks, len(parameters)
            with torch.no_grad():
                for block in blocks:
                    x = added(block, x)
            ctx.y = x.detach()
            return x

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
            y, grad = ctx.y, g
            for block in reversed(ctx.blocks):
                with torch.no_grad():
                    x = subtracted(block, y)
                with torch.enable_grad():
                    x = x.detach().requires_grad_()
                    out = added(block, x, "dropped" if mistake == "dropped" else "")
                out.backward(grad)
                assert x.grad is not None
                y, grad = x.detach(), -x.grad if mistake == "sign" else x.grad * (1.01 if mistake == "factor" else 1)
            return grad, None, *[None] * ctx.others

    return Stack


class Stacked(nn.Module):
    def __init__(self, mistake: str) -> None:
        super().__init__()
        blocks = [nn.Module() for _ in range(2)]
        for block in blocks:
            block.f, block.g = nn.Linear(2, 2), nn.Sequential(nn.Linear(2, 2), nn.Tanh())
        self.blocks, self.function = nn.ModuleList(blocks), stack_of(mistake)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.function.apply(x, self.blocks, *self.parameters())
        return y.sin()


# ---- saved tensors elsewhere
class Offloaded(nn.Module):
    def __init__(self, mistake: str, to: Callable[[], Any]) -> None:
        super().__init__()
        self.inner, self.to = layers(mistake), to

    def forward(self, x: Tensor) -> Tensor:
        with self.to():
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


class Normed(nn.Module):
    """A layer under weight norm, checkpointed."""

    def __init__(self, mistake: str, norm: Callable[..., nn.Module]) -> None:
        super().__init__()
        self.first, self.inner = norm(nn.Linear(3, 4)), Layer(4, 3, mistake)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = checkpoint(lambda z: self.inner(self.first(z)), x, use_reentrant=False)
        return y


class Averaged(nn.Module):
    """A student beside the average of its own weights, which is swapped in for the teacher's forward and moved afterwards."""

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
    """Divides by a running size, a buffer that forward replaces by another tensor; checkpointed parts read what they were given."""

    size: Tensor

    def __init__(self, mistake: str) -> None:
        super().__init__()
        self.inner = layers(mistake)
        self.register_buffer("size", torch.ones(()))

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = checkpoint(lambda z, size: self.inner(z) / size, x, self.size, use_reentrant=False)
        if self.training:
            self.size = 0.9 * self.size + 0.1 * y.detach().abs().mean()
        return y


X = normal(3, 3, seed=3)
PAIRS = normal(2, 4, seed=5)
BUILT: dict[str, Callable[[str], nn.Module]] = {
    "a checkpoint": lambda mistake: Checkpointed(mistake, False),
    "a re-entrant checkpoint": lambda mistake: Checkpointed(mistake, True),
    "a checkpointed transformer block": lambda mistake: Block(mistake, False),
    "a transformer block with re-entrant checkpoints": lambda mistake: Block(mistake, True),
    "checkpointed micro-batches": MicroBatches,
    "recomputation, parameters given": lambda mistake: Recomputed(mistake, "given"),
    "recomputation, parameters of the layer": lambda mistake: Recomputed(mistake, "layer"),
    "recomputation, by .backward()": lambda mistake: Recomputed(mistake, "grad"),
    "an additive coupling": lambda mistake: Coupled(mistake, added, subtracted),
    "an affine coupling": lambda mistake: Coupled(mistake, scaled, unscaled),
    "a reversible stack": Stacked,
    "saved on the CPU": lambda mistake: Offloaded(mistake, torch.autograd.graph.save_on_cpu),
    "saved under numbers": lambda mistake: Offloaded(mistake, by_number),
    "a parametrisation": parametrised,
    "weight norm": lambda mistake: Normed(mistake, nn.utils.parametrizations.weight_norm),
    "weight norm by a hook": lambda mistake: Normed(mistake, nn.utils.weight_norm),
    "an average swapped in": Averaged,
    "a running size": Momentum,
}
INPUTS = {"a checkpointed transformer block": normal(2, 3, 4, seed=4), "a transformer block with re-entrant checkpoints": normal(2, 3, 4, seed=4),
          "an additive coupling": PAIRS, "an affine coupling": PAIRS, "a reversible stack": PAIRS}
TRAINED = {name: Trained(lambda mistake, build=build: seeded(build(mistake)), inputs=(INPUTS.get(name, X),)) for name, build in BUILT.items()}
