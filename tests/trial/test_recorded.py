"""Recorded calls in small: which numbers are described, which are kept, and what is not written."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import Function

from gradverify.model.case import Search
from gradverify.model.proposal import Sought
from gradverify.recording.notes import ALIKE, MOST, OFTEN, RARELY, Notes
from gradverify.trial.propose import propose
from gradverify.trial.recorded import described


class Weighted(Function):
    """x times anything, summed over the last dimension."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, *others: Any) -> Tensor:
        ctx.save_for_backward(*(each for each in others if isinstance(each, Tensor)))
        y = x * 1
        for each in ctx.to_save:
            y = y * each
        return y

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        for each in ctx.saved_tensors:
            g = g * each
        return g, *[None] * (len(ctx.needs_input_grad) - 1)


class Picks(Function):
    """`step`: the distance of the elements that are taken, which must be even."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, knots: Tensor, step: int) -> Tensor:
        assert bool((knots.diff() >= 0).all()) and len(x) % step == 0, "not sorted"
        ctx.step, ctx.length = step, len(x)
        return x[::step] * 2

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        out = g.new_zeros(ctx.length)
        out[:: ctx.step] = 2 * g
        return out, None, None


class Entropy(Function):
    """The mean over the targets that are not `ignored`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, target: Tensor, ignored: int) -> Tensor:
        kept = target != ignored
        index = target.masked_fill(~kept, 0)[..., None]
        ctx.save_for_backward(x, index, kept)
        return -(x.log_softmax(-1).gather(-1, index)[..., 0] * kept).sum() / kept.sum()

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        x, index, kept = ctx.saved_tensors
        grad = x.softmax(-1).scatter_add(-1, index, x.new_full(index.shape, -1.0))
        return grad * kept[..., None] * g / kept.sum(), None, None


FIRST: list[float] = []


class Fickle(Function):
    """Of two numbers, finite at the first ones that it was called with only."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        FIRST[:] = FIRST or [float(x[0])]
        return x * 2 if len(x) > 2 or float(x[0]) in FIRST else x / 0

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        return g * 2


class Rounded(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, step: float) -> Tensor:
        return torch.round(x / step) * step

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        return g, None


class Far(Function):
    """Rounded to eight digits, in which a small step is lost."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x + 1e6

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        return g


class Refuses(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        raise ValueError("nothing runs")


def needing(*shape: int) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, requires_grad=True)


@pytest.fixture
def notes(tmp_path):
    return Notes(tmp_path)


def entries(notes):
    return [json.loads(line) for file in notes.folder.glob("*.jsonl") for line in file.open()]


def proposed(notes, cls, *arguments):
    """The proposal for the only call of a Function."""
    notes.look(cls, arguments, {})
    (entry,) = entries(notes)
    file = f"{entry['file']}:{entry['name']}"
    return propose(Sought(file, Search(str(notes.folder)), entry["call"]))


def test_of_very_many_calls_some_are_looked_at(notes):
    for _ in range(OFTEN):
        notes.look(Weighted, (needing(2),), {})
    notes.look(Weighted, (needing(2, 2),), {})
    assert len(entries(notes)) == 1
    for _ in range(RARELY):
        notes.look(Weighted, (needing(2, 2),), {})
    assert len(entries(notes)) == 2


def test_nothing_of_the_caller_changes(notes):
    x = needing(4, 4)
    state = torch.get_rng_state()
    for _ in range(3):
        notes.look(Weighted, (x, torch.ones(4)), {})
    assert torch.equal(state, torch.get_rng_state())
    assert x.grad_fn is None and x._version == 0 and torch.is_grad_enabled()
    assert len(entries(notes)) == 1


