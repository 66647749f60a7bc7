"""Cases under damage, one after the other: skips, user code that raises, and what it prints."""

from __future__ import annotations

import pytest
from live import case, given
from own_fault import raising

from gradverify.model.mutation import MutatedCheck
from gradverify.running.inline import Devices, mutate_case, mutated


def test_each_case_is_told_before_it_begins_and_skips_are_not(monkeypatch):
    monkeypatch.setattr("gradverify.running.inline.devices", lambda: Devices((), 1))
    monkeypatch.setattr(
        "gradverify.running.inline.mutate_case",
        lambda one: MutatedCheck(one.id, one.name, one.target),
    )
    cases = [
        case("torch:sin", name="one"),
        case("torch:sin", name="two", skip="slow"),
        case("torch:sin", name="three", requires=("cuda",)),
    ]
    began = []
    seen = list(mutated(cases, lambda one: began.append(one.name)))
    assert began == ["one"]
    assert [check.left_out for check in seen] == [None, "skipped: slow", "skipped: no CUDA device"]


def test_a_function_that_raises_is_left_out_with_its_reason():
    seen = mutate_case(case("torch:no_such", [given([1.0])]))
    assert seen.broken
    assert "no_such" in (seen.left_out or "")


def test_a_fault_of_our_own_raises(monkeypatch):
    monkeypatch.setattr("gradverify.mutation.mutate.damages", raising(ZeroDivisionError("ours")))
    with pytest.raises(ZeroDivisionError):
        mutate_case(case("torch:sin", [given([1.0, 2.0])]))


def test_what_the_users_code_raises_unforeseen_leaves_its_check_out(monkeypatch):
    def leaves(inputs):  # its frame is outside the package
        raise SystemExit(0)

    monkeypatch.setattr("gradverify.mutation.mutate.damages", leaves)
    seen = mutate_case(case("torch:sin", [given([1.0, 2.0])]))
    assert seen.broken and seen.left_out == (
        "it does not pass undamaged: the function's code raised SystemExit: 0"
    )
