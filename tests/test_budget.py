"""The budget bounds the whole check: rules in order of worth, halved samples before dropped rules,
and what was left out is said.

The class of faults: a bound on one part of a check (the comparison) while others (contract rules,
second order, a second point, localising) spend what they like. Time is a number that the function
moves; nothing waits.
"""

import pytest
import torch
from live import randn, subject
from torch.autograd import Function

from gradverify.evidence import Evidence
from gradverify.model.case import Budget
from gradverify.model.result import LEFT_OUT, Calls, left_out
from gradverify.numerics.function.point import Clock
from gradverify.rules.catalogue import rules, runnable
from gradverify.subject.spending import Spending
from gradverify.verify import verify

STEPS = 4
ORDER = [info.code for info in runnable()]
PRICES = [info.code for info in sorted(rules(), key=lambda info: -info.worth) if info.price]


def field(y, p):
    return torch.tanh(p[0] * y) + p[1] * y.flip(0) - p[2] * y


class World:
    """A clock by hand: every call takes `call` seconds, every `odds`-th stalls."""

    def __init__(self, call, odds=0):
        self.now, self.call, self.odds, self.calls = 0.0, call, odds, 0

    def tick(self):
        self.calls += 1
        self.now += self.call + (0.7 if self.odds and self.calls % self.odds == 0 else 0.0)


def ode(world, factor=1.0):
    """Euler steps and their adjoint, whose gradient of p is off by `factor` in its last element;
    forward and backward take a call's time each."""

    class Ode(Function):
        @staticmethod
        def forward(ctx, y, p):
            world.tick()
            ys = [y]
            for _ in range(STEPS):
                ys.append(ys[-1] + field(ys[-1], p) / STEPS)
            ctx.save_for_backward(p, *ys)
            return ys[-1].clone()

        @staticmethod
        def backward(ctx, g):
            world.tick()
            p, *ys = ctx.saved_tensors
            off = torch.tensor([1.0, 1.0, factor], dtype=p.dtype)
            total = torch.zeros_like(p)
            for y in reversed(ys[:-1]):
                with torch.enable_grad():
                    y, q = y.detach().requires_grad_(), p.detach().requires_grad_()
                    z = y + field(y, q) / STEPS
                g, d = torch.autograd.grad(z, (y, q), g)
                total = total + d
            return g, total * off

    return Ode


def checked(call, factor=1.0, odds=0, inputs=None, function=None, **changes):
    world = World(call, odds)
    made = subject(
        (function or ode)(world, factor), *(inputs or (randn(4), randn(3, seed=1))), **changes
    )
    made.clock = Clock(lambda: world.now, lambda: 0.0)
    return verify(made), world


@pytest.fixture(scope="module")
def quiet():
    return checked(1e-4)[0]


def total(result):
    return result.calls.forward + result.calls.backward


def status(result):
    return {rule.code: rule.status for rule in result.rules}


def test_a_fast_check_leaves_nothing_out(quiet):
    assert quiet.verdict == "pass" and left_out(quiet.rules) == ((), ())
    assert status(quiet)["GV206"] == status(quiet)["GV109"] == "ran"


def test_stalls_leave_nothing_out_and_change_no_call(quiet):
    busy, world = checked(1e-4, odds=3)
    assert world.now > 10  # by the clock the budget was spent long ago
    assert (busy.calls, busy.rules, busy.mode, busy.mode_reason) == (
        quiet.calls,
        quiet.rules,
        quiet.mode,
        quiet.mode_reason,
    )


@pytest.mark.parametrize(
    ("factor", "verdict", "most"), [(1.0, "pass", 25), (1.0 + 1e-4, "fail", 70)]
)
def test_a_slow_check_ends_with_its_verdict_and_says_what_was_left_out(factor, verdict, most):
    """A right one in 2.5 times its budget; a wrong one when one element of a flagged block was
    measured alone, which no bound may cut short."""
    result, world = checked(0.6, factor)
    assert result.verdict == verdict
    assert {f.code for f in result.findings} == ({"GV101"} if verdict == "fail" else set())
    assert world.now < most
    dropped, cut = left_out(result.rules)
    assert {"GV211", "GV225"} < set(dropped) and {"GV206", "GV208"} <= {*dropped, *cut}
    assert {rule.reason for rule in result.rules if rule.code in dropped} == {
        f"{LEFT_OUT}the budget of 10 s was spent"
    }
    assert status(result)["GV201"] == status(result)["GV101"] == "ran"
    assert (
        result.mode == "blocks" and "one random probe stands for all elements" in result.could_miss
    )


def test_the_comparison_and_the_rules_that_are_worth_most_come_first():
    result, _ = checked(0.15)
    ran = [code for code in PRICES if status(result)[code] == "ran"]
    dropped, _ = left_out(result.rules)
    assert ran and dropped
    assert max(map(PRICES.index, ran[:3])) < min(map(PRICES.index, dropped))


