"""Small inputs under all rules, as a user runs them: what they cost in calls, which no load of the machine changes."""

from __future__ import annotations

from pathlib import Path
from statistics import median

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
MOST = {"SwiGLU": 101, "median": 145}      # calls in float64, as measured (200 and 180 at first)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import small

    return small


def test_ordinary_functions_pass_in_few_calls(small):
    results = {name: small.run_case(small.case(name, inputs)) for name, _, inputs in small.SMALL}
    assert {name: (result.verdict, result.findings) for name, result in results.items()} == dict.fromkeys(results, ("pass", ()))
    calls = {name: result.calls.forward + result.calls.backward for name, result in results.items()}
    assert calls["SwiGLU"] <= MOST["SwiGLU"]
    assert median(calls.values()) <= MOST["median"]


def test_every_rule_had_its_calls(small):
    """Few calls are not those of a check that left rules out."""
    name, _, inputs = small.SMALL[0]
    ran = {run.code for run in small.run_case(small.case(name, inputs)).rules if run.status == "ran"}
    assert {"GV101", "GV109", "GV113", *(f"GV{number}" for number in (201, 205, 206, 207, 208, 209, 210, 211, 213, 214, 215, 218, 220, 225, 226, 227,
                                                                      228, 229))} <= ran


def test_a_section_takes_the_place_of_the_one_of_its_title_and_is_put_before_the_growth_else(small):
    page = "# Speed\n\ntext\n\n## Growth\n\nmore\n"
    first = small.replaced(page, f"{small.TITLE}\n\nold")
    assert first == f"# Speed\n\ntext\n\n{small.TITLE}\n\nold\n\n## Growth\n\nmore\n"
    assert small.replaced(first, f"{small.TITLE}\n\nnew") == first.replace("old", "new")
