import pytest
import torch
from live import Oracles, check, codes, message, randn

X = torch.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=torch.float64)


def checked(expected, function=torch.square, *values):
    return check(function, *(values or (X,)), oracles=Oracles(expected=expected))


def test_complex_numbers_are_written_as_text():
    def square_of_modulus(z):
        return (z * z.conj()).real

    result = checked(
        {"z": ["2+4j"]}, square_of_modulus, torch.tensor([1 + 2j]).to(torch.complex128)
    )
    assert (result.verdict, codes(result)) == ("pass", set())
    assert codes(
        checked({"z": ["2-4j"]}, square_of_modulus, torch.tensor([1 + 2j]).to(torch.complex128))
    ) == {"GV107"}


@pytest.mark.parametrize(
    ("expected", "said"),
    [
        ({"yy": [1.0]}, "there is no differentiable input 'yy'"),
        ({"x": [1.0, 2.0]}, "the numbers have shape [2], the input [2, 2]"),
        ({"x": [[1.0, 2.0], [3.0]]}, "reading the numbers"),
    ],
)
def test_numbers_that_do_not_fit_are_the_specs_fault(expected, said):
    result = checked(expected, lambda x: x * x)
    assert (result.verdict, codes(result)) == ("error", {"GV001"})
    assert said in message(result, "GV001")


def test_only_the_inputs_that_are_named_are_compared():
    result = check(
        lambda x, y: x * y,
        randn(2),
        randn(2, seed=1),
        oracles=Oracles(expected={"y": randn(2).tolist()}),
    )
    assert (result.verdict, codes(result)) == ("pass", set())
    assert [each.input for each in result.comparisons if each.rule == "GV107"] == ["y"]


def two(x):
    return x * 2, x.sum()


@pytest.mark.parametrize(
    ("function", "grad_output", "expected", "found"),
    [
        (lambda x: x * x, [1.0, -3.0], [2.0, -12.0], set()),
        (lambda x: x * x, 2.0, [4.0, 8.0], set()),
        (lambda x: x * x, None, [2.0, 4.0], set()),
        (lambda x: x * x, [1.0, -3.0], [2.0, 12.0], {"GV107"}),
        (two, [[1.0, 10.0], 5.0], [7.0, 25.0], set()),
        (two, None, [3.0, 3.0], set()),
        (two, [[1.0, 10.0], 5.0], [7.0, 20.0], {"GV107"}),
    ],
)
def test_expected_is_the_gradient_of_the_weighted_sum_of_the_outputs(
    function, grad_output, expected, found
):
    oracles = Oracles(expected={"x": expected}, grad_output=grad_output)
    assert (
        codes(check(function, torch.tensor([1.0, 2.0], dtype=torch.float64), oracles=oracles))
        == found
    )


@pytest.mark.parametrize(
    ("function", "grad_output", "said"),
    [
        (torch.sin, [1.0, 2.0, 3.0], "shape [3], the output [2]"),
        (torch.sin, "1+1j", "complex"),
        (two, [1.0], "a list of 2 entries"),
        (two, 3.0, "a list of 2 entries"),
    ],
)
def test_weights_that_do_not_fit_are_the_specs_fault(function, grad_output, said):
    name = "x" if function is two else "0"
    result = check(
        function,
        torch.tensor([1.0, 2.0], dtype=torch.float64),
        oracles=Oracles(expected={name: [1.0, 1.0]}, grad_output=grad_output),
    )
    assert (
        codes(result) == {"GV001"}
        and "grad_output" in message(result, "GV001")
        and said in message(result, "GV001")
    )


def test_wrong_numbers_are_blamed_on_the_spec():
    result = check(
        lambda x: x * x,
        torch.tensor([1.0], dtype=torch.float64),
        oracles=Oracles(expected={"x": [3.0]}),
    )
    (found,) = result.findings
    assert found.message.startswith("`expected` in the spec is wrong, not backward") and (
        found.file,
        found.line,
    ) == ("live.yaml", 1)
