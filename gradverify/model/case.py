"""One concrete check, after defaults and matrix: plain data that crosses to a worker and back."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Literal, get_args

from gradverify.model.dtypes import WIDER

Lines = Literal["columns", "rows", "blocks"]
"""The unit of a comparison that is not by elements; columns where gradients are compared with those
of a reference."""
ModeSetting = Literal["auto", "entries", "rows", "blocks"]
"""The modes that a spec may set; `auto` chooses the strongest that the budget affords."""
MODE_SETTINGS: tuple[ModeSetting, ...] = get_args(ModeSetting)


class Mode(Enum):
    """The comparisons, strongest first."""

    ENTRIES = "entries"
    ROWS = "rows"
    BLOCKS = "blocks"

    @property
    def lines(self) -> Literal["", Lines]:
        """The unit compared, "" for elements."""
        return "" if self is Mode.ENTRIES else self.value


DIMENSIONS = {
    "transposed": (2, math.inf),
    "strided": (1, math.inf),
    "expanded": (1, math.inf),
    "channels_last": (4, 5),
}
"""Layout → the least and the greatest number of dimensions; other layouts take any number."""

MATRICES = ("spd", "orthogonal", "lower_triangular")


def dimension_complaint(layout: str, shape: tuple[int, ...]) -> str | None:
    """Return why a tensor of this shape cannot have this layout in memory, or None."""
    least, most = DIMENSIONS.get(layout, (0, math.inf))
    if least <= len(shape) <= most:
        return None
    need = (
        f"{least} or {most:.0f} dimensions"
        if most < math.inf
        else f"at least {least} dimension{'s' * (least > 1)}"
    )
    return f"`{layout}` needs {need}, and the shape is {list(shape)}"


def core(kind: str | None, symmetric: bool) -> int:
    """Return how many of the last dimensions form one structure, which repetition must not cut."""
    if kind in MATRICES or symmetric:
        return 2
    return 1 if kind is not None else 0


def is_cut(kind: str | None, symmetric: bool, shape: tuple[int, ...]) -> bool:
    """Return whether repeating one slice along the first dimension would cut the tensor's
    structure."""
    return len(shape) <= core(kind, symmetric) and bool(shape) and shape[0] > 1


Json = Any
"""Plain data: None, bool, int, float, str, and lists and string-keyed mappings of those."""

DrawKind = Literal[
    "normal", "uniform", "integers", "choice", "linspace", "fill", "values", "file", "kind", "make"
]
Kind = Literal[
    "spd",
    "orthogonal",
    "lower_triangular",
    "simplex",
    "unit_vector",
    "permutation",
    "one_hot",
    "mask",
]
Layout = Literal["contiguous", "transposed", "strided", "expanded", "offset", "channels_last"]

OWN_DTYPES = {"integers": "int64", "permutation": "int64", "mask": "bool"}
"""Draws and kinds whose numbers have a dtype of their own, unless the spec names one."""


def own_dtype(draw: str, kind: str | None, default: str) -> str:
    """Return the dtype of a tensor whose spec names none, in a check of dtype `default`."""
    return OWN_DTYPES.get(kind or "" if draw == "kind" else draw, default)


SparseLayout = Literal["coo", "csr", "csc", "bsr", "bsc"]


@dataclass(frozen=True, slots=True)
class Sparse:
    """The form of a sparse tensor. `density`: the share of its elements (or blocks) that it stores;
    `masked`: gradients at other elements do not count."""

    layout: SparseLayout = "coo"
    density: float | None = None
    blocksize: tuple[int, int] | None = None
    masked: bool = True


@dataclass(frozen=True, slots=True)
class TensorRecipe:
    """The recipe of one tensor input.

    `arguments` belongs to `draw`: [mean, std], [low, high], [a, b], the numbers to choose from, a
    fill value, nested lists of numbers, a file's absolute path (`path.npz#key`), a `Kind`, or the
    name of a function that draws. `shape` is None for `values` and `file`, whose numbers bring
    their own. `dtype` None means the check's, or the draw's own (`OWN_DTYPES`); `device` None the
    check's; `requires_grad` None means: true for floating and complex tensors; `layout` None: the
    case's, else contiguous.
    `distinct`: the least distance between any two elements.
    `domain`: the interval in which the function is defined; `symmetric`: the function reads a
    symmetric (Hermitian) matrix, so off-diagonal elements are moved in pairs.
    `sparse`: the function gets a sparse tensor; `nested`: it gets a jagged one, whose components
    have these numbers of rows.
    """

    shape: tuple[int, ...] | None = None
    draw: DrawKind = "normal"
    arguments: Json = (0.0, 1.0)
    avoid: tuple[float, ...] = ()
    margin: float = 0.1
    dtype: str | None = None
    requires_grad: bool | None = None
    domain: tuple[float, float] | None = None
    symmetric: bool = False
    distinct: float | None = None
    device: str | None = None
    layout: Layout | None = None
    sparse: Sparse | None = None
    nested: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class InputRecipe:
    """One argument of the function: a tensor, a list of tensors (`tensors`), or else a plain value
    passed unchanged.

    `name` is None where the spec gave a plain list: names are then read from the signature, or are
    0, 1, 2…
    """

    name: str | None
    tensor: TensorRecipe | None = None
    value: Json = None
    tensors: tuple[TensorRecipe, ...] = ()

    @property
    def recipes(self) -> tuple[TensorRecipe, ...]:
        """The recipes of all tensors of this argument."""
        return self.tensors if self.tensor is None else (self.tensor,)


@dataclass(frozen=True, slots=True)
class Budget:
    """The calls and seconds that `mode: auto` may spend on one check."""

    calls: int | None = None
    seconds: float | None = 10.0


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of one check, all layers folded. `atol` and `rtol` are None where no layer gives
    them: see `tolerances`."""

    dtype: str = "float64"
    device: str = "cpu"
    seed: int = 0
    eps: float | Literal["auto"] = "auto"
    atol: float | None = None
    rtol: float | None = None
    mode: ModeSetting = "auto"
    budget: Budget = Budget()
    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    second_order: bool | Literal["auto"] = "auto"
    forward_ad: bool | Literal["auto"] = "auto"
    vmap: bool | Literal["auto"] = "auto"
    opcheck: bool | Literal["auto"] = "auto"
    compile: bool = False
    autocast: Literal["bfloat16", "float16"] | None = None
    tf32: bool = False
    reduced_sums: bool = False
    nondeterminism: float = 0.0
    deterministic: bool = False
    reseed: bool = True
    strict: bool = False
    poison: bool = False
    outputs: tuple[int, ...] | None = None
    timeout: float = 300.0

    def looks_for(self, code: str) -> bool:
        """Return whether the rule `code` runs: `select` and `ignore` choose rules; whether a check
        can be judged (GV0xx) is always examined, unless ignored by code."""
        chosen = not self.select or code.startswith((*self.select, "GV0"))
        return chosen and not (self.ignore and code.startswith(self.ignore))

    def tolerances(self, low_precision: bool = False) -> tuple[float, float]:
        """Return (atol, rtol) with the defaults filled in: gradcheck's for a fixed `eps`, those of
        method.md section 1 for `auto`.

        `low_precision`: the function was found to compute in float32 internally.
        """
        if self.eps != "auto":
            defaults = (1e-5, 1e-3)
        else:
            defaults = (0.0, 1e-3 if low_precision or self.dtype in WIDER else 1e-6)
        return (
            defaults[0] if self.atol is None else self.atol,
            defaults[1] if self.rtol is None else self.rtol,
        )


