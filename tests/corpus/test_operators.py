"""PyTorch's own operators at its own samples, as a user checks them: only what is truly off is
called so, and one wrong entry does not pass.

A sample of the operators, and those that are known to be off (docs/torch-defects.md has the numbers
of all 1,371 samples, with torch 2.13): every element under every rule, one other mode in turn, with
one wrong entry, and as somebody's Function that calls the operator's own backward.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
import torch
from live import check
from torch import Tensor

from corpus.operator_samples import Sample, corpus, damaged, is_usual, plain, samples_of, wrapped
from gradverify.model.result import CaseResult

WHOLE = os.environ.get("GRADVERIFY_POPULATION") == "all"
STRIDE = 67  # of the operators in the suite; odd, so that both precisions take turns
NOTHING = 1e-12  # of the inputs' size: gradients below are rounding
OTHERS = ("rows", "blocks", "auto")
# Sums over an element that cannot be decided cannot either (measured: 13 of 414 samples)
UNDECIDED_SHARE, UNDECIDED_ON_SCREENS = 0.02, 0.05
# The rules that compare backward with finite differences at the point
JACOBIAN = ("GV101", "GV102", "GV103", "GV104", "GV111", "GV114")


def each(code: str, *samples: str) -> dict[str, set[str]]:
    return {sample: {code} for sample in samples}


ERRORS = {
    # in docs/torch-defects.md
    **each(
        "GV108",
        "cholesky_inverse float64 6",
        "cholesky_inverse float64 11",
        "cholesky_inverse complex128 6",
        "cholesky_inverse complex128 8",
        "scatter_reduce.prod float64 18",
        "scatter_reduce.prod float64 21",
    ),
    **each("GV110", "nn.functional.linear_cross_entropy.chunked float64 0"),
    # ones where src overwrites the input and zeros elsewhere, the reverse of what is right; of
    # statistics, taken as zero
    **each(
        "GV101",
        "as_strided_scatter float64 0",
        "as_strided_scatter complex128 0",
        "native_group_norm float64 0",
    ),
    "native_group_norm float64 20": {"GV102"},
    # an index occurs twice: the last value wins in the output, yet every one of them gets the
    # gradient
    **each("GV101", "nn.functional.max_unpool1d float64 49"),
    "nn.functional.max_unpool2d float64 49": {"GV101", "GV211"},
    "nn.functional.max_unpool3d float64 0": {"GV101", "GV211"},
    "nn.functional.max_unpool3d.grad float64 0": {"GV211"},
    # the gradient is defined as zero, though at a fixed seed the sample moves with mean and std
    **each("GV101", "normal float64 0", "normal float64 4", "normal.number_mean float64 2"),
    # reads the memory behind its input, whose layout is therefore one of its arguments
    **each(
        "GV211",
        "as_strided float64 4",
        "as_strided complex128 4",
        "as_strided_copy float64 4",
        "as_strided_copy complex128 4",
        "as_strided_scatter float64 6",
        "as_strided_scatter complex128 6",
    ),
    # negative bases have no value
    **each("GV006", "__rpow__ float64 0", "__rpow__ float64 7"),
}
WARNINGS = {
    # in docs/torch-defects.md
    **each(
        "GV109",
        "nn.functional.linear_cross_entropy.chunked float64 0",
        "masked.logaddexp float64 3",
    ),
    **each("GV114", "nn.functional.hardsigmoid float64 0"),
    # its backward, a Python Function of torch, multiplies a buffer in place by grad_output: a
    # vectorized Jacobian is refused
    **each("GV228", "nn.functional.linear_cross_entropy.chunked_none float64 0"),
    # running statistics, given as arguments
    **each(
        "GV203",
        "_batch_norm_with_update float64 1",
        "_batch_norm_with_update float64 8",
        "nn.functional.instance_norm float64 2",
    ),
}
SATURATED = (
    "erfc(-4.83) is 2 less 8e-12, of which float64 holds 15 bits: 256 points tell its slope to "
    "1e-4, and 1e-6 would take some million"
)
GRID = (
    "its values are also those of x stored on a grid of 1e-3, whose right gradient is 1 "
    "(method.md, section 1): no value of f tells the two apart"
)
NEGATIVE = (
    "negative bases have no value, and autograd multiplies the NaN of their rows by the zeros of "
    "every cotangent"
)
TARGET = (
    "the loss tests target == 1: where(t == 1, 5, 0) and where(t == 1, 5 * t, 0) are equal "
    "everywhere, with gradients of 0 and 5 at 1"
)
UNDECIDED = {
    "__rpow__ float64 0": NEGATIVE,
    "__rpow__ float64 7": NEGATIVE,
    "erfc float64 2": SATURATED,
    "nn.functional.cosine_embedding_loss float64 0": TARGET,
    "nn.functional.hinge_embedding_loss float64 0": TARGET,
    "round.decimals_3 float64 0": GRID,
    "round.decimals_3 float64 2": GRID,
}
# torch, on the damaged gradient: a view that is not aligned for complex numbers
RAISES = "nn.functional.l1_loss complex128 7"
KNOWN = ERRORS.keys() | WARNINGS.keys() | UNDECIDED.keys()

# Of an operator in a Function: it has no forward mode, and is once_differentiable
OWN = {"GV108", "GV109", "GV009", "GV007"}
# Right where all its outputs have gradients, and the wrapper's have zeros
FILLED = "native_group_norm"
ASKING = (
    "double",
    "cdouble",
    "float_power",
    "softmax.with_dtype",
    "log_softmax.with_dtype",
    "nn.functional.softmin.with_dtype",
)
# Backward computes exp(x - result) at 1e6: in float32 its phase is wrong by 0.02
# Src covers all of the input
INSIDE = {
    "logsumexp complex128 14": {"GV226"},
    "scatter_reduce.mean float64 18": {"GV229"},
}

# Operators warn of what they deprecate
pytestmark = [
    pytest.mark.timeout(7200),
    pytest.mark.population,
    pytest.mark.filterwarnings("ignore"),
]


def chosen() -> Iterator[Sample]:
    """Every sample, or the first of every 67th operator, and one of each operator that is known to
    be off."""
    known = {name.split()[0]: name for name in sorted(KNOWN)}
    for n, (operator, dtype) in enumerate(corpus()):
        taken = n % STRIDE == 0 or (operator.full_name in ASKING and dtype == torch.float64)
        if WHOLE or taken or operator.full_name in known:
            for place, sample in enumerate(samples_of(operator, dtype)):
                if (WHOLE or (taken and place == 0) or sample.name in known.values()) and all(
                    map(is_usual, sample.leaves)
                ):
                    yield sample


@pytest.fixture(scope="module")
def samples() -> list[Sample]:
    with torch.random.fork_rng(devices=[]):
        found = list(chosen())
    assert len(found) >= (1300 if WHOLE else 35)
    assert {sample.name.split()[1] for sample in found} == {"float64", "complex128"}
    return found


@pytest.fixture(scope="module")
def results(samples) -> dict[str, CaseResult]:
    """Of every element, whatever it costs: what `auto` can afford depends on the machine."""
    with torch.random.fork_rng(devices=[]):
        return {sample.name: check(*both(plain(sample)), mode="entries") for sample in samples}


def both(made):
    return made[0], *made[1]


def unknown(samples: list[Sample]) -> list[Sample]:
    return [sample for sample in samples if sample.name not in KNOWN]


def codes(result: CaseResult, severity: str, *but: str) -> set[str]:
    return {finding.code for finding in result.findings if finding.severity == severity} - set(but)


def test_only_what_is_wrong_is_called_wrong(results):
    found = {
        name: wrong
        for name, result in results.items()
        if (wrong := codes(result, "error", "GV007"))
    }
    assert found == {name: wrong for name, wrong in ERRORS.items() if name in results}


def test_warnings_are_those_that_are_known_and_gradients_that_vanish(results, samples):
    found = {
        name: warned
        for name, result in results.items()
        if (warned := codes(result, "warning", "GV009"))
    }
    assert found == {name: warned for name, warned in WARNINGS.items() if name in results}
    zero = {name for name, result in results.items() if "GV009" in codes(result, "warning")}
    assert [sample.name for sample in samples if sample.name in zero and not vanishes(sample)] == []


def vanishes(sample: Sample) -> bool:
    """Is torch's own gradient, for a random cotangent, zero up to rounding?"""
    inputs, outputs = sample.graph()
    found = torch.autograd.grad(
        outputs, inputs, [torch.randn_like(y) for y in outputs], allow_unused=True
    )
    return largest([g for g in found if g is not None]) <= NOTHING * max(
        1.0, largest(outputs)
    ) / max(largest(inputs), NOTHING)


