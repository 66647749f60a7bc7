"""Detected windows hold every true dependency; known ops show their structure within a counted number of calls."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from gradverify.numerics.seeds import Seed
from gradverify.numerics.sparsity.detect import PointProbe, detect
from gradverify.numerics.sparsity.pattern import column_groups, row_groups
from numerics.dependencies import full, pattern_of
from numerics.differentiable import Differentiable, leaf, normal
from numerics.windows import point_of


class MatrixProbe:
    """A dependency matrix [M, N] as a black box."""

    def __init__(self, matrix, shape):
        self.matrix, self.shape, self.calls = matrix.astype(np.float32), shape, 0

    def moved(self, axis, slices):
        self.calls += 1
        chosen = np.zeros((self.matrix.shape[1] // (len(slices) * math.prod(self.shape[axis + 1 :])), len(slices), *self.shape[axis + 1 :]), bool)
        chosen[:, slices] = True
        return self.matrix @ chosen.reshape(-1).astype(np.float32) > 0


def found(matrix, shape, outputs=None, seed=0, **options):
    probe = MatrixProbe(matrix, shape)
    return detect(probe, shape, [(len(matrix),)] if outputs is None else outputs, Seed(seed), **options), probe.calls


def missed(matrix, patterns):
    return matrix & ~np.concatenate([full(p) for p in patterns])


@st.composite
def matrices(draw, longest):
    """Dependencies without order, sparse to full, with outputs that depend on nothing."""
    shape = tuple(draw(st.lists(st.integers(1, longest), max_size=3 if longest < 9 else 1)))
    generator = np.random.default_rng(draw(st.integers(0, 2**20)))
    matrix = generator.random((draw(st.integers(1, 12)), int(np.prod(shape)))) < draw(st.sampled_from([0.02, 0.1, 0.3, 1.0]))
    return matrix & (generator.random((len(matrix), 1)) < 0.8), shape


@given(matrices(longest=6), st.integers(0, 3))
def test_windows_of_short_axes_are_the_narrowest_unless_dense(case, seed):
    matrix, shape = case
    (pattern,), _ = found(matrix, shape, seed=seed)
    truth = pattern_of(matrix, shape)
    assert not missed(matrix, [pattern]).any()
    assert np.array_equal(pattern.nothing, truth.nothing)
    for k, n in enumerate(shape):
        whole = ((pattern.low[k] == 0) & (pattern.high[k] == n - 1) | pattern.nothing).all()
        assert whole or (np.array_equal(pattern.low[k], truth.low[k]) and np.array_equal(pattern.high[k], truth.high[k]))


@given(matrices(longest=20), st.integers(0, 3))
def test_no_dependency_on_axes_up_to_twenty_is_missed(case, seed):
    matrix, shape = case
    assert not missed(matrix, found(matrix, shape, seed=seed)[0]).any()


@given(matrices(longest=90), st.integers(0, 3))
def test_without_a_guess_no_dependency_is_missed_on_any_axis(case, seed):
    matrix, shape = case
    patterns, calls = found(matrix, shape, seed=seed, guess=False)
    assert not missed(matrix, patterns).any()
    assert calls <= 2 + 4 + 8 + 64 + 1


@given(matrices(longest=8), st.integers(0, 12))
def test_output_tensors_are_told_apart(case, cut):
    matrix, shape = case
    cut = min(cut, len(matrix))
    patterns, _ = found(matrix, shape, outputs=[(cut,), (len(matrix) - cut,)])
    assert [len(p) for p in patterns] == [cut, len(matrix) - cut]
    assert not missed(matrix, patterns).any()


@settings(max_examples=40)
@given(st.integers(21, 150), st.integers(0, 2**20), st.sampled_from(["reverse", "shift", "permute", "gather", "repeat"]))
def test_one_slice_an_output_is_found_in_any_order(n, seed, order):
    generator = np.random.default_rng(seed)
    slices = {"reverse": np.arange(n)[::-1], "shift": np.roll(np.arange(n), 1), "permute": generator.permutation(n),
              "gather": generator.integers(0, n, 2 * n), "repeat": np.repeat(np.arange(n), 3)}[order]
    (pattern,), calls = found(np.eye(n, dtype=bool)[slices], (n,), seed=seed)
    assert np.array_equal(pattern.low[0], slices)
    assert np.array_equal(pattern.high[0], slices)
    assert calls <= 4 + 6 + int(np.ceil(np.log2(n)))


@settings(max_examples=40)
@given(st.integers(40, 400), st.integers(2, 7), st.integers(1, 3), st.integers(0, 2**20))
def test_bands_are_found_at_their_width(n, kernel, stride, seed):
    starts = np.arange(0, n - kernel + 1, stride)
    at = np.arange(n)
    matrix = (at >= starts[:, None]) & (at < starts[:, None] + kernel)
    (pattern,), calls = found(matrix, (n,), seed=seed)
    assert np.array_equal(pattern.low[0], starts)
    assert np.array_equal(pattern.high[0], starts + kernel - 1)
    assert calls <= 4 + 4 + 64


@settings(max_examples=20)
@given(st.integers(30, 200), st.integers(0, 2**20))
def test_outputs_of_far_slices_among_others_keep_both(n, seed):
    matrix = np.eye(n, dtype=bool)
    generator = np.random.default_rng(seed)
    to, leak = generator.choice(n, 2, replace=False)
    matrix[to, leak] = True
    (pattern,), _ = found(matrix, (n,), seed=seed, guess=False)
    assert pattern.low[0][to] <= min(to, leak) < max(to, leak) <= pattern.high[0][to]
    assert np.array_equal(np.delete(pattern.low[0], to), np.delete(np.arange(n), to))


def test_a_guess_misses_a_leak_of_one_slice_one_time_in_six():
    n, seen = 60, 0
    for seed in range(200):
        matrix = np.eye(n, dtype=bool)
        matrix[5, 40] = True
        (pattern,), _ = found(matrix, (n,), seed=seed)
        seen += bool(pattern.high[0][5] >= 40)
    assert 150 <= seen <= 185


def test_a_swap_beside_the_order_is_no_order():
    n = 60
    swapped = np.arange(n)
    swapped[[2, 3]] = [3, 2]
    for seed in range(20):
        (pattern,), _ = found(np.eye(n, dtype=bool)[swapped], (n,), seed=seed)
        assert np.array_equal(pattern.low[0], swapped)


@pytest.mark.parametrize("live", [[1], [1, 2], [1, 2, 3]])
def test_a_few_live_outputs_are_no_evidence_of_order(live):
    for seed in range(30):
        matrix = np.zeros((60, 60), bool)
        matrix[live, np.array(live) + 39] = True
        (pattern,), _ = found(matrix, (60,), seed=seed)
        assert pattern.low[0][live].tolist() == [place + 39 for place in live]
        assert np.count_nonzero(pattern.nothing) == 60 - len(live)


@pytest.mark.parametrize("shape, outputs, size", [((0, 3), [(2,)], 2), ((4,), [(0,)], 0), ((4,), [], 0)])
def test_nothing_is_called_where_there_is_nothing(shape, outputs, size):
    patterns, calls = found(np.zeros((size, int(np.prod(shape))), bool), shape, outputs=outputs)
    assert (calls, len(patterns)) == (0, len(outputs))
    assert all(p.nothing.all() for p in patterns)


class Hesitant(MatrixProbe):
    """Outputs on a tie move in every other call only."""

    def __init__(self, matrix, shape, ties):
        super().__init__(matrix, shape)
        self.ties, self._moves = ties, np.zeros(len(matrix), int)

    def moved(self, axis, slices):
        moved = super().moved(axis, slices)
        self._moves += moved
        return moved & ~(self.ties & (self._moves % 2 == 1))


@pytest.mark.parametrize("n", [8, 64])
def test_outputs_on_a_tie_do_not_hide_the_order_of_the_others(n):
    probe = Hesitant(np.eye(n, dtype=bool), (n,), np.isin(np.arange(n), [1, 5]))
    (pattern,) = detect(probe, (n,), [(n,)], Seed(0))
    assert np.array_equal(pattern.low[0], np.arange(n))
    assert pattern.widths == (1,)


class Losers(MatrixProbe):
    """Outputs of two neighbours; the right one moves them by turns only, as the loser of a maximum. Keeps what it was asked and answered."""

    def __init__(self, n):
        winners = np.eye(n, dtype=bool)[::2]
        super().__init__(winners, (n,))
        self.losers, self.asked, self.up = np.roll(winners, 1, axis=1).astype(np.float32), [], np.arange(n) % 3 == 0

    def moved(self, axis, slices):
        answer = super().moved(axis, slices) | (self.losers @ (slices & self.up) > 0)
        self.up = self.up ^ slices
        self.asked.append((slices, answer))
        return answer


@pytest.mark.parametrize("n", [12, 64, 100])
def test_what_moved_an_output_in_the_first_calls_is_in_its_window(n):
    wide = 0
    for seed in range(10):
        probe = Losers(n)
        (pattern,) = detect(probe, (n,), [(n // 2,)], Seed(seed))
        for slices, moved in probe.asked[:4]:
            inside = [slices[low : high + 1].any() for low, high in zip(pattern.low[0][moved], pattern.high[0][moved], strict=True)]
            assert all(inside)
        wide += pattern.widths[0] > 2
    assert wide == 0    # a second look, both ways, sees the loser


def at(forward, *inputs):
    return point_of(Differentiable(forward, *inputs))


def structure(point, tensor, seed=0, threshold=None):
    probe = PointProbe(point, tensor, Seed(seed), threshold)
    shapes = [(*shape, 2) if dtype.is_complex else tuple(shape) for shape, dtype, _ in point.shapes]
    return detect(probe, probe.shape, shapes, Seed(seed)), probe.calls


ORDER = torch.randperm(64, generator=torch.Generator().manual_seed(3))
REPEATED = torch.arange(60) % 37 * 3 % 50
X, IMAGE = normal(0, 64, 64), normal(0, 2, 3, 24, 24)
COMPLEX = normal(0, 32, 8, dtype=torch.complex128)
QKV = [normal(k, 2, 32, 16) for k in range(3)]
ATTENTION = (F.scaled_dot_product_attention, QKV)
SIGNAL, KERNEL = normal(0, 4, 4, 64), normal(1, 4, 4, 3)
LINEAR = (torch.matmul, [normal(0, 32, 128), normal(1, 128, 10)])
BATCHED = (torch.matmul, [normal(0, 8, 30, 24), normal(1, 8, 24, 10)])
NORMED = (lambda x, w, b: F.layer_norm(x, (32,), w, b), [normal(0, 64, 32), normal(1, 32), normal(2, 32)])

OPS = {
    # forward and inputs, which input, calls at most, column groups, row groups
    "gelu": ((F.gelu, [X]), 0, 4, 1, 1),
    "gelu in float32": ((F.gelu, [X.float()]), 0, 4, 1, 1),
    "two outputs": ((lambda x: (x.sin(), x * 2), [X]), 0, 4, 1, 1),
    "relu, some outputs dead": ((torch.relu, [X]), 0, 5, 1, 2),
    "relu with many exact zeros": ((torch.relu, [torch.where(X > 0.5, 0.0, X)]), 0, 5, 1, 2),
    "broadcast of rows": ((lambda x: x * normal(3, 30, 50), [normal(0, 50)]), 0, 4, 1, 30),
    "broadcast of a column": ((lambda x: x * normal(3, 30, 50), [normal(0, 30, 1)]), 0, 4, 1, 50),
    "broadcast of a number": ((lambda x: x * normal(3, 5), [leaf(2.0)[0]]), 0, 1, 1, 5),
    "reshape": ((lambda x: x.reshape(32, 128).sin(), [X]), 0, 4, 1, 1),
    "transpose": ((lambda x: x.T * 2, [X]), 0, 1 + 8, 1, 1),
    "heads split and moved": ((lambda x: x.reshape(2, 30, 4, 8).transpose(1, 2) * 2, [normal(0, 2, 30, 32)]), 0, 1 + 14, 1, 1),
    "permuted rows": ((lambda x: x[ORDER], [X]), 0, 1 + 14, 1, 1),
    "permuted vector": ((lambda x: x[ORDER], [X[0]]), 0, 10, 1, 1),
    "embedding with repeats": ((lambda w: F.embedding(REPEATED, w), [normal(0, 50, 16)]), 0, 16, 1, 2),
    "softmax of rows": ((lambda x: F.softmax(x, -1), [normal(0, 128, 16)]), 0, 10, 16, 16),
    "layer_norm by x": (NORMED, 0, 1 + 10, 32, 32),
    "layer_norm by weight": (NORMED, 1, 4, 1, 64),
    "layer_norm by bias": (NORMED, 2, 4, 1, 64),
    "x @ W by x": (LINEAR, 0, 10, 128, 10),
    "x @ W by W": (LINEAR, 1, 12, 128, 32),
    "batched matmul by x": (BATCHED, 0, 16, 24, 10),
    "batched matmul by y": (BATCHED, 1, 16, 24, 30),
    "block tail": ((lambda x: torch.cat([F.softmax(b, 0) for b in x.split(256)]), [normal(0, 1000)]), 0, 48, 256, 256),
    "conv1d by x": ((F.conv1d, [SIGNAL, KERNEL]), 0, 36, 12, 12),
    "conv1d by weight": ((F.conv1d, [SIGNAL, KERNEL]), 1, 12, 12, 248),
    "conv1d with padding": ((lambda x, w: F.conv1d(x, w, padding=1), [SIGNAL, KERNEL]), 0, 36, 12, 12),
    "conv1d, 15 wide": ((lambda x, w: F.conv1d(x, w, padding=7), [normal(0, 2, 1, 512), normal(1, 1, 1, 15)]), 0, 66, 15, 15),
    "conv2d by x": ((lambda x, w: F.conv2d(x, w, padding=1), [IMAGE, normal(1, 4, 3, 3, 3)]), 0, 46, 27, 36),
    "attention by q": (ATTENTION, 0, 14, 16, 16),
    "attention by k": (ATTENTION, 1, 14, 512, 512),
    "attention by v": (ATTENTION, 2, 14, 32, 32),
    "max pool with a tie": ((lambda x: F.max_pool1d(x, 2), [normal(0, 4, 8, 64)]), 0, 60, 2, 2),
    "sort of spread numbers": ((lambda x: torch.sort(x, -1)[0], [leaf(*[1.1**k for k in range(-32, 32)])[ORDER]]), 0, 10, 1, 1),
    "cumsum": ((lambda x: torch.cumsum(x, -1), [normal(0, 64)]), 0, 20, 64, 64),
    "sum": ((lambda x: x.sum(), [X]), 0, 12, 4096, 1),
    "W relu(x), some of x dead": ((lambda x: normal(1, 50, 60) @ torch.relu(x), [normal(0, 60)]), 0, 24, 60, 50),
    "complex exp": ((torch.exp, [COMPLEX]), 0, 12, 2, 2),
    "real part": ((lambda z: z.real * 2, [COMPLEX]), 0, 12, 1, 1),
    "an input that is not used": ((lambda x, y: x * 2, [normal(0, 30), normal(1, 40)]), 1, 5, 1, 1),
}


ELEMENTWISE = {"gelu": F.gelu, "relu": torch.relu, "reshape": lambda x: x.reshape(40, 30).exp(),
               "two outputs": lambda x: (x.sin(), torch.relu(x).reshape(-1))}


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_an_elementwise_function_is_told_as_axis_by_axis(name):
    point = at(ELEMENTWISE[name], normal(0, 30, 40))
    probe = PointProbe(point, 0, Seed(0))
    shapes = [tuple(shape) for shape, *_ in point.shapes]
    at_once, slowly = (detect(probe, probe.shape, shapes, Seed(0), guess=guess) for guess in (True, False))
    for fast, slow in zip(at_once, slowly, strict=True):
        assert fast.shape == slow.shape and np.array_equal(fast.nothing, slow.nothing)
        live = ~fast.nothing
        assert all(np.array_equal(f[live], s[live]) for f, s in zip((*fast.low, *fast.high), (*slow.low, *slow.high), strict=True))
        assert fast.pointwise == bool(live.all()) and not slow.pointwise


def test_what_is_known_to_be_pointwise_has_the_groups_of_its_windows():
    point = at(F.gelu, normal(0, 30, 40))
    probe = PointProbe(point, 0, Seed(0))
    (known,) = detect(probe, probe.shape, [(30, 40)], Seed(0))
    plain = replace(known, pointwise=False)
    assert known.pointwise
    assert known.rows.count == plain.rows.count == 1 and np.array_equal(known.rows.rows_of(range(1)), plain.rows.rows_of(range(1)))
    own, wanted = column_groups([known]), column_groups([plain])
    assert own.count == wanted.count == 1 and np.array_equal(own.columns_of(range(1)), wanted.columns_of(range(1)))
    assert np.array_equal(known.rows.group, plain.rows.group) and np.array_equal(known.rows.members(0), plain.rows.members(0))


@pytest.mark.parametrize("name", ["one further", "rows turned", "half of it", "the other way round"])
def test_what_is_not_elementwise_is_not_taken_for_it(name):
    n = 30 * 40
    matrix = {"one further": np.roll(np.eye(n, dtype=bool), 1, 0), "rows turned": np.kron(np.eye(30, dtype=bool), np.eye(40, dtype=bool)[::-1]),
              "half of it": np.eye(n, dtype=bool) | (np.eye(n, k=40, dtype=bool) & (np.arange(n) % 2 == 0)),
              "the other way round": np.eye(n, dtype=bool)[::-1]}[name]
    (pattern,), _ = found(matrix, (30, 40))
    assert not missed(matrix, [pattern]).any()


@pytest.mark.population(most=20)
@pytest.mark.parametrize("name", OPS)
def test_known_ops_show_their_groups_in_few_calls(name):
    (forward, inputs), tensor, most, columns, rows = OPS[name]
    patterns, calls = structure(at(forward, *inputs), tensor)
    assert all((column_groups([pattern]).count, row_groups(pattern).count) == (columns, rows) for pattern in patterns)
    assert calls <= most


@pytest.mark.population(most=8)
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("name", ["gelu", "softmax of rows", "permuted rows", "conv1d by x", "attention by v", "embedding with repeats"])
def test_what_is_found_does_not_hang_on_the_draw(name, seed):
    (forward, inputs), tensor, most, columns, rows = OPS[name]
    (pattern,), calls = structure(at(forward, *inputs), tensor, seed)
    assert (column_groups([pattern]).count, row_groups(pattern).count) == (columns, rows)
    assert calls <= most + 6


def test_outputs_of_different_structure_share_the_calls():
    patterns, calls = structure(at(lambda x: (F.softmax(x, -1), x.sin(), x.sum(0)), normal(0, 40, 30)), 0)
    assert [p.widths for p in patterns] == [(1, 30), (1, 1), (40, 1)]
    assert calls <= 16


def test_noise_below_the_threshold_leaves_the_structure():
    generator = torch.Generator().manual_seed(0)
    noisy = at(lambda x: F.softmax(x, -1) + 1e-12 * torch.randn(x.shape, generator=generator, dtype=x.dtype), normal(0, 128, 16))
    (pattern,), _ = structure(noisy, 0, threshold=np.full(2048, 8e-12))
    assert column_groups([pattern]).count == 16
    assert row_groups(pattern).count == 16


def test_noise_without_a_threshold_is_dense():
    generator = torch.Generator().manual_seed(0)
    noisy = at(lambda x: x + 1e-12 * torch.randn(x.shape, generator=generator, dtype=x.dtype), normal(0, 24, 6))
    (pattern,), calls = structure(noisy, 0)
    assert column_groups([pattern]).count == 144
    assert calls <= 12


def test_a_loser_within_the_step_is_in_the_window_when_it_was_heard_and_never_widens_other_windows():
    """The known limit: it is heard only where it moves up while the winner stays."""
    x, windows = torch.arange(1.0, 65, dtype=torch.float64), []
    x[40] = x[41] * (1 - 1e-4)
    for seed in range(12):
        (pattern,), _ = structure(at(lambda x: F.max_pool1d(x[None], 2)[0], x), 0, seed)
        windows.append((int(pattern.low[0][20]), int(pattern.high[0][20])))
        assert np.array_equal(np.delete(pattern.low[0], 20), np.delete(np.arange(1, 65, 2), 20))
    assert set(windows) == {(40, 41), (41, 41)}


def test_a_forward_that_raises_when_perturbed_is_dense():
    x = leaf(*range(1, 31))

    def raising(v):
        if not torch.equal(v, x):
            raise ValueError("only at the point")
        return v * 1
    (pattern,), _ = structure(at(raising, x), 0)
    assert pattern.widths == (30,)
    assert not pattern.nothing.any()


def test_a_term_that_rounding_hides_is_not_seen():
    """The known limit."""
    (pattern,), _ = structure(at(lambda x: (1e10 * x[0] + 1e-5 * x[1])[None], leaf(1.0, 1.0)), 0)
    assert pattern.high[0].tolist() == [0]
    (pattern,), _ = structure(at(lambda x: (1e10 * x[0] + 1e-2 * x[1])[None], leaf(1.0, 1.0)), 0)
    assert pattern.high[0].tolist() == [1]


@pytest.mark.parametrize("forward, columns", [(torch.sin, 1), (lambda x: x.T * 2, 1), (lambda x: F.softmax(x, -1), 1000),
                                              (lambda x: x.reshape(-1).flip(0), 1)])
def test_a_million_elements_take_at_most_forty_calls(forward, columns):
    point = at(forward, normal(0, 1000, 1000))
    before = point.forward
    (pattern,), calls = structure(point, 0)
    assert column_groups([pattern]).count == columns
    assert calls == point.forward - before <= 40
