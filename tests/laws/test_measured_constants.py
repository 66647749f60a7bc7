"""A constant that was set by measurement is in the list that `benchmarks/constants.py` measures
again, and what is in the list is there."""

from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def altered(monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    import altered

    return altered


@pytest.fixture
def listed(altered):
    import listed

    return listed


def test_what_was_measured_is_measured_again(altered, listed):
    measured = {name for name, constant in altered.every().items() if constant.measured}
    assert measured - listed.LISTED.keys() - listed.FACTS.keys() == set(), (
        "benchmarks/listed.py wants a question for these"
    )


def test_what_is_listed_is_there(altered, listed):
    assert (listed.LISTED.keys() | listed.FACTS.keys()) - altered.every().keys() == set(), (
        "benchmarks/listed.py names what is gone or has moved"
    )
    assert listed.LISTED.keys() & listed.FACTS.keys() == set()
    assert all(each.question.endswith("?") for each in listed.LISTED.values())


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("FLAT = 4.0  # levels (measured: 2 to 3)", {"m.FLAT": True}),
        ("FLAT = 4.0  # set by measurement", {"m.FLAT": True}),
        ("ROWS = 6  # rows whose noise is measured together", {"m.ROWS": False}),
        ("A, B = 3, 2.0**-10  # counts", {"m.A": False, "m.B": False}),
        (
            '"""Steps. Constants were\nset by measurement."""\nSTEPS: tuple[int, ...] = (4, 5)',
            {"m.STEPS": True},
        ),
        ("WIDE = Z * 6", {"m.WIDE": False}),
        (
            'NAME = "four"\nfew = 4\nSTOPS = True\nKIND = type(1)("4")\ndef f():\n    INNER = 4  '
            "# measured",
            {},
        ),
    ],
)
def test_the_law_sees_a_number_that_a_module_names(altered, source, found):
    assert {each.name: each.measured for each in altered.of_source(source, "m")} == found
