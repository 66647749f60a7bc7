"""Many VJPs of one output tensor (method.md section 5): outputs in groups that share no input are
pulled back together, inputs whose outputs fall into the same groups share the VJPs, and many VJPs
are one batched backward where the function supports that, else one by one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from gradverify.numerics.function.coordinates import numbers
from gradverify.numerics.function.point import Point
from gradverify.numerics.rungs import Array, Index
from gradverify.numerics.seed_vectors import away_from_zero, gradient_of_rows
from gradverify.numerics.sparsity.pattern import RowGroups

Cotangent = tuple[Index, Array]
"""Rows of an output tensor, and the weights there; zeros elsewhere."""

WORTH_A_BATCH = 8  # VJPs from which a batch, and the plain call that verifies it, are worthwhile
# Of an input's largest gradient: tolerance for the different rounding of other kernels
CLOSE = 1e-9
GOLDEN = 0.5 * (5**0.5 - 1)  # its multiples have well separated fractional parts
# Largest number of values in the cotangents and gradients of a batch: a backward holds several
# times as many in between
NUMBERS = 1 << 20
BATCH = 1 << 18  # numbers of an input's gradients that are processed together


@dataclass(frozen=True)
class SharedGroups:
    """Row groups of one output tensor, and the `users` (indices of the inputs) that have these
    groups: one VJP per group serves them all."""

    output: int
    groups: RowGroups
    users: list[int]


def shared_groups(inputs: Sequence[Sequence[RowGroups]]) -> list[SharedGroups]:
    """Return the distinct row groups of several inputs, each of which has one per output tensor."""
    found = list[SharedGroups]()
    for user, rows in enumerate(inputs):
        for output, groups in enumerate(rows):
            same = next(
                (
                    shared
                    for shared in found
                    if shared.output == output and np.array_equal(shared.groups.group, groups.group)
                ),
                None,
            )
            if same is None:
                found.append(SharedGroups(output, groups, [user]))
            else:
                same.users.append(user)
    return found


def pulled_groups(
    point: Point, shared: SharedGroups, weights: Array, wanted: Sequence[int]
) -> Iterator[tuple[range, Array]]:
    """Yield consecutive groups, and the gradient of each in all input coordinates [groups, N];
    `weights` [m]: the weight of each output in its cotangent.

    `wanted`: as in `gradients`.
    """
    inputs = sum(int(point.starts[t + 1] - point.starts[t]) for t in wanted)
    for groups in shared.groups.spans(BATCH * inputs // max(len(point.x), 1)):
        yield (
            groups,
            gradients(point, shared.output, shared.groups.weighted(groups, weights), wanted),
        )


def gradients(
    point: Point, output: int, cotangents: Sequence[Cotangent], wanted: Sequence[int] | None = None
) -> Array:
    """Return the gradient in all input coordinates [n, N] for each of n cotangents of one output
    tensor: n backward calls, and one to verify the first batch.

    `wanted`: the inputs whose gradients are needed, None for all; the values at the others are
    void.
    """
    inputs = range(len(point.buffers)) if wanted is None else wanted
    found = np.empty((len(cotangents), len(point.x)))
    # Types other than float64 are pulled back as in training, with its roundings
    fits = point.shapes[output][1] is torch.float64 and all(
        x.dtype is torch.float64 for x in point.buffers
    )
    if len(cotangents) >= WORTH_A_BATCH and point.batched is not False and fits:
        fresh = [t for t in inputs if (output, t) not in point.compared]
        point.batched = _in_batches(point, output, cotangents, inputs, found) and (
            not fresh or _agree(point, output, cotangents, found, fresh)
        )
        if point.batched:
            point.compared.update((output, t) for t in fresh)
            return found
    for gradient, (rows, weights) in zip(found, cotangents, strict=True):
        gradient[:] = gradient_of_rows(point, output, rows, weights)
    return found


def _in_batches(
    point: Point, output: int, cotangents: Sequence[Cotangent], inputs: Sequence[int], found: Array
) -> bool:
    """Write the gradients [n, N] of these inputs into `found` in batches; return False where the
    function does not support that."""
    shape, _, device = point.shapes[output]
    most = max(1, NUMBERS // (shape.numel() + len(point.x)))
    vjps = getattr(point.function, "vjps", None)
    if vjps is None:
        return False
    for start in range(0, len(cotangents), most):
        part = cotangents[start : start + most]
        batch = np.zeros((len(part), shape.numel()))
        (which, rows, weights) = _concatenated(part)
        batch[which, rows] = weights
        pulled = vjps(
            output, torch.from_numpy(batch.reshape(len(batch), *shape)).to(device), inputs
        )
        if pulled is None:
            return False
        point.backward += len(batch)
        for t, gradient in zip(inputs, pulled, strict=True):
            found[start : start + most, point.starts[t] : point.starts[t + 1]] = numbers(
                gradient
            ).reshape(len(batch), -1)
    return True


def _concatenated(cotangents: Sequence[Cotangent]) -> tuple[Index, Index, Array]:
    """Return the cotangents concatenated [E]: the index of the cotangent, its rows and the weights
    there."""
    rows, weights = (np.concatenate(parts) for parts in zip(*cotangents, strict=True))
    return (
        np.repeat(np.arange(len(cotangents)), [len(held) for held, _ in cotangents]),
        rows,
        weights,
    )


def _agree(
    point: Point, output: int, cotangents: Sequence[Cotangent], found: Array, inputs: Sequence[int]
) -> bool:
    """Return whether all gradients of these inputs sum, with weights of either sign, to the
    gradient of one plain backward with the sum of the cotangents."""
    weights = away_from_zero(2 * np.modf(GOLDEN * np.arange(1, len(found) + 1))[0] - 1)
    which, rows, values = _concatenated(cotangents)
    plain = gradient_of_rows(point, output, rows, weights[which] * values)
    for part in (slice(point.starts[t], point.starts[t + 1]) for t in inputs):
        off = np.abs(plain[part] - weights @ found[:, part])
        size = np.abs(weights) @ np.abs(found[:, part])
        finite = np.isfinite(size)
        close = np.where(
            finite, off <= CLOSE * size[finite].max(initial=0.0), ~np.isfinite(plain[part])
        )
        if not close.all():
            return False
    return True
