"""From a subject to the evidence for one element: measured, and described in a sentence."""

import math

import pytest
import torch
from live import check, randn, subject

from gradverify.element.explain import ABSENT, WORST, Requested, explain
from gradverify.model.codec import from_json, to_json
from gradverify.model.element import Element
from gradverify.subject.failure import UserCodeError

FIRST = Requested("input[0]", "y[0]")


def named(function):
    """torch's own functions have no signature to take a name from."""
    return lambda input: function(input)


def given(*values):
    return torch.tensor(values, dtype=torch.float64)


class Halved(torch.autograd.Function):
    @staticmethod
    def forward(ctx, input, other):
        ctx.save_for_backward(input)
        return input * input + 0 * other

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.saved_tensors[0], None


def explained(function, *values, requested=FIRST, **settings):
    return explain(subject(function, *values, **settings), requested)


def test_a_wrong_element_is_wrong_by_so_much():
    found = explained(Halved.apply, given(3.0), given(1.0), requested=Requested("input[0]", "y[0]"))
    assert found.conclusion.startswith("wrong: 3 away from a finite difference that is known to ")
    assert found.conclusion.endswith("that is 5e+05 times the tolerance")


@pytest.mark.parametrize(
    ("backward", "message"),
    [(0.5, "0.5 lies between them"), (1.5, "1.5 does not lie between them")],
)
def test_at_a_kink_the_slopes_are_reported(backward, message):
    class Kink(torch.autograd.Function):
        @staticmethod
        def forward(ctx, input):
            return input.relu()

        @staticmethod
        def backward(ctx, grad):
            return grad * backward

    found = explained(Kink, given(0.0))
    assert (
        found.conclusion
        == f"f has a kink here, with slope 0 on the left and 1 on the right: {message}"
    )


@pytest.mark.parametrize(
    ("function", "x", "message"),
    [
        (torch.floor, 1.0, "f jumps at x: there is no derivative"),
        (torch.sqrt, 0.0, "f has no values on one side, or no finite slope"),
    ],
)
def test_what_cannot_be_judged_says_why(function, x, message):
    conclusion = explained(named(function), given(x)).conclusion
    assert conclusion.startswith("neither right nor wrong") and message in conclusion


def test_under_a_fixed_step_gradchecks_verdict_comes_first_and_that_of_the_ladder_after():
    found = explained(named(torch.exp), given(1.0), eps=0.5)
    assert found.measured.fixed.quotient == pytest.approx(math.e * math.sinh(0.5) / 0.5, rel=1e-12)
    assert found.conclusion.startswith(
        "torch.autograd.gradcheck's rule rejects this element at eps 0.5; under `eps: auto`: "
        "right: within "
    )
    assert (
        "does not move the input" in explained(named(torch.exp), given(1.0), eps=1e-20).conclusion
    )


def test_a_missing_gradient_is_taken_as_zero_and_said():
    found = explained(Halved.apply, given(3.0), given(1.0), requested=Requested("other[0]", "y[0]"))
    assert found.notes == (ABSENT,) and found.measured.analytic == 0.0


def test_without_an_element_the_worst_of_the_check_is_taken():
    found = explained(Halved.apply, given(1e-3, 3.0, 1.0), given(1.0, 1.0, 1.0), requested=None)
    assert (
        found.measured.outcome == "mismatch" and found.notes[0] == WORST and found.in_check is None
    )
    worst = next(
        c
        for c in check(Halved.apply, given(1e-3, 3.0, 1.0), given(1.0, 1.0, 1.0)).comparisons
        if c.mismatched
    ).worst[0]
    assert (found.input.index, found.output.index) == (worst.input_index, worst.output_index)
    assert (found.measured.numeric, found.measured.tolerance.value) == pytest.approx(
        (worst.numeric, worst.tolerance)
    )


@pytest.mark.parametrize("requested", [None, FIRST])
def test_what_only_the_whole_check_can_say_is_said(requested):
    """Each of 0.9 and 0.9 is a subgradient of max(x, y) at x = y; moved together, x and y give 1,
    not 1.8."""

    class Max(torch.autograd.Function):
        @staticmethod
        def forward(ctx, input):
            return input.max()

        @staticmethod
        def backward(ctx, grad):
            return grad * given(0.9, 0.9)

    found = explained(Max, given(2.0, 2.0), requested=requested and Requested(requested.input, "y"))
    assert (found.measured.outcome, found.in_check) == ("mismatch", None)
    assert (found.measured.sides.left.value, found.measured.sides.right.value) == pytest.approx(
        (0.0, 1.0)
    )
    assert found.conclusion.startswith(
        "wrong: 0.9 is a slope of f along this input, but the gradients at several kinks add up to "
        "no slope"
    )


def test_nothing_to_compare_is_no_element_and_nothing_that_moves_is_the_first():
    with pytest.raises(UserCodeError, match="no element of this check is compared"):
        explained(lambda x: x.detach(), given(1.0), requested=None)
    assert explained(lambda x: 0 * x, given(1.0, 2.0), requested=None).measured.outcome == "pass"


def test_what_the_user_raises_comes_out_as_that():
    with pytest.raises(UserCodeError) as raised:
        explained(lambda input: input.reshape(7), given(1.0))
    assert raised.value.code == "GV002"


def test_float32_is_judged_by_the_tolerance_of_float32():
    m = explained(named(torch.sin), randn(2, dtype=torch.float32), dtype="float32").measured
    # The finite difference is that of float64
    assert m.verdict == "pass" and m.tolerance.rtol == 1e-3 and m.unit == 2.0**-53


def test_in_float32_it_is_said_what_the_finite_difference_was_taken_in():
    def refuses(input):
        if input.untyped_storage().nbytes() > 4 * input.numel():
            raise TypeError("float32 only")
        return input.sin()

    assert explained(named(torch.sin), randn(2, dtype=torch.float32)).notes == (
        "finite differences in float64, gradients in float32",
    )
    found = explained(refuses, randn(2, dtype=torch.float32))
    assert found.measured.unit == 2.0**-24
    assert found.notes[0].startswith(
        "finite differences in float32: given float64 forward raised TypeError: float32 only"
    )


def test_evidence_is_plain_data():
    found = explained(named(torch.sin), given(1.0), eps=1e-6)
    assert from_json(Element, to_json(found)) == found
