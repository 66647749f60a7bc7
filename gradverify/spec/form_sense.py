"""Whether a sparse or nested tensor can be had: in this shape, of these blocks, beside the other keys of its input."""

from __future__ import annotations

import math
from collections.abc import Iterator

from gradverify.spec.fault import Fault, Path
from gradverify.spec.schema_inputs import Sparse, Tensor
from gradverify.spec.structure_sense import known_shape

BLOCKED = ("bsr", "bsc")
GIVEN = ("values", "file")
LARGEST = 1 << 24       # elements of the dense shape, which the numbers are kept in


def form_faults(tensor: Tensor, draw: str, path: Path) -> Iterator[Fault]:
    """What is wrong with `sparse` and `nested`."""
    form = "sparse" if tensor.sparse is not None else "nested" if tensor.nested is not None else None
    if form is None:
        return
    others = [key for key in ("nested", "layout") if key in tensor.model_fields_set and key != form] + ["symmetric"] * _is_symmetric(tensor)
    for key in others:
        if key in tensor.model_fields_set:
            yield Fault((*path, key), f"a {form} tensor has no `{key}`: remove one of the two", key=True)
    if draw == "make" or (draw == "kind" and _is_symmetric(tensor)):
        yield Fault((*path, form), f"`{form}` and `{tensor.kind or draw}` do not go together", key=True)
    shape = known_shape(tensor, draw)
    if tensor.sparse is not None:
        yield from _sparse_faults(tensor.sparse, draw, shape, (*path, "sparse"))
        if tensor.domain is not None and not tensor.sparse.masked and not tensor.domain[0] <= 0 <= tensor.domain[1]:
            yield Fault((*path, "domain"), "under `masked: false` the tensor holds zeros, which lie outside this domain")
    elif shape is not None:
        yield from _nested_faults(tensor.nested.lengths, shape, (*path, "nested", "lengths"))


def _is_symmetric(tensor: Tensor) -> bool:
    return tensor.symmetric or tensor.kind == "spd"


def _sparse_faults(sparse: Sparse, draw: str, shape: tuple[int, ...] | None, path: Path) -> Iterator[Fault]:
    if draw in GIVEN and sparse.density is not None:
        yield Fault((*path, "density"), f"`{draw}` gives the elements, those that are not 0: remove `density`", key=True)
    if sparse.layout in BLOCKED and sparse.blocksize is None:
        yield Fault(path, f"the key 'blocksize' is missing: `{sparse.layout}` holds blocks")
    elif sparse.layout not in BLOCKED and sparse.blocksize is not None:
        yield Fault((*path, "blocksize"), f"`{sparse.layout}` holds no blocks: remove `blocksize`", key=True)
    if shape is None:
        return
    if sparse.layout == "coo" and not shape:
        yield Fault((*path, "layout"), "a sparse tensor has at least one dimension, and the shape is []")
    elif sparse.layout != "coo" and len(shape) != 2:
        yield Fault((*path, "layout"), f"a `{sparse.layout}` tensor has two dimensions, and the shape is {list(shape)}")
    elif sparse.layout in BLOCKED and sparse.blocksize is not None and any(n % b for n, b in zip(shape, sparse.blocksize, strict=True)):
        yield Fault((*path, "blocksize"), f"blocks of {sparse.blocksize} do not divide the shape {list(shape)}")
    if math.prod(shape) > LARGEST:
        yield Fault(path, f"its shape {list(shape)} has more than {LARGEST:,} elements, which are kept as a dense tensor")


def _nested_faults(lengths: list[int], shape: tuple[int, ...], path: Path) -> Iterator[Fault]:
    if len(shape) < 2:
        yield Fault(path, f"a nested tensor needs rows, so at least two dimensions, and the shape is {list(shape)}")
    elif sum(lengths) != shape[0]:
        yield Fault(path, f"the lengths add up to {sum(lengths)}, and the shape {list(shape)} has {shape[0]} rows")
