"""What is unusual and right stays without a word from the rules on the contract, and is cheap to look at."""

from __future__ import annotations

import pytest
import torch
from corpus.functions import SAMPLES, Sample
from live import check, codes, fixed, randn
from torch import nn
from torch.nn import functional as F

from gradverify.model.result import Calls
from rules.functions import RightProduct
from rules.tricky import TRICKY, X, Y

CONTRACT = ("GV203", "GV204", "GV207", "GV208", "GV213", "GV214", "GV215", "GV218", "GV219", "GV220")
"""Those whose measurements are shared by `evidence`; each has its faults in a file of its own."""
MOST_FORWARD, MOST_BACKWARD = 40, 60        # of all GV2xx together, up to four inputs, nothing wrong


@pytest.mark.parametrize("name", TRICKY)
def test_no_rule_finds_fault_with_it(name):
    function, values = TRICKY[name]
    result = check(function, *values)
    assert result.verdict == "pass"
    assert codes(result) & set(CONTRACT) == set()


@pytest.mark.population(most=26)
@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.name)
def test_torchs_own_operators_keep_the_contract(sample: Sample):
    assert codes(check(sample.call, *sample.make(), select=CONTRACT, ignore=("GV007", "GV009"))) == set()


MODULES = [
    (nn.Linear, (randn(2, 3),), {"in_features": 3, "out_features": 2}),
    (nn.Conv2d, (randn(1, 2, 4, 4),), {"in_channels": 2, "out_channels": 2, "kernel_size": 2}),
    (nn.LSTMCell, (randn(2, 3),), {"input_size": 3, "hidden_size": 2}),
    (nn.LSTM, (randn(3, 2, 3),), {"input_size": 3, "hidden_size": 2}),
    (nn.MultiheadAttention, (randn(3, 2, 4), randn(3, 2, 4, seed=1), randn(3, 2, 4, seed=2)), {"embed_dim": 4, "num_heads": 2}),
    (nn.TransformerEncoderLayer(4, 2, 5, batch_first=True).double().eval(), (randn(3, 2, 4),), None),
    (nn.BatchNorm1d, (randn(4, 3),), {"num_features": 3}),
    (nn.BatchNorm1d(3).double().eval(), (randn(4, 3),), None),
    (nn.Embedding, (fixed(torch.tensor([0, 2, 2])),), {"num_embeddings": 4, "embedding_dim": 2}),
    (nn.Dropout, (randn(4, 3),), {}),
]


@pytest.mark.parametrize(("module", "values", "init"), MODULES, ids=lambda value: getattr(value, "__name__", type(value).__name__))
def test_torchs_own_modules_keep_the_contract(module, values, init):
    assert codes(check(module, *values, init=init, select=CONTRACT, ignore=("GV007", "GV009"))) == set()


@pytest.mark.parametrize("function", [F.relu_, lambda x: F.layer_norm(x, (3,)).sum(), lambda x: F.softmax(x, 1).sum(1), lambda x: x.detach() * x])
def test_functions_of_rounding_functions_in_place_and_half_detached_ones_keep_it(function):
    assert codes(check(function, X, select=CONTRACT, ignore=("GV007", "GV009"))) == set()


def spent(result):
    total = Calls()
    for run in result.rules:
        total += run.calls if run.code.startswith("GV2") else Calls()
    return total


def four(a, b, c, d):
    return RightProduct.apply(RightProduct.apply(a, b), RightProduct.apply(c, d))


@pytest.mark.parametrize(("function", "values"), [(RightProduct, (X, Y)), TRICKY["only what is needed"], (four, (X, Y, X + 1, Y - 1))])
def test_all_rules_on_the_contract_together_cost_few_calls(function, values):
    total = spent(check(function, *values))
    assert total.forward <= MOST_FORWARD
    assert total.backward <= MOST_BACKWARD


def test_a_plain_callable_skips_what_concerns_custom_functions_only_and_says_so():
    skipped = {run.code: run.reason for run in check(lambda x, y: x * y.sin(), X, Y).rules if run.status == "not_applicable"}
    for code in ("GV204", "GV208", "GV213", "GV214", "GV219", "GV220"):
        assert skipped[code] == "no custom Function is in the graph"
    assert not skipped.keys() & {"GV203", "GV207", "GV215", "GV218"}


def test_a_function_inside_a_callable_counts():
    ran = {run.code for run in check(four, X, Y, X + 1, Y - 1).rules if run.status == "ran"}
    assert set(CONTRACT) <= ran


