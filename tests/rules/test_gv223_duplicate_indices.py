from __future__ import annotations

import pytest
import torch
from live import check, codes, fixed, message, randn
from torch.autograd import Function

from gradverify.subject.subject import Argument

INDEX = torch.tensor([3, 0, 1])


def lookup(gradient):
    """table[index] with `gradient(zeros, index, g)`."""

    class Lookup(Function):
        @staticmethod
        def forward(ctx, table, index):
            ctx.save_for_backward(index)
            ctx.shape = table.shape
            return table[index]

        @staticmethod
        def backward(ctx, g):
            (index,) = ctx.saved_tensors
            return gradient(g.new_zeros(ctx.shape), index, g), None

    return Lookup


def assigned(zeros, index, g):
    zeros[index] = g
    return zeros


OVERWRITE = {
    "assignment": assigned,
    "index_copy": lambda zeros, index, g: zeros.index_copy(0, index, g),
    "index_put": lambda zeros, index, g: zeros.index_put((index,), g),
    "scatter": lambda zeros, index, g: zeros.scatter(0, index[:, None].expand_as(g), g),
}
ADD = {
    "index_add": lambda zeros, index, g: zeros.index_add(0, index, g),
    "index_put, accumulating": lambda zeros, index, g: zeros.index_put(
        (index,), g, accumulate=True
    ),
    "a product": lambda zeros, index, g: (
        torch.nn.functional.one_hot(index, len(zeros)).to(g.dtype).T @ g
    ),
}


def run(result):
    return next(run for run in result.rules if run.code == "GV223")


@pytest.mark.parametrize("gradient", OVERWRITE.values(), ids=OVERWRITE)
def test_a_gradient_that_overwrites_what_repeats_is_found_though_no_index_of_the_spec_repeats(
    gradient,
):
    result = check(lookup(gradient), randn(4, 2), fixed(INDEX))
    assert codes(result) == {"GV223"}
    assert "with repeated indices in index, d y0[" in message(result, "GV223")
    assert "by finite differences" in message(result, "GV223")
    assert message(result, "GV223").startswith("with repeated indices in index, d y0")


@pytest.mark.parametrize("gradient", ADD.values(), ids=ADD)
def test_a_gradient_that_adds_up_what_repeats_passes(gradient):
    result = check(lookup(gradient), randn(4, 2), fixed(INDEX))
    assert codes(result) == set()
    assert (run(result).status, run(result).calls.forward, run(result).calls.backward) == (
        "ran",
        3,
        1,
    )


def test_where_the_spec_repeats_an_index_the_wrong_elements_say_so():
    result = check(lookup(assigned), randn(4, 2), fixed(torch.tensor([3, 0, 3])))
    assert codes(result) == {"GV223"}
    assert (result.findings[0].also, result.findings[0].cause.name, run(result).status) == (
        ("GV101",),
        "repeated index overwritten",
        "ran",
    )
    assert "index holds 3 at [0] and [2]" in result.findings[0].cause.detail
    assert codes(
        check(lookup(assigned), randn(4, 2), fixed(torch.tensor([3, 0, 3])), select=("GV101",))
    ) == {"GV101"}
    assert (
        codes(
            check(lookup(assigned), randn(4, 2), fixed(torch.tensor([3, 0, 3])), select=("GV223",))
        )
        == set()
    )


def test_a_backward_that_raises_for_repeated_indices_is_found():
    def refuses(zeros, index, g):
        if len(index.unique()) < len(index):
            raise RuntimeError("an index repeats")
        return assigned(zeros, index, g)

    result = check(lookup(refuses), randn(4, 2), fixed(INDEX))
    assert codes(result) == {"GV223"}
    assert (
        "with repeated indices in index backward raised RuntimeError: an index repeats"
        in message(result, "GV223")
    )


@pytest.mark.parametrize(
    "x",
    [
        randn(3, 2),
        randn(2, 3).T,
        randn(3, 2, dtype=torch.complex128),
        randn(2, 3, dtype=torch.complex128).T,
    ],
    ids=["contiguous", "transposed", "complex", "complex and transposed"],
)
def test_what_the_forward_itself_overwrites_has_no_derivative_and_is_no_finding(x):
    """`out[index] = x`: the loser does not reach the output, yet torch gives every one of them the
    gradient."""

    def put(x, index):
        return torch.zeros(4, 2, dtype=x.dtype).index_put((index,), x)

    result = check(put, Argument("", x, True, layout=None), fixed(INDEX))
    assert codes(result) == set()
    assert (
        "does not move the forward where an index repeats: it is overwritten" in run(result).reason
    )


def test_a_forward_that_refuses_repeated_indices_is_not_at_fault():
    def permuted(x, index):
        if len(index.unique()) < len(index):
            raise ValueError("no permutation")
        return x[index]

    result = check(permuted, randn(5, 2), fixed(torch.tensor([2, 0, 4])))
    assert codes(result) == set()
    assert (run(result).status, run(result).reason) == (
        "not_applicable",
        "with repeated indices forward raised ValueError: no permutation",
    )


