"""Functions that are wrong under autocast, and right ones, steep, cancelling and stepped ones among them, that lose what 16 bits cost."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from gallery.twins import twins
from live import check, codes, randn
from torch import Tensor
from torch.autograd import Function

Faulty, Right = twins("forgets_the_scale_in_16_bits")
X, W = randn(7, 9, dtype=torch.float32), randn(5, 9, seed=1, dtype=torch.float32)


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


FAULTS = {"scale": (Faulty, "under autocast in bfloat16 y0["), "gain": (gains, "under autocast in bfloat16 y0["),
          "dtypes": (Mixed, "under autocast in bfloat16 backward raised RuntimeError")}


@pytest.mark.parametrize("name", FAULTS)
def test_what_is_wrong_only_under_autocast_is_found(name: str) -> None:
    faulty, says = FAULTS[name]
    assert codes(check(faulty, X, W, dtype="float32")) == set()
    result = check(faulty, X, W, dtype="float32", autocast="bfloat16")
    assert codes(result) == {"GV117"}
    assert says in result.findings[0].message
    assert not torch.is_autocast_enabled("cpu")


RIGHT = {
    "scores": Right,
    "linear": F.linear,
    "causal attention": lambda x, w: torch.softmax((x @ w.T).masked_fill(torch.ones(7, 5).triu(1).bool(), -torch.inf), -1),
    "layer norm": lambda x, w: F.layer_norm(x @ w.T, (5,)),
    "cancelling": lambda x, w: ((x + 10) @ (w + 10).T) - ((x + 10) @ (w + 10).T).mean(),
    "steep": lambda x, w: torch.sin(30 * (x @ w.T)),
    "stepped": lambda x, w: torch.round(3 * (x @ w.T)) + x.sum(),
}


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("name", RIGHT)
def test_what_only_loses_bits_is_left_alone(name: str, dtype: str) -> None:
    result = check(RIGHT[name], X, W, dtype="float32", autocast=dtype, select=("GV117",))
    assert ("GV117" in codes(result), ran(result).status) == (False, "ran")


def test_it_says_why_it_does_not_run() -> None:
    assert ran(check(Right, X, W, dtype="float32")).reason == "the spec does not name a dtype under `autocast`"
    assert ran(check(Right, X.double(), W.double(), autocast="bfloat16")).reason == "autocast leaves float64 alone: say `dtype: float32`"
