"""Deviations of a float32 backward beside finite differences in float64: rounding is excused, what
is none is not.

The class of faults: rounding that is larger than usual (numbers cancel, f saturates) is called
wrong; or a small error of a formula is taken for rounding, because the backward is right in float64
or because it is noisy.
"""

import pytest
import torch
from live import evidence, randn

from gradverify.numerics.pairs.pair import Outcome
from gradverify.numerics.verdict import Limit, Verdict

DOUBLE = (torch.float64, torch.complex128)


def single(*shape, seed=0):
    return randn(*shape, seed=seed, dtype=torch.float32)


def pair(function, *inputs, **settings):
    return evidence(function, *inputs, dtype="float32", mode="entries", **settings).jacobian.pairs[
        0, 0
    ]


def backed(forward, backward):
    """A Function of one input."""

    class Backed(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return forward(x)

        @staticmethod
        def backward(ctx, grad):
            return backward(ctx.saved_tensors[0], grad)

    return Backed


def by_differences(x, grad):
    """2 (x − mean) / n of a variance, where the mean is 300 times the spread: float32 leaves four
    digits."""
    return grad * 2 * (x - x.mean()) / len(x)


def as_sums(x, grad):
    """The same as 2 (x·n − Σx) / n², in which numbers 10⁴ times as large cancel."""
    return grad * 2 * (x * len(x) - x.sum()) / len(x) ** 2


@pytest.mark.parametrize("backward", [by_differences, as_sums])
@pytest.mark.parametrize("seed", range(4))
def test_rounding_that_comes_and_goes_with_the_bits_is_excused(backward, seed):
    x = 300 + single(12, seed=seed)
    found = pair(backed(lambda x: ((x - x.mean()) ** 2).mean(), backward), x)
    assert not found.count(Outcome.MISMATCH)


@pytest.mark.parametrize("share", [1.0, 0.01, -2.0])
@pytest.mark.parametrize("everywhere", [True, False])
def test_an_error_of_a_formula_is_none_however_noisy_the_sums_are(share, everywhere):
    def wrong(x, grad):
        gradient = as_sums(x, grad)
        if everywhere or x.dtype not in DOUBLE:
            gradient = gradient * (1 + share)
        return gradient

    x = 20 + single(12)
    found = pair(backed(lambda x: ((x - x.mean()) ** 2).mean(), wrong), x)
    assert found.verdict is Verdict.MISMATCH


# ---- operations that lose more than one rounding: torch's digamma near its root
def near_the_root(seed):
    return 1.4616321449683622 + 1e-6 * single(2, 5, seed=seed)


@pytest.mark.parametrize("seed", range(2))
def test_what_an_operation_of_torch_loses_near_its_root_is_not_called_wrong(seed):
    found = pair(
        backed(torch.lgamma, lambda x, grad: grad * torch.digamma(x)),
        near_the_root(seed),
        seed=seed,
    )
    assert not found.count(Outcome.MISMATCH)


@pytest.mark.parametrize(
    "damage",
    [
        lambda g: -g,
        lambda g: 2 * g,
        lambda g: 1.01 * g,
        lambda g: g + 1e-5,
        lambda g: g + 1e-5 * (g.dtype == torch.float32),
    ],
)
def test_a_wrong_gradient_near_the_root_is_found(damage):
    for seed in range(1):
        found = pair(
            backed(torch.lgamma, lambda x, grad: grad * damage(torch.digamma(x))),
            near_the_root(seed),
            seed=seed,
        )
        assert found.verdict is Verdict.MISMATCH


@pytest.mark.parametrize(("by", "verdict"), [(1e-6, Verdict.MISMATCH), (3e-7, Verdict.PASS)])
def test_a_small_element_is_right_to_a_few_roundings_of_its_row_and_no_more(by, verdict):
    """A zero of the row that float32 does not give as zero: 8 roundings are 4.8e-7."""

    def backward(x, grad):
        gradient = grad * torch.tensor([1.0, 1.0, 1.0, 0.0], dtype=x.dtype)
        if x.dtype not in DOUBLE:
            gradient[-1] += grad * by
        return gradient

    found = pair(backed(lambda x: x[:3].sum(), backward), torch.ones(4, dtype=torch.float32))
    assert found.verdict is verdict


def test_where_f_saturates_in_float32_a_gradient_that_it_rounds_away_is_undecided():
    """tanh(8.9) is 1 in float32, and 1 − 4e-8 in float64."""
    function = backed(torch.tanh, lambda x, grad: grad * (1 - torch.tanh(x) ** 2))
    for x in ([8.9, 0.3], [8.9]):
        found = pair(function, torch.tensor(x, dtype=torch.float32))
        assert found.verdict is Verdict.UNDECIDED and found.limits == ((Limit.ROUNDED, 1),)


@pytest.mark.parametrize("x", [5.6, 6.1, 6.5, 7.2, -6.8])
def test_where_f_begins_to_saturate_the_rounding_of_its_value_is_no_mistake(x):
    """1 − tanh² of a float32 tanh is off by two roundings of 1, the same ones at all points nearby:
    0.1 to 7 % of the derivative."""
    assert (
        pair(torch.tanh, torch.tensor([x, 0.3], dtype=torch.float32)).verdict
        is not Verdict.MISMATCH
    )


def test_where_f_does_not_saturate_a_missing_gradient_is_found_however_small_the_output():
    # The sigmoid is 1e-7 there, good to seven digits
    x = torch.tensor([-16.0, 0.3], dtype=torch.float32)
    right = pair(
        backed(torch.sigmoid, lambda x, grad: grad * torch.sigmoid(x) * torch.sigmoid(-x)), x
    )
    gone = pair(
        backed(
            torch.sigmoid, lambda x, grad: grad * torch.sigmoid(x) * torch.sigmoid(-x) * (x > -10)
        ),
        x,
    )
    assert right.verdict is Verdict.PASS and gone.verdict is Verdict.MISMATCH


def test_a_backward_that_refuses_float64_is_told_by_its_noise_alone():
    def only_float32(x, grad):
        if x.dtype in DOUBLE:
            raise TypeError("float32 only")
        return as_sums(x, grad)

    x = 300 + single(12)
    found = pair(backed(lambda x: ((x - x.mean()) ** 2).mean(), only_float32), x)
    assert not found.count(Outcome.MISMATCH)
    wrong = pair(
        backed(lambda x: ((x - x.mean()) ** 2).mean(), lambda x, grad: 1.5 * only_float32(x, grad)),
        2 + single(12),
    )
    assert wrong.verdict is Verdict.MISMATCH


def test_a_backward_in_sixteen_bits_is_wrong_in_float32():
    def coarse(x, grad):
        return (
            grad * x.to(torch.bfloat16).cos().to(x.dtype)
            if x.dtype not in DOUBLE
            else grad * x.cos()
        )

    assert pair(backed(torch.sin, coarse), single(8)).verdict is Verdict.MISMATCH


def test_complex64_is_judged_alike():
    z = randn(5, dtype=torch.complex64)

    def right(z, grad):
        return grad * (2 * z).conj()

    assert pair(backed(lambda z: z * z, right), z).verdict is Verdict.PASS
    assert (
        pair(backed(lambda z: z * z, lambda z, grad: right(z, grad) * 1.01), z).verdict
        is Verdict.MISMATCH
    )
    assert (
        pair(backed(lambda z: z * z, lambda z, grad: grad * 2 * z), z).verdict is Verdict.MISMATCH
    )


def test_saturation_at_the_other_end_is_no_reason_to_pass_a_sign():
    x = torch.linspace(-3, 3, 9, dtype=torch.float32)
    assert (
        pair(backed(torch.tanh, lambda x, grad: -grad * (1 - torch.tanh(x) ** 2)), x).verdict
        is Verdict.MISMATCH
    )


# ---- rows that cancel to nothing: their rounding is that of f, and not of the row
def entropy(form, damage=None, dtypes=(*DOUBLE, torch.float32)):
    """−Σ p log p, at whose optimum (equal logits) every gradient is 0: by its own formula, and as
    autograd goes through both factors."""

    class Entropy(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            logs = x.log_softmax(-1)
            ctx.save_for_backward(logs)
            return -(logs * logs.exp()).sum(-1)

        @staticmethod
        def backward(ctx, grad):
            (logs,) = ctx.saved_tensors
            p, grad = logs.exp(), -grad[..., None]
            if form == "formula":
                gradient = grad * p * (logs - (logs * p).sum(-1, keepdim=True))
            else:
                gradient = p * (grad * (logs + 1) - (grad * (logs + 1) * p).sum(-1, keepdim=True))
            return damage(gradient) if damage is not None and grad.dtype in dtypes else gradient

    return Entropy


def near_its_optimum(seed):
    """Logits of 0 to 3 that differ by 1e-3 or 1e-4: the gradient is a thousandth and less of the
    terms that cancel in it."""
    source = torch.Generator().manual_seed(seed)
    rows, classes = (1, 2, 8)[seed % 3], (3, 5, 8, 16)[seed % 4]
    return (10.0 ** -(3 + seed % 2) * torch.randn(rows, classes, generator=source)).float() + (
        0.0,
        1.0,
        0.5,
        3.0,
    )[seed // 2 % 4]


def one_off(factor):
    def damage(gradient):
        flat = gradient.clone().reshape(-1)
        flat[flat.abs().argmax()] *= factor
        return flat.reshape(gradient.shape)

    return damage


@pytest.mark.population(most=1)
@pytest.mark.parametrize("form", ["formula", "softmax"])
def test_no_right_backward_is_accused_of_the_rounding_of_terms_that_cancel(form):
    found = [pair(entropy(form), near_its_optimum(seed)) for seed in range(0, 24, 5)]
    assert [each.verdict for each in found].count(Verdict.MISMATCH) == 0


@pytest.mark.population(most=2)
@pytest.mark.parametrize("form", ["formula", "softmax"])
@pytest.mark.parametrize(
    "damage",
    [torch.zeros_like, one_off(0.0), one_off(1.5)],
    ids=["zero", "one zero", "one and a half"],
)
def test_a_wrong_one_is_found_there_though_its_rows_cancel(form, damage):
    """Larger than the rounding: at 1e-3 of its terms half of an element is 5,000 roundings. In
    float32 alone too, but for logits around 0, where those of f are larger than what the element
    moves it by."""
    for seed in (2, 10, 18):
        assert pair(entropy(form, damage), near_its_optimum(seed)).verdict is Verdict.MISMATCH
        if seed // 2 % 4:
            assert (
                pair(entropy(form, damage, [torch.float32]), near_its_optimum(seed)).verdict
                is Verdict.MISMATCH
            )
