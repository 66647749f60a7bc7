"""Right operators with state, recomputation, hooks, registered kernels or solvers: none may be accused, though a warning may be true."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

LIBRARY = "gradverify_stateful"


# ---- registered operators
@torch.library.custom_op(f"{LIBRARY}::silu", mutates_args=())
def silu(x: Tensor) -> Tensor:
    return x * x.sigmoid()


def _silu_backward(ctx: Any, g: Tensor) -> Tensor:
    x, = ctx.saved_tensors
    return g * x.sigmoid() * (1 + x * (1 - x.sigmoid()))


silu.register_autograd(_silu_backward, setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs))
silu.register_vmap(lambda info, in_dims, x: (silu(x), in_dims[0]))


@torch.library.custom_op(f"{LIBRARY}::scaled", mutates_args=())
def scaled(x: Tensor, *, by: float = 2.0) -> Tensor:
    return x * by


def _scaled_context(ctx: Any, inputs: Any, keyword_only_inputs: Any, output: Any) -> None:
    ctx.by = keyword_only_inputs["by"]


scaled.register_autograd(lambda ctx, g: g * ctx.by, setup_context=_scaled_context)


@torch.library.custom_op(f"{LIBRARY}::sine_and_power", mutates_args=())
def sine_and_power(x: Tensor, n: int) -> tuple[Tensor, Tensor]:
    return x.sin(), x**n


def _sine_context(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.save_for_backward(inputs[0])
    ctx.n = inputs[1]


def _sine_backward(ctx: Any, a: Tensor, b: Tensor) -> tuple[Tensor, None]:
    x, = ctx.saved_tensors
    return a * x.cos() + b * ctx.n * x ** (ctx.n - 1), None


sine_and_power.register_autograd(_sine_backward, setup_context=_sine_context)


@torch.library.custom_op(f"{LIBRARY}::numbered", mutates_args=())
def numbered(parts: list[Tensor]) -> list[Tensor]:
    return [x * (i + 2) for i, x in enumerate(parts)]


numbered.register_autograd(lambda ctx, gs: [g * (i + 2) for i, g in enumerate(gs)], setup_context=lambda ctx, inputs, output: None)


@torch.library.custom_op(f"{LIBRARY}::biased", mutates_args=())
def biased(x: Tensor, bias: Tensor | None) -> Tensor:
    return x.clone() if bias is None else x + bias


biased.register_autograd(lambda ctx, g: (g, g if ctx.biased else None),
                         setup_context=lambda ctx, inputs, output: setattr(ctx, "biased", inputs[1] is not None))


# ---- vmap
class Picks(Function):
    """Columns by an index; the rule loops where the index is batched."""

    @staticmethod
    def forward(x: Tensor, index: Tensor) -> Tensor:
        return x.index_select(-1, index)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(inputs[1])
        ctx.n = inputs[0].shape[-1]

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:
        index, = ctx.saved_tensors
        return g.new_zeros(*g.shape[:-1], ctx.n).index_add(-1, index, g), None

    @staticmethod
    def vmap(info: Any, in_dims: Any, x: Tensor, index: Tensor) -> Any:
        if in_dims[1] is None:
            return Picks.apply(x.movedim(in_dims[0], 0), index), 0
        wide = x.expand(info.batch_size, *x.shape) if in_dims[0] is None else x.movedim(in_dims[0], 0)
        return torch.stack([Picks.apply(a, b) for a, b in zip(wide, index.movedim(in_dims[1], 0), strict=True)]), 0


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
class Recomputes(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor) -> Tensor:
        ctx.save_for_backward(x, w)
        return F.gelu(x @ w)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> Any:
        own = [tensor.detach().requires_grad_() for tensor in ctx.saved_tensors]
        with torch.enable_grad():
            y = F.gelu(own[0] @ own[1])
        return torch.autograd.grad(y, own, g)


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


class DrawsAgain(Function):
    """Dropout whose mask is drawn again in backward, from the generator's state at forward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.state = torch.get_rng_state()
        ctx.save_for_backward(x)
        return x * torch.bernoulli(torch.full_like(x, 0.7)) / 0.7

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> Tensor:
        x, = ctx.saved_tensors
        with torch.random.fork_rng():
            torch.set_rng_state(ctx.state)
            return g * torch.bernoulli(torch.full_like(x, 0.7)) / 0.7


class RungeKutta(Function):
    """Ten steps of y' = tanh(A y), and the adjoint of these very steps."""

    @staticmethod
    def step(a: Tensor, y: Tensor) -> Tensor:
        h = 0.1
        k1 = (a @ y).tanh()
        k2 = (a @ (y + h / 2 * k1)).tanh()
        k3 = (a @ (y + h / 2 * k2)).tanh()
        return y + h / 6 * (k1 + 2 * k2 + 2 * k3 + (a @ (y + h * k3)).tanh())

    @staticmethod
    def forward(ctx: Any, a: Tensor, y: Tensor) -> Tensor:
        states = [y]
        for _ in range(10):
            states.append(RungeKutta.step(a, states[-1]))
        ctx.save_for_backward(a, *states[:-1])
        return states[-1]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> Any:
        a, *states = ctx.saved_tensors
        to_a = torch.zeros_like(a)
        for y in reversed(states):
            part, g = torch.func.vjp(RungeKutta.step, a, y)[1](g)
            to_a = to_a + part
        return to_a, g


