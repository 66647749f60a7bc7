"""What is unusual and right passes every rule without a warning but a true one, and is cheap to
look at."""

from __future__ import annotations

import pytest
from live import check, codes
from torch.nn import functional as F

from gradverify.model.result import Calls
from rules.functions import RightProduct
from rules.tricky import TRICKY, X, Y

CONTRACT = (
    "GV203",
    "GV204",
    "GV207",
    "GV208",
    "GV213",
    "GV214",
    "GV215",
    "GV218",
    "GV219",
    "GV220",
)
"""Those whose measurements are shared by `evidence`; each has its faults in a file of its own."""
TRUE_OF_IT = {  # warnings
    # Aloud and on purpose, as reversible networks do
    "a second backward is refused": {"GV227"},
    # `.backward(create_graph=True)` through a re-entrant checkpoint is silently a constant
    "leaf backward only": {"GV109"},
}
# Of all GV2xx together, up to four inputs, nothing wrong
MOST_FORWARD, MOST_BACKWARD = 40, 60


@pytest.mark.parametrize("name", TRICKY)
def test_no_rule_finds_fault_with_it(name):
    function, values = TRICKY[name]
    result = check(function, *values)
    assert (result.verdict, codes(result)) == ("pass", TRUE_OF_IT.get(name, set()))


@pytest.mark.parametrize(
    "function",
    [
        F.relu_,
        lambda x: F.layer_norm(x, (3,)).sum(),
        lambda x: F.softmax(x, 1).sum(1),
        lambda x: x.detach() * x,
    ],
)
def test_functions_of_rounding_functions_in_place_and_half_detached_ones_keep_it(function):
    assert codes(check(function, X, select=CONTRACT, ignore=("GV007", "GV009"))) == set()


def spent(result):
    total = Calls()
    for run in result.rules:
        total += run.calls if run.code.startswith("GV2") else Calls()
    return total


def four(a, b, c, d):
    return RightProduct.apply(RightProduct.apply(a, b), RightProduct.apply(c, d))


@pytest.mark.parametrize(
    ("function", "values"),
    [(RightProduct, (X, Y)), TRICKY["only what is needed"], (four, (X, Y, X + 1, Y - 1))],
)
def test_all_rules_on_the_contract_together_cost_few_calls(function, values):
    total = spent(check(function, *values))
    assert total.forward <= MOST_FORWARD
    assert total.backward <= MOST_BACKWARD


def test_a_plain_callable_skips_what_concerns_custom_functions_only_and_says_so():
    skipped = {
        run.code: run.reason
        for run in check(lambda x, y: x * y.sin(), X, Y).rules
        if run.status == "not_applicable"
    }
    for code in ("GV204", "GV208", "GV213", "GV214", "GV219", "GV220"):
        assert skipped[code] == "no custom Function is in the graph"
    assert not skipped.keys() & {"GV203", "GV207", "GV215", "GV218"}


def test_a_function_inside_a_callable_counts():
    ran = {run.code for run in check(four, X, Y, X + 1, Y - 1).rules if run.status == "ran"}
    assert set(CONTRACT) <= ran
