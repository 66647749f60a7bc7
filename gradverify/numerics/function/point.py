"""A function around one point: values and VJPs at moved inputs, counted and timed, with the
precision that the bits of the values show."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import accumulate, pairwise
from pathlib import Path
from time import monotonic, perf_counter, process_time
from typing import ClassVar, Protocol

import numpy as np
import torch
from torch import Tensor

from gradverify.model.fault import BESIDE, UNWRITTEN, UserCodeError, attempted, tried
from gradverify.numerics.function.coordinates import UNITS, Columns, numbers, one_hot
from gradverify.numerics.roundoff import Bits
from gradverify.numerics.rungs import (
    U32,
    U64,
    ULP,
    AnyArray,
    Array,
    Index,
    in_a_row,
    joined,
    pieces,
    piecewise,
    repeated,
)
from gradverify.numerics.seeds import Seed

KEPT_BYTES = 1 << 24  # bytes: more than the arrays of one tile that are freed together


def keep_freed() -> None:
    """Let glibc keep up to twice KEPT_BYTES of freed memory.

    glibc returns memory beyond twice the largest block that it ever saw freed, and acquires it
    again page by page for the next array: a tenth of the time of a comparison of some 10⁵ elements.
    The block here is never written to, so that no page is taken; other C libraries are not
    affected.
    """
    torch.empty(KEPT_BYTES, dtype=torch.uint8)


# The inputs' own memory: perturbed in place and restored, so that every call sees the same
# addresses.
# Written values stay until other coordinates are written, or until they are restored: the calls
# along a line write the same coordinates each time. Untouched rows of a batch then stay bitwise the
# same in torch's CPU operators (method.md section 5).
@dataclass(frozen=True)
class TensorPart:
    """The coordinates of one tensor among those of a selection: their places in the tensor, and
    their positions (`which`) in the selection."""

    tensor: int
    places: Index | slice
    which: Index | slice


@dataclass(frozen=True)
class Selection:
    """Coordinates that are written together, and their original values at the point of the
    check."""

    parts: tuple[TensorPart, ...]
    original: Array


class Buffers:
    """A copy of each input. Their real coordinates are numbered consecutively in logical order:
    tensor t has starts[t] … starts[t + 1] − 1.

    `x`: the coordinates, where the caller holds them already.
    """

    def __init__(self, inputs: Sequence[Tensor], x: Array | None = None) -> None:
        self.tensors = [t.detach().clone(memory_format=torch.preserve_format) for t in inputs]
        self.x = joined([numbers(t) for t in inputs]) if x is None else x
        self._real = [torch.view_as_real(b) if b.is_complex() else b for b in self.tensors]
        self._memory = [_memory(b) for b in self._real]
        self.starts = np.cumsum([0] + [b.numel() for b in self._real])
        self._starts = self.starts.tolist()
        self._written: Selection | None = None

    def selected(self, coordinates: Index) -> Selection:
        """Return a selection of coordinates, in their order."""
        if not len(coordinates):
            return Selection((), np.zeros(0))
        run = in_a_row(coordinates)
        low, high = (
            (run.start, run.stop - 1)
            if isinstance(run, slice)
            else (int(coordinates.min()), int(coordinates.max()))
        )
        first = bisect_right(self._starts, low) - 1
        if high < self._starts[first + 1]:
            return Selection(
                (TensorPart(first, _counted_from(run, self._starts[first]), slice(None)),),
                self.x[run],
            )
        parts = []
        for t, (start, stop) in enumerate(pairwise(self._starts)):
            which = np.flatnonzero((coordinates >= start) & (coordinates < stop))
            if which.size:
                parts.append(TensorPart(t, in_a_row(coordinates[which] - start), in_a_row(which)))
        return Selection(tuple(parts), self.x[run])

    def write(self, selection: Selection, x: Array) -> None:
        """Write x [k] to the selection; all other coordinates are as at the point."""
        if self._written is not selection:
            self.restore()
            self._written = selection
        self._put(selection, x)

    def restore(self) -> None:
        """Restore all coordinates to their values at the point."""
        if self._written is not None:
            self._put(self._written, self._written.original)
            self._written = None

    def _put(self, selection: Selection, x: Array) -> None:
        for part in selection.parts:
            memory = self._memory[part.tensor]
            if memory is not None:
                memory[part.places] = x[part.which]
                continue
            whole = numbers(self.tensors[part.tensor]).copy()
            whole[part.places] = x[part.which]
            self._real[part.tensor].copy_(
                torch.from_numpy(whole).reshape(self._real[part.tensor].shape)
            )


def _counted_from(places: Index | slice, start: int) -> Index | slice:
    """Return the places counted from `start`."""
    if not start:
        return places
    if isinstance(places, slice):
        return slice(places.start - start, places.stop - start)
    return places - start


def _memory(t: Tensor) -> AnyArray | None:
    """Return the numbers of a real tensor in logical order, as a view; None where that is
    impossible (not contiguous, on a GPU, bfloat16)."""
    if (
        t.device.type != "cpu"
        or not t.is_contiguous()
        or t.dtype not in (torch.float64, torch.float32, torch.float16)
    ):
        return None
    memory: AnyArray = t.reshape(-1).numpy()
    return memory


# ---- The duration of a call: the minimum of several, without the time that the machine spent on
# other programs

# Seconds: a shorter call is mostly not interrupted (with six busy loops running, the fastest of 25
# calls of 1.4 ms took 1.34 to 1.42 ms; of 25 ms, up to 438 ms)
SLICE = 2e-3
# Linux: nanoseconds run, nanoseconds waited for a processor, time slices
SCHEDULED = Path("/proc/thread-self/schedstat")


def waited() -> float:
    """Return the seconds that this thread was ready to run and did not; 0 where the system does not
    report them."""
    try:
        return int(SCHEDULED.read_bytes().split()[1]) * 1e-9
    except (OSError, ValueError, IndexError):
        return 0.0


@dataclass(frozen=True)
class Clock:
    """Sources of time: seconds since some moment (`now`), the part of them spent on other programs
    (`waited`), CPU seconds of this process (`cpu`), and the wall time that `timeout` counts
    (`wall`)."""

    now: Callable[[], float] = perf_counter
    waited: Callable[[], float] = waited
    cpu: Callable[[], float] = process_time
    wall: Callable[[], float] = monotonic


class Stopwatch:
    """Times calls. `fastest`: seconds of the fastest call so far, infinite before the first.
    `calls`: how many were timed."""

    def __init__(self, clock: Clock) -> None:
        self.clock, self.fastest = clock, math.inf
        self.calls = 0
        self._began = self._waited = 0.0

    def start(self) -> None:
        self._began = self.clock.now()
        # For short calls the waiting time is not read
        self._waited = self.clock.waited() if SLICE < self.fastest < math.inf else math.inf

    def stop(self) -> None:
        lost = self.clock.waited() - self._waited if self._waited < math.inf else 0.0
        took = self.clock.now() - self._began - lost
        self.calls += 1
        if took < self.fastest:
            self.fastest = max(took, 0.0)


# ---- A function of tensors as a map Rᶜ → Rᴹ around one point: values at perturbed inputs, rows of
# its Jacobian by backward, every call counted
SAMPLED = 4096  # values per call whose bits are examined


class Function(Protocol):
    """The function under check. The caller counts its calls; `inputs` are never written to.

    A function may have more attributes. They are not declared in a protocol, because in Python 3.11
    `isinstance` with one takes tens of microseconds:

    - `narrow`: the backward, where it is of lower precision than the values (None: it is not);
    - `here()`: the values at its own inputs where it was called there already, in memory that no
      backward writes into (None: call `values`);
    - `earlier`: the values of an earlier call there (None: there was none);
    - `shaken(inputs, number)`: as `values`, each operation off by up to two roundings at random in
      its own dtype, differently for each number; and the coarsest of their roundoffs;
    - `shaken_vjp(number, cotangents, inputs, roundings)`: as `vjp` and the forward before it, the
      inputs off by up to `roundings` roundings at random and each operation in float64 by two
      (stochastic arithmetic), differently for each number (None: it raised);
    - `vjps(output, cotangents, wanted)`: the gradients of these inputs [n, *shape of x] for
      cotangents [n, *shape of y] of one output (None: they must be computed one by one).
    """

    @property
    def inputs(self) -> Sequence[Tensor]:
        """The differentiable inputs at the point of the check."""
        ...

    def values(self, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
        """Return the differentiable outputs at perturbed inputs; may raise. The inputs are valid
        during the call only."""
        ...

    def vjp(
        self, cotangents: Sequence[Tensor | None], inputs: Sequence[Tensor] | None = None
    ) -> Sequence[Tensor]:
        """Return one gradient per input (None among the cotangents: zeros), at `inputs` or at the
        function's own."""
        ...


