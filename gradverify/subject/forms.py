"""Arguments and results as tensors: which kinds can be moved and compared; dense representations of
sparse and jagged tensors; containers taken apart.

A sparse input is represented by a dense tensor of its whole shape, so that an element has its dense
index everywhere. The function gets the sparse tensor of the pattern's elements; torch's own
constructors carry the gradient back, sparse or dense, to the specified elements.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import gc
import math
import operator
import re
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.masked import MaskedTensor
from torch.nn.parameter import is_lazy

from gradverify.model.case import Layout, Sparse
from gradverify.numerics.function.coordinates import DTYPES
from gradverify.subject.failure import UserCodeError, refuse, type_name
from gradverify.torch_private import MKLDNN, FakeTensor, has_holes, pytree

# ---- Kinds of tensors whose elements cannot be moved and compared one by one: reported where they
# enter, as inputs, parameters or outputs
PLAIN = (*DTYPES.values(), torch.uint16, torch.uint32, torch.uint64)
DENSE = "make it dense: `.to_dense()`"
_OWN = Tensor.__torch_dispatch__


def odd_kind(tensor: Tensor) -> tuple[str, str] | None:
    """Return the kind of a tensor ("a sparse COO tensor") and what to do instead; None for a dense
    tensor of numbers, including parameters, buffers and other subclasses that store their numbers
    in the usual way."""
    found = of_type(tensor)
    if found is not None:
        return found
    if tensor.layout != torch.strided:
        return {**NAMES, MKLDNN: "an MKLDNN tensor"}.get(
            tensor.layout, f"a {tensor.layout} tensor"
        ), DENSE
    if tensor.is_meta:
        return "a meta tensor, which has a shape and no numbers", "make it on the CPU or a GPU"
    if tensor.is_quantized:
        return "a quantized tensor", "use `.dequantize()`"
    if any(name is not None for name in getattr(tensor, "names", ())):  # torch before 2.13
        return "a tensor with named dimensions", "take the names off: `.rename(None)`"
    if tensor.dtype in PLAIN:
        return None
    wider = (
        "complex64"
        if tensor.dtype.is_complex
        else "float32"
        if tensor.dtype.is_floating_point
        else "int64"
    )
    return (
        f"a {dtype_name(tensor)} tensor",
        f"use {wider} or wider, and cast inside what takes it narrow",
    )


def dtype_name(of: Tensor | torch.dtype) -> str:
    """Return a dtype's name as in a spec."""
    return str(getattr(of, "dtype", of)).removeprefix("torch.")


def of_type(tensor: Tensor) -> tuple[str, str] | None:
    """Return the kind of a tensor whose class makes it unusable, and what to do instead; None
    otherwise. Layout and dtype are not examined (a sparse gradient is allowed, a nested one is
    not)."""
    if isinstance(tensor, MaskedTensor):
        return "a masked tensor", "use the plain numbers and the mask: `.get_data()`, `.get_mask()`"
    if isinstance(tensor, FakeTensor):
        return (
            "a fake tensor, which has a shape and no numbers",
            "leave the fake mode (FakeTensorMode) before",
        )
    if tensor.is_nested:
        return (
            "a nested tensor, of several shapes at once",
            "use its components (`.unbind()`), or pad them (`.to_padded_tensor(0.0)`)",
        )
    if type(tensor).__torch_dispatch__ is not _OWN:
        return (
            f"a {type_name(tensor)}, a tensor subclass that computes in its own way "
            "(__torch_dispatch__)",
            "use the plain tensor inside it",
        )
    return None


def is_plain(tensor: Tensor) -> bool:
    """Return whether a tensor's numbers can be read, copied and compared."""
    return odd_kind(tensor) is None


