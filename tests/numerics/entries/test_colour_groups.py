"""A walk by groups says right of what is right, finds the wrong element, and does not stand on groups that are not those of the function."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gradverify.numerics.entries.colour_groups import structural_zeros
from gradverify.numerics.entries.sweep import Sweep
from gradverify.numerics.judging.bundle import Grouping
from gradverify.numerics.judging.run import Reach, Run
from gradverify.numerics.pairs.pair import Outcome
from gradverify.numerics.prepare import Plan
from gradverify.numerics.seed_vectors import signed_weights_float32 as signed
from gradverify.numerics.sparsity.pattern import column_groups, row_groups
from gradverify.numerics.survey import linear_inputs
from numerics.differentiable import DOUBLE, Differentiable, normal
from numerics.windows import along_last, elementwise, prepared, product, windows

B, N = 4, 6
X, W = normal(1, B, N), normal(2, N, 5)
ROOMY, TIGHT = 64 << 20, 600 * B * N     # bytes: all groups together, and one at a time


class Walk:
    """One walk over `patterns` [inputs][outputs]."""

    @np.errstate(all="ignore")
    def __init__(self, function, patterns, limit=ROOMY):
        self.point, known = prepared(function)
        generator, point = np.random.default_rng(0), self.point
        self.run = Run(point, known, 0.0, None, Reach(point), frozenset(linear_inputs(point, known)))
        weights = signed(len(point.columns), generator)
        self.plans = [Plan(Grouping(t, int(point.starts[t]), column_groups(own), weights), tuple(row_groups(p) for p in own))
                      for t, own in enumerate(patterns)]
        sweep = Sweep(self.run, self.plans, 10, np.zeros(len(point.f0), bool), limit)
        self.broken, self.found_aliasing, self.tallies = sweep.judge_all(), sweep.found_aliasing, sweep.tallies

    def pair(self, tensor=0, output=0):
        return self.tallies[tensor, output].result(1e-16, False)

    def mismatches(self, tensor=0, output=0):
        """(output, input) coordinates."""
        return sorted((w.output_index, w.input_index) for w in self.pair(tensor, output).worst if w.outcome == Outcome.MISMATCH)


def softmax(x):
    return torch.softmax(x, -1)


RIGHT = {
    "softmax": (Differentiable(softmax, X), [[along_last(B, N)]], [B * N * N]),
    "elementwise": (Differentiable(torch.sin, X), [[elementwise(B, N)]], [B * N]),
    "causal": (Differentiable(lambda x: x.sin().cumsum(-1), X), [[along_last(B, N, causal=True)]], [B * N * (N + 1) // 2]),
    "product": (Differentiable(torch.matmul, X, W), product(B, N, 5), [B * 5 * N, B * 5 * N]),
    "wider than it is": (Differentiable(torch.exp, X), [[along_last(B, N)]], [B * N * N]),
}


@pytest.mark.parametrize("limit", [ROOMY, TIGHT])
@pytest.mark.parametrize("name", RIGHT)
def test_a_right_gradient_passes_in_every_element_of_its_groups(name, limit):
    function, patterns, elements = RIGHT[name]
    walk = Walk(function, patterns, limit)
    assert walk.broken == set() and not walk.found_aliasing.any()
    for tensor, count in enumerate(elements):
        pair = walk.pair(tensor)
        assert (pair.elements, pair.count(Outcome.PASS)) == (count, count)


def test_forward_calls_are_those_of_the_groups_and_backwards_those_of_the_rows():
    function = Differentiable(softmax, X)
    walk = Walk(function, [[along_last(B, N)]])
    assert function.backwards == N + 1
    assert walk.point.forward - walk.run.survey.forward < 6 * X.numel()      # what the quick rungs of lone columns alone would take


@pytest.mark.parametrize("limit", [ROOMY, TIGHT])
@pytest.mark.parametrize("place", [0, 13, 23])
def test_the_wrong_element_is_found_and_no_other(place, limit):
    def off(grads):
        return [grads[0] * (1 + 1e-3 * torch.eye(B * N, dtype=DOUBLE)[place].reshape(B, N))]

    walk = Walk(Differentiable(torch.sin, X, damage=off), [[elementwise(B, N)]], limit)
    assert walk.mismatches() == [(place, place)]
    assert walk.pair().count(Outcome.PASS) == B * N - 1
    assert walk.broken == set()


def test_a_column_that_is_wrong_is_wrong_for_all_outputs_of_its_row_and_for_no_other():
    def off(grads):
        return [grads[0] * (1 + 1e-2 * torch.eye(B * N, dtype=DOUBLE)[8].reshape(B, N))]

    walk = Walk(Differentiable(softmax, X, damage=off), [[along_last(B, N)]])
    assert walk.mismatches() == [(out, 8) for out in range(6, 12)]
    assert walk.pair().count(Outcome.PASS) == B * N * N - N


def test_the_wrong_one_of_two_inputs_is_found():
    walk = Walk(Differentiable(torch.matmul, X, W, damage=lambda grads: [grads[0], 1.01 * grads[1]]), product(B, N, 5))
    assert walk.pair(0).count(Outcome.MISMATCH) == 0
    assert walk.pair(1).count(Outcome.MISMATCH) > 0


def coupled(x):
    """y₃ depends on x₁₇ too."""
    y = x.sin().flatten()
    return (y + 0.5 * torch.eye(B * N, dtype=x.dtype)[3] * y[17]).reshape(B, N)


class Unaware(Differentiable):
    """Its backward is that of another function."""

    def __init__(self, forward, believed, x):
        super().__init__(forward, x)
        self.believed = Differentiable(believed, x)

    def vjp(self, cotangents, inputs=None):
        return self.believed.vjp(cotangents, inputs)


@pytest.mark.parametrize("function", [Differentiable(coupled, X), Unaware(coupled, torch.sin, X)], ids=["known to the backward", "unknown to it"])
def test_groups_that_are_not_those_of_the_function_break(function):
    assert Walk(function, [[elementwise(B, N)]]).broken == {0}


def added_up(x):
    return x.sin().cumsum(-1)


def reaching(x):
    """y₀ depends on x₁₅ too, which its pattern lacks."""
    return added_up(x) + 0.5 * torch.eye(B * N, dtype=x.dtype)[0].reshape(B, N) * x[2, 3].sin()


def test_a_dependence_outside_of_the_groups_is_a_mismatch_where_the_backward_does_not_know_it():
    walk = Walk(Unaware(reaching, added_up, X), [[along_last(B, N, causal=True)]])
    assert walk.mismatches() == [(0, 15)]
    assert walk.pair().count(Outcome.PASS) == B * N * (N + 1) // 2
    assert walk.broken == set()


def test_a_dependence_outside_of_the_groups_breaks_them_where_the_backward_does_know_it():
    assert Walk(Differentiable(reaching, X), [[along_last(B, N, causal=True)]]).broken == {0}


def test_a_gradient_that_leaks_where_nothing_depends_is_a_mismatch():
    class Leaks(Differentiable):
        """The gradient of x₂ gets a share of y₉'s cotangent."""

        def vjp(self, cotangents, inputs=None):
            grads = [g.clone() for g in super().vjp(cotangents, inputs)]
            grads[0].view(-1)[2] += 0.125 * cotangents[0].reshape(-1)[9]
            return grads

    walk = Walk(Leaks(torch.sin, X), [[elementwise(B, N)]])
    assert walk.mismatches() == [(9, 2)]
    assert walk.broken == set()


