from __future__ import annotations

import ctypes

import numpy as np
import pytest
import torch
from live import check, codes, message, randn

from rules.functions import Right, X, square


def by_pointer(g):
    """What a kernel reads that was given a pointer and a count."""
    number = ctypes.c_double if g.dtype == torch.float64 else ctypes.c_float
    return torch.from_numpy(np.ctypeslib.as_array(ctypes.cast(g.data_ptr(), ctypes.POINTER(number)), tuple(g.shape)).copy())


def by_strides(g):
    return g.as_strided(g.shape, (g.shape[1], 1))


READS = {
    "a pointer": by_pointer,
    "as_strided": by_strides,
    "as_strided without the offset": lambda g: g.as_strided(g.shape, g.stride(), 0),
    "its storage": lambda g: torch.empty(0, dtype=g.dtype).set_(g.untyped_storage())[: g.numel()].view(g.shape),
    "the first row only when strides are 0": lambda g: g if g.stride() != (0, 0) else g * 0,
    "transposed when permuted": lambda g: g if g.stride() != (1, 2) else g.flip(0),
}


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_a_grad_output_that_is_taken_for_contiguous_is_found(read):
    result = check(square(lambda x, g: 2 * x * read(g)), X)
    assert codes(result) == {"GV210"}
    assert "and not" in message(result, "GV210") and "as with the same numbers contiguous" in message(result, "GV210")


FROM_THE_START = {"as_strided without the offset", "its storage"}    # of the storage, which may begin before a contiguous tensor


@pytest.mark.parametrize("name", [name for name in READS if name not in FROM_THE_START])
def test_behind_contiguous_every_other_way_of_reading_is_right(name):
    assert codes(check(square(lambda x, g: 2 * x * READS[name](g.contiguous())), X, second_order=False)) == set()


@pytest.mark.parametrize("name", sorted(FROM_THE_START))
def test_behind_contiguous_what_reads_from_the_start_of_the_storage_is_found(name):
    function = square(lambda x, g: 2 * x * READS[name](g.contiguous()))
    x = X.clone().requires_grad_()
    torch.cat([torch.ones_like(X), function.apply(x)]).backward(torch.cat([X, 3 * torch.ones_like(X)]))
    assert not torch.equal(x.grad, 6 * X)       # it is wrong: it takes the gradient of the other part
    result = check(function, X, second_order=False)
    assert codes(result) == {"GV210"}
    assert "contiguous behind other numbers" in message(result, "GV210")


def test_a_wrong_shortcut_for_ones_is_no_fault_of_the_layout():
    """The constant is compared with a multiple of the gradients for ones, and where these differ with itself, contiguous."""
    def shortcut(x, g):
        return 3 * x if bool((g == 1).all()) else 2 * x * g

    assert "GV210" not in codes(check(square(shortcut), X))
    assert codes(check(square(lambda x, g: 2 * x * READS["the first row only when strides are 0"](g)), X)) == {"GV210"}
    calls = next(run.calls for run in check(square(lambda x, g: 2 * x * g), X).rules if run.code == "GV210")
    assert calls.backward == 3


def test_a_view_that_raises_is_found():
    result = check(square(lambda x, g: 2 * x * g.view(-1).view(x.shape)), X)
    assert codes(result) == {"GV210"}
    assert "sliced (every second column of wider rows), backward raised RuntimeError: view size" in message(result, "GV210")
    assert codes(check(square(lambda x, g: 2 * x * g.reshape(-1).view(x.shape)), X)) == set()


def test_a_write_that_raises_behind_a_sum_is_found():
    result = check(square(lambda x, g: g.mul_(1) * 2 * x), X)
    assert codes(result) == {"GV210"}
    assert "a constant with strides 0" in message(result, "GV210")


