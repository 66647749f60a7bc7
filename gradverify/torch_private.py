"""Everything that the package uses of torch's private parts, and every hook it puts into torch.

Nothing else in the package touches a name of torch that begins with an underscore. Each entry says
what it is made of, what for, and since which version torch has it; `tests/test_torch_private.py`
has a test for each, so that under another torch the failing test names what changed.
"""

from __future__ import annotations

import inspect
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from types import BuiltinMethodType, MethodType
from typing import Any

import torch
import torch.utils._pytree
from torch import Tensor, nn
from torch._compile import _disable_dynamo
from torch._subclasses.fake_tensor import FakeTensor as FakeTensor
from torch.autograd.function import Function, FunctionMeta
from torch.overrides import _get_current_function_mode_stack
from torch.overrides import _pop_mode as _pop_function_mode
from torch.utils._python_dispatch import TorchDispatchMode as TorchDispatchMode
from torch.utils._python_dispatch import _disable_current_modes, _get_current_dispatch_mode_stack
from torch.utils._python_dispatch import _pop_mode as _pop_dispatch_mode

# What is imported above under a public name is used as it is: `FakeTensor` is a tensor without
# numbers (2.0), `TorchDispatchMode` sees every operation below autograd (2.0).

pytree = torch.utils._pytree
"""Values taken apart and put together: torch's own notion of a container. (1.8)"""

MKLDNN: torch.layout = torch._mkldnn  # type: ignore[attr-defined]
"""The layout of a tensor that oneDNN holds. (1.0)"""


# ---- Functions
def applied(value: object) -> type[Function] | None:
    """The Function that `value` is the inherited `apply` of. (A bound method until torch 2.13, a
    builtin since 2.14.)"""
    owner = value.__self__ if isinstance(value, MethodType | BuiltinMethodType) else None
    if isinstance(owner, type) and issubclass(owner, Function) and value == owner.apply:
        return owner
    return None


def apply(cls: type[Function], arguments: Sequence[Any]) -> Any:
    """`cls.apply(*arguments)` by torch itself, where the class has an `apply` of its own too, and
    with all arguments of `forward`. (`_FunctionBase.apply`, 1.8)"""
    return super(Function, cls).apply(*arguments)  # type: ignore[misc]


@contextmanager
def every_apply(instead: Callable[[type], Callable[..., Any] | None]) -> Iterator[None]:
    """Inside, whenever this thread applies a Function, `instead(cls)` runs in place of
    `cls.forward`, with the arguments of `apply`; None: the Function is applied as it is. The
    tensors that it returns get no node and require no gradient. `instead(cls)` is called under the
    caller's grad mode, what it gives without gradients.

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
    FunctionMeta.__getattribute__ = look_up  # type: ignore[method-assign]
    try:
        yield
    finally:
        if own:
            FunctionMeta.__getattribute__ = before  # type: ignore[method-assign]
        else:
            del FunctionMeta.__getattribute__


def _in_place_of_forward(
    cls: Any, function: Callable[..., Any], done: dict[type, Any]
) -> Callable[..., Any]:
    takes_ctx = cls.setup_context is Function.setup_context

    def forward(*arguments: Any) -> Any:
        returned = function(*arguments[takes_ctx:])
        if takes_ctx:
            _mark(arguments[0], returned)
        else:
            done[cls] = _mark  # torch makes its ctx after forward
        return returned

    return forward


def _mark(ctx: Any, returned: Any) -> None:
    ctx.mark_non_differentiable(
        *(
            y
            for y in (returned if isinstance(returned, tuple) else (returned,))
            if isinstance(y, Tensor)
        )
    )


def gradients(
    outputs: Sequence[Tensor], inputs: Sequence[Tensor], cotangents: Sequence[Tensor | None]
) -> tuple[Tensor | None, ...]:
    """`torch.autograd.grad(outputs, inputs, cotangents, retain_graph=True, allow_unused=True)`
    under the function modes that are on: the public one is an operation that these may override,
    and runs without them. (`Variable._execution_engine.run_backward`, 1.8)"""
    found = torch.autograd.Variable._execution_engine.run_backward(
        tuple(outputs),
        tuple(cotangents),
        True,
        False,
        tuple(inputs),
        allow_unreachable=True,
        accumulate_grad=False,
    )
    return tuple(found)


transforms_active = torch._C._are_functorch_transforms_active
"""Is a transform of torch.func (vmap, grad, jvp) running? (`_are_functorch_transforms_active`,
2.0)"""


def function_modes() -> list[Any]:
    """The TorchFunctionModes that are on, the innermost last.
    (`torch.overrides._get_current_function_mode_stack`, 2.0)"""
    return list(_get_current_function_mode_stack())  # type: ignore[no-untyped-call]


def pop_function_mode() -> None:
    """Ends the innermost. (`torch.overrides._pop_mode`, 2.0)"""
    _pop_function_mode()  # type: ignore[no-untyped-call]


def pop_dispatch_mode() -> None:
    """Ends the innermost. (`torch.utils._python_dispatch._pop_mode`, 2.0)"""
    _pop_dispatch_mode()


def dispatch_modes() -> list[Any]:
    """The TorchDispatchModes that are on. (`_get_current_dispatch_mode_stack`, 2.0)"""
    return list(_get_current_dispatch_mode_stack())


without_modes = _disable_current_modes
"""A context in which no dispatch mode is on. (`_disable_current_modes`, 2.0)"""


without_function_modes = torch._C.DisableTorchFunction
"""A context in which no operation is overridden. (`torch._C.DisableTorchFunction`, 1.5)"""


# ---- nodes of a graph
CPP_NODE = "CppFunction"
"""The Python type of every node whose C++ class is not one of torch's own. (1.0)"""
CPP_FUNCTION = "torch::autograd::CppNode<"
"""How the name of such a node begins that a Function written in C++ made. (1.3)"""


