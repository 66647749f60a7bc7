"""A float32 subject in float64: all that it is given, and nothing else of the process, is of the
wider kind."""

import pytest
import torch
from live import case, randn, subject

from gradverify.subject.differentiable import Differentiable
from gradverify.subject.failure import UserCodeError
from gradverify.subject.prepare import assemble
from gradverify.subject.subject import Argument
from gradverify.subject.target import live
from gradverify.subject.wide import widened


def test_modules_get_their_parameters_and_buffers_in_float64():
    class Scaled(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.tensor([2.0], dtype=torch.float32))
            self.register_buffer("shift", torch.tensor([0.5], dtype=torch.float32))

        def forward(self, x):
            assert len({self.weight.dtype, self.shift.dtype, x.dtype}) == 1
            return x * self.weight + self.shift

    made = [Argument("x", randn(4, dtype=torch.float32), True)]
    own = assemble(case(dtype="float32"), live("live", Scaled(), None, torch.float32), made)
    twin = widened(own)
    assert Differentiable(twin, (0,)).values(twin.leaves())[0].dtype == torch.float64
    assert own.target.subject.shift.dtype == torch.float32


def test_what_forward_makes_without_a_dtype_is_float64_and_the_default_is_put_back_even_after_a_fault():
    def forward(x):
        out = torch.zeros(3)
        out[:] = x
        assert out.dtype == x.dtype
        return out * 1

    own = subject(forward, randn(3, dtype=torch.float32))
    Differentiable(widened(own), (0,)).values(widened(own).leaves())
    refuses = widened(
        subject(lambda x: x @ torch.ones(3, dtype=torch.float32), randn(3, dtype=torch.float32))
    )
    with pytest.raises(UserCodeError):
        Differentiable(refuses, (0,)).values(refuses.leaves())
    assert torch.get_default_dtype() == torch.float32
