"""PyTorch's own operators at its own samples under every rule with the default settings: only what is truly off is called so.

About 200 samples; with the environment variable GRADVERIFY_WHOLE_CORPUS=1 all of them, 1,371 with torch 2.13. The numbers are
in benchmarks/results/torch-defects.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import torch
from live import check
from torch import Tensor

from corpus.as_functions import is_usual, plain
from corpus.operator_samples import Sample, corpus, samples_of, seeded
from corpus.test_operator_samples import UNDECIDED, UNDECIDED_SHARE, WHOLE
from gradverify.model.result import CaseResult

STRIDE = 9          # of the operators in the reduced form; odd, so that both precisions take turns
NOTHING = 1e-12     # of the inputs' size: gradients below are rounding


def each(code: str, *samples: str) -> dict[str, set[str]]:
    return {sample: {code} for sample in samples}


ERRORS = {
    # in benchmarks/results/torch-defects.md
    **each("GV108", "cholesky_inverse float64 6", "cholesky_inverse float64 11", "cholesky_inverse complex128 6", "cholesky_inverse complex128 8",
           "scatter_reduce.prod float64 18", "scatter_reduce.prod float64 21"),
    **each("GV110", "nn.functional.linear_cross_entropy.chunked float64 0"),
    **each("GV101", "as_strided_scatter float64 0", "as_strided_scatter float64 6", "as_strided_scatter complex128 0",
           "as_strided_scatter complex128 6", "native_group_norm float64 0"),
    "native_group_norm float64 20": {"GV102"},
    "nn.functional.max_unpool2d float64 49": {"GV101", "GV211"},
    "nn.functional.max_unpool3d float64 0": {"GV101", "GV211"},
    "nn.functional.max_unpool3d.grad float64 0": {"GV211"},
    # an index occurs twice: the last value wins in the output, yet every one of them gets the gradient
    "nn.functional.max_unpool1d float64 49": {"GV101"},
    # the gradient is defined as zero, though at a fixed seed the sample moves with mean and std
    **each("GV101", "normal float64 0", "normal float64 4", "normal.number_mean float64 2"),
    # reads the memory behind its input, whose layout is therefore one of its arguments
    **each("GV211", "as_strided float64 4", "as_strided complex128 4", "as_strided_copy float64 4", "as_strided_copy complex128 4"),
    # negative bases have no value
    **each("GV006", "__rpow__ float64 0", "__rpow__ float64 7"),
}
WARNINGS = {
    # in benchmarks/results/torch-defects.md
    **each("GV109", "nn.functional.linear_cross_entropy.chunked float64 0", "masked.logaddexp float64 3"),
    **each("GV114", "nn.functional.hardsigmoid float64 0"),
    # its backward, a Python Function of torch, multiplies a buffer in place by grad_output: a vectorized Jacobian is refused
    **each("GV228", "nn.functional.linear_cross_entropy.chunked_none float64 0"),
    # running statistics, given as arguments
    **each("GV203", "_batch_norm_with_update float64 1", "_batch_norm_with_update float64 8", "nn.functional.instance_norm float64 2"),
}
KNOWN = {name.split()[0] for name in (*ERRORS, *WARNINGS)}

pytestmark = [pytest.mark.timeout(3600), pytest.mark.filterwarnings("ignore")]      # an hour for all; operators warn of what they deprecate


@dataclass(frozen=True)
class Judged:
    result: CaseResult
    vanishes: bool      # is torch's own gradient, for a random cotangent, zero up to rounding?

    def codes(self, severity: str) -> set[str]:
        return {finding.code for finding in self.result.findings if finding.severity == severity}


def chosen() -> Iterator[Sample]:
    """Every operator, or every ninth and those that are known to be off."""
    for n, (operator, dtype) in enumerate(corpus()):
        if WHOLE or n % STRIDE == 0 or operator.full_name in KNOWN:
            yield from (sample for sample in samples_of(operator, dtype) if all(map(is_usual, sample.leaves)))


def judged(sample: Sample) -> Judged:
    """Every element, whatever it costs: what `auto` can afford depends on the machine."""
    function, arguments = plain(sample)
    return Judged(check(function, *arguments, mode="entries"), vanishes(sample))


def vanishes(sample: Sample) -> bool:
    seeded()
    outputs = sample.values(sample.inputs)
    gradients = sample.vjp([torch.randn_like(y) for y in outputs])
    return largest(gradients) <= NOTHING * max(1.0, largest(outputs)) / max(largest(sample.inputs), NOTHING)


def largest(tensors: list[Tensor]) -> float:
    return max((float(x.to_dense().abs().nan_to_num().max()) for x in tensors if x.numel()), default=0.0)


@pytest.fixture(scope="module")
def results() -> dict[str, Judged]:
    with torch.random.fork_rng(devices=[]):
        return {sample.name: judged(sample) for sample in chosen()}


def test_there_are_samples_of_both_precisions(results):
    assert len(results) >= (1300 if WHOLE else 150)
    assert {name.split()[1] for name in results} == {"float64", "complex128"}


def test_only_what_is_wrong_is_called_wrong(results):
    found = {name: codes - {"GV007"} for name, each in results.items() if (codes := each.codes("error")) - {"GV007"}}
    assert found == {name: codes for name, codes in ERRORS.items() if WHOLE or name in results}


def test_warnings_are_those_that_are_known_and_gradients_that_vanish(results):
    found = {name: codes - {"GV009"} for name, each in results.items() if (codes := each.codes("warning")) - {"GV009"}}
    assert found == {name: codes for name, codes in WARNINGS.items() if WHOLE or name in results}
    assert [name for name, each in results.items() if "GV009" in each.codes("warning") and not each.vanishes] == []


def test_at_most_two_in_a_hundred_are_undecided_and_for_a_known_reason(results):
    undecided = {name for name, each in results.items() if each.result.verdict == "undecided"}
    assert undecided <= UNDECIDED.keys()
    assert len(undecided) <= UNDECIDED_SHARE * len(results)
