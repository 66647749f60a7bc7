"""Backwards that ask a batch of cotangents for a number, write it into a tensor without one, or give others; what torch cannot batch is none."""

from __future__ import annotations

import pytest
import torch
from live import check, codes, message
from torch.autograd import Function

from rules.functions import Right, RightProduct, X, Y, square
from rules.tricky import InPlace


def vectorized(function, x):
    """torch's own batched Jacobian."""
    return torch.autograd.functional.jacobian(function.apply, x, vectorize=True)


def written(x, g):
    gradient = torch.zeros_like(x)
    gradient += 2 * x * g
    return gradient


def indexed(x, g):
    return torch.zeros_like(x).index_add_(0, torch.arange(len(x)), 2 * x * g)


def sliced(x, g):
    gradient = torch.empty_like(x)
    gradient[:, :2] = (2 * x * g)[:, :2]
    gradient[:, 2:] = (2 * x * g)[:, 2:]
    return gradient


ASKS = {
    ".item()": lambda x, g: 2 * x * g * (1 if g.abs().max().item() >= 0 else 0),
    "float()": lambda x, g: 2 * x * g * (1 if float(g.abs().max()) >= 0 else 0),
    "if": lambda x, g: 2 * x * g if g.abs().sum() >= 0 else x,
    "any": lambda x, g: 2 * x * g if g.any() else torch.zeros_like(x),
    "equal": lambda x, g: torch.zeros_like(x) if torch.equal(g, torch.zeros_like(g)) else 2 * x * g,
}
FINE = {
    "out of place": lambda x, g: 2 * x * g,
    "into zeros like grad_output": lambda x, g: torch.zeros_like(g).add_(2 * x * g),
    "a copy of grad_output in place": lambda x, g: g.clone().mul_(2 * x),
    "a question to its shape": lambda x, g: 2 * x * g if g.shape == x.shape and g.numel() > 0 else x,
    "rows one by one": lambda x, g: torch.stack([2 * x[i] * g[i] for i in range(len(g))]),
    "views": lambda x, g: (2 * x.reshape(-1) * g.reshape(-1)).reshape(x.shape),
    "a mask of x": lambda x, g: torch.where(x > 0, 2 * x * g, 2 * x * g),
    "a question to x": lambda x, g: 2 * x * g if float(x.abs().max()) > 0 else g,
}
CANNOT = {
    "einsum": lambda x, g: 2 * torch.einsum("ij,ij->ij", x, g),
    "numpy": lambda x, g: torch.from_numpy(2 * x.detach().numpy() * g.detach().numpy()),
    "the memory itself": lambda x, g: 2 * x * g if g.data_ptr() else x,
    "rows added in their places": indexed,
    "a slice in its place": sliced,
    "random numbers": lambda x, g: 2 * x * g + 0 * torch.rand(2, 3, dtype=g.dtype),
}


@pytest.mark.parametrize("name", ASKS)
def test_a_number_out_of_grad_output_is_a_warning(name):
    function = square(ASKS[name])
    with pytest.raises(RuntimeError, match="aten::"):
        vectorized(function, X)
    result = check(function, X, second_order=False)
    assert (result.verdict, [(found.code, found.severity) for found in result.findings]) == ("pass", [("GV228", "warning")])
    assert "(is_grads_batched): it asks grad_output for a number" in message(result, "GV228")


def test_a_batch_written_into_one_tensor_is_a_warning():
    with pytest.raises(RuntimeError, match="vmap"):
        vectorized(square(written), X)
    result = check(square(written), X)
    assert codes(result) == {"GV228"}
    assert "(is_grads_batched): it writes them in place (" in message(result, "GV228")


@pytest.mark.parametrize("name", FINE)
def test_what_can_be_batched_is_left_alone(name):
    function = square(FINE[name])
    assert torch.equal(vectorized(function, X), torch.autograd.functional.jacobian(function.apply, X))
    assert codes(check(function, X, second_order=False)) == set()


