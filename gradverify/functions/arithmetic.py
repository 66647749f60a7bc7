"""Sums and products of tensors, with broadcasting. Gradients of complex tensors follow PyTorch:
∂L/∂a + i ∂L/∂b for z = a + ib."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.autograd import Function

from gradverify.functions.form import Form


class Add(Function):
    """`x + y`. Saves no tensor: the gradient is `grad_output`, summed over what was broadcast."""

    @staticmethod
    def forward(x: Tensor, y: Tensor) -> Tensor:
        return x + y

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.x, ctx.y = map(Form.of, inputs)

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, Tensor | None]:
        grad_x = ctx.x.fit(grad_output) if ctx.needs_input_grad[0] else None
        grad_y = ctx.y.fit(grad_output) if ctx.needs_input_grad[1] else None
        return grad_x, grad_y


class Mul(Function):
    """`x * y`. Each factor is saved only where the other one needs its gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor) -> Tensor:
        ctx.x, ctx.y = Form.of(x), Form.of(y)
        ctx.save_for_backward(
            x if ctx.needs_input_grad[1] else None, y if ctx.needs_input_grad[0] else None
        )
        return x * y

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, Tensor | None]:
        x, y = ctx.saved_tensors
        grad_x = ctx.x.fit(grad_output * y.conj()) if ctx.needs_input_grad[0] else None
        grad_y = ctx.y.fit(grad_output * x.conj()) if ctx.needs_input_grad[1] else None
        return grad_x, grad_y


class MulAddSum(Function):
    """`sum(x * y + z)`, a 0-dim tensor; the sum runs over the shape that x, y and z broadcast
    to."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor, z: Tensor) -> Tensor:
        terms = x * y + z
        ctx.x, ctx.y, ctx.z, ctx.summed = Form.of(x), Form.of(y), Form.of(z), terms.shape
        ctx.save_for_backward(
            x if ctx.needs_input_grad[1] else None, y if ctx.needs_input_grad[0] else None
        )
        return terms.sum()

    @staticmethod
    def backward(
        ctx: Any, grad_output: Tensor
    ) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        x, y = ctx.saved_tensors
        grad_terms = grad_output.expand(ctx.summed)
        grad_x = ctx.x.fit(grad_terms * y.conj()) if ctx.needs_input_grad[0] else None
        grad_y = ctx.y.fit(grad_terms * x.conj()) if ctx.needs_input_grad[1] else None
        grad_z = ctx.z.fit(grad_terms) if ctx.needs_input_grad[2] else None
        return grad_x, grad_y, grad_z


class AbsMul(Function):
    """`|u * v|`, real also for complex arguments. At a kink (u or v is 0) the gradient there is 0,
    a valid subgradient."""

    @staticmethod
    def forward(ctx: Any, u: Tensor, v: Tensor) -> Tensor:
        ctx.u, ctx.v = Form.of(u), Form.of(v)
        ctx.save_for_backward(u, v)
        return (u * v).abs()

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, Tensor | None]:
        """Use |uv| = |u||v|, so ∂|uv|/∂u = sgn(u)|v|: unlike sgn(uv)v it survives a product that
        underflows."""
        u, v = ctx.saved_tensors
        grad_u = ctx.u.fit(grad_output * u.sgn() * v.abs()) if ctx.needs_input_grad[0] else None
        grad_v = ctx.v.fit(grad_output * v.sgn() * u.abs()) if ctx.needs_input_grad[1] else None
        return grad_u, grad_v


class SquareOfSum(Function):
    """`(x + y) ** 2`. Saves x and y, not their sum: an intermediate made in forward has no graph,
    and the second derivative would lose it."""

    @staticmethod
    def forward(x: Tensor, y: Tensor) -> Tensor:
        return (x + y).square()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, Tensor | None]:
        x, y = ctx.saved_tensors
        gradient = grad_output * 2 * (x + y).conj()
        grad_x = Form.of(x).fit(gradient) if ctx.needs_input_grad[0] else None
        # A write into one gradient must not change the other
        grad_y = Form.of(y).fit(gradient.clone()) if ctx.needs_input_grad[1] else None
        return grad_x, grad_y
