"""Everything that the package uses of torch's private parts, and every hook it puts into torch.

Nothing else in the package touches a name of torch that begins with an underscore. Each entry says
what it is made of, what for, and since which version torch has it; `tests/test_torch_private.py`
has a test for each, so that under another torch the failing test names what changed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import BuiltinMethodType, MethodType
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import Function, FunctionMeta
from torch.overrides import _get_current_function_mode_stack


# ---- Functions
def applied(value: object) -> type[Function] | None:
    """The Function that `value` is the inherited `apply` of. (A bound method until torch 2.13, a builtin since 2.14.)"""
    owner = value.__self__ if isinstance(value, MethodType | BuiltinMethodType) else None
    if isinstance(owner, type) and issubclass(owner, Function) and value == owner.apply:
        return owner
    return None


@contextmanager
def every_apply(instead: Callable[[type], Callable[..., Any] | None]) -> Iterator[None]:
    """Inside, whenever this thread applies a Function, `instead(cls)` runs in place of `cls.forward`,
    with the arguments of `apply`; None: the Function is applied as it is. The tensors that it
    returns get no node and require no gradient. `instead(cls)` is called under the caller's grad
    mode, what it gives without gradients.

    Every `apply` (a bound method until torch 2.13, a builtin since 2.14, kept under another name
    before anybody could hook it) ends in C++, which looks up `_backward_cls`, `forward` and
    `setup_context` on the class, in this order: `FunctionMeta`, the metaclass, intercepts them.
    """
    thread, begun, done = threading.get_ident(), dict[type, Callable[..., Any]](), dict[type, Any]()

    def look_up(cls: Any, name: str) -> Any:
        if threading.get_ident() == thread:
            if name == "_backward_cls":
                done.pop(cls, None)
                found = instead(cls)
                if found is not None:
                    begun[cls] = found
            elif name == "forward" and cls in begun:
                return _in_place_of_forward(cls, begun.pop(cls), done)
            elif name == "setup_context" and cls in done:
                marks = done.pop(cls)
                return lambda ctx, inputs, output: marks(ctx, output)
        return before(cls, name)

    before, own = FunctionMeta.__getattribute__, "__getattribute__" in vars(FunctionMeta)
    FunctionMeta.__getattribute__ = look_up     # type: ignore[method-assign]
    try:
        yield
    finally:
        if own:
            FunctionMeta.__getattribute__ = before      # type: ignore[method-assign]
        else:
            del FunctionMeta.__getattribute__


def _in_place_of_forward(cls: Any, function: Callable[..., Any], done: dict[type, Any]) -> Callable[..., Any]:
    takes_ctx = cls.setup_context is Function.setup_context

    def forward(*arguments: Any) -> Any:
        returned = function(*arguments[takes_ctx:])
        if takes_ctx:
            _mark(arguments[0], returned)
        else:
            done[cls] = _mark       # torch makes its ctx after forward
        return returned

    return forward


def _mark(ctx: Any, returned: Any) -> None:
    ctx.mark_non_differentiable(*(y for y in (returned if isinstance(returned, tuple) else (returned,)) if isinstance(y, Tensor)))


def gradients(outputs: Sequence[Tensor], inputs: Sequence[Tensor], cotangents: Sequence[Tensor]) -> tuple[Tensor | None, ...]:
    """`torch.autograd.grad(outputs, inputs, cotangents, retain_graph=True, allow_unused=True)` under
    the function modes that are on: the public one is an operation that these may override, and runs
    without them. (`Variable._execution_engine.run_backward`, 1.8)"""
    found = torch.autograd.Variable._execution_engine.run_backward(
        tuple(outputs), tuple(cotangents), True, False, tuple(inputs), allow_unreachable=True,
        accumulate_grad=False)
    return tuple(found)


def transforms_active() -> bool:
    """Is a transform of torch.func (vmap, grad, jvp) running? (`_are_functorch_transforms_active`, 2.0)"""
    return bool(torch._C._are_functorch_transforms_active())


def function_modes() -> list[Any]:
    """The TorchFunctionModes that are on, the innermost last. (`torch.overrides._get_current_function_mode_stack`, 2.0)"""
    return list(_get_current_function_mode_stack())  # type: ignore[no-untyped-call]
