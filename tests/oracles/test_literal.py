from __future__ import annotations

import pytest
import torch
from live import Oracles, check, codes, message, randn

X = torch.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=torch.float64)


def checked(expected, function=torch.square, *values):
    return check(function, *(values or (X,)), oracles=Oracles(expected=expected))


def names(result):
    return [a.name for a in result.inputs]


def test_right_numbers_agree_and_rounding_is_no_fault():
    name = names(checked(None))[0]
    for numbers in ([[2.0, 4.0], [6.0, 8.0]], [[2 + 4e-16, 4.0], [6.0, 8.0]], [[2, 4], [6, 8]]):
        result = checked({name: numbers})
        assert (result.verdict, codes(result)) == ("pass", set())


@pytest.mark.parametrize("numbers", [[[2.0, 4.0], [6.0, 8.001]], [[2.0, 4.0], [6.0, -8.0]], [[2.0, 4.0], [6.0, 0.0]], [[1.0, 1.0], [1.0, 1.0]]])
def test_wrong_numbers_are_found(numbers):
    result = checked({names(checked(None))[0]: numbers})
    assert codes(result) == {"GV107"}
    assert "the numbers in the spec (`expected`)" in message(result, "GV107")


def test_the_gradient_is_that_of_the_sum_of_all_outputs():
    def two(x, y):
        return x * y, (x + y).sum()

    x, y = torch.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=torch.float64)
    result = checked({"x": [4.0, 5.0], "y": [2.0, 3.0]}, two, x, y)
    assert (result.verdict, codes(result)) == ("pass", set())


def test_complex_numbers_are_written_as_text():
    def square_of_modulus(z):
        return (z * z.conj()).real

    result = checked({"z": ["2+4j"]}, square_of_modulus, torch.tensor([1 + 2j]).to(torch.complex128))
    assert (result.verdict, codes(result)) == ("pass", set())
    assert codes(checked({"z": ["2-4j"]}, square_of_modulus, torch.tensor([1 + 2j]).to(torch.complex128))) == {"GV107"}


@pytest.mark.parametrize(("expected", "said"), [
    ({"yy": [1.0]}, "there is no differentiable input 'yy'"),
    ({"x": [1.0, 2.0]}, "the numbers have shape [2], the input [2, 2]"),
    ({"x": [[1.0, 2.0], [3.0]]}, "reading the numbers"),
])
def test_numbers_that_do_not_fit_are_the_specs_fault(expected, said):
    result = checked(expected, lambda x: x * x)
    assert (result.verdict, codes(result)) == ("error", {"GV001"})
    assert said in message(result, "GV001")


def test_only_the_inputs_that_are_named_are_compared():
    result = check(lambda x, y: x * y, randn(2), randn(2, seed=1), oracles=Oracles(expected={"y": randn(2).tolist()}))
    assert (result.verdict, codes(result)) == ("pass", set())
    assert [each.input for each in result.comparisons if each.rule == "GV107"] == ["y"]
