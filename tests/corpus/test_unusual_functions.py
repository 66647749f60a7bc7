"""Right Functions that return views, free their graph, refuse layouts, draw random numbers …: nothing is found, and not a warning but a true one."""

from __future__ import annotations

import pytest
from live import check, codes
from torch.autograd import Function

from corpus.functions import Sample
from corpus.unusual import UNUSUAL

TRUE_OF_IT = {      # warnings
    "refuses a second backward": {"GV227"},     # aloud and on purpose, as reversible networks do
    "only leaf .backward()": {"GV109"},         # `.backward(create_graph=True)` through a re-entrant checkpoint is silently a constant
}


def function_of(sample: Sample) -> object:
    """The Function itself where the sample is its `apply`, so that its kind is known."""
    owner = getattr(sample.call, "__self__", None)
    return owner if isinstance(owner, type) and issubclass(owner, Function) else sample.call


@pytest.mark.parametrize("sample", UNUSUAL, ids=lambda sample: sample.name)
def test_an_unusual_but_right_function_passes_every_rule_without_a_warning(sample: Sample):
    result = check(function_of(sample), *sample.make())
    assert (result.verdict, codes(result)) == ("pass", TRUE_OF_IT.get(sample.name, set()))