SOURCE = torch.Generator().manual_seed(0)


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        (torch.randn(500, generator=SOURCE), ("normal", [0, 1])),
        (3 + 2 * torch.randn(500, generator=SOURCE), ("normal", None)),
        (torch.rand(500, generator=SOURCE) + 0.5, ("uniform", None)),
        (torch.full((3, 2), 1.5), ("fill", 1.5)),
        (torch.randint(9, (50,), generator=SOURCE), ("integers", [0, 9])),
        (torch.randn(500, generator=SOURCE) < 0, ("kind", "mask")),
        (torch.nn.functional.one_hot(torch.tensor([2, 0, 1])), ("kind", "one_hot")),
        (torch.tensor([2, 0, 1, 3]), ("kind", "permutation")),
        (torch.tensor([1.0, -1, 1, 1, -1, -1, 1, 1]), ("choice", [-1, 1])),
        (torch.eye(4) + 0.1, ("kind", "spd")),
        (
            torch.randn(4, 4, generator=SOURCE).tril() + 9 * torch.eye(4),
            ("kind", "lower_triangular"),
        ),
        (torch.randn(4, 5, generator=SOURCE).softmax(-1), ("kind", "simplex")),
        (torch.randn(50, dtype=torch.complex128, generator=SOURCE), ("normal", None)),
    ],
)
def test_numbers_are_described_by_their_kind(numbers, expected):
    recipe = described(numbers, {"whole": True}, True)
    draw, arguments = expected
    assert recipe is not None and recipe.draw == draw
    assert arguments is None or recipe.arguments == arguments


@pytest.mark.parametrize(
    "numbers", [torch.tensor([1, 4, 4, 9]), torch.tensor([0.0, float("-inf"), 1.0])]
)
def test_sorted_and_infinite_numbers_are_not_described(numbers):
    assert described(numbers, {"whole": True}, True) is None


def test_a_symmetric_matrix_and_distinct_indices_stay_such():
    a = torch.randn(6, 6)
    found = described(a + a.T, {"whole": True}, True)
    assert found is not None and found.symmetric
    found = described(torch.tensor([30, 2, 11, 5]), {"whole": True}, False)
    assert found is not None and (found.draw, found.distinct) == ("integers", 1.0)


def test_sizes_shrink_together_with_the_numbers_that_equal_them(notes):
    found = proposed(notes, Weighted, needing(64, 32), torch.randn(32), 32, None, True)
    assert found.missing is None and found.note == "Recorded with x [64, 32], others0 [32]."
    x, weight, size, *rest = found.inputs
    assert x.tensor.shape == (3, 2) and weight.tensor.shape == (2,) and size.value == 2
    assert weight.tensor.requires_grad is False and weight.tensor.dtype == "float32"
    assert [each.value for each in rest] == [None, True] and found.attempts == 1


def test_what_a_description_breaks_is_kept_and_sizes_that_do_not_run_stay(notes):
    knots = torch.linspace(0, 1, 20).square()
    found = proposed(notes, Picks, needing(24), knots, 6)
    assert found.missing is None and found.attempts <= 12
    x, data, step = found.inputs
    assert (x.tensor.shape, step.value) == ((24,), 6)
    assert data.tensor.draw == "values" and len(data.tensor.arguments) < 20


@pytest.mark.parametrize("ignored", [-100, 0, 255, 20])
def test_a_number_that_occurs_among_integers_still_does_when_they_are_fewer(notes, ignored):
    target = torch.randint(1, 19, (4, 20), generator=SOURCE)
    target[:, -3:] = ignored
    found = proposed(notes, Entropy, needing(4, 20, 19), target, ignored)
    assert found.missing is None and found.note == "Recorded with x [4, 20, 19], target [4, 20]."
    x, kept, number = found.inputs
    numbers = torch.tensor(kept.tensor.arguments)
    assert kept.tensor.draw == "values" and numbers.shape == x.tensor.shape[:-1]
    assert number.value in numbers and (numbers != number.value).any()
    assert numbers.numel() < 80


def test_integers_that_differ_from_each_other_still_do(notes):
    index = torch.tensor([9, 4, 30, 2, 11, 5, 17, 8])
    found = proposed(notes, Weighted, needing(4, 8), index, 30)
    assert found.missing is None
    numbers = found.inputs[1].tensor.arguments
    assert 30 in numbers and len(numbers) == len({*numbers}) == 5


def test_sorted_integers_are_cut_only_where_a_number_that_occurs_is_kept(notes):
    index = torch.tensor([1, 2, 3, 4, 5, 30, 30, 30])
    found = proposed(notes, Weighted, needing(8), index, 30)
    assert found.missing is None and found.inputs[1].tensor.arguments == index.tolist()


