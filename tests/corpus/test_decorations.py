"""A verdict does not depend on what changes no number: on lines in forward, and on how the function
is called.

A sample: every decoration on one function of each label, another one for each; `python
benchmarks/decorated.py` takes all.
"""

from __future__ import annotations

import pytest
from live import check

from corpus.decorations import DECORATIONS, HELD, decorated
from corpus.labelled import SIMPLE, Label, Labelled
from gradverify.model.result import CaseResult

LABELS: tuple[Label, ...] = ("right", "wrong", "kink")
SAMPLE = [
    (
        decoration,
        [each for each in SIMPLE if each.label == label][
            n % sum(each.label == label for each in SIMPLE)
        ],
    )
    for n, decoration in enumerate(DECORATIONS)
    for label in LABELS
]
SAMPLE += [(decoration, each) for decoration in HELD for each in SIMPLE if len(each.arguments) > 1]
SAME = {"GV111": "GV101"}  # of a parameter: of an input

pytestmark = pytest.mark.filterwarnings("ignore")


def outcome(result: CaseResult) -> tuple[str, str]:
    """The verdict and the code of the first error."""
    code = next((found.code for found in result.findings if found.severity == "error"), "")
    return result.verdict, SAME.get(code, code)


@pytest.fixture(scope="module")
def plain() -> dict[str, tuple[str, str]]:
    return {each.name: outcome(check(each.function, *each.arguments)) for each in SIMPLE}


def test_the_labels_are_what_is_found(plain):
    assert {each.label for each in SIMPLE} == set(LABELS)
    assert {name: found for name, found in plain.items() if found[0] == "fail"}.keys() == {
        each.name for each in SIMPLE if each.label == "wrong"
    }


@pytest.mark.population(most=20)
@pytest.mark.parametrize(
    ("decoration", "each"),
    [pytest.param(decoration, each, id=f"{decoration}-{each.name}") for decoration, each in SAMPLE],
)
def test_the_verdict_is_the_same(
    decoration: str, each: Labelled, plain: dict[str, tuple[str, str]]
):
    function, arguments = decorated(decoration, each.function, each.arguments)
    assert outcome(check(function, *arguments)) == plain[each.name]
