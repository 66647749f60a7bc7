"""Every column moved alone, every row by its one-hot cotangent, in tiles of columns: never more than a fixed number of bytes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from gradverify.numerics import compare, tally
from gradverify.numerics.derivative import Derivative, Function
from gradverify.numerics.flat import flat_all, flat_real, one_hot, reaches, real_size, scales, writable_view
from gradverify.numerics.steps import UNIT, Buffers, FixedStep, TwoSteps, copies, values_or_nan
from gradverify.numerics.tally import Tally

LIMIT = 64 * 2**20      # bytes for analytic and numeric numbers together
WORKING_ARRAYS = 16     # arrays of a chunk's size that a comparison holds at once


@dataclass(frozen=True, slots=True)
class Tolerances:
    """`eps` None: steps are chosen and bars decide; a number: gradcheck's rule with exactly that step."""

    atol: float
    rtol: float
    eps: float | None = None


@dataclass(frozen=True, slots=True)
class Block:
    """A run of columns of one input against all outputs: [M, T], from `first` of input `index`; `absent` per output: only None."""

    index: int
    first: int
    analytic: Tensor
    derivative: Derivative
    absent: tuple[bool, ...]


@dataclass(frozen=True, slots=True)
class Layout:
    """How inputs and outputs lie among the columns and rows of the whole Jacobian."""

    input_sizes: tuple[int, ...]
    output_sizes: tuple[int, ...]

    @property
    def rows(self) -> int:
        return sum(self.output_sizes)

    def parts(self) -> Iterator[tuple[int, slice]]:
        """(output, its rows) in order."""
        top = 0
        for output, size in enumerate(self.output_sizes):
            yield output, slice(top, top + size)
            top += size

    def tiles(self, limit: int) -> Iterator[list[tuple[int, int, int]]]:
        """Runs of columns (input, first, last + 1) whose numbers fit into half the limit; the other half is for the comparison."""
        room = max(2, limit // (2 * 8 * max(self.rows, 1))) // 2 * 2        # even: the parts of a complex element stay together
        tile: list[tuple[int, int, int]] = []
        used = 0
        for index, size in enumerate(self.input_sizes):
            first = 0
            while first < size:
                last = min(size, first + (room - used) // 2 * 2)
                tile.append((index, first, last))
                used, first = used + last - first, last
                if used >= room - 1:
                    yield tile
                    tile, used = [], 0
        if tile:
            yield tile


def pairs(function: Function, tolerances: Tolerances, limit: int = LIMIT) -> dict[tuple[int, int], Tally]:
    """Every element of every (input, output) pair, compared: {(input, output): Tally}."""
    outputs = function.values(copies(function))
    base = flat_all(outputs)
    layout = Layout(tuple(map(real_size, function.inputs)), tuple(map(real_size, outputs)))
    buffers = Buffers(function, layout.rows)
    floor = _floors(function, base, layout)
    result: dict[tuple[int, int], Tally] = {}
    for block in stream(function, outputs, base, layout, buffers, tolerances, limit):
        _fold(block, function, layout, floor, tolerances, result)
    return result


def stream(function: Function, outputs: Sequence[Tensor], base: Tensor, layout: Layout, buffers: Buffers, tolerances: Tolerances,
           limit: int) -> Iterator[Block]:
    """Blocks of (analytic, numeric) columns; the analytic rows are computed again for every tile."""
    difference = TwoSteps() if tolerances.eps is None else FixedStep(tolerances.eps)
    chunk = max(2, limit // (2 * 8 * WORKING_ARRAYS * max(layout.rows, 1)) // 2 * 2)
    for tile in layout.tiles(limit):
        analytic, absent = rows(function, outputs, layout, tile)
        for part, (index, first, last) in zip(analytic, tile, strict=True):
            for start in range(first, last, chunk):
                columns = range(start, min(start + chunk, last))
                derivative = difference.columns(buffers, function.inputs[index], index, columns, base)
                yield Block(index, start, part[:, start - first:columns.stop - first], derivative, absent[index])


def rows(function: Function, outputs: Sequence[Tensor], layout: Layout,
         tile: Sequence[tuple[int, int, int]]) -> tuple[list[Tensor], list[tuple[bool, ...]]]:
    """The analytic Jacobian [M, T] of each run of a tile, one VJP a row; and per input and output whether backward gave only None."""
    parts = [torch.zeros(layout.rows, last - first, dtype=torch.float64) for _, first, last in tile]
    seen = [[False] * len(outputs) for _ in layout.input_sizes]
    row = 0
    for k, output in enumerate(outputs):
        for coordinate in range(layout.output_sizes[k]):
            cotangents = [one_hot(output, coordinate) if i == k else None for i in range(len(outputs))]
            gradients = function.vjp(cotangents)
            for part, (index, first, last) in zip(parts, tile, strict=True):
                gradient = gradients[index]
                if gradient is not None:
                    seen[index][k] = True
                    part[row] = flat_real(gradient)[first:last]
            row += 1
    return parts, [tuple(not given for given in each) for each in seen]


def _floors(function: Function, base: Tensor, layout: Layout) -> Tensor:
    """The tolerance floor c·unit of each output [M], from how far a random signed direction moves it."""
    generator = torch.Generator().manual_seed(0)
    moved = copies(function)
    step = max(UNIT[x.dtype] for x in function.inputs) ** 0.25 if moved else 1.0
    for x in moved:
        signs = torch.randint(0, 2, (real_size(x),), generator=generator, dtype=torch.float64) * 2 - 1
        view = writable_view(x)
        view += (signs * scales(x) * step).to(dtype=view.dtype, device=view.device)
    there = values_or_nan(function, moved, layout.rows)
    unit = max((UNIT[x.dtype] for x in function.inputs), default=2.0**-53)
    size = torch.maximum(base.abs(), there.abs()).nan_to_num(nan=0.0, posinf=0.0)
    change = (there - base).abs().nan_to_num(nan=0.0, posinf=0.0) / step
    change[change * step <= compare.DEAD * unit * size] = 0.0
    return compare.floors(change, size, compare.tensor_of(layout.output_sizes), unit)


def _fold(block: Block, function: Function, layout: Layout, floor: Tensor, tolerances: Tolerances,
          result: dict[tuple[int, int], Tally]) -> None:
    x = function.inputs[block.index]
    columns = slice(block.first, block.first + block.analytic.shape[1])
    for output, part in layout.parts():
        derivative = Derivative(*(getattr(block.derivative, name)[part] for name in ("value", "bar", "outcome", "unchanged")))
        analytic = block.analytic[part]
        if tolerances.eps is None:
            judged = compare.judge(analytic, derivative, floor[part].unsqueeze(1) / reaches(x)[columns], tolerances.atol, tolerances.rtol)
        else:
            judged = compare.judge_fixed(analytic, derivative, tolerances.atol, tolerances.rtol, x.is_complex())
        small = layout.output_sizes[output] <= tally.MAP_ROWS and layout.input_sizes[block.index] <= tally.MAP_COLUMNS
        seen = tally.tally(analytic, derivative, judged, block.first, block.absent[output], small)
        key = (block.index, output)
        result[key] = result[key] + seen if key in result else seen
