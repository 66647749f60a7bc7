"""Code of gradverify that runs inside a call of the user's code: modes of torch, hooks, wrapped
methods.

Exceptions of the wrapped operation propagate unchanged. Any other exception raised there is a fault
of gradverify (`ToolError`), and is raised again even if a handler has caught it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from gradverify.model.fault import ToolError, frames_of
from gradverify.subject.failure import is_users
from gradverify.torch_private import (
    TorchDispatchMode,
    device_key,
    has_kernel,
    python_kernel,
    pytree,
)

Code = TypeVar("Code", bound=Callable[..., Any])
Keywords = dict[str, Any]


def wrapped(call: Callable[..., Any], /, *args: Any, **named: Any) -> Any:
    """Call a wrapped operation of torch, or a method or hook of the user's, whose exceptions are
    not ours."""
    return call(*args, **named)


def own_code(function: Code) -> Code:
    """Decorate a function so that its exceptions become ToolError, unless they were raised by the
    user's code, or by a call made through `wrapped`."""

    @functools.wraps(function)
    def guarded(*args: Any, **named: Any) -> Any:
        try:
            return function(*args, **named)
        except RecursionError:  # caused by the user's code, even if raised here
            raise
        except Exception as error:
            guard, *codes = (frame.f_code for frame in frames_of(error))
            if (
                is_users(error)
                or next((code for code in codes if code in (guard, wrapped.__code__)), None)
                is wrapped.__code__
            ):
                raise
            raise ToolError(function.__qualname__) from error

    return guarded  # type: ignore[return-value]


class OwnMode:
    """Base class of all modes of the package: `answer` returns the result of one operation, which
    it calls through `wrapped`. A fault of `answer` that the user's code has caught is raised again
    when the mode ends."""

    _fault: ToolError | None = None

    def answer(self, func: Any, args: Sequence[Any], named: Keywords) -> Any:
        raise NotImplementedError

    def _answered(self, func: Any, args: Sequence[Any], named: Mapping[str, Any] | None) -> Any:
        try:
            return self._guarded(func, args, dict(named or {}))
        except ToolError as fault:
            self._fault = fault
            raise

    @own_code
    def _guarded(self, func: Any, args: Sequence[Any], named: Keywords) -> Any:
        return self.answer(func, args, named)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        super().__exit__(kind, error, trace)  # type: ignore[misc]
        fault, self._fault = self._fault, None
        if fault is not None and fault is not error:
            raise fault


class DispatchMode(OwnMode, TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A mode that sees every operation below autograd."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def __init_subclass__(cls, **named: Any) -> None:
        super().__init_subclass__(**named)  # type: ignore[no-untyped-call]

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Return False, so that torch does not import its compiler (two seconds in every process)
        to exclude the method below from it."""
        return False

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        return self._answered(func, args, kwargs)


class FunctionMode(OwnMode, TorchFunctionMode):
    """A mode that sees every called function of torch."""

    def __torch_function__(
        self,
        func: Any,
        types: Any,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        return self._answered(func, args, kwargs)


# ---- Operators written in Python, by `torch.library.custom_op` or `Library.impl`. A mode sees each
# as one operation, and torch runs the operations inside without the mode. The implementations found
# here are called directly, without torch's dispatch, so that their operations run in the mode.
OF_TORCH = ("aten", "prim", "prims")
FOR_ALL = (
    "CompositeExplicitAutogradNonFunctional",
    "CompositeExplicitAutograd",
    "CompositeImplicitAutograd",
)
"""The dispatch keys used for a device without an implementation of its own, in order of
precedence."""


def implementation(
    func: Any, values: Any, of: Callable[[Any, str], Callable[..., Any] | None] = python_kernel
) -> Callable[..., Any] | None:
    """Return the implementation of an operator for these arguments, if it is written in Python (or
    also in C++, with `kernel` as `of`); None for others, and for torch's own operators."""
    if getattr(func, "namespace", OF_TORCH[0]) in OF_TORCH:
        return None
    tensors = [x for x in pytree.tree_leaves(values) if isinstance(x, Tensor)]
    if not tensors or any(
        type(x) not in (Tensor, torch.nn.Parameter)
        or x.layout is not torch.strided
        or x.is_conj()
        or x.is_neg()
        for x in tensors
    ):
        return None  # torch dispatches such tensors by more than their device
    key = device_key(next(iter({x.device.type for x in tensors} - {"cpu"}), "cpu"))
    keys = () if key is None else (key, *FOR_ALL)
    found = next((each for each in keys if has_kernel(func.name(), each)), None)
    return None if found is None else of(func, found)
