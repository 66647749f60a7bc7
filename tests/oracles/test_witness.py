"""Torch's own derivative of a forward. Faults stood for: a derivative told where the graph is not the whole function (each way to leave it), one that
is absent where nothing left the graph, a Function inside whose own backward is used, and a call that leaves traces in what the function keeps."""

from __future__ import annotations

import threading
from typing import ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import FunctionMeta

from gradverify.oracles.witness import Absent, Witness, witness
from tests import live

X = live.randn(4, seed=3)


def function(forward):
    """A Function of that forward, whose backward is wrong."""
    class Wrong(Function):
        @staticmethod
        def forward(ctx, *arguments):
            return forward(*arguments)

        @staticmethod
        def backward(ctx, grad_output):
            return grad_output * 7

    return Wrong


def jacobian(checked, *inputs, **changes):
    """By the witness, [outputs, inputs]; or the reason why it is absent."""
    seen = live.evidence(checked, *inputs, **changes)
    with witness(seen.subject, seen.forward.checked, seen.outputs, seen.wishes) as found:
        if isinstance(found, Absent):
            return found.reason
        return torch.stack([torch.from_numpy(found.row(place, element)) for place, y in enumerate(seen.outputs) for element in range(y.numel())])


def in_pieces(x):
    pieces = torch.zeros_like(x)
    pieces[:2] = x[:2].exp()
    pieces[2:].copy_(x[2:].sin())
    return pieces * pieces


STAYS = {
    "one operation": (torch.exp, torch.exp),
    "a mask": (lambda x: x * (x > 0), lambda x: torch.where(x > 0, 1.0, 0.0)),
    "in place, into the input": (lambda x: x.mul_(2).sin_(), lambda x: 2 * (2 * x).cos()),
    "in pieces": (in_pieces, lambda x: torch.cat([2 * (2 * x[:2]).exp(), (2 * x[2:]).sin()])),
    "a constant that cancels": (lambda x: _cancelled(x, x.detach()), lambda x: torch.ones_like(x)),
    "a large number by the size": (lambda x: _cancelled(x, 2.0 ** (x.detach().abs() * 30).ceil()), lambda x: torch.ones_like(x)),
    "a maximum that cancels": (lambda x: _cancelled(x.exp(), x.amax().detach().exp()), lambda x: x.exp()),
    "an integer that stays": (lambda x: x * (10 + x.round().long()), lambda x: 10 + x.round()),
}

LEAVES = {
    "NumPy": (lambda x: torch.from_numpy(np.sin(x.detach().numpy())), "detach"),
    "detach": (lambda x: x * x.detach(), "detach"),
    "item": (lambda x: x * x.sum().item(), "item"),
    "no_grad": (lambda x: x + torch.no_grad()(torch.exp)(x), "exp under no_grad"),
    "integers": (lambda x: x + (x * 2**20).long().double() / 2**20, "long"),
    "rounded": (lambda x: x + (x * 1e4).round(), "round"),
    "bits": (lambda x: x + 1e-9 * (x.view(torch.int64) % 1024).double(), "view"),
    "a write into data": (lambda x: _written(x, lambda y: y.data.mul_(3)), "does not see"),
    "a write under no_grad": (lambda x: _written(x, torch.no_grad()(lambda y: y.mul_(3))), "under no_grad"),
    "a hook": (lambda x: _written(x, lambda y: y.register_hook(lambda g: 2 * g) if y.requires_grad else None), "register_hook"),
    "a branch by value": (lambda x: sum((x * k for k in range(int(1e5 * x.sum().abs()) % 97)), x), ""),
    "a scripted function": (lambda x: scripted(x), "does not see"),
    "an operator with a backward of its own": (lambda x: sine(x), "sine"),
    "inference mode": (lambda x: torch.inference_mode()(torch.sin)(x).clone(), "a tensor of a kind of its own"),
    "a constant that cancels in part": (lambda x: _cancelled(x, x.detach()) + 1e-9 * x.detach(), "detach"),
    "a constant that cancels, written in between": (lambda x: _cancelled_late(x, 1 + x.detach()), "detach"),
    "another thread": (lambda x: x + _elsewhere(lambda: x.detach().sin()), "does not see"),
    "a graph of another thread": (lambda x: x + _elsewhere(lambda: torch.enable_grad()(torch.sin)(x)), "does not see"),
    "a hook on a node": (lambda x: _written(x, lambda y: y.grad_fn and y.grad_fn.register_hook(lambda given, _: (2 * given[0],))), "grad_fn"),
    "a write into what torch needs": (lambda x: _spoilt(x), "does not see"),
    "vmap": (lambda x: x + torch.func.vmap(lambda each: each.detach().sin())(x), "detach under torch.func"),
    "torch's own choice": (lambda x: torch.nn.functional.gumbel_softmax(x, hard=True), "gumbel_softmax"),
    "the side of a kink": (lambda x: (x - X).relu() - (X - x).relu(), "jumps"),
}


def _cancelled(x, constant):
    return (x + constant) - constant


def _cancelled_late(x, constant):
    y = x + constant
    constant.mul_(0.5)
    return y - constant


def _written(x, write):
    y = x * 2
    write(y)
    return y * x


def _elsewhere(call):
    found = list[Tensor]()
    thread = threading.Thread(target=lambda: found.append(call()))
    thread.start()
    thread.join()
    return found[0]


