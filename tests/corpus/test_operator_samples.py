"""PyTorch's own operators at its own samples: right gradients pass, a small error in one entry does not.

About a hundred samples; with the environment variable GRADVERIFY_WHOLE_CORPUS=1 all of them, 1,371 with torch 2.13.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Iterable
from dataclasses import dataclass

import pytest
import torch

from corpus.operator_samples import Sample, corpus, samples_of
from gradverify.numerics.columns.dense import Entries, check_entries
from gradverify.numerics.compare import Verdict

WHOLE = os.environ.get("GRADVERIFY_WHOLE_CORPUS") == "1"
STRIDE = 15  # of the operators in the reduced form; odd, so that both precisions take turns
UNDECIDED_SHARE = 0.02

SCATTER = "its gradient has ones where src overwrites the input and zeros elsewhere, the reverse of what is right; PyTorch expects the failure too"
STATISTICS = "the gradients of its second and third outputs, mean and rstd, are taken as zero"
REPEATED = "an index occurs twice: the last value wins in the output, yet every one of them gets the gradient"
SAMPLED = "its gradient is defined as zero, though at a fixed seed the sample moves with mean and std"
FAULTY = {
    "as_strided_scatter float64 0": SCATTER,
    "as_strided_scatter float64 6": SCATTER,
    "as_strided_scatter complex128 0": SCATTER,
    "as_strided_scatter complex128 6": SCATTER,
    "native_group_norm float64 0": STATISTICS,
    "native_group_norm float64 20": STATISTICS,
    "nn.functional.max_unpool1d float64 49": REPEATED,
    "nn.functional.max_unpool2d float64 49": REPEATED,
    "nn.functional.max_unpool3d float64 0": REPEATED,
    "normal float64 0": SAMPLED,
    "normal float64 4": SAMPLED,
    "normal.number_mean float64 2": SAMPLED,
}

SATURATED = "at a saturated element the derivative is below 1e-6 of the output's rounding over any step"
STEP = "an element lies so close to a step of the function that only fine steps stay on its tread: a staircase looks the same"
NO_NUMBER = "NaN or infinite inputs cannot be moved"
NEGATIVE = "negative bases have no value, and autograd multiplies the NaN of their rows by the zeros of every cotangent"
SINGLE = "its weights are float32"
TARGET = "the target, an input too, stands where the loss jumps: it must be exactly 1 or -1"
UNDECIDED = {
    "__rpow__ float64 0": NEGATIVE,
    "__rpow__ float64 7": NEGATIVE,
    "cov complex128 39": SINGLE,
    "cov float64 39": SINGLE,
    "div.floor_rounding float64 7": STEP,
    "div.trunc_rounding float64 7": STEP,
    "erf float64 0": SATURATED,
    "erfc float64 0": SATURATED,
    "erfc float64 2": SATURATED,
    "logsumexp complex128 14": "the phase of one entry is off by about 1e-10 of its modulus, which is next to its tolerance",
    "nanmean float64 34": NO_NUMBER,
    "nansum float64 34": NO_NUMBER,
    "nn.functional.adaptive_max_pool2d float64 12": "two elements of a window are within 2e-3 of a tie",
    "nn.functional.adaptive_max_pool2d float64 23": "two elements of a window are within 2e-3 of a tie",
    "nn.functional.cosine_embedding_loss float64 0": TARGET,
    "nn.functional.hinge_embedding_loss float64 0": TARGET,
    "round float64 0": STEP,
    "round.decimals_3 float64 0": "a staircase with steps of 1e-3: right to its gradient of 0, and to 1 along the trend",
    "round.decimals_3 float64 2": "a staircase with steps of 1e-3: right to its gradient of 0, and to 1 along the trend",
    "special.ndtr float64 0": SATURATED,
    "tan complex128 0": SATURATED,
    "torch.ops.aten._safe_softmax.default float64 0": NO_NUMBER,
    "torch.ops.aten._safe_softmax.default float64 7": NO_NUMBER,
}

pytestmark = [pytest.mark.timeout(3600), pytest.mark.filterwarnings("ignore")]  # an hour for all; operators warn of what they deprecate


@dataclass(frozen=True)
class Judged:
    """A sample's comparison, and the verdict on it with one wrong entry (None: its gradient is zero throughout)."""

    name: str
    inputs: int
    entries: Entries
    damaged: Verdict | None

    @property
    def verdict(self) -> Verdict:
        return worst(self.entries)


def worst(entries: Entries) -> Verdict:
    return next((v for v in (Verdict.MISMATCH, Verdict.UNDECIDED) if v in {p.verdict for p in entries.pairs}), Verdict.PASS)


def judge(sample: Sample) -> Judged:
    damaged = sample.damaged()
    return Judged(sample.name, len(sample.inputs), check_entries(sample), None if damaged is None else worst(check_entries(damaged)))


def chosen() -> Iterable[Sample]:
    """Every operator, or every fifteenth and those that are known to be faulty."""
    faulty = {name.split()[0] for name in FAULTY}
    for n, (operator, dtype) in enumerate(corpus()):
        if WHOLE or n % STRIDE == 0 or operator.full_name in faulty:
            yield from samples_of(operator, dtype)


@pytest.fixture(scope="module")
def judged() -> list[Judged]:
    with torch.random.fork_rng(devices=[]):
        return [judge(sample) for sample in chosen()]


def named(judged: Iterable[Judged], verdict: Verdict) -> set[str]:
    return {each.name for each in judged if each.verdict == verdict}


def test_there_are_enough_samples_of_both_precisions(judged):
    assert len(judged) >= (300 if WHOLE else 90)
    assert {each.name.split()[1] for each in judged} == {"float64", "complex128"}


def test_only_gradients_that_are_wrong_are_called_wrong(judged):
    assert named(judged, Verdict.MISMATCH) == FAULTY.keys() & {each.name for each in judged}


def test_at_most_two_in_a_hundred_are_undecided_and_for_a_known_reason(judged):
    undecided = named(judged, Verdict.UNDECIDED)
    assert undecided <= UNDECIDED.keys()
    assert len(undecided) <= UNDECIDED_SHARE * len(judged)


def test_one_wrong_entry_is_found(judged):
    missed = {each.name: each.damaged for each in judged if each.damaged not in (None, Verdict.MISMATCH)}
    assert Verdict.PASS not in missed.values()
    assert missed.keys() <= UNDECIDED.keys()


def test_a_column_takes_seven_forward_calls_and_noise_fifteen_an_input(judged):
    compared = [each for each in judged if each.entries.pairs]
    assert statistics.median(each.entries.calls_per_column for each in compared) <= 7
    assert statistics.median(each.entries.noise / each.inputs for each in compared) <= 15


def test_the_quick_rungs_settle_almost_every_element(judged):
    pairs = [pair for each in judged for pair in each.entries.pairs]
    assert sum(pair.quick for pair in pairs) >= 0.95 * sum(pair.compared for pair in pairs)
