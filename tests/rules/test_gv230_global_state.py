"""Calls that leave the process's state changed, or seed its generators; those that draw, or put back what they set, are left alone."""

import random
import warnings
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from gallery.twins import twins
from live import check, codes, message, randn
from torch.autograd import Function
from torch.utils.checkpoint import checkpoint

from gradverify.subject.machine import undisturbed

Faulty, Right = twins("seeds_torch_for_its_mask")
SEEDS = range(5)


def square(forward=None, backward=None):
    class Square(Function):
        @staticmethod
        def forward(ctx, x):
            with forward() if forward else warnings.catch_warnings():
                ctx.save_for_backward(x)
                return x * x

        @staticmethod
        def backward(ctx, grad_output):
            with backward() if backward else warnings.catch_warnings():
                return 2 * grad_output * ctx.saved_tensors[0]

    return Square


def inside(act):
    """A context that acts, and puts nothing back."""
    @contextmanager
    def context():
        act()
        yield
    return context


def found(function, *inputs, **settings):
    with undisturbed():
        return check(function, *(inputs or (randn(4),)), **settings)


SEEDED = {
    "torch's global generator": lambda: torch.manual_seed(3),
    "NumPy's global generator": lambda: np.random.seed(3),
    "Python's global generator": lambda: random.seed(3),
}
GRAVE = {
    "torch's default dtype": lambda: torch.set_default_dtype(torch.float64),
    "flushing of denormal numbers": lambda: torch.set_flush_denormal(True),
}
IN_FORWARD = {
    "torch's default device": lambda: torch.set_default_device("meta"),
    "autocast on the CPU": lambda: torch.set_autocast_enabled("cpu", True),
}
SLIGHT = {
    "the precision of float32 products": lambda: torch.set_float32_matmul_precision("high"),
    "the choice of deterministic algorithms": lambda: torch.use_deterministic_algorithms(True),
    "the number of torch's threads": lambda: torch.set_num_threads(3),
    "a setting of cuDNN": lambda: torch._C._set_cudnn_benchmark(True),
    "NumPy's handling of errors": lambda: np.seterr(all="ignore"),
    "the precision of reductions on CUDA": lambda: setattr(torch.backends.cuda.matmul, "allow_bf16_reduced_precision_reduction", False),
}


@pytest.mark.population(most=10)
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("who", ["forward", "backward"])
@pytest.mark.parametrize("what", SEEDED)
def test_a_call_that_seeds_a_generator_is_found(what, who, seed):
    result = found(square(**{who: inside(SEEDED[what])}), seed=seed)
    assert (result.verdict, [(each.code, each.severity) for each in result.findings]) == ("pass", [("GV230", "warning")])
    assert message(result, "GV230") == f"{who} seeds {what}: what is drawn after it is the same after every call"


@pytest.mark.population(most=2)
@pytest.mark.parametrize("seed", SEEDS)
def test_so_is_one_that_seeds_it_as_the_check_does_and_draws_or_not(seed):
    for act in (lambda: torch.manual_seed(seed), lambda: (torch.manual_seed(seed), torch.rand(3)), lambda: torch.manual_seed(seed + 1)):
        assert codes(found(square(inside(act)), seed=seed)) == {"GV230"}
        assert codes(found(square(None, inside(act)), seed=seed)) == {"GV230"}


@pytest.mark.parametrize("who", ["forward", "backward"])
@pytest.mark.parametrize("what", [*GRAVE, *SLIGHT])
def test_a_setting_that_is_left_changed_is_found(what, who):
    if what == "flushing of denormal numbers":
        with undisturbed():
            if not torch.set_flush_denormal(True):
                pytest.skip("this processor does not flush denormal numbers")
    result = found(square(**{who: inside({**GRAVE, **SLIGHT}[what])}))
    assert (result.verdict, [(each.code, each.severity) for each in result.findings]) == ("pass", [("GV230", "warning")])
    assert result.findings[0].message.startswith(f"{who} leaves {what} changed: ")


