"""Modules are checked as they train: complex parameters stay complex, hooks on parameters and
modules run, parametrizations are followed.

The class: what a cast, a copy or `functional_call` drops on the way without a word. Each is shown
by a wrong gradient that must be found.
"""

from __future__ import annotations

import pytest
import torch
from live import check, codes, evidence, randn
from torch import nn
from torch.autograd import Function
from torch.nn.utils import parametrizations, parametrize, prune

X = randn(2, 3)


class Rotated(Function):
    """w² in the complex plane; `factor` is that of the gradient's imaginary part, 1 where it is
    right."""

    @staticmethod
    def forward(ctx, w, factor):
        ctx.save_for_backward(w)
        ctx.factor = factor
        return w * w

    @staticmethod
    def backward(ctx, grad_output):
        gradient = grad_output * 2 * ctx.saved_tensors[0].conj()
        return torch.complex(gradient.real, ctx.factor * gradient.imag), None


class Phase(nn.Module):
    def __init__(self, factor=1.0):
        super().__init__()
        source = torch.Generator().manual_seed(0)
        self.w = nn.Parameter(torch.randn(3, dtype=torch.complex64, generator=source))
        self.scale = nn.Parameter(torch.ones(3))
        self.register_buffer("turn", torch.polar(torch.ones(3), torch.arange(3.0)))
        self.register_buffer("order", torch.tensor([2, 0, 1]))
        self.factor = factor

    def forward(self, x):
        return (Rotated.apply(self.w, self.factor) * self.turn * x)[
            ..., self.order
        ].abs() ** 2 * self.scale


@pytest.mark.parametrize("dtype", ["float64", "float32", "complex128", "complex64"])
@pytest.mark.parametrize("factor", [1.0, 1.01])
def test_a_wrong_gradient_of_a_complex_parameter_is_found(dtype, factor):
    x = randn(2, 3, dtype=getattr(torch, dtype))
    found = check(Phase(factor), x, dtype=dtype)
    assert ("GV111" in codes(found), found.verdict) == (
        (True, "fail") if factor != 1 else (False, "pass")
    )
    assert {each.input for each in found.comparisons if each.rule == "GV111"} == {"w", "scale"}


# ---- hooks on parameters
class Scaled(nn.Module):
    def __init__(self, factor=1.0, weight=None):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))
        self.register_buffer("factor", torch.tensor(factor))
        self.weight.register_hook(self.hook)

    def hook(self, gradient):
        return gradient * self.factor

    def forward(self, x):
        return self.weight * x * x


def hooked_from_outside(factor):
    module = nn.Linear(3, 2)
    module.weight.register_hook(lambda gradient: gradient * factor)
    return module


@pytest.mark.parametrize("make", [Scaled, hooked_from_outside])
@pytest.mark.parametrize("factor", [1.0, 1.01])
def test_a_hook_on_a_parameter_runs(make, factor):
    found = check(make(factor), X)
    assert codes(found) == ({"GV111"} if factor != 1 else set())
    assert factor == 1 or (
        found.findings[0].input == "weight"
        and "the hook on it took part" in found.findings[0].message
    )


def test_a_hook_runs_once_on_the_sum_of_all_uses():
    seen = []
    module = nn.Sequential(nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False))
    module[1].weight = module[0].weight
    module[0].weight.register_hook(seen.append)
    found = evidence(module, X)
    assert found.worked.error is None
    assert len(seen) == 1 and torch.equal(seen[0], found.worked.gradients[1])


# ---- hooks on modules
def inner(register, hook):
    module = nn.Sequential(nn.Linear(3, 2), nn.Tanh())
    getattr(module[0], register)(hook)
    return module


def times(factor):
    return lambda gradients: tuple(
        gradient if gradient is None else factor * gradient for gradient in gradients
    )


@pytest.mark.parametrize("factor", [1.0, 1.01])
@pytest.mark.parametrize(
    ("register", "hook"),
    [
        (
            "register_full_backward_hook",
            lambda scale: lambda module, inputs, outputs: scale(inputs),
        ),
        ("register_full_backward_pre_hook", lambda scale: lambda module, outputs: scale(outputs)),
    ],
)
def test_backward_hooks_of_modules_run(register, hook, factor):
    assert ("GV101" in codes(check(inner(register, hook(times(factor))), X))) is (factor != 1)


# ---- parametrizations
class Doubled(Function):
    factor = 1.0

    @staticmethod
    def forward(ctx, x):
        return 2 * x

    @staticmethod
    def backward(ctx, grad_output):
        return 2 * Doubled.factor * grad_output


class Double(nn.Module):
    def forward(self, weight):
        return Doubled.apply(weight)


def parametrized():
    module = nn.Linear(3, 2)
    parametrize.register_parametrization(module, "weight", Double())
    return module


@pytest.mark.parametrize("factor", [1.0, 1.01])
def test_a_parametrization_is_differentiated(factor, monkeypatch):
    monkeypatch.setattr(Doubled, "factor", factor)
    found = check(parametrized(), X)
    assert codes(found) == ({"GV111"} if factor != 1 else set())
    assert "parametrizations.weight.original" in {each.input for each in found.comparisons}


def pruned():
    module = nn.Linear(3, 2)
    prune.l1_unstructured(module, "weight", 0.5)
    return module


@pytest.mark.parametrize(
    "make",
    [
        lambda: parametrizations.weight_norm(nn.Linear(3, 2)),
        lambda: nn.utils.weight_norm(nn.Linear(3, 2)),
        lambda: parametrizations.orthogonal(nn.Linear(3, 3)),
        lambda: parametrizations.spectral_norm(nn.Linear(3, 2)).eval(),
        pruned,
    ],
)
def test_the_parametrizations_of_torch_pass(make):
    torch.manual_seed(0)
    # The second derivative of torch._weight_norm is wrong (benchmarks/results/torch-defects.md)
    found = check(make(), X, second_order=False)
    assert found.verdict == "pass" and {finding.code for finding in found.findings} == set()


# ---- jitted modules
class Jitted(nn.Module):
    def __init__(self, right: bool):
        super().__init__()
        self.linear = nn.Linear(3, 2)
        self.right = right

    def forward(self, x):
        y = torch.tanh(self.linear(x))
        return y * y if self.right else y * y.detach()


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
@pytest.mark.parametrize("right", [True, False])
def test_a_jitted_module_is_checked_with_its_parameters(right):
    found = check(torch.jit.script(Jitted(right)), X)
    assert (found.verdict, codes(found)) == (
        ("pass", set()) if right else ("fail", {"GV101", "GV111"})
    ), found.reason
    assert {each.input for each in found.comparisons if each.rule == "GV111"} == {
        "linear.weight",
        "linear.bias",
    }
