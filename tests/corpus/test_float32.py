"""Everyday operators in float32, each under every rule at the default settings, and their gradients
with one element damaged.

The class of faults: a right float32 gradient is undecided, or accused, because the finite
difference rounds more coarsely than the tolerance, or because backward rounds within its row; or an
element far below the largest of its row goes by unseen because of that.
"""

from __future__ import annotations

import statistics
from functools import cache

import numpy as np
import pytest
import torch
from live import check, subject
from torch import Tensor

from corpus.float32_operators import OPERATORS, Operator
from gradverify.evidence import Evidence
from gradverify.model.result import CaseResult
from gradverify.numerics.function.coordinates import columns_of, numbers, one_hot
from gradverify.numerics.verdict import Verdict
from gradverify.subject.differentiable import Differentiable, Gradients

SHARE = 1.05e-4  # of its row: smaller elements are not looked for
ROWS = 12
# torch's own backward of it is not linear in float32 for cotangents of 1e-12
NONLINEAR = "matrix_exp"
# 5 of 3,960 elements, the dust of transforms where zero is right, are more than are asked for one
# by one
DUST = {"FFTConvolution"}
BATCHES = {"GV228"}  # a warning on backwards that fill tensors of their own
DAMAGED = [operator for operator in OPERATORS if operator.name != NONLINEAR]

pytestmark = pytest.mark.filterwarnings("ignore")


@cache
def result(operator: Operator) -> CaseResult:
    return check(operator.call, *operator.make(0), dtype="float32")


@pytest.mark.population(most=14)
@pytest.mark.parametrize("operator", OPERATORS, ids=lambda operator: operator.name)
def test_a_right_operator_in_float32_is_decided_and_not_accused(operator: Operator) -> None:
    found = result(operator)
    allowed = (
        {"GV201"} if operator.name == NONLINEAR else {"GV007"} if operator.name in DUST else set()
    )
    assert {finding.code for finding in found.findings} - BATCHES <= allowed
    assert (
        found.verdict == "pass"
        or operator.name == NONLINEAR
        or (found.verdict == "undecided" and operator.name in DUST)
    )
    assert "finite differences in float64" in found.mode_reason or operator.name == NONLINEAR


def test_it_takes_about_as_many_calls_as_in_float64() -> None:
    calls = [
        sum((found.calls.forward, found.calls.backward)) for found in map(result, OPERATORS[::3])
    ]
    assert statistics.median(calls) <= 302


class Damaged(Differentiable):
    """Of which the float32 gradient has one element of one row off by `factor` of it."""

    output, row, place, element, off = 0, 0, 0, 0, 0.0

    def vjp(self, cotangents: list[Tensor | None], inputs: list[Tensor] | None = None) -> Gradients:
        return self._damaged(super().vjp(cotangents, inputs), cotangents)

    def vjps(self, *_: object) -> None:
        return None

    def _damaged(self, gradients: Gradients, cotangents: list[Tensor | None]) -> Gradients:
        v = cotangents[self.output]
        if v is None or self.inputs[0].dtype in (torch.float64, torch.complex128):
            return gradients
        result = list(gradients)
        x = result[self.place].clone(memory_format=torch.contiguous_format)
        (torch.view_as_real(x) if x.is_complex() else x).view(-1)[self.element] += (
            float(numbers(v)[self.row]) * self.off
        )
        result[self.place] = x
        return tuple(result)


def smallest_element(operator: Operator) -> tuple[int, int, int, int, float]:
    """Of a few rows the smallest element above the share: output, row, input, element, value."""
    own = subject(operator.call, *operator.make(0), dtype="float32")
    found = Evidence(own)
    columns = columns_of(own.inputs, [None] * len(own.inputs), [False] * len(own.inputs))
    places = [(output, j) for output, y in enumerate(found.outputs) for j in range(len(numbers(y)))]
    seen = []
    for output, j in (
        places[k]
        for k in np.random.default_rng(0).choice(len(places), min(len(places), ROWS), replace=False)
    ):
        ones = [
            one_hot(y.shape, y.dtype, y.device, j) if n == output else None
            for n, y in enumerate(found.outputs)
        ]
        pairs = zip(found.function.vjp(ones), own.inputs, strict=True)
        a = np.concatenate(
            [
                numbers(torch.zeros_like(x) if gradient is None else gradient).copy()
                for gradient, x in pairs
            ]
        )
        share = np.abs(a) * columns.scale / max(float((np.abs(a) * columns.scale).max()), 1e-300)
        column = int(np.argmin(np.where(share > SHARE, share, np.inf)))
        tensor = int(columns.tensor[column])
        if share[column] > SHARE:
            seen.append(
                (
                    share[column],
                    (output, j, tensor, column - int(columns.of(tensor)[0]), float(a[column])),
                )
            )
    return min(seen)[1]


@pytest.mark.population(most=5)
@pytest.mark.parametrize("factor", [-1.0, 0.01], ids=["zero", "one percent"])
@pytest.mark.parametrize("operator", DAMAGED, ids=lambda operator: operator.name)
def test_one_small_element_of_the_float32_gradient_alone_is_found(
    operator: Operator, factor: float
) -> None:
    output, row, place, element, value = smallest_element(operator)
    damage = dict(output=output, row=row, place=place, element=element, off=factor * value)
    own = subject(operator.call, *operator.make(0), dtype="float32", mode="entries")
    pair = Evidence(own, differentiate=type("OneOff", (Damaged,), damage)).jacobian.pairs[
        place, output
    ]
    assert pair.verdict is Verdict.MISMATCH


def test_sums_of_probabilities_have_a_zero_gradient_whose_dust_is_no_fault() -> None:
    found = check(
        lambda x: x.softmax(-1).sum(-1),
        torch.randn(3, 9, generator=torch.Generator().manual_seed(0)),
        dtype="float32",
    )
    assert found.verdict == "pass" and {finding.code for finding in found.findings} == {"GV009"}


def test_a_fault_that_shows_at_a_second_point_only_is_found_in_float32() -> None:
    class KeepsItsMask(torch.autograd.Function):
        mask: Tensor | None = None

        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x.abs()

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            if KeepsItsMask.mask is None:
                KeepsItsMask.mask = x.sign()
            return grad * 2 * x * KeepsItsMask.mask.to(x.dtype)

    found = check(
        KeepsItsMask, torch.randn(9, generator=torch.Generator().manual_seed(0)), dtype="float32"
    )
    assert "GV113" in {finding.code for finding in found.findings}