# ---- hooks, writing in place
def hooked(x: Tensor) -> Tensor:
    y = x * x
    y.register_hook(lambda g: g.clone())
    assert y.grad_fn is not None
    y.grad_fn.register_prehook(lambda gs: gs)
    return y.sin()


def saved_elsewhere(x: Tensor) -> Tensor:
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: tensor.detach().clone(), lambda tensor: tensor):
        return (x.exp() * x).tanh()


def writes_in_place(x: Tensor) -> Tensor:
    y = x * 2
    y.mul_(y.detach().sign() + 3).add_(1)
    return y.relu_()


def writes_a_view(x: Tensor) -> Tensor:
    y = x.clone()
    y[0].mul_(3)
    y[:, 1] = (x[:, 2] * x[:, 3]).sin()
    return y


class Dirty(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.mark_dirty(x)
        x.exp_()
        ctx.save_for_backward(x)
        return x

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return g * ctx.saved_tensors[0]


# ---- modules with state
class Averages(nn.Module):
    """Divides by a running mean, which it moves afterwards."""

    mean: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.register_buffer("mean", torch.ones(4))

    def forward(self, x: Tensor) -> Tensor:
        y = self.linear(x) / self.mean
        self.mean = 0.9 * self.mean + 0.1 * y.detach().abs().mean(0)
        return y


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


class CopesWithNone(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x)
        positive = x > 0
        ctx.mark_non_differentiable(positive)
        return x.sin(), x.cos(), positive

    @staticmethod
    def backward(ctx: Any, a: Tensor | None, b: Tensor | None, _: None) -> Tensor | None:
        x, = ctx.saved_tensors
        parts = ([a * x.cos()] if a is not None else []) + ([-b * x.sin()] if b is not None else [])
        return sum(parts[1:], parts[0]) if parts else None


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def layers() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 3)).double()


X, WEIGHT = normal(3, 4), normal(4, 2, seed=1)
LAYERS, DROPOUT = layers(), nn.Dropout(0.3)
RIGHT: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "an operator with vmap": (silu, (X,)),
    "an operator with keywords": (lambda x: scaled(x, by=3.0), (X,)),
    "an operator of two outputs": (sine_and_power, (X, 3)),
    "an operator on a list": (numbered, ([X, WEIGHT],)),
    "an operator without its bias": (biased, (X, None)),
    "an operator with its bias": (biased, (X, X + 1)),
    "a vmap rule by hand": (Picks, (X, torch.tensor([3, 0, 0]))),
    "vmap and forward mode": (AllModes, (X, WEIGHT)),
    "recomputation": (Recomputes, (X, WEIGHT)),
    "a graph of its own": (KeepsAGraph, (X,)),
    "dropout drawn again": (DrawsAgain, (X,)),
    "the adjoint of a Runge-Kutta scheme": (RungeKutta, (normal(3, 3), normal(3, seed=2))),
    "a checkpoint": (lambda x: checkpoint(lambda y: (y * y).sin() * y, x, use_reentrant=False), (X,)),
    "a re-entrant checkpoint": (lambda x: checkpoint(lambda y: (y * y).sin() * y, x, use_reentrant=True), (X,)),
    "a checkpoint with dropout": (lambda x: checkpoint(lambda y: DROPOUT(y) * y, x, use_reentrant=False), (X,)),
    "checkpoints in a row": (lambda x: checkpoint_sequential(LAYERS, 2, x, use_reentrant=False), (X,)),
    "hooks on tensors and nodes": (hooked, (X,)),
    "hooks on saved tensors": (saved_elsewhere, (X,)),
    "writing in place": (writes_in_place, (X,)),
    "writing into a view": (writes_a_view, (X,)),
    "an input written on purpose": (Dirty, (X,)),
    "written on purpose inside": (lambda x: Dirty.apply(x * 1.5) * x, (X,)),
    "a running mean": (Averages().double(), (X,)),
    "positions by shape": (Remembers().double(), (X,)),
    "tied weights": (Tied().double(), (X,)),
    "weight norm": (nn.utils.parametrizations.weight_norm(nn.Linear(4, 3)).double(), (X,)),
    "spectral norm": (nn.Sequential(nn.utils.parametrizations.spectral_norm(nn.Linear(4, 5)), nn.ReLU()).double(), (X,)),
    "spectral norm in a callable": (lambda x, module=nn.utils.spectral_norm(nn.Linear(4, 5)).double(): module(x), (X,)),  # noqa: B008
    "orthogonal weights": (nn.utils.parametrizations.orthogonal(nn.Linear(4, 4)).double(), (X,)),
    "a cumulative batch norm": (nn.BatchNorm1d(4, momentum=None).double(), (X,)),
    "a warm start": (WarmStarts, (normal(5),)),
    "NumPy inside": (InNumPy, (normal(4, 4) + 3 * torch.eye(4, dtype=torch.float64), normal(4))),
    "None for unused outputs": (CopesWithNone, (X,)),
    "vmap inside": (lambda x: torch.func.vmap(lambda row: row.sin().sum() + row.prod())(x), (X,)),
    "grad inside": (lambda x: torch.func.grad(lambda y: (y.sin() * y).sum())(x), (X,)),
}
