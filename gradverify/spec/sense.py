"""Whether the keys of a tensor and of a check make sense together: what no single key can know. Inputs against the built-in, oracles against inputs,
rule codes against the rules."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Mapping
from itertools import pairwise
from pathlib import Path as FilePath

from gradverify.model.case import Json, core, dimension_complaint, is_cut, own_dtype
from gradverify.model.dtypes import COMPLEX, TABLE
from gradverify.model.paths import is_file
from gradverify.spec.fault import Fault, Path, allowed, shown
from gradverify.spec.names import missing, resolve
from gradverify.spec.schema import COMPLEX_NUMBER, DRAWS, Check, Rules, RunSettings, Tensor
from gradverify.spec.wording import number_hint

# ---- a tensor
INTEGER_RANGES: Mapping[str, tuple[int, int]] = {name: held.integers for name, held in TABLE.items() if held.integers}
"""dtype → the integers it holds, high excluded."""
INTEGER_DRAWS = ("integers", "fill", "values", "file", "choice", "kind", "make")
REDRAWN = ("normal", "uniform", "integers", "choice")
WHOLE = ("permutation", "one_hot", "mask")  # kinds whose numbers integers can hold
BLOCKED = ("bsr", "bsc")
SLACK = 1e-9  # of a distance: what the rounding of two written numbers may take from it
LARGEST = 1 << 24       # elements of the dense shape of a sparse tensor, which the numbers are kept in


def draw_of(tensor: Tensor) -> str:
    """The key that says how it is drawn; `normal` where none does."""
    return next((name for name in DRAWS if name in tensor.model_fields_set), "normal")


def dtype_of(tensor: Tensor, check: str) -> str:
    """Its dtype in a check of dtype `check`."""
    return tensor.dtype or own_dtype(draw_of(tensor), tensor.kind, check)


def known_shape(tensor: Tensor) -> tuple[int, ...] | None:
    """None where only a file's content could tell."""
    if "values" in tensor.model_fields_set:
        return shape_of(tensor.values)
    return None if tensor.shape is None else tuple(tensor.shape)


def shape_of(value: Json) -> tuple[int, ...]:
    """The shape that the first elements suggest."""
    if not isinstance(value, list):
        return ()
    return (len(value), *(shape_of(value[0]) if value else ()))


def leaves(value: Json, path: Path = ()) -> Iterator[tuple[Path, Json]]:
    """The elements of nested lists, each with its place."""
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from leaves(item, (*path, index))
    else:
        yield path, value


def number_faults(value: Json, path: Path, dtype: str, shape: tuple[int, ...] | None = None) -> Iterator[Fault]:
    """What keeps nested numbers from being a tensor of `dtype`, and of `shape`: by default that of the first elements."""
    shape = shape_of(value) if shape is None else shape
    if not shape:
        complaint = f"expected a number, got {shown(value)}: the rows are ragged" if isinstance(value, list) else scalar_complaint(value, dtype)
        if complaint:
            yield Fault(path, complaint)
    elif not isinstance(value, list):
        yield Fault(path, f"expected a list of {shape[0]}, got {shown(value)}: the rows are ragged")
    elif len(value) != shape[0]:
        yield Fault(path, f"expected a row of {shape[0]} like the first, got {len(value)}: the rows are ragged")
    else:
        for index, item in enumerate(value):
            yield from number_faults(item, (*path, index), dtype, shape[1:])


def scalar_complaint(value: Json, dtype: str) -> str | None:
    """Why a value cannot be an element of a tensor of `dtype`, or None."""
    if isinstance(value, bool):
        return None if dtype == "bool" else f"expected a number, got {shown(value)}; booleans need `dtype: bool`"
    if isinstance(value, str) and COMPLEX_NUMBER.fullmatch(value):
        return None if dtype in COMPLEX else f"the complex number {value} needs `dtype: complex128`, the dtype here is {dtype}"
    if not isinstance(value, (int, float)):
        hint = number_hint(value, finite=False)
        return f"expected a number, got {shown(value)}" + (f"; {hint}" if hint else "")
    if dtype in INTEGER_RANGES:
        low, high = INTEGER_RANGES[dtype]
        return None if value == value and low <= value < high and int(value) == value else f"{shown(value)} is no {dtype}"
    return None


