"""`--repeat`: a verdict that depends on the draw is named with its seeds, whatever it flips between; one result of a check, with all repeats in it.

The worst repeat decides, so that no failure hides behind passes, and no pass behind expected failures.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from factories import result

from gradverify.model.case import Case, Settings, SpecPlace
from gradverify.model.event import CheckFinished, CheckStarted, Selection
from gradverify.model.report import Gate, fold
from gradverify.model.result import Calls, Fault, Finding
from gradverify.running.inline import Devices
from gradverify.running.schedule import run
from gradverify.running.select import Repeating, repeats
from gradverify.running.signals import Stopped


def made(name, expect="pass", seed=0):
    return Case(f"a.yaml::{name}", name, name, SpecPlace("a.yaml", 1), "f", settings=Settings(seed=seed), expect=expect)


class Drawn:
    """A crew whose checks come out as `verdicts[name][seed]` says; pass without a word. `turned`: results come in another order, as from workers."""

    def __init__(self, turned=False, stop=None, **verdicts):
        self.verdicts, self.turned, self.stop, self.ran = verdicts, turned, stop, []

    def machine(self):
        return Devices((), 1)

    def run(self, cases):
        yield from (CheckStarted(case.id, case.name) for case in cases if self.turned)
        for case in reversed(cases) if self.turned else cases:
            if self.stop == (case.name, case.settings.seed):
                raise Stopped(2)
            if not self.turned:
                yield CheckStarted(case.id, case.name)
            self.ran.append((case.name, case.settings.seed))
            verdict = self.verdicts.get(case.name, {}).get(case.settings.seed, "pass")
            found = (Finding("GV101", f"wrong at seed {case.settings.seed}"),) if verdict == "fail" else ()
            reason = "who knows" if verdict in ("undecided", "error") else None
            yield CheckFinished(replace(result(case.name, verdict, reason=reason, findings=found), id=case.id, expect=case.expect,
                                        seed=case.settings.seed, seconds=1.5, calls=Calls(2, 1)))

    def close(self):
        pass


def report(crew, *cases, times=5, gate=None, maxfail=None):
    gate = gate or Gate()
    repeating = Repeating(crew, times, gate, maxfail == 1)
    return fold(list(run(cases, argv=(), selection=Selection(), crew=repeating, gate=gate, maxfail=maxfail)), gate, "0")


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(("verdicts", "expect", "verdict", "seed", "code", "reason"), [
    ({1: "fail", 3: "fail"}, "pass", "fail", 1, 1, "2 of 5 repeats failed (seeds 1, 3); 3 passed (seeds 0, 2, 4)"),
    ({4: "error", 2: "undecided"}, "pass", "error", 4, 3,
     "1 of 5 repeats could not be judged (seed 4); 1 came out undecided (seed 2); 3 passed (seeds 0, 1, 3): who knows"),
    ({}, "pass", "pass", 0, 0, None),
    (dict.fromkeys(range(5), "fail"), "fail", "fail", 0, 0, None),
    (dict.fromkeys(range(4), "fail"), "fail", "pass", 4, 1, "4 of 5 repeats failed (seeds 0, 1, 2, 3); 1 passed (seed 4)"),
    ({}, "fail", "pass", 0, 1, "all 5 repeats passed"),
])
def test_the_worst_repeat_decides_and_a_flip_is_named(turned, verdicts, expect, verdict, seed, code, reason):
    told = report(Drawn(turned, op=verdicts), made("op", expect))
    check, = told.checks
    assert (check.verdict, check.seed, check.reason, told.exit_code) == (verdict, seed, reason, code)
    assert [(each.seed, each.verdict) for each in check.repeats] == [(seed, verdicts.get(seed, "pass")) for seed in range(5)]
    assert (check.seconds, check.calls) == (7.5, Calls(10, 5)) and all(each.seconds == 1.5 for each in check.repeats)


def test_repeats_count_on_from_the_checks_own_seed():
    assert [case.settings.seed for case in repeats(made("op", seed=7), 3)] == [7, 8, 9]
    assert {case.id for case in repeats(made("op"), 3)} == {"a.yaml::op"}
    assert all(case.settings.seed < 2**63 for case in repeats(made("op", seed=2**63 - 1), 3))


def test_x_stops_at_the_first_repeat_that_is_not_as_expected():
    crew = Drawn(op={1: "fail"})
    told = report(crew, made("op"), made("late"), maxfail=1)
    assert crew.ran == [("op", 0), ("op", 1)] and [check.verdict for check in told.checks] == ["fail", "not_run"]
    assert told.checks[0].reason == "1 of 2 repeats failed (seed 1); 1 passed (seed 0)"


def test_an_interrupt_keeps_a_failure_and_takes_no_part_for_the_whole():
    told = report(Drawn(bad={1: "fail"}, stop=("bad", 3)), made("good"), made("bad"), made("late"))
    assert [check.verdict for check in told.checks] == ["pass", "fail", "not_run"] and told.exit_code == 130
    told = report(Drawn(stop=("bad", 3)), made("good"), made("bad"), made("late"))
    assert [check.verdict for check in told.checks] == ["pass", "not_run", "not_run"] and told.exit_code == 130


def test_a_fault_of_our_own_in_any_repeat_is_kept():
    class Faulty(Drawn):
        def run(self, cases):
            for event in super().run(cases):
                fault = (Fault("a rule", "KeyError", "x.py:1", "trace"),)
                if isinstance(event, CheckFinished) and event.result.seed == 2:
                    event = CheckFinished(replace(event.result, verdict="error", faults=fault))
                yield event

    told = report(Faulty(op={1: "fail"}), made("op"))
    assert told.exit_code == 4 and len(told.checks[0].faults) == 1 and told.checks[0].verdict == "fail"
