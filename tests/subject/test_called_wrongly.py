"""A target that is there and is called wrongly is no failed import; a kernel that runs on a GPU
only is told with what to write."""

import pytest
import torch
from live import check, codes, fixed, message, randn

from gradverify.subject.failure import ON_CUDA, ON_CURRENT, UserCodeError, blamed
from gradverify.subject.subject import Argument


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, factor):
        ctx.factor = factor
        return x * factor

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output * ctx.factor, None


@pytest.mark.parametrize(
    "values, said",
    [
        ([randn(3)], "takes (x, factor)"),
        ([randn(3), fixed(2.0), fixed(1)], "takes (x, factor)"),
        ([Argument("x", randn(3), True)], "'factor' is missing"),
        ([Argument("x", randn(3), True), Argument("factr", 2.0)], "no parameter 'factr'"),
    ],
)
@pytest.mark.parametrize("function", [Scaled, lambda x, factor: x * factor])
def test_arguments_that_do_not_fit_are_a_call_that_cannot_be_made(function, values, said):
    with pytest.raises(UserCodeError) as raised:
        check(function, *values)
    assert raised.value.code == "GV002" and said in raised.value.message


def test_what_only_the_call_shows_names_the_call():
    result = check(lambda x, *, factor: x * factor, randn(3))
    assert codes(result) == {
        "GV002"
    } and "missing 1 required keyword-only argument: 'factor'" in message(result, "GV002")


@pytest.mark.parametrize(
    "text",
    [
        "x must be a CUDA tensor",
        "input must be on CUDA",
        "Expected all tensors on cuda",
        "expected tensor to be on cuda",
        "Expected a CUDA tensor",
        "\"my_kernel\" not implemented for 'CPU'",
        "Could not run 'lib::op' with arguments from the 'CPU' backend.",
        "No CUDA GPUs are available",
        "Pointer argument (at 0) cannot be accessed from Triton (cpu tensor?)",
        "Torch not compiled with CUDA enabled",
        "Found no NVIDIA driver on your system.",
        "only implemented for CUDA",
        "not implemented on the CPU",
        "this op is not supported on CPU",
    ],
)
def test_a_kernel_that_wants_a_gpu_is_told_with_what_to_write(text):
    with pytest.raises(UserCodeError) as raised, blamed("GV002", "forward"):
        raise RuntimeError(text)
    assert raised.value.hint == ON_CUDA and "`device: cuda`" in ON_CUDA


def test_an_assertion_on_is_cuda_is_told_so_too():
    with pytest.raises(UserCodeError) as raised, blamed("GV002", "forward"):
        assert torch.ones(2).is_cuda
    assert raised.value.hint == ON_CUDA


@pytest.mark.parametrize(
    "text",
    [
        "\"tril\" not implemented for 'Half'",
        "CUDA out of memory",
        "expected scalar type Double but found Float",
        "shape mismatch",
        "CUDA error: an illegal memory access was encountered",
    ],
)
def test_what_has_nothing_to_do_with_the_device_is_not(text):
    with pytest.raises(UserCodeError) as raised, blamed("GV002", "forward"):
        raise RuntimeError(text)
    assert raised.value.hint != ON_CUDA


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("Pointer argument (at 0) cannot be accessed from Triton (cpu tensor?)", ON_CURRENT),
        ("x must be a CUDA tensor", ON_CUDA),
    ],
)
def test_on_a_machine_with_gpus_a_launch_may_be_on_another_than_the_tensors(
    text, hint, monkeypatch
):
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    with pytest.raises(UserCodeError) as raised, blamed("GV002", "forward"):
        raise ValueError(text)
    assert raised.value.hint == hint and "torch.cuda.device(x.device)" in ON_CURRENT