def admitted(value: Any, beginning: str) -> Any:
    """Return the input itself. Raises UserCodeError (GV001) for a tensor whose elements cannot be
    moved; the message starts with `beginning`, such as "x is"."""
    found = odd_kind(value) if isinstance(value, Tensor) and not is_lazy(value) else None
    if found is not None:
        refuse(
            f"{beginning} {found[0]}, whose elements cannot be moved one by one",
            "let it be a dense tensor of numbers, and make the other kind of it inside the "
            f"function; or {found[1]}",
        )
    return value


def comparable(output: Any) -> bool:
    """Return whether an output is a plain tensor of floating or complex numbers."""
    return (
        isinstance(output, Tensor)
        and odd_kind(output) is None
        and (output.is_floating_point() or output.is_complex())
    )


def admit_outputs(
    outputs: Sequence[Any], name_of: Callable[[int], str], wanted: Sequence[int] | None = None
) -> None:
    """Raise UserCodeError (GV008) for the first output to be compared that is no plain tensor. To
    be compared are, of the `wanted` outputs, those that have a graph, or all if no plain output has
    one."""
    odd = {
        place: found
        for place, y in enumerate(outputs)
        if isinstance(y, Tensor) and (found := odd_kind(y)) is not None
    }
    some = any(comparable(y) and y.requires_grad for y in outputs)
    refused = [
        place
        for place in odd
        if (wanted is None or place in wanted) and (outputs[place].requires_grad or not some)
    ]
    if refused:
        kind, remedy = odd[refused[0]]
        raise UserCodeError(
            "GV008",
            f"{name_of(refused[0])} is {kind}, whose elements cannot be compared",
            hint=f"in a function around it, {remedy}",
        )


# ---- Sparse and jagged tensors: a dense representation is perturbed and compared, from which every
# call makes the function's argument
SPARSE: Mapping[str, torch.layout] = {
    name: getattr(torch, f"sparse_{name}") for name in ("coo", "csr", "csc", "bsr", "bsc")
}
NAMES = {layout: f"a sparse {name.upper()} tensor" for name, layout in SPARSE.items()}
# Layouts that compress rows; the others compress columns
ROWS = (torch.sparse_csr, torch.sparse_bsr)
BLOCKED = (torch.sparse_bsr, torch.sparse_bsc)
JAGGED = "a jagged nested tensor"
DENSITY = 0.5
# Elements of the dense shape: 128 MiB in float64, of which several copies are kept
LARGEST = 1 << 24


@dataclass(frozen=True, slots=True, eq=False)
class Form:
    """A sparse or jagged tensor that the function gets instead of a dense one: its `kind` in words
    ("a sparse CSR tensor"), and `built`, which makes it from the dense one, differentiably.

    `specified`: a mask of the dense shape of the elements that it has (None: all); `masked`:
    whether gradients of other elements are ignored; `lengths`: of the components of a jagged tensor
    that a spec describes.
    """

    kind: str
    built: Callable[[Tensor], Tensor]
    specified: Tensor | None = None
    masked: bool = True
    lengths: tuple[int, ...] | None = None

    @property
    def layout(self) -> str:
        """The layout's name in a spec, such as `csr`."""
        return next(
            (name for name, layout in SPARSE.items() if NAMES[layout] == self.kind), "jagged"
        )


# ---- sparse
def sparse_form(
    mask: Tensor,
    layout: torch.layout,
    blocksize: tuple[int, int] | None = None,
    dense_dims: int = 0,
    masked: bool = True,
) -> Form:
    """Return the form of a sparse tensor with the elements where the mask is true (`masked` false:
    with all, as in `torch.sparse.as_sparse_gradcheck`)."""
    mask = mask if masked else torch.ones_like(mask)
    # The flat index + 1 of each specified element, 0 elsewhere
    places = torch.arange(1, mask.numel() + 1, device=mask.device).reshape(mask.shape) * mask
    make: Callable[..., Tensor]
    if layout is torch.sparse_coo:
        held = places.to_sparse(mask.dim() - dense_dims).coalesce()
        make = partial(torch.sparse_coo_tensor, held.indices(), is_coalesced=True)
    else:
        held = places.to_sparse(layout=layout, blocksize=blocksize, dense_dim=dense_dims)
        make = partial(torch.sparse_compressed_tensor, *indices_of(held), layout=layout)
    size, at = held.shape, held.values() - 1

    def built(x: Tensor) -> Tensor:
        """Return a clone, since the constructor does not copy its values, and the function may
        write into its argument."""
        return make(x.reshape(-1)[at], size=size, check_invariants=False).clone()

    return Form(NAMES[layout], built, mask, masked)


