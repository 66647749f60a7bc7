"""Groups of columns and rows against brute force on small dependency matrices, and the counts that known ops must have."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from gradverify.numerics.sparsity.pattern import NO_ENTRY, Pattern, column_groups, dense, row_groups
from numerics.dependencies import dependency, full, matrix, pattern_of
from numerics.differentiable import leaf, normal


@st.composite
def patterns(draw, shape=None):
    """Arbitrary windows, some outputs that depend on nothing."""
    shape = draw(st.lists(st.integers(1, 5), max_size=3)) if shape is None else shape
    outputs = draw(st.integers(1, 9))
    nothing = np.array(draw(st.lists(st.sampled_from([False, False, True]), min_size=outputs, max_size=outputs)))
    ends = [[sorted((draw(st.integers(0, n - 1)), draw(st.integers(0, n - 1)))) for _ in range(outputs)] for n in shape]
    low = tuple(np.where(nothing, 0, [low for low, _ in axis]) for axis in ends)
    high = tuple(np.where(nothing, -1, [high for _, high in axis]) for axis in ends)
    return Pattern(tuple(shape), low, high, nothing)


@st.composite
def pairs_of_patterns(draw):
    """Two output tensors of one input tensor."""
    first = draw(patterns())
    return first, draw(patterns(shape=first.shape))


def assert_columns(patterns):
    groups, held = column_groups(patterns), np.concatenate([full(p) for p in patterns])
    colour = groups.colour()
    assert colour.shape == (patterns[0].size,)
    for group in range(groups.count):
        members = held[:, colour == group]
        assert members.sum(1).max(initial=0) <= 1
        expected = np.where(members.any(1), np.flatnonzero(colour == group)[members.argmax(1)], NO_ENTRY)
        assert np.array_equal(groups.column_of(group), expected)
    assert colour.max(initial=0) < groups.count


def assert_rows(pattern):
    groups, held = row_groups(pattern), full(pattern)
    assert sorted(set(groups.group.tolist())) == list(range(groups.count))
    rows_of = groups.rows_of(range(groups.count))
    weights = np.random.default_rng(0).normal(size=len(pattern))
    for part in (range(groups.count), range(groups.count // 2, groups.count)):
        taken = groups.weighted(part, weights)
        assert [rows.tolist() for rows, _ in taken] == [groups.members(group).tolist() for group in part]
        assert all(np.array_equal(own, weights[rows]) for rows, own in taken)
    for group in range(groups.count):
        members = groups.members(group)
        assert members.tolist() == np.flatnonzero(groups.group == group).tolist()
        assert held[members].sum(0).max(initial=0) <= 1
        expected = np.where(held[members].any(0), members[held[members].argmax(0)], NO_ENTRY)
        assert np.array_equal(groups.row_of(group), expected) and np.array_equal(rows_of[group], expected)
        assert not pattern.nothing[members].any() or (group == groups.count - 1 and pattern.nothing[members].all())


def assert_blocks(pattern):
    inputs, outputs = pattern.block_of_inputs(), pattern.block_of_outputs()
    live, place = np.nonzero(full(pattern))
    assert np.array_equal(outputs[live], inputs[place])
    assert np.array_equal(outputs == NO_ENTRY, pattern.nothing)
    assert sorted(set(inputs.tolist())) == list(range(pattern.blocks))


@given(pairs_of_patterns())
def test_no_two_members_of_a_column_group_share_an_output_and_every_output_has_its_column(pair):
    assert_columns(pair)


@given(patterns())
def test_no_two_outputs_of_a_row_group_share_an_input_and_every_input_has_its_row(pattern):
    assert_rows(pattern)


@given(patterns())
def test_outputs_depend_only_on_the_inputs_of_their_block(pattern):
    assert_blocks(pattern)


@given(patterns())
def test_the_matrix_is_what_the_windows_hold(pattern):
    assert np.array_equal(matrix(pattern), full(pattern))


@given(st.integers(0, 3), st.lists(st.integers(1, 4), max_size=3))
def test_dense_holds_everything(outputs, shape):
    assert np.array_equal(matrix(dense(shape, outputs)), np.ones((outputs, int(np.prod(shape)))))


W, W3 = normal(1, 5, 3), normal(2, 4, 4, 3)
X3 = normal(4, 4, 4, 64)
REPEATED = torch.tensor([0, 2, 2, 5, 2, 0])
ORDER = torch.randperm(12, generator=torch.Generator().manual_seed(5))

KNOWN = {
    "gelu": (F.gelu, normal(0, 4, 6), 1, 1, 24),
    "softmax of rows": (lambda x: F.softmax(x, -1), normal(0, 5, 4), 4, 4, 5),
    "softmax of columns": (lambda x: F.softmax(x, 0), normal(0, 5, 4), 5, 5, 4),
    "x @ W by x": (lambda x: x @ W, normal(0, 4, 5), 5, 3, 4),
    "x @ W by W": (lambda w: normal(0, 4, 5) @ w, W, 5, 4, 3),
    "conv1d by x": (lambda x: F.conv1d(x, W3), X3, 12, 12, 4),
    "conv1d with padding by x": (lambda x: F.conv1d(x, W3, padding=1), X3, 12, 12, 4),
    "conv1d with stride 2 by x": (lambda x: F.conv1d(x, W3, stride=2), X3[..., :33], 12, 8, 4),
    "conv1d by weight": (lambda w: F.conv1d(X3[:2, :, :8], w), W3, 12, 12, 4),
    "conv2d by x": (lambda x: F.conv2d(x, normal(3, 2, 1, 3, 3)), normal(0, 2, 1, 7, 8), 9, 18, 2),
    "embedding with repeats": (lambda w: F.embedding(REPEATED, w), normal(0, 6, 3), 1, 3, 18),
    "cumsum": (lambda x: torch.cumsum(x, 0), normal(0, 6), 6, 6, 1),
    "transpose": (lambda x: x.T * 2, normal(0, 4, 6), 1, 1, 24),
    "reshape": (lambda x: x.reshape(6, 4).sin(), normal(0, 4, 6), 1, 1, 24),
    "permutation": (lambda x: x[ORDER], normal(0, 12), 1, 1, 12),
    "broadcast of rows": (lambda x: x.expand(5, 4) * 2, normal(0, 4), 1, 5, 4),
    "broadcast of a number": (lambda x: x * normal(1, 7), leaf(1.5)[0], 1, 7, 1),
    "sum": (lambda x: x.sum(), normal(0, 3, 2), 6, 1, 1),
    "batched matmul": (lambda x: x @ normal(1, 3, 4, 2), normal(0, 3, 5, 4), 4, 2, 15),
    "relu with dead outputs": (torch.relu, leaf(-1.0, 2.0, -3.0, 4.0), 1, 2, 4),
    "max pool": (lambda x: F.max_pool1d(x, 2), normal(0, 1, 2, 8), 1, 1, 16),
    "flat neighbours across rows": (lambda x: x.reshape(-1).unfold(0, 2, 1).sum(-1), normal(0, 3, 4), 8, 8, 1),
    "complex square": (lambda z: z * z, normal(0, 5, dtype=torch.complex128), 2, 2, 5),
    "real part": (lambda z: z.real * 2, normal(0, 5, dtype=torch.complex128), 1, 1, 10),
    "complex number": (lambda z: z * 2j, leaf(1 + 2j, dtype=torch.complex128)[0], 1, 1, 2),
}


@pytest.mark.population(most=10)
@pytest.mark.parametrize("name", KNOWN)
def test_known_ops_have_the_groups_and_blocks_that_they_allow(name):
    forward, x, columns, rows, blocks = KNOWN[name]
    held = dependency(forward, x)
    pattern = pattern_of(held, (*x.shape, 2) if x.is_complex() else x.shape)
    groups = row_groups(pattern)
    assert (column_groups([pattern]).count, groups.count, pattern.blocks) == (columns, rows, blocks)
    assert not (held & ~full(pattern)).any()


@pytest.mark.population(most=10)
@pytest.mark.parametrize("name", [name for name in KNOWN if "conv1d" not in name])
def test_groups_of_known_ops_are_those_of_brute_force(name):
    forward, x, *_ = KNOWN[name]
    pattern = pattern_of(dependency(forward, x), (*x.shape, 2) if x.is_complex() else x.shape)
    assert_columns([pattern])
    assert_rows(pattern)
    assert_blocks(pattern)


def test_columns_of_two_outputs_are_as_far_apart_as_the_wider_one_needs():
    x = normal(0, 3, 4)
    both = [pattern_of(dependency(f, x), x.shape) for f in (torch.sin, lambda x: F.softmax(x, -1))]
    assert column_groups(both).count == 4
    assert [row_groups(p).count for p in both] == [1, 4]
    assert_columns(both)


def test_an_input_of_no_elements_has_no_members():
    pattern = dense((0, 3), 2)
    assert matrix(pattern).shape == (2, 0)
    assert column_groups([pattern]).colour().tolist() == []
    assert row_groups(pattern).row_of(0).tolist() == []


@settings(max_examples=20)
@given(st.integers(1, 40), st.integers(1, 7), st.integers(1, 4))
def test_a_band_has_as_many_groups_as_it_is_wide(n, kernel, stride):
    starts = np.arange(0, n, stride)
    band = Pattern((n,), (starts,), (np.minimum(starts + kernel, n) - 1,), np.zeros(len(starts), bool))
    assert column_groups([band]).count == min(kernel, n)
    assert row_groups(band).count == min(-(-kernel // stride), len(starts))
    assert_rows(band)


RUNS = {
    "softmax of rows": (lambda x: F.softmax(x, -1), (3, 4), 4),
    "two axes at once": (lambda x: x.flatten(1).softmax(1), (2, 3, 4), 12),
    "pointwise": (torch.sin, (3, 4), 1),
    "the sums of rows": (lambda x: x.sum(-1), (3, 4), 4),
    "one sum": (lambda x: x.sum(), (3, 4), 12),
    "softmax of columns": (lambda x: F.softmax(x, 0), (3, 4), 0),
    "transposed": (lambda x: x.T.softmax(0), (3, 4), 4),
    "a band": (lambda x: x[..., 1:] * x[..., :-1], (3, 4), 0),
    "half of the rows": (lambda x: x[:2].softmax(-1), (4, 3), 0),
    "rows turned round": (lambda x: x.flip(0), (3, 4), 0),
}


@pytest.mark.parametrize("name", RUNS)
def test_windows_that_are_runs_in_order_are_told_as_such(name):
    forward, shape, width = RUNS[name]
    pattern = dependency(forward, normal(1, *shape))
    groups = row_groups(pattern_of(pattern, shape))
    runs = groups.runs(range(groups.count))
    assert (runs[1] if runs else 0) == width
    assert_rows(groups.pattern)
    if runs:
        rows, width = runs
        held = pattern[rows].reshape(groups.count, -1, pattern.shape[1])
        for group in held:
            assert np.array_equal(group, np.repeat(np.eye(len(group), dtype=bool), width, 1))
