from __future__ import annotations

import pytest
import torch
from live import case as made
from live import check, codes, fixed, message, randn

from gradverify.model.case import InputRecipe, TensorRecipe
from gradverify.rules.unjudged import _may_be_empty


@pytest.mark.parametrize(("function", "values", "settings", "said"), [
    (torch.sin, (fixed(randn(2)),), {}, "no input is differentiable"),
    (lambda i: i.double(), (torch.tensor([1, 2]),), {}, "no input is differentiable"),
    (lambda x: x.detach() * 2, (randn(2),), {}, "no output has a graph"),
    (lambda x: torch.from_numpy(x.detach().numpy() * 2), (randn(2),), {}, "no output has a graph"),
    (lambda x: x.argmax(), (randn(2),), {}, "no output has floating or complex numbers: y0 is int64"),
    (lambda x: None, (randn(2),), {}, "returned no tensor: None"),
    (lambda x: [3.0, 4.0, "a"], (randn(2),), {}, "returned no tensor: float, str"),
    (lambda x: (), (randn(2),), {}, "returned no tensor: nothing at all"),
    (lambda x: (x.argmax(), x.detach()), (randn(2),), {}, "no output has a graph"),
    (lambda x: torch.no_grad()(torch.sin)(x), (randn(2),), {}, "no output has a graph"),
    (lambda x: x[:0], (randn(2),), {}, "no elements"),
    (lambda x: (x, x), (randn(2),), {"outputs": (2,)}, "no floating output 2; the function returned 2 outputs"),
    (lambda x: x, (randn(2),), {"outputs": (1,)}, "no floating output 1; the function returned 1 output"),
    (lambda x: (x, x.argmax()), (randn(2),), {"outputs": (1,)}, "no floating output 1"),
    (lambda x: (x * 2, torch.ones(2)), (randn(2),), {"outputs": (1,)}, "no output has a graph"),
])
def test_a_check_that_compares_nothing_is_an_error(function, values, settings, said):
    result = check(function, *values, **settings)
    assert (result.verdict, codes(result)) == ("error", {"GV008"})
    assert said in message(result, "GV008")


@pytest.mark.parametrize("function", [lambda x: x, lambda x: (x.argmax(), x.sum()), lambda x: (x.detach(), x * 2)])
def test_one_element_with_a_graph_is_enough(function):
    result = check(function, randn(2))
    assert (result.verdict, codes(result)) == ("pass", set())
    assert sum(each.elements for each in result.comparisons) > 0


def test_an_empty_tensor_that_the_spec_asked_for_is_no_fault():
    assert codes(check(lambda x: x * 2, randn(0, 3))) == set()


def test_selecting_other_rules_does_not_switch_it_off():
    assert check(lambda x: x.detach(), randn(2), select=("GV101",)).verdict == "error"


@pytest.mark.parametrize(("values", "settings", "said"), [
    ((randn(2),), {"ignore": ("GV101",)}, "GV101 is ignored, and no other rule compared an element of a gradient"),
    ((randn(2),), {"select": ("GV1",), "ignore": ("GV101",)}, "GV101 is ignored"),
    ((randn(0),), {"select": ("GV101",)}, "GV221, which looks at empty tensors, is not to run"),
    ((randn(0, 3),), {"ignore": ("GV221",)}, "GV221, which looks at empty tensors, is not to run"),
])
def test_a_pass_has_compared_what_it_was_asked_to_compare(values, settings, said):
    result = check(lambda x: x * 2, *values, **settings)
    assert (result.verdict, codes(result)) == ("error", {"GV008"}) and said in message(result, "GV008")


@pytest.mark.parametrize("settings", [{"select": ("GV2",)}, {"select": ("GV206",)}, {"select": ("GV101", "GV221")}, {}])
def test_rules_that_are_selected_without_a_comparison_are_what_was_asked_for(settings):
    assert check(lambda x: x * 2, randn(0 if settings.get("select") == ("GV101", "GV221") else 2), **settings).verdict == "pass"


@pytest.mark.parametrize("settings", [{}, {"select": ("GV101",)}])
def test_a_rule_that_ran_and_compared_nothing_leaves_no_pass(settings, monkeypatch):
    """Whatever took its comparison away: checked code that replaced a function of ours, or a fault of our own."""
    from gradverify.rules import gv101_jacobian

    monkeypatch.setattr(gv101_jacobian, "check", lambda evidence: iter(()))
    result = check(lambda x: x * 2, randn(2), **settings)
    assert (result.verdict, codes(result)) == ("error", {"GV008"}) and message(result, "GV008") == "GV101 compared no element of a gradient"


@pytest.mark.parametrize(("case", "may"), [
    ({"inputs": ({"shape": (0, 3)},)}, True), ({"inputs": ({"draw": "values", "arguments": []},)}, True), ({}, True),
    ({"inputs_from": "data.py:batch"}, False), ({"inputs": ({"draw": "file", "arguments": "/x.npy"},)}, False),
    ({"inputs": ({"draw": "file", "arguments": "/x.npy"}, {"shape": (0, 3)})}, True)])
def test_an_empty_tensor_of_a_function_or_a_file_is_nobodys_wish(case, may):
    inputs = tuple(InputRecipe("x", TensorRecipe(**each)) for each in case.get("inputs", ()))
    assert _may_be_empty(made(target="f", inputs=inputs, inputs_from=case.get("inputs_from"))) is may
