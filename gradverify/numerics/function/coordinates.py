"""Torch's dtypes by name with their unit roundoff, tensors as real coordinates, and the columns of
the inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from gradverify.model import dtypes
from gradverify.numerics.records import Record
from gradverify.numerics.rungs import Array, Index, Mask, in_a_row, joined, repeated
from gradverify.torch_private import is_zerotensor

# ---- Torch's dtypes by name, and the unit roundoff of each
DTYPES: Mapping[str, torch.dtype] = {name: getattr(torch, name) for name in dtypes.TABLE}
UNITS: Mapping[torch.dtype, float] = {
    DTYPES[name]: held.roundoff for name, held in dtypes.TABLE.items() if held.roundoff is not None
}
SINGLE = tuple(DTYPES[name] for name in dtypes.WIDER)
DOUBLE = tuple(dict.fromkeys(DTYPES[name] for name in dtypes.WIDER.values()))
WIDE: Mapping[torch.dtype, torch.dtype] = {
    DTYPES[name]: DTYPES[wide] for name, wide in dtypes.WIDER.items()
}
"""What runs in single precision → the same in double."""
SIXTEEN: Mapping[torch.dtype, torch.dtype] = {
    DTYPES[name]: DTYPES[wide] for name in dtypes.LEGS if (wide := dtypes.TABLE[name].double)
}
"""What is judged in two legs → what its first leg is in."""


# ---- Tensors as their real coordinates: R^n for real tensors, R^2n (re, im, re, im, …) for complex
# ones
Part = Literal["re", "im"]


def flat_real(tensor: Tensor) -> Tensor:
    """Return the real coordinates [n] as float64 on the CPU, detached."""
    tensor = tensor.detach().resolve_conj().resolve_neg()
    if tensor.layout != torch.strided:
        tensor = tensor.to_dense()
    if is_zerotensor(tensor):  # NumPy refuses it
        tensor = torch.zeros(tensor.shape, dtype=tensor.dtype, device=tensor.device)
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor)
    return tensor.reshape(-1).to(device="cpu", dtype=torch.float64)


def flat_all(tensors: Sequence[Tensor]) -> Tensor:
    """Return the real coordinates of several tensors, concatenated: [n1 + n2 + …]."""
    if tensors:
        return torch.cat([flat_real(tensor) for tensor in tensors])
    return torch.zeros(0, dtype=torch.float64)


def numbers(tensor: Tensor) -> Array:
    """Return `flat_real` as an array; it may share memory with the tensor."""
    if tensor.dtype is not torch.float64:
        return flat_real(tensor).numpy()
    try:
        flat: Array = tensor.detach().numpy().reshape(-1)
    # A lazy negative, zeros without memory, another device or layout
    except (RuntimeError, TypeError):
        return flat_real(tensor).numpy()
    return flat


def real_shape(shape: Sequence[int], dtype: torch.dtype) -> tuple[int, ...]:
    """Return the shape of a tensor's real coordinates: re and im of a complex one along an
    additional last axis."""
    return (*shape, 2) if dtype.is_complex else tuple(shape)


def one_hot(
    shape: Sequence[int], dtype: torch.dtype, device: torch.device, coordinate: int
) -> Tensor:
    """Return a cotangent: 1 (or i) at one real coordinate, zero elsewhere."""
    cotangent = torch.zeros(tuple(shape), dtype=dtype, device=device)
    (torch.view_as_real(cotangent) if dtype.is_complex else cotangent).view(-1)[coordinate] = 1.0
    return cotangent


def rms(magnitude: Array) -> float:
    """Return the root mean square of the finite magnitudes, 0 where there are none; squares neither
    overflow nor vanish."""
    magnitude = magnitude[np.isfinite(magnitude)]
    largest = float(magnitude.max(initial=0.0))
    return largest * float(np.sqrt(np.mean((magnitude / largest) ** 2))) if largest else 0.0


def place(
    shape: Sequence[int], is_complex: bool, coordinate: int
) -> tuple[tuple[int, ...], Part | None]:
    """Return the index (and part) of a real coordinate in a tensor of that shape."""
    part: Part | None = None
    if is_complex:
        coordinate, part = coordinate // 2, ("im" if coordinate % 2 else "re")
    index = []
    for size in reversed(shape):
        coordinate, position = divmod(coordinate, size)
        index.append(position)
    return tuple(reversed(index)), part


# ---- The real coordinates of a function's inputs: what one perturbation moves, its size, its
# domain and its precision
@dataclass(frozen=True)
class Columns(Record):
    """The columns: what one perturbation moves. Arrays [C]: coordinate within all inputs, its
    mirror image (−1: none) and the mirror's sign, tensor, x, scale, the tensor's RMS (`typical`),
    domain, and whether the input is of single precision.

    A number that all columns have in common takes the memory of one. `scale` is |x|, or the
    tensor's RMS where x is 0 or not finite. `x` may be the memory of the input, which is never
    written to.
    """

    coordinate: Index
    mirror: Index
    sign: Array
    tensor: Index
    x: Array
    scale: Array
    typical: Array
    low: Array
    high: Array
    single: Mask

    def __len__(self) -> int:
        return len(self.coordinate)

    @cached_property
    def size(self) -> Array:
        """The divisor of a floor: max(|x|, RMS)."""
        return np.maximum(self.scale, self.typical)

    @cached_property
    def _by_tensor(self) -> dict[int, Index]:
        tensors = int(self.tensor[-1]) + 1 if len(self.tensor) else 0
        if tensors == 1 and self.whole:
            return {0: self.coordinate}
        # Columns are numbered consecutively by tensor
        ends = np.searchsorted(self.tensor, np.arange(tensors + 1)).tolist()
        return {tensor: np.arange(start, end) for tensor, (start, end) in enumerate(pairwise(ends))}

    def of(self, tensor: int) -> Index:
        return self._by_tensor.get(tensor, np.zeros(0, np.intp))

    def of_tensor(self, tensor: int, start: int) -> Columns:
        """Return the columns of one tensor, whose coordinates are counted from `start`, its
        first."""
        numbers = self.of(tensor)
        part = self.take(slice(int(numbers[0]), int(numbers[-1]) + 1) if len(numbers) else slice(0))
        if not start:
            return part
        mirror = np.where(part.mirror >= 0, part.mirror - start, -1) if self.paired else part.mirror
        return replace(part, coordinate=part.coordinate - start, mirror=mirror)

    @cached_property
    def free(self) -> bool:
        """Whether no column has a domain."""
        return not (np.isfinite(self.low) | np.isfinite(self.high)).any()

    @cached_property
    def paired(self) -> bool:
        """Whether some column moves its mirror image with it."""
        return bool((self.mirror >= 0).any())

    @cached_property
    def whole(self) -> bool:
        """Whether every column k is coordinate k."""
        return not len(self.coordinate) or int(self.coordinate[-1]) == len(self.coordinate) - 1

    @cached_property
    def rounded(self) -> bool:
        """Whether some input is of lower precision than float64."""
        return bool(self.single.any())

    def combined(self, g: Array) -> Array:
        """Return gradients in all input coordinates […, N] as one number per column […, C]: for
        pairs the sum of both."""
        if not self.paired and g.shape[-1] == len(self):
            return g
        return np.where(
            self.mirror >= 0,
            g[..., self.coordinate] + self.sign * g[..., self.mirror],
            g[..., self.coordinate],
        )

    def any_of(self, coordinates: Mask) -> Mask:
        """Return which columns [C] move one of these coordinates [N]."""
        return coordinates[self.coordinate] | ((self.mirror >= 0) & coordinates[self.mirror])

    def cast(self, x: Array, columns: Index) -> Array:
        """Return x rounded to the inputs' precision."""
        if not self.rounded:
            return x
        return np.where(self.single[columns], x.astype(np.float32).astype(float), x)

    @cached_property
    def finite(self) -> bool:
        """Whether every x is finite."""
        return bool(np.isfinite(self.x).all())

    def ulp(self, columns: Index) -> Array:
        """Return the spacing [k] of floating-point numbers at x, or at the scale where x is 0; for
        columns in ascending order."""
        selected = in_a_row(columns)
        x = np.abs(self.x[selected])
        at = np.where(x != 0, x, self.scale[selected])
        if not self.rounded:
            return np.spacing(at, out=at)
        return np.where(
            self.single[columns], np.spacing(at.astype(np.float32)).astype(float), np.spacing(at)
        )


