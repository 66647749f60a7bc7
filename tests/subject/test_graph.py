from __future__ import annotations

import pytest
import torch
from torch.autograd import Function

from gradverify.subject.graph import function_classes, function_nodes, gradient_numbers, tapped, watched


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
    with tapped(function_classes([output]) if classes is None else classes, sink):
        output.sum().backward()
    return sink


def test_an_inherited_backward_is_recorded_for_the_class_in_the_graph_only():
    assert [raw.cls for raw in record(Child.apply(x(), 2.0, None))] == [Child]
    assert "backward" not in Child.__dict__
    both = record(Child.apply(x(), 2.0, None) + Scale.apply(x(), 2.0, None))
    assert sorted(raw.cls.__name__ for raw in both) == ["Child", "Scale"]
    both = record(CallsParent.apply(x(), 2.0, None) + Scale.apply(x(), 2.0, None))
    assert sorted((raw.cls.__name__, raw.returned[0][0].item()) for raw in both) == [("CallsParent", 6.0), ("Scale", 2.0)]


def test_everything_is_restored_when_backward_raises():
    before = {cls: dict(cls.__dict__) for cls in (Raises, Scale, Child)}
    output = Raises.apply(Child.apply(x(), 2.0, None)) + Scale.apply(x(), 2.0, None)
    with pytest.raises(ValueError, match="no"):
        record(output)
    assert {cls: dict(cls.__dict__) for cls in before} == before


class Writes(torch.autograd.Function):
    """Changes its second and third argument, and returns the third."""

    @staticmethod
    def forward(ctx, x, y, z):
        y.data.add_(1)
        z.mul_(2)
        ctx.mark_dirty(z)
        return x * 1, z

    @staticmethod
    def backward(ctx, first, second):
        return first, None, second


class WritesWithoutContext(torch.autograd.Function):
    @staticmethod
    def forward(number, y):
        y.data.add_(number)
        return y * 2

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, grad_output):
        return None, grad_output * 2


def test_arguments_that_a_forward_writes_and_does_not_return_are_left_behind():
    seen, own = [], Writes.__dict__["forward"]
    with watched([Writes, WritesWithoutContext], seen):
        Writes.apply(x(), torch.zeros(1), torch.ones(1))
        WritesWithoutContext.apply(3, torch.zeros(1, requires_grad=True))
    assert [(each.cls, each.place, each.differentiable, each.change) for each in seen] == [
        (Writes, 1, False, (0, 0.0, 1.0)), (WritesWithoutContext, 1, True, (0, 0.0, 3.0))]
    assert Writes.__dict__["forward"] is own


@torch.library.custom_op("gradverify_graph::cube", mutates_args=())
def cube(x: torch.Tensor) -> torch.Tensor:
    return x**3


cube.register_autograd(lambda ctx, g: 3 * ctx.saved_tensors[0] ** 2 * g, setup_context=lambda ctx, inputs, output: ctx.save_for_backward(inputs[0]))


def test_a_function_or_a_registered_operator_anywhere_in_the_graph_has_a_node_and_torchs_operators_have_none():
    x = torch.ones(2, requires_grad=True)
    assert function_nodes([(WithVjp.apply(x.sin()) * 2).sum()])
    assert function_nodes([x.sin(), cube(x).sum()])
    assert not function_nodes([x.sin() @ x, torch.nn.functional.gelu(x), x.cumsum(0)])
    assert not function_nodes([torch.ones(2)])


@pytest.mark.filterwarnings("ignore")
def test_a_node_whose_c_class_is_not_torchs_own_is_a_custom_functions():
    """As are those of C++ Functions. TorchScript's fused graph is one that needs no compiler."""
    fused = torch.jit.script(torch.nn.Sequential(torch.nn.Sigmoid(), torch.nn.Tanh(), torch.nn.Sigmoid()))
    x = torch.ones(3, requires_grad=True)
    for _ in range(4):
        y = fused(x)
    assert type(y.grad_fn).__name__ == "CppFunction"
    assert function_nodes([y * 2])
