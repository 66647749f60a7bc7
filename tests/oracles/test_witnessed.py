"""What torch's own derivative of a forward may decide. Faults stood for: an error passed because a forward shares it (a cut path, a straight-through
estimator, a wrong subgradient, a Function inside), one accused because torch's derivative of forward is not meant, and a right gradient left open
though forward's own derivative confirms it to rounding."""

import numpy as np
import pytest
import torch
from torch.autograd import Function
from torch.utils.checkpoint import checkpoint

from tests import live

X = live.randn(4, seed=3)
FACTORS = [1 + 0.37 * k / 16 for k in range(8)]
FEW = ("tanh", "softmax", "norm")


def rounded(y, relative=1e-9):
    """y with the rounding of larger numbers that cancel in it, which torch differentiates through."""
    large = 2.0 ** torch.ceil(torch.log2(relative * 2.0**53 * y.detach().abs().max()))
    return sum(((y * a + large) - large) / a for a in FACTORS) / len(FACTORS)


def by_bits(y, relative=1e-9):
    """y with noise from its own bits, which torch does not differentiate."""
    bits = (y.detach().contiguous().view(torch.int64) * 6364136223846793005) >> 40
    return y * (1 + relative * (bits.double() / 2**23))


def function(forward, clean, factor=1.0, also=None):
    """A Function whose backward is the gradient of `clean` times a factor."""
    class Made(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return forward(x)

        @staticmethod
        def backward(ctx, grad_output):
            leaf = ctx.saved_tensors[0].detach().requires_grad_()
            with torch.enable_grad():
                gradient, = torch.autograd.grad(clean(leaf), leaf, grad_output)
            return factor * (gradient if also is None else also(gradient))

    return Made


def judged(checked, *inputs, **changes):
    return live.check(checked, *(inputs or (X,)), select=("GV101",), **changes)


def witnessed(result):
    return sum(comparison.witnessed for comparison in result.comparisons)


CLEAN = {
    "tanh": torch.tanh, "softmax": lambda x: x.softmax(0), "norm": lambda x: x / x.norm(), "relu of a sum": lambda x: (x + 0.1).relu() * x.sum()}


@pytest.mark.parametrize("name", CLEAN)
def test_a_right_gradient_of_a_noisy_forward_passes_by_forwards_own_derivative(name):
    clean = CLEAN[name]
    checked = function(lambda x: rounded(clean(x), 3e-9), clean)
    without, result = judged(checked, witness=False), judged(checked)
    assert result.verdict == "pass" and not sum(comparison.undecided for comparison in result.comparisons)
    assert without.verdict == ("undecided" if witnessed(result) > 1 else "pass")
    assert name not in FEW or witnessed(result)


@pytest.mark.parametrize(("name", "factor"), [("tanh", 1 + 1e-9), ("softmax", 1 + 1e-6), ("norm", 1.01), ("tanh", -1.0)])
def test_no_wrong_gradient_of_a_noisy_forward_passes_by_it(name, factor):
    checked = function(lambda x: rounded(CLEAN[name](x), 3e-9), CLEAN[name], factor)
    result, without = judged(checked), judged(checked, witness=False).verdict
    assert result.verdict == without and not witnessed(result)


@pytest.mark.parametrize("name", ["softmax"])
def test_a_gradient_of_zero_between_the_steps_of_noise_is_called_wrong_by_two_witnesses(name):
    result = judged(function(lambda x: rounded(CLEAN[name](x), 3e-9), CLEAN[name], 0.0))
    seen, told = result.comparisons[0], result.findings[0]
    assert seen.evidence == "witness" and seen.witnessed == seen.mismatched > seen.undecided     # those small beside their row stay
    assert "differ from the finite difference and from forward's own derivative" in told.message
    assert seen.worst[0].outcome == "mismatch" and seen.max_rel_error == 1


class RowsAreZero(Function):
    """Of one cotangent of many numbers it makes the gradient of tanh, of a one-hot one nothing."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return rounded(x.tanh(), 3e-9)

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output * (1 - ctx.saved_tensors[0].tanh() ** 2) * (grad_output.count_nonzero() > 1)


def test_one_witness_alone_calls_nothing_wrong():
    """The direction confirms backward, whose single rows are zero."""
    result = judged(RowsAreZero)
    assert result.verdict == "undecided" and not witnessed(result) and result.comparisons[0].witness_apart == 1


@pytest.mark.parametrize(("step", "verdict"), [(2.0**-46, "fail"), (2.0**-9, "undecided")])
def test_steps_that_are_no_small_noise_may_have_the_derivative_zero(step, verdict):
    """A grid that forward rounds to on purpose; torch's own derivative is 1 either way."""
    large = 1.5 * 2.0**52 * step
    result = judged(function(lambda x: (x + large) - large, lambda x: x, 0.0))
    assert result.verdict == verdict


def _one_off(gradient):
    gradient = gradient.clone()
    gradient[0] *= 1 + 1e-9
    return gradient


def test_one_wrong_element_keeps_its_pair_open():
    assert not witnessed(judged(function(lambda x: rounded(x.tanh(), 3e-9), torch.tanh, also=_one_off)))


@pytest.mark.parametrize(("name", "factor"), [("tanh", 1.0), ("norm", 1 + 1e-9)])
def test_noise_that_torch_does_not_differentiate_leaves_the_verdict_as_it_is(name, factor):
    checked = function(lambda x: by_bits(CLEAN[name](x), 3e-9), CLEAN[name], factor)
    result = judged(checked)
    assert not witnessed(result) and result.verdict == judged(checked, witness=False).verdict


# ---- traps
class Half(Function):
    """A wrong Function: its backward forgets the factor."""

    @staticmethod
    def forward(ctx, x):
        return x / 2

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output


class Straight(Function):
    """Meant to be one, and torch's own derivative of this forward is one too."""

    @staticmethod
    def forward(ctx, x):
        return x + (x.round() - x).detach()

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output


class StraightBySize(Straight):
    """The same by adding a large number, in steps of 1/64: torch differentiates through them."""

    @staticmethod
    def forward(ctx, x):
        large = 1.5 * 2.0**46
        return (x + large) - large


def _sided(x):
    """x, of which torch says that it has no slope at 0."""
    return x.relu() - (-x).relu()


TRAPS = {
    "detach inside": (lambda x: rounded(x.exp() + x.detach() ** 2), torch.exp),
    "a NumPy middle": (lambda x: rounded(x.exp()) + torch.from_numpy(1e-7 * np.sin(x.detach().numpy())), torch.exp),
    "another wrong Function, a little of it": (lambda x: rounded(x.tanh() + 1e-7 * Half.apply(x)), lambda x: x.tanh() + 1e-7 * x),
    "a write into data": (lambda x: _overwritten(rounded(x.tanh())), torch.tanh),
}


def _overwritten(y):
    y.data.mul_(1 + 1e-7)
    return y * 1


@pytest.mark.parametrize("name", TRAPS)
def test_a_backward_that_shares_forwards_cut_passes_no_more_than_without(name):
    forward, clean = TRAPS[name]
    checked = function(forward, clean)
    result = judged(checked)
    assert not witnessed(result) and result.verdict == judged(checked, witness=False).verdict


@pytest.mark.parametrize("checked", [Straight, StraightBySize])
def test_a_straight_through_estimator_is_neither_accused_nor_excused(checked):
    result = judged(checked)
    without = judged(checked, witness=False)
    assert not witnessed(result) and live.codes(result) == live.codes(without) and result.verdict == without.verdict != "pass"


def test_a_wrong_subgradient_of_torch_excuses_nobody():
    """The slope is 1 at 0, both torch's derivative and this backward say 0."""
    zero = torch.zeros(3, dtype=torch.float64)
    checked = function(lambda x: rounded(1e-5 * _sided(x) + x.sum() ** 2 + 1), lambda x: 1e-5 * _sided(x) + x.sum() ** 2 + 1)
    assert not witnessed(judged(checked, zero)) and judged(checked, zero).verdict == judged(checked, zero, witness=False).verdict


@pytest.mark.population(most=4)
@pytest.mark.parametrize("forward", [
    lambda x: rounded(x.tanh()).mul_(2).add_(0), lambda x: rounded(checkpoint(torch.tanh, x, use_reentrant=False) * 2),
    lambda x: rounded(x.tanh() * 2 * torch.rand(4, dtype=x.dtype).add(0.5).round().clamp(1, 1)), lambda x: rounded(4 * Half.apply(x.tanh()))],
    ids=["in place", "checkpointed", "random", "another Function"])
@pytest.mark.parametrize(("factor", "verdict"), [(1.0, "pass"), (0.0, "fail"), (1 + 1e-4, "fail")])
def test_gradients_of_forwards_that_stay_in_torch_are_judged(forward, factor, verdict):
    checked = function(lambda x: forward(x) + 0 * x, lambda x: x.tanh() * 2, factor)
    assert judged(checked).verdict == verdict


class Twice(Function):
    """A right one."""

    @staticmethod
    def forward(ctx, x):
        return 2 * x

    @staticmethod
    def backward(ctx, grad_output):
        return 2 * grad_output


class Running(torch.nn.Module):
    """Its forward mutates a buffer that it reads."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.ones(4, dtype=torch.float64))

    def forward(self, x):
        self.mean.mul_(0.9).add_(0.1 * x.detach())
        return rounded((Twice.apply(x) * self.mean).tanh(), 3e-9)


def test_a_buffer_that_forward_writes_and_reads_is_a_path_that_is_cut():
    result = judged(Running, init={})
    assert not witnessed(result) and result.verdict == judged(Running, init={}, witness=False).verdict


def test_torchs_own_derivative_is_no_second_witness_of_itself():
    """The same steps, with a Function among them and without one."""
    x = live.randn(6, seed=3)
    forwards = lambda x: rounded(x.tanh(), 3e-9), lambda x: rounded((Twice.apply(x) / 2).tanh(), 3e-9)
    own, function_inside = (judged(forward, x) for forward in forwards)
    assert own.verdict == "undecided" and not witnessed(own)
    assert function_inside.verdict == "pass" and witnessed(function_inside)
