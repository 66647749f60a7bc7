"""Functions and specs that once made a wrong gradient pass, or a right one fail."""

import pytest
from commands import codes

UNUSED_AND_WRONG = """
class f(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return 3 * x
    @staticmethod
    def backward(ctx, grad_output):
        return 7 * grad_output
"""


def test_a_warning_does_not_hide_that_nothing_was_decided(verdict):
    code, check = verdict(
        UNUSED_AND_WRONG, "inputs: {x: {shape: [2]}}, eps: 1e-20", "--undecided", "fail"
    )
    assert code == 3 and check["verdict"] == "undecided" and set(codes(check)) == {"GV224", "GV007"}


def test_a_reference_that_draws_sees_the_same_numbers(verdict):
    code, check = verdict(
        "def f(x): return x * torch.rand(4, dtype=x.dtype)\ndef g(x): return torch.rand(4, "
        "dtype=x.dtype) * x",
        "inputs: {x: {shape: [4]}}, reference: 'op.py:g'",
    )
    assert code == 0 and check["comparisons"]


@pytest.mark.parametrize(
    "define, check",
    [
        (
            "def f(x, sizes):\n    sizes.append(1)\n    return x * len(sizes)",
            "inputs: {x: {shape: [4]}, sizes: [1]}",
        ),
        (
            "def f(x, *, table):\n    table[0] = table[0] + 1\n    return x * table[0]",
            "inputs: {x: {shape: [4]}}, kwargs: {table: [1]}",
        ),
        (
            "def f(x, nested):\n    nested[0].append(1)\n    return x * len(nested[0])",
            "inputs: {x: {shape: [4]}, nested: [[1]]}",
        ),
    ],
)
def test_what_one_call_does_to_a_list_is_not_seen_by_the_next(verdict, define, check):
    assert verdict(define, check)[0] == 0


ORACLES = """
f = Square
def values_only(x):
    with torch.no_grad(): return x * x
def no_gradient(x, grad_output): return None
def nan_gradient(x, grad_output): return 2 * x * grad_output * torch.tensor([1.0, 1.0, 1.0, torch.nan])
def half_gradient(x, grad_output): return x * grad_output
"""
INPUTS = "inputs: {x: {shape: [4]}}"


def test_a_reference_without_a_graph_is_told_as_such_and_not_as_a_gradient_of_zero(verdict):
    code, check = verdict(ORACLES, f"{INPUTS}, reference: 'op.py:values_only'")
    (finding,) = check["findings"]
    assert (
        code == 1
        and finding["code"] == "GV106"
        and "has no graph" in finding["message"]
        and "gradient:" in finding["hint"]
    )


@pytest.mark.parametrize(
    "name, exit_code, found",
    [("no_gradient", 3, "GV002"), ("nan_gradient", 1, "GV107"), ("half_gradient", 1, "GV107")],
)
def test_a_hand_written_gradient_that_says_nothing_does_not_pass(verdict, name, exit_code, found):
    code, check = verdict(ORACLES, f"{INPUTS}, gradient: 'op.py:{name}'")
    assert code == exit_code and found in codes(check)


def test_an_expected_gradient_of_nan_does_not_pass(verdict):
    code, check = verdict(ORACLES, "inputs: {x: {values: [1.0, 2.0]}}, expected: {x: [2.0, .nan]}")
    assert code == 3 and codes(check) == ["GV001"] and "NaN" in check["reason"]
