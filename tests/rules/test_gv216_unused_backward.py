from __future__ import annotations

import pytest
import torch
from live import check, codes, message

from rules.functions import Right, X


def bypass(shortcut):
    class Fast(Right):
        @classmethod
        def apply(cls, x):
            return shortcut(x)

    return Fast


@pytest.mark.parametrize(("shortcut", "said"), [(torch.square, "PowBackward0"), (lambda x: x, "an input is returned as it is"),
                                                (Right.apply, "UnaryBackward")])
def test_another_way_around_backward_is_found(shortcut, said):
    result = check(bypass(shortcut), X)
    assert codes(result) == {"GV216"}
    assert said in message(result, "GV216")


def test_a_function_in_its_own_graph_is_fine_however_deep():
    class Deep(Right):
        @classmethod
        def apply(cls, x):
            return super().apply(x).sin().sum(0)

    assert codes(check(Deep, X)) == set()


def test_a_callable_promises_no_class():
    run, = (run for run in check(torch.square, X).rules if run.code == "GV216")
    assert run.status == "not_applicable"
