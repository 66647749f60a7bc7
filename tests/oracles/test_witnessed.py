"""What torch's own derivative of a forward may decide. Faults stood for: an error passed because a forward shares it (a cut path, a straight-through
estimator, a wrong subgradient, a Function inside), one accused because torch's derivative of forward is not meant, and a right gradient left open
though forward's own derivative confirms it to rounding."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.autograd import Function
from torch.utils.checkpoint import checkpoint

from gradverify.model.result import CaseResult
from gradverify.numerics.excuses import order
from gradverify.numerics.excuses.treads import excuse_treads
from gradverify.oracles.witness import beside_witness
from tests import live

X = live.randn(6, seed=3)
FACTORS = [1 + 0.37 * k / 16 for k in range(16)]
DAMAGES = (1 + 1e-9, 1 + 1e-6, 1.01, -1.0, 0.0)
FEW = ("tanh", "softmax", "norm")


def rounded(y: Tensor, relative: float = 1e-9) -> Tensor:
    """y with the rounding of larger numbers that cancel in it, which torch differentiates through."""
    large = 2.0 ** torch.ceil(torch.log2(relative * 2.0**53 * y.detach().abs().max()))
    return sum(((y * a + large) - large) / a for a in FACTORS) / len(FACTORS)


def by_bits(y: Tensor, relative: float = 1e-9) -> Tensor:
    """y with noise from its own bits, which torch does not differentiate."""
    bits = (y.detach().contiguous().view(torch.int64) * 6364136223846793005) >> 40
    return y * (1 + relative * (bits.double() / 2**23))


def function(forward: Callable[..., Tensor], clean: Callable[..., Tensor], factor: float = 1.0, also: Callable[[Tensor], Tensor] | None = None,
             ) -> type[Function]:
    """A Function whose backward is the gradient of `clean` times a factor."""
    class Made(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            ctx.save_for_backward(x)
            return forward(x)

        @staticmethod
        def backward(ctx: Any, grad_output: Tensor) -> Tensor:
            leaf = ctx.saved_tensors[0].detach().requires_grad_()
            with torch.enable_grad():
                gradient, = torch.autograd.grad(clean(leaf), leaf, grad_output)
            return factor * (gradient if also is None else also(gradient))

    return Made


def judged(checked: Any, *inputs: Any, **changes: Any) -> CaseResult:
    return live.check(checked, *(inputs or (X,)), select=("GV1",), **changes)


def witnessed(result: CaseResult) -> int:
    return sum(comparison.witnessed for comparison in result.comparisons)


CLEAN: dict[str, Callable[[Tensor], Tensor]] = {
    "exp": torch.exp, "tanh": torch.tanh, "sine": lambda x: (3 * x).sin(), "softmax": lambda x: x.softmax(0), "norm": lambda x: x / x.norm(),
    "square": lambda x: (x * x).sum()[None], "relu of a sum": lambda x: (x + 0.1).relu() * x.sum()}


@pytest.mark.population(most=4)
@pytest.mark.parametrize("name", CLEAN)
def test_a_right_gradient_of_a_noisy_forward_passes_by_forwards_own_derivative(name):
    clean = CLEAN[name]
    checked = function(lambda x: rounded(clean(x), 3e-9), clean)
    without, result = judged(checked, witness=False), judged(checked)
    assert result.verdict == "pass" and not sum(comparison.undecided for comparison in result.comparisons)
    assert without.verdict == ("undecided" if witnessed(result) > 1 else "pass")
    assert name not in FEW or witnessed(result)


@pytest.mark.population(most=6)
@pytest.mark.parametrize("factor", DAMAGES)
@pytest.mark.parametrize("name", FEW)
def test_no_wrong_gradient_of_a_noisy_forward_passes_by_it(name, factor):
    checked = function(lambda x: rounded(CLEAN[name](x), 3e-9), CLEAN[name], factor)
    result, without = judged(checked), judged(checked, witness=False).verdict
    assert result.verdict == "fail" if factor == 0 else result.verdict == without and not witnessed(result)


@pytest.mark.parametrize("name", FEW)
def test_a_gradient_of_zero_between_the_steps_of_noise_is_called_wrong_by_two_witnesses(name):
    result = judged(function(lambda x: rounded(CLEAN[name](x), 3e-9), CLEAN[name], 0.0))
    seen, told = result.comparisons[0], result.findings[0]
    assert seen.evidence == "witness" and seen.witnessed == seen.mismatched > seen.undecided     # those small beside their row stay
    assert "differ from the finite difference and from forward's own derivative" in told.message
    assert seen.worst[0].outcome == "mismatch" and seen.max_rel_error == 1


@pytest.mark.population(most=1)
@pytest.mark.parametrize(("factor", "verdict"), [(1.0, "undecided"), (1 + 1e-5, "fail"), (1.01, "fail")])
def test_an_element_that_noise_moves_in_a_noisy_pair_is_no_mismatch_if_all_of_it_agrees_with_forwards_own_derivative(factor, verdict, monkeypatch):
    """One element of 36 is off by a few bars; finite differences accuse it, but for the steps of that noise being looked for further away."""
    monkeypatch.setattr(order, "EXCUSES", tuple(each for each in order.EXCUSES if each is not excuse_treads))
    monkeypatch.setattr(order, "excuse_treads", lambda run, judged: judged)
    x = live.randn(6, seed=17)
    checked = function(lambda x: rounded(CLEAN["norm"](x), 2e-6), CLEAN["norm"], factor)
    assert judged(checked, x, witness=False).verdict == "fail" and judged(checked, x).verdict == verdict


class RowsAreZero(Function):
    """Of one cotangent of many numbers it makes the gradient of tanh, of a one-hot one nothing."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return rounded(x.tanh(), 3e-9)

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
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