def tensor_faults(tensor: Tensor, path: Path, check_dtype: str, folder: FilePath) -> Iterator[Fault]:
    """Everything that is wrong with one tensor beyond its keys' own types."""
    def fault(message: str, *place: str | int, key: bool = False) -> Fault:
        return Fault((*path, *place), message, key)

    said = tensor.model_fields_set
    named = [name for name in DRAWS if name in said]
    yield from (fault(f"`{named[0]}` and `{other}` both say how it is drawn: keep one", other, key=True) for other in named[1:])
    if len(named) > 1:
        return
    draw, dtype, shape, kind = draw_of(tensor), dtype_of(tensor, check_dtype), known_shape(tensor), tensor.kind
    whole, is_symmetric = INTEGER_RANGES.get(dtype), tensor.symmetric or kind == "spd"

    if shape is None and draw != "file":
        yield fault(f"the key 'shape' is missing: `{draw}` numbers need one")
    elif draw == "file" and shape is not None:
        yield fault("`file` brings its own shape: remove `shape`", "shape", key=True)
    elif draw == "values" and tensor.shape is not None and tuple(tensor.shape) != shape:
        yield fault(f"`values` has the shape {list(shape_of(tensor.values))}, `shape` says {tensor.shape}: remove `shape`", "shape")
    elif draw == "linspace" and shape is not None and len(shape) != 1:
        yield fault(f"`linspace` has one dimension, `shape` says {tensor.shape}", "shape")

    if whole and tensor.requires_grad:
        yield fault(f"a tensor of dtype {dtype} cannot require gradients: say a floating `dtype`, or remove `requires_grad`", "requires_grad")
    if whole and draw not in INTEGER_DRAWS:
        yield fault(f"`{draw}` does not draw {dtype}; use `integers`, `fill` or `values`", "dtype" if tensor.dtype else draw)

    if draw == "values":
        yield from number_faults(tensor.values, (*path, draw), dtype)
    elif draw in ("fill", "choice"):
        for place, number in leaves(getattr(tensor, draw)):
            if complaint := scalar_complaint(number, dtype):
                yield fault(complaint, draw, *place)
    elif draw == "normal" and tensor.normal[1] < 0:
        yield fault(f"a standard deviation must be at least 0, got {shown(tensor.normal[1])}", draw, 1)
    elif draw == "uniform" and tensor.uniform[0] > tensor.uniform[1]:
        yield fault(f"low {shown(tensor.uniform[0])} is above high {shown(tensor.uniform[1])}", draw)
    elif draw == "integers":
        low, high = tensor.integers
        if low >= high:
            yield fault(f"no integer lies from {low} to {high}: high is excluded", draw)
        elif whole and not whole[0] <= low < high <= whole[1]:
            yield fault(f"{low} to {high} does not fit into {dtype}", draw)
    elif draw in ("file", "make"):
        complaint = _file_complaint(tensor.file, folder) if draw == "file" else resolve(tensor.make, folder)[1]
        if complaint:
            yield fault(complaint, draw)

    if "avoid" not in said:
        if "margin" in said and tensor.margin != Tensor.model_fields["margin"].default:
            yield fault("`margin` acts only together with `avoid`", "margin", key=True)
    elif draw not in REDRAWN:
        yield fault(f"`{draw}` gives the numbers, nothing can be redrawn: remove `avoid`", "avoid", key=True)
    elif _is_empty(tensor, draw):
        yield fault(f"every number that `{draw}` can draw is nearer than {tensor.margin:g} to an avoided one", "avoid")

    if tensor.domain is not None:
        if not tensor.domain[0] < tensor.domain[1]:      # NaN included
            yield fault(f"expected [low, high] with low < high, got {shown(tensor.domain)}", "domain")
        elif dtype in COMPLEX:
            yield fault(f"a `domain` is an interval of real numbers, and the tensor is {dtype}", "domain")
    if tensor.symmetric and shape is not None and (len(shape) < 2 or shape[-1] != shape[-2]):
        yield fault(f"a symmetric matrix is square, and the shape is {list(shape)}", "symmetric")

    if kind is not None:
        least = core(kind, False)
        if whole and kind not in WHOLE:
            yield fault(f"the numbers of `{kind}` are no {dtype}: leave out `dtype`, or say a floating one", "kind")
        elif kind == "simplex" and dtype in COMPLEX:
            yield fault(f"a simplex is a set of real numbers, and the tensor is {dtype}", "kind")
        elif shape is not None and len(shape) < least and kind != "mask":
            yield fault(f"`{kind}` needs at least {least} dimension{'s' * (least > 1)}, and the shape is {list(shape)}", "kind")
        elif shape is not None and kind == "spd" and shape[-1] != shape[-2]:
            yield fault(f"a positive definite matrix is square, and the shape is {list(shape)}", "kind")
        elif shape is not None and kind == "permutation" and whole and shape[-1] > whole[1]:
            yield fault(f"the numbers 0 to {shape[-1] - 1} do not fit into {dtype}", "kind")
    if tensor.distinct is not None and (complaint := _distinct_complaint(tensor, draw, dtype)):
        yield fault(complaint, "distinct")
    if "layout" in said and shape is not None and (complaint := layout_complaint(tensor, tensor.layout)):
        yield fault(complaint, "layout")

    sparse, form = tensor.sparse, "sparse" if tensor.sparse is not None else "nested"
    if form not in said:
        return
    for key in said & {"nested", "layout", *(["symmetric"] if is_symmetric else [])} - {form}:
        yield fault(f"a {form} tensor has no `{key}`: remove one of the two", key, key=True)
    if draw == "make" or (draw == "kind" and is_symmetric):
        yield fault(f"`{form}` and `{kind or draw}` do not go together", form, key=True)
    if sparse is None:
        lengths = tensor.nested.lengths
        if shape is not None and len(shape) < 2:
            yield fault(f"a nested tensor needs rows, so at least two dimensions, and the shape is {list(shape)}", form, "lengths")
        elif shape is not None and sum(lengths) != shape[0]:
            yield fault(f"the lengths add up to {sum(lengths)}, and the shape {list(shape)} has {shape[0]} rows", form, "lengths")
        return
    if draw in ("values", "file") and sparse.density is not None:
        yield fault(f"`{draw}` gives the elements, those that are not 0: remove `density`", form, "density", key=True)
    if sparse.layout in BLOCKED and sparse.blocksize is None:
        yield fault(f"the key 'blocksize' is missing: `{sparse.layout}` holds blocks", form)
    elif sparse.layout not in BLOCKED and sparse.blocksize is not None:
        yield fault(f"`{sparse.layout}` holds no blocks: remove `blocksize`", form, "blocksize", key=True)
    if sparse.layout == "coo" and shape == ():
        yield fault("a sparse tensor has at least one dimension, and the shape is []", form, "layout")
    elif sparse.layout != "coo" and shape is not None and len(shape) != 2:
        yield fault(f"a `{sparse.layout}` tensor has two dimensions, and the shape is {list(shape)}", form, "layout")
    elif shape and sparse.layout in BLOCKED and any(n % b for n, b in zip(shape, sparse.blocksize or shape, strict=True)):
        yield fault(f"blocks of {sparse.blocksize} do not divide the shape {list(shape)}", form, "blocksize")
    if shape is not None and math.prod(shape) > LARGEST:
        yield fault(f"its shape {list(shape)} has more than {LARGEST:,} elements, which are kept as a dense tensor", form)
    if tensor.domain is not None and not sparse.masked and not tensor.domain[0] <= 0 <= tensor.domain[1]:
        yield fault("under `masked: false` the tensor holds zeros, which lie outside this domain", "domain")


