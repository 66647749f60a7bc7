"""torch.nn.functional, function by function, and torch's modules: no rule finds anything, but for what is truly off
(benchmarks/results/torch-defects.md)."""

from __future__ import annotations

import pytest
import torch
from live import check, codes
from torch import Tensor, nn

from corpus.functions import Sample, normal, spread
from corpus.nn_functional import GROUPS, LEFT_OUT, public

FUNCTIONS = tuple(sample for group in GROUPS.values() for sample in group)
OFF = {"hardsigmoid": {"GV114"}}        # backward multiplies by 1/6 rounded to float32
pytestmark = pytest.mark.filterwarnings("ignore")       # some are deprecated


def test_every_function_of_the_module_is_here_or_left_out_for_a_reason():
    assert {sample.name for sample in FUNCTIONS} | LEFT_OUT.keys() == public()
    assert not {sample.name for sample in FUNCTIONS} & LEFT_OUT.keys()


@pytest.mark.population(most=30)
@pytest.mark.parametrize("sample", FUNCTIONS, ids=lambda sample: sample.name)
def test_a_function_of_torch_passes_every_rule_without_a_warning(sample: Sample):
    result = check(sample.call, *sample.make())
    assert (result.verdict, codes(result)) == ("pass", OFF.get(sample.name, set()))


class SelfAttention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.MultiheadAttention(4, 2, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x, x, x)[0]


MODULES = {
    "Linear": lambda: (nn.Linear(3, 2), normal(4, 3)),
    "Bilinear": lambda: (nn.Bilinear(2, 2, 2), normal(3, 2), normal(3, 2, seed=1)),
    "Conv1d": lambda: (nn.Conv1d(2, 2, 2), normal(1, 2, 4)),
    "Conv2d": lambda: (nn.Conv2d(2, 2, 2), normal(1, 2, 3, 3)),
    "Conv2d in groups": lambda: (nn.Conv2d(2, 2, 2, groups=2, padding=1, stride=2), normal(1, 2, 3, 3)),
    "Conv3d": lambda: (nn.Conv3d(1, 1, (1, 2, 2)), normal(1, 1, 2, 2, 3)),
    "ConvTranspose2d": lambda: (nn.ConvTranspose2d(1, 1, 2), normal(1, 1, 2, 2)),
    "RNN": lambda: (nn.RNN(2, 2), normal(3, 1, 2)),
    "GRU": lambda: (nn.GRU(2, 2), normal(3, 1, 2)),
    "LSTM": lambda: (nn.LSTM(2, 2), normal(3, 1, 2)),
    "LSTMCell": lambda: (nn.LSTMCell(2, 2), normal(1, 2)),
    "GRUCell": lambda: (nn.GRUCell(2, 2), normal(1, 2)),
    "MultiheadAttention": lambda: (nn.MultiheadAttention(4, 2), *(normal(2, 1, 4, seed=seed) for seed in range(3))),
    "MultiheadAttention of one input": lambda: (SelfAttention(), normal(1, 2, 4)),
    "BatchNorm1d": lambda: (nn.BatchNorm1d(2), normal(4, 2)),
    "BatchNorm1d in eval": lambda: (nn.BatchNorm1d(2).eval(), normal(4, 2)),
    "BatchNorm2d": lambda: (nn.BatchNorm2d(2), normal(2, 2, 1, 2)),
    "LayerNorm": lambda: (nn.LayerNorm(3), normal(2, 3)),
    "GroupNorm": lambda: (nn.GroupNorm(2, 4), normal(1, 4, 2)),
    "InstanceNorm1d": lambda: (nn.InstanceNorm1d(2, affine=True, track_running_stats=True), normal(1, 2, 4)),
    "RMSNorm": lambda: (nn.RMSNorm(3), normal(2, 3)),
    "Embedding": lambda: (nn.Embedding(5, 2), torch.tensor([3, 0, 1])),
    "EmbeddingBag": lambda: (nn.EmbeddingBag(5, 2), torch.tensor([[3, 0], [1, 3]])),
    "Dropout": lambda: (nn.Dropout(), normal(4, 2)),
    "Dropout in eval": lambda: (nn.Dropout().eval(), normal(4, 2)),
    "PReLU": lambda: (nn.PReLU(), normal(2, 3)),
    "MaxPool2d": lambda: (nn.MaxPool2d(2), spread(1, 1, 4, 2)),
    "CrossEntropyLoss": lambda: (nn.CrossEntropyLoss(), normal(2, 3), torch.tensor([2, 0])),
    "Sequential": lambda: (nn.Sequential(nn.Linear(3, 2), nn.Tanh(), nn.Linear(2, 1)), normal(2, 3)),
}


@pytest.mark.population(most=10)
@pytest.mark.parametrize("make", MODULES.values(), ids=MODULES)
def test_a_module_of_torch_passes_every_rule_without_a_warning(make):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        module, *inputs = make()
    result = check(module.double(), *inputs)
    assert (result.verdict, codes(result)) == ("pass", set())
    assert {run.status for run in result.rules if run.code in ("GV113", "GV202", "GV207", "GV218")} == {"ran"}
    assert sum(each.elements for each in result.comparisons) >= 5
