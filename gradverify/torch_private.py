"""Everything that the package uses of torch's private parts, and every hook it puts into torch.

No other module of the package uses a name of torch that begins with an underscore. Each entry
states its purpose, the private names that it uses, and since which version torch has them;
`tests/test_torch_private.py` has a test for each, so that under another torch the failing test
names what changed.
"""

from __future__ import annotations

import inspect
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial, wraps
from types import BuiltinMethodType, MethodType, ModuleType
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

# Two names are imported above and used directly: `FakeTensor`, a tensor without numbers (2.0), and
# `TorchDispatchMode`, which sees every operation below autograd (2.0).

pytree = torch.utils._pytree
"""Torch's module for flattening and rebuilding containers. (1.8)"""

MKLDNN: torch.layout = torch._mkldnn  # type: ignore[attr-defined]
"""The layout of tensors in oneDNN's own format. (1.0)"""


# ---- Functions
def applied(value: object) -> type[Function] | None:
    """Return the Function whose inherited `apply` a value is; None for any other value. (A bound
    method until torch 2.13, a builtin since 2.14.)"""
    owner = value.__self__ if isinstance(value, MethodType | BuiltinMethodType) else None
    if isinstance(owner, type) and issubclass(owner, Function) and value == owner.apply:
        return owner
    return None


def apply(cls: type[Function], arguments: Sequence[Any]) -> Any:
    """Call torch's own `apply` of a class, with all arguments of `forward`, even if the class
    overrides it. (`_FunctionBase.apply`, 1.8)"""
    return super(Function, cls).apply(*arguments)  # type: ignore[misc]


@contextmanager
def every_apply(instead: Callable[[type], Callable[..., Any] | None]) -> Iterator[None]:
    """Context in which, whenever this thread applies a Function, the function that `instead(cls)`
    returns is called instead of `cls.forward`, with the arguments of `apply`; None: the Function is
    applied as usual. The tensors that it returns get no node and require no gradient.
    `instead(cls)` is called under the caller's grad mode, its result without gradients.

    Every `apply` (a bound method until torch 2.13, a builtin since 2.14, possibly stored under
    another name before it could be hooked) ends in C++, which looks up `_backward_cls`, `forward`
    and `setup_context` on the class, in this order; the metaclass `FunctionMeta` intercepts these.
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


def watch_apply(
    look: Callable[[Any, tuple[Any, ...], dict[str, Any]], None],
) -> Callable[[], None]:
    """Call `look(cls, arguments, keywords)` before each `apply` of a Function from now on, except
    while torch.compile traces; return the function that ends this. `apply` stays a class method
    of this name, which the compiler recognizes. Names that modules bound to `Swish.apply` before
    are replaced too. (`Function.apply`: a class method until torch 2.13, a builtin since 2.14)"""
    own = vars(Function).get("apply")

    def apply(cls: Any, *arguments: Any, **keywords: Any) -> Any:
        if not torch.compiler.is_dynamo_compiling():
            look(cls, arguments, keywords)
        if own is None:
            return super(Function, cls).apply(*arguments, **keywords)
        return own.__func__(cls, *arguments, **keywords)

    # The compiler traces no function of torch's own files, and knows them by the file of their code
    line = own.__func__.__code__.co_firstlineno if own is not None else 1
    apply.__code__ = apply.__code__.replace(
        co_filename=inspect.getfile(Function), co_firstlineno=line
    )
    bound = [
        (vars(module), name, value)
        for module in list(sys.modules.values())
        if type(module) is ModuleType
        for name, value in list(vars(module).items())
        if type(value) in (MethodType, BuiltinMethodType) and applied(value)
    ]
    setattr(Function, "apply", classmethod(wraps(Function.apply)(apply)))  # noqa: B010
    for names, name, value in bound:
        names[name] = value.__self__.apply

    def end() -> None:
        if own is None:
            del Function.apply
        else:
            setattr(Function, "apply", own)  # noqa: B010
        for names, name, value in bound:
            names[name] = value

    return end


def operator_arguments(arguments: Sequence[Any]) -> tuple[Sequence[Any], Mapping[str, Any]]:
    """Return the arguments and keyword-only arguments of an operator, out of those with which torch
    applies the Function that it generated. (`Metadata`, `TensorListMetadata` of
    `torch._library.autograd`, 2.4)"""
    *given, last = arguments
    if hasattr(last, "input_spec"):
        *given, last = pytree.tree_unflatten(given, last.input_spec)
    return given, last.keyword_only_args


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
    """Return `torch.autograd.grad(outputs, inputs, cotangents, retain_graph=True,
    allow_unused=True)`, computed under the active function modes: the public function is itself an
    operation that these may override, and runs without them.
    (`Variable._execution_engine.run_backward`, 1.8)"""
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
"""Return whether a transform of torch.func (vmap, grad, jvp) is running.
(`_are_functorch_transforms_active`, 2.0)"""


def function_modes() -> list[Any]:
    """Return the active TorchFunctionModes, the innermost last.
    (`torch.overrides._get_current_function_mode_stack`, 2.0)"""
    return list(_get_current_function_mode_stack())  # type: ignore[no-untyped-call]


def pop_function_mode() -> None:
    """Deactivate the innermost function mode. (`torch.overrides._pop_mode`, 2.0)"""
    _pop_function_mode()  # type: ignore[no-untyped-call]


def pop_dispatch_mode() -> None:
    """Deactivate the innermost dispatch mode. (`torch.utils._python_dispatch._pop_mode`, 2.0)"""
    _pop_dispatch_mode()


def dispatch_modes() -> list[Any]:
    """Return the active TorchDispatchModes. (`_get_current_dispatch_mode_stack`, 2.0)"""
    return list(_get_current_dispatch_mode_stack())


without_modes = _disable_current_modes
"""Context in which no dispatch mode is active. (`_disable_current_modes`, 2.0)"""


without_function_modes = torch._C.DisableTorchFunction
"""Context in which no operation is overridden. (`torch._C.DisableTorchFunction`, 1.5)"""


# ---- nodes of a graph
CPP_NODE = "CppFunction"
"""The Python type of every node whose C++ class is not one of torch's own. (1.0)"""
CPP_FUNCTION = "torch::autograd::CppNode<"
"""The prefix of the names of such nodes that belong to a Function written in C++. (1.3)"""


