"""Groups of columns and rows against brute force on small dependency matrices, and the counts that
known ops must have."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gradverify.numerics.sparsity.pattern import NO_ENTRY, Pattern, column_groups
from numerics.dependencies import full


@st.composite
def patterns(draw, shape=None):
    """Arbitrary windows, some outputs that depend on nothing."""
    shape = draw(st.lists(st.integers(1, 5), max_size=3)) if shape is None else shape
    outputs = draw(st.integers(1, 9))
    nothing = np.array(
        draw(st.lists(st.sampled_from([False, False, True]), min_size=outputs, max_size=outputs))
    )
    ends = [
        [sorted((draw(st.integers(0, n - 1)), draw(st.integers(0, n - 1)))) for _ in range(outputs)]
        for n in shape
    ]
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
        expected = np.where(
            members.any(1), np.flatnonzero(colour == group)[members.argmax(1)], NO_ENTRY
        )
        assert np.array_equal(groups.columns_of(range(group, group + 1))[0], expected)
    assert colour.max(initial=0) < groups.count


def assert_rows(pattern):
    groups, held = pattern.rows, full(pattern)
    assert sorted(set(groups.group.tolist())) == list(range(groups.count))
    rows_of = groups.rows_of(range(groups.count))
    weights = np.random.default_rng(0).normal(size=len(pattern))
    for part in (range(groups.count), range(groups.count // 2, groups.count)):
        taken = groups.weighted(part, weights)
        assert [rows.tolist() for rows, _ in taken] == [
            groups.members(group).tolist() for group in part
        ]
        assert all(np.array_equal(own, weights[rows]) for rows, own in taken)
    for group in range(groups.count):
        members = groups.members(group)
        assert members.tolist() == np.flatnonzero(groups.group == group).tolist()
        assert held[members].sum(0).max(initial=0) <= 1
        expected = np.where(held[members].any(0), members[held[members].argmax(0)], NO_ENTRY)
        assert np.array_equal(
            groups.rows_of(range(group, group + 1))[0], expected
        ) and np.array_equal(rows_of[group], expected)
    assert not groups.group[pattern.nothing].any()


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
