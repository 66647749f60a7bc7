from __future__ import annotations

import torch
from live import Oracles, check, codes

from rules.functions import X, square

NUMBERS = (2 * X).tolist()


def test_numbers_that_differ_are_found_and_explain_the_jacobian():
    result = check(square(lambda x, g: x * g), X, oracles=Oracles(expected={"x": NUMBERS}))
    assert codes(result) == {"GV107"}
    assert result.findings[0].also == ("GV101",)


def test_wrong_numbers_for_a_right_backward_are_the_only_finding():
    assert codes(check(torch.square, X, oracles=Oracles(gradient="torch:mul"))) == {"GV107"}


def test_both_oracles_are_asked():
    result = check(square(lambda x, g: 2 * x * g), X, oracles=Oracles(expected={"x": NUMBERS}, gradient="rules.test_gv107_expected_gradient:twice"))
    assert codes(result) == set()
    assert sum(each.rule == "GV107" for each in result.comparisons) == 2


def twice(x, grad_output):
    return 2 * x * grad_output
