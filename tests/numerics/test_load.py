"""What is compared does not depend on how busy the machine is: a call that stalls says nothing of
the function, and neither does a mean of calls.

Time is a number that the calls move; no test waits.
"""

import random

import pytest

from gradverify.numerics.choose import Limits, Mode, to_power_of_two
from gradverify.numerics.compare import compare
from gradverify.numerics.function.point import Clock, Stopwatch
from gradverify.rules.chosen import reason
from numerics.differentiable import Differentiable, normal

STALL = 0.5  # seconds
DEFAULT = Limits(seconds=10, lenient=True)


class Timed(Differentiable):
    """Every forward takes `call` seconds, up to half as much again, and one in `odds` stalls."""

    def __init__(self, forward, *inputs, call=3e-5, odds=0, seed=0):
        super().__init__(forward, *inputs)
        self.now, self.call, self.odds, self.source = 0.0, call, odds, random.Random(seed)

    def values(self, inputs):
        self.now += self.call * (1 + 0.5 * self.source.random())
        if self.odds and not self.source.randrange(self.odds):
            self.now += STALL * self.source.random() * 2
        return super().values(inputs)


def chosen(forward, *inputs, limits=DEFAULT, **timed):
    """What is chosen first; where lines stay open then, all elements may be compared after it."""
    function, choices = Timed(forward, *inputs, **timed), []
    compare(
        function,
        limits=limits,
        clock=Clock(lambda: function.now, lambda: 0.0),
        watch=choices.append,
    )
    return choices[0]


def mixed(rows, columns):
    """A dense function of some inputs, of as many outputs as it is told."""
    weights = normal(5, rows, columns)
    return lambda x: (weights @ x).tanh()


CASES = {  # forward, inputs, seconds of a call
    "44 elements": (mixed(1, 44), normal(0, 44), 3e-5),
    "44 elements of two inputs": (lambda x, y: (x * y).sum(-1), normal(0, 2, 11), 3e-5),
    "a dense one of 400 elements": (mixed(20, 20), normal(0, 20), 1e-3),
    "one of rows": (lambda x: x.softmax(-1), normal(0, 16, 12), 2e-3),
    "one that takes as long as 300 calls may": (mixed(8, 30), normal(0, 30), 0.024),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("odds", [8, 3])
def test_stalls_of_half_a_second_change_nothing(name, odds):
    forward, x, call = CASES[name]
    inputs = (x, x + 1) if "two" in name else (x,)
    quiet = chosen(forward, *inputs, call=call)
    for seed in range(2):
        busy = chosen(forward, *inputs, call=call, odds=odds, seed=seed)
        assert (busy.mode, busy.cost.calls, reason(busy)) == (
            quiet.mode,
            quiet.cost.calls,
            reason(quiet),
        ), seed
    assert quiet.mode is Mode.ENTRIES


@pytest.mark.parametrize("call", [1e-7, 3e-5, 1e-3, 0.02])
def test_that_gradcheck_is_faster_does_not_depend_on_how_fast_the_function_is(call):
    assert chosen(mixed(60, 60), normal(0, 60), limits=Limits(), call=call).mode is Mode.ROWS
    assert (
        chosen(lambda x: x.softmax(-1), normal(0, 30, 12), limits=Limits(), call=call).mode
        is Mode.ENTRIES
    )


def test_a_time_is_the_next_power_of_two():
    assert [to_power_of_two(t) for t in (1.0, 1.4, 1.42, 0.75, 3e-5)] == [
        1.0,
        1.0,
        2.0,
        1.0,
        2.0**-15,
    ]
    assert to_power_of_two(0.0) == to_power_of_two(float("inf")) == 0.0


# ---- the clock
class Machine:
    """A clock that moves by hand: `run` of one's own, `lose` to others."""

    def __init__(self):
        self.now = self.lost = 0.0
        self.asked = 0

    def run(self, seconds, lose=0.0):
        self.now, self.lost = self.now + seconds + lose, self.lost + lose

    def waited(self):
        self.asked += 1
        return self.lost


def timed(calls):
    """The stopwatch after calls of (own seconds, seconds lost), and its machine."""
    machine = Machine()
    watch = Stopwatch(Clock(lambda: machine.now, machine.waited))
    for own, lost in calls:
        watch.start()
        machine.run(own, lost)
        watch.stop()
    return watch, machine


def test_what_other_programs_took_of_a_long_call_is_not_its_own():
    assert timed([(0.025, 0.4), (0.025, 0.4), (0.025, 0.2)])[0].fastest == pytest.approx(0.025)