def columns_of(
    inputs: Sequence[Tensor],
    domains: Sequence[tuple[float, float] | None],
    symmetric: Sequence[bool],
    specified: Sequence[Tensor | None] = (),
) -> Columns:
    """Return the columns of all inputs, in order. `specified`: the elements that a sparse input
    has; None (or an empty sequence): all."""
    parts, start = [], 0
    masks = specified or [None] * len(inputs)
    for n, (t, domain, pairs, mask) in enumerate(
        zip(inputs, domains, symmetric, masks, strict=True)
    ):
        x = numbers(t)
        held = np.arange(len(x)) if mask is None else _held(t, mask)
        end = start + len(x)
        x = x if mask is None else x[held]
        scale, typical = _scales(t, x, held)
        coordinate = held + start
        mirror = repeated(np.intp(-1), len(x))
        sign = repeated(1.0, len(x))
        if pairs:
            keep, mirror, sign = _pairs(t)
            coordinate = coordinate[keep]
            mirror = np.where(mirror >= 0, mirror + start, -1)
            x = x[keep]
            scale = scale[keep]
        low, high = domain or (-np.inf, np.inf)
        of_all = (
            repeated(value, len(coordinate))
            for value in (typical, float(low), float(high), np.bool_(t.dtype in SINGLE))
        )
        parts.append(
            (coordinate, mirror, sign, repeated(np.intp(n), len(coordinate)), x, scale, *of_all)
        )
        start = end
    return Columns(*map(joined, zip(*parts, strict=True)))


