from __future__ import annotations

import random
import re

import numpy as np
import pytest
import torch
from live import check, codes, message, randn
from torch.autograd import Function

from rules.functions import Right, X, square


def counting(wrong):
    """x², twice too large in the calls whose number (from 1 on) is `wrong`."""
    calls = [0]

    def backward(x, g):
        calls[0] += 1
        return (4 if wrong(calls[0]) else 2) * x * g

    return square(backward)


def notes(result, code="GV206"):
    return next(run for run in result.rules if run.code == code)


@pytest.mark.parametrize("start", range(0, 20, 3))
def test_a_backward_that_is_wrong_on_every_twentieth_call_is_found_wherever_the_count_stands(start):
    result = check(counting(lambda n: (n + start) % 20 == 0), X)
    assert (result.verdict, codes(result)) == ("fail", {"GV206"})
    assert re.match("backward is not deterministic: of 2[1-3] calls with the same grad_output", message(result, "GV206"))


def test_the_first_call_of_all_is_among_those_compared():
    result = check(counting(lambda n: n == 1), X)
    assert codes(result) == {"GV206"}
    assert "the first call of all differs from the second" in message(result, "GV206")


def test_memory_that_nobody_wrote_is_found():
    calls = [0]

    def backward(x, g):
        calls[0] += 1
        return torch.full_like(x, torch.nan) if calls[0] % 7 == 0 else 2 * x * g      # what torch.empty may hold

    assert codes(check(square(backward), X)) == {"GV206"}


@pytest.mark.parametrize(("size", "severity"), [(2.0**-51, None), (2.0**-46, "warning"), (2.0**-40, "error")])
def test_rounding_is_right_what_atomics_do_is_a_warning_and_more_is_an_error(size, severity):
    calls = [0]

    def backward(x, g):
        calls[0] += 1
        return 2 * x * g * (1 + size * (calls[0] % 2))

    found = [finding.severity for finding in check(square(backward), X, select=("GV206",)).findings]
    assert found == ([severity] if severity else [])


def test_the_input_at_fault_is_named():
    calls = [0]

    class Product(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, y):
            ctx.save_for_backward(x, y)
            return x * y

        @staticmethod
        def backward(ctx, g):
            x, y = ctx.saved_tensors
            calls[0] += 1
            return g * y, g * x * (1 + calls[0] % 2)

    assert {finding.input for finding in check(Product, X, X + 1, select=("GV206",)).findings} == {"y"}


def test_how_many_calls_were_compared_is_said():
    run = notes(check(Right, X))
    assert (run.status, run.calls.backward) == ("ran", 18)     # and the first call, of GV231, and the base call
    assert run.reason == "20 identical calls compared, the first of the process among them"


