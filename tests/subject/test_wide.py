"""A float32 subject in float64: all that it is given, and nothing else of the process, is of the wider kind."""

import pytest
import torch
from live import case, fixed, randn, subject

from gradverify.subject.differentiable import Differentiable
from gradverify.subject.failure import UserCodeError
from gradverify.subject.prepare import assemble
from gradverify.subject.subject import Argument
from gradverify.subject.target import live
from gradverify.subject.wide import is_narrow, wide, widened


def seen(function, *values, **changes):
    """The dtypes that the function meets under `widened`."""
    found = []

    def spied(*given):
        found.extend(x.dtype for x in given if isinstance(x, torch.Tensor))
        return function(*given)

    own = subject(spied, *values, **changes)
    return widened(own), found


def test_inputs_and_what_is_not_differentiated_come_in_float64_and_integers_as_they_are():
    twin, found = seen(lambda x, w, i: (x * w)[i], randn(3, dtype=torch.float32), fixed(randn(3, dtype=torch.float32)), fixed(torch.tensor([0, 2])))
    outputs = Differentiable(twin, (0,)).values(twin.leaves())
    assert found == [torch.float64, torch.float64, torch.int64] and outputs[0].dtype == torch.float64


def test_the_numbers_are_those_of_float32():
    x = randn(5, dtype=torch.float32)
    assert torch.equal(widened(subject(torch.sin, x)).inputs[0], x.double())
    z = randn(5, dtype=torch.complex64)
    assert torch.equal(wide(z), z.to(torch.complex128)) and wide(torch.arange(3)).dtype == torch.int64


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
    refuses = widened(subject(lambda x: x @ torch.ones(3, dtype=torch.float32), randn(3, dtype=torch.float32)))
    with pytest.raises(UserCodeError):
        Differentiable(refuses, (0,)).values(refuses.leaves())
    assert torch.get_default_dtype() == torch.float32


def test_calls_are_counted_by_the_subject_and_seeded_when_it_seeds():
    own = subject(lambda x: x * torch.rand(()).to(x.dtype), randn(2, dtype=torch.float32))
    twin = widened(own)
    first, again = (Differentiable(twin, (0,)).values(twin.leaves())[0] for _ in range(2))
    assert torch.equal(first, again) and own.calls.forward == 2
    torch.manual_seed(5)
    quiet = own.seldom_seeded(lambda: Differentiable(twin, (0,)).values(twin.leaves())[0])
    assert torch.equal(quiet, first)      # what draws is measured again, seeded before every call


def test_only_float32_and_complex64_inputs_are_narrow():
    assert is_narrow(subject(torch.sin, randn(2, dtype=torch.float32))) and is_narrow(subject(torch.sin, randn(2, dtype=torch.complex64)))
    assert not is_narrow(subject(torch.sin, randn(2)))
    assert not is_narrow(subject(torch.mul, randn(2), fixed(randn(2, dtype=torch.float32))))