def largest(tensors: list[Tensor]) -> float:
    return max(
        (float(x.detach().to_dense().abs().nan_to_num().max()) for x in tensors if x.numel()),
        default=0.0,
    )


def test_what_is_undecided_is_known_and_few_and_rules_could_judge_the_rest(results):
    undecided = {name for name, result in results.items() if result.verdict == "undecided"}
    assert undecided <= UNDECIDED.keys()
    assert len(undecided - (set() if WHOLE else KNOWN)) <= UNDECIDED_SHARE * len(results)
    runs = [
        run
        for name, result in results.items()
        if name not in KNOWN
        for run in result.rules
        if run.code in ("GV108", "GV109")
    ]
    assert sum(run.status == "ran" for run in runs) >= 0.9 * len(runs)


def test_one_wrong_entry_is_found_by_entries_and_passes_in_no_mode_that_accuses_nothing_right(
    samples,
):
    passed, missed, accused, undecided = [], set(), set(), 0
    for n, sample in enumerate(samples if WHOLE else unknown(samples)):
        modes = OTHERS if WHOLE else (OTHERS[n % len(OTHERS)],)
        wrong = damaged(sample)
        for mode in ("entries", *modes) if wrong else ():
            verdict = check(*both(wrong), mode=mode, select=JACOBIAN).verdict
            passed += [(sample.name, mode)] * (verdict == "pass")
            missed |= {sample.name} if mode == "entries" and verdict != "fail" else set()
        for mode in modes:
            verdict = check(*both(plain(sample)), mode=mode, select=JACOBIAN).verdict
            accused |= {sample.name} if verdict == "fail" else set()
            undecided += verdict not in ("pass", "fail") and sample.name not in KNOWN
    assert passed == []
    assert missed <= UNDECIDED.keys() | {RAISES}
    assert accused <= {name for name, wrong in ERRORS.items() if wrong & set(JACOBIAN)}
    assert undecided <= max(1, UNDECIDED_ON_SCREENS * len(samples) * (len(OTHERS) if WHOLE else 1))


def test_a_function_that_calls_an_operators_own_backward_is_left_alone(samples):
    found, expected = {}, {}
    for sample in samples if WHOLE else unknown(samples)[::2]:
        operator = sample.name.split()[0]
        call, arguments = plain(sample)
        found[sample.name] = {
            finding.code for finding in check(wrapped(call), *arguments).findings
        } - OWN
        known = (ERRORS.get(sample.name, set()) | WARNINGS.get(sample.name, set())) - OWN
        # the operator is asked for float64, whatever its input
        expected[sample.name] = (
            set()
            if operator == FILLED
            else known
            | INSIDE.get(sample.name, set())
            | ({"GV226"} if operator in ASKING else set())
        )
    assert found == expected