def test_a_graph_that_a_backward_spoils_for_the_next_is_not_called_undeterministic():
    """It multiplies its scratch on ctx; on a fresh graph the gradient is the same each time."""

    class Square(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.double = 2 * x.detach()
            return x * x

        @staticmethod
        def backward(ctx, g):
            result = ctx.double * g
            ctx.double.mul_(2)
            return result

    result = check(Square, X, select=("GV206",))
    assert codes(result) == set()
    assert "fresh graphs agree" in notes(result).reason


def test_a_function_that_refuses_a_second_backward_is_called_on_fresh_graphs():
    class Once(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.held = x.clone()
            return x * x

        @staticmethod
        def backward(ctx, g):
            x, ctx.held = ctx.held, None
            return 2 * x * g

    result = check(Once, X, second_order=False)
    assert codes(result) == {"GV227"}      # a warning
    assert notes(result).reason.startswith("4 identical calls")


def test_the_functions_inside_a_callable_count_and_a_callable_of_torchs_operators_has_none():
    faulty = counting(lambda n: n % 20 == 0)
    assert codes(check(lambda x: faulty.apply(x).sum(0), X)) == {"GV206"}
    run = notes(check(lambda x: x.sin().sum(0), X))
    assert (run.status, run.reason) == ("not_applicable", "no custom Function is in the graph")


def test_gradients_that_are_rounding_throughout_are_deterministic_too():
    class Summed(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            y = x.softmax(-1)
            ctx.save_for_backward(y)
            return y.sum(-1)

        @staticmethod
        def backward(ctx, g):
            y, = ctx.saved_tensors
            g = g[:, None].expand_as(y)
            return y * (g - (g * y).sum(-1, keepdim=True))

    assert "GV206" not in codes(check(Summed, randn(3, 5)))


def by_graph(factor):
    """x², the slope of which is `factor(number of this forward, is x a leaf)` times x."""
    class ByGraph(Function):
        calls = 0

        @staticmethod
        def forward(ctx, x):
            ByGraph.calls += 1
            ctx.factor = factor(ByGraph.calls, x.is_leaf)
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, g):
            return ctx.factor * g * ctx.saved_tensors[0]

    return ByGraph


@pytest.mark.population(most=8)
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("often", [2, 4, 5, 9, 10])
def test_a_backward_that_is_wrong_for_every_nth_forward_is_found_as_that(often, seed):
    result = check(by_graph(lambda n, leaf: 1 if n % often == 0 else 2), randn(4, seed=seed), seed=seed)
    assert result.verdict == "fail" and codes(result) <= {"GV206", "GV215"}
    assert any(found.code == "GV206" and found.severity == "error" for found in result.findings)


@pytest.mark.parametrize("seed", range(5))
def test_a_backward_that_is_wrong_where_the_input_is_a_result_is_found(seed):
    result = check(by_graph(lambda n, leaf: 2 if leaf else 1), randn(3, 4, seed=seed), seed=seed, ignore=("GV215",))
    assert result.verdict == "fail"
    assert message(result, "GV206").startswith("backward of another graph, whose inputs are results (x * 1), gives another gradient: ")
    assert codes(check(by_graph(lambda n, leaf: 2), randn(3, 4, seed=seed), seed=seed)) == set()
    assert "GV206" not in codes(check(by_graph(lambda n, leaf: 2 if leaf else 1), randn(3, 4, seed=seed), seed=seed, ignore=("GV206",)))


DROPS = {
    "torch": lambda d: d * (torch.rand_like(d) > 0.05),
    "NumPy": lambda d: d * float(np.random.random() > 0.2),
    "Python": lambda d: d * (random.random() > 0.2),
}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("generator", DROPS)
def test_a_backward_that_drops_a_few_gradients_at_random_is_found_though_every_call_is_seeded_alike(generator, seed):
    result = check(square(lambda x, g: DROPS[generator](2 * x * g)), X, seed=seed)
    assert (result.verdict, codes(result)) == ("fail", {"GV206"})
    assert "backward draws random numbers, and its gradient depends on them" in message(result, "GV206")


def test_what_a_random_factor_does_is_not_taken_for_a_rounded_constant():
    """At one seed it is one factor, at every point."""
    result = check(square(lambda x, g: 2 * x * g * (1 + 1e-3 * torch.rand(()).item())), X)
    assert codes(result) == {"GV206"}
    assert all(finding.cause is None for finding in result.findings)


def dropout(backward):
    class Dropout(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.state = torch.get_rng_state()
            mask = torch.rand_like(x) > 0.4
            ctx.save_for_backward(x, mask)
            return x * x * mask

        @staticmethod
        def backward(ctx, g):
            return 2 * g * backward(ctx, *ctx.saved_tensors)

    return Dropout


def again(ctx, x, mask):
    with torch.random.fork_rng(devices=[]):
        torch.set_rng_state(ctx.state)
        return x * (torch.rand_like(x) > 0.4)


def within_rounding(ctx, x, mask):
    return x * mask * (1 + 2.0**-52 * torch.rand_like(x))


@pytest.mark.parametrize("backward", [
    again, within_rounding,
    lambda ctx, x, mask: x * mask + 0 * torch.rand_like(x),
    lambda ctx, x, mask: x * mask + 0 * random.random(),
], ids=["recomputes the mask", "draws a rounding", "draws for nothing", "draws from Python for nothing"])
def test_a_right_backward_may_draw(backward):
    result = check(dropout(backward), X)
    assert (result.verdict, codes(result)) == ("pass", set())


def test_what_a_random_start_leaves_of_an_iteration_is_a_warning():
    result = check(square(lambda x, g: 2 * x * g * (1 + 1e-9 * torch.rand_like(x))), X, select=("GV206",))
    assert [finding.severity for finding in result.findings] == ["warning"]