@pytest.mark.parametrize(
    ("integers", "reason"),
    [
        (torch.tensor([2, 2, 2]), "every integer repeats already"),
        (torch.tensor([2]), "no input holds two or more integers"),
        (torch.tensor([True, False]), "no input holds two or more integers"),
    ],
)
def test_where_nothing_can_be_repeated_that_is_said(integers, reason):
    def table(x, index):
        return x[index]

    assert (
        run(
            check(
                table,
                randn(4, 2)[: len(integers)] if integers.dtype == torch.bool else randn(4, 2),
                fixed(integers),
            )
        ).reason
        == reason
    )


def ordered(gradient):
    """A loss that sorts by a permutation, and puts its gradient back with `gradient`."""

    class Ranked(Function):
        @staticmethod
        def forward(ctx, x, order):
            y = x[order]
            ctx.save_for_backward(y, order)
            return y.logcumsumexp(0).sum()

        @staticmethod
        def backward(ctx, g):
            y, order = ctx.saved_tensors
            # Softmax over y[: j + 1], of every j
            weights = (y - y.logcumsumexp(0)[:, None]).exp().tril().sum(0)
            return gradient(torch.zeros_like(y), order, g * weights), None

    return Ranked


def test_a_permutation_is_not_repeated():
    """`scatter` undoes x[order] for every permutation, which never repeats; whether it is always
    one the function does not say."""
    x, order = randn(4), fixed(torch.tensor([2, 0, 3, 1]))
    result = check(ordered(OVERWRITE["index_put"]), x, order, second_order=False)
    assert (result.verdict, codes(result), run(result).reason) == (
        "pass",
        set(),
        "its indices are permutations",
    )
    assert (
        check(
            ordered(OVERWRITE["index_put"]),
            x,
            fixed(torch.tensor([2, 0, 3, 0])),
            second_order=False,
        ).verdict
        == "fail"
    )


def sums(x, segments):
    """Sums of the runs of one number: defined of segments in order."""
    total = x.cumsum(0)[torch.searchsorted(segments, segments.unique(), right=True) - 1]
    return torch.cat([total[:1], total[1:] - total[:-1]])


class SortedSums(Function):
    @staticmethod
    def forward(ctx, x, segments):
        ctx.save_for_backward(segments.unique(return_inverse=True)[1])
        return sums(x, segments)

    @staticmethod
    def backward(ctx, g):
        return g[ctx.saved_tensors[0]], None


@pytest.mark.parametrize("segments", [[0, 0, 1, 1, 1, 2], [0, 1, 2, 3, 5, 7], [0, 0, 0, 1, 2, 2]])
def test_segments_in_order_stay_in_order(segments):
    assert codes(check(SortedSums, randn(6), fixed(torch.tensor(segments)))) == set()


@pytest.mark.parametrize("index", [[0, 2, 3], [0, 1, 3, 4]])
def test_what_overwrites_is_found_where_the_indices_of_the_spec_are_in_order_too(index):
    result = check(lookup(assigned), randn(5, 2), fixed(torch.tensor(index)))
    assert (result.verdict, codes(result)) == ("fail", {"GV223"})
    assert "GV223" in codes(result)


def test_of_several_inputs_the_others_are_asked_without_the_permutation():
    inner = lookup(assigned)

    def both(table, order, index):
        return inner.apply(table[order], index)

    order = torch.tensor([2, 0, 3, 1])
    result = check(both, randn(4, 2), fixed(order), fixed(INDEX))
    assert (result.verdict, codes(result)) == ("fail", {"GV223"})
    assert "with repeated indices in index, d y" in message(result, "GV223")


def test_an_input_that_is_drawn_as_a_permutation_is_not_asked(tmp_path):
    import gradverify

    (tmp_path / "ranked.py").write_text("""
import torch


class Sorted(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, order):
        ctx.save_for_backward(order)
        return x[order]

    @staticmethod
    def backward(ctx, g):
        order, = ctx.saved_tensors
        return torch.zeros_like(g).scatter(0, order, g), None
""")
    (tmp_path / "spec.yaml").write_text("""
gradverify: 1
checks:
  - {name: drawn, function: ranked:Sorted, inputs: {x: {shape: [4]}, order: {shape: [4], kind: permutation}}}
  - {name: written, function: ranked:Sorted, inputs: {x: {shape: [4]}, order: {values: [1, 0, 3, 2], dtype: int64}}}
""")
    drawn, written = gradverify.run(tmp_path / "spec.yaml").checks
    assert (drawn.verdict, [finding.code for finding in drawn.findings]) == ("pass", [])
    assert (
        written.verdict,
        [(finding.code, finding.severity) for finding in written.findings],
    ) == ("pass", [])
    assert {
        rule.reason for each in (drawn, written) for rule in each.rules if rule.code == "GV223"
    } == {"its indices are permutations"}
