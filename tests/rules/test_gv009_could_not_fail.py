from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from live import check, codes, fixed, message, randn

from rules.functions import square


def test_a_dead_region_is_told():
    result = check(F.relu, -randn(2, 3).abs() - 1)
    assert (result.verdict, codes(result)) == ("pass", {"GV009"})
    assert "every gradient is zero" in message(result, "GV009")


def test_a_gradient_that_is_rounding_throughout_is_told():
    result = check(lambda x: 1 + 1e-20 * x, randn(3))
    assert (result.verdict, codes(result)) == ("pass", {"GV009"})
    assert "zero up to rounding" in message(result, "GV009")
    assert codes(check(lambda x: 1 + 1e-3 * x, randn(3))) == set()


def test_a_tolerance_above_every_gradient_is_told():
    result = check(lambda x: 1e-3 * x, randn(3), atol=1e-2)
    assert (result.verdict, codes(result)) == ("pass", {"GV009"})
    assert "atol 0.01" in message(result, "GV009")
    assert codes(check(lambda x: x, randn(3), atol=1e-2)) == set()


class Embeds(torch.autograd.Function):
    """table[index], whose right backward adds up what repeats."""

    @staticmethod
    def forward(ctx, table, index):
        ctx.save_for_backward(index)
        ctx.rows = len(table)
        return table[index]

    @staticmethod
    def backward(ctx, grad_output):
        index, = ctx.saved_tensors
        return grad_output.new_zeros(ctx.rows, *grad_output.shape[1:]).index_add(0, index, grad_output), None


@pytest.mark.parametrize("function", [Embeds, lambda table, index: table[index], lambda table, index: F.embedding(index, table)])
def test_indices_that_never_repeat_are_told_and_repeating_ones_are_not(function):
    result = check(function, randn(4, 2), fixed(torch.tensor([3, 0, 1])), ignore=("GV223",))
    assert codes(result) == {"GV009"}
    assert "the indices in" in message(result, "GV009")
    assert codes(check(function, randn(4, 2), fixed(torch.tensor([3, 0, 3])), ignore=("GV223",))) == set()


def test_indices_that_the_check_repeats_itself_need_not_repeat():
    assert codes(check(Embeds, randn(4, 2), fixed(torch.tensor([3, 0, 1])))) == set()
    assert codes(check(Embeds, randn(4, 2), fixed(torch.tensor([3, 0, 1])), select=("GV1",))) == {"GV009"}


def test_where_outputs_meet_in_one_gradient_anyway_an_overwrite_would_show():
    function = (lambda table, index: table[index].cumsum(0), randn(4, 2), fixed(torch.tensor([3, 0, 1])))
    assert codes(check(*function, ignore=("GV223",))) == set()


@pytest.mark.parametrize(("function", "integers"), [
    (lambda x, n: x * n[:, None], torch.tensor([1, 2, 3])),                       # factors, no indices
    (lambda x, target: F.cross_entropy(x, target), torch.tensor([2, 0, 1])),       # one class each: rows do not meet
    (lambda x, lengths: x * (torch.arange(2) < lengths[:, None]), torch.tensor([2, 1, 3])),
])
def test_other_integers_that_differ_are_not_called_indices(function, integers):
    x = randn(3, 3)[:, :2] if function.__code__.co_varnames[1] == "lengths" else randn(3, 3)
    assert codes(check(function, x, fixed(integers), ignore=("GV223",))) == codes(check(function, x, fixed(integers))) == set()


def test_a_wrong_gradient_is_enough_said():
    assert codes(check(square(lambda x, g: g), torch.zeros(3, dtype=torch.float64))) == {"GV101"}


class DeadAndUnread(torch.autograd.Function):
    """relu that saves a tensor for nothing: a warning of its own."""

    @staticmethod
    def forward(ctx, x):
        ctx.mask = x > 0
        ctx.save_for_backward(x)
        return x.clamp_min(0)

    @staticmethod
    def backward(ctx, g):
        return g * ctx.mask


@pytest.mark.parametrize(("strict", "severity", "verdict"), [(False, "warning", "pass"), (True, "error", "fail")])
def test_a_warning_does_not_silence_it_and_under_strict_the_same_is_found(strict, severity, verdict):
    result = check(DeadAndUnread, -randn(2, 3).abs() - 1, strict=strict)
    assert {(finding.code, finding.severity) for finding in result.findings} == {("GV009", severity), ("GV224", severity)}
    assert result.verdict == verdict        # what is wrong comes before what could not be told


def test_strict_makes_it_an_error():
    result = check(F.relu, -randn(2, 3).abs() - 1, strict=True)
    assert result.verdict == "error"
    assert result.findings[0].severity == "error"