@pytest.mark.parametrize("what", IN_FORWARD)
def test_so_is_one_that_autograd_puts_back_after_backward_only(what):
    assert message(found(square(inside(IN_FORWARD[what]))), "GV230").startswith(f"forward leaves {what} changed: ")
    assert codes(found(square(None, inside(IN_FORWARD[what])))) == set()


def test_the_values_are_told():
    assert message(found(square(inside(GRAVE["torch's default dtype"]))), "GV230").endswith("torch.float32 before, torch.float64 after")
    assert message(found(square(inside(SLIGHT["the precision of float32 products"]))), "GV230").endswith("matmul highest before, matmul high after")
    assert message(found(square(inside(IN_FORWARD["torch's default device"]))), "GV230").endswith("changed: cpu before, meta after")


def test_a_callable_that_leaves_gradients_off_is_found_and_a_function_where_autograd_puts_them_on_is_not():
    def frozen(x):
        y = x * x
        torch.set_grad_enabled(False)
        return y

    assert message(found(frozen), "GV230") == "forward leaves the gradient mode changed: on before, off after"
    assert codes(found(square(inside(lambda: torch.set_grad_enabled(False))))) == set()


@contextmanager
def kept(read, write, act):
    before = read()
    act()
    try:
        yield
    finally:
        write(before)


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_put_back_is_left_alone(seed):
    def forked():
        return kept(torch.get_rng_state, torch.set_rng_state, lambda: torch.manual_seed(seed))

    def of_numpy():
        return kept(np.random.get_state, np.random.set_state, lambda: np.random.seed(seed))

    def dtype():
        return kept(torch.get_default_dtype, torch.set_default_dtype, lambda: torch.set_default_dtype(torch.float64))

    for context in (forked, of_numpy, dtype, torch.no_grad, lambda: torch.autocast("cpu"), torch.random.fork_rng, lambda: torch.device("cpu")):
        assert codes(found(square(context, context), seed=seed)) <= {"GV109"}     # under no_grad there is no second derivative


@pytest.mark.parametrize("seed", SEEDS)
def test_what_draws_is_left_alone(seed):
    for draw in (lambda: torch.rand(3), lambda: np.random.rand(), lambda: random.random(), lambda: torch.randperm(5)):
        assert codes(found(square(inside(draw), inside(draw)), seed=seed)) == set()
    assert codes(found(torch.nn.Dropout(0.5), randn(4, 5), seed=seed)) == set()
    assert codes(found(lambda x: checkpoint(torch.nn.functional.dropout, x, use_reentrant=False), randn(4, 5), seed=seed)) == set()


def test_drawing_again_in_backward_from_a_state_that_is_not_put_back_is_found():
    def rewinding(back):
        class Noise(Function):
            @staticmethod
            def forward(ctx, x):
                ctx.state = torch.get_rng_state()
                return x * torch.rand_like(x)

            @staticmethod
            def backward(ctx, grad_output):
                with torch.random.fork_rng(devices=[], enabled=back):
                    torch.set_rng_state(ctx.state)
                    return grad_output * torch.rand_like(grad_output)

        return Noise

    assert message(found(rewinding(False)), "GV230").startswith("backward seeds torch's global generator")
    assert codes(found(rewinding(True))) == set()


def test_it_costs_no_call_but_one_of_a_backward_that_draws():
    """The first forward of a check, with poisoned memory, has its generators start elsewhere."""
    def calls(function, *inputs):
        return next((run.calls.forward, run.calls.backward) for run in found(function, *inputs).rules if run.code == "GV230")

    assert calls(square()) == (0, 0)
    assert calls(square(inside(lambda: torch.rand(3)))) == (0, 0)
    assert calls(square(None, inside(lambda: torch.rand(3)))) == (0, 1)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_gallery(seed):
    assert codes(found(Faulty, randn(4, 5), seed=seed)) == {"GV230"}
    assert codes(found(Right, randn(4, 5), seed=seed)) == set()


def test_without_reseeding_nothing_is_said_of_generators():
    assert codes(found(square(inside(SEEDED["torch's global generator"])), reseed=False)) == set()
