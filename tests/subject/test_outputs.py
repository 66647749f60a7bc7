from __future__ import annotations

import collections
import dataclasses

import pytest
import torch
from live import check, codes, message, randn
from torch.autograd import Function

from gradverify.subject.forms import leaves, names

A, B, C = torch.ones(1), torch.ones(2), torch.ones(3)
Pair = collections.namedtuple("Pair", "mean var")


@dataclasses.dataclass
class Loss:
    total: torch.Tensor
    parts: object


@pytest.mark.parametrize(
    ("returned", "said"),
    [
        ([A, None, B], {"y0": A, "y1": None, "y2": B}),
        ({"loss": A, "h": (B, C)}, {"y.loss": A, "y.h[0]": B, "y.h[1]": C}),
        (
            Loss(A, [B, Pair(C, A)]),
            {"y.total": A, "y.parts[0]": B, "y.parts[1].mean": C, "y.parts[1].var": A},
        ),
        ({"a b": A, 3: B}, {"y['a b']": A, "y[3]": B}),
        (({"x": Loss(A, None)}, B), {"y0.x.total": A, "y0.x.parts": None, "y1": B}),
        (torch.max(torch.eye(2), 0), {"y0": torch.ones(2), "y1": torch.tensor([0, 1])}),
    ],
)
def test_outputs_are_flattened_and_named_by_their_path(returned, said):
    assert list(names(returned)) == list(said)
    assert all(
        one is two or torch.equal(one, two)
        for one, two in zip(leaves(returned), said.values(), strict=True)
    )


class Wrong(Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output * 3


def test_a_fault_is_named_by_the_path_of_its_output():
    result = check(lambda x: {"right": x * 1, "state": Loss(x.sum(), [Wrong.apply(x)])}, randn(2))
    assert codes(result) == {"GV101"}
    (found,) = result.findings
    assert (found.output, found.output_name) == (2, "y.state.parts[0]")
    assert "d y.state.parts[0] / d" in message(result, "GV101")
    assert [(each.index, each.name) for each in result.outputs] == [
        (0, "y.right"),
        (1, "y.state.total"),
        (2, "y.state.parts[0]"),
    ]
