"""The format of one tensor input: its shape, how it is drawn, what is done with it."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Discriminator, Field, Tag, WithJsonSchema

from gradverify.model.dtypes import Dtype
from gradverify.spec.values import (
    INT64,
    UNSAID,
    Device,
    Either,
    Finite,
    Integer,
    NotNegativeInteger,
    Numbers,
    Positive,
    Strict,
    Text,
)

DRAWS = ("normal", "uniform", "integers", "choice", "linspace", "fill", "values", "file", "kind", "make")
"""The keys that say where a tensor's numbers come from; one tensor has at most one."""

GIVEN = ("values", "file")
"""The draws that bring their own shape."""

FinitePair = Annotated[list[Finite], Field(min_length=2, max_length=2)]
Bounds = Annotated[list[float], Field(min_length=2, max_length=2)]
"""A pair that may be open-ended: `[0, .inf]`."""

Layout = Literal["contiguous", "transposed", "strided", "expanded", "offset", "channels_last"]
Kind = Literal["spd", "orthogonal", "lower_triangular", "simplex", "unit_vector", "permutation", "one_hot", "mask"]


SparseLayout = Literal["coo", "csr", "csc", "bsr", "bsc"]


class Sparse(Strict):
    """A sparse tensor; `{}` is COO with half of its elements."""

    layout: SparseLayout = Field("coo", description="How it is stored; all but `coo` have two dimensions.", examples=["csr"])
    density: Annotated[float, Field(gt=0, le=1)] = Field(
        UNSAID, description="The share of the elements (of the blocks) that it holds, in random places, at least one; default 0.5. With `values` and "
        "`file` it holds those that are not 0.", examples=[0.3])
    blocksize: Annotated[list[Annotated[int, Field(gt=0, lt=INT64)]], Field(min_length=2, max_length=2)] = Field(
        UNSAID, description="Rows and columns of a block of `bsr` and `bsc`, which must divide the shape.", examples=[[2, 3]])
    masked: bool = Field(
        True, description="Only the elements that it holds are moved, and gradients elsewhere do not count. `false`: it holds all elements of its "
        "shape, zeros included, as `torch.sparse.as_sparse_gradcheck` has it.", examples=[False])


class Nested(Strict):
    """A jagged nested tensor."""

    lengths: Annotated[list[NotNegativeInteger], Field(min_length=1)] = Field(
        ..., description="How many rows of `shape` each component has; they add up to the first dimension.", examples=[[2, 0, 3]])


class Tensor(Strict):
    """One tensor: `{shape: [2, 3]}` draws a standard normal one."""

    shape: list[NotNegativeInteger] = Field(
        UNSAID, description="Its shape; `[]` is 0-dim, zero-size dimensions are allowed. Left out with `values` and `file`.", examples=[[2, 3]])
    normal: FinitePair = Field([0.0, 1.0], description="Drawn from a normal distribution: `[mean, std]`.", examples=[[0, 1]])
    uniform: FinitePair = Field(UNSAID, description="Drawn uniformly: `[low, high]`.", examples=[[0.5, 1.5]])
    integers: Annotated[list[Integer], Field(min_length=2, max_length=2)] = Field(
        UNSAID, description="Whole numbers: `[low, high]`, high excluded; int64 unless `dtype` says otherwise.", examples=[[0, 10]])
    choice: list[Finite] = Field(UNSAID, description="Each element is one of these numbers.", examples=[[-1, 1]], min_length=1)
    linspace: FinitePair = Field(UNSAID, description="Evenly spaced from a to b, both included: `[a, b]`; one dimension.", examples=[[-3, 3]])
    fill: Annotated[float | str, Either("a number, or a complex number such as '1+2j'")] = Field(
        UNSAID, description="Every element is this number.", examples=[0.5])
    values: Numbers = Field(
        UNSAID, description="The numbers themselves, nested like the tensor, in its `dtype` (whole ones too); complex ones as text: `'1+2j'`.",
        examples=[[[2.0, 1.5], [1.0, 2.0]]])
    file: Text = Field(
        UNSAID, description="A file of numbers, relative to the spec: `.npy`, `.npz#key` or `.pt`; no code in it is run.",
        examples=["data.npy", "data.npz#weight"])
    kind: Kind = Field(UNSAID, description="A structured draw, see below.", examples=["spd"])
    make: Text = Field(
        UNSAID, description="Drawn by your own function `(shape, dtype, device, generator) -> Tensor`, called with float64 (or complex128) and the "
        "CPU; its numbers are then cast and moved.", examples=["my_ops.testing:make_graph"])
    avoid: Annotated[float | list[Finite], Either("a number or a list of numbers")] = Field(
        UNSAID, description="Redraw elements nearer than `margin` to this number, or to one of these: keeps samples off kinks.", examples=[0])
    margin: Positive = Field(0.1, description="How near is too near for `avoid`.", examples=[0.1])
    distinct: Positive = Field(UNSAID, description="All elements pairwise at least this far apart (sort, max, top-k).", examples=[0.05])
    dtype: Dtype = Field(
        UNSAID, description="Overrides the check's dtype; integer and boolean types are not differentiated.",
        examples=["int64"])
    device: Device = Field(UNSAID, description="Overrides the check's device.", examples=["cpu"])
    requires_grad: bool = Field(
        UNSAID, description="Whether it is differentiated; default: true for floating and complex tensors.", examples=[False])
    layout: Layout = Field("contiguous", description="The same numbers in another memory layout, in every call, see below.", examples=["transposed"])
    domain: Bounds = Field(
        UNSAID, description="Where the function is defined; steps stay inside, one-sided at the border. `.inf` for no bound.",
        examples=[[0, 1]])
    symmetric: bool = Field(
        False, description="The function reads a symmetric (complex: Hermitian) matrix: off-diagonal elements move in pairs.", examples=[True])
    sparse: Sparse = Field(UNSAID, description="The function gets a sparse tensor, see below.", examples=[{"layout": "csr", "density": 0.3}])
    nested: Nested = Field(UNSAID, description="The function gets a jagged nested tensor, see below.", examples=[{"lengths": [2, 0, 3]}])


def form(value: Any) -> str:
    """The branch of an input value: a mapping is a tensor, a list with a mapping in it a list of tensors, all else is passed as it is."""
    if isinstance(value, dict | Tensor):
        return "<tensor>"
    if isinstance(value, list) and any(isinstance(item, dict | Tensor) for item in value):
        return "<tensors>"
    return "<plain>"


PLAIN = ["null", "boolean", "number", "string", "array"]
Plain = Annotated[Any, WithJsonSchema({"type": PLAIN, "items": {"type": PLAIN}})]       # a list with a mapping in it is a list of tensors
InputValue: TypeAlias = Annotated[
    Annotated[Tensor, Tag("<tensor>")] | Annotated[list[Tensor], Tag("<tensors>")] | Annotated[Plain, Tag("<plain>")],
    Discriminator(form),
]
