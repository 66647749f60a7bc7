"""The budget holds where a prediction does not, and a time limit does not lose what was found.

The class of faults: whatever takes longer than it was predicted to (climbing, tiles that are pulled
back anew, gradverify's own arithmetic) goes on until the process is killed. Time is a number that
the function moves; nothing waits.
"""

import pytest
import torch
from live import randn, subject
from torch.autograd import Function

from gradverify.model.case import Budget
from gradverify.model.result import LEFT_OUT, left_out
from gradverify.numerics import entries
from gradverify.numerics.function.point import Clock
from gradverify.verify import verify

X = randn(24, 8)


class World:
    """Every call takes `call` seconds as a stopwatch has it, and `own` CPU seconds with all that is
    computed of it."""

    def __init__(self, call=1e-3, own=0.0, wall=0.0):
        self.calls, self.call, self.own, self.wall = 0, call, own or call, wall
        self.clock = Clock(
            lambda: self.calls * self.call,
            lambda: 0.0,
            lambda: self.calls * self.own,
            lambda: self.calls * self.wall,
        )


def softmax(world, spoil=lambda gradient: gradient, damage=lambda x: x):
    class Softmax(Function):
        @staticmethod
        def forward(ctx, x):
            world.calls += 1
            damage(x)
            y = x.softmax(-1)
            ctx.save_for_backward(y)
            return y

        @staticmethod
        def backward(ctx, g):
            world.calls += 1
            (y,) = ctx.saved_tensors
            return spoil(y * (g - (g * y).sum(-1, keepdim=True)))

    return Softmax


def checked(world, function, planned=None, x=X, **settings):
    made = subject(function, x, **settings)
    made.clock = world.clock
    return verify(made, planned)


def heard(plan):
    """A run that hears of its plan has a process that is ended."""


def scaled(gradient):
    return 1.1 * gradient


def in_one_row(gradient):
    return torch.where(torch.arange(24)[:, None] == 23, 1.1 * gradient, gradient)


@pytest.fixture
def small_tiles(monkeypatch):
    monkeypatch.setattr(entries, "TILE_LIMIT", 1 << 17)


# ---- every element, which takes longer than predicted
@pytest.mark.usefixtures("small_tiles")
def test_where_the_budget_ends_before_every_element_was_compared_blocks_are_and_the_check_says_so():
    world = World(own=0.04)
    result = checked(world, softmax(world), select=("GV101",), budget=Budget(seconds=2.0))
    assert (result.verdict, result.mode) == ("pass", "blocks")
    assert (
        "entries would take" in result.mode_reason
        and "had not ended when the budget had" in result.mode_reason
    )
    assert world.clock.cpu() <= 1.5 * 2
    full = World()
    assert (
        checked(full, softmax(full), select=("GV101",), budget=Budget(seconds=2.0)).mode
        == "entries"
    )


@pytest.mark.usefixtures("small_tiles")
@pytest.mark.parametrize(("spoil", "seconds"), [(scaled, 2.0), (in_one_row, 4.0)])
def test_a_wrong_gradient_does_not_pass_where_the_budget_ends_early(spoil, seconds):
    world = World(own=0.04)
    result = checked(
        world, softmax(world, spoil), select=("GV101",), budget=Budget(seconds=seconds)
    )
    assert result.verdict in ("fail", "undecided")
    assert world.clock.cpu() <= 1.5 * seconds + 0.04
    if result.verdict == "undecided":
        assert "the budget" in result.reason


@pytest.mark.usefixtures("small_tiles")
def test_what_was_found_wrong_before_the_budget_ended_fails_and_the_rest_is_counted_as_left_out():
    world = World(own=0.015)
    result = checked(world, softmax(world, scaled), select=("GV101",), budget=Budget(seconds=4.0))
    assert result.verdict == "fail"
    (compared,) = result.comparisons
    assert compared.mismatched > 0 and compared.elements == 192 * 192
    assert LEFT_OUT in next(run.reason for run in result.rules if run.code == "GV101")


# ---- whatever calls the function
@pytest.mark.parametrize("seconds", [2.0, 5.0])
def test_no_call_is_made_any_more_when_one_and_a_half_times_the_seconds_are_spent(seconds):
    world = World(own=0.05)
    result = checked(world, softmax(world), budget=Budget(seconds=seconds))
    assert world.clock.cpu() <= 1.5 * seconds + 0.05
    assert result.verdict in ("pass", "undecided") and left_out(result.rules) != ((), ())
    if result.verdict == "undecided":
        assert any(finding.code == "GV007" for finding in result.findings)


def test_nor_the_one_that_a_slow_function_gets_beside_which_other_rules_are_left_out():
    world = World(call=1.0)
    result = checked(world, softmax(world))
    assert (result.verdict, result.mode) == ("pass", "blocks") and world.clock.cpu() > 30
    assert {"GV109", "GV206"} <= set(left_out(result.rules)[0])


# ---- a time limit
@pytest.mark.parametrize(
    ("spoil", "verdict"), [(lambda gradient: gradient, "undecided"), (scaled, "undecided")]
)
def test_what_a_time_limit_leaves_unknown_is_undecided_before_the_process_is_ended(spoil, verdict):
    world = World(wall=1.0)
    result = checked(world, softmax(world, spoil), heard, timeout=60.0)
    assert result.verdict == verdict
    assert world.calls <= 48
    assert "GV101 jacobian was not finished: the time limit of 60 s was near" in {
        finding.message for finding in result.findings
    }


def test_a_fault_that_was_seen_before_the_time_limit_fails():
    world = World(wall=1.0)
    result = checked(
        world, softmax(world, damage=lambda x: x.data.mul_(1.0001)), heard, timeout=60.0
    )
    assert result.verdict == "fail" and {"GV203", "GV007"} <= {
        finding.code for finding in result.findings
    }
    assert world.calls <= 48


@pytest.mark.usefixtures("small_tiles")
def test_elements_that_were_found_wrong_before_the_time_limit_fail():
    world = World(wall=1.0)
    result = checked(world, softmax(world, scaled), heard, timeout=1000.0, select=("GV101",))
    assert result.verdict == "fail" and world.calls <= 801


def test_a_check_whose_process_nobody_ends_has_no_time_limit():
    world = World(wall=100.0)
    result = checked(world, softmax(world), timeout=60.0)
    assert result.verdict == "pass" and left_out(result.rules) == ((), ())
