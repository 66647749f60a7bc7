"""What changes no number: lines that people put into a forward, and ways to call it. A verdict must
not depend on any of them.

A `Decoration` makes another function of one, which computes the same and is right or wrong as that
one is.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.profiler import record_function
from torch.utils.checkpoint import checkpoint

Decoration = Callable[[Any], Any]
CONSTANTS: dict[torch.dtype, Tensor] = {}


# ---- lines at the head of forward
def heading(line: Callable[[Tensor], Any]) -> Decoration:
    """The line runs with the first tensor, in the forward of a Function (with or without ctx) or in
    front of a callable."""

    def decorated(function: Any) -> Any:
        if not isinstance(function, type):

            def called(*arguments: Any) -> Any:
                line(first(arguments))
                return function(*arguments)

            return called

        class Decorated(function):  # type: ignore[misc]
            @staticmethod
            def forward(*arguments: Any) -> Any:
                line(first(arguments))
                return function.forward(*arguments)

        return Decorated

    return decorated


def first(arguments: tuple[Any, ...]) -> Tensor:
    return next(x for x in arguments if isinstance(x, Tensor)).detach()


def three_items(x: Tensor) -> None:
    """The smallest, the largest and the mean number, as before a normalisation."""
    size = x.abs()
    size.min().item(), size.max().item(), size.mean().item()


def range_check(x: Tensor) -> None:
    if x.abs().max() > 1e30:
        raise ValueError("out of range")


def listed(x: Tensor) -> None:
    assert len(x.reshape(-1).tolist()) == x.numel()


def by_row(x: Tensor) -> None:
    for row in x.reshape(max(len(x), 1) if x.dim() else 1, -1):
        assert row.dim() == 1


def statistic(x: Tensor) -> None:
    with torch.no_grad():
        heading.last = x.abs().mean()  # type: ignore[attr-defined]


def warned(x: Tensor) -> None:
    if x.dim() < 9:
        warnings.warn("this operator is experimental", stacklevel=2)


def cached(x: Tensor) -> None:
    CONSTANTS.setdefault(x.dtype, torch.ones(3, dtype=x.dtype))


def recorded(function: Any) -> Any:
    if not isinstance(function, type):

        def called(*arguments: Any) -> Any:
            with record_function("forward"):
                return function(*arguments)

        return called

    class Recorded(function):  # type: ignore[misc]
        @staticmethod
        def forward(*arguments: Any) -> Any:
            with record_function("forward"):
                return function.forward(*arguments)

    return Recorded


# ---- ways to call it
def applied(function: Any) -> Callable[..., Any]:
    result: Callable[..., Any] = function.apply if isinstance(function, type) else function
    return result


def with_inputs(change: Callable[[Tensor], Tensor]) -> Decoration:
    return lambda function: (
        lambda *arguments: applied(function)(
            *(change(x) if isinstance(x, Tensor) else x for x in arguments)
        )
    )


def rows_joined(x: Tensor) -> Tensor:
    return torch.stack(list(x)) if x.dim() and len(x) and x.is_floating_point() else x


class Module(nn.Module):
    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, *arguments: Any) -> Any:
        return applied(self.function)(*arguments)


class Outer(nn.Module):
    """A module that has another one do it."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.inner = Module(function)

    def forward(self, *arguments: Any) -> Any:
        return self.inner(*arguments)


