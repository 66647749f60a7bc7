"""The ways to a VJP where the plain one is refused."""

from __future__ import annotations

import pytest
import torch
from live import check, codes, randn, subject
from torch.autograd import Function
from torch.utils.checkpoint import checkpoint

from gradverify.evidence import Evidence
from gradverify.model.result import Calls
from gradverify.subject.differentiable import Differentiable
from gradverify.subject.failure import UserCodeError


class OneBackward(Function):
    """Frees what it saved, like a reversible net: one backward per forward."""

    @staticmethod
    def forward(ctx, x):
        ctx.saved = [x]
        return x * x

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output * 2 * ctx.saved.pop()


def reentrant(x):
    return checkpoint(lambda x: x.sin() * x, x, use_reentrant=True)


class InPlace(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x.mul_(3)

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output * 3


class ClampsItsInput(Function):
    """Writes through `.data`, which autograd does not see."""

    @staticmethod
    def forward(ctx, x):
        ctx.inside = x > 0.2
        x.data.clamp_(min=0.2)
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, grad_output):
        x, = ctx.saved_tensors
        return grad_output * 2 * x * ctx.inside


class AlwaysRaises(Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad_output):
        raise ValueError("never")


X = torch.tensor([-1.0, 0.5, 2.0], dtype=torch.float64)
TRUTH = [
    (OneBackward, 2 * X),
    (reentrant, X.sin() + X * X.cos()),
    (InPlace, torch.full_like(X, 3.0)),
    (ClampsItsInput, 2 * X * (X > 0.2)),
]


@pytest.mark.parametrize(("function", "slope"), TRUTH, ids=lambda value: getattr(value, "__name__", ""))
def test_the_gradient_is_had_again_and_again_although_the_plain_way_is_refused(function, slope):
    live = subject(function, X)
    evidence = Evidence(live)
    assert evidence.forward.checked == (0,)
    for factor in (1.0, -2.0, 1.0):
        gradient, = evidence.function.vjp([factor * torch.ones(3, dtype=torch.float64)])
        torch.testing.assert_close(gradient, factor * slope)
    assert live.inputs[0].tolist() == X.tolist()


@pytest.mark.parametrize(("function", "slope"), TRUTH, ids=lambda value: getattr(value, "__name__", ""))
def test_the_gradients_of_such_functions_are_found_right(function, slope):
    result = check(function, X, select=("GV1", "GV201"))
    assert (result.verdict, codes(result)) == ("pass", set())
    assert sum(each.elements for each in result.comparisons) == 9


def test_a_wrong_gradient_behind_a_checkpoint_is_found_all_the_same():
    class Wrong(OneBackward):
        @staticmethod
        def backward(ctx, grad_output):
            return grad_output * ctx.saved.pop()

    assert "GV101" in codes(check(Wrong, X))
    assert "GV101" in codes(check(lambda x: checkpoint(lambda x: x * x + Wrong.apply(x), x, use_reentrant=True), X))


def test_a_backward_that_always_raises_is_blamed_with_the_first_error():
    function = Differentiable(subject(AlwaysRaises, X), (0,))
    with pytest.raises(UserCodeError, match="never") as caught:
        function.vjp([torch.ones(3, dtype=torch.float64)])
    assert caught.value.code == "GV003"


def test_one_graph_serves_all_backwards_of_a_plain_function():
    live = subject(torch.sin, X)
    function = Differentiable(live, (0,))
    for _ in range(3):
        function.vjp([torch.ones(3, dtype=torch.float64)])
    assert live.calls == Calls(1, 3)


def test_the_way_that_worked_is_kept():
    live = subject(OneBackward, X)
    function = Differentiable(live, (0,))
    for _ in range(3):
        function.vjp([torch.ones(3, dtype=torch.float64)])
    assert live.calls.forward == 3          # the graph that served once, then one forward for each
    assert live.calls.backward == 4


def test_only_the_checked_outputs_are_seen():
    live = subject(lambda x: (x * 2, x.argmax(), x.sum()), X)
    function = Differentiable(live, (2,))
    assert [y.item() for y in function.values(live.inputs)] == [1.5]
    assert function.vjp([torch.tensor(5.0, dtype=torch.float64)])[0].tolist() == [5, 5, 5]


def test_an_input_without_influence_has_none():
    function = Differentiable(subject(lambda x, y: x * 2, X, randn(2)), (0,))
    assert function.vjp([torch.ones(3, dtype=torch.float64)])[1] is None


def undefined(y):
    return torch._C._functions.UndefinedGrad()(y)


@pytest.mark.parametrize("function", [torch.square, OneBackward, reentrant])
def test_one_fresh_forward_gives_outputs_and_gradients_whatever_the_way_to_them(function):
    x = randn(3)
    outputs, gradients = Evidence(subject(function, x)).function.once([torch.full((3,), 2.0)])     # float32: cast to the output's dtype
    torch.testing.assert_close(gradients[0], Evidence(subject(function, x)).function.vjp([torch.full((3,), 2.0, dtype=torch.float64)])[0])
    assert outputs[0].shape == (3,)


def test_behind_an_operation_that_loses_the_gradient_nothing_comes_back():
    _, gradients = Evidence(subject(torch.square, randn(3))).function.once([torch.ones(3)], through=undefined)
    assert gradients == (None,)


def test_whether_one_graph_is_reused_is_known_after_a_second_backward():
    for function, reuses in ((torch.square, True), (OneBackward, False)):
        differentiable = Evidence(subject(function, randn(2))).function
        for _ in range(2):
            differentiable.vjp([torch.ones(2, dtype=torch.float64)])
        assert differentiable.reusable is reuses


def test_an_output_that_is_gone_at_other_inputs_is_said():
    live = subject(lambda x: (x, x * 2) if x[0] > 0 else x, torch.ones(2, dtype=torch.float64))
    function = Differentiable(live, (0, 1))
    with pytest.raises(UserCodeError, match="forward returns 1 outputs here, not y1 as at the first point"):
        function.values([-torch.ones(2, dtype=torch.float64)])
