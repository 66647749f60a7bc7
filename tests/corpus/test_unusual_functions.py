"""Operators with state, hooks, registered kernels or solvers behind them are accused of nothing,
and a wrong one among them is found."""

from __future__ import annotations

from typing import Any

import pytest
from live import check, codes

from corpus.stateful import RIGHT, WarmStarts, normal


@pytest.mark.parametrize("function, arguments", RIGHT.values(), ids=RIGHT)
def test_a_right_operator_is_accused_of_nothing(function: Any, arguments: tuple[Any, ...]):
    result = check(function, *arguments)
    assert (
        result.verdict,
        [(found.code, found.message) for found in result.findings if found.severity == "error"],
    ) == ("pass", [])


def test_a_wrong_gradient_behind_a_warm_start_is_found():
    class Wrong(WarmStarts):
        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g / (1 - 0.5 * ctx.saved_tensors[0].sin())

    result = check(Wrong, normal(5))
    assert result.verdict == "fail" and "GV101" in codes(result)
