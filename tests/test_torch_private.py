"""Each private part of torch that the package uses, held against the torch that is installed: a
failing test says what another torch changed."""

from __future__ import annotations

import ast
import functools
import inspect
import re
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import FunctionMeta
from torch.overrides import TorchFunctionMode

from gradverify import torch_private as private


class Doubles(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return 2 * x

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return 2 * g


class DoublesToo(Function):
    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return 2 * x

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        raise AssertionError("setup_context of a Function that is replaced")

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return 2 * g


class Own(Doubles):
    @classmethod
    def apply(cls, x: Tensor) -> Any:
        return super().apply(x)


doubles = Doubles.apply  # bound before anything is hooked


def leaf(*shape: int) -> Tensor:
    return torch.ones(shape, dtype=torch.float64, requires_grad=True)


def test_the_apply_of_a_function_leads_to_it():
    assert private.applied(doubles) is Doubles
    assert private.applied(Own.apply) is Own
    assert [private.applied(each) for each in (Doubles, torch.sin, leaf().sin, len, None)] == [
        None
    ] * 5


@pytest.mark.parametrize(
    "apply",
    [doubles, Doubles.apply, DoublesToo.apply, Own.apply],
    ids=["bound before", "ctx", "setup_context", "an apply of its own"],
)
def test_every_apply_is_answered_with_the_arguments_of_forward_and_makes_no_node(apply):
    x, seen = leaf(2), list[Any]()

    def instead(cls: type) -> Any:
        seen.append((cls, torch.is_grad_enabled()))
        return lambda *arguments: (
            seen.append((arguments, torch.is_grad_enabled())),
            3 * arguments[0],
        )[1]

    with private.every_apply(instead):
        y = apply(x)
    assert (
        seen[0] == (getattr(apply, "__self__", None), True)
        and seen[1][0][0] is x
        and seen[1][1] is False
    )
    assert torch.equal(y, 3 * x) and not y.requires_grad


def test_a_function_that_is_not_answered_is_applied_and_the_hook_goes_and_is_for_one_thread():
    x, elsewhere = leaf(2), list[Any]()
    with private.every_apply(lambda cls: None):
        assert doubles(x).grad_fn._forward_cls is Doubles
    with private.every_apply(lambda cls: lambda x: 3 * x):
        thread = threading.Thread(target=lambda: elsewhere.append(doubles(leaf(2))))
        thread.start()
        thread.join()
        torch.testing.assert_close(elsewhere[0], 2 * x)
    assert "__getattribute__" not in vars(FunctionMeta)
    assert doubles(x).grad_fn._forward_cls is Doubles


def test_every_apply_is_watched_also_by_a_name_bound_before_until_that_ends():
    x, seen, here = leaf(2), list[Any](), sys.modules[__name__]
    before = vars(Function).get("apply")
    end = private.watch_apply(lambda cls, *given: seen.append((cls, *given)))
    try:
        y = here.doubles(x)
        Own.apply(x)
        compiled = torch.compile(Doubles.apply, backend="eager", fullgraph=True)
        graphs = private.graphs_compiled()
        torch.testing.assert_close(compiled(x), 2 * x)
        assert private.graphs_compiled() == graphs + 1
    finally:
        end()
    assert y.grad_fn._forward_cls is Doubles and torch.equal(y, 2 * x)
    mine = [(cls, arguments) for cls, arguments, _ in seen if cls in (Doubles, Own)]
    assert [cls for cls, _ in mine] == [Doubles, Own] and all(each[0] is x for _, each in mine)
    doubles(x)
    assert vars(Function).get("apply") is before and here.doubles == Doubles.apply
    assert sum(cls is Doubles for cls, *_ in seen) == 1


@pytest.mark.parametrize("listed", [False, True])
def test_the_arguments_of_an_operator_are_those_of_its_call(listed):
    seen, name = list[Any](), f"private_arguments::op{listed}"
    kind = "Tensor[]" if listed else "Tensor"
    # An operator of lists keeps the apply that Functions have when it is registered
    end = private.watch_apply(lambda cls, arguments, _: seen.append((cls, arguments)))
    torch.library.define(name, f"({kind} x, int n, *, float k) -> Tensor")
    torch.library.impl(name, "CPU", lambda x, n, *, k: (x[0] if listed else x) * n * k)
    torch.library.register_autograd(
        name,
        lambda ctx, g: ([g, None] if listed else g, None),
        setup_context=lambda ctx, inputs, keyword_only_inputs, output: None,
    )
    x: Any = [leaf(2), leaf(2)] if listed else leaf(2)
    try:
        getattr(torch.ops.private_arguments, f"op{listed}")(x, 3, k=0.5)
    finally:
        end()
    cls, arguments = seen[-1]
    assert cls.__name__.startswith(private.GENERATED)
    given, keywords = private.operator_arguments(arguments)
    assert keywords == {"k": 0.5} and given[1] == 3
    assert given[0] is x if not listed else given[0][1] is x[1]


@pytest.mark.parametrize("cls", [Doubles, Own])
def test_while_an_apply_is_answered_torch_itself_can_apply_the_same_function(cls):
    asked = list[type]()

    def instead(cls: type) -> Any:
        asked.append(cls)
        return None if len(asked) > 1 else lambda x: (inner.append(with_gradients(x)), 3 * x)[1]

    def with_gradients(x: Tensor) -> Any:
        with torch.enable_grad():
            return private.apply(cls, (x,))

    inner = list[Any]()
    with private.every_apply(instead):
        y = cls.apply(leaf(2))
    assert asked == [cls, cls] and not y.requires_grad and inner[0].grad_fn._forward_cls is cls
    assert torch.equal(y, 3 * leaf(2)) and torch.equal(inner[0], 2 * leaf(2))


def test_the_engine_runs_backward_under_the_function_modes_that_are_on():
    seen = list[Any]()

    class Mode(TorchFunctionMode):
        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            return func(*args, **(kwargs or {}))

    x = leaf(2)
    y = x.exp()
    y.register_hook(lambda g: seen.append(len(private.function_modes())))
    with Mode():
        found = private.gradients([y], [x, leaf(2)], [torch.ones_like(y)])
    assert found[1] is None and seen == [1] and not private.function_modes()
    torch.testing.assert_close(found[0], x.exp().detach())


def test_transforms_of_functions_are_noticed():
    seen = list[bool]()
    torch.func.grad(lambda x: (seen.append(private.transforms_active()), x.sum())[1])(torch.ones(2))
    assert seen == [True] and not private.transforms_active()


# ---- nodes, hooks and modes
def test_modes_are_listed_and_popped():
    assert (private.function_modes(), private.dispatch_modes()) == ([], [])
    mode, below = TorchFunctionMode(), private.TorchDispatchMode()
    mode.__enter__()
    below.__enter__()
    assert private.function_modes() == [mode] and private.dispatch_modes() == [below]
    with private.without_modes():
        assert private.dispatch_modes() == []
    private.pop_function_mode()
    private.pop_dispatch_mode()
    assert (private.function_modes(), private.dispatch_modes()) == ([], [])


def test_no_operation_is_overridden_where_that_is_switched_off():
    class Refuses(TorchFunctionMode):
        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            raise AssertionError(func)

    with Refuses(), private.without_function_modes():
        leaf(2).detach()


def test_a_dispatch_mode_sees_operations_and_their_schemas():
    seen = list[Any]()

    class Sees(private.TorchDispatchMode):
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            seen.append(func)
            return func(*args, **(kwargs or {}))

    x = leaf(2).detach()
    with Sees():
        x.log_softmax(0).add_(1).view(1, 2)[0, 0].item()
    assert (
        private.LOG_SOFTMAX in seen
        and private.READ in seen
        and all(isinstance(func, private.Overload) for func in seen)
    )
    by_name = {func.name(): private.schema(func) for func in seen}
    assert by_name["aten::add_.Tensor"].is_mutable and not by_name["aten::_log_softmax"].is_mutable
    assert (
        by_name["aten::view"].returns[0].alias_info is not None
        and by_name["aten::_log_softmax"].returns[0].alias_info is None
    )
    (written,) = (
        each.name
        for each in by_name["aten::add_.Tensor"].arguments
        if each.alias_info is not None and each.alias_info.is_write
    )
    assert written == "self" and isinstance(torch.ops.aten.add, private.OverloadPacket)


def test_a_node_names_its_function_and_what_it_expects():
    y = Doubles.apply(leaf(2, 3).sin())
    assert private.function_class(y.grad_fn) is Doubles
    (sine,) = (node for node, _ in y.grad_fn.next_functions)
    assert private.function_class(sine) is None
    (expected,) = private.expected_gradients(sine)
    assert (tuple(expected.shape), expected.dtype, expected.device.type) == (
        (2, 3),
        torch.float64,
        "cpu",
    )


def test_behind_an_undefined_gradient_there_is_none():
    class Given(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.set_materialize_grads(False)
            return x * 1

        @staticmethod
        def backward(ctx: Any, g: Tensor | None) -> Tensor | None:
            seen.append(g)
            return None

    seen = list[Any]()
    x = leaf(2)
    y = private.undefined(Given.apply(x))
    assert torch.autograd.grad(y, x, torch.ones_like(y), allow_unused=True) == (None,) and seen == [
        None
    ]


def test_a_backward_knows_that_it_is_one():
    seen = list[bool]()
    y = leaf(2).exp()
    y.register_hook(lambda g: seen.append(private.inside_backward()))
    y.sum().backward()
    assert seen == [True] and not private.inside_backward()


def test_the_threads_of_backward_are_switched():
    before = private.backward_is_threaded()
    private.set_backward_threaded(not before)
    assert private.backward_is_threaded() is not before
    private.set_backward_threaded(before)


@pytest.mark.skipif(
    not hasattr(torch._C._autograd, "_top_saved_tensors_default_hooks"), reason="torch before 2.8"
)
def test_hooks_on_saved_tensors_are_seen_and_popped():
    assert private.saved_tensors_hooks() is None
    torch.autograd.graph.saved_tensors_hooks(lambda x: x, lambda x: x).__enter__()
    assert private.saved_tensors_hooks() is not None
    private.pop_saved_tensors_hooks()
    assert private.saved_tensors_hooks() is None


# ---- tensors and modules
def test_writes_are_counted_and_can_be_hidden():
    x = torch.zeros(2)
    before = private.version(x)
    x.add_(1)
    assert private.version(x) == before + 1
    with private.version_preserved(x):
        x.add_(1)
    assert private.version(x) == before + 1


def test_views_and_zeros_without_memory():
    x = torch.arange(4.0)
    assert private.is_view(x[1:]) and not private.is_view(x)
    z = torch.ones(2, dtype=torch.complex64, requires_grad=True)
    assert private.is_zerotensor(torch._efficientzerotensor(2)) and not private.is_zerotensor(z)


def test_jagged_tensors_may_have_holes():
    jagged = torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(1, 3)], layout=torch.jagged)
    narrowed = torch.nested.narrow(
        torch.ones(2, 3, 2), 1, torch.tensor([0, 1]), torch.tensor([2, 1]), layout=torch.jagged
    )
    assert [private.has_holes(each) for each in (jagged, narrowed, jagged.transpose(1, 2))] == [
        False,
        True,
        True,
    ]


