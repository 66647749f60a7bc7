from __future__ import annotations

import pytest
import torch
from live import check, codes, fixed, message, randn
from torch.autograd import Function

from rules.functions import X, Y, unary
from rules.test_gv210_cotangent_layout import READS, by_strides


def sine(read, weight=False):
    """sin(x), with `read` between x and what is computed."""

    class Sine(Function):
        @staticmethod
        def forward(ctx, x):
            x = read(x.detach()).clone()
            ctx.save_for_backward(x)
            return x.sin()

        @staticmethod
        def backward(ctx, g):
            x, = ctx.saved_tensors
            return g * x.cos()

    return Sine


@pytest.mark.parametrize("read", [read for name, read in READS.items() if "strides are 0" not in name])      # no input is expanded
def test_an_input_that_is_taken_for_contiguous_is_found(read):
    result = check(sine(read), X)
    assert codes(result) == {"GV211"}
    assert "with x " in message(result, "GV211") and "as with the same numbers contiguous" in message(result, "GV211")


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_behind_contiguous_every_way_of_reading_is_right(read):
    assert codes(check(sine(lambda x: read(x.contiguous())), X, second_order=False)) == set()


def test_a_backward_that_reads_what_was_saved_as_contiguous_is_found():
    result = check(unary(torch.sin, lambda x, g: g * by_strides(x).cos()), X)
    assert codes(result) == {"GV211"}
    assert "with x sliced (every second column of wider rows), the gradient at x[" in message(result, "GV211")


def test_a_backward_that_raises_is_found():
    result = check(unary(torch.sin, lambda x, g: g * x.view(-1).cos().view(x.shape)), X)
    assert codes(result) == {"GV211"}
    assert "backward raised RuntimeError: view size" in message(result, "GV211")


class Product(Function):
    """x · w, which reads w as contiguous."""

    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x * by_strides(w)

    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        return g * by_strides(w), g * x


@pytest.mark.parametrize("w", [Y, fixed(Y)], ids=["differentiable", "not"])
def test_the_argument_at_fault_is_named_also_where_it_is_not_differentiated(w):
    assert {(found.code, found.input) for found in check(Product, X, w).findings} == {("GV211", "w")}


def test_indices_are_laid_out_too_and_stay_in_range():
    def read(table, index):
        return table[index.as_strided(index.shape, (1,))]

    assert codes(check(read, randn(4, 2), fixed(torch.tensor([3, 0, 3])))) == {"GV211"}
    assert codes(check(lambda table, index: table[index], randn(4, 2), fixed(torch.tensor([3, 0, 3])))) == set()


def test_an_in_place_function_gets_its_layout_too():
    class Doubles(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.mark_dirty(x)
            if x.is_contiguous():
                return x.mul_(2)
            return x.mul_(3)

        @staticmethod
        def backward(ctx, g):
            return 2 * g

    assert codes(check(Doubles, X)) == {"GV211"}


def test_a_forward_that_refuses_is_not_at_fault_and_says_what_it_refused():
    def refuses(x):
        if not x.is_contiguous():
            raise ValueError("x must be contiguous")
        return x

    result = check(sine(refuses), X, second_order=False)
    run = next(run for run in result.rules if run.code == "GV211")
    assert codes(result) == set()
    assert (run.status, "forward raised ValueError: x must be contiguous" in run.reason) == ("not_applicable", True)


def test_one_layout_is_refused_and_the_other_is_still_compared():
    def particular(x):
        if x.storage_offset():
            raise ValueError("no offset, please")
        return by_strides(x)

    assert codes(check(sine(particular), X)) == {"GV211"}


def test_random_functions_are_left_out():
    run = next(run for run in check(torch.nn.functional.dropout, X).rules if run.code == "GV211")
    assert run.reason == "it draws random numbers, which fall on other elements in another layout"


def test_ties_may_be_broken_differently():
    x = torch.tensor([[1.0, 1.0, 0.5], [2.0, 2.0, 2.0]], dtype=torch.float64)

    class Max(Function):
        @staticmethod
        def forward(ctx, x):
            place = x.argmax(1) if x.is_contiguous() else x.shape[1] - 1 - x.flip(1).argmax(1)
            ctx.save_for_backward(place)
            ctx.shape = x.shape
            return x.gather(1, place[:, None])

        @staticmethod
        def backward(ctx, g):
            place, = ctx.saved_tensors
            return g.new_zeros(ctx.shape).scatter(1, place[:, None], g)

    assert "GV211" not in codes(check(Max, x))


def test_float32_sums_in_another_order_are_equal_within_rounding():
    x = randn(7, 33).float()
    assert codes(check(lambda x: x.logsumexp(0) + x.std(0), x, dtype="float32", select=("GV211",), ignore=("GV0",))) == set()


NOISY = unary(torch.sin, lambda x, g: g * x.cos() + torch.randn_like(g) + torch.randn_like(x))      # in the order of memory


@pytest.mark.parametrize("code", ["GV210", "GV211"])
def test_noise_that_backward_draws_is_not_compared_between_layouts(code):
    run = next(run for run in check(NOISY, X, select=(code,)).rules if run.code == code)
    assert (run.status, run.reason) == ("not_applicable", "backward draws random numbers, which fall on other elements in another layout")


@pytest.mark.parametrize("code", ["GV210", "GV211"])
def test_a_backward_that_draws_and_raises_for_a_layout_is_found(code):
    views = unary(torch.sin, lambda x, g: x.view(-1).cos().view(x.shape) * g.view(-1).view(x.shape) + torch.randn_like(g))
    assert codes(check(views, X, select=(code,))) == {code}


# ---- beside a wrong Jacobian
def gathered(shift, contiguous=False):
    """img[:, r, c], whose gradient is put together by flat places, `shift` too far, in memory that a view is taken of."""

    class Gather(Function):
        @staticmethod
        def forward(ctx, img, r, c):
            ctx.save_for_backward(img, r, c)
            return img[:, r, c]

        @staticmethod
        def backward(ctx, g):
            img, r, c = ctx.saved_tensors
            gradient = torch.zeros_like(img, memory_format=torch.contiguous_format if contiguous else torch.preserve_format)
            gradient.view(len(img), -1).index_add_(1, r * img.shape[2] + c + shift, g)
            return gradient, None, None

    return Gather


PLACES = randn(2, 3, 4), fixed(torch.tensor([0, 1, 2])), fixed(torch.tensor([2, 0, 1]))


@pytest.mark.parametrize(("shift", "contiguous", "wanted"), [
    (0, True, set()), (1, True, {"GV101"}), (0, False, {"GV211"}), (1, False, {"GV101", "GV211"})])
def test_a_wrong_jacobian_of_contiguous_tensors_stands_beside_a_layout_that_is_refused(shift, contiguous, wanted):
    img = PLACES[0].clone().requires_grad_()
    right, = torch.autograd.grad(img[:, PLACES[1].value, PLACES[2].value].sum(), img)
    own, = torch.autograd.grad(gathered(shift, contiguous).apply(img, PLACES[1].value, PLACES[2].value).sum(), img)
    assert torch.equal(own, right) == (shift == 0)
    result = check(gathered(shift, contiguous), *PLACES)
    assert codes(result) == wanted
    assert all(finding.also == () for finding in result.findings)


def test_of_a_function_inside_a_callable_the_layout_explains_the_jacobian():
    """Which gives it a transposed tensor where its own is contiguous."""
    inner = unary(torch.sin, lambda x, g: g * by_strides(x).cos())
    found, = check(lambda x: inner.apply(x.t()), X).findings
    assert (found.code, found.also) == ("GV211", ("GV101",))