@dataclass(frozen=True, slots=True)
class Oracles:
    """The oracles that the analytic gradient is compared with, in addition to finite differences of
    the function itself, or of `surrogate` in its place.

    `expected` maps input names to nested lists: the gradient of sum(weights * output), weights from
    `grad_output` (None: ones; one entry for each checked output where there are several).
    """

    reference: str | None = None
    expected: Mapping[str, Json] | None = None
    grad_output: Json = None
    gradient: str | None = None
    surrogate: str | None = None


@dataclass(frozen=True, slots=True)
class Search:
    """The places where the names of a spec are looked up. `folder`: that of the spec; `path`: its
    `path:` entries, absolute; `imports`: modules to import first."""

    folder: str = "."
    path: tuple[str, ...] = ()
    imports: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SpecPlace:
    """The file and line of a check; `line` counts from 1."""

    path: str
    line: int


@dataclass(frozen=True, slots=True)
class Case:
    """One concrete check. `id` is `path::name`; `name` carries the matrix part, `check` (which
    draws are seeded by) does not.

    `kwargs`: plain values by keyword, `keywords`: tensors; `layout`: of every input tensor that
    names no layout and can have it.
    `gradients`: inputs and parameters whose gradient is in an attribute of the tensor, by name.
    `sources`: globs relative to `search.folder`. `other_device`: the device whose gradients are
    compared with those of the check's own, where the matrix names several.
    """

    id: str
    name: str
    check: str
    spec: SpecPlace
    target: str
    inputs: tuple[InputRecipe, ...] = ()
    inputs_from: str | None = None
    init: Mapping[str, Json] | None = None
    kwargs: Mapping[str, Json] = field(default_factory=dict)
    keywords: tuple[InputRecipe, ...] = ()
    settings: Settings = Settings()
    oracles: Oracles = Oracles()
    expect: str | tuple[str, ...] = "pass"
    tags: tuple[str, ...] = ()
    skip: str | None = None
    requires: tuple[str, ...] = ()
    search: Search = Search()
    layout: Layout | None = None
    sources: tuple[str, ...] = ()
    other_device: str | None = None
    gradients: Mapping[str, str] = field(default_factory=dict)
