"""Two devices that give other numbers; the second one is a stand-in, or the same computation in another order of its sums."""

from __future__ import annotations

from typing import Any

import pytest
import standin
import torch
from gallery.twins import GALLERY
from live import case, codes, evidence, randn, tensor
from torch import Tensor
from torch.autograd import Function

from gradverify.rules.variants import Side, compared
from gradverify.running.inline import run_case

FAULTY, RIGHT = (f"{GALLERY}/forgets_a_factor_on_cuda.py:{twin}" for twin in ("Faulty", "Right"))


class SumOfSquares(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return (x * x).sum(1)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return 2 * g[:, None] * ctx.saved_tensors[0]


def sides(factor: float = 1.0, dtype: torch.dtype = torch.float64) -> tuple[Any, Side, Side]:
    """Of the sums of squares: as checked, and one by one from the end, the gradient times a factor, as another device might."""
    x = randn(3, 200, dtype=dtype)
    found = evidence(SumOfSquares, x, dtype=str(dtype).removeprefix("torch."))
    here = Side(found.outputs, found.worked.gradients)
    total = torch.zeros(3, dtype=dtype)
    for column in reversed(range(x.shape[1])):
        total = total + x[:, column] * x[:, column]
    g, = found.cotangents("base")
    return found, here, Side([total], (factor * (g[:, None] * x + x * g[:, None]),))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_another_order_of_sums_is_left_alone_and_a_wrong_gradient_found(dtype: torch.dtype) -> None:
    assert list(compared(*sides(dtype=dtype), "cuda")) == []
    found, = compared(*sides(1.001, dtype), "cuda")
    assert found.code == "GV118" and found.message.startswith("on cuda the gradient at x[") and found.message.endswith("as on cpu")


def test_outputs_of_another_shape_are_told() -> None:
    found, here, there = sides()
    told, = compared(found, here, Side([there.outputs[0][:, None]], there.gradients), "cuda")
    assert told.message == "on cuda y0 is float64 [3, 1], and not float64 [3] as on cpu"


def on_a_device(target: str, **changes: Any) -> Any:
    """Checked on the stand-in, beside the CPU; what keeps references is left out, as the stand-in keeps some."""
    with standin.cuda():
        return run_case(case(target, [tensor(2, 3, name="x")], device="cuda", beside="cpu", ignore=("GV214",), **changes))


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_function_that_is_another_one_there_is_found_and_the_same_one_is_not(dtype: str) -> None:
    faulty = on_a_device(FAULTY, dtype=dtype)
    assert codes(faulty) == {"GV118"} and len(faulty.findings) == 2     # y0, and the gradient of x
    right = on_a_device(RIGHT, dtype=dtype)
    assert (right.verdict, right.findings) == ("pass", ())
    assert next(run.reason for run in right.rules if run.code == "GV118") == "compared with cpu"


def test_it_says_why_it_does_not_run() -> None:
    said = {beside: next(run.reason for run in run_case(case(RIGHT, [tensor(2, name="x")], beside=beside, select=("GV118",))).rules
                         if run.code == "GV118") for beside in (None, "cpu")}
    assert said == {None: "the spec's `matrix` names no device before this one", "cpu": "both devices are cpu"}


def test_the_stand_in_refuses_what_a_device_refuses() -> None:
    with standin.cuda():
        x, here = randn(3).to("cuda"), randn(3)
        assert x.is_cuda and x.device == torch.device("cuda", 0) and not x.cpu().is_cuda and (2 * x).is_cuda
        for refused in (lambda: x + here, lambda: torch.stack([x, here]), x.numpy, lambda: here[torch.tensor([1]).to("cuda")],
                        lambda: torch.randn(2, device="cuda", generator=torch.Generator())):
            with pytest.raises((RuntimeError, TypeError), match=r"cuda|cpu"):
                refused()
