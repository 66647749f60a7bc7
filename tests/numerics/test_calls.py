"""Counted calls where nothing is wrong, against the limits of the design's table; they do not depend on the machine."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from gradverify.numerics.choose import Mode
from gradverify.numerics.compare import compare
from numerics.differentiable import DOUBLE, Differentiable, normal

ENTRIES, ROWS, BLOCKS = Mode
DETECTED = 4  # calls that tell an elementwise function
ELEMENTWISE = {ENTRIES: (60, 6), ROWS: (60, 4), BLOCKS: (40 + 40, 6)}


def counted(mode, forward, *inputs):
    """Forward and backward calls, both counted by the function itself."""
    function = Differentiable(forward, *inputs)
    compared = compare(function, mode=mode)
    assert all(pair.verdict == 0 for pair in compared.pairs)
    assert (compared.forward, compared.backward) == (function.calls, function.backwards)
    return compared.forward, compared.backward


def within(calls, most):
    return calls[0] <= most[0] and calls[1] <= most[1]


@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("shape", [(7, 5), (64, 64), (3, 4, 5, 6), (150, 200)])
def test_an_elementwise_function_takes_the_same_few_calls_at_any_size(mode, shape):
    assert within(counted(mode, torch.tanh, normal(1, *shape)), ELEMENTWISE[mode])


@pytest.mark.parametrize(("rows", "length"), [(128, 16), (20, 50), (3, 12)])
def test_softmax_takes_six_calls_an_element_of_a_row_or_a_backward_each(rows, length):
    x = normal(1, rows, length)
    calls = {mode: counted(mode, lambda x: x.softmax(-1), x) for mode in Mode}
    assert within(calls[ENTRIES], (8 * length + 80, length + 12))
    assert within(calls[ROWS], (60, length + 6))
    assert within(calls[BLOCKS], ELEMENTWISE[BLOCKS])


@pytest.mark.parametrize(("batch", "inner", "outer"), [(32, 128, 10), (5, 40, 8)])
def test_a_product_takes_calls_for_the_sum_of_its_sizes_never_for_their_product(batch, inner, outer):
    inputs = normal(1, batch, inner), normal(2, inner, outer)
    calls = {mode: counted(mode, torch.matmul, *inputs) for mode in Mode}
    assert within(calls[ENTRIES], (5 * inner + 150, 2 * (batch + outer) + 16))
    assert within(calls[ROWS], (120, batch + outer + 10))
    assert within(calls[BLOCKS], (2 * 80, 6))


@pytest.mark.parametrize(("inputs", "outputs"), [(60, 40), (100, 12), (30, 90)])
def test_a_dense_function_takes_seven_calls_an_input_or_a_backward_an_output(inputs, outputs):
    weight = normal(3, outputs, inputs) / inputs**0.5
    calls = {mode: counted(mode, lambda x: torch.tanh(weight @ x), normal(1, inputs)) for mode in Mode}
    assert within(calls[ENTRIES], (7 * inputs + 80, outputs + 8))
    assert within(calls[ROWS], (70, outputs + 8))
    assert within(calls[BLOCKS], ELEMENTWISE[BLOCKS])


def test_layer_norm_by_rows_takes_a_backward_for_each_element_of_a_row_and_each_row_of_the_batch():
    x, weight, bias = normal(1, 64, 32), normal(2, 32), normal(3, 32)
    forward, backward = counted(ROWS, lambda x, w, b: F.layer_norm(x, (32,), w, b), x, weight, bias)
    assert forward <= 3 * 40
    assert backward <= 32 + 64 + 2


def test_what_is_told_at_once_is_not_moved_again():
    """Six calls a group and none more: seen from twice as many groups."""
    few, many = (counted(ENTRIES, lambda x: x.softmax(-1), normal(1, 64, n))[0] for n in (22, 38))
    assert many - few == 6 * 16


def test_verifying_by_one_direction_takes_one_rung_beside_the_one_of_the_survey():
    grouped = counted(ENTRIES, F.gelu, normal(1, 40, 30))
    looked = compare(Differentiable(F.gelu, normal(1, 40, 30)), mode=ENTRIES)
    assert grouped == (1 + looked.noise + DETECTED + 6 + 2, 1 + 1)


def test_a_linear_function_is_verified_by_what_the_survey_took():
    function = Differentiable(lambda x: 3 * x, normal(1, 30, 40))
    compared = compare(function, mode=ENTRIES)
    assert compared.forward == 1 + compared.noise + DETECTED + 2 + 1  # two tell that it is linear, and it needs one side of one wide rung
    assert compared.backward == 2


@pytest.mark.parametrize(("mode", "further"), [(ROWS, 2 + 4), (BLOCKS, 18 - 2)])
def test_rows_of_a_linear_function_take_a_wide_step_and_are_verified_near_x(mode, further):
    """The first direction of rows is the one that showed it; the other two rungs near x are those that the survey has not taken."""
    compared = compare(Differentiable(lambda x: 3 * x, normal(1, 30, 40)), mode=mode)
    assert compared.forward == 1 + compared.noise + DETECTED + 2 + further


def test_a_million_elements_take_as_many_calls_as_a_thousand():
    small, large = (counted(BLOCKS, lambda x: x * 1.5, normal(1, n, n)) for n in (30, 1000))
    assert large == small
    assert within(large, ELEMENTWISE[BLOCKS])


def test_gradients_in_memory_that_is_used_again_are_compared_as_they_were():
    memory = torch.empty(40, 6, dtype=DOUBLE)

    class Reuses(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            y = x.softmax(-1)
            ctx.save_for_backward(y)
            return y

        @staticmethod
        def backward(ctx, g):
            y, = ctx.saved_tensors
            return memory.copy_(y * (g - (g * y).sum(-1, keepdim=True)))

    for mode in Mode:
        compared = compare(Differentiable(Reuses.apply, normal(1, 40, 6)), mode=mode)
        assert [pair.verdict for pair in compared.pairs] == [0], mode