class Front(Differentiable):
    """sin of the first five of twelve; the backward adds a share of y₂'s cotangent to the gradient of x₇."""

    def __init__(self, share, truly):
        mixed = torch.zeros(5, dtype=DOUBLE)
        mixed[2] = truly
        super().__init__(lambda x: x[:5].sin() + mixed * x[7], normal(1, 12))
        self.share = share

    def vjp(self, cotangents, inputs=None):
        grads = [g.clone() for g in super().vjp(cotangents, inputs)]
        grads[0][7] += self.share * cotangents[0][2]
        return grads


@pytest.mark.parametrize(("share", "truly", "mismatches", "broken"), [
    (0.125, 0.0, [(2, 7)], set()),          # f does not depend on it
    (0.0, 0.0, [], set()),
    (0.0, 0.125, [], {0}),                  # f does, and the backward knows it: the groups are not those of the function
])
def test_a_number_where_no_output_of_any_group_depends_is_followed_to_where_it_comes_from(share, truly, mismatches, broken):
    places = np.arange(5)
    walk = Walk(Front(share, truly), [[windows((12,), [places], [places])]])
    assert (walk.mismatches(), walk.broken) == (mismatches, broken)
    if not broken:
        assert walk.pair().count(Outcome.PASS) == 5


def test_what_no_group_has_is_counted_as_zeros_of_both_sides():
    walk = Walk(Differentiable(torch.sin, X), [[elementwise(B, N)]])
    structural_zeros(walk.run, walk.plans[0], walk.tallies)
    pair = walk.pair()
    assert (pair.elements, pair.count(Outcome.PASS)) == ((B * N) ** 2, (B * N) ** 2)
    assert 0 < pair.resolution < 1e-6


def test_nothing_is_counted_where_every_element_was_compared():
    walk = Walk(Differentiable(lambda x: torch.softmax(x, 0), normal(1, 12)), [[along_last(12)]])
    before = walk.pair()
    structural_zeros(walk.run, walk.plans[0], walk.tallies)
    assert walk.pair() == before and before.elements == 144
