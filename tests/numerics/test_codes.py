"""Codes of slices: how many calls, and that a union of words is never taken for a word."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gradverify.numerics.sparsity import codes
from gradverify.numerics.sparsity.pattern import NO_ENTRY


def ones(code):
    return np.sum([code.slices(call) for call in range(code.calls)], 0)


@given(st.integers(1, 300), st.integers(0, 9))
def test_an_exact_code_has_a_word_of_one_weight_for_every_slice(n, seed):
    code = codes.exact(n, np.random.default_rng(seed))
    assert code.exact
    assert len(code.words) == n
    assert (ones(code) == code.weight).all()
    assert np.array_equal(code.decode(code.words), np.arange(n))


@pytest.mark.parametrize("n, calls", [(2, 2), (6, 4), (10, 5), (16, 6), (20, 6), (64, 8), (70, 8), (71, 9), (1000, 13), (1_000_000, 23)])
def test_an_exact_code_takes_the_calls_of_sperners_bound(n, calls):
    code = codes.exact(n, np.random.default_rng(0))
    assert (code.calls, code.exact) == (calls, True)


@settings(max_examples=30)
@given(st.integers(2, 24), st.integers(0, 9))
def test_an_output_of_several_slices_is_no_slice(n, seed):
    code = codes.exact(n, np.random.default_rng(seed))
    several = np.array([np.bitwise_or.reduce(code.words[list(s)]) for k in (2, 3) for s in combinations(range(n), k)], np.intp)
    assert (code.decode(several) == NO_ENTRY).all()
    assert code.decode(np.zeros(1, np.intp)) == NO_ENTRY


@given(st.integers(6, 400), st.integers(0, 9))
def test_halves_are_balanced_and_neighbours_in_six_differ(n, seed):
    code = codes.halves(n, np.random.default_rng(seed))
    assert (ones(code) == 2).all()
    assert all(abs(2 * np.count_nonzero(code.slices(call)) - n) <= 6 for call in range(4))
    assert all(len(set(code.words[k : k + 6].tolist())) == len(code.words[k : k + 6]) for k in range(0, n, 6))


@given(st.integers(100, 400), st.integers(0, 9))
def test_mixed_words_are_those_of_halves_and_each_is_drawn(n, seed):
    code = codes.mixed(n, np.random.default_rng(seed))
    assert (code.calls, code.weight, len(code.words)) == (4, 2, n)
    assert set(code.words.tolist()) == set(codes.halves(6, np.random.default_rng(0)).words.tolist())


@given(st.integers(1, 400), st.integers(0, 9))
def test_an_extended_code_is_exact_and_begins_as_before(n, seed):
    before = codes.halves(n, np.random.default_rng(seed))
    code = before.extended()
    assert code.exact
    assert (ones(code) == code.weight).all()
    assert all(np.array_equal(code.slices(call), before.slices(call)) for call in range(before.calls))
    assert np.array_equal(code.decode(code.words), np.arange(n))


def test_a_code_of_slices_alone_lists_what_moved():
    code = codes.one_at_a_time(5)
    assert [np.flatnonzero(code.slices(call)).tolist() for call in range(code.calls)] == [[0], [1], [2], [3], [4]]
