from __future__ import annotations

from pathlib import Path

import pytest
from live import case, given

from gradverify.model.case import Search
from gradverify.model.element import Element
from gradverify.model.problem import ProblemsError
from gradverify.model.result import CaseResult
from gradverify.running.inline import explain_case

HERE = Path(__file__).parent
X = (given([1.0, 2.0]),)


def test_a_case_becomes_the_evidence_of_one_element():
    found = explain_case(case("torch:sin", X), ("0[1]", "y[1]"))
    assert isinstance(found, Element) and (found.id, found.measured.x) == (
        "live.yaml::torch:sin",
        2.0,
    )


def test_what_the_users_code_raises_is_a_result_with_what_it_printed():
    found = explain_case(case(f"{HERE}/prints.py:and_raises", X), None)
    assert (
        isinstance(found, CaseResult)
        and found.verdict == "error"
        and "before it raised" in found.captured
    )


def test_an_element_that_is_none_is_refused():
    with pytest.raises(ProblemsError, match="no input"):
        explain_case(case("torch:sin", X), ("inptu[0]", "y[0]"))


def test_a_module_that_cannot_be_imported_is_a_result():
    search = Search(imports=("no_such_module_at_all",))
    found = explain_case(case("torch:sin", X, search=search), None)
    assert isinstance(found, CaseResult) and "no_such_module_at_all" in found.reason
