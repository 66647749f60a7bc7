from __future__ import annotations

import pytest
import torch
from live import check, codes, message, randn

from rules.functions import square


def test_a_step_that_moves_nothing_decides_nothing():
    result = check(torch.sin, randn(3), eps=1e-30)
    assert (result.verdict, codes(result)) == ("undecided", {"GV007"})
    assert "9 of 9 elements" in message(result, "GV007")
    assert "does not move the input" in message(result, "GV007")
    assert "leave out `eps`" in result.findings[0].hint


def test_one_open_element_of_many_is_let_pass_and_counted():
    result = check(lambda x: x * 1, torch.tensor([*[1.0] * 4, 1e12], dtype=torch.float64)[:, None].expand(5, 1), eps=1e-6)
    assert result.verdict == "undecided"        # a column of five
    one = check(lambda x: x.sum(), torch.tensor([1.0, 1.0, 1e12], dtype=torch.float64), eps=1e-5, atol=1.0)
    assert (one.verdict, sum(each.undecided for each in one.comparisons)) == ("pass", 1)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("function", [lambda x: x.exp() - 1, lambda x: (1 + x).log(), lambda x: (1 + x).sqrt() - 1])
def test_a_single_element_that_is_open_and_seems_wrong_is_no_pass(function, dtype):
    """f moves in steps of the rounding of 1 there, which leaves a zero open where the slope is 1; the right gradient passes."""
    class Last(torch.autograd.Function):
        kept = 9

        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return function(x)

        @classmethod
        def backward(cls, ctx, grad_output):
            x, = ctx.saved_tensors
            with torch.enable_grad():
                x = x.detach().requires_grad_()
                slope, = torch.autograd.grad(function(x).sum(), x)
            return grad_output * slope * (torch.arange(10) < cls.kept)

    class Right(Last):
        kept = 10

    ignored = ("GV109", "GV226", "GV228")       # of the backward as it is written here
    for seed in range(2):
        x = (1e-6 * randn(10, seed=seed)).to(dtype)
        assert check(Right, x, dtype=str(dtype).removeprefix("torch."), ignore=ignored).verdict == "pass"
        assert check(Last, x, dtype=str(dtype).removeprefix("torch."), ignore=ignored).verdict in ("undecided", "fail")


@pytest.mark.parametrize("seed", range(3))
def test_a_single_element_on_steps_too_flat_for_its_gradient_does_not_seem_wrong(seed):
    """The imaginary part of `log Σ exp(z)` is that of the largest z modulo 2π: at 1e6 it jumps at every step, and its derivative is 1."""
    x = torch.view_as_complex(1e6 * (1 + torch.rand(25, 2, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)))
    result = check(lambda x: torch.logsumexp(x, 0), x, dtype="complex128", select=("GV101", "GV007"))
    assert (result.verdict, sum(each.undecided for each in result.comparisons)) == ("pass", 1)


def test_a_single_element_that_is_open_is_not_a_pass():
    assert check(torch.sin, torch.tensor(1e12, dtype=torch.float64), eps=1e-6).verdict == "undecided"


def test_a_single_line_that_is_open_is_not_a_pass_as_it_stands_for_many_elements():
    edge = lambda x, y: x.asin() * y      # noqa: E731
    x = torch.tensor([-1.0, -0.5, 0.25, 1.0], dtype=torch.float64)
    blocks = check(edge, x, randn(4), mode="blocks", select=("GV101",))
    assert sum(each.undecided for each in blocks.comparisons) == 1
    assert (blocks.verdict, codes(blocks)) == ("undecided", {"GV007"})
    assert "1 of 2 blocks" in message(blocks, "GV007")


def test_a_wrong_element_outweighs_open_ones():
    wrong = square(lambda x, g: x * g)
    result = check(wrong, torch.tensor([1.0, 1e12, 1e12], dtype=torch.float64), eps=1e-6)
    assert (result.verdict, codes(result)) == ("fail", {"GV101"})


def test_a_warning_does_not_hide_that_nothing_was_decided():
    saves = square(lambda x, g: 2 * x * g)

    class SavesForNothing(saves):
        @staticmethod
        def backward(ctx, grad_output):
            return grad_output

    result = check(SavesForNothing, randn(3), eps=1e-30)
    assert result.verdict == "undecided"
    assert codes(result) == {"GV224", "GV007"}


@pytest.mark.parametrize("select", [("GV101",), ("GV1",)])
def test_selecting_the_comparison_does_not_hide_it_either(select):
    assert check(torch.sin, randn(3), eps=1e-30, select=select).verdict == "undecided"


def test_whole_numbers_that_are_read_as_indices_come_with_what_to_write():
    """A spec's `values` have the check's dtype."""
    counts = lambda x, n: x * n.long()      # noqa: E731
    n = torch.tensor([1.0, 3.0, 2.0], dtype=torch.float64)
    result = check(counts, randn(3), n, select=("GV101", "GV007"))
    assert result.verdict == "undecided" and "`dtype: int64`" in result.findings[0].hint
    between = check(lambda x: (x * 4).round(), torch.tensor([0.125, 0.375, 0.625], dtype=torch.float64), select=("GV101", "GV007"))
    assert all("int64" not in (finding.hint or "") for finding in between.findings)


def multiplied(factor, inside):
    """x · w, of numbers of 16 bits."""
    class Product(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, w):
            ctx.save_for_backward(x, w)
            return torch.tanh(x.to(inside) * w.to(inside)).to(x.dtype)

        @staticmethod
        def backward(ctx, g):
            x, w = ctx.saved_tensors
            g = g * (1 - torch.tanh(x * w) ** 2)
            return g * w, factor * g * x
    return Product


@pytest.mark.parametrize(("inside", "name"), [(torch.bfloat16, "bfloat16"), (torch.float16, "float16")])
def test_a_narrow_type_inside_is_named_and_its_own_check_decides(inside, name):
    x, w = randn(4), randn(4, seed=1)
    result = check(multiplied(1.0, inside), x, w)
    assert (result.verdict, codes(result) - {"GV222"}) == ("undecided", {"GV007"})
    assert f"forward computes in {name} inside" in message(result, "GV007")
    assert f"`dtype: {name}`" in next(finding.hint for finding in result.findings if finding.code == "GV007")
    narrow = [check(multiplied(factor, inside), x.to(inside), w.to(inside), dtype=name).verdict for factor in (1.0, 1.02)]
    assert narrow == ["pass", "fail"]
