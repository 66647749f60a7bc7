"""No false alarm and no false structure where structure depends on the data; structure that is
there is found and counted, in all comparisons."""

import pytest
import torch
import torch.nn.functional as F

from gradverify.numerics.choose import Limits, Mode
from gradverify.numerics.compare import compare
from gradverify.numerics.pairs.pair import Outcome
from gradverify.numerics.seeds import Seed
from gradverify.numerics.verdict import Verdict
from numerics.differentiable import DOUBLE, Differentiable, normal, with_backward

SHARE = 1e-4  # of the lines may stay open in a check that passes, and one may always


class Noisy(torch.autograd.Function):
    """softmax with noise of 1e-12 that changes with every bit of the input."""

    @staticmethod
    def forward(ctx, x):
        y = x.softmax(-1)
        ctx.save_for_backward(y)
        return y * (1 + 1e-12 * torch.sin(1e13 * (y + float(x.sum()))))

    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        return y * (g - (g * y).sum(-1, keepdim=True))


def tied():
    """A number within the step of the next one."""
    x = normal(0, 20, 20)
    x[3, 4] = x[3, 5] * (1 + 5e-4)
    return x


def hidden(x):
    return torch.stack([1e10 * x[2 * n] + 1e-5 * x[2 * n + 1] for n in range(20)])


DATA = {  # forward, input, column groups and row groups that its structure takes at most
    "relu": (torch.relu, normal(0, 30, 30), 1, 2),
    "max pool": (lambda x: F.max_pool2d(x, 2), normal(0, 2, 3, 12, 12), 4, 4),
    "sort": (lambda x: x.sort(-1).values, normal(0, 40, 60), 60, 85),
    "top-k": (lambda x: x.topk(5, -1).values, normal(3, 20, 20), 20, 20),
    "a tie in a sort": (lambda x: x.sort(-1).values, tied(), 20, 40),
    "a term that rounding hides": (hidden, torch.tensor([3.0, 2.0] * 20, dtype=DOUBLE), 2, 2),
    "noise of 1e-12": (Noisy.apply, normal(0, 128, 16), 20, 20),
}


def compared(forward, *inputs, mode=None, seed=0):
    return compare(Differentiable(forward, *inputs), mode=mode, seed=Seed(seed))


@pytest.mark.population(most=16)
@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("name", DATA)
def test_structure_that_depends_on_the_data_is_no_false_alarm_and_no_false_structure(name, mode):
    forward, x, columns, rows = DATA[name]
    result = compared(forward, x, mode=mode)
    (pair,) = result.pairs
    assert pair.count(Outcome.MISMATCH) == 0
    assert sum(pair.counts[Outcome.UNDECIDED :]) <= max(
        1, SHARE * pair.elements, 3 * (mode is Mode.ENTRIES)
    )
    assert pair.groups <= columns and pair.row_groups <= rows
    # What is followed costs no multiple of gradcheck's calls
    assert result.forward <= 2 * x.numel() + 500


def test_numbers_that_are_really_near_still_name_a_fault_between_them():
    x = tied()

    class Sort(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            values, ctx.order = x.sort(-1)
            return values

        @staticmethod
        def backward(ctx, g):
            right = torch.zeros_like(g).scatter(-1, ctx.order, g)
            right[3, [4, 5]] = right[3, [5, 4]]
            return right

    for mode in Mode:
        (pair,) = compared(Sort.apply, x, mode=mode).pairs
        places = {
            (w.output_index // 20, w.input_index)
            for w in pair.worst
            if w.outcome is Outcome.MISMATCH
        }
        assert pair.verdict is Verdict.MISMATCH and places and places <= {(3, 64), (3, 65)}


SIGNAL, KERNEL = normal(1, 4, 4, 64), normal(2, 4, 4, 3)
FOUND = {  # forward, inputs, column groups of each input, row groups of each
    "broadcast": (lambda x, y: x * y, [normal(0, 30, 40), normal(1, 40)], [1, 1], [1, 30]),
    "gather": (lambda x: F.embedding(torch.arange(40) % 15, x), [normal(0, 25, 16)], [1], [3]),
    "block tail": (
        lambda x: torch.cat([b.softmax(0) for b in x.split(64)]),
        [normal(0, 200)],
        [64],
        [64],
    ),
    "banded": (F.conv1d, [SIGNAL, KERNEL], [12, 12], [12, 248]),
}


@pytest.mark.parametrize("name", FOUND)
def test_structure_is_found_and_counted(name):
    forward, inputs, columns, rows = FOUND[name]
    result = compared(forward, *inputs, mode=Mode.ENTRIES)
    assert [pair.verdict for pair in result.pairs] == [Verdict.PASS] * len(inputs)
    assert [pair.groups for pair in result.pairs] == columns
    assert [pair.row_groups for pair in result.pairs] == rows
    assert sum(pair.elements for pair in result.pairs) == forward(*inputs).numel() * sum(
        x.numel() for x in inputs
    )


def test_the_same_seed_finds_the_same():
    first, second = (
        compared(lambda x: x.sort(-1).values, normal(0, 20, 20), mode=Mode.ROWS, seed=3)
        for _ in range(2)
    )
    assert (first.pairs, first.forward, first.backward) == (
        second.pairs,
        second.forward,
        second.backward,
    )


def test_a_function_without_inputs_has_nothing_to_compare():
    result = compare(Differentiable(lambda: torch.ones(2, dtype=DOUBLE)))
    assert (result.pairs, result.choice, result.forward) == ((), None, 0)


# ---- columns for some inputs, rows for the others
NORM = [normal(0, 64, 32), 1 + 0.1 * normal(1, 32), normal(2, 32)]
TIGHT = Limits(calls=200)  # entries take 297


def layer_norm(x, weight, bias):
    return F.layer_norm(x, (32,), weight, bias)


def off_by(tensor, place):
    """Gradients of which one number is off by 1 %."""

    def damage(grads):
        grads = [g.clone() for g in grads]
        grads[tensor].view(-1)[place] *= 1.01
        return grads

    return damage


@pytest.mark.parametrize(("tensor", "place"), [(0, 33), (1, 5), (2, 31)])
def test_a_fault_in_any_input_is_named_where_two_comparisons_are_made(tensor, place):
    found = compare(Differentiable(layer_norm, *NORM, damage=off_by(tensor, place)), limits=TIGHT)
    assert [pair.verdict for pair in found.pairs] == [
        Verdict.MISMATCH if t == tensor else Verdict.PASS for t in range(3)
    ]
    worst = [w for w in found.pairs[tensor].worst if w.outcome is Outcome.MISMATCH]
    assert worst and {w.input_index for w in worst} == {place}


NEAR = {
    "a dead zone": lambda x: F.hardshrink(x, 0.05),
    "a narrow one": lambda x: F.hardshrink(x, 0.002),
    "steeper": lambda x: torch.where(x.abs() < 0.01, 3 * x, x),
}


@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("name", NEAR)
def test_what_f_does_near_x_is_not_leapt_over_where_wide_steps_look_linear(name, mode):
    """Odd around a zero, whose steps are as wide as other elements: three of them lie on a straight
    line."""
    x = normal(0, 12, 25)
    wrong = compared(
        with_backward(NEAR[name], lambda x, g: g), torch.where(x.abs() < 0.5, 0.0, x), mode=mode
    )
    assert wrong.pairs[0].verdict is not Verdict.PASS
