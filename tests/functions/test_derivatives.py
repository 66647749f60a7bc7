"""Every built-in, first and second order, against torch's finite differences: real and complex, broadcast, 0-dim, empty, strided."""

from __future__ import annotations

import importlib
import math

import pytest
import torch
from torch import Tensor
from torch.autograd import Function, gradcheck, gradgradcheck

from gradverify.functions.catalogue import BUILTINS

COMPLEX_TOO = ("add", "mul", "mm", "linear", "affine", "square_of_sum", "mul_add_sum", "abs_mul", "sigmoid", "kill_head", "shop")
ANY_SHAPES = {
    "add": [((3, 4), (3, 4)), ((3, 4), (4,)), ((3, 1), (1, 4)), ((2, 1, 3), ()), ((0, 4), (4,))],
    "mul": [((3, 4), (3, 4)), ((3, 4), (4,)), ((3, 1), (1, 4)), ((2, 1, 3), ()), ((0, 4), (4,))],
    "square_of_sum": [((3, 4), (3, 4)), ((3, 1), (4,)), ((), ()), ((0, 2), (2,))],
    "abs_mul": [((3, 4), (3, 4)), ((3, 1), (4,)), ((), ()), ((0,), (1,))],
    "mul_add_sum": [((3, 4), (3, 4), (3, 4)), ((3, 1), (4,), (2, 1, 1)), ((), (), ()), ((0,), (1,), ())],
    "mm": [((3, 4), (4, 2)), ((1, 1), (1, 1)), ((0, 3), (3, 2)), ((2, 0), (0, 3))],
    "affine": [((3, 4), (4, 2), (2,)), ((3, 4), (4, 2), ()), ((0, 3), (3, 2), (2,))],
    "linear": [((2, 3), (4, 3), (4,)), ((3,), (4, 3), (4,)), ((2, 2, 3), (4, 3), (4,)), ((0, 3), (4, 3), (4,)), ((2, 0), (4, 0), (4,)),
               ((2, 3), (4, 3))],
    "relu": [((3, 4),), ((),), ((0, 2),)],
    "sigmoid": [((3, 4),), ((),), ((0, 2),)],
    "softmax": [((3, 4), 0), ((3, 4), 1), ((2, 3, 4), -2), ((), 0), ((0, 3), 1), ((3, 0), 1)],
    "kill_head": [((2, 5), 2), ((5,), 0), ((2, 3, 4), 4), ((0, 4), 1), ((2, 0), 0)],
    "shop": [((), (), (), (), ()), ((), (), None, None, ()), ((2, 1), (3,), (3,), (2, 1), (3,))],
}
CASES = [pytest.param(name, form, dtype, id=f"{name}-{form}-{dtype}".replace("torch.", ""))
         for name, forms in ANY_SHAPES.items() for form in forms
         for dtype in (torch.float64, *((torch.complex128,) if name in COMPLEX_TOO else ()))]


def load(name: str):
    target = getattr(importlib.import_module(BUILTINS[name].module), BUILTINS[name].attribute)
    return target.apply if isinstance(target, type) and issubclass(target, Function) else target


def draw(shape: tuple[int, ...], seed: int, dtype: torch.dtype = torch.float64) -> Tensor:
    """Numbers of either sign between 0.3 and 1.5 in size: away from the kinks at 0."""
    generator = torch.Generator().manual_seed(seed)
    size = 0.3 + 1.2 * torch.rand(shape, dtype=torch.float64, generator=generator)
    sign = torch.rand(shape, dtype=dtype, generator=generator) - (0.5 + 0.5j if dtype.is_complex else 0.5)
    return (size * sign.sgn()).requires_grad_()


def arguments(form: tuple, dtype: torch.dtype) -> tuple:
    return tuple(draw(part, place, dtype) if isinstance(part, tuple) else part for place, part in enumerate(form))


@pytest.mark.parametrize("name, form, dtype", CASES)
def test_the_gradient_is_right(name, form, dtype):
    assert gradcheck(load(name), arguments(form, dtype))


@pytest.mark.parametrize("name, form, dtype", CASES)
def test_the_second_derivative_is_right(name, form, dtype):
    assert gradgradcheck(load(name), arguments(form, dtype))


@pytest.mark.parametrize("name", ANY_SHAPES)
def test_strided_arguments_and_strided_cotangents_change_nothing(name):
    form = ANY_SHAPES[name][0]
    plain = arguments(form, torch.float64)
    strided = tuple(strided_copy(value) if isinstance(value, Tensor) else value for value in plain)
    output, same = load(name)(*plain), load(name)(*strided)
    grad_output = draw(tuple(output.shape), 9).detach()
    torch.testing.assert_close(same, output, rtol=1e-14, atol=1e-15)
    ours, wanted = gradients(same, strided, strided_copy(grad_output).detach()), gradients(output, plain, grad_output)
    torch.testing.assert_close(ours, wanted, rtol=1e-14, atol=1e-15)


