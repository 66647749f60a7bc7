"""What a function is called with and returns, as tensors: which kinds of them can be moved and
compared, sparse and jagged ones as the dense ones that stand for them, containers taken apart.

The numbers of a sparse input are a dense tensor of its whole shape, so that an element has its
dense index everywhere. The function gets what the pattern takes out of it; torch's own constructors
carry the gradient back, sparse or dense, to the elements that are specified.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import gc
import math
import operator
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

# ---- Kinds of tensors whose elements cannot be moved and compared one by one: told in a sentence
# where they enter, as inputs, parameters or outputs
PLAIN = (*DTYPES.values(), torch.uint16, torch.uint32, torch.uint64)
DENSE = "make it dense: `.to_dense()`"
_OWN = Tensor.__torch_dispatch__


def odd_kind(tensor: Tensor) -> tuple[str, str] | None:
    """What kind of tensor it is ("a sparse COO tensor") and what to do instead; None for a dense
    one of numbers. Parameters, buffers and other subclasses that keep their numbers in the usual
    way are such."""
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
    """As a spec writes it."""
    return str(getattr(of, "dtype", of)).removeprefix("torch.")


def of_type(tensor: Tensor) -> tuple[str, str] | None:
    """What is odd about its class, whatever its layout and dtype. (A sparse gradient is in order, a
    nested one is not.)"""
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
    """Can its numbers be read, copied and compared?"""
    return odd_kind(tensor) is None


def admitted(value: Any, said: str) -> Any:
    """The input itself. Raises UserCodeError (GV001) for a tensor whose elements cannot be moved;
    `said` is how its sentence begins: "x is"."""
    found = odd_kind(value) if isinstance(value, Tensor) and not is_lazy(value) else None
    if found is not None:
        refuse(
            f"{said} {found[0]}, whose elements cannot be moved one by one",
            "let it be a dense tensor of numbers, and make the other kind of it inside the "
            f"function; or {found[1]}",
        )
    return value


def comparable(output: Any) -> bool:
    """Is it a tensor whose elements are floating or complex numbers to be compared?"""
    return (
        isinstance(output, Tensor)
        and odd_kind(output) is None
        and (output.is_floating_point() or output.is_complex())
    )


def admit_outputs(
    outputs: Sequence[Any], name_of: Callable[[int], str], wanted: Sequence[int] | None = None
) -> None:
    """Raises UserCodeError (GV008) where the first output to be compared is of another kind: one
    that has a graph, or that the spec names, or any where no plain one has a graph."""
    odd = {
        place: found
        for place, y in enumerate(outputs)
        if isinstance(y, Tensor) and (found := odd_kind(y)) is not None
    }
    some = any(comparable(y) and y.requires_grad for y in outputs)
    asked = [
        place
        for place in odd
        if (wanted is None or place in wanted) and (outputs[place].requires_grad or not some)
    ]
    if asked:
        kind, remedy = odd[asked[0]]
        raise UserCodeError(
            "GV008",
            f"{name_of(asked[0])} is {kind}, whose elements cannot be compared",
            hint=f"in a function around it, {remedy}",
        )


# ---- Sparse and jagged tensors as the dense ones that are perturbed and compared: what the
# function gets is made of these in every call
SPARSE: Mapping[str, torch.layout] = {
    name: getattr(torch, f"sparse_{name}") for name in ("coo", "csr", "csc", "bsr", "bsc")
}
NAMES = {layout: f"a sparse {name.upper()} tensor" for name, layout in SPARSE.items()}
# Layouts that compress rows; the others compress columns
ROWS = (torch.sparse_csr, torch.sparse_bsr)
BLOCKED = (torch.sparse_bsr, torch.sparse_bsc)
JAGGED = "a jagged nested tensor"
DENSITY = 0.5
# Elements of the dense shape: 128 MiB in float64, of which several copies are held
LARGEST = 1 << 24


@dataclass(frozen=True, slots=True, eq=False)
class Form:
    """What the function gets in the place of a dense tensor: `kind` in words ("a sparse CSR
    tensor"), and `built` to make it, differentiably.

    `specified`: the elements that it has, of those of the dense shape (None: all); `masked`:
    gradients elsewhere do not count.
    `lengths`: of a jagged one that a spec describes.
    """

    kind: str
    built: Callable[[Tensor], Tensor]
    specified: Tensor | None = None
    masked: bool = True
    lengths: tuple[int, ...] | None = None

    @property
    def layout(self) -> str:
        """As in a spec: `csr`."""
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
    """Of the elements where the mask is true (`masked` false: of all, as
    `torch.sparse.as_sparse_gradcheck` has it)."""
    mask = mask if masked else torch.ones_like(mask)
    # 0 where nothing is
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
        """A clone, as the constructor keeps what it makes, and the function may write into what it
        gets."""
        return make(x.reshape(-1)[at], size=size, check_invariants=False).clone()

    return Form(NAMES[layout], built, mask, masked)


def sparse(
    recipe: Sparse, dense: Tensor, given: bool, source: torch.Generator
) -> tuple[Tensor, Form]:
    """The tensor with zeros put where the pattern of a spec holds nothing; `given`: its numbers
    are, and those that are not 0 are the pattern."""
    if given:
        mask = dense != 0
    # A share of the elements (of the blocks), at least one, in random places; equally many in each
    # matrix of a batch
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
    if given and recipe.blocksize is not None:  # a block with a number in it is held as a whole
        mask = dense.ne(0).to_sparse(layout=SPARSE[recipe.layout], blocksize=recipe.blocksize)
        mask = sparse_like(mask).to_dense() != 0
    return dense, sparse_form(mask, SPARSE[recipe.layout], recipe.blocksize, masked=recipe.masked)


def indices_of(tensor: Tensor) -> tuple[Tensor, Tensor]:
    """Of a compressed tensor, those of the dimension that is compressed and those of the other."""
    if tensor.layout in ROWS:
        return (tensor.crow_indices(), tensor.col_indices())
    return (tensor.ccol_indices(), tensor.row_indices())


def sparse_like(tensor: Tensor) -> Tensor:
    """A tensor of the same pattern that holds ones."""
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
    """Of rows that lie one after the other: component i holds those from offsets[i] to offsets[i +
    1]."""
    return Form(
        JAGGED, lambda x: torch.nested.nested_tensor_from_jagged(x, offsets), lengths=lengths
    )


def nested(lengths: tuple[int, ...], rows: Tensor) -> Form:
    """Of components that have so many rows each."""
    ends = torch.tensor(lengths, dtype=torch.int64).cumsum(0)
    return jagged_form(torch.cat([ends.new_zeros(1), ends]).to(device=rows.device), lengths)


def is_jagged(tensor: Tensor) -> bool:
    """Without holes between its components, in whose place numbers would be that are none of its
    own."""
    return tensor.is_nested and tensor.layout is torch.jagged and not has_holes(tensor)


# ---- any
def is_dense(value: Any) -> bool:
    """Is it a tensor with strides, or none at all?"""
    return not isinstance(value, Tensor) or (value.layout is torch.strided and not value.is_nested)


def named(tensor: Tensor) -> str:
    """What kind of tensor it is."""
    return NAMES.get(tensor.layout, JAGGED)


def taken(tensor: Tensor, said: str) -> tuple[Tensor, Form | None]:
    """The dense tensor whose numbers count, and what the function gets in its place; any other
    tensor as it is.

    Raises UserCodeError (GV001) for one that is too large when it is dense; `said` is how its
    sentence begins: "x is".
    """
    if is_jagged(tensor):
        return tensor.detach().values(), jagged_form(tensor.offsets())  # type: ignore[attr-defined]
    if tensor.layout not in NAMES or of_type(tensor) is not None:
        return tensor, None
    if tensor.numel() > LARGEST:
        refuse(
            f"{said} {NAMES[tensor.layout]} of shape {list(tensor.shape)}, which is too large to "
            "be made dense",
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
    """What of an output is compared: the dense tensor of a sparse one, the values of a jagged one;
    all else as it is.

    `masked`: backward gets a gradient at the output's own elements only.
    """
    if is_dense(output):
        return output
    if is_jagged(output):
        return output.values()
    if output.layout not in NAMES or output.numel() > LARGEST or of_type(output) is not None:
        return output
    return output.to_dense(masked_grad=masked)


# ---- What the function of a check is called with: tensors and plain values, those inside lists,
# dicts and the like one by one
@dataclass(frozen=True, slots=True, eq=False)
class Whole:
    """An argument that was taken apart: `built` puts its elements together to what the function
    takes."""

    name: str
    built: Callable[[Sequence[Any]], Any] = list


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument at the point of the check. Tensors are detached; `parameter`: it is a module's
    parameter; `keyword`: it is passed by name.

    `domain`: where the function is defined in it; `symmetric`: it is read as a symmetric
    (Hermitian) matrix. `layout`: how it lies in memory in every call (of an expanded one `value` is
    a contiguous copy, see `expanded`), None: as `value` does. `of`: the argument, a list of tensors
    or another container, that it is an element of. `form`: the function gets another kind of tensor
    with the numbers of `value` (a sparse one, say).
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
        """The name of what the function takes: itself, or what it is an element of."""
        return self.of.name if self.of else self.name


Members = tuple[Argument, ...]
"""What makes one argument of the function: itself, or its elements."""


def where_held(argument: Argument, gradient: Tensor) -> Tensor:
    """A dense gradient, with zeros where a sparse input holds nothing: what stands there does not
    count."""
    held = None if argument.form is None else argument.form.specified
    if held is None:
        return gradient
    return torch.where(held.to(device=gradient.device), gradient, torch.zeros_like(gradient))


def specified(inputs: Sequence[Argument]) -> tuple[Tensor | None, ...]:
    """The elements that each of them has; None: every one."""
    return tuple(None if argument.form is None else argument.form.specified for argument in inputs)


# ---- Values that hold tensors, taken apart: what is inside dicts, lists, tuples, namedtuples and
# dataclasses, and what lies deeper than that
Built = Callable[[Sequence[Any]], Any]
DEPTH = 6  # of objects inside objects that are looked through for tensors nobody can take out


@dataclass(frozen=True, slots=True)
class Apart:
    """A value taken apart. `elements`: by their path in it (`.h`, `[0]`), tensors and whatever
    holds none; `built` puts such elements together."""

    elements: tuple[tuple[str, Any], ...]
    built: Built

    def of(self, change: Callable[[str, Any], Any]) -> Apart:
        """The same with what `change` makes of each path and element."""
        return Apart(tuple((path, change(path, each)) for path, each in self.elements), self.built)


def taken_apart(value: Any) -> Apart | None:
    """None where the value is a tensor, or holds none that can be taken out."""
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
    """What a container holds, not looking into that, and how it is put together; None for what is
    no container."""
    if type(value) in pytree.SUPPORTED_NODES:
        node = pytree.SUPPORTED_NODES[type(value)]
        flat, context = node.flatten_fn(value)
        keys = node.flatten_with_keys_fn and [
            step(key) for key, _ in node.flatten_with_keys_fn(value)[0]
        ]
        # Registered without saying what its paths are called: by place
        return list(
            zip(keys or map("[{}]".format, range(len(flat))), flat, strict=True)
        ), lambda new: node.unflatten_fn(new, context)
    if _is_dataclass(value):
        names = [field.name for field in dataclasses.fields(value) if hasattr(value, field.name)]
        # Frozen ones too, and nothing of `__init__` runs
        return [(f".{name}", getattr(value, name)) for name in names], functools.partial(
            _copied, value, object.__setattr__, names
        )
    # A namedtuple, and classes on top of one: PackedSequence
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return [(f".{name}", item) for name, item in zip(value._fields, value, strict=True)], type(
            value
        )._make  # type: ignore[attr-defined]
    if isinstance(value, dict | list):  # and classes on top of them
        items = list(value.items() if isinstance(value, dict) else enumerate(value))
        built = functools.partial(_copied, value, operator.setitem, [key for key, _ in items])
        return [(step(pytree.MappingKey(key)), item) for key, item in items], built
    return None


def _copied(
    value: Any, write: Callable[[Any, Any, Any], None], keys: Sequence[Any], new: Sequence[Any]
) -> Any:
    """A copy that holds other items."""
    other = copy.copy(value)
    for key, item in zip(keys, new, strict=True):
        write(other, key, item)
    return other


# ---- what cannot be taken out
def out_of_reach(value: Any) -> bool:
    """Does an object that is no container hold floating or complex tensors? (A function: such that
    require a gradient.)"""
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
            for each in brought(value)
            for tensor in _inside(each, depth + 1, seen)
            if tensor.requires_grad
        )
    else:
        # Items and attributes, as they lie there: nothing of its own code runs
        for each in gc.get_referents(value):
            yield from _inside(each, depth + 1, seen)


def brought(function: Any) -> Iterator[Any]:
    """What a function brings with it: what it is bound to, its closure and its defaults, as they
    lie there."""
    if isinstance(function, functools.partial):
        yield from (function.func, *function.args, *function.keywords.values())
    elif isinstance(function, types.MethodType):
        yield from (function.__self__, function.__func__)
    else:
        for cell in function.__closure__ or ():
            with suppress(ValueError):  # not bound yet
                yield cell.cell_contents
        yield from function.__defaults__ or ()


# ---- What a function returns, flattened: tensors in a row, each named by its path in a dict,
# dataclass, namedtuple, list or tuple
ROOT = "y"


def leaves(returned: Any) -> list[Any]:
    """All leaves, None among them, in order. A dataclass counts as its fields, whether or not it is
    registered with pytree."""
    if isinstance(returned, Tensor):
        return [returned]
    flat: list[Any] = []
    for leaf in pytree.tree_leaves(returned, is_leaf=_is_dataclass):
        flat += leaves(_fields(leaf)) if _is_dataclass(leaf) else [leaf]
    return flat


def names(returned: Any) -> tuple[str, ...]:
    """A name for each leaf: `y0`, `y1` of a plain sequence (or one tensor), else its path:
    `y.loss`, `y.states[0]`, `y1[0]`."""
    try:
        return tuple(ROOT + ("".join(path) or "0") for path in _paths(returned))
    # A type that its owner registered with pytree without saying what the paths are called
    except ValueError:
        return tuple(f"{ROOT}{place}" for place in range(len(leaves(returned))))


def _paths(returned: Any) -> Iterator[tuple[str, ...]]:
    keyed, _ = pytree.tree_flatten_with_path(returned, is_leaf=_is_dataclass)
    for path, leaf in keyed:
        own = tuple(step(key, depth == 0) for depth, key in enumerate(path))
        if _is_dataclass(leaf):
            yield from ((*own, *rest) for rest in _paths(_fields(leaf)))
        else:
            yield own


def step(key: Any, bare: bool = False) -> str:
    """`.name` of a field or key, `[0]` of a place in a sequence, `bare` for `y0` where it comes
    first."""
    if isinstance(key, pytree.SequenceKey):
        return str(key.idx) if bare else f"[{key.idx}]"
    if isinstance(key, pytree.GetAttrKey):
        return f".{key.name}"
    word = key.key if isinstance(key, pytree.MappingKey) else key
    return f".{word}" if isinstance(word, str) and word.isidentifier() else f"[{word!r}]"


def _is_dataclass(value: Any) -> bool:
    """A dataclass that pytree does not know (one that it knows is taken apart as it was
    registered)."""
    return (
        dataclasses.is_dataclass(value)
        and not isinstance(value, type)
        and type(value) not in pytree.SUPPORTED_NODES
    )


def _fields(value: Any) -> dict[str, Any]:
    return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
