"""What is built with torch.func, or calls it, is checked like any function: grad, vjp, jvp, jacrev,
jacfwd, hessian, vmap, linearize.

The class: a function that refuses something only gradverify brings along (saved-tensor hooks, a
second forward mode) is not to blame for it. Callables of every other make (partial, bound methods,
callable objects, traced and compiled ones) stand beside them.
"""

from __future__ import annotations

import functools

import pytest
import torch
from live import check, codes, randn
from torch.autograd import Function
from torch.func import grad, grad_and_value, hessian, jacfwd, jacrev, jvp, linearize, vjp, vmap

X = randn(3)


class Square(Function):
    """x², whose backward is `factor` times the right one."""

    generate_vmap_rule = True
    factor = 1.0

    @staticmethod
    def forward(x):
        return x * x

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx, grad_output):
        return Square.factor * 2 * ctx.saved_tensors[0] * grad_output

    @staticmethod
    def jvp(ctx, tangent):
        return 2 * ctx.saved_tensors[0] * tangent


def vector(x):
    return Square.apply(x) * x.sin()


def scalar(x):
    return vector(x).sum()


TRANSFORMED = {
    "grad": grad(scalar),
    "grad_and_value": grad_and_value(scalar),
    "jacrev": jacrev(vector),
    "jacfwd": jacfwd(vector),
    "hessian": hessian(scalar),
    "vmap": vmap(vector),
    "jacrev of jacrev": jacrev(jacrev(vector)),
    "vjp": lambda x: vjp(vector, x)[1](x.cos())[0],
    "jvp": lambda x: jvp(vector, (x,), (x.cos(),))[1],
}


@pytest.mark.parametrize("name", TRANSFORMED)
def test_a_transform_of_a_right_function_passes(name):
    result = check(TRANSFORMED[name], X)
    assert (result.verdict, codes(result)) == ("pass", set())
    assert sum(each.elements for each in result.comparisons) > 0


@pytest.mark.parametrize("name", ["vmap", "grad", "vjp"])
def test_a_wrong_gradient_inside_is_found(name, monkeypatch):
    monkeypatch.setattr(Square, "factor", 1.01)
    assert "GV101" in codes(check(TRANSFORMED[name], X))


def test_a_linearised_function_passes():
    result = check(linearize(lambda x: x.sin() * x.cumsum(0), X)[1], X)
    assert result.verdict == "pass" and codes(result) == set()


class Inside(Function):
    """The derivative of x³ by torch.func; its backward is `factor` times the right one."""

    factor = 1.0

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return grad(lambda x: x.pow(3).sum())(x)

    @staticmethod
    def backward(ctx, grad_output):
        return Inside.factor * 6 * ctx.saved_tensors[0] * grad_output


class InBackward(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx, grad_output):
        return Inside.factor * vjp(torch.sin, ctx.saved_tensors[0])[1](grad_output)[0]


@pytest.mark.parametrize("function", [Inside, InBackward])
@pytest.mark.parametrize("factor", [1.0, 1.01])
def test_a_function_that_calls_torch_func_is_judged(function, factor, monkeypatch):
    monkeypatch.setattr(Inside, "factor", factor)
    assert ("GV101" in codes(check(function, X))) is (factor != 1)


# ---- callables of other makes
class Maker:
    def method(self, x):
        return vector(x)

    __call__ = method


MAKES = {
    "partial": functools.partial(lambda k, x: vector(x) * k, 2.0),
    "partial of apply": functools.partial(Square.apply),
    "method": Maker().method,
    "object": Maker(),
    "apply": Square.apply,
    "wrapped": functools.wraps(vector)(lambda *a, **k: vector(*a, **k)),
}


@pytest.mark.parametrize("name", MAKES)
@pytest.mark.parametrize("factor", [1.0, 1.01])
def test_every_make_of_callable_is_judged(name, factor, monkeypatch):
    monkeypatch.setattr(Square, "factor", factor)
    assert ("GV101" in codes(check(MAKES[name], X))) is (factor != 1)


@pytest.mark.parametrize("factor", [1.0, 1.01])
def test_a_compiled_function_is_judged(factor, monkeypatch):
    monkeypatch.setattr(Square, "factor", factor)
    torch.compiler.reset()
    compiled = torch.compile(lambda x: Square.apply(x), backend="eager")
    assert ("GV101" in codes(check(compiled, X))) is (factor != 1)
