from __future__ import annotations

import pytest
import torch
from torch.autograd import Function

from gradverify.subject.graph import function_classes, function_nodes, tapped


class Scale(Function):
    @staticmethod
    def forward(ctx, x, factor, index):
        return x * factor

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output.float() * 2, None, None


class Child(Scale):
    pass


class CallsParent(Scale):
    @staticmethod
    def backward(ctx, grad_output):
        return Scale.backward(ctx, grad_output * 3)


class WithVjp(Function):
    @staticmethod
    def forward(ctx, x):
        return x * 3

    @staticmethod
    def vjp(ctx, grad_output):
        return grad_output * 3


class Raises(Function):
    @staticmethod
    def forward(ctx, x):
        return x * 3

    @staticmethod
    def backward(ctx, grad_output):
        raise ValueError("no")


def x():
    return torch.ones(2, dtype=torch.float64, requires_grad=True)


def record(output, classes=None):
    sink = []
    tapping = function_classes(function_nodes([output])) if classes is None else classes
    with tapped(tapping, sink, kept=lambda ctx: ()):
        output.sum().backward()
    return sink


def test_an_inherited_backward_is_recorded_for_the_class_in_the_graph_only():
    assert [raw.cls for raw in record(Child.apply(x(), 2.0, None))] == [Child]
    assert "backward" not in Child.__dict__
    both = record(Child.apply(x(), 2.0, None) + Scale.apply(x(), 2.0, None))
    assert sorted(raw.cls.__name__ for raw in both) == ["Child", "Scale"]
    both = record(CallsParent.apply(x(), 2.0, None) + Scale.apply(x(), 2.0, None))
    assert sorted((raw.cls.__name__, raw.returned[0][0].item()) for raw in both) == [
        ("CallsParent", 6.0),
        ("Scale", 2.0),
    ]


def test_everything_is_restored_when_backward_raises():
    before = {cls: dict(cls.__dict__) for cls in (Raises, Scale, Child)}
    output = Raises.apply(Child.apply(x(), 2.0, None)) + Scale.apply(x(), 2.0, None)
    with pytest.raises(ValueError, match="no"):
        record(output)
    assert {cls: dict(cls.__dict__) for cls in before} == before


@torch.library.custom_op("gradverify_graph::cube", mutates_args=())
def cube(x: torch.Tensor) -> torch.Tensor:
    return x**3


cube.register_autograd(
    lambda ctx, g: 3 * ctx.saved_tensors[0] ** 2 * g,
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(inputs[0]),
)


def test_a_function_or_a_registered_operator_anywhere_in_the_graph_has_a_node_and_torchs_operators_have_none():
    x = torch.ones(2, requires_grad=True)
    assert function_nodes([(WithVjp.apply(x.sin()) * 2).sum()])
    assert function_nodes([x.sin(), cube(x).sum()])
    assert not function_nodes([x.sin() @ x, torch.nn.functional.gelu(x), x.cumsum(0)])
    assert not function_nodes([torch.ones(2)])


@pytest.mark.filterwarnings("ignore")
def test_a_node_whose_c_class_is_not_torchs_own_is_a_custom_functions():
    """As are those of C++ Functions. TorchScript's fused graph is one that needs no compiler."""
    fused = torch.jit.script(
        torch.nn.Sequential(torch.nn.Sigmoid(), torch.nn.Tanh(), torch.nn.Sigmoid())
    )
    x = torch.ones(3, requires_grad=True)
    for _ in range(4):
        y = fused(x)
    assert type(y.grad_fn).__name__ == "CppFunction"
    assert function_nodes([y * 2])
