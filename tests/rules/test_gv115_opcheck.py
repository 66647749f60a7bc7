"""Operators that are not what their registration says, as torch.library.opcheck finds them, and
right ones of every form.

Each is also shown to opcheck itself, which has to say the same.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from live import check, codes, fixed, randn
from torch import Tensor
from torch.autograd import Function

CHEAP = ("test_schema", "test_autograd_registration", "test_faketensor")
LIBRARY = "gradverify_opcheck"
X = randn(3, 2)
low = torch.library.Library(LIBRARY, "FRAGMENT")


class CubeFunction(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return 3 * ctx.saved_tensors[0] ** 2 * g


def cube(x: Tensor) -> Tensor:
    return x**3


def cube_by_columns(x: Tensor) -> Tensor:
    return (x**3).t().contiguous().t()


def asks_a_value(ctx: Any, g: Tensor) -> Tensor:
    (x,) = ctx.saved_tensors
    return torch.zeros_like(x) if float(g.sum()) == 0.123 else 3 * x**2 * g


def another_under_tracing(ctx: Any, g: Tensor) -> Tensor:
    (x,) = ctx.saved_tensors
    return (2 if torch._guards.detect_fake_mode(g) is not None else 3) * x**2 * g


def operator(
    name: str,
    function: Callable[..., Any] = cube,
    fake: Callable[..., Any] | None = torch.empty_like,
    backward: Callable[..., Any] = CubeFunction.backward,
    writes: tuple[str, ...] = (),
) -> Any:
    made = torch.library.custom_op(f"{LIBRARY}::{name}", function, mutates_args=writes)
    if fake is not None:
        made.register_fake(fake)
    made.register_autograd(
        backward, setup_context=lambda ctx, inputs, output: ctx.save_for_backward(inputs[0])
    )
    return made


def registered(name: str, schema: str, **kernels: Callable[..., Any]) -> Any:
    """By torch.library.Library, a kernel for each dispatch key."""
    low.define(f"{name}{schema}")
    for key, kernel in kernels.items():
        low.impl(name, kernel, key)
    return getattr(getattr(torch.ops, LIBRARY), name).default


def ran(result: Any) -> Any:
    return next(run for run in result.rules if run.code == "GV115")


def found(result: Any) -> list[Any]:
    return [finding for finding in result.findings if finding.code == "GV115"]


def of_opcheck(made: Any, *arguments: Any, tests: Sequence[str] = CHEAP) -> set[str]:
    """Those of the tests that torch.library.opcheck says fail."""
    said = torch.library.opcheck(made, arguments, test_utils=tests, raise_exception=False)
    return {test for test, outcome in said.items() if outcome != "SUCCESS"}


@dataclass(frozen=True)
class Fault:
    test: str
    says: str
    made: Callable[[], Any]
    severity: str = "error"


def sines_in_place(x: Tensor) -> Tensor:
    x.sin_()
    return x**3


FAULTS = {
    "shape": Fault(
        "test_faketensor",
        "it returns shape [3, 2], its fake kernel says [3]",
        lambda: operator("shape", fake=lambda x: x[:, 0].clone()),
    ),
    "dtype": Fault(
        "test_faketensor",
        "it returns dtype float64, its fake kernel says float32",
        lambda: operator("dtype", fake=lambda x: x.float()),
    ),
    "strides": Fault(
        "test_faketensor",
        "it returns strides (1, 3), its fake kernel says (2, 1)",
        lambda: operator("strides", cube_by_columns, lambda x: x.new_empty(x.shape)),
        "warning",
    ),
    "values": Fault(
        "test_faketensor",
        "its fake kernel raises where the operator does not",
        lambda: operator("values", fake=lambda x: x.new_empty(int(x.sum()))),
        "warning",
    ),
    "arguments": Fault(
        "test_faketensor",
        "its fake kernel raises where the operator does not",
        lambda: operator("arguments", fake=lambda: None),
        "warning",
    ),
    "backend": Fault(
        "test_autograd_registration",
        "it returns tensors with a graph, and has no kernel at an autograd key",
        lambda: registered(
            "backend", "(Tensor x) -> Tensor", CPU=CubeFunction.apply, Meta=torch.empty_like
        ),
        "warning",
    ),
    "alias": Fault(
        "test_schema",
        "it returns memory of its argument `x`, and its schema does not say so",
        lambda: registered(
            "alias",
            "(Tensor x) -> Tensor",
            CPU=lambda x: x.detach().view(-1),
            Meta=lambda x: x.new_empty(x.numel()),
            AutogradCPU=_flattened,
        ),
        "warning",
    ),
    "backward": Fault(
        "test_aot_dispatch_dynamic",
        "AOT dispatch raises where the operator does not",
        lambda: operator("backward", backward=asks_a_value),
        "warning",
    ),
    "numbers": Fault(
        "test_aot_dispatch_dynamic",
        "under AOT dispatch its gradients are other numbers than without",
        lambda: operator("numbers", backward=another_under_tracing),
    ),
}


class _Flat(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        with torch._C._AutoDispatchBelowAutograd():
            return getattr(torch.ops, LIBRARY).alias.default(x)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return g.view(3, 2)


def _flattened(x: Tensor) -> Tensor:
    return _Flat.apply(x)


@pytest.mark.parametrize("name", FAULTS)
def test_what_fails_a_test_of_opcheck_is_one_finding(name):
    fault = FAULTS[name]
    made = fault.made()
    result = check(made, X, second_order=False)
    (finding,) = found(result)
    assert (
        f"{LIBRARY}::{name} fails opcheck's {fault.test}: {fault.says} (torch: " in finding.message
    )
    assert (finding.severity, "\n" in finding.message, bool(finding.hint)) == (
        fault.severity,
        False,
        True,
    )
    assert of_opcheck(made, X.clone().requires_grad_(), tests=[fault.test]) == {fault.test}
    assert all("torch" not in frame.file for frame in finding.frames)
    if fault.test == "test_faketensor":
        assert [frame.file for frame in finding.frames] == [__file__]


def test_an_argument_that_is_written_to_without_a_word_is_named():
    made = operator("writes", sines_in_place)
    (finding,) = found(check(made, X))
    assert "it writes into its argument `x`, and its schema does not say so" in finding.message
    assert "test_schema" in of_opcheck(made, X.clone().requires_grad_())


class Bare(CubeFunction):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        with torch._C._AutoDispatchBelowAutograd():
            return getattr(torch.ops, LIBRARY).bare.default(x)


def test_a_missing_fake_kernel_is_said_and_a_finding_where_opcheck_is_asked_for():
    made = operator("eager_only", fake=None)
    assert "no fake kernel, so that torch.compile refuses it" in ran(check(made, X)).reason
    assert codes(check(made, X)) == set()
    (finding,) = found(check(made, X, opcheck=True))
    assert (finding.severity, "it has no fake kernel" in finding.message) == ("error", True)
    bare = registered("bare", "(Tensor x) -> Tensor", CPU=cube, Autograd=lambda x: Bare.apply(x))
    assert "no fake kernel, so that torch.compile refuses it" in ran(check(bare, X)).reason


def scaled(x: Tensor, scale: float, power: int = 1) -> Tensor:
    return x**power * scale


def two(x: Tensor) -> tuple[Tensor, Tensor]:
    return x**3, x.sum(0)


def right_two() -> Any:
    made = torch.library.custom_op(f"{LIBRARY}::two", two, mutates_args=())
    made.register_fake(lambda x: (torch.empty_like(x), x.new_empty(x.shape[1:])))
    made.register_autograd(
        lambda ctx, a, b: 3 * ctx.saved_tensors[0] ** 2 * a + b.expand(3, 2),
        setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
    )
    return made


def right_scaled() -> Any:
    made = torch.library.custom_op(f"{LIBRARY}::scaled", scaled, mutates_args=())
    made.register_fake(lambda x, scale, power=1: torch.empty_like(x))
    made.register_autograd(
        lambda ctx, g: (g * ctx.scale, None, None),
        setup_context=lambda ctx, inputs, output: setattr(ctx, "scale", inputs[1]),
    )
    return made


class Logged(Function):
    """Its kernel counts its calls in an argument, as its schema says."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, calls: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        with torch._C._AutoDispatchBelowAutograd():
            return getattr(torch.ops, LIBRARY).logged.default(x, calls)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:
        return CubeFunction.backward(ctx, g), None


