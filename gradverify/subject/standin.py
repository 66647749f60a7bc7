"""Functions replaced by their forwards: a stand-in `ctx`, and every `apply` inside a call answered by `forward` itself, under autograd.

Every way to apply a Function (`F.apply`, a bound method kept under another name, a subclass's own) ends in the `apply` that `Function` inherits. A
hook between the two sees them all; it is taken away whatever happens, and answers nobody but the thread that put it there.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import Function, FunctionCtx, _SingleLevelFunction

UNDER_FUNC = "a Function under torch.func"
_HOOKED = "apply"


class StandIn(FunctionCtx):
    """What `forward` and `setup_context` may ask of a ctx: marks and saved tensors are kept, and change nothing. What it has no name for is an
    AttributeError, as for a real one."""

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
    """What `cls.forward` returns for the arguments of `apply`; `setup_context` is called where the class has its own."""
    ctx = StandIn(tuple(isinstance(x, Tensor) and x.requires_grad for x in arguments))
    if cls.setup_context is Function.setup_context:
        return cls.forward(ctx, *arguments)
    returned = cls.forward(*arguments)
    cls.setup_context(ctx, arguments, returned)
    return returned


@contextmanager
def forwards_only(cut: Callable[[str], None], only: Sequence[type] | None = None) -> Iterator[None]:
    """Inside, what this thread applies is the forward of a Function (None: of every one; else of these `only`) under the grad mode of its caller,
    without a node of its own.

    `cut` is told where that cannot be done, and the Function is then applied as it is.
    """
    thread = threading.get_ident()

    def apply(cls: Any, *arguments: Any, **keywords: Any) -> Any:
        if threading.get_ident() != thread or (only is not None and cls not in only):
            return _applied(cls, arguments, keywords)
        if torch._C._are_functorch_transforms_active() or keywords:
            cut(UNDER_FUNC)
            return _applied(cls, arguments, keywords)
        return by_forward(cls, arguments)

    before = vars(_SingleLevelFunction).get(_HOOKED)
    setattr(_SingleLevelFunction, _HOOKED, classmethod(apply))
    try:
        yield
    finally:
        if before is None:
            delattr(_SingleLevelFunction, _HOOKED)
        else:
            setattr(_SingleLevelFunction, _HOOKED, before)


def _applied(cls: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    """By torch itself."""
    return torch._C._FunctionBase.__dict__["apply"].__get__(None, cls)(*arguments, **keywords)
