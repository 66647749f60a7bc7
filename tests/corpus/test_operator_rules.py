"""GV108 and GV109 on PyTorch's own operators at its own samples: only those that are truly wrong are found
(benchmarks/results/torch-defects.md).

About ninety samples; with the environment variable GRADVERIFY_WHOLE_CORPUS=1 all of them, 1,371 with torch 2.13.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Iterable
from typing import Any

import pytest
import torch
from live import case
from torch import Tensor
from torch.utils import _pytree as pytree

from corpus.operator_samples import Sample, corpus, is_number, samples_of
from gradverify.model.result import CaseResult
from gradverify.subject.prepare import assemble
from gradverify.subject.subject import Argument
from gradverify.subject.target import live
from gradverify.verify import verify

WHOLE = os.environ.get("GRADVERIFY_WHOLE_CORPUS") == "1"
STRIDE = 15         # of the operators in the reduced form
CODES = ("GV108", "GV109")
FAULTY = {
    "cholesky_inverse float64 6": {"GV108"},
    "cholesky_inverse float64 11": {"GV108"},
    "cholesky_inverse complex128 6": {"GV108"},
    "cholesky_inverse complex128 8": {"GV108"},
    "scatter_reduce.prod float64 18": {"GV108"},
    "scatter_reduce.prod float64 21": {"GV108"},
    "nn.functional.linear_cross_entropy.chunked float64 0": {"GV109"},
    "masked.logaddexp float64 3": {"GV109"},
}

pytestmark = [pytest.mark.timeout(3600), pytest.mark.filterwarnings("ignore")]      # an hour for all; operators warn of what they deprecate


def judged(sample: Sample) -> CaseResult:
    """A sample as a callable of its differentiable leaves, under the two rules."""
    places = [n for n, leaf in enumerate(sample.leaves) if is_number(leaf) and leaf.requires_grad]

    def call(*inputs: Tensor) -> list[Any]:
        leaves = [leaf.detach().clone() if is_number(leaf) else leaf for leaf in sample.leaves]
        for place, x in zip(places, inputs, strict=True):
            leaves[place] = x
        first, args, kwargs = pytree.tree_unflatten(leaves, sample.spec)
        return [output for output in pytree.tree_leaves(sample.operator(first, *args, **kwargs)) if is_number(output)]

    made = [Argument(str(n), x, True) for n, x in enumerate(sample.inputs)]
    described = case(select=CODES, dtype=str(sample.inputs[0].dtype).removeprefix("torch."))
    return verify(assemble(described, live("live", call, None, torch.float64), made))


def chosen() -> Iterable[Sample]:
    """Every operator, or every fifteenth and those that are known to be faulty."""
    faulty = {name.split()[0] for name in FAULTY}
    for n, (operator, dtype) in enumerate(corpus()):
        if WHOLE or n % STRIDE == 7 or operator.full_name in faulty:
            yield from samples_of(operator, dtype)


@pytest.fixture(scope="module")
def results() -> dict[str, CaseResult]:
    with torch.random.fork_rng(devices=[]):
        return {sample.name: judged(sample) for sample in chosen()}


def test_only_operators_that_are_wrong_are_called_wrong(results):
    found = {name: {finding.code for finding in result.findings if finding.code in CODES} for name, result in results.items()}
    assert len(results) >= (1300 if WHOLE else 60)
    assert {name: codes for name, codes in found.items() if codes} == FAULTY


def test_almost_all_could_be_judged(results):
    runs = [run for result in results.values() for run in result.rules if run.code in CODES]
    assert sum(run.status == "ran" for run in runs) >= 0.9 * len(runs)


def test_forward_mode_costs_one_call_an_input_and_double_backward_eighteen(results):
    ran = [run for result in results.values() if not result.findings for run in result.rules if run.status == "ran"]
    assert statistics.median(run.calls.forward for run in ran if run.code == "GV109") <= 18
    assert statistics.median(run.calls.backward for run in ran if run.code == "GV109") <= 19
    assert statistics.median(run.calls.backward for run in ran if run.code == "GV108") <= 2
