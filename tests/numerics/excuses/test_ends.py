"""Where f ends at x, or climbs without bound, nothing is called wrong; what is wrong beside it is,
in all comparisons."""

import pytest
import torch

from gradverify.numerics.choose import Mode
from gradverify.numerics.compare import compare
from gradverify.numerics.pairs.pair import Outcome
from gradverify.numerics.verdict import Verdict
from numerics.differentiable import DOUBLE, Differentiable, leaf, normal

MODES = list(Mode)
RAMP = torch.linspace(-0.9, 0.9, 43, dtype=DOUBLE)
ENDS = {  # forward, input, an inner element
    "asin at both ends": (torch.asin, leaf(0.3, -1.0, 1.0, 0.5, 0.0), 3),
    "acos at both ends": (torch.acos, leaf(0.3, -1.0, 1.0, 0.5, 0.0), 3),
    "sqrt at 0": (torch.sqrt, leaf(0.0, 1.0, 2.0, 0.0, 3.0), 4),
    "log at 0": (torch.log, leaf(0.0, 1.0, 2.0, 1e-12, 3.0), 1),
    "x log x at 0": (torch.special.entr, leaf(0.0, 1.0, 2.0, 1e-12, 3.0), 4),
    "a root that has both sides": (lambda x: x.abs().sqrt(), leaf(0.0, 1.0, 2.0, 0.0, 3.0), 4),
    "more ends than lines that are followed": (
        torch.sqrt,
        normal(4, 12, 9).clamp(min=0),
        int(normal(4, 12, 9).argmax()),
    ),
    "an end in a sum": (
        lambda x: torch.asin(x).view(9, 5).sum(-1),
        torch.cat([leaf(-1.0, 1.0), RAMP]),
        30,
    ),
}


def times(place, factor):
    def damage(grads):
        g = grads[0].clone()
        g.view(-1)[place] *= factor
        return [g]

    return damage


@pytest.mark.population("name")
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ENDS)
def test_where_f_ends_a_right_gradient_is_not_called_wrong_and_not_passed(name, mode):
    forward, x, _ = ENDS[name]
    pair = compare(Differentiable(forward, x), mode=mode).pairs[0]
    assert pair.verdict is Verdict.UNDECIDED
    assert pair.count(Outcome.MISMATCH) == 0


@pytest.mark.population("name")
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ENDS)
def test_a_wrong_element_beside_an_end_is_found(name, mode):
    forward, x, place = ENDS[name]
    pair = compare(Differentiable(forward, x, damage=times(place, 1.01)), mode=mode).pairs[0]
    assert pair.verdict is Verdict.MISMATCH
    assert {w.input_index for w in pair.worst if w.outcome is Outcome.MISMATCH} == {place}
    assert sum(pair.counts) == pair.compared


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("mode", MODES)
def test_a_gradient_that_is_not_finite_inside_the_domain_is_wrong_beside_one_at_its_end(
    mode, value
):
    x = leaf(0.3, -1.0, 0.2, 0.5, 0.0)
    assert (
        compare(Differentiable(torch.asin, x, damage=times(3, value)), mode=mode).pairs[0].verdict
        is Verdict.MISMATCH
    )


@pytest.mark.parametrize("mode", MODES)
def test_an_end_within_a_declared_domain_is_left_out(mode):
    x = leaf(0.3, -1.0, 1.0, 0.5, 0.0)
    checked = compare(Differentiable(torch.asin, x), mode=mode, domains=[(-1.0, 1.0)]).pairs[0]
    assert checked.count(Outcome.MISMATCH) == 0
    wrong = compare(
        Differentiable(torch.asin, x, damage=times(3, 1.01)), mode=mode, domains=[(-1.0, 1.0)]
    ).pairs[0]
    assert wrong.verdict is Verdict.MISMATCH