def test_no_cause_is_looked_for_where_nothing_is_left():
    """It would have to hold at another point, which costs a comparison more."""
    told, _ = checked(1e-4, 0.9)
    bare, _ = checked(1e-4, 0.9, budget=Budget(calls=150))
    assert total(bare) < total(told)
    assert bare.findings[0].cause is None and bare.findings[0].message == told.findings[0].message


def test_every_rule_that_takes_more_than_a_few_calls_has_a_price(quiet):
    """A new one that has none would run whatever is left."""
    spent = {rule.code: rule.calls.forward + rule.calls.backward for rule in quiet.rules}
    assert {code for code, calls in spent.items() if calls > 4 and code not in PRICES} == {"GV101"}
    assert set(PRICES) <= set(ORDER)


def test_samples_are_halved_before_a_rule_is_left_out():
    result, _ = checked(1e-4, budget=Budget(calls=110))
    reasons = {rule.code: rule.reason for rule in result.rules}
    dropped, part = left_out(result.rules)
    assert part and dropped
    assert any(
        "left out: the budget of 110 calls was spent" in reasons[code] and " of " in reasons[code]
        for code in part
    )
    assert reasons[dropped[0]] == "left out: the budget of 110 calls was spent"


@pytest.mark.parametrize("calls", [90])
def test_a_budget_of_calls_is_kept_by_a_right_function_and_is_the_same_each_time(calls):
    first, second = (checked(1e-4, budget=Budget(calls=calls))[0] for _ in range(2))
    assert total(first) <= calls
    assert (first.calls, first.rules, first.mode) == (second.calls, second.rules, second.mode)
    assert first.verdict == "pass"


def test_a_budget_that_nothing_fits_makes_the_cheapest_comparison_all_the_same():
    for factor, verdict in ((1.0, "pass"), (0.9, "fail")):
        result, _ = checked(1e-4, factor, budget=Budget(calls=1))
        assert result.verdict == verdict and result.mode == "blocks"
        assert "Nothing fits" in result.mode_reason or "nothing fits" in result.mode_reason


@pytest.mark.parametrize("calls", [40, 100])
def test_what_is_left_out_never_makes_a_wrong_gradient_pass(calls):
    assert checked(1e-4, 0.9, budget=Budget(calls=calls))[0].verdict == "fail"


def test_a_rule_that_takes_more_than_it_was_thought_to_is_cut_short_and_keeps_what_it_found(
    monkeypatch,
):
    from gradverify.model.result import Finding
    from gradverify.rules import variants

    def endless(evidence):
        yield Finding("GV208", "found before the end")
        while True:
            evidence.function.once(evidence.cotangents("base"))

    monkeypatch.setattr(variants, "gv208", endless)
    result, _ = checked(1e-4, budget=Budget(calls=400))
    assert total(result) <= 400
    run = next(run for run in result.rules if run.code == "GV208")
    assert run.status == "ran" and run.reason.startswith(
        f"the rest {LEFT_OUT}the budget of 400 calls"
    )
    assert "found before the end" in [f.message for f in result.findings]


def test_a_fault_that_only_a_dropped_rule_sees_is_told_of_as_not_looked_at():
    """A backward that needs both gradients: GV208 sees it; where it was left out the result says
    so."""

    class Both(Function):
        @staticmethod
        def forward(ctx, x, w):
            ctx.save_for_backward(x, w)
            return x * w

        @staticmethod
        def backward(ctx, g):
            x, w = ctx.saved_tensors
            return (g * w, g * x) if all(ctx.needs_input_grad) else (None, None)

    seen, _ = checked(
        1e-4, function=lambda world, factor: Both, inputs=(randn(4), randn(4, seed=1))
    )
    assert seen.verdict == "fail"
    blind, _ = checked(
        1e-4,
        function=lambda world, factor: Both,
        inputs=(randn(4), randn(4, seed=1)),
        budget=Budget(calls=1),
    )
    assert "GV208" in left_out(blind.rules)[0]


def test_each_evidence_of_a_subject_has_a_budget_of_its_own():
    """As of a subject whose gradients are damaged in many ways, one after the other."""
    world = World(1e-4)
    made = subject(ode(world), randn(4), randn(3, seed=1), budget=Budget(calls=300))
    made.clock = Clock(lambda: world.now, lambda: 0.0)
    for _ in range(2):
        result = verify(made, evidence=Evidence(made))
        assert left_out(result.rules) == ((), ())
    assert total(result) > 300


# ---- what is spent
def spending(budget, forward=0, backward=0, batched=0, seconds=(0.0, 0.0)):
    class Counted:
        calls, fastest, before_call, clock = Calls(), seconds, None, Clock(cpu=lambda: 0.0)

    counted = Counted()
    spent = Spending(counted, budget)
    counted.calls = Calls(forward, backward, batched)
    return spent


def test_calls_in_batches_took_next_to_nothing_each():
    assert not spending(Budget(seconds=10.0), 50, 50, 100, (1.0, 1.0)).over
    assert spending(Budget(seconds=10.0), 50, 50, 0, (1.0, 1.0)).over