def test_a_tensor_under_a_transform_is_known():
    seen = list[bool]()
    torch.func.vmap(lambda x: (seen.append(private.is_transformed(x)), x)[1])(torch.ones(2))
    assert seen == [True] and not private.is_transformed(torch.ones(2))


def test_kinds_of_tensors():
    assert torch.ones(2).to_mkldnn().layout is private.MKLDNN
    with torch._subclasses.FakeTensorMode():
        assert isinstance(torch.ones(2), private.FakeTensor)


def test_hooks_of_a_leaf():
    x, hook = leaf(2), lambda g: g
    assert private.hooks_on_gradient(x) == () and not private.hooks_after_accumulation(x)
    x.register_hook(hook)
    x.register_post_accumulate_grad_hook(lambda x: None)
    assert private.hooks_on_gradient(x) == (hook,) and private.hooks_after_accumulation(x)
    assert all(getattr(x, name) for name in private.TENSOR_HOOKS)


def test_buffers_are_exchanged_and_all_tensors_of_a_module_converted():
    module = nn.BatchNorm1d(2)
    private.buffers_of(module)["running_mean"] = torch.full((2,), 3.0)
    assert module.running_mean.tolist() == [3, 3]
    private.parameters_of(module)["weight"] = torch.full((2,), 2.0)
    assert module.weight.tolist() == [2, 2]
    private.convert(module, lambda x: x.double() if x.is_floating_point() else x)
    assert {x.dtype for x in module.parameters()} == {
        torch.float64
    } and module.running_mean.dtype == torch.float64