def test_a_conjugate_bit_that_is_lost_is_found():
    def lost(z, g):
        return 2 * z.conj() * torch.view_as_complex(torch.view_as_real(g.resolve_conj() if not g.is_conj() else g.conj()).clone())

    z = randn(2, 3, dtype=torch.complex128)
    result = check(square(lost), z)
    assert codes(result) == {"GV210"}
    assert "with the conjugate bit set" in message(result, "GV210")
    assert codes(check(square(lambda z, g: 2 * z.conj() * g), z)) == set()


def test_channels_last_counts_as_a_layout():
    x = randn(2, 3, 2, 2)
    faulty = square(lambda x, g: 2 * x * (g.flip(1) if not g.is_contiguous() and g.is_contiguous(memory_format=torch.channels_last) else g))
    assert codes(check(faulty, x)) == {"GV210"}
    assert codes(check(Right, x)) == set()


def test_a_gradient_that_is_zero_for_a_constant_is_compared_with_a_dense_one():
    """Softmax under a constant cotangent gives nothing but rounding, which every summation order has its own of."""

    class Softmax(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            y = x.softmax(-1)
            ctx.save_for_backward(y)
            return y

        @staticmethod
        def backward(ctx, g):
            y, = ctx.saved_tensors
            if g.stride()[-1] == 0:
                return y * (g - (g * y).flip(-1).cumsum(-1)[..., -1:])      # summed in another order
            return y * (g - (g * y).sum(-1, keepdim=True))

    for dtype in ("float64", "float32"):
        assert codes(check(Softmax, randn(4, 33).to(getattr(torch, dtype)), dtype=dtype, select=("GV2",), ignore=("GV0",))) == set()


def test_functions_inside_callables_count_and_torchs_own_do_not():
    faulty = square(lambda x, g: 2 * x * by_strides(g))
    assert codes(check(lambda x: faulty.apply(x + 1), X)) == {"GV210"}
    run = next(run for run in check(lambda x: x.sin(), X).rules if run.code == "GV210")
    assert run.reason == "no custom Function is in the graph"


def test_a_module_that_uses_a_function_is_checked_too():
    faulty = square(lambda x, g: 2 * x * by_strides(g))

    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(randn(2, 3))

        def forward(self, x):
            return faulty.apply(x * self.weight)

    assert codes(check(Layer, X, init={})) == {"GV210"}


def test_one_number_has_no_layout():
    run = next(run for run in check(square(lambda x, g: 2 * x * g), torch.tensor(0.7, dtype=torch.float64)).rules if run.code == "GV210")
    assert run.reason == "no output has two elements"


SHORTCUTS = {
    "all ones": lambda x, g: 2 * x * (g if not bool((g == 1).all()) else 1.001 * g),
    "all negative": lambda x, g: 2 * x * (g if not bool((g < 0).all()) else 0.5 * g),
}


@pytest.mark.parametrize("gradient", SHORTCUTS.values(), ids=SHORTCUTS)
@pytest.mark.parametrize("seed", range(4))
def test_a_shortcut_for_a_constant_grad_output_is_not_linear(gradient, seed):
    result = check(square(gradient), X, seed=seed, ignore=("GV228",))
    assert codes(result) == {"GV201"}
    assert "for a grad_output of ones, but" in message(result, "GV201")
    assert "of -2 throughout" in message(result, "GV201")
    assert codes(check(square(gradient), X, seed=seed, ignore=("GV201", "GV228"))) == set()


def test_a_right_shortcut_and_a_solver_that_stops_early_are_left_alone():
    def stops(x, g):
        found = torch.zeros_like(g)
        while (g - found).abs().max() > 1e-9:       # halves what is left: an absolute residual
            found = found + (g - found) / 2
        return 2 * x * found

    assert codes(check(square(lambda x, g: 2 * x if bool((g == 1).all()) else 2 * x * g), X, ignore=("GV228", "GV109"))) == set()
    result = check(square(stops), X, ignore=("GV228", "GV109"))
    assert [finding.severity for finding in result.findings if finding.code == "GV201"] in ([], ["warning"])
    assert codes(check(square(lambda x, g: 2 * x), X)) == {"GV201"}
    assert len(check(square(lambda x, g: 2 * x), X).findings) == 1
