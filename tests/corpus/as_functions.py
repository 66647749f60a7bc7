"""PyTorch's operator samples as a user would have them: a callable of all tensors, and somebody's Function with the operator's own backward."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.utils import _pytree as pytree

from corpus.operator_samples import Sample, is_number
from gradverify.numerics.function.coordinates import flat_real
from gradverify.subject.subject import Argument


def is_usual(leaf: object) -> bool:
    return not isinstance(leaf, Tensor) or not (leaf.is_meta or leaf.is_nested)


def plain(sample: Sample) -> tuple[Callable[..., Any], list[Argument]]:
    """The sample as a callable of all its tensors."""
    places = [n for n, leaf in enumerate(sample.leaves) if isinstance(leaf, Tensor)]

    def call(*tensors: Tensor) -> Any:
        leaves = list(sample.leaves)
        for place, tensor in zip(places, tensors, strict=True):
            leaves[place] = tensor
        first, args, kwargs = pytree.tree_unflatten(leaves, sample.spec)
        outputs = [leaf for leaf in pytree.tree_leaves(sample.operator(first, *args, **kwargs)) if isinstance(leaf, Tensor)]
        return tuple(outputs) if len(outputs) != 1 else outputs[0]

    leaves = [sample.leaves[n] for n in places]
    return call, [Argument(f"x{n}", leaf.detach().clone(), is_number(leaf) and leaf.requires_grad) for n, leaf in enumerate(leaves)]


def wrapped(call: Callable[..., Any]) -> type[Function]:
    """A Function that computes what the callable does and lets autograd differentiate it in backward, once."""

    class Wrapped(Function):
        @staticmethod
        def forward(ctx: Any, *tensors: Tensor) -> Any:
            ctx.save_for_backward(*tensors)
            with torch.enable_grad():
                output = call(*(x.detach().requires_grad_(needed) for x, needed in zip(tensors, ctx.needs_input_grad, strict=True)))
            outputs = output if isinstance(output, tuple) else (output,)
            own = tuple(y.detach().clone() for y in outputs)
            ctx.mark_non_differentiable(*(mine for mine, y in zip(own, outputs, strict=True) if not y.requires_grad))
            return own if isinstance(output, tuple) else own[0]

        @staticmethod
        @once_differentiable
        def backward(ctx: Any, *grads: Tensor) -> Any:
            leaves = [x.detach().requires_grad_(needed) for x, needed in zip(ctx.saved_tensors, ctx.needs_input_grad, strict=True)]
            with torch.enable_grad():
                output = call(*leaves)
            pairs = [(y, g) for y, g in zip(output if isinstance(output, tuple) else (output,), grads, strict=True) if y.requires_grad]
            found = iter(torch.autograd.grad([y for y, _ in pairs], [x for x in leaves if x.requires_grad], [g for _, g in pairs], allow_unused=True))
            return tuple(next(found) if needed else None for needed in ctx.needs_input_grad)

    return Wrapped


class Leak(Function):
    """The identity of outputs, whose backward adds a multiple of `error` [real coordinates of the inputs] to the gradients of the inputs: the
    cotangent's coordinate `row`."""

    @staticmethod
    def forward(ctx: Any, row: int, error: Tensor, count: int, *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.row, ctx.error, ctx.inputs = row, error, [(x.shape, x.dtype) for x in tensors[count:]]
        return tuple(y.view_as(y) for y in tensors[:count])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        extra = ctx.error * torch.cat([flat_real(grad) for grad in grads])[ctx.row]
        sizes = [shape.numel() * (2 if dtype.is_complex else 1) for shape, dtype in ctx.inputs]
        parts = zip(torch.split(extra, sizes), ctx.inputs, strict=True)
        return None, None, None, *grads, *(_shaped(part, shape, dtype) for part, (shape, dtype) in parts)


def _shaped(coordinates: Tensor, shape: torch.Size, dtype: torch.dtype) -> Tensor:
    """Real coordinates as a tensor that holds them."""
    numbers = torch.view_as_complex(coordinates.reshape(*shape, 2)) if dtype.is_complex else coordinates.reshape(shape)
    return numbers.to(dtype)


def damaged(sample: Sample) -> tuple[Callable[..., Any], list[Argument]] | None:
    """`plain` with one wrong entry in its Jacobian; None where that is zero."""
    if sample.wrong_entry is None:
        return None
    row, error = sample.wrong_entry
    call, arguments = plain(sample)
    places = [n for n, argument in enumerate(arguments) if argument.differentiable]

    def leaking(*tensors: Tensor) -> Any:
        output = call(*tensors)
        outputs = list(output) if isinstance(output, tuple) else [output]
        meant = [n for n, y in enumerate(outputs) if is_number(y) and y.requires_grad]
        if meant:
            leaked = Leak.apply(row, error, len(meant), *(outputs[n] for n in meant), *(tensors[n] for n in places))
            for n, y in zip(meant, leaked, strict=True):
                outputs[n] = y
        return tuple(outputs) if isinstance(output, tuple) else outputs[0]

    return leaking, arguments
