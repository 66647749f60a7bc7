from __future__ import annotations

import pytest
import torch
from live import check, codes, message
from torch.autograd import Function

from rules.functions import X
from rules.tricky import Flat, InPlace


def identity(give):
    class Identity(Function):
        @staticmethod
        def forward(ctx, x):
            return give(x)

        @staticmethod
        def backward(ctx, grad_output):
            return grad_output.clone()

    return Identity


@pytest.mark.parametrize("give", [lambda x: x.detach(), lambda x: torch.from_numpy(x.detach().numpy())])
def test_the_memory_of_an_input_that_autograd_does_not_know_is_a_warning(give):
    result = check(identity(give), X)
    assert [(found.code, found.severity, found.input, found.output) for found in result.findings] == [("GV219", "warning", "x", 0)]
    assert "y0 shares memory with x" in message(result, "GV219")
    assert result.verdict == "pass"


def test_the_hazard_is_real():
    """A write into such an output changes the input, and the backward of what read it gives a wrong gradient instead of raising."""
    def slope(give):
        x = torch.full((3,), 2.0, dtype=torch.float64, requires_grad=True)
        a = x * 1
        b = a * a
        identity(give).apply(a).mul_(5)
        return torch.autograd.grad(b.sum(), x)[0]

    with pytest.raises(RuntimeError):
        slope(lambda a: a.view_as(a))
    with pytest.raises(RuntimeError):
        slope(lambda a: a.detach())     # its version is shared; that of NumPy's view is not
    assert slope(lambda a: torch.from_numpy(a.detach().numpy())).tolist() == [20, 20, 20]


@pytest.mark.parametrize("give", [lambda x: x, lambda x: x.view_as(x), torch.clone])
def test_the_input_itself_a_view_and_a_copy_are_fine(give):
    assert codes(check(identity(give), X)) == set()


def test_views_and_functions_in_place_are_fine():
    assert codes(check(Flat, X)) == codes(check(InPlace, X)) == set()


def test_inside_a_callable_the_callables_own_inputs_count():
    assert codes(check(lambda x: identity(lambda a: a.detach()).apply(x), X)) == {"GV219"}
    assert codes(check(lambda x: identity(lambda a: a.detach()).apply(x * 2), X)) == set()