def logged(x: Tensor, calls: Tensor) -> Tensor:
    calls.add_(1)
    return x**3


def right_mutable() -> Any:
    return registered(
        "logged",
        "(Tensor x, Tensor(a!) calls) -> Tensor",
        CPU=logged,
        Meta=lambda x, calls: torch.empty_like(x),
        Autograd=Logged.apply,
    )


RIGHT = {
    "fake kernel": (lambda: operator("right"), (X,)),
    "several outputs": (right_two, (X,)),
    "plain arguments": (right_scaled, (X, 2.5)),
    "declared writes": (right_mutable, (X, fixed(torch.zeros(1)))),
    "composite": (
        lambda: registered(
            "composite", "(Tensor x) -> Tensor", CompositeImplicitAutograd=CubeFunction.apply
        ),
        (X,),
    ),
}


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_operator_is_left_alone(name):
    make, arguments = RIGHT[name]
    made = make()
    assert (
        of_opcheck(
            made, *(getattr(a, "value", a) for a in (X.clone().requires_grad_(), *arguments[1:]))
        )
        == set()
    )
    result = check(made, *arguments, opcheck=True)
    assert (ran(result).status, ran(result).reason, found(result)) == ("ran", None, [])


def test_it_says_why_it_does_not_apply(monkeypatch):
    assert ran(check(torch.ops.aten.sin.default, X)).reason == "it is an operator of torch's own"
    assert ran(check(CubeFunction, X)).reason == "it is no registered operator"
    made = operator("asked")
    assert ran(check(made, X, opcheck=False)).reason == "the spec says `opcheck: false`"
    monkeypatch.setitem(sys.modules, "torch._dynamo", None)
    assert "torch's compiler cannot be imported" in ran(check(made, X)).reason
