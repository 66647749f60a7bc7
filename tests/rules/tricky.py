"""Right functions that do unusual things: no rule on the contract may say a word about them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from live import fixed, randn
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import checkpoint

from rules.functions import Right, RightProduct


class Flat(Function):
    """Returns a view, and gives a view of grad_output back."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.shape = x.shape
        return x.view(-1)

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        return grad_output.view(ctx.shape)


class SavesOutput(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        y = x.exp()
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        (y,) = ctx.saved_tensors
        return grad_output * y


class Scratch(Function):
    """Backward works in a buffer of ctx, and counts its calls there."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        ctx.scratch, ctx.calls = torch.zeros_like(x), 0
        return x * x

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        ctx.calls += 1
        ctx.scratch.copy_(x).mul_(2)
        return ctx.scratch * grad_output


class Sorted(Function):
    """The second output is marked as not differentiable."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> tuple[Tensor, Tensor]:
        values, order = x.sort(-1)
        ranks = order.to(x.dtype)
        ctx.mark_non_differentiable(ranks)
        ctx.save_for_backward(order)
        return values, ranks

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor, unused: Tensor) -> Tensor:
        (order,) = ctx.saved_tensors
        return torch.zeros_like(grad_output).scatter(-1, order, grad_output)


class NotMaterialized(Function):
    """Two outputs; an output that nobody used comes as None."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        ctx.set_materialize_grads(False)
        return x * 2, y * 3

    @staticmethod
    def backward(
        ctx: Any, of_x: Tensor | None, of_y: Tensor | None
    ) -> tuple[Tensor | None, Tensor | None]:
        return None if of_x is None else of_x * 2, None if of_y is None else of_y * 3


class Once(Function):
    """NumPy in backward, and says so."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return grad_output * torch.from_numpy(x.detach().numpy()).cos()


class SetsContext(Function):
    @staticmethod
    def forward(x: Tensor, factor: float) -> Tensor:
        return factor * x * x

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, float], output: Tensor) -> None:
        ctx.save_for_backward(inputs[0])
        ctx.factor = inputs[1]

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, None]:
        (x,) = ctx.saved_tensors
        return 2 * ctx.factor * grad_output * x, None


class InPlace(Function):
    """Writes into its input, says so and returns it."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        x.exp_()
        ctx.mark_dirty(x)
        ctx.save_for_backward(x)
        return x

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        (y,) = ctx.saved_tensors
        return grad_output * y


class IntoOut(Function):
    """Writes into a tensor that it is given for the result."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, out: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        ctx.mark_dirty(out)
        return out.copy_(x * x)

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, None]:
        (x,) = ctx.saved_tensors
        return 2 * grad_output * x, None


class Used(Function):
    """One backward per forward: the second one is refused, as reversible layers do."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        ctx.used = False
        return x * x

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        if ctx.used:
            raise RuntimeError("backward was called before")
        ctx.used = True
        (x,) = ctx.saved_tensors
        return 2 * grad_output * x


class RefusesStrides(Function):
    """A kernel for contiguous memory that says so in forward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        if not x.is_contiguous():
            raise ValueError("x must be contiguous")
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return 2 * grad_output.contiguous() * x


class Sum(Function):
    """One tensor for both, as `torch.add` gives them."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor) -> Tensor:
        return x + y

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, Tensor]:
        return grad_output, grad_output


class Packed(Function):
    """Two gradients side by side in one buffer."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor) -> Tensor:
        ctx.save_for_backward(x, y)
        return x * y

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, ...]:
        x, y = ctx.saved_tensors
        return torch.cat([grad_output * y, grad_output * x], -1).chunk(2, -1)


class Expands(Function):
    """A gradient with stride 0."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.shape = x.shape
        return x.sum()

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        return grad_output.expand(ctx.shape)


class AsksForEach(Function):
    """Saves and computes only what is needed."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(
            x if ctx.needs_input_grad[1] else None, weight if ctx.needs_input_grad[0] else None
        )
        return x @ weight if bias is None else x @ weight + bias

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        return (
            grad_output @ weight.mT if ctx.needs_input_grad[0] else None,
            x.mT @ grad_output if ctx.needs_input_grad[1] else None,
            grad_output.sum(0) if ctx.needs_input_grad[2] else None,
        )


class Layer(nn.Module):
    """A Function inside a module, with a counter of its own calls."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(-1, 1, 12).reshape(3, 4))
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return AsksForEach.apply(x, self.weight, None).tanh()


X, Y = randn(2, 3), randn(2, 3, seed=1)
TRICKY: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "a view is returned": (Flat, (X,)),
    "an output is saved": (SavesOutput, (X,)),
    "scratch on ctx": (Scratch, (X,)),
    "mark_non_differentiable": (Sorted, (X,)),
    "set_materialize_grads(False)": (NotMaterialized, (X, Y)),
    "once_differentiable": (Once, (X,)),
    "setup_context": (SetsContext, (X, 1.5)),
    "mark_dirty": (InPlace, (X,)),
    "a result of the caller's": (IntoOut, (X, fixed(torch.zeros_like(X)))),
    "a second backward is refused": (Used, (X,)),
    "strides are refused": (RefusesStrides, (X,)),
    "one gradient for both": (Sum, (X, Y)),
    "gradients in one buffer": (Packed, (X, Y)),
    "a gradient with stride 0": (Expands, (X,)),
    "only what is needed": (AsksForEach, (X, randn(3, 4), randn(4))),
    "leaf backward only": (
        lambda x: checkpoint(lambda z: Right.apply(z).sin(), x, use_reentrant=True),
        (X,),
    ),
    "checkpointed": (
        lambda x: checkpoint(lambda z: Right.apply(z).sin(), x, use_reentrant=False),
        (X,),
    ),
    "a Function in a callable": (lambda x, y: RightProduct.apply(x.sin(), y).sum(0), (X, Y)),
    "in place in a callable": (lambda x: InPlace.apply(x * 2), (X,)),
    "a Function in a module": (Layer, (X,)),
    "complex": (lambda x: RightProduct.apply(x.real, x.imag), (randn(2, dtype=torch.complex128),)),
    "one number": (Right, (randn(),)),
}
