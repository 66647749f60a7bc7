"""A kind of mistake is its file: where it stands among the others and what to do about it are declared there, and read from there.

The class of faults: two lists that have to agree (a mistake that is never tried, or tried at no fixed place), and a hint that belongs to a cause
whose name only begins alike.
"""

import pytest

from gradverify.causes.catalogue import explanations, remedy
from gradverify.model.result import Cause

MODULES = ("moved", "operand", "overwritten", "part", "reduced", "region", "scaled", "swapped")


def test_every_mistake_is_tried_at_a_place_of_its_own():
    assert {each.claims.__module__.rpartition(".")[2] for each in explanations()} == set(MODULES)
    places = [each.order for each in explanations()]
    assert places == sorted(set(places))


def test_one_factor_is_the_simplest_and_any_region_the_last():
    assert explanations()[0].claims.__module__.endswith("scaled") and explanations()[0].of_stream
    assert explanations()[-1].claims.__qualname__ == "anything"
    assert [each for each in explanations()[1:] if each.of_stream] == []


@pytest.mark.parametrize(("name", "word"), [
    ("scaled", "constant factor"), ("sign flipped", "minus sign"), ("wrong only where x > 0.5", "where this holds"),
    ("wrong at the border", "the border")])
def test_a_hint_is_that_of_the_longest_name_that_fits(name, word):
    assert word in remedy(Cause(name, ""))


def test_a_cause_that_nobody_declared_has_no_hint():
    assert remedy(Cause("of another kind", "")) is None
