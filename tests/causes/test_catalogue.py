"""A hint belongs to the cause whose name it begins."""

import pytest

from gradverify.causes.mistakes import remedy
from gradverify.model.result import Cause


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("scaled", "constant factor"),
        ("sign flipped", "minus sign"),
        ("wrong only where x > 0.5", "where this holds"),
        ("wrong block", "these positions"),
    ],
)
def test_a_hint_is_that_of_the_name_that_fits(name, word):
    assert word in remedy(Cause(name, ""))


def test_a_cause_that_nobody_declared_has_no_hint():
    assert remedy(Cause("of another kind", "")) is None
