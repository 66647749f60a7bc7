"""Right operators with state, recomputation, hooks, registered kernels or solvers: none may be
accused, though a warning may be true."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import checkpoint

from corpus.functions import normal

LIBRARY = "gradverify_stateful"


# ---- registered operators
@torch.library.custom_op(f"{LIBRARY}::silu", mutates_args=())
def silu(x: Tensor) -> Tensor:
    return x * x.sigmoid()


def _silu_backward(ctx: Any, g: Tensor) -> Tensor:
    (x,) = ctx.saved_tensors
    return g * x.sigmoid() * (1 + x * (1 - x.sigmoid()))


silu.register_autograd(
    _silu_backward, setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs)
)
silu.register_vmap(lambda info, in_dims, x: (silu(x), in_dims[0]))


@torch.library.custom_op(f"{LIBRARY}::scaled", mutates_args=())
def scaled(x: Tensor, *, by: float = 2.0) -> Tensor:
    return x * by


def _scaled_context(ctx: Any, inputs: Any, keyword_only_inputs: Any, output: Any) -> None:
    ctx.by = keyword_only_inputs["by"]


scaled.register_autograd(lambda ctx, g: g * ctx.by, setup_context=_scaled_context)


@torch.library.custom_op(f"{LIBRARY}::numbered", mutates_args=())
def numbered(parts: list[Tensor]) -> list[Tensor]:
    return [x * (i + 2) for i, x in enumerate(parts)]


numbered.register_autograd(
    lambda ctx, gs: [g * (i + 2) for i, g in enumerate(gs)],
    setup_context=lambda ctx, inputs, output: None,
)


# ---- vmap
class AllModes(Function):
    """x @ w with a generated vmap rule and jvp."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, w: Tensor) -> Tensor:
        return x @ w

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor]:
        x, w = ctx.saved_tensors
        return g @ w.mT, x.mT @ g

    @staticmethod
    def jvp(ctx: Any, x_t: Tensor, w_t: Tensor) -> Tensor:
        x, w = ctx.saved_tensors
        return x_t @ w + x @ w_t


# ---- recomputation
class KeepsAGraph(Function):
    """A graph of its own, made in forward and differentiated in backward (re-entrant)."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        with torch.enable_grad():
            ctx.own = x.detach().requires_grad_()
            ctx.result = (ctx.own.exp() * ctx.own).sum(-1)
        return ctx.result.detach()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> Any:
        return torch.autograd.grad(ctx.result, ctx.own, g, retain_graph=True)[0]


# ---- hooks, writing in place
def hooked(x: Tensor) -> Tensor:
    y = x * x
    y.register_hook(lambda g: g.clone())
    assert y.grad_fn is not None
    y.grad_fn.register_prehook(lambda gs: gs)
    return y.sin()


def writes_in_place(x: Tensor) -> Tensor:
    y = x * 2
    y.mul_(y.detach().sign() + 3).add_(1)
    return y.relu_()


# ---- modules with state
class Remembers(nn.Module):
    """Positions by shape, made once."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.made = nn.Linear(4, 4, bias=False), dict[torch.Size, Tensor]()

    def forward(self, x: Tensor) -> Tensor:
        if x.shape not in self.made:
            self.made[x.shape] = torch.arange(x.shape[0], dtype=x.dtype)[:, None]
        return self.linear(x) + self.made[x.shape]


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False)
        self.b.weight = self.a.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.b(self.a(x).tanh())


# ---- solvers
class WarmStarts(Function):
    """z = cos(z)/2 + x by iteration from the last solution of that shape."""

    last: ClassVar[dict[Any, Tensor]] = {}

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        z = WarmStarts.last.get((x.shape, x.dtype), torch.zeros_like(x))
        for _ in range(200):
            new = 0.5 * z.cos() + x
            done = float((new - z).norm()) < 1e-12
            z = new
            if done:
                break
        WarmStarts.last[x.shape, x.dtype] = z.detach().clone()
        ctx.save_for_backward(z)
        return z

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return g / (1 + 0.5 * ctx.saved_tensors[0].sin())


class InNumPy(Function):
    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor) -> Tensor:
        x = torch.from_numpy(np.linalg.solve(a.detach().numpy(), b.detach().numpy()))
        ctx.save_for_backward(a, x)
        return x

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor]:
        a, x = ctx.saved_tensors
        w = torch.from_numpy(np.linalg.solve(a.numpy().T, g.numpy()))
        return -torch.outer(w, x), w


X, WEIGHT, DROPOUT = normal(3, 4), normal(4, 2, seed=1), nn.Dropout(0.3)
RIGHT: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "an operator with vmap": (silu, (X,)),
    "an operator with keywords": (lambda x: scaled(x, by=3.0), (X,)),
    "an operator on a list": (numbered, ([X, WEIGHT],)),
    "vmap and forward mode": (AllModes, (X, WEIGHT)),
    "a graph of its own": (KeepsAGraph, (X,)),
    "a checkpoint with dropout": (
        lambda x: checkpoint(lambda y: DROPOUT(y) * y, x, use_reentrant=False),
        (X,),
    ),
    "hooks on tensors and nodes": (hooked, (X,)),
    "writing in place": (writes_in_place, (X,)),
    "positions by shape": (Remembers().double(), (X,)),
    "tied weights": (Tied().double(), (X,)),
    "spectral norm in a callable": (
        lambda x, module=nn.utils.spectral_norm(nn.Linear(4, 5)).double(): module(x),  # noqa: B008
        (X,),
    ),
    "a warm start": (WarmStarts, (normal(5),)),
    "NumPy inside": (InNumPy, (normal(4, 4) + 3 * torch.eye(4, dtype=torch.float64), normal(4))),
    "grad inside": (lambda x: torch.func.grad(lambda y: (y.sin() * y).sum())(x), (X,)),
}
