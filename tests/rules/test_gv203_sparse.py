"""Functions that write into a sparse input, and right ones."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from live import randn
from torch import Tensor
from torch.autograd import Function

import gradverify
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
    found = gradverify.check(Square, a, select=("GV203",))
    assert [finding.message for finding in found.findings if finding.code == "GV203"] == ([f"{who} writes into a"] if who else [])
