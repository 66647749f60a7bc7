from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from live import Oracles, check, codes, message, randn

from rules.functions import X, square


# ---- GV105 reference-value
def checked(function, reference, *values):
    return check(function, *values, oracles=Oracles(reference=reference))


def test_a_forward_that_differs_is_found_although_its_gradient_fits_itself():
    result = checked(lambda x: x.sin() + 1e-3, "torch:sin", randn(2, 3))
    assert codes(result) == {"GV105"}
    assert "6 of 6 numbers of y0 differ from reference torch:sin" in message(result, "GV105")


def test_another_order_of_the_same_sum_is_no_difference():
    assert (
        codes(checked(lambda x: x.flip(0).sum(0), "rules.test_opinions:summed", randn(50, 2)))
        == set()
    )


def summed(x):
    return x.sum(0)


def test_without_a_reference_it_does_not_apply():
    (run,) = (run for run in check(torch.sin, randn(2)).rules if run.code == "GV105")
    assert (run.status, run.reason) == ("not_applicable", "the spec names no `reference`")


# ---- float32: noise of fewer bits, and noise of numbers that cancel
def in_fewer_bits(y):
    """In float32 alone, as where a kernel for float32 takes bfloat16 operands."""
    return y + (y.detach().bfloat16().float() - y.detach()) if y.dtype == torch.float32 else y


def sums(x):
    return x.cumsum(-1)


def varies(x):
    return (x - x.mean(-1, keepdim=True)).square().mean(-1)


def shifted(x):
    return x + x * x


def test_a_float32_forward_that_computes_in_fewer_bits_is_found_by_both_legs():
    """Its values move in steps, a noise that does not let them be compared."""
    result = checked(
        lambda x: sums(in_fewer_bits(x)),
        "rules.test_opinions:sums",
        randn(6, 24, dtype=torch.float32),
    )
    assert result.verdict == "fail" and "GV105" in codes(result)


@pytest.mark.parametrize(
    ("function", "reference", "at"),
    [
        (lambda x: x.square().mean(-1) - x.mean(-1).square(), "varies", 200.0),
        (lambda x: (x + 1e4) - 1e4 + x * x, "shifted", 0.0),
        (
            lambda x: x.flip(-1).cumsum(-1).flip(-1)[..., :1] - x.flip(-1).cumsum(-1).flip(-1) + x,
            "before",
            0.0,
        ),
    ],
)
def test_a_float32_forward_whose_numbers_cancel_is_not_accused(function, reference, at):
    """It is float32's own noise, in that way to compute it."""
    result = checked(
        lambda x: function(x),
        f"rules.test_opinions:{reference}",
        randn(6, 24, dtype=torch.float32) + at,
    )
    assert result.verdict in ("pass", "undecided")


def before(x):
    return x.cumsum(-1)


# ---- GV106 reference-gradient
def test_a_gradient_that_differs_from_the_references_is_found():
    result = check(square(lambda x, g: 2.1 * x * g), X, oracles=Oracles(reference="torch:square"))
    assert codes(result) == {"GV106"}  # the reference is the more specific witness
    assert result.findings[0].also == ("GV101",)
    assert "autograd through reference torch:square" in message(result, "GV106")


def test_where_only_the_reference_differs_it_is_said_that_finite_differences_agree():
    result = check(
        lambda x: F.relu(x) + 0 * x,
        torch.zeros(3, dtype=torch.float64) + 1,
        oracles=Oracles(reference="rules.test_opinions:detached"),
    )
    assert codes(result) == {"GV106"}
    assert result.findings[0].message.startswith(
        "reference rules.test_opinions:detached is wrong, not backward"
    )
    assert result.findings[0].source == "def detached(x):"


def detached(x):
    return F.relu(x.detach()) + 0 * x


# ---- GV107 expected-gradient
NUMBERS = (2 * X).tolist()


def test_numbers_that_differ_are_found_and_explain_the_jacobian():
    result = check(square(lambda x, g: x * g), X, oracles=Oracles(expected={"x": NUMBERS}))
    assert codes(result) == {"GV107"}
    assert result.findings[0].also == ("GV101",)


def test_wrong_numbers_for_a_right_backward_are_the_only_finding():
    assert codes(check(torch.square, X, oracles=Oracles(gradient="torch:mul"))) == {"GV107"}


def test_both_oracles_are_asked():
    result = check(
        square(lambda x, g: 2 * x * g),
        X,
        oracles=Oracles(expected={"x": NUMBERS}, gradient="rules.test_opinions:twice"),
    )
    assert codes(result) == set()
    assert sum(each.rule == "GV107" for each in result.comparisons) == 2


def twice(x, grad_output):
    return 2 * x * grad_output