def _spoilt(x):
    """The factor that torch keeps for its derivative is another one afterwards."""
    factor = torch.ones_like(x)
    y = x * factor
    factor.data.copy_(x)
    return y


@torch.library.custom_op("witness_tests::sine", mutates_args=())
def sine(x: Tensor) -> Tensor:
    return x.sin()


sine.register_autograd(lambda ctx, grad_output: 7 * grad_output)


@torch.jit.script
def scripted(x):
    return x.detach().sin() + x


@pytest.mark.parametrize("name", STAYS)
def test_a_forward_that_stays_in_torch_is_differentiated_to_rounding(name):
    forward, derivative = STAYS[name]
    found = jacobian(function(forward), X)
    assert isinstance(found, Tensor), found
    torch.testing.assert_close(found, torch.diag(derivative(X).double()), rtol=1e-14, atol=0)


@pytest.mark.parametrize("name", LEAVES)
def test_a_forward_that_leaves_torch_has_no_witness_and_the_operation_is_named(name):
    forward, reason = LEAVES[name]
    found = jacobian(function(forward), X)
    assert isinstance(found, str) and reason in found


# ---- Functions inside
class Cube(Function):
    """A wrong backward, in the style without ctx in forward."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x, power=3):
        return x**power

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0], output)
        ctx.save_for_forward(*inputs[:1])
        assert ctx.needs_input_grad[0] and len(ctx.saved_tensors) == 1     # torch's answer once something is saved for forward

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output, None


class Asks(Function):
    """Everything that a forward may ask of its ctx."""

    @staticmethod
    def forward(ctx, x, k):
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x)
        ctx.save_for_forward(x)
        ctx.scale = k if ctx.needs_input_grad == (True, False) else 0
        x.mul_(ctx.scale)
        where = x > 0
        ctx.mark_dirty(x)
        ctx.mark_non_differentiable(where)
        return x, where

    @staticmethod
    def backward(ctx, grad_output, _):
        return grad_output * 5, None


cube = Cube.apply      # bound before anybody hooks anything


class Outer(Function):
    """Its forward calls another wrong Function."""

    @staticmethod
    def forward(ctx, x):
        return 2 * cube(x)

    @staticmethod
    def backward(ctx, grad_output):
        return 2 * grad_output


class Own(Cube):
    @classmethod
    def apply(cls, x):
        return super().apply(x, 2)


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.arange(1.0, 5.0))
        self.register_buffer("mean", torch.zeros(4))

    def forward(self, x):
        self.mean.mul_(0.9).add_(0.1 * x.detach())
        return cube(x) * self.weight


@pytest.mark.parametrize(("checked", "derivative"), [
    (Cube, lambda x: 3 * x**2), (Asks, lambda x: 2 * torch.ones_like(x)), (Outer, lambda x: 6 * x**2),
    (lambda x: cube(x).sin(), lambda x: 3 * x**2 * (x**3).cos()),
    (Own, lambda x: 2 * x)], ids=["setup_context", "ctx", "a Function inside", "in a callable", "an apply of its own"])
def test_every_function_is_replaced_by_its_forward(checked, derivative):
    found = jacobian(checked, X, *([live.fixed(2)] if checked is Asks else []))
    assert isinstance(found, Tensor), found
    torch.testing.assert_close(found, torch.diag(derivative(X)), rtol=1e-14, atol=0)


def test_functions_in_a_module_are_replaced_and_its_buffers_lent():
    seen = live.evidence(Layer, X, init={})
    with witness(seen.subject, seen.forward.checked, seen.outputs, seen.wishes) as found:
        assert isinstance(found, Witness), found
        x, weight = found.row(0, 1)[:4], found.row(0, 1)[4:]
    assert x[1] == pytest.approx(2 * 3 * float(X[1])**2, rel=1e-14) and weight[1] == pytest.approx(float(X[1])**3, rel=1e-14)
    assert not np.delete(x, 1).any() and not np.delete(weight, 1).any()


# ---- traces
class Keeps(Function):
    """Keeps tensors on its class, and writes into one."""

    seen: ClassVar[list[Tensor]] = []
    running = torch.zeros(4, dtype=torch.float64)
    last: ClassVar[Tensor | None] = None

    @staticmethod
    def forward(ctx, x):
        y = x.exp()
        Keeps.running.mul_(0.9).add_(y)
        Keeps.seen.append(y)
        Keeps.last = y.view(2, 2)
        return y * x

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output


def test_what_a_forward_keeps_is_plain_afterwards():
    found = jacobian(Keeps, X)
    assert isinstance(found, Tensor), found
    assert not Keeps.running.requires_grad and not any(kept.requires_grad for kept in Keeps.seen)
    assert Keeps.last is not None and not Keeps.last.requires_grad


@pytest.mark.parametrize("error", [None, ValueError("no"), KeyboardInterrupt()])
def test_the_hook_is_gone_whatever_happens(error):
    calls = []

    def forward(x):
        calls.append(1)
        if len(calls) > 1 and error is not None:
            raise error
        return x * 2

    if isinstance(error, KeyboardInterrupt):
        with pytest.raises(KeyboardInterrupt):
            jacobian(function(forward), X)
    else:
        assert isinstance(jacobian(function(forward), X), Tensor if error is None else str)
    assert "__getattribute__" not in vars(FunctionMeta)
    y = Cube.apply(X.clone().requires_grad_())
    assert "Cube" in y.grad_fn.name()
