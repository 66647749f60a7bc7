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
        (x,) = ctx.saved_tensors
        return grad_output * 2 * x * ctx.inside


X = torch.tensor([-1.0, 0.5, 2.0], dtype=torch.float64)
TRUTH = [
    (OneBackward, 2 * X),
    (reentrant, X.sin() + X * X.cos()),
    (InPlace, torch.full_like(X, 3.0)),
    (ClampsItsInput, 2 * X * (X > 0.2)),
]


@pytest.mark.parametrize(
    ("function", "slope"), TRUTH, ids=lambda value: getattr(value, "__name__", "")
)
def test_the_gradient_is_had_again_and_again_although_the_plain_way_is_refused(function, slope):
    live = subject(function, X)
    evidence = Evidence(live)
    assert evidence.forward.checked == (0,)
    for factor in (1.0, -2.0, 1.0):
        (gradient,) = evidence.function.vjp([factor * torch.ones(3, dtype=torch.float64)])
        torch.testing.assert_close(gradient, factor * slope)
    assert live.inputs[0].tolist() == X.tolist()


@pytest.mark.parametrize(
    ("function", "slope"), TRUTH, ids=lambda value: getattr(value, "__name__", "")
)
def test_the_gradients_of_such_functions_are_found_right(function, slope):
    result = check(function, X, select=("GV1", "GV201"))
    assert result.verdict == "pass"
    # `.backward(create_graph=True)` through it makes no graph
    assert codes(result) == ({"GV109"} if function is reentrant else set())
    assert sum(each.elements for each in result.comparisons) == 9


def test_a_wrong_gradient_behind_a_checkpoint_is_found_all_the_same():
    class Wrong(OneBackward):
        @staticmethod
        def backward(ctx, grad_output):
            return grad_output * ctx.saved.pop()

    assert "GV101" in codes(check(Wrong, X))
    assert "GV101" in codes(
        check(lambda x: checkpoint(lambda x: x * x + Wrong.apply(x), x, use_reentrant=True), X)
    )


# ---- many at once
def basis(*shape):
    """Every one-hot cotangent of that shape, [n, *shape]."""
    n = torch.Size(shape).numel()
    return torch.eye(n, dtype=torch.float64).reshape(n, *shape)


def test_many_cotangents_of_torchs_own_operators_come_in_one_batched_backward():
    x = randn(3, 4)
    live = subject(lambda x: torch.softmax(x, 1), x)
    function = Differentiable(live, (0,))
    (found,) = function.vjps(0, basis(3, 4))
    s = torch.softmax(x, 1)
    wanted = torch.block_diag(*(torch.diag(row) - torch.outer(row, row) for row in s))
    torch.testing.assert_close(found.reshape(12, 12), wanted, rtol=0, atol=1e-15)
    assert live.calls == Calls(forward=1, backward=12, batched=12)


@pytest.mark.parametrize(
    "around",
    [lambda f, x: f(x), lambda f, x: f(x.exp()).sin(), lambda f, x: (x + 1, f(x))],
    ids=["alone", "inside", "elsewhere"],
)
def test_a_function_in_the_graph_is_never_called_with_many(around):
    seen = []

    class Square(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, grad_output):
            seen.append(grad_output)
            return grad_output * 2 * ctx.saved_tensors[0]

    live = subject(lambda x: around(Square.apply, x), X)
    places = tuple(range(len(live.called(live.leaves()).outputs)))
    function = Differentiable(live, places)
    assert function.vjps(0, basis(3)) is None
    assert (seen, live.calls.backward, live.calls.batched) == ([], 0, 0)
    assert (
        Differentiable(subject(lambda x: around(torch.square, x), X), places).vjps(0, basis(3))
        is not None
    )


def test_what_cannot_be_batched_is_tried_once_and_leaves_the_plain_way_as_it_was():
    met = []

    def hook(grad):
        met.append(grad.shape)
        return grad * (2.0 if grad.sum().item() > 0 else 3.0)

    def forward(x):
        y = x.sin()
        if y.requires_grad:
            y.register_hook(hook)
        return y * 1

    live = subject(forward, X)
    function = Differentiable(live, (0,))
    assert [function.vjps(0, basis(3)) for _ in range(2)] == [None, None]
    assert len(met) == 1
    assert live.calls == Calls(forward=1)
    for sign, factor in ((1.0, 2.0), (-1.0, 3.0)):
        (gradient,) = function.vjp([sign * torch.ones(3, dtype=torch.float64)])
        torch.testing.assert_close(gradient, sign * factor * X.cos())
    assert torch.func.vmap(torch.sin)(X).tolist() == X.sin().tolist()  # nothing is left batched