def function_class(node: Any) -> type | None:
    """Return the Function of a node (which is its ctx); None for an operation of torch or C++.
    (`_forward_cls`, 0.2)"""
    return getattr(node, "_forward_cls", None)


def expected_gradients(node: Any) -> Sequence[Any]:
    """Return shape, dtype and device of each gradient that a node receives.
    (`Node._input_metadata`, 2.6)"""
    return node._input_metadata  # type: ignore[no-any-return]


def undefined(y: Tensor) -> Tensor:
    """Return y with a backward that passes an undefined gradient on.
    (`torch._C._functions.UndefinedGrad`, 1.5)"""
    found: Any = torch._C._functions.UndefinedGrad()(y)  # torch's stub declares a list
    return found  # type: ignore[no-any-return]


def inside_backward() -> bool:
    """Return whether the engine runs a backward on this thread.
    (`torch._C._current_graph_task_id`, 2.0)"""
    return torch._C._current_graph_task_id() != -1


backward_is_threaded = torch._C._is_multithreading_enabled
"""Return whether the engine may use a thread for each device.
(`torch._C._is_multithreading_enabled`, 1.12)"""


set_backward_threaded = torch._C._set_multithreading_enabled
"""Allow the engine to use a thread for each device, or not.
(`torch._C._set_multithreading_enabled`, 1.12)"""


def saved_tensors_hooks() -> Any:
    """Return the innermost active `saved_tensors_hooks`; None without any, and where torch does not
    provide them. (`_top_saved_tensors_default_hooks`, 2.8)"""
    top = getattr(torch._C._autograd, "_top_saved_tensors_default_hooks", None)
    return None if top is None else top(True)


pop_saved_tensors_hooks = torch._C._autograd._pop_saved_tensors_default_hooks
"""Deactivate the innermost `saved_tensors_hooks`. (`_pop_saved_tensors_default_hooks`, 1.10)"""


# ---- tensors
def version(x: Tensor) -> int:
    """Return how often a tensor was written in place. (`Tensor._version`, 0.4)"""
    return x._version


version_preserved = torch.autograd.grad_mode._unsafe_preserve_version_counter
"""Context in which writes into a tensor are not counted. (`_unsafe_preserve_version_counter`,
2.0)"""


def is_view(x: Tensor) -> bool:
    """Return whether autograd regards a tensor as a view of another one. (`Tensor._is_view`,
    0.4)"""
    return x._is_view()


def is_zerotensor(x: Tensor) -> bool:
    """Return whether a tensor is one of autograd's zeros without memory, as the gradient of
    torch.sgn; NumPy refuses these. (`Tensor._is_zerotensor`, 1.11)"""
    return x._is_zerotensor()


def has_holes(x: Tensor) -> bool:
    """Return whether a jagged tensor has numbers that belong to none of its components, or is
    ragged along another dimension than the first. (`NestedTensor._lengths` and `_ragged_idx`,
    2.2)"""
    return getattr(x, "_lengths", None) is not None or getattr(x, "_ragged_idx", 1) != 1


