"""PyTorch's own operators, each as somebody's Function that calls the operator's own backward, under every rule with the default settings.

About fifty samples; with GRADVERIFY_WHOLE_CORPUS=1 all of them. The operators as they are: test_every_rule.py.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from live import check

from corpus.as_functions import is_usual, plain, wrapped
from corpus.operator_samples import Sample, corpus, samples_of
from corpus.test_every_rule import ERRORS, WARNINGS
from corpus.test_operator_samples import STRIDE, WHOLE

UNSEEN = {"GV009", "GV007"}     # test_every_rule.py looks at these
OWN = {"GV108", "GV109"}        # the wrapper has no forward mode, and is once_differentiable
FILLED = "native_group_norm"    # right where all its outputs have gradients, and the wrapper's have zeros
WIDE = {"GV226"}                # the operator is asked for float64, whatever its input
ASKING = ("double", "cdouble", "float_power", "softmax.with_dtype", "log_softmax.with_dtype", "nn.functional.softmin.with_dtype")
PHASE = {"logsumexp complex128 14": {"GV226"}}      # backward computes exp(x - result) at 1e6: in float32 its phase is wrong by 0.02

pytestmark = [pytest.mark.timeout(3600), pytest.mark.filterwarnings("ignore")]  # operators warn of what they deprecate


def chosen() -> Iterator[Sample]:
    for n, (operator, dtype) in enumerate(corpus()):
        if WHOLE or n % STRIDE == 0 or operator.full_name in ASKING:
            every = samples_of(operator, dtype)
            yield from (sample for sample in (every if WHOLE else every[:1]) if all(map(is_usual, sample.leaves)))


def found(sample: Sample) -> set[str]:
    call, arguments = plain(sample)
    return {finding.code for finding in check(wrapped(call), *arguments).findings} - UNSEEN


def expected(sample: Sample) -> set[str]:
    if sample.name.startswith(FILLED):
        return set()
    known = (ERRORS.get(sample.name, set()) | WARNINGS.get(sample.name, set())) - OWN
    return known | PHASE.get(sample.name, set()) | (WIDE if sample.name.split()[0] in ASKING else set())


def test_a_function_that_calls_an_operators_own_backward_is_left_alone():
    with torch.random.fork_rng(devices=[]):
        samples = list(chosen())
        wrong = {sample.name: (codes, expected(sample)) for sample in samples if (codes := found(sample)) != expected(sample)}
    assert len(samples) >= (1300 if WHOLE else 40)
    assert wrong == {}
