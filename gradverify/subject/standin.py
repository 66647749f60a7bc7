"""A Function replaced by its forward: a stand-in `ctx`, and its `apply` inside a call answered by
`forward` itself, under autograd."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import Function, FunctionCtx

from gradverify.subject.own_code import FunctionMode, Keywords, own_code, wrapped
from gradverify.torch_private import (
    apply,
    every_apply,
    function_modes,
    pytree,
    transforms_active,
    without_function_modes,
)


class StandIn(FunctionCtx):
    """What `forward` and `setup_context` may ask of a ctx: marks and saved tensors are kept, and
    change nothing. What it has no name for is an AttributeError, as for a real one."""

    saved_for_forward: tuple[Any, ...] = ()
    materialize_grads = True

    def __init__(self, needs_input_grad: tuple[bool, ...]) -> None:
        """`needs_input_grad`: per argument of forward, as a real ctx has it."""
        self.needs_input_grad = needs_input_grad

    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        """What forward saved so far: of both kinds, torch shows that for forward mode."""
        return tuple(self.saved_for_forward or getattr(self, "to_save", ()))

    @property
    def saved_variables(self) -> tuple[Any, ...]:
        return self.saved_tensors


def by_forward(cls: Any, arguments: tuple[Any, ...]) -> Any:
    """What `cls.forward` returns for the arguments of `apply`; `setup_context` is called where the
    class has its own."""
    ctx = StandIn(tuple(isinstance(x, Tensor) and x.requires_grad for x in arguments))
    if cls.setup_context is Function.setup_context:
        return wrapped(cls.forward, ctx, *arguments)
    returned = wrapped(cls.forward, *arguments)
    wrapped(cls.setup_context, ctx, arguments, returned)
    return returned


class Graphs(FunctionMode):
    """Puts the tensors that forwards of Functions computed, with their graphs, in the place of the
    plain ones that torch returns from `apply`, wherever an operation takes one. Both share
    memory."""

    def __init__(self) -> None:
        super().__init__()
        # By the id of the plain one, which is kept alive
        self._of: dict[int, tuple[Tensor, Tensor]] = {}

    def answer(self, func: Any, args: Sequence[Any], named: Keywords) -> Any:
        if not self._of:
            return wrapped(func, *args, **named)
        args, named = self.put_back((tuple(args), named))
        return self.put_back(wrapped(func, *args, **named))

    def put_back(self, values: Any) -> Any:
        """The same, each plain tensor replaced by the one with its graph."""
        return (
            pytree.tree_map(lambda x: self._of[id(x)][1] if id(x) in self._of else x, values)
            if self._of
            else values
        )

    def plain(self, y: Any) -> Any:
        """A plain tensor in the place of one with a graph."""
        if not isinstance(y, Tensor):
            return y
        with without_function_modes():
            plain = y.detach()
        self._of[id(plain)] = plain, y
        return plain


@contextmanager
def forward_of(cls: type, graphs: Graphs) -> Iterator[None]:
    """Inside, what this thread applies of this Function is its forward under autograd, without a
    node of its own. Other Functions are applied, to tensors that have their graphs. Of what leaves
    this context, `graphs.put_back` has the graphs."""
    applying = list[type]()  # the Functions that torch is about to apply for us

    def instead(applied: Any) -> Callable[..., Any] | None:
        if applying and applying[-1] is applied:
            applying.pop()
            return None
        if all(mode is not graphs for mode in function_modes()) or transforms_active():
            return None
        with_gradients = torch.is_grad_enabled()

        @own_code
        def forward(*arguments: Any) -> Any:
            given = graphs.put_back(arguments)
            with torch.set_grad_enabled(with_gradients):
                if applied is cls:
                    returned = by_forward(cls, given)
                else:
                    applying.append(applied)
                    returned = wrapped(apply, applied, given)
            return (
                tuple(map(graphs.plain, returned))
                if isinstance(returned, tuple)
                else graphs.plain(returned)
            )

        return forward

    with graphs, every_apply(instead):
        yield