def _held(t: Tensor, mask: Tensor) -> Index:
    """Return the real coordinates of the elements where the mask is true."""
    places = np.flatnonzero(mask.cpu().numpy())
    return np.stack([2 * places, 2 * places + 1], 1).reshape(-1) if t.is_complex() else places


def _scales(t: Tensor, x: Array, held: Index) -> tuple[Array, float]:
    """Return the scale [n] of each real coordinate x of a tensor, those at `held`, and their
    typical size."""
    magnitude = np.abs(x)
    if t.is_complex():
        moduli = (
            np.abs(t.detach().resolve_conj().resolve_neg().cpu().numpy()).reshape(-1).astype(float)
        )
        magnitude = np.repeat(moduli, 2)[held]
    typical = rms(magnitude) or 1.0
    usual = (magnitude > 0) & (magnitude < np.inf)
    return np.where(usual, magnitude, typical), typical


def mirror_of(t: Tensor) -> tuple[Index, Array]:
    """Return for each real coordinate of a batch of square matrices its place in the (conjugate)
    transpose, and its sign there."""
    place = torch.arange(t.numel()).reshape(t.shape).mT.reshape(-1).numpy()
    if not t.is_complex():
        return place, np.ones(len(place))
    return np.stack([2 * place, 2 * place + 1], 1).reshape(-1), np.tile([1.0, -1.0], t.numel())


def _pairs(t: Tensor) -> tuple[Index, Index, Array]:
    """Return the columns of a symmetric (Hermitian) input: the upper triangle with its mirror, and
    the diagonal by itself, only its real part where complex."""
    mirror, sign = mirror_of(t)
    coordinate = np.arange(len(mirror))
    keep = coordinate[(coordinate < mirror) | ((coordinate == mirror) & (sign > 0))]
    return keep, np.where(mirror[keep] == keep, -1, mirror[keep]), sign[keep]
