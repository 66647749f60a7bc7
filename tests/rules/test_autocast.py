from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from gallery.twins import twins
from live import check, codes, fixed, message, randn
from torch import Tensor
from torch.amp import custom_bwd, custom_fwd
from torch.autograd import Function

from rules.functions import Right, square

# ---- GV117 under-autocast
# Functions that are wrong under autocast, and right ones, steep, cancelling and stepped ones among
# them, that lose what 16 bits cost.
FaultyMixed, RightMixed = twins("forgets_the_scale_in_16_bits")
MIXED_X, MIXED_W = randn(7, 9, dtype=torch.float32), randn(5, 9, seed=1, dtype=torch.float32)


def ran(result: Any) -> Any:
    return next(run for run in result.rules if run.code == "GV117")


class Mixed(Function):
    """Its backward multiplies a 16-bit cotangent with what forward saved in float32."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor) -> Tensor:
        ctx.save_for_backward(x, w)
        return x @ w.T

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor]:
        x, w = ctx.saved_tensors
        return g @ w, g.T @ x


def gains(x: Tensor, w: Tensor) -> Tensor:
    return x @ w.T * (1.1 if torch.is_autocast_enabled("cpu") else 1.0)


MIXED_FAULTS = {
    "scale": (FaultyMixed, "under autocast in bfloat16 y0["),
    "gain": (gains, "under autocast in bfloat16 y0["),
    "dtypes": (Mixed, "under autocast in bfloat16 backward raised RuntimeError"),
}


@pytest.mark.parametrize("name", MIXED_FAULTS)
def test_what_is_wrong_only_in_mixed_precision_is_found(name: str) -> None:
    faulty, says = MIXED_FAULTS[name]
    assert codes(check(faulty, MIXED_X, MIXED_W, dtype="float32")) == set()
    result = check(faulty, MIXED_X, MIXED_W, dtype="float32", autocast="bfloat16")
    assert codes(result) == {"GV117"}
    assert says in result.findings[0].message
    assert not torch.is_autocast_enabled("cpu")


RIGHT = {
    "scores": RightMixed,
    "linear": F.linear,
    "causal attention": lambda x, w: torch.softmax(
        (x @ w.T).masked_fill(torch.ones(7, 5).triu(1).bool(), -torch.inf), -1
    ),
    "layer norm": lambda x, w: F.layer_norm(x @ w.T, (5,)),
    "cancelling": lambda x, w: ((x + 10) @ (w + 10).T) - ((x + 10) @ (w + 10).T).mean(),
    "steep": lambda x, w: torch.sin(30 * (x @ w.T)),
    "stepped": lambda x, w: torch.round(3 * (x @ w.T)) + x.sum(),
}


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("name", RIGHT)
def test_what_only_loses_bits_is_left_alone(name: str, dtype: str) -> None:
    result = check(
        RIGHT[name], MIXED_X, MIXED_W, dtype="float32", autocast=dtype, select=("GV117",)
    )
    assert ("GV117" in codes(result), ran(result).status) == (False, "ran")


def test_it_says_why_it_does_not_run() -> None:
    assert (
        ran(check(RightMixed, MIXED_X, MIXED_W, dtype="float32")).reason
        == "the spec does not name a dtype under `autocast`"
    )
    double = check(RightMixed, MIXED_X.double(), MIXED_W.double(), autocast="bfloat16")
    assert (
        ran(double).reason
        == "an input is not float32: autocast leaves float64 alone (`dtype: float32`)"
    )


# ---- GV225 autocast
X, Y = randn(2, 3), randn(2, 3, seed=1)  # no round numbers: those survive in bfloat16


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
            (x,) = ctx.saved_tensors
            return backward(x, g)

    return Square


FAULTS = {
    "saves fewer bits inside": (
        function(
            lambda x: x * x, lambda x: x.bfloat16() if inside() else x, lambda x, g: 2 * x * g
        ),
        "forward inside autocast and backward outside, the gradient at x[",
    ),
    "computes fewer bits inside": (
        function(
            lambda x: (x * x).bfloat16().double() if inside() else x * x,
            lambda x: x,
            lambda x, g: 2 * x * g,
        ),
        "forward inside autocast and backward outside, y0[",
    ),
    "backward casts inside": (
        function(
            lambda x: x * x, lambda x: x, lambda x, g: 2 * g * (x.bfloat16() if inside() else x)
        ),
        "forward outside autocast and backward inside, the gradient at x[",
    ),
    "another dtype comes out": (
        function(
            lambda x: (x * x).bfloat16() if inside() else x * x, lambda x: x, lambda x, g: 2 * x * g
        ),
        "y0 is bfloat16 [2, 3], and not float64 [2, 3] as without",
    ),
    "backward forgets a factor": (
        square(lambda x, g: (1 if inside() else 2) * x * g),
        "forward outside autocast and backward inside",
    ),
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
    assert (
        "with forward outside autocast and backward inside, backward raised RuntimeError: expected "
        "Double"
    ) in message(result, "GV225")


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
    assert (run(result).status, run(result).calls.forward, run(result).calls.backward) == (
        "ran",
        1,
        2,
    )


def test_a_matrix_product_in_float64_is_left_alone_by_autocast():
    assert codes(check(lambda x: Right.apply(x) @ x.T, X)) == set()


def test_what_computes_in_float32_may_be_lowered_and_is_not_judged():
    result = check(Right, X.float(), dtype="float32")
    assert run(result).reason == "an input is of lower precision"
    result = check(lambda x, w: Right.apply(x) * w, X, fixed(Y.float()))
    assert run(result).reason == "an input is of lower precision"
    result = check(
        function(lambda x: (x.float() * x.float()).double(), lambda x: x, lambda x, g: 2 * x * g), X
    )
    assert (
        run(result).reason
        == "the forward computes in lower precision inside, which autocast may lower further"
    )


def test_torchs_own_backwards_are_not_asked():
    assert run(check(lambda x: x.sin(), X)).reason == "no custom Function is in the graph"


def test_autocast_is_off_afterwards():
    check(Right, X)
    assert not inside()
