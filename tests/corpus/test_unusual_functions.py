"""Right Functions that return views, free their graph, refuse layouts, draw random numbers …: nothing is found, and not a warning."""

from __future__ import annotations

import pytest
import torch
from live import check
from torch import nn
from torch.autograd import Function

from corpus.functions import Sample, normal
from corpus.unusual import UNUSUAL


def function_of(sample: Sample) -> object:
    """The Function itself where the sample is its `apply`, so that its kind is known."""
    owner = getattr(sample.call, "__self__", None)
    return owner if isinstance(owner, type) and issubclass(owner, Function) else sample.call


@pytest.mark.parametrize("sample", UNUSUAL, ids=lambda sample: sample.name)
def test_an_unusual_but_right_function_passes_every_rule_without_a_warning(sample: Sample):
    result = check(function_of(sample), *sample.make())
    assert (result.verdict, result.findings) == ("pass", ())


@pytest.mark.parametrize("make", [
    lambda: (nn.Linear(3, 2), normal(4, 3)),
    lambda: (nn.Conv2d(2, 2, 2), normal(1, 2, 3, 3)),
    lambda: (nn.LSTM(2, 2), normal(3, 1, 2)),
    lambda: (nn.LSTMCell(2, 2), normal(1, 2)),
    lambda: (nn.BatchNorm1d(2), normal(4, 2)),
    lambda: (nn.BatchNorm1d(2).eval(), normal(4, 2)),
    lambda: (nn.Dropout(), normal(4, 2)),
    lambda: (nn.Embedding(5, 2), torch.tensor([3, 0, 1])),
], ids=["Linear", "Conv2d", "LSTM", "LSTMCell", "BatchNorm", "BatchNorm in eval", "Dropout", "Embedding"])
def test_torchs_modules_pass_every_rule_without_a_warning(make):
    module, *inputs = make()
    result = check(module.double(), *inputs)
    assert (result.verdict, result.findings) == ("pass", ())
