from __future__ import annotations

import pytest
import torch
from live import check, codes, fixed, message, randn


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