def avoided(tensor: Tensor) -> tuple[float, ...]:
    """The numbers to keep away from, one or many written."""
    if tensor.avoid is None:
        return ()
    return tuple(tensor.avoid) if isinstance(tensor.avoid, list) else (float(tensor.avoid),)


def _is_empty(tensor: Tensor, draw: str) -> bool:
    """Whether `avoid` leaves nothing to draw: of a whole interval its ends, and those of each avoided neighbourhood in it, decide."""
    low, high = (tensor.normal[0],) * 2 if draw == "normal" else tensor.uniform if draw == "uniform" else (0.0, 0.0)
    ends = (low, high, *(end for centre in avoided(tensor) for end in (centre - tensor.margin, centre + tensor.margin) if low <= end <= high))
    drawn = range(*tensor.integers) if draw == "integers" else tensor.choice if draw == "choice" else ends
    return low <= high and not (draw == "normal" and tensor.normal[1]) and all(
        any(abs(x - centre) < tensor.margin for centre in avoided(tensor)) for x in drawn)


def _distinct_complaint(tensor: Tensor, draw: str, dtype: str) -> str | None:
    apart, count = tensor.distinct, math.prod(tensor.shape or ())
    if draw in ("kind", "fill"):
        return f"`{draw}` gives equal numbers, or numbers that belong together: remove `distinct`"
    if tensor.symmetric:
        return "a symmetric matrix holds its elements twice: remove `distinct`"
    if draw == "integers" and "avoid" in tensor.model_fields_set:
        return "`avoid` and `distinct` together are for `normal` and `uniform`: choose the integers another way"
    if dtype == "bool":
        return "booleans are not that far apart: remove `distinct`"
    if draw in ("uniform", "integers"):
        low, high, step = (*tensor.uniform, apart) if draw == "uniform" else (tensor.integers[0], tensor.integers[1] - 1, math.ceil(apart))
        fits = (count - 1) * step <= (high - low) * (1 + SLACK)
        return None if fits else f"{count} numbers {apart:g} apart do not fit between {low:g} and {high:g}"
    if draw == "choice" and count > len(tensor.choice):
        return f"{count} distinct elements cannot be chosen from {len(tensor.choice)} numbers"
    if draw == "linspace":
        a, b = tensor.linspace
        numbers: Json = [a, a + (b - a) / (count - 1)] if count > 1 else []
    else:
        numbers = [number for _, number in leaves(getattr(tensor, draw)) if isinstance(number, (int, float))] if draw in ("choice", "values") else []
    near = next(((a, b) for a, b in pairwise(sorted(numbers)) if b - a < apart * (1 - SLACK)), None)
    return f"`{draw}` holds {near[0]:g} and {near[1]:g}, which are nearer than {apart:g}" if near else None


