"""Two subgradients of one kink agree; a value beside the slopes, and a fault beside the kink, is
found at the same inputs.

The truth is the interval between the slopes from the left and the right, known in closed form.
"""

import pytest
import torch
from live import Oracles, check, codes, message, randn
from rules.functions import unary

AT = torch.tensor([0.0, -1.5, 0.0, 0.75, 2.0, -0.3], dtype=torch.float64)


def at_zero(value):
    """A derivative of f at 0: `value`; elsewhere what it is."""
    return lambda derivative: (
        lambda x, g: g * torch.where(x == 0, torch.full_like(x, value), derivative(x))
    )


# forward, derivative off the kinks, slopes from the left and the right at 0
KINKS = {
    "relu": (lambda x: x.clamp(min=0), lambda x: (x > 0).to(x), (0.0, 1.0)),
    "leaky relu": (
        lambda x: torch.where(x > 0, x, 0.1 * x),
        lambda x: 0.1 + 0.9 * (x > 0).to(x),
        (0.1, 1.0),
    ),
    "|x|, steep": (lambda x: 1e4 * x.abs(), lambda x: 1e4 * x.sign(), (-1e4, 1e4)),
}
OTHER = {}  # the reference of the test that runs


def reference(x):
    return OTHER["function"].apply(x)


def compared(kink, mine, theirs, x=AT, damage=lambda dx: dx, **settings):
    forward, derivative, _ = KINKS[kink]
    OTHER["function"] = unary(forward, at_zero(theirs)(derivative))
    backward = at_zero(mine)(derivative)
    return check(
        unary(forward, lambda x, g: damage(backward(x, g))),
        x,
        oracles=Oracles(reference=f"{__name__}:reference"),
        **settings,
    )


def between(kink, share):
    low, high = KINKS[kink][2]
    return low + share * (high - low)


@pytest.mark.parametrize("kink", list(KINKS))
@pytest.mark.parametrize(("mine", "theirs"), [(0.0, 1.0), (1.0, 0.5), (0.3, 0.0)])
def test_two_subgradients_agree(kink, mine, theirs):
    result = compared(kink, between(kink, mine), between(kink, theirs))
    assert (result.verdict, codes(result)) == ("pass", set())
    (told,) = (each for each in result.comparisons if each.rule == "GV106")
    assert (told.mismatched, told.kinks) == (0, 2)


@pytest.mark.parametrize("kink", list(KINKS))
@pytest.mark.parametrize("beside", [-0.2, 1.2])
def test_a_value_beside_the_slopes_is_found_on_either_side(kink, beside):
    wrong_reference = compared(kink, between(kink, 1), between(kink, beside))
    assert codes(wrong_reference) == {"GV106"}
    assert "is wrong, not backward" in message(wrong_reference, "GV106")
    wrong_backward = compared(kink, between(kink, beside), between(kink, 0))
    assert wrong_backward.verdict == "fail"
    assert not any(
        "is wrong, not backward" in finding.message for finding in wrong_backward.findings
    )


@pytest.mark.population(most=4)
@pytest.mark.parametrize("kink", list(KINKS))
@pytest.mark.parametrize(
    "damage", [lambda dx: -dx, lambda dx: 1.01 * dx, lambda dx: dx * (torch.arange(len(dx)) != 3)]
)
def test_a_fault_beside_the_kinks_is_found(kink, damage):
    result = compared(kink, between(kink, 1), between(kink, 0), damage=damage)
    assert result.verdict == "fail" and "GV106" in {
        code for each in result.findings for code in (each.code, *each.also)
    }


@pytest.mark.population(most=2)
@pytest.mark.parametrize("mode", ["auto", "rows", "blocks"])
def test_many_kinks_agree_in_every_mode_and_hide_no_fault(mode):
    x = torch.cat([torch.zeros(150, dtype=torch.float64), randn(50).abs()])
    assert compared("relu", 1.0, 0.0, x, mode=mode).verdict in ("pass", "undecided")
    damaged = compared(
        "relu",
        1.0,
        0.0,
        x,
        damage=lambda dx: dx * torch.where(torch.arange(200) == 197, 1.01, 1.0),
        mode=mode,
    )
    assert damaged.verdict == "fail"


def joined_at_zero(x):
    """Two branches that meet in 0 where forward is smooth: nothing there but one derivative is
    right."""
    return OTHER["function"].apply(x)


def test_where_forward_is_smooth_one_derivative_alone_is_right():
    OTHER["function"] = unary(lambda x: x * x, at_zero(0.5)(lambda x: 2 * x))
    result = check(
        unary(lambda x: x * x, lambda x, g: 2 * x * g),
        AT,
        oracles=Oracles(reference=f"{__name__}:joined_at_zero"),
    )
    assert codes(result) == {"GV106"}