def function_class(node: Any) -> type | None:
    """The Function that a node, which is its ctx, belongs to; None: an operation of torch or C++.
    (`_forward_cls`, 0.2)"""
    return getattr(node, "_forward_cls", None)


def expected_gradients(node: Any) -> Sequence[Any]:
    """Shape, dtype and device of each gradient that a node gets. (`Node._input_metadata`, 2.6)"""
    return node._input_metadata  # type: ignore[no-any-return]


def undefined(y: Tensor) -> Tensor:
    """y, behind which the gradient is lost: what reaches its node is undefined.
    (`torch._C._functions.UndefinedGrad`, 1.5)"""
    found: Any = torch._C._functions.UndefinedGrad()(y)  # torch's stub says a list
    return found  # type: ignore[no-any-return]


def inside_backward() -> bool:
    """Does the engine run a backward on this thread? (`torch._C._current_graph_task_id`, 2.0)"""
    return torch._C._current_graph_task_id() != -1


backward_is_threaded = torch._C._is_multithreading_enabled
"""May the engine use a thread for each device? (`torch._C._is_multithreading_enabled`, 1.12)"""


set_backward_threaded = torch._C._set_multithreading_enabled
"""(`torch._C._set_multithreading_enabled`, 1.12)"""


def saved_tensors_hooks() -> Any:
    """The innermost `saved_tensors_hooks` that are on; None without any, and where torch cannot
    tell. (`_top_saved_tensors_default_hooks`, 2.8)"""
    top = getattr(torch._C._autograd, "_top_saved_tensors_default_hooks", None)
    return None if top is None else top(True)


pop_saved_tensors_hooks = torch._C._autograd._pop_saved_tensors_default_hooks
"""(`_pop_saved_tensors_default_hooks`, 1.10)"""


# ---- tensors
def version(x: Tensor) -> int:
    """How often it was written in place. (`Tensor._version`, 0.4)"""
    return x._version


version_preserved = torch.autograd.grad_mode._unsafe_preserve_version_counter
"""A context in which writes into a tensor are not counted. (`_unsafe_preserve_version_counter`,
2.0)"""


def is_view(x: Tensor) -> bool:
    """Of another tensor, for autograd. (`Tensor._is_view`, 0.4)"""
    return x._is_view()


def is_zerotensor(x: Tensor) -> bool:
    """Is it autograd's zeros without memory, as the gradient of torch.sgn? NumPy refuses them.
    (`Tensor._is_zerotensor`, 1.11)"""
    return x._is_zerotensor()


def has_holes(x: Tensor) -> bool:
    """Are there numbers in a jagged tensor that belong to none of its components, or is it ragged
    along another dimension than the first? (`NestedTensor._lengths` and `_ragged_idx`, 2.2)"""
    return getattr(x, "_lengths", None) is not None or getattr(x, "_ragged_idx", 1) != 1


is_transformed = torch._C._functorch.is_functorch_wrapped_tensor
"""Did a transform of torch.func wrap a tensor? (`torch._C._functorch.is_functorch_wrapped_tensor`,
2.1)"""


TENSOR_HOOKS = ("_backward_hooks", "_post_accumulate_grad_hooks")
"""The attributes in which a leaf keeps its hooks: those on its gradient, and those that run once
`.grad` is written. (0.2; 2.1)"""


def hooks_on_gradient(x: Tensor) -> tuple[Callable[..., Any], ...]:
    """What `Tensor.register_hook` registered on a leaf. (`Tensor._backward_hooks`, 0.2)"""
    return tuple((x._backward_hooks or {}).values())