def layout_complaint(tensor: Tensor, layout: str) -> str | None:
    """Why a tensor of a known shape cannot lie so in memory, or None."""
    draw, shape = draw_of(tensor), known_shape(tensor) or ()
    complaint = dimension_complaint(layout, shape)
    if complaint or layout != "expanded" or shape[0] <= 1:
        return complaint
    if tensor.distinct is not None:
        return "an expanded tensor repeats one slice, so its elements are not `distinct`"
    if draw == "linspace" or (draw == "values" and any(item != tensor.values[0] for item in tensor.values)):
        return f"an expanded tensor repeats one slice along its first dimension, and the slices of `{draw}` differ"
    if is_cut(tensor.kind, tensor.symmetric, shape):
        what = f"`{tensor.kind}`" if tensor.kind is not None else "a symmetric matrix"
        return f"an expanded tensor repeats one slice along its first dimension, which would cut {what}: give the shape a dimension before"
    return None


def _file_complaint(text: str, folder: FilePath) -> str | None:
    name, key = split_key(text)
    suffix = FilePath(name).suffix
    if suffix not in (".npy", ".npz", ".pt"):
        return f"unknown kind of file {suffix!r}; allowed: .npy, .npz#key, .pt"
    if suffix == ".npz" and not key:
        return f"which array of the .npz? write {name}#key"
    return None if is_file(folder / name) else missing(name, folder)


