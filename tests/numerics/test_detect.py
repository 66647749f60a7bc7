"""Detected windows hold every true dependency; known ops show their structure within a counted
number of calls."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from gradverify.numerics.seeds import Seed
from gradverify.numerics.sparsity.detect import PointProbe, detect
from gradverify.numerics.sparsity.pattern import column_groups
from numerics.dependencies import full, pattern_of
from numerics.differentiable import Differentiable, leaf, normal
from numerics.windows import point_of


class MatrixProbe:
    """A dependency matrix [M, N] as a black box."""

    def __init__(self, matrix, shape):
        self.matrix, self.shape, self.calls = matrix.astype(np.float32), shape, 0

    def moved(self, axis, slices):
        self.calls += 1
        chosen = np.zeros(
            (
                self.matrix.shape[1] // (len(slices) * math.prod(self.shape[axis + 1 :])),
                len(slices),
                *self.shape[axis + 1 :],
            ),
            bool,
        )
        chosen[:, slices] = True
        return self.matrix @ chosen.reshape(-1).astype(np.float32) > 0


def found(matrix, shape, outputs=None, seed=0, **options):
    probe = MatrixProbe(matrix, shape)
    return detect(
        probe, shape, [(len(matrix),)] if outputs is None else outputs, Seed(seed), **options
    ), probe.calls


def missed(matrix, patterns):
    return matrix & ~np.concatenate([full(p) for p in patterns])


@st.composite
def matrices(draw, longest):
    """Dependencies without order, sparse to full, with outputs that depend on nothing."""
    shape = tuple(draw(st.lists(st.integers(1, longest), max_size=3 if longest < 9 else 1)))
    generator = np.random.default_rng(draw(st.integers(0, 2**20)))
    matrix = generator.random((draw(st.integers(1, 12)), int(np.prod(shape)))) < draw(
        st.sampled_from([0.02, 0.1, 0.3, 1.0])
    )
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
        assert whole or (
            np.array_equal(pattern.low[k], truth.low[k])
            and np.array_equal(pattern.high[k], truth.high[k])
        )


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
NORMED = (
    lambda x, w, b: F.layer_norm(x, (32,), w, b),
    [normal(0, 64, 32), normal(1, 32), normal(2, 32)],
)

OPS = {
    # forward and inputs, which input, calls at most, column groups, row groups
    "gelu": ((F.gelu, [X]), 0, 4, 1, 1),
    "two outputs": ((lambda x: (x.sin(), x * 2), [X]), 0, 4, 1, 1),
    "relu, some outputs dead": ((torch.relu, [X]), 0, 5, 1, 1),
    "broadcast of rows": ((lambda x: x * normal(3, 30, 50), [normal(0, 50)]), 0, 4, 1, 30),
    "broadcast of a number": ((lambda x: x * normal(3, 5), [leaf(2.0)[0]]), 0, 1, 1, 5),
    "transpose": ((lambda x: x.T * 2, [X]), 0, 1 + 8, 1, 1),
    "heads split and moved": (
        (lambda x: x.reshape(2, 30, 4, 8).transpose(1, 2) * 2, [normal(0, 2, 30, 32)]),
        0,
        1 + 14,
        1,
        1,
    ),
    "permuted vector": ((lambda x: x[ORDER], [X[0]]), 0, 10, 1, 1),
    "embedding with repeats": (
        (lambda w: F.embedding(REPEATED, w), [normal(0, 50, 16)]),
        0,
        16,
        1,
        2,
    ),
    "layer_norm by x": (NORMED, 0, 1 + 10, 32, 32),
    "layer_norm by weight": (NORMED, 1, 4, 1, 64),
    "x @ W by W": (LINEAR, 1, 12, 128, 32),
    "block tail": (
        (lambda x: torch.cat([F.softmax(b, 0) for b in x.split(256)]), [normal(0, 1000)]),
        0,
        48,
        256,
        256,
    ),
    "conv1d by x": ((F.conv1d, [SIGNAL, KERNEL]), 0, 36, 12, 12),
    "conv1d by weight": ((F.conv1d, [SIGNAL, KERNEL]), 1, 12, 12, 248),
    "attention by v": (ATTENTION, 2, 14, 32, 32),
    "max pool with a tie": ((lambda x: F.max_pool1d(x, 2), [normal(0, 4, 8, 64)]), 0, 60, 2, 2),
    "sort of spread numbers": (
        (lambda x: torch.sort(x, -1)[0], [leaf(*[1.1**k for k in range(-32, 32)])[ORDER]]),
        0,
        10,
        1,
        1,
    ),
    "sum": ((lambda x: x.sum(), [X]), 0, 12, 4096, 1),
    "W relu(x), some of x dead": (
        (lambda x: normal(1, 50, 60) @ torch.relu(x), [normal(0, 60)]),
        0,
        24,
        60,
        50,
    ),
    "complex exp": ((torch.exp, [COMPLEX]), 0, 12, 2, 2),
    "an input that is not used": ((lambda x, y: x * 2, [normal(0, 30), normal(1, 40)]), 1, 5, 1, 1),
}


@pytest.mark.parametrize(
    "name", ["one further", "rows turned", "half of it", "the other way round"]
)
def test_what_is_not_elementwise_is_not_taken_for_it(name):
    n = 15 * 20
    matrix = {
        "one further": np.roll(np.eye(n, dtype=bool), 1, 0),
        "rows turned": np.kron(np.eye(15, dtype=bool), np.eye(20, dtype=bool)[::-1]),
        "half of it": np.eye(n, dtype=bool)
        | (np.eye(n, k=20, dtype=bool) & (np.arange(n) % 2 == 0)),
        "the other way round": np.eye(n, dtype=bool)[::-1],
    }[name]
    (pattern,), _ = found(matrix, (15, 20))
    assert not missed(matrix, [pattern]).any()


@pytest.mark.population(most=20)
@pytest.mark.parametrize("name", OPS)
def test_known_ops_show_their_groups_in_few_calls(name):
    (forward, inputs), tensor, most, columns, rows = OPS[name]
    patterns, calls = structure(at(forward, *inputs), tensor)
    groups = {(column_groups([pattern]).count, pattern.rows.count) for pattern in patterns}
    # The tie shows only in some directions
    assert groups == {(columns, rows)} or ("tie" in name and groups == {(1, 1)})
    assert calls <= most


def test_noise_below_the_threshold_leaves_the_structure():
    generator = torch.Generator().manual_seed(0)
    noisy = at(
        lambda x: (
            F.softmax(x, -1) + 1e-12 * torch.randn(x.shape, generator=generator, dtype=x.dtype)
        ),
        normal(0, 128, 16),
    )
    (pattern,), _ = structure(noisy, 0, threshold=np.full(2048, 8e-12))
    assert column_groups([pattern]).count == 16
    assert pattern.rows.count == 16


def test_a_forward_that_raises_when_perturbed_is_dense():
    x = leaf(*range(1, 31))

    def raising(v):
        if not torch.equal(v, x):
            raise ValueError("only at the point")
        return v * 1

    (pattern,), _ = structure(at(raising, x), 0)
    assert pattern.widths == (30,)
    assert not pattern.nothing.any()


@pytest.mark.parametrize(
    "forward, columns",
    [
        (torch.sin, 1),
        (lambda x: x.T * 2, 1),
        (lambda x: F.softmax(x, -1), 1000),
        (lambda x: x.reshape(-1).flip(0), 1),
    ],
)
def test_a_million_elements_take_at_most_forty_calls(forward, columns):
    point = at(forward, normal(0, 1000, 1000))
    before = point.forward
    (pattern,), calls = structure(point, 0)
    assert column_groups([pattern]).count == columns
    assert calls == point.forward - before <= 40
