"""Whatever knows a derivative is held against backward once it is registered, and blames nobody
where it agrees.

The class of faults: an oracle that is registered and never asked, that is asked where the check has
none of its kind, or whose calls are made before anybody wants its answer.
"""

import pytest
import torch
from live import check, codes, evidence, randn
from rules.functions import unary

from gradverify.model.case import Oracles
from gradverify.oracles import catalogue
from gradverify.oracles.given import Given


class Cosine(Given):
    """The derivative of sin, in closed form."""

    everywhere = True

    def gradients(self, cotangents, inputs=None):
        (x,) = self.checked.subject.inputs if inputs is None else inputs
        return (cotangents[0] * x.cos(),)


def sine(factor):
    return unary(torch.sin, lambda x, g: factor * g * x.cos())


@pytest.fixture
def registered(monkeypatch):
    monkeypatch.setattr(
        "gradverify.evidence.GIVEN",
        (*catalogue.GIVEN, lambda checked: Cosine(checked, "the cosine")),
    )


@pytest.mark.parametrize(("factor", "found"), [(1.0, set()), (1.1, {"GV107"})])
def test_what_is_registered_is_compared(registered, factor, found):
    result = check(sine(factor), randn(3), ignore=("GV101",))
    assert codes(result) == found
    assert [each.rule for each in result.comparisons if each.rule == "GV107"] == ["GV107"]


@pytest.mark.parametrize(
    ("oracles", "names"),
    [
        (Oracles(), []),
        (Oracles(expected={"x": [1.0]}), ["`expected` in the spec"]),
        (
            Oracles(expected={"x": [1.0]}, gradient="oracles.handmade:nowhere"),
            ["`expected` in the spec", "gradient oracles.handmade:nowhere"],
        ),
    ],
)
def test_a_check_has_the_oracles_that_its_spec_names_and_makes_them_without_a_call(oracles, names):
    seen = evidence(torch.sin, randn(1), oracles=oracles)
    assert [oracle.name for oracle in seen.given] == names
    assert seen.subject.calls.forward == seen.subject.calls.backward == 0
