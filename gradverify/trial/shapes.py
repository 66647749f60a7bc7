"""Shapes for tensors: of the first one, and of others beside it, by what they are called and by the sizes they could share."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

Shape = tuple[int, ...]

BASES: tuple[Shape, ...] = ((2, 3), (2, 3, 4), (2, 4, 5, 6), (3,), (2, 4, 4), (4, 4), (2, 8), (1, 4, 8, 8), (2, 6), (6,), (2, 2, 4, 4, 4), (1,), ())
"""Of the first tensor, in the order in which they are tried: sizes that differ first, so that no two dimensions can be mixed up; then equal
ones, and those that can be halved. Small, so that every element of the Jacobian is compared."""
OUT, FILTERS = 4, 3     # sizes that the first bases do not have there: rows of a weight, output channels of a convolution

WEIGHT = re.compile(r"^(w\d?|weights?|kernels?|filters?|mat2|wt?|.*_weight|codebook|prototypes|table)$")
BIAS = re.compile(r"^(b\d?|bias|.*_bias)$")
PER_FEATURE = re.compile(r"^(gamma|beta|running_mean|running_var|mean|var|invstd|inv_std|rstd|std|scale|shift|loc|slope|g)$")
ROTARY = re.compile(r"^(cos|sin|.*_(cos|sin)|(cos|sin)_.*|freqs.*|rotary.*)$")
SCALAR = re.compile(r"^(alpha|temperature|temp|tau|t|lam|lambda_?|eps|step_size|threshold|logit_scale|curvature|c|clip.*|factor|n|k)$")
KEY = re.compile(r"^(k|v|key|value|keys|values|memory|context)$")


def beside(name: str, first: Shape) -> list[Shape]:
    """Shapes of a tensor called so beside a first one, the likeliest first."""
    if WEIGHT.match(name):
        return _unique([*_weights(first), first])
    if BIAS.match(name):
        return _unique([*((FILTERS,) if len(first) > 3 else (OUT,), *_features(first), first)])
    if ROTARY.match(name):
        return _unique([*_rotary(first), first])
    if SCALAR.match(name):
        return _unique([(), (1,), *_features(first), first])
    if PER_FEATURE.match(name):
        return _unique([*_features(first), first, (1,), ()])
    return _unique([first, *_features(first)])


def _weights(first: Shape) -> Iterator[Shape]:
    if not first:
        return
    if len(first) >= 4:
        yield (FILTERS, first[1], *(3 for _ in first[2:]))
        yield (first[1],)
        yield (first[1], 1, *(3 for _ in first[2:]))
    yield OUT, first[-1]
    yield (first[-1],)
    yield first[-1], OUT
    if len(first) >= 3:
        yield FILTERS, first[1], 3
        yield (first[1],)
        yield first[0], first[-1], OUT


def _features(first: Shape) -> Iterator[Shape]:
    if first:
        yield (first[-1],)
    if len(first) > 1:
        yield (first[1],)
        yield (1,) * (len(first) - 1) + first[-1:]
        yield (1, first[1]) + (1,) * (len(first) - 2)
    if len(first) > 2:
        yield first[-2:]


def _rotary(first: Shape) -> Iterator[Shape]:
    half = first[-1] // 2 if first and first[-1] % 2 == 0 else None
    for length in ([first[-2]] if len(first) > 1 else []) + ([first[1]] if len(first) > 3 else []):
        yield length, first[-1]
        if half:
            yield length, half
    for rank in range(3, len(first) + 1):
        yield (1,) * (rank - 2) + first[-2:]
    if half:
        yield (*first[:-1], half)


def indices(first: Shape, one_each: bool = False) -> list[Shape]:
    """Shapes of a tensor of indices beside the tensor that they are of: one for each row, one for each element, a few; `one_each` of classes, of
    which a place has one: its dimension then has the size 1 rather than that of the classes."""
    column = [(*first[:1], 1, *first[2:])] if one_each and len(first) > 1 else []
    found: list[Shape] = [first[:1], *column, first, first[:-1], (5,), (*first[:1], 1), first[:1] + first[2:]]
    return _unique([shape for shape in found if shape] + [(2, 5), ()])


def related(shapes: Sequence[Shape]) -> list[Shape]:
    """Shapes that share sizes with others, then the usual ones."""
    found: list[Shape] = []
    for shape in shapes:
        found += [shape, *_features(shape), *_weights(shape), shape[:1], shape[:-1], shape[1:]]
        found += [(*shape, OUT), (*shape, 2), (*shape, 1), (OUT, *shape)]
        found += [(*shape[:place], size, *shape[place + 1:]) for place in range(len(shape)) for size in (1, 2, 3, OUT) if size != shape[place]]
        found += [(*shape[:-2], shape[-1], shape[-2]), (*shape[:-2], shape[-1], OUT), (*shape[:-2], shape[-2], shape[-2])] if len(shape) > 1 else []
    for one in shapes:
        for other in shapes:
            found += [(*one[:-1], *other[-1:]), (*one[-1:], *other[-1:]), one[:1] + other[:1]]
    return _unique([*found, *BASES])


def _unique(shapes: Sequence[Shape] | Iterator[Shape]) -> list[Shape]:
    return list(dict.fromkeys(shapes))
