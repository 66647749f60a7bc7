"""Gradients at nearly singular matrices, good to the condition number times a roundoff, and
functions with a pole close to x.

The class of faults: a right one is accused of what its inverse makes of rounding, or of what lies
beyond the pole; or a wrong one hides.
"""

import pytest
import torch
from live import check, randn

WRONG = {
    "sign": lambda g: -g,
    "twice": lambda g: 2 * g,
    "one per cent": lambda g: 1.01 * g,
    "one entry": lambda g: g * (1 - 2 * (g.abs() == g.abs().max())),
}


def nearly_singular(n, least):
    """A matrix of that smallest singular value; the others are between 0.4 and 1."""
    (u, _), (v, _) = torch.linalg.qr(randn(n, n, seed=n)), torch.linalg.qr(randn(n, n, seed=n + 1))
    values = torch.linspace(1.0, 0.4, n, dtype=torch.float64)
    values[-1] = least
    return u * values @ v


def determinant(damage=lambda g: g):
    """det(A), its gradient as the textbook has it: det(A)·A⁻ᵀ."""

    class Determinant(torch.autograd.Function):
        @staticmethod
        def forward(ctx, a):
            ctx.save_for_backward(a)
            return torch.linalg.det(a)

        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(ctx, grad_output):
            (a,) = ctx.saved_tensors
            return damage(grad_output * torch.linalg.det(a) * torch.linalg.inv(a).T)

    return Determinant


@pytest.mark.parametrize("least", [1e-8, 1e-12, 1e-13, 1e-14])
@pytest.mark.parametrize("n", [2, 3, 4])
def test_a_determinant_near_singular_is_not_wrong(n, least):
    assert check(determinant(), nearly_singular(n, least), select=("GV101",)).verdict != "fail"


@pytest.mark.parametrize("damage", WRONG)
@pytest.mark.parametrize("least", [1e-8, 1e-12])
def test_a_wrong_one_is_found_there(least, damage):
    assert (
        check(determinant(WRONG[damage]), nearly_singular(3, least), select=("GV101",)).verdict
        == "fail"
    )


def test_a_gradient_with_noise_of_its_own_is_wrong():
    """As large as that of the inverse, and of no operation's rounding."""
    noisy = determinant(lambda g: g * (1 + 1e-5 * torch.sin(1e12 * g)))
    a = randn(3, 3, seed=5)
    assert check(determinant(), a, select=("GV101",)).verdict == "pass"
    assert check(noisy, a, select=("GV101",)).verdict == "fail"


@pytest.mark.parametrize("away", [1e-10, 1e-13])
def test_a_pole_close_to_x_is_not_the_function(away):
    """1/(x − 1), whose slope −1/(x − 1)² no step shows from further away than the pole."""
    x = torch.tensor([1.0 + away, 0.7 + 0.3 * away], dtype=torch.float64)
    assert check(lambda x: 1 / (x - 1), x[:1]).verdict == "undecided"
    assert check(lambda x: 1 / (x[:1] * x[1:] - 0.7), x).verdict == "undecided"


def test_a_pole_that_steps_resolve_is_judged():
    class Reciprocal(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return 1 / (x - 1)

        @staticmethod
        def backward(ctx, grad_output):
            return -1.01 * grad_output / (ctx.saved_tensors[0] - 1) ** 2

    x = torch.tensor([1.0 + 1e-6], dtype=torch.float64)
    assert check(lambda x: 1 / (x - 1), x).verdict == "pass"
    assert check(Reciprocal, x).verdict == "fail"


def test_the_inverse_of_a_nearly_singular_matrix_is_not_wrong():
    for n in (2, 3, 4):
        assert (
            check(torch.linalg.inv, nearly_singular(n, 1e-12), select=("GV101",)).verdict
            == "undecided"
        )


def test_a_branch_that_rounding_takes_otherwise_is_no_noise():
    """Two points that are one: moved by a rounding their distance has another gradient, which says
    nothing of an entry that is wrong elsewhere."""

    class Distances(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return torch.pdist(x).sum()

        @staticmethod
        def backward(ctx, grad_output):
            x = ctx.saved_tensors[0].detach().requires_grad_()
            with torch.enable_grad():
                (g,) = torch.autograd.grad(torch.pdist(x).sum(), x)
            g[-1, 0] *= 1.03
            return g * grad_output

    x = randn(6, 3, seed=3)
    x[1] = x[0]
    assert check(Distances, x, select=("GV101",)).verdict == "fail"