is_transformed = torch._C._functorch.is_functorch_wrapped_tensor
"""Return whether a transform of torch.func has wrapped a tensor.
(`torch._C._functorch.is_functorch_wrapped_tensor`, 2.1)"""


TENSOR_HOOKS = ("_backward_hooks", "_post_accumulate_grad_hooks")
"""The attributes with the hooks of a leaf: those on its gradient, and those that run after `.grad`
is written. (0.2; 2.1)"""


def hooks_on_gradient(x: Tensor) -> tuple[Callable[..., Any], ...]:
    """Return the hooks registered on a leaf by `Tensor.register_hook`. (`Tensor._backward_hooks`,
    0.2)"""
    return tuple((x._backward_hooks or {}).values())


def hooks_after_accumulation(x: Tensor) -> bool:
    """Return whether a leaf has hooks of `register_post_accumulate_grad_hook`.
    (`Tensor._post_accumulate_grad_hooks`, 2.1)"""
    return bool(getattr(x, TENSOR_HOOKS[1], None))


# ---- modules
def parameters_of(module: nn.Module) -> dict[str, Any]:
    """Return the dict of a module's own parameters, in which they can be replaced.
    (`Module._parameters`, 0.1)"""
    return module._parameters


def buffers_of(module: nn.Module) -> dict[str, Tensor | None]:
    """Return the dict of a module's own buffers, in which they can be replaced.
    (`Module._buffers`, 0.1)"""
    return module._buffers


def convert(module: nn.Module, function: Callable[[Tensor], Tensor]) -> None:
    """Apply a function to all parameters and buffers, in place, as `Module.to` does.
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
    """Return the schema of an overload, its arguments and results. (`OpOverload._schema`, 1.12)"""
    return operator._schema


def overload_behind(found: Any) -> Any:
    """Return the overload of an operator made by `torch.library.custom_op`; any other object
    unchanged. (`CustomOpDef._opoverload`, 2.4)"""
    return getattr(found, "_opoverload", found)


def python_behind(found: Any) -> Any:
    """Return the Python function of an operator made by `torch.library.custom_op`; any other object
    unchanged. (`CustomOpDef._init_fn`, 2.4)"""
    return getattr(found, "_init_fn", found)


def body_of(operator: Any) -> Callable[..., Any] | None:
    """Return the Python function of an overload made by `torch.library.custom_op`; None for any
    other. (`torch._library.custom_ops.OPDEFS`, 2.4)"""
    made = getattr(sys.modules.get("torch._library.custom_ops"), "OPDEFS", {})
    return getattr(
        made.get(getattr(getattr(operator, "_schema", None), "name", "")), "_init_fn", None
    )


operator_names = torch._C._dispatch_get_all_op_names
"""Return the names of all registered operators, with their overloads.
(`torch._C._dispatch_get_all_op_names`, 1.12)"""


has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
"""Return whether an operator has an implementation for a dispatch key.
(`torch._C._dispatch_has_kernel_for_dispatch_key`, 1.9)"""


def device_key(kind: str) -> str:
    """Return the dispatch key of a type of device. (`torch._C._dispatch_key_for_device`, 2.0)"""
    return str(torch._C._dispatch_key_for_device(kind))


def kernel(operator: Any, key: str) -> Callable[..., Any]:
    """Return the implementation of an overload for a dispatch key, which bypasses the rest of
    torch's dispatch. (`OpOverload._op_dk`, 2.0)"""
    return partial(operator._op_dk, getattr(torch._C.DispatchKey, key))


def python_kernel(operator: Any, key: str) -> Callable[..., Any] | None:
    """Return the implementation of an overload for a dispatch key if it is written in Python, else
    None. (`torch.library._impls`, 1.11)"""
    registered = f"{operator.name().replace('::', '/')}/{key}" in torch.library._impls
    return kernel(operator, key) if registered else None


def fake_function(name: str) -> Any:
    """Return the function registered as the fake kernel of `library::operator`; None without one.
    (`torch._library.custom_ops`, 2.4; `torch._library.simple_registry`, 2.2)"""
    from torch._library.custom_ops import _maybe_get_opdef
    from torch._library.simple_registry import singleton

    definition = _maybe_get_opdef(name)
    function = definition._abstract_fn if definition is not None else None
    if function is not None:
        return function
    return getattr(singleton.find(name).fake_impl.kernel, "func", None)


GENERATED = "GeneratedBackwardFor_"
"""The prefix of the names of Functions that torch generates for
`torch.library.register_autograd`. (2.4)"""


