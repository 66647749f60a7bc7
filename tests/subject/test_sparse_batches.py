"""Batches of sparse matrices: each holds its own elements, equally many, and a wrong gradient in a
matrix behind the first is found there."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from live import case, subject, tensor
from torch import Tensor
from torch.autograd import Function

from gradverify.model.case import Sparse
from gradverify.subject.prepare import prepare
from gradverify.verify import verify

STORED = {"csr": None, "csc": None, "bsr": (2, 2), "bsc": (2, 3)}
SHAPE = (3, 4, 6)


class Square(Function):
    """Of the dense numbers."""

    @staticmethod
    def forward(ctx: Any, a: Tensor) -> Tensor:
        x = a.to_dense()
        ctx.save_for_backward(x)
        return x**2

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return 2 * g * ctx.saved_tensors[0]


class ScalesTheSecond(Square):
    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return (
            Square.backward(ctx, g) * torch.tensor([1.0, 1.01, 1.0], dtype=g.dtype)[:, None, None]
        )


class SwapsMatrices(Square):
    """Which moves only what it also holds there: elsewhere the gradient does not count."""

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return Square.backward(ctx, g).flip(0)


WRONG = {ScalesTheSecond: {1}, SwapsMatrices: {0, 2}}


def judged(function: type[Function], layout: str, seed: int) -> Any:
    recipe = tensor(*SHAPE, name="a", sparse=Sparse(layout, density=0.5, blocksize=STORED[layout]))
    made = prepare(case("builtins:print", [recipe], seed=seed)).arguments
    return verify(subject(function, *made, select=("GV101",)))


@pytest.mark.parametrize(
    ("function", "layout", "seed"),
    [
        (Square, "csr", 0),
        (Square, "bsc", 1),
        (ScalesTheSecond, "csc", 0),
        (SwapsMatrices, "bsr", 1),
        (SwapsMatrices, "csr", 0),
    ],
)
def test_a_mistake_in_one_matrix_is_found_in_that_one(
    function: type[Function], layout: str, seed: int
) -> None:
    result = judged(function, layout, seed)
    assert result.verdict == ("fail" if function in WRONG else "pass")
    worst = [element for each in result.comparisons for element in each.worst]
    found = {int(element.input_index[0]) for element in worst if element.outcome == "mismatch"}
    assert found <= WRONG.get(function, set()) and bool(found) is (function in WRONG)
    assert sum(each.elements for each in result.comparisons) == 3 * 12 * 3 * 4 * 6
