from __future__ import annotations

import pytest
import torch
from live import check, codes, message, randn

from rules.functions import X, square


@pytest.mark.parametrize("write", [lambda g: g.mul_(2), lambda g: g.data.mul_(2), lambda g: g.detach().numpy().__imul__(2), lambda g: g[0].mul_(2)])
def test_a_write_into_grad_output_is_found_however_it_is_made(write):
    def backward(x, g):
        kept = g.clone()
        write(g)
        return 2 * x * kept

    result = check(square(backward), X)
    assert codes(result) == {"GV202"}
    assert "backward writes into grad_output of y0: grad_y0[0,0] was" in message(result, "GV202")


def test_a_write_of_the_same_number_and_a_write_into_a_copy_are_fine():
    assert codes(check(square(lambda x, g: 2 * x * g.mul_(1)), X, ignore=("GV210",))) == set()     # GV210: behind a sum it raises
    assert codes(check(square(lambda x, g: g.clone().mul_(2).mul_(x)), X)) == set()


def test_the_second_output_is_named():
    class Two(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2, x * 3

        @staticmethod
        def backward(ctx, first, second):
            result = 2 * first + 3 * second
            second.zero_()
            return result

    assert [(found.code, found.output) for found in check(Two, randn(2)).findings] == [("GV202", 1)]


def test_a_complex_cotangent_is_watched_too():
    def backward(x, g):
        kept = g.clone()
        g.mul_(1j)
        return 2 * x.conj() * kept

    assert codes(check(square(backward), randn(2, dtype=torch.complex128))) == {"GV202"}


def test_a_write_into_grad_output_is_no_fault_of_another_kind():
    assert codes(check(square(lambda x, g: g.mul_(2).mul(x.detach())), X, ignore=("GV202", "GV109"))) == set()
    assert codes(check(square(lambda x, g: g.mul_(2).mul_(x.detach())), X)) == {"GV202"}
