"""Functions that are others through torch.compile, and right ones that are not: Functions,
callables, modules, graph breaks, what is not traced."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from gallery.twins import load, twins
from live import check, codes, randn
from torch import Tensor, nn
from torch.autograd import Function

Faulty, Right = twins("forgets_a_factor_when_compiled")
X, Y = randn(2, 3), randn(2, 3, seed=1)


def ran(result: Any) -> Any:
    return next(run for run in result.rules if run.code == "GV116")


def halves(x: Tensor) -> Tensor:
    return x * x * (0.5 if torch.compiler.is_compiling() else 1.0)


def narrows(x: Tensor) -> Tensor:
    return (x * x).float() if torch.compiler.is_compiling() else x * x


def breaks(x: Tensor) -> Tensor:
    y = x.sin()
    torch._dynamo.graph_break()
    return y * x


def branches(x: Tensor) -> Tensor:
    return x.sin() if float(x.sum()) > 0 else x.cos()


def by_numpy(x: Tensor) -> Tensor:
    return Numpy.apply(x)


class Numpy(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return torch.from_numpy(np.sin(x.detach().numpy()))

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return g * ctx.saved_tensors[0].cos()


class Scale(nn.Module):
    def __init__(self, half: bool = False) -> None:
        super().__init__()
        self.weight, self.half = nn.Parameter(randn(3)), half

    def forward(self, x: Tensor) -> Tensor:
        return (
            Right.apply(x)
            * self.weight
            * (0.5 if self.half and torch.compiler.is_compiling() else 1)
        )


FAULTS = {
    "outputs": (halves, "through torch.compile y0[0,"),
    "dtype": (
        narrows,
        "through torch.compile y0 is float32 [2, 3], and not float64 [2, 3] as in eager mode",
    ),
    "raises": (
        load("misstates_its_shape").Faulty,
        "through torch.compile forward raised RuntimeError: Attempting to broadcast",
    ),
    "gradient": (Faulty, "through torch.compile the gradient at x["),
    "module": (Scale(half=True), "through torch.compile y0["),
}


@pytest.mark.parametrize("name", FAULTS)
def test_what_is_wrong_only_when_compiled_is_found(name: str) -> None:
    faulty, says = FAULTS[name]
    result = check(faulty, X, compile=True, opcheck=False)
    assert "GV116" in codes(result)
    assert codes(result) - {"GV116"} == set()
    assert all(
        says in finding.message and "\n" not in finding.message for finding in result.findings[:1]
    )


@pytest.mark.parametrize(
    "right",
    [lambda x: Right.apply(x) @ x.T, breaks, branches, by_numpy, Scale()],
    ids=["Function", "graph break", "branch", "numpy", "module"],
)
def test_what_is_the_same_is_left_alone(right: Any) -> None:
    result = check(right, X, compile=True)
    assert "GV116" not in codes(result)
    assert ran(result).status == "ran" or "runs it eagerly" in ran(result).reason


def test_it_says_why_it_does_not_run_and_leaves_nothing_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert ran(check(Right, X)).reason == "the spec does not say `compile: true`"
    assert (
        "random numbers"
        in ran(check(lambda x: nn.functional.dropout(x, 0.5), X, compile=True)).reason
    )
    scale = Scale()
    check(scale, X, compile=True)
    assert "forward" not in vars(scale)
    monkeypatch.setattr(torch._dynamo.eval_frame, "check_if_dynamo_supported", refused)
    assert (
        ran(check(Right, X, compile=True)).reason
        == "torch.compile does not run here (RuntimeError: not on this Python)"
    )


def refused() -> None:
    raise RuntimeError("not on this Python")
