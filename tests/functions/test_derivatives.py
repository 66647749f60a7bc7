"""Every built-in, first and second order, against torch's finite differences: real and complex,
broadcast, 0-dim, empty, strided."""

from __future__ import annotations

import importlib

import pytest
import torch
from torch import Tensor
from torch.autograd import Function, gradcheck, gradgradcheck

from gradverify.functions.catalogue import BUILTINS

COMPLEX_TOO = (
    "add",
    "mul",
    "mm",
    "linear",
    "affine",
    "square_of_sum",
    "mul_add_sum",
    "abs_mul",
    "sigmoid",
    "kill_head",
    "shop",
)
ANY_SHAPES = {
    "add": [((3, 4), (3, 4)), ((3, 4), (4,)), ((3, 1), (1, 4)), ((2, 1, 3), ()), ((0, 4), (4,))],
    "mul": [((3, 4), (3, 4)), ((3, 4), (4,)), ((3, 1), (1, 4)), ((2, 1, 3), ()), ((0, 4), (4,))],
    "square_of_sum": [((3, 4), (3, 4)), ((3, 1), (4,)), ((), ()), ((0, 2), (2,))],
    "abs_mul": [((3, 4), (3, 4)), ((3, 1), (4,)), ((), ()), ((0,), (1,))],
    "mul_add_sum": [
        ((3, 4), (3, 4), (3, 4)),
        ((3, 1), (4,), (2, 1, 1)),
        ((), (), ()),
        ((0,), (1,), ()),
    ],
    "mm": [((3, 4), (4, 2)), ((1, 1), (1, 1)), ((0, 3), (3, 2)), ((2, 0), (0, 3))],
    "affine": [((3, 4), (4, 2), (2,)), ((3, 4), (4, 2), ()), ((0, 3), (3, 2), (2,))],
    "linear": [
        ((2, 3), (4, 3), (4,)),
        ((3,), (4, 3), (4,)),
        ((2, 2, 3), (4, 3), (4,)),
        ((0, 3), (4, 3), (4,)),
        ((2, 0), (4, 0), (4,)),
        ((2, 3), (4, 3)),
    ],
    "relu": [((3, 4),), ((),), ((0, 2),)],
    "sigmoid": [((3, 4),), ((),), ((0, 2),)],
    "softmax": [((3, 4), 0), ((3, 4), 1), ((2, 3, 4), -2), ((), 0), ((0, 3), 1), ((3, 0), 1)],
    "kill_head": [((2, 5), 2), ((5,), 0), ((2, 3, 4), 4), ((0, 4), 1), ((2, 0), 0)],
    "shop": [((), (), (), (), ()), ((), (), None, None, ()), ((2, 1), (3,), (3,), (2, 1), (3,))],
}
CASES = [
    pytest.param(name, form, dtype, id=f"{name}-{form}-{dtype}".replace("torch.", ""))
    for name, forms in ANY_SHAPES.items()
    for form in forms
    for dtype in (torch.float64, *((torch.complex128,) if name in COMPLEX_TOO else ()))
]


def load(name: str):
    target = getattr(importlib.import_module(BUILTINS[name].module), BUILTINS[name].attribute)
    return target.apply if isinstance(target, type) and issubclass(target, Function) else target


def draw(shape: tuple[int, ...], seed: int, dtype: torch.dtype = torch.float64) -> Tensor:
    """Numbers of either sign between 0.3 and 1.5 in size: away from the kinks at 0."""
    generator = torch.Generator().manual_seed(seed)
    size = 0.3 + 1.2 * torch.rand(shape, dtype=torch.float64, generator=generator)
    sign = torch.rand(shape, dtype=dtype, generator=generator) - (
        0.5 + 0.5j if dtype.is_complex else 0.5
    )
    return (size * sign.sgn()).requires_grad_()


def arguments(form: tuple, dtype: torch.dtype) -> tuple:
    return tuple(
        draw(part, place, dtype) if isinstance(part, tuple) else part
        for place, part in enumerate(form)
    )


@pytest.mark.parametrize("name, form, dtype", CASES)
def test_the_first_and_second_derivatives_are_right(name, form, dtype):
    assert gradcheck(load(name), arguments(form, dtype))
    assert gradgradcheck(load(name), arguments(form, dtype))


def saved(call) -> list[Tensor]:
    """What a forward packs for its backward."""
    kept: list[Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(
        lambda tensor: kept.append(tensor) or tensor, lambda tensor: tensor
    ):
        call()
    return kept


@pytest.mark.parametrize("name", ["add", "mul", "square_of_sum"])
def test_a_real_argument_beside_a_complex_one_gets_a_real_gradient(name):
    real, imaginary = draw((3,), 0), draw((2, 3), 1, torch.complex128)
    assert gradcheck(load(name), (real, imaginary))
    assert (
        torch.autograd.grad(load(name)(real, imaginary).abs().sum(), real)[0].dtype == torch.float64
    )