def split_key(text: str) -> tuple[str, str]:
    """`data.npz#key` → (`data.npz`, `key`); other files have no key, a `#` belongs to their name."""
    name, mark, key = text.rpartition("#")
    return (name, key) if mark and name.endswith(".npz") else (text, "")


# ---- a check
PARAMETER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
INSIDE = re.compile(rf"{PARAMETER.pattern}(\.[A-Za-z0-9_]+)*")     # also a parameter of a module inside a module: `layers.0.weight`
LOGIC = ("and", "or", "not")  # the words of `-m TAGEXPR`

Builtins = Mapping[str, tuple[str, ...]]


def members(check: Check) -> Iterator[tuple[str | int, Json]]:
    """(name or position, value) of every input."""
    yield from check.inputs.items() if isinstance(check.inputs, dict) else enumerate(check.inputs or ())


def is_tensors(value: Json) -> bool:
    """Is it a list of tensors?"""
    return isinstance(value, list) and bool(value) and all(isinstance(item, Tensor) for item in value)


def tensors(check: Check, base: Path = ()) -> Iterator[tuple[Path, Tensor]]:
    """Every tensor of the inputs, those in lists and those by keyword too, and where it stands."""
    for key, named in (("inputs", members(check)), ("kwargs", check.kwargs.items())):
        for name, value in named:
            for place, item in leaves(value, (*base, key, name)) if is_tensors(value) else [((*base, key, name), value)]:
                if isinstance(item, Tensor):
                    yield place, item


def check_sense(check: Check, base: Path, dtype: str, folder: FilePath, builtins: Builtins, required: Mapping[str, int]) -> Iterator[Fault]:
    """Everything wrong with one concrete check (variables replaced) beyond the types of its keys. `required`: how many of a built-in's parameters,
    the first ones, have no default."""
    def fault(message: str, *place: str | int, key: bool = False) -> Fault:
        return Fault((*base, *place), message, key)

    name = check.name or ""
    if not name.isprintable() or name != name.strip():
        yield fault("a name is one line without " + ("spaces at its ends" if name.isprintable() else "control characters or others that do not show"),
                    "name")
    for key in ("function", "reference", "gradient", "surrogate", "inputs_from"):
        known = tuple(builtins) if key in ("function", "reference") else ()
        if (text := getattr(check, key)) is not None and (complaint := resolve(text, folder, known)[1]):
            yield fault(complaint, key)

    if check.inputs is None and check.inputs_from is None:
        yield fault("the key 'inputs' (or `inputs_from`) is missing")
    elif check.inputs is not None and check.inputs_from is not None:
        yield fault("`inputs` and `inputs_from` both give the inputs: keep one", "inputs_from", key=True)
    given = check.inputs if isinstance(check.inputs, dict) else {}
    for name, value in given.items():
        if not INSIDE.fullmatch(name):
            hint = f": put a space after the colon: `{name.replace(':', ': ', 1)}`" if value is None and ":" in name else " (letters, digits and `_`)"
            yield fault(f"the input name {name!r} is no parameter's name{hint}", "inputs", name, key=True)
        if name in check.kwargs:
            yield fault(f"{name!r} is an input already", "kwargs", name, key=True)
    for name in check.kwargs:
        if not PARAMETER.fullmatch(name):
            yield fault(f"the keyword {name!r} is no parameter's name (letters, digits and `_`)", "kwargs", name, key=True)
    for path, tensor in tensors(check, base):
        yield from tensor_faults(tensor, path, dtype, folder)
    parameters = builtins.get(check.function)
    if parameters is not None and check.inputs is not None:
        yield from _builtin_faults(check, parameters, required.get(check.function, 0), base)

    # a module's parameters are inputs too; what those of a function of the user's are called, only it knows
    names = (*given, *check.kwargs, *(parameters or () if check.init is not None else ())) if isinstance(check.inputs, dict) else None
    for name, numbers in (check.expected or {}).items():
        path, own = (*base, "expected", name), {**given, **check.kwargs}.get(name)
        faults = tuple(number_faults(numbers, path, dtype))
        yield from faults
        if parameters is not None and names is not None and name not in names:
            yield Fault(path, f"there is no input {name!r}; {allowed(name, names, 'inputs')}", key=True)
        elif isinstance(own, Tensor) and not faults:
            if own.requires_grad is False or dtype_of(own, "float64").startswith(("int", "uint", "bool")):
                yield Fault(path, f"the input {name!r} is not differentiated: it has no gradient", key=True)
            if (shape := known_shape(own)) is not None and shape != shape_of(numbers):
                yield Fault(path, f"the gradient of {name!r} has its shape {list(shape)}, got {list(shape_of(numbers))}")
        elif (name in given or name in check.kwargs) and not isinstance(own, (Tensor, list)):
            yield Fault(path, f"the input {name!r} is no tensor: it has no gradient", key=True)
    if check.grad_output is not None:       # numbers, whatever their nesting: several outputs have a list of them, whose shapes may differ
        if check.expected is None:
            yield fault("`grad_output` gives the weights of `expected`, and there is none", "grad_output", key=True)
        for place, number in leaves(check.grad_output):
            if complaint := scalar_complaint(number, dtype):
                yield fault(complaint, "grad_output", *place)