# ---- registered operators
@pytest.fixture(scope="module")
def library() -> Iterator[Any]:
    with torch.library._scoped_library("gradverify_private", "FRAGMENT") as found:
        yield found


def sine(x: Tensor) -> Tensor:
    return x.sin()


def slope(ctx: Any, g: Tensor) -> Tensor:
    return g


@pytest.fixture(scope="module")
def custom(library) -> Any:
    made = torch.library.custom_op("gradverify_private::sine", mutates_args=())(sine)
    made.register_fake(torch.empty_like)
    made.register_autograd(slope)
    return made


def test_the_parts_of_a_custom_operator(custom):
    overload = private.overload_behind(custom)
    assert isinstance(overload, private.Overload) and private.python_behind(custom) is sine
    assert [private.overload_behind(sine), private.python_behind(sine)] == [sine, sine]
    assert (
        private.body_of(custom._opoverload) is sine
        and private.body_of(torch.ops.aten.sin.default) is None
    )
    assert private.fake_function("gradverify_private::sine") is torch.empty_like
    assert "gradverify_private::sine" in {
        name.partition(".")[0] for name in private.operator_names()
    }
    cls = private.function_class(custom(leaf(2)).grad_fn)
    assert cls is not None and private.generated_for(cls) == ("gradverify_private::sine", slope)
    assert private.generated_for(Doubles) is None