def strided_copy(tensor: Tensor) -> Tensor:
    """The same numbers, transposed in memory and with gaps between them."""
    roomy = torch.full((*reversed(tensor.shape), 2), math.nan, dtype=tensor.dtype)
    view = roomy[..., 0].permute(tuple(reversed(range(tensor.ndim))))
    view.copy_(tensor.detach())
    return view.requires_grad_()


def gradients(output: Tensor, values: tuple, grad_output: Tensor) -> tuple[Tensor, ...]:
    return torch.autograd.grad(output, [value for value in values if isinstance(value, Tensor)], grad_output)


@pytest.mark.parametrize("name", ANY_SHAPES)
def test_each_argument_alone_gets_the_gradient_that_it_gets_beside_the_others(name):
    form = ANY_SHAPES[name][0]
    together = arguments(form, torch.float64)
    output = load(name)(*together)
    grad_output = draw(tuple(output.shape), 9).detach()
    tensors = [place for place, value in enumerate(together) if isinstance(value, Tensor)]
    for place, wanted in zip(tensors, gradients(output, together, grad_output), strict=True):
        lone = [value.detach() if isinstance(value, Tensor) else value for value in together]
        lone[place].requires_grad_()
        torch.testing.assert_close(torch.autograd.grad(load(name)(*lone), lone[place], grad_output)[0], wanted, rtol=0, atol=0)


@pytest.mark.parametrize("name", ANY_SHAPES)
def test_neither_arguments_nor_grad_output_are_written_to(name):
    values = arguments(ANY_SHAPES[name][0], torch.float64)
    before = [value.detach().clone() for value in values if isinstance(value, Tensor)]
    output = load(name)(*values)
    grad_output = draw(tuple(output.shape), 9).detach()
    copy = grad_output.clone()
    gradients(output, values, grad_output)
    assert torch.equal(grad_output, copy)
    assert all(torch.equal(a, b) for a, b in zip(before, [value for value in values if isinstance(value, Tensor)], strict=True))


@pytest.mark.parametrize("name", ANY_SHAPES)
def test_a_float32_gradient_is_that_of_float64_rounded(name):
    wide = arguments(ANY_SHAPES[name][0], torch.float64)
    narrow = tuple(value.detach().float().requires_grad_() if isinstance(value, Tensor) else value for value in wide)
    output = load(name)(*narrow)
    grad_output = draw(tuple(output.shape), 9).detach()
    assert output.dtype == torch.float32
    for ours, exact in zip(gradients(output, narrow, grad_output.float()), gradients(load(name)(*wide), wide, grad_output), strict=True):
        assert ours.dtype == torch.float32
        torch.testing.assert_close(ours.double(), exact, rtol=1e-5, atol=1e-6)


def saved(call) -> list[Tensor]:
    """What a forward packs for its backward."""
    kept: list[Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: kept.append(tensor) or tensor, lambda tensor: tensor):
        call()
    return kept


@pytest.mark.parametrize("name, form, differentiated, expected", [
    ("add", ((3,), (3,)), (0, 1), 0), ("kill_head", ((3,), 1), (0,), 0), ("mul", ((3,), (3,)), (0,), 1), ("mul", ((3,), (3,)), (0, 1), 2),
    ("mm", ((2, 2), (2, 2)), (1,), 1), ("linear", ((2, 3), (4, 3), (4,)), (2,), 0), ("linear", ((2, 3), (4, 3), (4,)), (0, 1, 2), 2),
    ("mul_add_sum", ((3,), (3,), (3,)), (2,), 0), ("sigmoid", ((3,),), (0,), 1), ("relu", ((3,),), (0,), 1), ("softmax", ((3,), 0), (0,), 1),
])
def test_only_what_backward_reads_is_saved(name, form, differentiated, expected):
    values = [value.detach().requires_grad_(place in differentiated) if isinstance(value, Tensor) else value
              for place, value in enumerate(arguments(form, torch.float64))]
    assert len(saved(lambda: load(name)(*values))) == expected


@pytest.mark.parametrize("name", ["add", "mul", "square_of_sum"])
def test_a_real_argument_beside_a_complex_one_gets_a_real_gradient(name):
    real, imaginary = draw((3,), 0), draw((2, 3), 1, torch.complex128)
    assert gradcheck(load(name), (real, imaginary))
    assert torch.autograd.grad(load(name)(real, imaginary).abs().sum(), real)[0].dtype == torch.float64


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("name", ANY_SHAPES)
def test_cuda_gives_the_gradients_of_the_cpu(name):
    here = arguments(ANY_SHAPES[name][0], torch.float64)
    there = tuple(value.detach().cuda().requires_grad_() if isinstance(value, Tensor) else value for value in here)
    output = load(name)(*here)
    grad_output = draw(tuple(output.shape), 9).detach()
    ours = [gradient.cpu() for gradient in gradients(load(name)(*there), there, grad_output.cuda())]
    torch.testing.assert_close(ours, list(gradients(output, here, grad_output)))
