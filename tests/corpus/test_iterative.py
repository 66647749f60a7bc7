"""Functions that iterate until an absolute tolerance is met: what the iterations leave accuses
nothing right and hides nothing wrong.

The classes of faults: a rule that scales cotangents takes a solver's tolerance for nonlinearity;
what is left of an initial guess is taken for a missing gradient; a leftover that is a share of its
row is held against a small element.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from live import check
from torch import Tensor
from torch.autograd import Function

from corpus.iterative import ITERATIVE, Iterative

# rtol: a solver's residual is an error of the gradient times its condition
DEFAULT, SHARE = 1e-6, 100
LOOSE, TIGHT = 1e-6, 1e-10
CASES = [
    pytest.param(sample, tolerance, id=f"{sample.name} to {tolerance:g}")
    for sample in ITERATIVE
    for tolerance in sample.tolerances
]
WRONG = [
    pytest.param(sample, fault, id=f"{sample.name}: {fault}")
    for sample in ITERATIVE
    for fault in sample.faults
]


@pytest.mark.parametrize("sample", ITERATIVE, ids=lambda sample: sample.name)
def test_the_samples_are_right(sample: Iterative):
    values = [value.requires_grad_() for value in sample.arguments()]
    tolerance = min(sample.tolerances)
    outputs = sample.make(tolerance).apply(*values), sample.truth(*values)
    cotangent = torch.linspace(-1, 1.3, outputs[1].numel(), dtype=torch.float64).reshape(
        outputs[1].shape
    )
    torch.testing.assert_close(*outputs, rtol=1e-9, atol=100 * tolerance)
    mine, truth = (
        torch.autograd.grad(y, values, cotangent, materialize_grads=True, allow_unused=True)
        for y in outputs
    )
    torch.testing.assert_close(mine, truth, rtol=1e-9, atol=100 * tolerance)


@pytest.mark.population(by="sample", most=4)
@pytest.mark.parametrize(("sample", "tolerance"), CASES)
def test_what_convergence_leaves_is_no_error(sample: Iterative, tolerance: float):
    result = check(
        sample.make(tolerance), *sample.arguments(), rtol=max(DEFAULT, SHARE * tolerance)
    )
    errors = {finding.code for finding in result.findings if finding.severity == "error"}
    assert errors <= {"GV007"}, [(finding.code, finding.message) for finding in result.findings]


@pytest.mark.population(by="sample", most=4)
@pytest.mark.parametrize(("sample", "fault"), WRONG)
def test_a_wrong_backward_among_iterations_is_found(sample: Iterative, fault: str):
    result = check(
        sample.make(LOOSE, fault),
        *sample.arguments(),
        rtol=SHARE * LOOSE,
        select=("GV101", "GV102"),
    )
    assert result.verdict == "fail"


def with_one_wrong(sample: Iterative, share: float) -> type[Function]:
    """The Function with the smallest element of the first row of its Jacobian off by less than
    `share` of the largest of that row, and by more than `share` of itself."""
    cls, leaves = sample.make(TIGHT), [value.requires_grad_() for value in sample.arguments()]
    found = torch.autograd.grad(cls.apply(*leaves).reshape(-1)[0], leaves, allow_unused=True)
    place, row = max(enumerate(found), key=lambda pair: 0 if pair[1] is None else pair[1].numel())
    error, index = share * (0.3 * row.abs().min() + 0.7 * row.abs().max()), int(row.abs().argmin())

    class Damaged(cls):  # type: ignore[misc,valid-type]
        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Any:
            found = cls.backward(ctx, g)
            found = list(found) if isinstance(found, tuple) else [found]
            found[place] = found[place].clone()
            found[place].reshape(-1)[index] += error * g.reshape(-1)[0]
            return tuple(found)

    return Damaged


@pytest.mark.population(most=1)
@pytest.mark.parametrize("sample", ITERATIVE, ids=lambda sample: sample.name)
def test_an_error_as_small_as_what_an_iteration_may_leave_does_not_pass(sample: Iterative):
    rtol = SHARE * LOOSE
    result = check(with_one_wrong(sample, rtol), *sample.arguments(), rtol=rtol, select=("GV101",))
    assert result.verdict != "pass"
