"""Ties that hide from the structure, because the member that was moved down moved nothing: a zero
gradient passes at no seed, a shared one does."""

import pytest
import torch
import torch.nn.functional as F

from gradverify.numerics.choose import Mode
from gradverify.numerics.compare import compare
from gradverify.numerics.seeds import Seed
from gradverify.numerics.verdict import Verdict
from numerics.differentiable import DOUBLE, Differentiable, normal, times, zeros


def largest(x):
    return x.amax(-1)


def pooled(x):
    return F.max_pool2d(x, 2)


TIED = {  # forward, input, a seed at which a member of a tie hides
    "rows of three": (largest, torch.ones(4, 3, dtype=DOUBLE), (0,)),
    "a pool": (pooled, torch.ones(1, 1, 4, 4, dtype=DOUBLE), (1,)),
    "columns": (lambda x: x.amax(0), torch.ones(5, 4, dtype=DOUBLE), (0,)),
    "rows of five": (largest, torch.ones(4, 5, dtype=DOUBLE), (3,)),
}


def verdicts(forward, x, seeds, mode, damage=None):
    function = Differentiable(forward, x, damage=damage)
    return {compare(function, mode=mode, seed=Seed(seed)).pairs[0].verdict for seed in seeds}


@pytest.mark.population(most=4)
@pytest.mark.parametrize("mode", list(Mode))
@pytest.mark.parametrize("name", TIED)
def test_no_gradient_at_all_passes_at_no_tie(name, mode):
    assert Verdict.PASS not in verdicts(*TIED[name], mode, zeros)


@pytest.mark.parametrize("mode", [Mode.ENTRIES, Mode.ROWS])
def test_a_half_of_the_gradient_does_not_pass(mode):
    assert Verdict.PASS not in verdicts(*TIED["a pool"], mode, times(0.5))


@pytest.mark.parametrize("mode", list(Mode))
def test_a_gradient_that_is_shared_by_the_tied_passes(mode):
    assert verdicts(*TIED["rows of three"], mode) == {Verdict.PASS}


@pytest.mark.parametrize("mode", list(Mode))
def test_a_gradient_that_one_of_the_tied_has_alone_is_not_called_wrong(mode):
    assert Verdict.MISMATCH not in verdicts(
        lambda x: x.max(-1).values, torch.ones(4, 3, dtype=DOUBLE), (0,), mode
    )


@pytest.mark.population(most=4)
@pytest.mark.parametrize("mode", list(Mode))
@pytest.mark.parametrize("forward", [torch.relu, torch.abs, lambda x: x.clamp(min=0.0)])
def test_equal_kinks_of_their_own_pass_and_a_wrong_element_beside_them_is_found(forward, mode):
    x = normal(3, 4, 6)
    x[:, :2] = 0.0

    def damage(grads):
        g = grads[0].clone()
        g[1, 4] += 0.01
        return [g]

    assert verdicts(forward, x, (0,), mode) == {Verdict.PASS}
    assert verdicts(forward, x, (0,), mode, damage) == {Verdict.MISMATCH}
