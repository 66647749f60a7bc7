"""No false alarm and no false structure where structure depends on the data; structure that is there is found and counted, in all comparisons."""

import numpy as np
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
        y, = ctx.saved_tensors
        return y * (g - (g * y).sum(-1, keepdim=True))


def tied():
    """A number within the step of the next one."""
    x = normal(0, 20, 20)
    x[3, 4] = x[3, 5] * (1 + 5e-4)
    return x


def hidden(x):
    return torch.stack([1e10 * x[2 * n] + 1e-5 * x[2 * n + 1] for n in range(20)])


OWNED = np.random.default_rng(0).standard_normal((40, 30))
DATA = {  # forward, input, column groups and row groups that its structure takes at most
    "relu": (torch.relu, normal(0, 30, 30), 1, 2),
    "max of rows": (lambda x: x.max(-1).values, normal(0, 30, 30), 10, 8),  # some rows have a rival within the step
    "max pool": (lambda x: F.max_pool2d(x, 2), normal(0, 2, 3, 12, 12), 4, 4),
    "sort": (lambda x: x.sort(-1).values, normal(0, 40, 60), 60, 85),
    "top-k": (lambda x: x.topk(5, -1).values, normal(3, 20, 20), 20, 20),
    "a tie in a maximum": (lambda x: x.max(-1).values, tied(), 1, 2),
    "a tie in a sort": (lambda x: x.sort(-1).values, tied(), 20, 40),
    "a tie in a top-k": (lambda x: x.topk(5, -1).values, tied(), 20, 20),
    "a tie in a pool": (lambda x: F.max_pool1d(x, 2), tied(), 2, 2),
    "a term that rounding hides": (hidden, torch.tensor([3.0, 2.0] * 20, dtype=DOUBLE), 2, 2),
    "noise of 1e-12": (Noisy.apply, normal(0, 128, 16), 20, 20),
    "mv of memory that NumPy owns": (lambda x: torch.mv(torch.from_numpy(OWNED), x), normal(0, 30), 30, 40),
}


def compared(forward, *inputs, mode=None, seed=0):
    return compare(Differentiable(forward, *inputs), mode=mode, seed=Seed(seed))


@pytest.mark.population(most=16)
@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("name", DATA)
def test_structure_that_depends_on_the_data_is_no_false_alarm_and_no_false_structure(name, mode):
    forward, x, columns, rows = DATA[name]
    result = compared(forward, x, mode=mode)
    pair, = result.pairs
    assert pair.count(Outcome.MISMATCH) == 0
    assert sum(pair.counts[Outcome.UNDECIDED:]) <= max(1, SHARE * pair.elements, 3 * (mode is Mode.ENTRIES))
    assert pair.groups <= columns and pair.row_groups <= rows
    assert result.forward <= 2 * x.numel() + 500  # what is followed costs no multiple of gradcheck's calls


