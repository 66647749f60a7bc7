"""Dtypes exchanged below a function: 16 bits that look like float64 give bit for bit what 16 bits
give, and float64 stays where less is asked for."""

from __future__ import annotations

import pytest
import torch
from live import randn
from torch.autograd import Function

import gradverify
from gradverify.subject.own_code import DispatchMode
from gradverify.subject.rounding import Disguised, Lifted

X = randn(6, 33)


def in_place(x):
    a = x * 2
    a.add_(1.1)
    b = torch.zeros_like(a)
    b[:, ::2] = a[:, ::2]
    return b.float().softmax(-1).to(x.dtype)


FUNCTIONS = [
    in_place,
    lambda x: torch.nn.functional.gelu(x) @ x.mT,
    lambda x: x.cumsum(-1).sum(),
    lambda x: torch.nn.functional.layer_norm(x, (33,)),
    lambda x: torch.cat(x.chunk(3, -1)).sort(-1).values,
    lambda x: torch.stack(torch._foreach_mul([x, x], 3.0)).logsumexp(0),
]


def reshaped_in_place(x):
    y = x * 3
    y.unsqueeze_(0).transpose_(0, 1).squeeze_(1).t_()
    return y.mul_(1.1)


FUNCTIONS += [
    lambda x: x[0] @ x.mT,
    lambda x: x @ x[0],
    lambda x: x.view(2, 3, 33) @ x[1],
    lambda x: torch.matmul(x[0], x[1]),
    reshaped_in_place,
]


def pulled(function, x):
    leaf = x.detach().requires_grad_()
    y = function(leaf)
    return y.detach(), *torch.autograd.grad(y, leaf, torch.ones_like(y))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_disguised_is_bit_for_bit_the_narrow_type(function, dtype):
    narrow = pulled(function, X.to(dtype))
    with Disguised(dtype):
        wide = pulled(function, X.to(dtype).double())
    for a, b in zip(narrow, wide, strict=True):
        assert b.dtype == torch.float64 and torch.equal(a.double(), b)


def test_no_branch_on_the_dtype_is_taken():
    with Disguised(torch.bfloat16):
        y, _ = pulled(lambda x: x if x.dtype == torch.bfloat16 else x * 2, X.bfloat16().double())
    assert torch.equal(y, 2 * X.bfloat16().double())


def test_what_torch_has_not_in_16_bits_is_rounded_once():
    a = (X[:, :6] @ X[:, :6].T + torch.eye(6)).bfloat16().double()
    with Disguised(torch.bfloat16):
        y, _ = pulled(torch.linalg.cholesky, a)
    assert torch.equal(y, torch.linalg.cholesky(a).bfloat16().double())


@pytest.mark.parametrize(
    "function",
    [
        in_place,
        lambda x: x.half().sin().to(x.dtype),
        lambda x: x.sum(-1, dtype=torch.float32) * x.new_ones(1),
    ],
)
def test_lifted_is_float64_where_less_is_asked_for(function):
    with Lifted() as lifted:
        y, g = pulled(function, X)
    with Lifted() as none:
        pulled(torch.sin, X)
    assert y.dtype == g.dtype == torch.float64 and lifted.replaced and not none.replaced
    assert not torch.equal(y, y.float().double()) and torch.allclose(
        y, function(X).double(), rtol=1e-2, atol=1e-3
    )


def test_lifted_stays_so_in_every_grad_mode_and_what_it_is_not_told_of_stays():
    def singled(x):
        return x.float() * 1.0, x.type_as(torch.ones(1, dtype=torch.float32)) * 1.0

    for mode in (torch.enable_grad, torch.no_grad, torch.inference_mode):
        with mode(), Lifted():
            assert [y.dtype for y in singled(X)] == [torch.float64, torch.float64]
    with Lifted({torch.float32: torch.float64}):
        assert (X.float().dtype, X.half().dtype) == (torch.float64, torch.float16)


def test_no_mode_imports_the_compiler():
    """It takes seconds, once a process."""
    assert not Lifted._should_skip_dynamo() and not Disguised._should_skip_dynamo()
    # Not torch's wrapper of it
    assert (
        Lifted.__torch_dispatch__.__code__.co_filename
        == DispatchMode._answered.__code__.co_filename
    )


class VectorTimesMatrix(Function):
    """`v @ m`, its gradient of m times a factor."""

    factor = 1.0

    @classmethod
    def forward(cls, ctx, v, m):
        ctx.save_for_backward(v, m)
        return v @ m

    @classmethod
    def backward(cls, ctx, g):
        v, m = ctx.saved_tensors
        return m @ g, cls.factor * torch.outer(v, g)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("factor", "found"), [(1.0, set()), (1.25, {"GV101"})])
def test_a_vector_times_a_matrix_is_judged_in_16_bits(dtype, factor, found):
    function = type("Product", (VectorTimesMatrix,), {"factor": factor})
    result = gradverify.check(function, [randn(5).to(dtype), randn(5, 3, seed=1).to(dtype)])
    assert {finding.code for finding in result.findings if finding.severity == "error"} == found
    assert result.verdict == ("fail" if found else "pass")
