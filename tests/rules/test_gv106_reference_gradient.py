from __future__ import annotations

import torch
import torch.nn.functional as F
from live import Oracles, check, codes, message, randn

from rules.functions import X, square


def test_a_gradient_that_differs_from_the_references_is_found():
    result = check(square(lambda x, g: 2.1 * x * g), X, oracles=Oracles(reference="torch:square"))
    assert codes(result) == {"GV106"}               # the reference is the more specific witness
    assert result.findings[0].also == ("GV101",)
    assert "autograd through reference torch:square" in message(result, "GV106")


def test_where_only_the_reference_differs_it_is_said_that_finite_differences_agree():
    result = check(lambda x: F.relu(x) + 0 * x, torch.zeros(3, dtype=torch.float64) + 1, oracles=Oracles(
        reference="rules.test_gv106_reference_gradient:detached"))
    assert codes(result) == {"GV106"}
    assert result.findings[0].message.startswith("reference rules.test_gv106_reference_gradient:detached is wrong, not backward")
    assert result.findings[0].source == "def detached(x):"


def detached(x):
    return F.relu(x.detach()) + 0 * x


def test_an_equal_gradient_by_another_way_is_no_difference():
    assert codes(check(lambda x: F.softmax(x, 1), randn(3, 4), oracles=Oracles(reference="rules.test_gv106_reference_gradient:softmax"))) == set()


def softmax(x):
    return (x - torch.logsumexp(x, 1, keepdim=True)).exp()