def test_the_implementation_of_an_operator_in_python_is_found(library):
    library.define("double(Tensor x) -> Tensor")
    library.impl("double", lambda x: 2 * x.detach(), "CPU")
    overload = torch.ops.gradverify_private.double.default
    assert private.device_key("cpu") == "CPU" and private.device_key("cuda") == "CUDA"
    assert private.has_kernel(overload.name(), "CPU") and not private.has_kernel(
        overload.name(), "CUDA"
    )
    kernel = private.python_kernel(overload, "CPU")
    assert kernel is not None and kernel(torch.ones(2)).tolist() == [2, 2]
    assert private.kernel(torch.ops.aten.neg.default, "CPU")(torch.ones(2)).tolist() == [-1, -1]
    assert private.python_kernel(torch.ops.aten.sin.default, "CPU") is None


# ---- switches and the compiler
def test_switches_of_cudnn_and_float32_are_read_and_set():
    before = torch.backends.cudnn.benchmark
    private.set_cudnn("benchmark", not before)
    assert torch.backends.cudnn.benchmark is not before
    private.set_cudnn("benchmark", before)
    if private.has_fp32_precision():
        old = private.fp32_precision("mkldnn", "matmul")
        private.set_fp32_precision("mkldnn", "matmul", "ieee")
        assert private.fp32_precision("mkldnn", "matmul") == "ieee"
        private.set_fp32_precision("mkldnn", "matmul", old)
    on = private.cudnn_tf32()
    private.set_cudnn_tf32(on)
    assert private.cudnn_tf32() is on


def test_the_compiler():
    private.import_compiler()
    private.check_compiler()
    seen = list[Any]()

    def backend(graph: Any, inputs: Any) -> Any:
        seen.append(graph)
        return private.aot_eager(graph, inputs)

    before = nn.Module.__init__
    with private.modules_untagged():
        private.reset_compiler()
        x = leaf(2)
        torch.compile(lambda x: x.sin() * 2, backend=backend)(x).sum().backward()
        private.reset_compiler()
    assert seen and nn.Module.__init__ is before
    torch.testing.assert_close(x.grad, 2 * x.detach().cos())


def test_kernels_that_turn_the_compiler_off_do_so_where_it_is_imported():
    private.import_compiler()
    x = torch.ones(2, device="meta")
    turned = inspect.getclosurevars(torch._refs.mul.__wrapped__).nonlocals["fn"]
    private.leave_compiler_out()
    with patch.dict(sys.modules):
        del sys.modules["torch._dynamo"]
        assert torch._refs.mul(x, 2).shape == (2,) and "torch._dynamo" not in sys.modules
    assert turned.__dynamo_disable.func is private._without_compiler
    assert torch._refs.mul(x, 2).shape == (2,)
    assert torch._dynamo.eval_frame.innermost_fn(turned.__dynamo_disable) is turned


# ---- nobody else
PACKAGE = Path(private.__file__).parent
# Names in a user's source or messages, or to import
TEXTS = {"source/functions.py", "running/preload.py"}
DOTTED = re.compile(r"torch(\.\w+)*\._[a-zA-Z]\w*")


@functools.cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def reached(path: Path) -> set[str]:
    """Every private name that a file takes from anything but its own objects: attributes, and texts
    for getattr."""
    tree = tree_of(path)
    own = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    texts = {
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    attributes = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and not (isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"))
    }
    return {
        name
        for name in texts | attributes
        if name.startswith("_") and name.isidentifier() and not name.startswith("__")
    } - own


def chained(node: ast.expr) -> str:
    """`a.b.c`; nothing of what does not begin with a name."""
    if isinstance(node, ast.Attribute):
        before = chained(node.value)
        return f"{before}.{node.attr}" if before else ""
    return node.id if isinstance(node, ast.Name) else ""


def dotted(path: Path) -> set[str]:
    """Every dotted name of torch in a file that has a private part."""
    tree = tree_of(path)
    names = {chained(node) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {each.name for each in node.names}
        elif isinstance(node, ast.ImportFrom):
            names |= {f"{node.module}.{each.name}" for each in node.names}
    return {name for name in names if DOTTED.match(name)}


def test_nothing_else_reaches_into_torch():
    known = reached(Path(private.__file__))
    assert {"_forward_cls", "_is_view", "_schema"} <= known and "torch.utils._pytree" in dotted(
        Path(private.__file__)
    )
    others = [
        path
        for path in sorted(PACKAGE.rglob("*.py"))
        if path != Path(private.__file__) and path.relative_to(PACKAGE).as_posix() not in TEXTS
    ]
    found = {
        path.relative_to(PACKAGE).as_posix(): names
        for path in others
        if (names := (reached(path) & known) | dotted(path))
    }
    assert not found, f"private parts of torch, which belong into torch_private.py: {found}"