def hooks_after_accumulation(x: Tensor) -> bool:
    """Has a leaf hooks of `register_post_accumulate_grad_hook`?
    (`Tensor._post_accumulate_grad_hooks`, 2.1)"""
    return bool(getattr(x, TENSOR_HOOKS[1], None))


# ---- modules
def parameters_of(module: nn.Module) -> dict[str, Any]:
    """Its own, in the dict in which they can be exchanged. (`Module._parameters`, 0.1)"""
    return module._parameters


def buffers_of(module: nn.Module) -> dict[str, Tensor | None]:
    """Its own, in the dict in which they can be exchanged. (`Module._buffers`, 0.1)"""
    return module._buffers


def convert(module: nn.Module, function: Callable[[Tensor], Tensor]) -> None:
    """Replaces all parameters and buffers by what a function makes of them, as `Module.to` does.
    (`Module._apply`, 0.1)"""
    module._apply(function)  # type: ignore[no-untyped-call]


# ---- registered operators
Overload, OverloadPacket = torch._ops.OpOverload, torch._ops.OpOverloadPacket
"""The types of `torch.ops.library.operator.default` and of `torch.ops.library.operator`. (1.12)"""
READ = torch.ops.aten._local_scalar_dense.default
"""The operation behind `.item()`. (1.0)"""
LOG_SOFTMAX = torch.ops.aten._log_softmax.default
"""The operation behind `log_softmax`. (1.0)"""


def schema(operator: Any) -> Any:
    """The arguments and results that an overload declares. (`OpOverload._schema`, 1.12)"""
    return operator._schema


def overload_behind(found: Any) -> Any:
    """The overload behind what `torch.library.custom_op` returns; anything else itself.
    (`CustomOpDef._opoverload`, 2.4)"""
    return getattr(found, "_opoverload", found)


def python_behind(found: Any) -> Any:
    """The Python function behind what `torch.library.custom_op` returns; anything else itself.
    (`CustomOpDef._init_fn`, 2.4)"""
    return getattr(found, "_init_fn", found)


def body_of(operator: Any) -> Callable[..., Any] | None:
    """The Python function behind an overload that `torch.library.custom_op` made; None for any
    other. (`torch._library.custom_ops.OPDEFS`, 2.4)"""
    made = getattr(sys.modules.get("torch._library.custom_ops"), "OPDEFS", {})
    return getattr(
        made.get(getattr(getattr(operator, "_schema", None), "name", "")), "_init_fn", None
    )


operator_names = torch._C._dispatch_get_all_op_names
"""Of everything that is registered, with its overload. (`torch._C._dispatch_get_all_op_names`,
1.12)"""


has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
"""Is an operator implemented at a dispatch key?
(`torch._C._dispatch_has_kernel_for_dispatch_key`, 1.9)"""


def device_key(kind: str) -> str:
    """The dispatch key of a type of device. (`torch._C._dispatch_key_for_device`, 2.0)"""
    return str(torch._C._dispatch_key_for_device(kind))


def kernel(operator: Any, key: str) -> Callable[..., Any]:
    """The implementation of an overload at a dispatch key, past everything else that torch does for
    it. (`OpOverload._op_dk`, 2.0)"""
    return partial(operator._op_dk, getattr(torch._C.DispatchKey, key))


def python_kernel(operator: Any, key: str) -> Callable[..., Any] | None:
    """The same where it is Python's. (`torch.library._impls`, 1.11)"""
    registered = f"{operator.name().replace('::', '/')}/{key}" in torch.library._impls
    return kernel(operator, key) if registered else None


def fake_function(name: str) -> Any:
    """What was registered as the fake kernel of `library::operator`; None without one.
    (`torch._library.custom_ops`, 2.4; `torch._library.simple_registry`, 2.2)"""
    from torch._library.custom_ops import _maybe_get_opdef
    from torch._library.simple_registry import singleton

    definition = _maybe_get_opdef(name)
    function = definition._abstract_fn if definition is not None else None
    if function is not None:
        return function
    return getattr(singleton.find(name).fake_impl.kernel, "func", None)


GENERATED = "GeneratedBackwardFor_"
"""How the name of the Function begins that torch makes of `torch.library.register_autograd`.
(2.4)"""


def generated_for(cls: type) -> tuple[str, Any] | None:
    """(library::operator, the backward that was registered for it) of a Function that torch
    generated; None of any other. Both are what its methods are closures over: `op` of forward,
    `info._backward_fn` of backward. (2.4)"""
    if not cls.__name__.startswith(GENERATED):
        return None
    op = _nonlocals(cls.forward, "orig_forward").get("op")  # type: ignore[attr-defined]
    info = _nonlocals(cls.backward, "orig_backward").get("info")  # type: ignore[attr-defined]
    return (op.name(), getattr(info, "_backward_fn", None)) if isinstance(op, Overload) else None  # type: ignore[no-untyped-call]


