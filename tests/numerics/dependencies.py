"""Which inputs really move which outputs, found without gradverify: Jacobians of torch's own, and
windows drawn around them by brute force."""

import itertools

import numpy as np

from gradverify.numerics.sparsity.pattern import Pattern


def pattern_of(depends_on, shape):
    """The narrowest windows that hold a dependency matrix [M, N], element by element."""
    low = np.zeros((len(shape), len(depends_on)), np.intp)
    high = np.full((len(shape), len(depends_on)), -1)
    for m, row in enumerate(depends_on):
        places = [
            index
            for index, depends in zip(itertools.product(*map(range, shape)), row, strict=True)
            if depends
        ]
        for k in range(len(shape)):
            if places:
                low[k, m], high[k, m] = min(p[k] for p in places), max(p[k] for p in places)
    return Pattern(tuple(shape), tuple(low), tuple(high), ~depends_on.any(1))


def full(pattern):
    """All that the windows hold [M, N], element by element."""
    result = np.zeros((len(pattern), pattern.size), bool)
    for m, (n, index) in itertools.product(
        range(len(pattern)), enumerate(itertools.product(*map(range, pattern.shape)))
    ):
        inside = all(pattern.low[k][m] <= at <= pattern.high[k][m] for k, at in enumerate(index))
        result[m, n] = inside and not pattern.nothing[m]
    return result
