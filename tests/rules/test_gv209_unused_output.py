from __future__ import annotations

import pytest
import torch
from live import check, codes, message
from torch.autograd import Function

from rules.functions import Right, X


def two(backward, materialize=False):
    """(2x, 3x) with `backward(g, h)`."""

    class Two(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.set_materialize_grads(materialize)
            return 2 * x, 3 * x

        @staticmethod
        def backward(ctx, g, h):
            return backward(g, h)

    return Two


def careful(g, h):
    parts = ([2 * g] if g is not None else []) + ([3 * h] if h is not None else [])
    return sum(parts[1:], parts[0]) if parts else None


RIGHT = {
    "None for None": two(careful),
    "zeros for None": two(lambda g, h: careful(g, h) if g is not None or h is not None else torch.zeros_like(X)),
    "materialized": two(lambda g, h: 2 * g + 3 * h, materialize=True),
}


@pytest.mark.parametrize("function", RIGHT.values(), ids=RIGHT)
def test_a_backward_that_copes_with_every_subset_passes(function):
    assert codes(check(function, X)) == set()


def test_a_gradient_that_is_lost_when_one_output_is_unused_is_found():
    result = check(two(lambda g, h: torch.zeros_like(X) if g is None or h is None else 2 * g + 3 * h), X)
    assert codes(result) == {"GV209"}
    assert "with a gradient for one output at a time, summed, the gradient at x[" in message(result, "GV209")


def test_a_backward_that_raises_for_none_is_found_and_the_output_named():
    result = check(two(lambda g, h: 2 * g + (3 * h if h is not None else 0)), X, select=("GV209",))
    assert [(found.code, found.output) for found in result.findings] == [("GV209", 1)]
    assert "with a gradient for y1 only, backward raised TypeError" in message(result, "GV209")


@pytest.mark.parametrize(("factor", "more"), [(3, set()), (4, {"GV101"})], ids=["right", "wrong"])
def test_after_a_backward_that_raises_for_none_the_other_rules_go_on(factor, more):
    result = check(two(lambda g, h: 2 * g + factor * h), X)
    assert (result.verdict, codes(result)) == ("fail", {"GV209"} | more)
    assert {run.code: run.status for run in result.rules}["GV101"] == "ran"


def test_it_is_judged_with_zeros_where_the_rule_is_ignored():
    assert check(two(lambda g, h: 2 * g + 3 * h), X, ignore=("GV209",)).verdict == "pass"
    assert "GV101" in codes(check(two(lambda g, h: 2 * g + 4 * h), X, ignore=("GV209",)))


def test_a_backward_that_raises_for_zeros_too_has_raised():
    def backward(g, h):
        if h is None or not h.all():
            raise ValueError("only together")
        return 2 * g + 3 * h

    result = check(two(backward), X, select=("GV101",))
    assert (result.verdict, codes(result)) == ("error", {"GV003"})


def test_what_compensates_in_the_sum_shows_against_zeros():
    """Alone, the first gets a third too much and the second as much too little."""
    def backward(g, h):
        if h is None:
            return 2 * g + X
        return 3 * h - X if g is None else 2 * g + 3 * h

    result = check(two(backward), X, select=("GV209",))
    assert "with a gradient for y0 only, the gradient at x[" in message(result, "GV209")
    assert "as with zeros for the others" in message(result, "GV209")


def test_a_backward_that_raises_when_no_output_is_used_is_a_warning():
    def backward(g, h):
        if g is None and h is None:
            raise ValueError("nothing to do")
        return careful(g, h)

    result = check(two(backward), X)
    assert result.verdict == "pass"
    assert [(found.code, found.severity) for found in result.findings] == [("GV209", "warning")]
    assert "with no gradient for any output" in message(result, "GV209")


def test_a_gradient_from_nothing_is_found():
    result = check(two(lambda g, h: X if g is None and h is None else careful(g, h)), X, select=("GV209",))
    assert [(found.code, found.severity) for found in result.findings] == [("GV209", "error")]


def test_a_single_output_is_asked_for_an_undefined_gradient_too():
    class Single(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.set_materialize_grads(False)
            return 2 * x

        @staticmethod
        def backward(ctx, g):
            return 2 * g

    assert [(found.code, found.severity) for found in check(Single, X).findings] == [("GV209", "warning")]
    assert codes(check(Right, X)) == set()


def test_a_buffer_that_backward_hands_out_again_and_again_is_read_in_time():
    buffer = torch.zeros_like(X)

    def backward(g, h):
        return buffer.copy_(2 * (0 if g is None else g) + 3 * (0 if h is None else h))

    assert "GV209" not in codes(check(two(backward), X, select=("GV209",)))


def test_torchs_own_backwards_are_left_alone_and_those_inside_a_callable_are_not():
    faulty = two(lambda g, h: torch.zeros_like(X) if g is None or h is None else 2 * g + 3 * h)
    assert codes(check(lambda x: tuple(y.exp() for y in faulty.apply(x)), X)) == {"GV209"}
    run = next(run for run in check(lambda x: (x.sin(), x.cos()), X).rules if run.code == "GV209")
    assert (run.status, run.calls.backward) == ("not_applicable", 0)


def test_after_a_backward_that_is_not_linear_it_is_not_asked():
    run = next(run for run in check(two(lambda g, h: 2 * g + 3 * h + 1, materialize=True), X).rules if run.code == "GV209")
    assert run.reason == "backward is not linear"


# ---- the other outputs are not compared: their gradients are always undefined
@pytest.mark.parametrize(("factor", "more"), [(2, set()), (2.5, {"GV101"})], ids=["right", "wrong"])
def test_a_backward_that_raises_for_the_none_of_an_output_that_is_not_compared_is_a_fault_and_the_rest_is_judged(factor, more):
    """No error of the check: the class is a branch for None that is missing, whichever outputs the spec compares."""
    result = check(two(lambda g, h: factor * g + 3 * h), X, outputs=(0,))
    assert (result.verdict, codes(result), set(result.findings[0].also)) == ("fail", {"GV209"}, more)
    assert "with a gradient for y0 only, backward raised TypeError" in message(result, "GV209")
    assert {run.code: run.status for run in result.rules}["GV101"] == "ran"
    assert next(found for found in result.findings if found.code == "GV209").frames


@pytest.mark.parametrize("function", RIGHT.values(), ids=RIGHT)
def test_a_backward_that_copes_with_none_passes_whichever_outputs_are_compared(function):
    for place in (0, 1):
        assert codes(check(function, X, outputs=(place,))) == set()


def test_a_backward_that_raises_whatever_it_is_given_is_still_an_error():
    def broken(g, h):
        raise ValueError("always")

    result = check(two(broken), X, outputs=(0,))
    assert (result.verdict, codes(result)) == ("error", {"GV003"})
    assert "always" in message(result, "GV003")


def test_an_output_without_a_graph_beside_the_compared_one_is_left_alone():
    class Marked(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.set_materialize_grads(False)
            count = (x > 0).sum()
            ctx.mark_non_differentiable(count)
            return 2 * x, count

        @staticmethod
        def backward(ctx, g, _):
            return None if g is None else 2 * g

    assert codes(check(Marked, X, outputs=(0,))) == set()


def three(backward):
    """(2x, 3x, 4x) with `backward(f, g, h)`."""

    class Three(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.set_materialize_grads(False)
            return 2 * x, 3 * x, 4 * x

        @staticmethod
        def backward(ctx, f, g, h):
            return backward(f, g, h)

    return Three


def sum_of_three(f, g, h):
    parts = [factor * part for factor, part in ((2, f), (3, g), (4, h)) if part is not None]
    return sum(parts[1:], parts[0]) if parts else None


def loses_one_of_two(f, g, h):
    """Right for all three, and for each alone."""
    return 3 * g if f is not None and g is not None and h is None else sum_of_three(f, g, h)


def raises_for_two(f, g, h):
    if g is None and f is not None and h is not None:
        raise TypeError("no middle")
    return sum_of_three(f, g, h)


@pytest.mark.parametrize("seed", range(3))
def test_of_three_outputs_every_two_are_asked(seed):
    assert codes(check(three(sum_of_three), X, seed=seed)) == set()
    wrong = check(three(loses_one_of_two), X, seed=seed)
    assert [(found.code, found.output) for found in wrong.findings] == [("GV209", 2)]
    assert "without a gradient for y2, the gradient at x[" in message(wrong, "GV209")
    raises = check(three(raises_for_two), X, seed=seed, select=("GV209",))
    assert "without a gradient for y1, backward raised TypeError" in message(raises, "GV209")