def added_arguments(cls: type) -> int:
    """How many arguments, the last ones, torch itself adds to those of the operator that it
    generated a Function for: one, and another one where there are lists of tensors. (2.4)"""
    if not cls.__name__.startswith(GENERATED):
        return 0
    return 1 + ("orig_backward" in inspect.getclosurevars(cls.backward).nonlocals)  # type: ignore[attr-defined]


def _nonlocals(function: Any, wrapped: str) -> Mapping[str, Any]:
    """Of an operator that takes lists of tensors, those of the function that it is `wrapped`
    around."""
    held = inspect.getclosurevars(function).nonlocals
    return inspect.getclosurevars(held[wrapped]).nonlocals if wrapped in held else held


# ---- switches
def set_cudnn(name: str, value: bool) -> None:
    """`torch.backends.cudnn.NAME = value`, also where torch's test utilities have closed these.
    (`torch._C._set_cudnn_NAME`, 0.2)"""
    getattr(torch._C, f"_set_cudnn_{name}")(value)


cudnn_tf32 = torch._C._get_cudnn_allow_tf32
"""`torch.backends.cudnn.allow_tf32`. (`torch._C._get_cudnn_allow_tf32`, 1.7)"""


set_cudnn_tf32 = torch._C._set_cudnn_allow_tf32
"""(`torch._C._set_cudnn_allow_tf32`, 1.7)"""


def has_fp32_precision() -> bool:
    """Does this torch have `fp32_precision`? (2.9)"""
    return hasattr(torch._C, "_get_fp32_precision_getter")


def fp32_precision(backend: str, operation: str) -> str:
    """(`torch._C._get_fp32_precision_getter`, 2.9)"""
    return str(torch._C._get_fp32_precision_getter(backend, operation))


def set_fp32_precision(backend: str, operation: str, precision: str) -> None:
    """(`torch._C._set_fp32_precision_setter`, 2.9)"""
    torch._C._set_fp32_precision_setter(backend, operation, precision)


# ---- the compiler: importing it takes seconds
def import_compiler() -> None:
    """Raises ImportError. (`torch._dynamo`, 2.0)"""
    import torch._dynamo  # noqa: F401


def leave_compiler_out() -> None:
    """Torch's kernels in Python turn the compiler off on their first call, the forward-mode
    derivative of `x * 2` among them, and import it for that: now only where it is imported already.
    (`torch._compile._disable_dynamo`, 2.0; what it remembers of a function, 2.4)"""
    from torch._decomp import global_decomposition_table

    turns_off = _disable_dynamo(len).__code__
    for kernels in global_decomposition_table.values():
        for named in kernels.values():
            kernel: Any = named
            while kernel is not None:
                if getattr(kernel, "__code__", None) is turns_off:
                    inner = inspect.getclosurevars(kernel).nonlocals["fn"]
                    inner.__dynamo_disable = partial(_without_compiler, inner)
                kernel = getattr(kernel, "__wrapped__", None)


def _without_compiler(kernel: Callable[..., Any], *inputs: Any, **keywords: Any) -> Any:
    if "torch._dynamo" in sys.modules:
        del kernel.__dynamo_disable  # type: ignore[attr-defined]
        return _disable_dynamo(kernel)(*inputs, **keywords)
    return kernel(*inputs, **keywords)


def check_compiler() -> None:
    """Raises ImportError or RuntimeError where torch.compile does not run.
    (`torch._dynamo.eval_frame.check_if_dynamo_supported`, 2.0)"""
    from torch._dynamo.eval_frame import check_if_dynamo_supported

    check_if_dynamo_supported()


def reset_compiler() -> None:
    """Empties its caches. (`torch._dynamo.reset`, 2.0)"""
    import torch._dynamo

    torch._dynamo.reset()


def aot_eager(graph: Any, inputs: Any) -> Any:
    """The backend that traces forward and backward and compiles neither.
    (`torch._dynamo.backends.debugging`, 2.0)"""
    from torch._dynamo.backends.debugging import aot_eager

    return aot_eager(graph, inputs)


@contextmanager
def modules_untagged() -> Iterator[None]:
    """The first compilation of a process replaces two methods of all modules, to tell their
    generations apart; afterwards they are put back. (`Module.___needs_generation_tag_patch`,
    2.0)"""
    cls: Any = nn.Module
    before = cls.__init__, cls.__setstate__
    try:
        yield
    finally:
        if (cls.__init__, cls.__setstate__) != before:
            cls.__init__, cls.__setstate__ = before
            # So that a later compilation does it again
            cls.___needs_generation_tag_patch = True
