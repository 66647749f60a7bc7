"""Right Functions that return views, free their graph, refuse layouts, draw random numbers …: nothing is found, and not a warning but a true one.
Operators with state, hooks, registered kernels or solvers behind them are accused of nothing, and a wrong one among them is found."""

from __future__ import annotations

from typing import Any

import pytest
from live import check, codes
from torch.autograd import Function

from corpus.functions import Sample
from corpus.stateful import RIGHT, WarmStarts, normal
from corpus.unusual import UNUSUAL

TRUE_OF_IT = {      # warnings
    "refuses a second backward": {"GV227"},     # aloud and on purpose, as reversible networks do
    "only leaf .backward()": {"GV109"},         # `.backward(create_graph=True)` through a re-entrant checkpoint is silently a constant
}


@pytest.mark.parametrize("sample", UNUSUAL, ids=lambda sample: sample.name)
def test_an_unusual_but_right_function_passes_every_rule_without_a_warning(sample: Sample):
    owner = getattr(sample.call, "__self__", None)      # the Function itself where the sample is its `apply`, so that its kind is known
    function = owner if isinstance(owner, type) and issubclass(owner, Function) else sample.call
    result = check(function, *sample.make())
    assert (result.verdict, codes(result)) == ("pass", TRUE_OF_IT.get(sample.name, set()))


@pytest.mark.parametrize("function, arguments", RIGHT.values(), ids=RIGHT)
def test_a_right_operator_is_accused_of_nothing(function: Any, arguments: tuple[Any, ...]):
    result = check(function, *arguments)
    assert (result.verdict, [(found.code, found.message) for found in result.findings if found.severity == "error"]) == ("pass", [])


def test_a_wrong_gradient_behind_a_warm_start_is_found():
    class Wrong(WarmStarts):
        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g / (1 - 0.5 * ctx.saved_tensors[0].sin())

    result = check(Wrong, normal(5))
    assert result.verdict == "fail" and "GV101" in codes(result)