def generated_for(cls: type) -> tuple[str, Any] | None:
    """Return (library::operator, its registered backward) for a Function that torch generated; None
    for any other. Both are read from the closures of its methods: `op` of forward,
    `info._backward_fn` of backward. (2.4)"""
    if not cls.__name__.startswith(GENERATED):
        return None
    op = _nonlocals(cls.forward, "orig_forward").get("op")  # type: ignore[attr-defined]
    info = _nonlocals(cls.backward, "orig_backward").get("info")  # type: ignore[attr-defined]
    return (op.name(), getattr(info, "_backward_fn", None)) if isinstance(op, Overload) else None  # type: ignore[no-untyped-call]


def added_arguments(cls: type) -> int:
    """Return the number of arguments that torch appends to those of the operator that it generated
    a Function for: one, and another one where there are lists of tensors. (2.4)"""
    if not cls.__name__.startswith(GENERATED):
        return 0
    return 1 + ("orig_backward" in inspect.getclosurevars(cls.backward).nonlocals)  # type: ignore[attr-defined]


def _nonlocals(function: Any, wrapped: str) -> Mapping[str, Any]:
    """Return a function's nonlocals; of an operator that takes lists of tensors, those of the
    `wrapped` function inside it."""
    held = inspect.getclosurevars(function).nonlocals
    return inspect.getclosurevars(held[wrapped]).nonlocals if wrapped in held else held


# ---- switches
def set_cudnn(name: str, value: bool) -> None:
    """Set `torch.backends.cudnn.NAME`, also where torch's test utilities have made these attributes
    read-only. (`torch._C._set_cudnn_NAME`, 0.2)"""
    getattr(torch._C, f"_set_cudnn_{name}")(value)


cudnn_tf32 = torch._C._get_cudnn_allow_tf32
"""Return `torch.backends.cudnn.allow_tf32`. (`torch._C._get_cudnn_allow_tf32`, 1.7)"""


set_cudnn_tf32 = torch._C._set_cudnn_allow_tf32
"""Set `torch.backends.cudnn.allow_tf32`. (`torch._C._set_cudnn_allow_tf32`, 1.7)"""


def has_fp32_precision() -> bool:
    """Return whether this torch has `fp32_precision`. (2.9)"""
    return hasattr(torch._C, "_get_fp32_precision_getter")


def fp32_precision(backend: str, operation: str) -> str:
    """Return the `fp32_precision` of an operation of a backend.
    (`torch._C._get_fp32_precision_getter`, 2.9)"""
    return str(torch._C._get_fp32_precision_getter(backend, operation))


def set_fp32_precision(backend: str, operation: str, precision: str) -> None:
    """Set the `fp32_precision` of an operation of a backend.
    (`torch._C._set_fp32_precision_setter`, 2.9)"""
    torch._C._set_fp32_precision_setter(backend, operation, precision)


# ---- the compiler, whose import takes seconds
def import_compiler() -> None:
    """Import torch's compiler. Raises ImportError. (`torch._dynamo`, 2.0)"""
    import torch._dynamo  # noqa: F401


def leave_compiler_out() -> None:
    """Keep torch's kernels in Python, such as the forward-mode derivative of `x * 2`, from
    importing the compiler on their first call only to disable it: they now disable it if it is
    imported already. (`torch._compile._disable_dynamo`, 2.0; its cache of a function, 2.4)"""
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


def graphs_compiled() -> int:
    """Return the number of graphs that torch.compile has made in this process.
    (`torch._dynamo.utils.counters`, 2.0)"""
    counters = getattr(sys.modules.get("torch._dynamo.utils"), "counters", {})
    return int(counters.get("stats", {}).get("unique_graphs", 0))


def check_compiler() -> None:
    """Raise ImportError or RuntimeError where torch.compile does not run.
    (`torch._dynamo.eval_frame.check_if_dynamo_supported`, 2.0)"""
    from torch._dynamo.eval_frame import check_if_dynamo_supported

    check_if_dynamo_supported()


def reset_compiler() -> None:
    """Empty the compiler's caches. (`torch._dynamo.reset`, 2.0)"""
    import torch._dynamo

    torch._dynamo.reset()


def aot_eager(graph: Any, inputs: Any) -> Any:
    """Run the backend that traces forward and backward and compiles neither.
    (`torch._dynamo.backends.debugging`, 2.0)"""
    from torch._dynamo.backends.debugging import aot_eager

    return aot_eager(graph, inputs)


@contextmanager
def modules_untagged() -> Iterator[None]:
    """Context after which two methods of all modules are restored, which the first compilation of a
    process replaces to mark modules with a generation. (`Module.___needs_generation_tag_patch`,
    2.0)"""
    cls: Any = nn.Module
    before = cls.__init__, cls.__setstate__
    try:
        yield
    finally:
        if (cls.__init__, cls.__setstate__) != before:
            cls.__init__, cls.__setstate__ = before
            # So that a later compilation replaces them again
            cls.___needs_generation_tag_patch = True
