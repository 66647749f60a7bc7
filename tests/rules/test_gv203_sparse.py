"""Functions that write into a sparse or jagged input, and right ones; batches of sparse matrices."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from live import case, codes, randn, tensor
from torch import Tensor
from torch.autograd import Function

import gradverify
from gradverify.model.case import Sparse
from gradverify.running.inline import run_case
from gradverify.subject.forms import own_numbers


class Square(Function):
    """Of the dense numbers; `into` is written into, where it says so."""

    writes = ""

    @classmethod
    def touched(cls, a: Tensor, who: str) -> None:
        if cls.writes == who:
            own_numbers(a).mul_(2)

    @staticmethod
    def forward(ctx: Any, a: Tensor) -> Tensor:
        ctx.save_for_backward(a.to_dense())
        ctx.a = a.detach()
        y = a.to_dense() ** 2
        Square.touched(a, "forward")
        return y

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        Square.touched(ctx.a, "backward")
        return 2 * g * ctx.saved_tensors[0]


@pytest.mark.parametrize("layout", ["coo", "csr"])
@pytest.mark.parametrize("who", ["", "forward", "backward"])
def test_a_write_into_a_sparse_input_is_found(layout: str, who: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Square, "writes", who)
    a = (randn(3, 4) * (randn(3, 4, seed=1) > 0)).to_sparse(layout=getattr(torch, f"sparse_{layout}"))
    found = gradverify.check(Square, a, select=["GV203"])
    assert [finding.message for finding in found.findings if finding.code == "GV203"] == ([f"{who} writes into a"] if who else [])


@pytest.mark.parametrize(("layout", "blocksize"), [("csr", None), ("csc", None), ("bsr", (2, 2))])
def test_a_batch_holds_equally_many_elements_in_each_matrix(layout: str, blocksize: tuple[int, int] | None) -> None:
    recipe = tensor(2, 4, 6, name="input", sparse=Sparse(layout, density=0.4, blocksize=blocksize))
    result = run_case(case("torch:clone", [recipe], select=("GV101",)))
    assert "GV001" not in codes(result) and result.inputs[0].shape == (2, 4, 6)