def sparse(
    recipe: Sparse, dense: Tensor, given: bool, source: torch.Generator
) -> tuple[Tensor, Form]:
    """Return the tensor with zeros outside the pattern of a spec, and its form. `given`: the
    numbers are from the spec, and the nonzero ones are the pattern."""
    if given:
        mask = dense != 0
    # The given density of elements (or blocks), at least one, at random indices; equally many in
    # each matrix of a batch
    else:
        shape, (rows, columns) = tuple(dense.shape), recipe.blocksize or (1, 1)
        batches = shape[:-2] if recipe.layout != "coo" else ()
        whole = shape
        if len(shape) > 1:
            whole = (*shape[len(batches) : -2], shape[-2] // rows, shape[-1] // columns)
        count = math.prod(whole)
        share = max(1, round((recipe.density or DENSITY) * count))
        flat = torch.zeros(math.prod(batches), count, dtype=torch.bool)
        for matrix in flat:
            matrix[torch.randperm(count, generator=source)[:share]] = True
        mask = flat.reshape((*batches, *whole)).to(device=dense.device)
        if recipe.blocksize is not None:
            mask = mask.repeat_interleave(rows, -2).repeat_interleave(columns, -1)
    dense = torch.where(mask, dense, torch.zeros_like(dense))
    if given and recipe.blocksize is not None:  # a block with a nonzero is stored as a whole
        mask = dense.ne(0).to_sparse(layout=SPARSE[recipe.layout], blocksize=recipe.blocksize)
        mask = sparse_like(mask).to_dense() != 0
    return dense, sparse_form(mask, SPARSE[recipe.layout], recipe.blocksize, masked=recipe.masked)


def indices_of(tensor: Tensor) -> tuple[Tensor, Tensor]:
    """Return the indices of a compressed tensor: of the compressed dimension and of the other."""
    if tensor.layout in ROWS:
        return (tensor.crow_indices(), tensor.col_indices())
    return (tensor.ccol_indices(), tensor.row_indices())


def sparse_like(tensor: Tensor) -> Tensor:
    """Return a tensor of ones with the same pattern."""
    if tensor.layout is torch.sparse_coo:
        ones = torch.ones_like(tensor.values(), dtype=torch.int8)
        return torch.sparse_coo_tensor(
            tensor.indices(), ones, tensor.shape, is_coalesced=True, check_invariants=False
        )
    ones = torch.ones_like(tensor.values(), dtype=torch.float32)
    return torch.sparse_compressed_tensor(
        *indices_of(tensor), ones, tensor.shape, layout=tensor.layout, check_invariants=False
    )


# ---- jagged
def jagged_form(offsets: Tensor, lengths: tuple[int, ...] | None = None) -> Form:
    """Return the form of a jagged tensor whose rows are concatenated: component i has those from
    offsets[i] to offsets[i + 1]."""
    return Form(
        JAGGED, lambda x: torch.nested.nested_tensor_from_jagged(x, offsets), lengths=lengths
    )


def nested(lengths: tuple[int, ...], rows: Tensor) -> Form:
    """Return the form of a jagged tensor whose components have `lengths` rows each."""
    ends = torch.tensor(lengths, dtype=torch.int64).cumsum(0)
    return jagged_form(torch.cat([ends.new_zeros(1), ends]).to(device=rows.device), lengths)


def is_jagged(tensor: Tensor) -> bool:
    """Return whether a tensor is nested and jagged, without holes between its components (whose
    values belong to no component)."""
    return tensor.is_nested and tensor.layout is torch.jagged and not has_holes(tensor)


# ---- any
def is_dense(value: Any) -> bool:
    """Return whether a value is a strided tensor, or no tensor at all."""
    return not isinstance(value, Tensor) or (value.layout is torch.strided and not value.is_nested)


def named(tensor: Tensor) -> str:
    """Return the kind of a sparse or jagged tensor, in words."""
    return NAMES.get(tensor.layout, JAGGED)


def taken(tensor: Tensor, beginning: str) -> tuple[Tensor, Form | None]:
    """Return the dense tensor that represents a sparse or jagged one, and its form; any other
    tensor unchanged, and None.

    Raises UserCodeError (GV001) for a tensor that is too large when dense; the message starts with
    `beginning`, such as "x is".
    """
    if is_jagged(tensor):
        return tensor.detach().values(), jagged_form(tensor.offsets())  # type: ignore[attr-defined]
    if tensor.layout not in NAMES or of_type(tensor) is not None:
        return tensor, None
    if tensor.numel() > LARGEST:
        refuse(
            f"{beginning} {NAMES[tensor.layout]} of shape {list(tensor.shape)}, which is too large "
            "to be made dense",
            f"check it on a shape of at most {LARGEST:,} elements",
        )
    tensor, blocksize = tensor.detach(), None
    if tensor.layout is torch.sparse_coo:  # duplicate elements are added up
        tensor = tensor.coalesce()
    elif tensor.layout in BLOCKED:
        values, first = tensor.values(), indices_of(tensor)[0].dim()
        blocksize = values.shape[first], values.shape[first + 1]
    mask = sparse_like(tensor).to_dense() != 0
    return tensor.to_dense(), sparse_form(mask, tensor.layout, blocksize, tensor.dense_dim())


def compared(output: Any, masked: bool = True) -> Any:
    """Return the tensor to compare for an output: dense for a sparse output, the values of a jagged
    one; any other output unchanged.

    `masked`: backward gets a gradient for the output's own elements only.
    """
    if is_dense(output):
        return output
    if is_jagged(output):
        return output.values()
    if output.layout not in NAMES or output.numel() > LARGEST or of_type(output) is not None:
        return output
    return output.to_dense(masked_grad=masked)


# ---- Arguments of the function of a check: tensors and plain values, those inside lists, dicts and
# other containers one by one
@dataclass(frozen=True, slots=True, eq=False)
class Whole:
    """An argument that was taken apart into its elements; `built` puts elements together again."""

    name: str
    built: Callable[[Sequence[Any]], Any] = list


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument at the point of the check. Tensors are detached; `parameter`: whether it is a
    module's parameter; `keyword`: whether it is passed by name.

    `domain`: the interval of its elements in which the function is defined; `symmetric`: whether
    the function reads it as a symmetric (Hermitian) matrix. `layout`: its memory layout in every
    call (for an expanded argument `value` is a contiguous copy, see `expanded`), None: that of
    `value`. `of`: the argument, a list of tensors or another container, that it is an element of.
    `form`: of the sparse or jagged tensor that the function gets with the numbers of `value`.
    """

    name: str
    value: Any
    differentiable: bool = False
    parameter: bool = False
    domain: tuple[float, float] | None = None
    symmetric: bool = False
    layout: Layout | None = "contiguous"
    of: Whole | None = None
    keyword: bool = False
    form: Form | None = None
    invented: bool = False

    @property
    def is_tensor(self) -> bool:
        return isinstance(self.value, Tensor)

    @property
    def whole(self) -> str:
        """The name of the function's argument: its own, or that of its container."""
        return self.of.name if self.of else self.name


Members = tuple[Argument, ...]
"""One argument of the function: a single one, or the elements of a container."""


def where_held(argument: Argument, gradient: Tensor) -> Tensor:
    """Return a dense gradient with zeros for elements that a sparse input does not specify, which
    are not compared."""
    held = None if argument.form is None else argument.form.specified
    if held is None:
        return gradient
    return torch.where(held.to(device=gradient.device), gradient, torch.zeros_like(gradient))


def specified(inputs: Sequence[Argument]) -> tuple[Tensor | None, ...]:
    """Return a mask of the specified elements of each input; None: all."""
    return tuple(None if argument.form is None else argument.form.specified for argument in inputs)


# ---- Values that hold tensors, taken apart: the contents of dicts, lists, tuples, namedtuples and
# dataclasses, at any depth
Built = Callable[[Sequence[Any]], Any]
DEPTH = 6  # of nested objects that are searched for tensors that cannot be taken out


@dataclass(frozen=True, slots=True)
class Apart:
    """A value taken apart. `elements`: tensors and values without tensors, by their path in it
    (`.h`, `[0]`); `built` puts such elements together again."""

    elements: tuple[tuple[str, Any], ...]
    built: Built

    def of(self, change: Callable[[str, Any], Any]) -> Apart:
        """Return a copy with each element replaced by `change(path, element)`."""
        return Apart(tuple((path, change(path, each)) for path, each in self.elements), self.built)


def taken_apart(value: Any) -> Apart | None:
    """Take a value apart; None where it is a tensor, or holds no tensor that can be taken out."""
    return None if isinstance(value, Tensor) else _apart(value, ())


def _apart(value: Any, above: tuple[int, ...]) -> Apart | None:
    if isinstance(value, Tensor):
        return Apart((("", value),), _FIRST)
    opened = None if id(value) in above else _opened(value)  # a list may hold itself
    if opened is None:
        return None
    keyed, built = opened
    found = [_apart(item, (*above, id(value))) for _, item in keyed]
    if not any(found):
        return None
    parts = [
        part or Apart((("", item),), _FIRST) for part, (_, item) in zip(found, keyed, strict=True)
    ]

    def put_together(values: Sequence[Any]) -> Any:
        rest = iter(values)
        return built([part.built([next(rest) for _ in part.elements]) for part in parts])

    elements = (
        (f"{path}{deeper}", each)
        for (path, _), part in zip(keyed, parts, strict=True)
        for deeper, each in part.elements
    )
    return Apart(tuple(elements), put_together)


_FIRST = operator.itemgetter(0)


def _opened(value: Any) -> tuple[list[tuple[str, Any]], Built] | None:
    """Return a container's direct items by path, and the function that rebuilds it from items; None
    for a value that is no container."""
    if type(value) in pytree.SUPPORTED_NODES:
        node = pytree.SUPPORTED_NODES[type(value)]
        flat, context = node.flatten_fn(value)
        keys = node.flatten_with_keys_fn and [
            step(key) for key, _ in node.flatten_with_keys_fn(value)[0]
        ]
        # A type registered without key paths: named by index
        return list(
            zip(keys or map("[{}]".format, range(len(flat))), flat, strict=True)
        ), lambda new: node.unflatten_fn(new, context)
    if _is_dataclass(value):
        names = [field.name for field in dataclasses.fields(value) if hasattr(value, field.name)]
        # Works for frozen dataclasses too, and does not run `__init__`
        return [(f".{name}", getattr(value, name)) for name in names], functools.partial(
            _copied, value, object.__setattr__, names
        )
    # A namedtuple, or a subclass of one, such as PackedSequence
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return [(f".{name}", item) for name, item in zip(value._fields, value, strict=True)], type(
            value
        )._make  # type: ignore[attr-defined]
    if isinstance(value, dict | list):  # subclasses too
        items = list(value.items() if isinstance(value, dict) else enumerate(value))
        built = functools.partial(_copied, value, operator.setitem, [key for key, _ in items])
        return [(step(pytree.MappingKey(key)), item) for key, item in items], built
    return None


def _copied(
    value: Any, write: Callable[[Any, Any, Any], None], keys: Sequence[Any], new: Sequence[Any]
) -> Any:
    """Return a shallow copy with other items."""
    other = copy.copy(value)
    for key, item in zip(keys, new, strict=True):
        write(other, key, item)
    return other


# ---- tensors that cannot be taken out
def out_of_reach(value: Any) -> bool:
    """Return whether an object that is no container holds floating or complex tensors (for a
    function: ones that require a gradient)."""
    return any(True for _ in _inside(value, 0, set()))


def _inside(value: Any, depth: int, seen: set[int]) -> Iterator[Tensor]:
    if (
        depth > DEPTH
        or id(value) in seen
        or isinstance(value, (type, types.ModuleType, str, bytes, int, float, complex))
    ):
        return
    seen.add(id(value))
    if isinstance(value, Tensor):
        if value.is_floating_point() or value.is_complex():
            yield value
    elif isinstance(value, (types.FunctionType, types.MethodType, functools.partial)):
        yield from (
            tensor
            for each in referenced(value)
            for tensor in _inside(each, depth + 1, seen)
            if tensor.requires_grad
        )
    else:
        # Items and attributes, read without running the object's own code
        for each in gc.get_referents(value):
            yield from _inside(each, depth + 1, seen)


def referenced(function: Any) -> Iterator[Any]:
    """Yield the objects that a function carries: the object it is bound to, its closure and its
    defaults, unevaluated."""
    if isinstance(function, functools.partial):
        yield from (function.func, *function.args, *function.keywords.values())
    elif isinstance(function, types.MethodType):
        yield from (function.__self__, function.__func__)
    else:
        for cell in function.__closure__ or ():
            with suppress(ValueError):  # an empty cell
                yield cell.cell_contents
        yield from function.__defaults__ or ()


# ---- Results flattened to a list, each tensor named by its path in a dict, dataclass, namedtuple,
# list or tuple
ROOT = "y"


def leaves(returned: Any) -> list[Any]:
    """Return all leaves in order, including None. A dataclass is replaced by its fields, whether or
    not it is registered with pytree."""
    return [leaf for _, leaf in _by_path(returned)]


def names(returned: Any) -> tuple[str, ...]:
    """Return a name for each leaf: `y0`, `y1` of a plain sequence (or one tensor), else its path:
    `y.loss`, `y.states[0]`, `y1[0]`."""
    paths = (path or "[0]" for path, _ in _by_path(returned))
    if isinstance(returned, Mapping):
        return tuple(f"{ROOT}{path}" for path in paths)
    return tuple(ROOT + re.sub(r"^\[(\d+)\]", r"\1", path) for path in paths)


def _by_path(value: Any) -> Iterator[tuple[str, Any]]:
    opened = None if isinstance(value, Tensor) else _opened(value)
    if opened is None:
        yield "", value
        return
    for path, item in opened[0]:
        yield from ((f"{path}{deeper}", leaf) for deeper, leaf in _by_path(item))


def step(key: Any) -> str:
    """Return a path's step: `.name` of a field or key, `[0]` of an index in a sequence."""
    if isinstance(key, pytree.SequenceKey):
        return f"[{key.idx}]"
    if isinstance(key, pytree.GetAttrKey):
        return f".{key.name}"
    word = key.key if isinstance(key, pytree.MappingKey) else key
    return f".{word}" if isinstance(word, str) and word.isidentifier() else f"[{word!r}]"


def _is_dataclass(value: Any) -> bool:
    """Return whether a value is a dataclass that is not registered with pytree (a registered one is
    flattened as it was registered)."""
    return (
        dataclasses.is_dataclass(value)
        and not isinstance(value, type)
        and type(value) not in pytree.SUPPORTED_NODES
    )