def _one_off(gradient: Tensor) -> Tensor:
    gradient = gradient.clone()
    gradient[0] *= 1 + 1e-9
    return gradient


def test_one_wrong_element_keeps_its_pair_open():
    assert not witnessed(judged(function(lambda x: rounded(x.tanh(), 3e-9), torch.tanh, also=_one_off)))


@pytest.mark.population(most=4)
@pytest.mark.parametrize("factor", (1.0, DAMAGES[0], 0.0))
@pytest.mark.parametrize("name", FEW)
def test_noise_that_torch_does_not_differentiate_leaves_the_verdict_as_it_is(name, factor):
    checked = function(lambda x: by_bits(CLEAN[name](x), 3e-9), CLEAN[name], factor)
    result = judged(checked)
    assert not witnessed(result) and result.verdict == judged(checked, witness=False).verdict


def two_inputs(factor: float) -> type[Function]:
    """The second one is large, and finite differences decide it in spite of the noise."""
    class Made(Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor, w: Tensor) -> Tensor:
            ctx.save_for_backward(x, w)
            return rounded(x.tanh(), 3e-9) + w * w

        @staticmethod
        def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, Tensor]:
            x, w = ctx.saved_tensors
            return grad_output * (1 - x.tanh() ** 2), grad_output * 2 * w * factor

    return Made


@pytest.mark.parametrize(("factor", "apart"), [(1.0, 0.0), (1 + 1e-10, 1e-10)])
def test_a_pair_that_is_decided_is_held_against_it_too_where_its_rows_are_there(factor, apart):
    result = judged(two_inputs(factor), X, 1000 * X.abs() + 1)
    x, w = result.comparisons[:2]
    assert x.witnessed and x.witness_apart == 0 and not w.undecided and not w.witnessed
    assert w.witness_apart == pytest.approx(apart, rel=1e-4) and result.verdict == "pass"


def test_how_far_an_undecided_gradient_is_from_it_is_told():
    off = judged(function(lambda x: rounded(x.tanh(), 3e-9), torch.tanh, 1 + 1e-9)).comparisons[0]
    assert off.undecided and off.witness_apart == pytest.approx(1e-9, rel=1e-4)


# ---- traps
class Half(Function):
    """A wrong Function: its backward forgets the factor."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x / 2

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        return grad_output


class Straight(Function):
    """Meant to be one, and torch's own derivative of this forward is one too."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x + (x.round() - x).detach()

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        return grad_output