def _builtin_faults(check: Check, parameters: tuple[str, ...], required: int, base: Path) -> Iterator[Fault]:
    def fault(message: str, *place: str) -> Fault:
        return Fault((*base, *place), f"{check.function} {message}", key=True)

    names = tuple(check.inputs) if isinstance(check.inputs, dict) else ()
    strangers = [name for name in names if name not in parameters]
    for name in filter(INSIDE.fullmatch, strangers):
        beside = f" ({name!r} is a key of the check: it belongs next to `inputs`)" if name in Check.model_fields else ""
        yield fault(f"has no input {name!r}; {allowed(name, parameters, 'its inputs')}{beside}", "inputs", name)
    for name in filter(PARAMETER.fullmatch, check.kwargs):
        if name not in parameters:
            yield fault(f"has no parameter {name!r}; {allowed(name, parameters, 'its parameters')}", "kwargs", name)
    count = len(check.inputs)
    if strangers:
        return
    lacking = [name for name in parameters[:required] if name not in check.kwargs and name not in (names or parameters[:count])]
    if lacking:
        optional = f" ({', '.join(parameters[required:])} may be left out)" if parameters[required:] else ""
        yield fault(f"needs {' and '.join(map(repr, lacking))}; its inputs: {', '.join(parameters)}{optional}", "inputs")
    elif count > len(parameters):
        yield fault(f"takes at most {len(parameters)} ({', '.join(parameters)}), got {count}", "inputs")
    elif names and names != parameters[:count]:
        yield Fault((*base, "inputs"), f"inputs are passed in order; {check.function} has {', '.join(parameters)}, got {', '.join(names)}", key=True)


def name_faults(said: RunSettings, base: Path, codes: Collection[str]) -> Iterator[Fault]:
    """Rule codes that no rule has, and tags that `-m` could not name."""
    rules = said.rules or Rules.model_validate({})
    for place, listed in ((("rules", "select"), rules.select), (("rules", "ignore"), rules.ignore), (("expect",), getattr(said, "expect", ()))):
        for index, code in enumerate(listed if isinstance(listed, list) else ()):
            if code not in codes and not (place[0] == "rules" and any(known.startswith(code) for known in codes)):
                yield Fault((*base, *place, index), f"no rule {code!r}; {allowed(code, sorted(codes))}")
    for index, tag in enumerate(getattr(said, "tags", ())):
        if tag in LOGIC:
            yield Fault((*base, "tags", index), f"the tag {tag!r} is a word of `-m` expressions: choose another")