def test_integers_without_such_a_number_are_drawn(notes):
    target = torch.randint(19, (4, 20), generator=SOURCE)
    found = proposed(notes, Entropy, needing(4, 20, 19), target, -100)
    assert found.inputs[1].tensor.draw == "integers"


def test_sizes_at_which_other_draws_are_not_finite_are_not_taken(notes):
    found = proposed(notes, Fickle, needing(600))
    assert found.missing is None and found.inputs[0].tensor.shape == (8,)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_a_gradient_of_a_piecewise_constant_forward_is_left_open(notes, dtype):
    x = torch.randn(40, 9, generator=SOURCE).to(dtype).requires_grad_()
    found = proposed(notes, Rounded, x, 0.25)
    assert found.advised and found.missing == (
        "forward is piecewise constant in x, and backward gives it a gradient: name the function "
        "whose gradient that is under `surrogate`"
    )


def test_what_rounding_hides_is_not_piecewise_constant(notes):
    found = proposed(notes, Far, torch.randn(40, 9, generator=SOURCE).requires_grad_())
    assert found.missing is None


def test_many_numbers_go_into_a_file_with_their_layout(notes):
    grid = torch.full((70, 6), float("nan"), dtype=torch.float64).nan_to_num(2).T
    grid[0, 0] = float("inf")
    found = proposed(notes, Weighted, needing(6, 70).exp().detach().requires_grad_(), grid)
    # inf makes every call not finite: the call that came furthest is left as a comment
    assert found.missing is not None and "not finite" in found.missing
    assert found.inputs[1].tensor.layout == "transposed"


def test_the_reason_is_given_where_nothing_runs(notes):
    found = proposed(notes, Refuses, needing(3))
    assert found.missing is not None and "nothing runs" in found.missing


def test_without_gradients_what_gets_none_is_marked(notes):
    with torch.no_grad():
        found = proposed(notes, Weighted, needing(3), torch.randn(3, dtype=torch.float64))
    assert found.missing is None and "others0" in found.remarks
    assert [each.tensor.requires_grad for each in found.inputs] == [None, False]


@pytest.mark.parametrize(
    ("argument", "reason"),
    [
        (torch.sin, "a function"),
        (torch.nn.Linear(1, 1), "of type Linear"),
        (torch.eye(2).to_sparse(), "a tensor of torch.sparse_coo"),
        (torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]), "a nested tensor"),
        (torch.float64, "of type dtype"),
        ([torch.ones(1), None], "a list of tensors and other objects"),
        (torch.ones(0), "empty"),
    ],
)
def test_what_a_spec_cannot_write_is_a_reason(notes, argument, reason):
    notes.look(Weighted, (needing(2), argument), {})
    (entry,) = entries(notes)
    assert reason in entry["why"] and "call" not in entry


def test_a_folder_that_is_gone_is_no_matter_of_the_run(tmp_path):
    notes = Notes(tmp_path / "gone")
    notes.look(Weighted, (needing(2),), {})
    assert not notes.folder.exists()


def test_functions_without_a_name_and_torchs_own_are_not_noted(notes):
    class Local(Weighted):
        pass

    notes.look(Local, (needing(2),), {})
    notes.look(torch.utils.checkpoint.CheckpointFunction, (needing(2),), {})
    (entry,) = entries(notes)
    assert "is defined inside test_functions_without_a_name" in entry["why"]


def test_signatures_differ_in_kind_not_in_size_and_there_are_only_so_many(notes):
    for size in range(5, 50):
        notes.look(Weighted, (needing(size), needing(size)), {})
    assert len(entries(notes)) == 1
    for number in range(100, 100 + 2 * ALIKE):
        notes.look(Weighted, (needing(5), number), {})
    assert sum("call" in each for each in entries(notes)) == 1 + ALIKE
    for dimensions in range(2 * MOST):
        notes.look(Weighted, (needing(*[2] * (dimensions % 9)), f"{dimensions}"), {})
    assert sum("call" in each for each in entries(notes)) == MOST
    assert any("in more ways" in each.get("why", "") for each in entries(notes))
