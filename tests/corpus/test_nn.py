"""torch's modules: no rule finds anything, and those on parameters ran. Its functions:
test_operators.py."""

from __future__ import annotations

import pytest
import torch
from live import check, codes
from torch import Tensor, nn

from corpus.functions import normal


class SelfAttention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.MultiheadAttention(4, 2, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x, x, x)[0]


MODULES = {
    "Bilinear": lambda: (nn.Bilinear(2, 2, 2), normal(3, 2), normal(3, 2, seed=1)),
    "Conv2d in groups": lambda: (
        nn.Conv2d(2, 2, 2, groups=2, padding=1, stride=2),
        normal(1, 2, 3, 3),
    ),
    "LSTM": lambda: (nn.LSTM(2, 2), normal(3, 1, 2)),
    "MultiheadAttention of one input": lambda: (SelfAttention(), normal(1, 2, 4)),
    "BatchNorm1d": lambda: (nn.BatchNorm1d(2), normal(4, 2)),
    "BatchNorm1d in eval": lambda: (nn.BatchNorm1d(2).eval(), normal(4, 2)),
    "EmbeddingBag": lambda: (nn.EmbeddingBag(5, 2), torch.tensor([[3, 0], [1, 3]])),
    "Dropout": lambda: (nn.Dropout(), normal(4, 2)),
    "CrossEntropyLoss": lambda: (nn.CrossEntropyLoss(), normal(2, 3), torch.tensor([2, 0])),
    "Sequential": lambda: (
        nn.Sequential(nn.Linear(3, 2), nn.Tanh(), nn.Linear(2, 1)),
        normal(2, 3),
    ),
}


@pytest.mark.parametrize("make", MODULES.values(), ids=MODULES)
def test_a_module_of_torch_passes_every_rule_without_a_warning(make):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        module, *inputs = make()
    result = check(module.double(), *inputs)
    assert (result.verdict, codes(result)) == ("pass", set())
    assert {
        run.status for run in result.rules if run.code in ("GV113", "GV202", "GV207", "GV218")
    } == {"ran"}
    assert sum(each.elements for each in result.comparisons) >= 5
    assert {each.input for each in result.comparisons if each.rule == "GV111"} == {
        name for name, _ in module.named_parameters()
    }
