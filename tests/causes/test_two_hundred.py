"""200 damaged operators of 20 kinds and 40 with two faults: no cause is printed that is not true, and four of five are named.

The class of faults: a cause that fits by chance, or by the shape of one operator, is worse than none.
"""

from __future__ import annotations

import pytest

from causes.faults import FAULTS, Fault, checked
from causes.pairs import PAIRS, Two

NAMED = 0.8
UNNAMED = frozenset([       # what no known mistake explains, or what is not told from another one
    "rank one: cross entropy of each / x", "rank one: attention / q", "mask: causal attention / v", "mask: causal attention / q",
    "constant: gelu / x"])


def test_there_are_two_hundred_of_twenty_kinds_and_forty_pairs():
    kinds = [fault.kind for fault in FAULTS]
    assert (len(FAULTS), {kinds.count(kind) for kind in kinds}, len(set(kinds)), len(PAIRS)) == (200, {10}, 20, 40)
    assert len([fault for fault in FAULTS if fault.id not in UNNAMED]) >= NAMED * len(FAULTS)


@pytest.mark.population(most=24)
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.id)
def test_a_damaged_operator_gets_a_true_cause(fault: Fault):
    named = {finding.input: finding.cause for finding in checked(fault.operator, fault.backward).findings}
    assert fault.input in named, "the damage was not found"
    cause = named[fault.input]
    assert (cause is None and fault.id in UNNAMED) or (cause is not None and cause.name in fault.accepted)
    assert fault.kind == "swapped inputs" or set(named) == {fault.input}


@pytest.mark.population(most=5)
@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair.id)
def test_of_two_faults_none_is_named_wrongly(pair: Two):
    findings = checked(pair.operator, pair.backward).findings
    assert {finding.input for finding in findings} == set(pair.accepted)
    assert all(finding.cause is None or finding.cause.name in pair.accepted[finding.input] for finding in findings)