@pytest.mark.parametrize("name", CANNOT)
def test_what_torch_has_no_batching_rule_for_is_no_finding_and_said(name):
    function = square(CANNOT[name])
    with pytest.raises(RuntimeError):
        vectorized(function, X)
    result = check(function, X, second_order=False)
    assert codes(result) == set()
    run = next(run for run in result.rules if run.code == "GV228")
    assert run.status == "not_applicable" and run.reason.startswith("a batched backward raised RuntimeError: ")


def test_wrong_numbers_for_a_batch_are_a_warning():
    """A backward that takes every tensor with a dimension more for a batch of its own."""

    class Mixes(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, g):
            x, = ctx.saved_tensors
            batched = torch._C._functorch.is_batchedtensor(g) if hasattr(torch._C, "_functorch") else False
            return 2 * x * g * (3 if batched or "Batched" in str(torch._C._dispatch_keys(g)) else 1)

    assert not torch.equal(vectorized(Mixes, X), vectorized(Right, X))
    result = check(Mixes, X)
    assert codes(result) == {"GV228"}
    assert "of batched cotangents (is_grads_batched) the gradient at x[" in message(result, "GV228")


def test_it_takes_two_backwards_and_no_forward():
    run = next(run for run in check(RightProduct, X, Y).rules if run.code == "GV228")
    assert (run.status, run.calls.forward, run.calls.backward, run.calls.batched) == ("ran", 0, 2, 2)


def test_inside_a_callable_and_with_several_outputs():
    asks = square(ASKS["if"])
    assert codes(check(lambda x: (asks.apply(x), x.sin()), X, second_order=False)) == {"GV228"}


def test_where_it_cannot_say_anything_it_says_why():
    reasons = {name: next(run for run in check(function, *inputs).rules if run.code == "GV228").reason for name, function, inputs in (
        ("torch's own", torch.sin, (X,)), ("in place", InPlace, (X,)),
        ("random", lambda x: Right.apply(torch.nn.functional.dropout(x)), (X,)), ("wrong", square(lambda x, g: x * g), (X,)))}
    assert reasons == {"torch's own": "no custom Function is in the graph", "in place": "the function writes into its inputs",
                       "random": "the function draws random numbers", "wrong": "GV101 has to be repaired first"}


def test_what_backward_keeps_on_the_class_is_not_a_batch_afterwards():
    """A work buffer that is kept for the next call would be a batch that nobody else can use."""

    class Buffered(Function):
        buffers, last = {}, None

        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, g):
            Buffered.last = Buffered.buffers["g"] = 2 * ctx.saved_tensors[0] * g
            return Buffered.last.clone()

    assert codes(check(Buffered, X, select=("GV228",), ignore=("GV0",))) == set()
    assert torch.equal(Buffered.last, Buffered.buffers["g"])
    assert Buffered.last.untyped_storage().nbytes() == X.untyped_storage().nbytes()
    assert codes(check(Buffered, X, select=("GV101", "GV228"))) == set()


@pytest.mark.parametrize("way", ["while", "break", "break below"])
def test_a_solver_that_asks_whether_to_go_on_is_left_alone(way):
    """The inverse of 2 by Richardson's iteration: conjugate gradients in the backward of an implicit function do the same."""

    def solved(g, rest):
        if way == "while":
            while rest.abs().max() > 1e-14 * g.abs().max():
                g, rest = g + rest, rest / 2
            return g
        for _ in range(200):
            if way == "break":
                if rest.abs().max() <= 1e-14 * g.abs().max(): break     # noqa: E701
            elif rest.abs().max() <= 1e-14 * g.abs().max():
                break
            g, rest = g + rest, rest / 2
        return g

    result = check(square(lambda x, g: x * solved(g, g / 2)), X, second_order=False, select=("GV101", "GV228"))
    assert codes(result) == set()
    run = next(run for run in result.rules if run.code == "GV228")
    assert run.reason == "backward iterates until grad_output has converged, which each cotangent does in its own time"