class Narrow(Protocol):
    """The backward of a function that takes and returns float64, where it computes in lower
    precision: the float32 version of the function is under check."""

    @property
    def unit(self) -> float:
        """The unit roundoff of the backward."""
        ...

    def full(
        self, cotangents: Sequence[Tensor | None], inputs: Sequence[Tensor] | None = None
    ) -> Sequence[Tensor] | None:
        """Return the result of `Function.vjp` by the backward in float64; None where that fails."""
        ...

    def perturbed(
        self, number: int, cotangents: Sequence[Tensor | None], inputs: Sequence[Tensor]
    ) -> Sequence[Tensor] | None:
        """Return the result of `full` with forward and backward rounded as in float32, at random;
        differently for each number."""
        ...


class Point:
    """The function around its inputs. Counts `forward` and `backward` calls; perturbs one buffer
    per input in place and restores it.

    `seed`: of all random draws. `batched`: whether VJPs can be batched; None before the first
    attempt. `compared`: the (output, input) tensors for which a batch agreed with a plain backward.
    `before`: f [M] of an earlier call at the point, if there was one.
    """

    def __init__(
        self, function: Function, columns: Columns, clock: Clock | None = None, seed: Seed = Seed()
    ) -> None:
        self.function = function
        self.columns = columns
        self.seed = seed
        self.forward = 0
        self.backward = 0
        self._watch = Stopwatch(clock or Clock())
        self.narrow: Narrow | None = getattr(function, "narrow", None)
        self._inputs = Buffers(function.inputs, columns.x if columns.whole else None)
        self._last: tuple[Index, Selection] | None = None
        self._unit: Array | None = None
        # The last row that was rounded at random, by number
        self._shaken: tuple[tuple[int, float], list[Array | None]] | None = None
        self.batched: bool | None = None
        self.compared = set[tuple[int, int]]()
        self.starts, self.x = self._inputs.starts, self._inputs.x
        here = function.here() if hasattr(function, "here") else None
        outputs = list(function.values(self.buffers) if here is None else here)
        self.forward += here is None
        self.shapes = [(o.shape, o.dtype, o.device) for o in outputs]
        values = [numbers(o) for o in outputs]
        self._lengths = [len(v) for v in values]
        self.parts = [slice(a, b) for a, b in pairwise(accumulate(self._lengths, initial=0))]
        # `here` returns copies
        self.f0 = joined(values if here is not None else [v.copy() for v in values])
        earlier = None if here is None else getattr(function, "earlier", None)
        self.before = None if earlier is None else joined([numbers(y) for y in earlier])
        self._bits = [Bits().seen(v[:SAMPLED]) for v in values]
        self._unsure = any(bits.single for bits in self._bits)

    @property
    def fastest(self) -> float:
        """Seconds of the fastest forward call except the first; a stall of the machine is not a
        property of the function."""
        return self._watch.fastest

    @property
    def unit(self) -> Array:
        """Unit roundoff [M] of each output, from its dtype and from the bits seen so far."""
        if self._unit is None:
            self._unit = joined(
                [
                    repeated(
                        max(UNITS.get(dtype, U64), bits.unit_where(lambda: self._coarsest)),
                        part.stop - part.start,
                    )
                    for part, (_, dtype, _), bits in zip(
                        self.parts, self.shapes, self._bits, strict=True
                    )
                ]
            )
            self._unit.flags.writeable = False  # shared by all readers
        return self._unit

    @cached_property
    def _coarsest(self) -> float:
        """The coarsest roundoff of the operations that torch sees: one forward call."""
        return self.spread(1)[1]

    @property
    def backward_unit(self) -> float:
        """The unit roundoff of gradients."""
        return U32 if self.columns.rounded else self.narrow.unit if self.narrow else U64

    @cached_property
    def other_part(self) -> Index | None:
        """The output [M] that is the other part of the same complex number; a real output itself.
        None where no output is complex."""
        if not any(dtype.is_complex for _, dtype, _ in self.shapes):
            return None
        found = np.arange(len(self.f0))
        for part, (_, dtype, _) in zip(self.parts, self.shapes, strict=True):
            if dtype.is_complex:
                found[part] = found[part].reshape(-1, 2)[:, ::-1].reshape(-1)
        return found

    def shared(self, sizes: Array) -> Array:
        """Return sizes of outputs [M]; re and im of one number share the larger of theirs."""
        result = sizes.copy()
        for part, (_, dtype, _) in zip(self.parts, self.shapes, strict=True):
            if dtype.is_complex:
                result[part] = np.repeat(sizes[part].reshape(-1, 2).max(1), 2)
        return result

    def changes(self, f: Array, part: slice = slice(None)) -> Array:
        """Return f − f(x) of f [M], or of a part of it; an infinity that stays is no change."""
        f, f0 = f[part], self.f0[part]
        return np.where(f == f0, 0.0, f - f0)

    def unit_of_x(self, tensor: int) -> float:
        """Return the error of a step relative to |x|: x ± h d is rounded to the input's
        precision."""
        c = self.columns
        return U32 if c.rounded and c.single[c.of(tensor)].any() else U64

    def unit_of(self, output: int) -> float:
        """Return the unit roundoff of an output tensor."""
        return float(self.unit[self.parts[output]].max(initial=U64))

    @property
    def buffers(self) -> list[Tensor]:
        """The inputs at the point."""
        self._inputs.restore()
        return self._inputs.tensors

    def values(self) -> Array:
        """Return f [M] at the point itself; NaN where it raises or changes shape."""
        self._inputs.restore()
        return self._evaluated()

    def _evaluated(self) -> Array:
        """Return f [M] at the inputs as they have been written."""
        self.forward += 1
        self._watch.start()
        outputs = attempted(self.function.values, self._inputs.tensors)
        if isinstance(outputs, UserCodeError):
            if outputs.code in (UNWRITTEN, BESIDE):
                raise outputs
            return np.full(len(self.f0), np.nan)
        self._watch.stop()
        parts = [numbers(o) for o in outputs]
        if [len(p) for p in parts] != self._lengths:
            return np.full(len(self.f0), np.nan)
        if self._unsure:
            self._bits = [
                b.seen(p[:: 1 + len(p) // SAMPLED]) if b.single else b
                for b, p in zip(self._bits, parts, strict=True)
            ]
            self._unit = None
            self._unsure = any(bits.single for bits in self._bits)
        return np.concatenate([*parts, np.zeros(0)])

    def values_at(self, columns: Index, x: Array) -> Array:
        """Return f [M] with these columns [k] set to x [k]; all NaN, without a call, where one of
        them would leave its domain."""
        c = self.columns
        if (
            np.isnan(x).any()
            if c.free
            else not ((c.low[columns] <= x) & (x <= c.high[columns])).all()
        ):
            return np.full(len(self.f0), np.nan)
        return self.values_inside(columns, x)

    def values_inside(self, columns: Index, x: Array) -> Array:
        """Return the result of `values_at` for x known to lie within the domains."""
        place, to = self._place(columns), x
        if self.columns.paired:
            to = self._changes(columns, x)[1]
        self._inputs.write(place, to)
        return self._evaluated()

    def shifted(self, columns: Index, by: Array | float) -> Array:
        """Return f [M] with these columns moved by `by`."""
        return self.values_at(columns, self.columns.cast(self.columns.x[columns] + by, columns))

    def _place(self, columns: Index) -> Selection:
        """Return where columns lie; cached, because a line uses the same columns repeatedly."""
        if self._last is None or self._last[0] is not columns:
            changed = (
                columns
                if self.columns.whole
                else self._changes(columns, self.columns.x[columns])[0]
            )
            self._last = columns, self._inputs.selected(changed)
        return self._last[1]

    def _changes(self, columns: Index, x: Array) -> tuple[Index, Array]:
        """Return the coordinates that change with these columns, mirrors included, and their
        values."""
        c, changed = self.columns, self.columns.coordinate[columns]
        if not c.paired:
            return changed, x
        pairs = np.flatnonzero(c.mirror[columns] >= 0)
        n = columns[pairs]  # the offset is 0 where the input is exactly symmetric
        mirrored = c.sign[n] * x[pairs] + (self.x[c.mirror[n]] - c.sign[n] * c.x[n])
        return np.concatenate([changed, c.mirror[n]]), np.concatenate([x, mirrored])

    def row(self, output: int) -> Array:
        """Return row `output` of the analytic Jacobian [C] by one backward; for pairs the sum of
        both."""
        self.backward += 1
        return self.by_column(self.function.vjp(self._one(output)))

    def row_in_float64(self, output: int) -> Array | None:
        """Return the row as `row` does, by the function's own backward in the precision of its
        values; None where there is only the backward under check."""
        self.backward += 1
        gradients = self.narrow.full(self._one(output)) if self.narrow else None
        return None if gradients is None else self.by_column(gradients)

    def row_rounding(self, output: int, ways: int, roundings: float = ULP) -> Array | None:
        """Return the effect of rounding on a row at the point [C]: one standard deviation over
        `ways` random roundings of every operation. In float32 of `row_in_float64` where gradients
        are float32, else of `row`, at inputs up to `roundings` roundings away. None where the
        function supports fewer than two."""
        narrow, key = self.narrow, (output, roundings)
        if self._shaken is None or self._shaken[0] != key:
            self._shaken = key, []
        rows = self._shaken[1]
        shaken = (
            partial(self.function.shaken_vjp, roundings=roundings)
            if hasattr(self.function, "shaken_vjp")
            else None
        )
        rounded = narrow.perturbed if narrow else shaken
        for number in range(len(rows), ways if rounded else 0):
            self.backward += 1
            gradients = rounded(number, self._one(output), self.buffers) if rounded else None
            rows.append(None if gradients is None else self.by_column(gradients))
        given = [row for row in rows[:ways] if row is not None]
        return np.std(given, 0, ddof=1) if len(given) > 1 else None

    def spread(self, ways: int) -> tuple[Array, float]:
        """Return the effect of rounding on each output [M], one standard deviation over `ways`
        random roundings of every operation, and the coarsest roundoff among these; 0 where that is
        not supported, or fewer than two of them have values."""
        found, coarsest = list[Array](), 0.0
        if hasattr(self.function, "shaken"):
            for number in range(ways):
                self.forward += 1
                shaken = tried(self.function.shaken, self.buffers, number)
                if shaken is not None:
                    found.append(joined([numbers(y) for y in shaken[0]]))
                    coarsest = max(coarsest, shaken[1])
        if len(found) < 2 or any(len(values) != len(self.f0) for values in found):
            return np.zeros_like(self.f0), coarsest
        return np.nan_to_num(np.std(found, 0, ddof=1), posinf=0.0) / ULP, coarsest

    def output_tensor(self, output: int) -> int:
        """Return the output tensor of an output that is counted through all of them."""
        return next(n for n, part in enumerate(self.parts) if part.start <= output < part.stop)

    def _one(self, output: int) -> list[Tensor | None]:
        """Return the cotangents that pull back this output alone."""
        n = self.output_tensor(output)
        shape, dtype, device = self.shapes[n]
        one = one_hot(shape, dtype, device, output - self.parts[n].start)
        return [one if i == n else None for i in range(len(self.parts))]

    def columns_of(self, tensor: int) -> Columns:
        """Return the columns of one input tensor, its coordinates counted from 0."""
        return self.columns.of_tensor(tensor, int(self.starts[tensor]))

    def by_column(self, gradients: Sequence[Tensor]) -> Array:
        """Return gradients of the inputs as one number per column [C]."""
        return self.columns.combined(np.concatenate([numbers(t) for t in gradients]))


# ---- Lines through the inputs of a function of tensors: one real coordinate, or several moved
# together
@dataclass(frozen=True)
class ElementLine:
    """The line of one column: t is the change of x, and `scale` may be larger than |x|."""

    point: Point
    column: int
    scale: float
    magnitude: float

    @property
    def size(self) -> float:
        return self.scale

    @cached_property
    def _start(self) -> tuple[Index, float, bool]:
        """The column, its x, and whether it is of lower precision than float64."""
        c = self.point.columns
        return np.array([self.column]), float(c.x[self.column]), bool(c.single[self.column])

    def at(self, t: float) -> tuple[Array, float] | None:
        columns, x, single = self._start
        to = float(np.float32(x + t)) if single else x + t
        if to == x or not math.isfinite(to):
            return None
        return (self.point.values_at(columns, np.array([to])), to - x)


def element_line(point: Point, column: int, wide: bool = False) -> ElementLine:
    """Return the line of one column; `wide`: of at least unit scale, for outputs that smaller steps
    do not move."""
    x = float(point.columns.x[column])
    scale = float(point.columns.scale[column])
    return ElementLine(point, column, max(scale, 1.0) if wide else scale, abs(x))


@dataclass(frozen=True)
class DirectionLine:
    """Several columns moved together: x + t·direction. The realised t is the projection of the
    realised change on the direction.

    `direction` [k] should include the columns' own scales, so that t = 1 is their natural size.
    """

    point: Point
    columns: Index
    direction: Array
    scale: ClassVar[float] = 1.0
    size: ClassVar[float] = 1.0
    magnitude: ClassVar[float] = 1.0

    @cached_property
    def _projection(self) -> tuple[Array, Array, float]:
        """x and scale [k] of the columns, and the projection of the direction."""
        moved = in_a_row(self.columns)
        x = self.point.columns.x[moved]
        scale = self.point.columns.scale[moved]
        with np.errstate(all="ignore"):  # squares of subnormal numbers: then no column moves
            return (
                x,
                scale,
                sum(
                    float(self.direction[part] @ (self.direction[part] / scale[part] ** 2))
                    for part in pieces(len(x))
                ),
            )

    def at(self, t: float) -> tuple[Array, float] | None:
        x, scale, whole = self._projection
        to = self.point.columns.cast(
            piecewise(lambda x, direction: x + t * direction, x, self.direction), self.columns
        )
        with np.errstate(all="ignore"):
            projected = sum(
                float((to[part] - x[part]) @ (self.direction[part] / scale[part] ** 2))
                for part in pieces(len(x))
            )
            by = projected / whole if whole else 0.0
        if by == 0 or not math.isfinite(by):  # no column moves, or not to a finite number
            return None
        return self.point.values_at(self.columns, to), by
