from __future__ import annotations

from pathlib import Path

import pytest
from live import case, given

from gradverify.model.element import Element
from gradverify.model.problem import ProblemsError
from gradverify.model.result import CaseResult
from gradverify.running.explained import explained
from gradverify.running.inline import Devices

HERE = Path(__file__).parent
X = (given([1.0, 2.0]),)


def test_a_case_becomes_the_evidence_of_one_element():
    found = explained(case("torch:sin", X), ("0[1]", "y[1]"))
    assert isinstance(found, Element) and (found.id, found.measured.x) == ("live.yaml::torch:sin", 2.0)


def test_a_case_that_is_to_be_skipped_is_a_result_with_the_reason():
    found = explained(case("torch:sin", X, skip="not today"), None)
    assert isinstance(found, CaseResult) and (found.verdict, found.reason) == ("skip", "not today")


def test_a_device_that_is_missing_is_a_result_with_the_reason(monkeypatch):
    monkeypatch.setattr("gradverify.running.explained.devices", lambda: Devices((), 1))
    found = explained(case("torch:sin", X, device="cuda"), None)
    assert isinstance(found, CaseResult) and (found.verdict, found.reason) == ("skip", "no CUDA device")
    assert isinstance(explained(case("torch:sin", X, device="auto"), ("0[0]", "y[0]")), Element)


def test_what_the_users_code_raises_is_a_result_with_what_it_printed():
    found = explained(case(f"{HERE}/prints.py:and_raises", X), None)
    assert isinstance(found, CaseResult) and found.verdict == "error" and "before it raised" in found.captured


def test_an_element_that_is_none_is_refused():
    with pytest.raises(ProblemsError, match="no input"):
        explained(case("torch:sin", X), ("inptu[0]", "y[0]"))
