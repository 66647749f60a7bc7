from __future__ import annotations

import pytest
import torch
from live import check, codes, fixed, message, randn
from torch.amp import custom_bwd, custom_fwd
from torch.autograd import Function

from rules.functions import Right, square

X, Y = randn(2, 3), randn(2, 3, seed=1)      # no round numbers: those survive in bfloat16


def inside():
    return torch.is_autocast_enabled("cpu")


def run(result):
    return next(run for run in result.rules if run.code == "GV225")


def function(forward, save, backward):
    """x² by `forward(x)`, which saves `save(x)`, with `backward(saved, g)`."""

    class Square(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(save(x))
            return forward(x)

        @staticmethod
        def backward(ctx, g):
            x, = ctx.saved_tensors
            return backward(x, g)

    return Square


FAULTS = {
    "saves fewer bits inside": (function(lambda x: x * x, lambda x: x.bfloat16() if inside() else x, lambda x, g: 2 * x * g),
                                "forward inside autocast and backward outside, the gradient at x["),
    "computes fewer bits inside": (function(lambda x: (x * x).bfloat16().double() if inside() else x * x, lambda x: x, lambda x, g: 2 * x * g),
                                   "forward inside autocast and backward outside, y0["),
    "backward casts inside": (function(lambda x: x * x, lambda x: x, lambda x, g: 2 * g * (x.bfloat16() if inside() else x)),
                              "forward outside autocast and backward inside, the gradient at x["),
    "another dtype comes out": (function(lambda x: (x * x).bfloat16() if inside() else x * x, lambda x: x, lambda x, g: 2 * x * g),
                                "y0 is bfloat16, and not float64 as without"),
    "backward forgets a factor": (square(lambda x, g: (1 if inside() else 2) * x * g), "forward outside autocast and backward inside"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_what_is_wrong_only_under_autocast_is_found(name):
    faulty, said = FAULTS[name]
    result = check(faulty, X)
    assert codes(result) == {"GV225"}
    assert said in message(result, "GV225")


def test_what_raises_only_under_autocast_is_found():
    def mixes(x, g):
        if inside():
            raise RuntimeError("expected Double but found BFloat16")
        return 2 * x * g

    result = check(square(mixes), X)
    assert codes(result) == {"GV225"}
    assert "with forward outside autocast and backward inside, backward raised RuntimeError: expected Double" in message(result, "GV225")


def test_torchs_own_decorators_keep_it_right():
    class Product(Function):
        @staticmethod
        @custom_fwd(device_type="cpu", cast_inputs=torch.bfloat16)
        def forward(ctx, x, y):
            ctx.save_for_backward(x, y)
            return x @ y.T

        @staticmethod
        @custom_bwd(device_type="cpu")
        def backward(ctx, g):
            x, y = ctx.saved_tensors
            return g @ y, g.T @ x

    result = check(Product, X, Y)
    assert codes(result) == set()
    assert (run(result).status, run(result).calls.forward, run(result).calls.backward) == ("ran", 1, 2)


def test_a_matrix_product_in_float64_is_left_alone_by_autocast():
    assert codes(check(lambda x: Right.apply(x) @ x.T, X)) == set()


def test_what_computes_in_float32_may_be_lowered_and_is_not_judged():
    result = check(Right, X.float(), dtype="float32")
    assert run(result).reason == "an input is of lower precision, which autocast may lower further"
    result = check(lambda x, w: Right.apply(x) * w, X, fixed(Y.float()))
    assert run(result).reason == "an input is of lower precision, which autocast may lower further"
    result = check(function(lambda x: (x.float() * x.float()).double(), lambda x: x, lambda x, g: 2 * x * g), X)
    assert run(result).reason == "the forward computes in lower precision inside, which autocast may lower further"


def test_torchs_own_backwards_are_not_asked():
    assert run(check(lambda x: x.sin(), X)).reason == "no custom Function is in the graph"


def test_autocast_is_off_afterwards():
    check(Right, X)
    assert not inside()