class StraightBySize(Straight):
    """The same by adding a large number, in steps of 1/64: torch differentiates through them."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        large = 1.5 * 2.0**46
        return (x + large) - large


def _sided(x: Tensor) -> Tensor:
    """x, of which torch says that it has no slope at 0."""
    return x.relu() - (-x).relu()


TRAPS: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]] = {
    "detach inside": (lambda x: rounded(x.exp() + x.detach() ** 2), torch.exp),
    "a NumPy middle": (lambda x: rounded(x.exp()) + torch.from_numpy(1e-7 * np.sin(x.detach().numpy())), torch.exp),
    "no_grad inside": (lambda x: rounded(x.exp() + 1e-7 * torch.no_grad()(torch.sin)(x)), torch.exp),
    "another wrong Function": (lambda x: rounded(Half.apply(x.tanh())), torch.tanh),
    "another wrong Function, a little of it": (lambda x: rounded(x.tanh() + 1e-7 * Half.apply(x)), lambda x: x.tanh() + 1e-7 * x),
    "a write into data": (lambda x: _overwritten(rounded(x.tanh())), torch.tanh),
}


def _overwritten(y: Tensor) -> Tensor:
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


@pytest.mark.population(most=5)
@pytest.mark.parametrize("forward", [
    lambda x: rounded(x.tanh()).mul_(2).add_(0), lambda x: rounded(checkpoint(torch.tanh, x, use_reentrant=False) * 2),
    lambda x: rounded(x.tanh() * 2 * torch.rand(6, dtype=x.dtype).add(0.5).round().clamp(1, 1)), lambda x: rounded(4 * Half.apply(x.tanh()))],
    ids=["in place", "checkpointed", "random", "another Function"])
@pytest.mark.parametrize(("factor", "verdict"), [(1.0, "pass"), (0.0, "fail"), (1 + 1e-4, "fail")])
def test_gradients_of_forwards_that_stay_in_torch_are_judged(forward, factor, verdict):
    checked = function(lambda x: forward(x) + 0 * x, lambda x: x.tanh() * 2, factor)
    assert judged(checked).verdict == verdict


class Twice(Function):
    """A right one."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return 2 * x

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> Tensor:
        return 2 * grad_output


class Running(torch.nn.Module):
    """Its forward mutates a buffer that it reads."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.ones(6, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        self.mean.mul_(0.9).add_(0.1 * x.detach())
        return rounded((Twice.apply(x) * self.mean).tanh(), 3e-9)


def test_a_buffer_that_forward_writes_and_reads_is_a_path_that_is_cut():
    result = judged(Running, init={})
    assert not witnessed(result) and result.verdict == judged(Running, init={}, witness=False).verdict


def test_torchs_own_derivative_is_no_second_witness_of_itself():
    """The same steps, with a Function among them and without one."""
    own, function_inside = judged(lambda x: rounded(x.tanh(), 3e-9)), judged(lambda x: rounded((Twice.apply(x) / 2).tanh(), 3e-9))
    assert own.verdict == "undecided" and not witnessed(own)
    assert function_inside.verdict == "pass" and witnessed(function_inside)


def test_a_fixed_step_and_a_surrogate_ask_nobody():
    checked = function(lambda x: rounded(x.tanh(), 3e-9), torch.tanh)
    assert not witnessed(judged(checked, eps=1e-6))


def test_it_costs_nothing_where_finite_differences_decide():
    checked = function(torch.tanh, torch.tanh)
    assert judged(checked).calls == judged(checked, witness=False).calls


def test_it_keeps_to_the_budget():
    """8 calls, and one for each output."""
    seen = live.evidence(function(lambda x: rounded(x.tanh(), 3e-9), torch.tanh), X, witness=False)
    found, before, asked = seen.jacobian, seen.subject.calls, list[int]()

    def short_of(calls: int) -> bool:
        asked.append(calls)
        return calls > 13

    again = beside_witness(found, seen.subject, seen.forward.checked, seen.outputs, seen.wishes, short_of)
    assert again.pairs == found.pairs and "budget" in again.unwitnessed and asked == [8 + 6] and seen.subject.calls == before