def nested(function: Any) -> Any:
    """As a part of a function that is a Function itself: its backward asks the decorated one's
    again."""

    class Nested(Function):
        @staticmethod
        def forward(ctx: Any, *arguments: Any) -> Any:
            ctx.tensors = [isinstance(x, Tensor) for x in arguments]
            ctx.others = [x for x in arguments if not isinstance(x, Tensor)]
            ctx.save_for_backward(*(x for x in arguments if isinstance(x, Tensor)))
            with torch.no_grad():
                return applied(function)(*arguments)

        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(ctx: Any, *grads: Any) -> Any:
            tensors, others = iter(ctx.saved_tensors), iter(ctx.others)
            own = [
                next(tensors).detach() if is_tensor else next(others) for is_tensor in ctx.tensors
            ]
            leaves = [
                x.requires_grad_()
                for x, wanted in zip(own, ctx.needs_input_grad, strict=True)
                if wanted
            ]
            with torch.enable_grad():
                found = applied(function)(*own)
            found = found if isinstance(found, tuple) else (found,)
            pairs = [(y, g) for y, g in zip(found, grads, strict=True) if y.requires_grad]
            gradients = iter(
                torch.autograd.grad(
                    [y for y, _ in pairs], leaves, [g for _, g in pairs], allow_unused=True
                )
            )
            return tuple(next(gradients) if wanted else None for wanted in ctx.needs_input_grad)

    return Nested


def checkpointed(reentrant: bool) -> Decoration:
    return lambda function: (
        lambda *arguments: checkpoint(applied(function), *arguments, use_reentrant=reentrant)
    )


# ---- inputs held by a module
class Weighted(nn.Module):
    """The arguments after the first one as parameters (floating tensors), buffers (others) and
    attributes."""

    def __init__(self, function: Any, arguments: tuple[Any, ...]) -> None:
        super().__init__()
        self.function, self.names = function, [f"a{n}" for n in range(1, len(arguments))]
        for name, value in zip(self.names, arguments[1:], strict=True):
            if not isinstance(value, Tensor):
                setattr(self, name, value)
            elif value.is_floating_point():
                self.register_parameter(name, nn.Parameter(value.clone()))
            else:
                self.register_buffer(name, value)

    def forward(self, x: Tensor) -> Any:
        return applied(self.function)(x, *(getattr(self, name) for name in self.names))


class Held(nn.Module):
    """Calls a `Weighted` one, through a checkpoint where `reentrant` is no None."""

    def __init__(self, function: Any, arguments: tuple[Any, ...], reentrant: bool | None) -> None:
        super().__init__()
        self.inner, self.reentrant = Weighted(function, arguments), reentrant

    def forward(self, x: Tensor) -> Any:
        return (
            self.inner(x)
            if self.reentrant is None
            else checkpoint(self.inner, x, use_reentrant=self.reentrant)
        )


HELD: dict[str, bool | None] = {
    "weights in a module": None,
    "weights in a checkpointed module": False,
    "weights in a re-entrantly checkpointed module": True,
}
DECORATIONS: dict[str, Decoration] = {
    "three .item()": heading(three_items),
    "a range check": heading(range_check),
    ".tolist()": heading(listed),
    "a loop over rows": heading(by_row),
    "a statistic under no_grad": heading(statistic),
    "warnings.warn": heading(warned),
    "a cached constant": heading(cached),
    "record_function": recorded,
    "rows joined again": with_inputs(rows_joined),
    ".contiguous()": with_inputs(lambda x: x.contiguous()),
    "a lambda": lambda function: lambda *arguments: applied(function)(*arguments),
    "functools.partial": lambda function: functools.partial(applied(function)),
    "a helper module": lambda function: Outer(function),
    "a nested Function": nested,
    "a checkpoint": checkpointed(False),
    "a re-entrant checkpoint": checkpointed(True),
}


def decorated(
    decoration: str, function: Any, arguments: tuple[Any, ...]
) -> tuple[Any, tuple[Any, ...]]:
    """What is to be checked, and with which arguments. "": the function as it is."""
    if decoration in HELD:
        return Held(function, arguments, HELD[decoration]), arguments[:1]
    return DECORATIONS[decoration](function) if decoration else function, arguments


def names(arguments: tuple[Any, ...]) -> list[str]:
    """Of the decorations for such arguments."""
    weights = [x for x in arguments[1:] if isinstance(x, Tensor) and x.is_floating_point()]
    return [*DECORATIONS, *(HELD if weights else ())]
