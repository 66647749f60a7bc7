from __future__ import annotations

import pytest
import torch
from live import check, codes, randn
from torch import nn

from rules.functions import RightProduct, product


class Scales(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([2.0, -1.0, 0.5]))
        self.function = function

    def forward(self, x):
        return self.function.apply(x, self.weight.expand_as(x))


@pytest.mark.parametrize("count", [1, 4])
def test_a_parameters_gradient_that_is_averaged_is_found_under_its_name(count):
    averaged = product(lambda ctx, x, y, g: (g * y, g * x / 4))
    result = check(Scales(averaged), randn(count, 3))
    assert [(found.code, found.input) for found in result.findings] == [("GV111", "weight")]
    assert {each.rule: each.input for each in result.comparisons} == {"GV101": "0" if result.inputs[0].name == "0" else "x", "GV111": "weight"}


def test_an_inputs_gradient_that_is_wrong_is_not_the_parameters():
    wrong = product(lambda ctx, x, y, g: (g, g * x))
    assert [(found.code, found.input) for found in check(Scales(wrong), randn(4, 3)).findings] == [("GV101", "x")]


@pytest.mark.parametrize("module", [nn.Linear(3, 2), nn.LayerNorm(3), nn.Conv1d(2, 2, 2), nn.BatchNorm1d(2), nn.GRUCell(3, 2), Scales(RightProduct)],
                         ids=lambda module: type(module).__name__)
def test_right_modules_pass_with_every_parameter_compared(module):
    shape = {"Conv1d": (1, 2, 3), "BatchNorm1d": (4, 2)}.get(type(module).__name__, (2, 3))
    result = check(module, randn(*shape))
    assert (result.verdict, codes(result)) == ("pass", set())
    assert {each.input for each in result.comparisons if each.rule == "GV111"} == {name for name, _ in module.named_parameters()}
    assert all(parameter.dtype == torch.float32 for parameter in module.parameters())


def test_a_frozen_parameter_is_not_compared():
    module = nn.Linear(3, 2)
    module.bias.requires_grad_(False)
    assert {each.input for each in check(module, randn(2, 3)).comparisons} == {"input", "weight"}


def test_a_module_whose_only_differentiable_inputs_are_parameters_is_checked():
    result = check(nn.Embedding(4, 2), torch.tensor([1, 1, 3]))
    assert (result.verdict, codes(result)) == ("pass", set())
    assert [each.rule for each in result.comparisons] == ["GV111"]