@pytest.mark.parametrize("mode", [Mode.ENTRIES])
def test_neighbours_within_the_step_do_not_cost_a_sort_its_groups(mode):
    """One in twenty of these numbers has its neighbour within the widest step: what moves only there is no dependence at x."""
    result = compared(DATA["sort"][0], DATA["sort"][1], mode=mode)
    assert result.structure.level == {0: 0}
    assert result.forward < 2 * 2400


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
        pair, = compared(Sort.apply, x, mode=mode).pairs
        places = {(w.output_index // 20, w.input_index) for w in pair.worst if w.outcome is Outcome.MISMATCH}
        assert pair.verdict is Verdict.MISMATCH and places and places <= {(3, 64), (3, 65)}


SIGNAL, KERNEL = normal(1, 4, 4, 64), normal(2, 4, 4, 3)
FOUND = {  # forward, inputs, column groups of each input, row groups of each
    "pointwise": (F.gelu, [normal(0, 30, 40)], [1], [1]),
    "broadcast": (lambda x, y: x * y, [normal(0, 30, 40), normal(1, 40)], [1, 1], [1, 30]),
    "reshape": (lambda x: x.reshape(8, 150).sin(), [normal(0, 30, 40)], [1], [1]),
    "transpose": (lambda x: x.T.exp(), [normal(0, 30, 40)], [1], [1]),
    "permutation": (lambda x: x[torch.arange(30) * 7 % 30].exp(), [normal(0, 30, 40)], [1], [1]),
    "gather": (lambda x: F.embedding(torch.arange(40) % 15, x), [normal(0, 25, 16)], [1], [3]),
    "batched matmul": (torch.matmul, [normal(0, 8, 30, 24), normal(1, 8, 24, 10)], [24, 24], [10, 30]),
    "rows of softmax": (lambda x: x.softmax(-1), [normal(0, 128, 16)], [16], [16]),
    "block tail": (lambda x: torch.cat([b.softmax(0) for b in x.split(64)]), [normal(0, 200)], [64], [64]),
    "banded": (F.conv1d, [SIGNAL, KERNEL], [12, 12], [12, 248]),
}


@pytest.mark.parametrize("name", FOUND)
def test_structure_is_found_and_counted(name):
    forward, inputs, columns, rows = FOUND[name]
    result = compared(forward, *inputs, mode=Mode.ENTRIES)
    assert [pair.verdict for pair in result.pairs] == [Verdict.PASS] * len(inputs)
    assert [pair.groups for pair in result.pairs] == columns
    assert [pair.row_groups for pair in result.pairs] == rows
    assert sum(pair.elements for pair in result.pairs) == forward(*inputs).numel() * sum(x.numel() for x in inputs)


@pytest.mark.parametrize("mode", Mode)
def test_calls_are_counted_as_the_function_counts_them(mode):
    function = Differentiable(lambda x: x.softmax(-1), normal(0, 24, 6))
    result = compare(function, mode=mode)
    assert (result.forward, result.backward) == (function.calls, function.backwards)
    assert result.choice.mode is mode


def test_lines_are_counted_by_what_was_compared():
    counted = [compared(lambda x: x.logsumexp(-1), normal(0, 24, 6), mode=mode).pairs[0] for mode in Mode]
    assert [pair.lines for pair in counted] == ["", "rows", "blocks"]
    assert [pair.elements for pair in counted] == [24 * 144, 24, 24]


def test_the_strongest_that_the_budget_affords_is_taken_and_told_before_it_begins():
    told = []
    function = Differentiable(lambda x: x.softmax(-1), normal(0, 128, 16))
    result = compare(function, limits=Limits(calls=90), watch=lambda choice: told.append((choice, function.calls)))
    assert told[0][0] == result.choice and told[0][1] < result.forward
    assert result.choice.mode is Mode.ROWS
    assert compare(function, limits=Limits(calls=25)).choice.mode is Mode.BLOCKS
    assert compare(function).choice.mode is Mode.ENTRIES


def test_the_same_seed_finds_the_same():
    first, second = (compared(lambda x: x.sort(-1).values, normal(0, 20, 20), mode=Mode.ROWS, seed=3) for _ in range(2))
    assert (first.pairs, first.forward, first.backward) == (second.pairs, second.forward, second.backward)


def test_a_function_without_inputs_has_nothing_to_compare():
    result = compare(Differentiable(lambda: torch.ones(2, dtype=DOUBLE)))
    assert (result.pairs, result.choice, result.forward) == ((), None, 0)


NEAR = {"a dead zone": lambda x: F.hardshrink(x, 0.05), "a narrow one": lambda x: F.hardshrink(x, 0.002),
        "steeper": lambda x: torch.where(x.abs() < 0.01, 3 * x, x)}


@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("name", NEAR)
def test_what_f_does_near_x_is_not_leapt_over_where_wide_steps_look_linear(name, mode):
    """Odd around a zero, whose steps are as wide as other elements: three of them lie on a straight line."""
    x = normal(0, 12, 25)
    wrong = compared(with_backward(NEAR[name], lambda x, g: g), torch.where(x.abs() < 0.5, 0.0, x), mode=mode)
    assert wrong.pairs[0].verdict is not Verdict.PASS
