"""One written check to its cases: expand its matrix, validate each variant, look for sense, settle.
The first of these steps that finds faults is the last one; sound variants become cases."""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path as FilePath
from typing import Any, cast

from gradverify.model.case import (
    Case,
    DrawKind,
    InputRecipe,
    Json,
    Oracles,
    Search,
    Sparse,
    SpecPlace,
    TensorRecipe,
    core,
    dimension_complaint,
    is_cut,
    own_dtype,
)
from gradverify.model.dtypes import COMPLEX, TABLE
from gradverify.model.paths import is_file
from gradverify.spec.fault import Fault, Path, allowed, flow, nearest, shown
from gradverify.spec.names import missing, own_name, resolve
from gradverify.spec.schema import (
    COMPLEX_NUMBER,
    DRAWS,
    Check,
    Matrix,
    Rules,
    RunSettings,
    Settings,
    Tensor,
)
from gradverify.spec.settings import RUN_KEYS, Layer, layer_of, settle
from gradverify.spec.wording import number_hint, validated

# ---- a tensor
INTEGER_RANGES: Mapping[str, tuple[int, int]] = {
    name: held.integers for name, held in TABLE.items() if held.integers
}
"""dtype → the integers it holds, high excluded."""
INTEGER_DRAWS = ("integers", "fill", "values", "file", "choice", "kind", "make")
REDRAWN = ("normal", "uniform", "integers", "choice")
WHOLE = ("permutation", "one_hot", "mask")  # kinds whose numbers integers can hold
BLOCKED = ("bsr", "bsc")
# Elements of the dense shape of a sparse tensor, which the numbers are kept in
LARGEST = 1 << 24


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


def number_faults(
    value: Json, path: Path, dtype: str, shape: tuple[int, ...] | None = None
) -> Iterator[Fault]:
    """What keeps nested numbers from being a tensor of `dtype`, and of `shape`: by default that of
    the first elements."""
    shape = shape_of(value) if shape is None else shape
    if not shape:
        complaint = (
            f"expected a number, got {shown(value)}: the rows are ragged"
            if isinstance(value, list)
            else scalar_complaint(value, dtype)
        )
        if complaint:
            yield Fault(path, complaint)
    elif not isinstance(value, list):
        yield Fault(path, f"expected a list of {shape[0]}, got {shown(value)}: the rows are ragged")
    elif len(value) != shape[0]:
        yield Fault(
            path,
            f"expected a row of {shape[0]} like the first, got {len(value)}: the rows are ragged",
        )
    else:
        for index, item in enumerate(value):
            yield from number_faults(item, (*path, index), dtype, shape[1:])


def scalar_complaint(value: Json, dtype: str) -> str | None:
    """Why a value cannot be an element of a tensor of `dtype`, or None."""
    if isinstance(value, bool):
        if dtype == "bool":
            return None
        return f"expected a number, got {shown(value)}; booleans need `dtype: bool`"
    if isinstance(value, str) and COMPLEX_NUMBER.fullmatch(value):
        if dtype in COMPLEX:
            return None
        return f"the complex number {value} needs `dtype: complex128`, the dtype here is {dtype}"
    if not isinstance(value, (int, float)):
        hint = number_hint(value, finite=False)
        return f"expected a number, got {shown(value)}" + (f"; {hint}" if hint else "")
    if dtype in INTEGER_RANGES:
        low, high = INTEGER_RANGES[dtype]
        if value == value and low <= value < high and int(value) == value:
            return None
        return f"{shown(value)} is no {dtype}"
    return None


def tensor_faults(
    tensor: Tensor, path: Path, check_dtype: str, folder: FilePath
) -> Iterator[Fault]:
    """Everything that is wrong with one tensor beyond its keys' own types."""

    def fault(message: str, *place: str | int, key: bool = False) -> Fault:
        return Fault((*path, *place), message, key)

    said = tensor.model_fields_set
    named = [name for name in DRAWS if name in said]
    yield from (
        fault(f"`{named[0]}` and `{other}` both say how it is drawn: keep one", other, key=True)
        for other in named[1:]
    )
    if len(named) > 1:
        return
    draw = draw_of(tensor)
    dtype = dtype_of(tensor, check_dtype)
    shape = known_shape(tensor)
    kind = tensor.kind
    whole, is_symmetric = INTEGER_RANGES.get(dtype), tensor.symmetric or kind == "spd"

    if shape is None and draw != "file":
        yield fault(f"the key 'shape' is missing: `{draw}` numbers need one")
    elif draw == "file" and shape is not None:
        yield fault("`file` brings its own shape: remove `shape`", "shape", key=True)
    elif draw == "values" and tensor.shape is not None and tuple(tensor.shape) != shape:
        yield fault(
            f"`values` has the shape {list(shape_of(tensor.values))}, `shape` says "
            f"{tensor.shape}: remove `shape`",
            "shape",
        )
    elif draw == "linspace" and shape is not None and len(shape) != 1:
        yield fault(f"`linspace` has one dimension, `shape` says {tensor.shape}", "shape")

    if whole and tensor.requires_grad:
        yield fault(
            f"a tensor of dtype {dtype} cannot require gradients: say a floating `dtype`, or "
            "remove `requires_grad`",
            "requires_grad",
        )
    if whole and draw not in INTEGER_DRAWS:
        yield fault(
            f"`{draw}` does not draw {dtype}; use `integers`, `fill` or `values`",
            "dtype" if tensor.dtype else draw,
        )

    if draw == "values":
        yield from number_faults(tensor.values, (*path, draw), dtype)
    elif draw in ("fill", "choice"):
        for place, number in leaves(getattr(tensor, draw)):
            if complaint := scalar_complaint(number, dtype):
                yield fault(complaint, draw, *place)
    elif draw == "normal" and tensor.normal[1] < 0:
        yield fault(
            f"a standard deviation must be at least 0, got {shown(tensor.normal[1])}", draw, 1
        )
    elif draw == "uniform" and tensor.uniform[0] > tensor.uniform[1]:
        yield fault(
            f"low {shown(tensor.uniform[0])} is above high {shown(tensor.uniform[1])}", draw
        )
    elif draw == "integers":
        low, high = tensor.integers
        if low >= high:
            yield fault(f"no integer lies from {low} to {high}: high is excluded", draw)
        elif whole and not whole[0] <= low < high <= whole[1]:
            yield fault(f"{low} to {high} does not fit into {dtype}", draw)
    elif draw == "make" and (complaint := resolve(tensor.make, folder)[1]):
        yield fault(complaint, draw)
    elif draw == "file":
        name, inner = split_key(tensor.file)
        suffix = FilePath(name).suffix
        if suffix not in (".npy", ".npz", ".pt"):
            yield fault(f"unknown kind of file {suffix!r}; allowed: .npy, .npz#key, .pt", draw)
        elif suffix == ".npz" and not inner:
            yield fault(f"which array of the .npz? write {name}#key", draw)
        elif not is_file(folder / name):
            yield fault(missing(name, folder), draw)

    if "avoid" not in said:
        if "margin" in said and tensor.margin != Tensor.model_fields["margin"].default:
            yield fault("`margin` acts only together with `avoid`", "margin", key=True)
    elif draw not in REDRAWN:
        yield fault(
            f"`{draw}` gives the numbers, nothing can be redrawn: remove `avoid`", "avoid", key=True
        )

    if tensor.domain is not None:
        if not tensor.domain[0] < tensor.domain[1]:  # NaN included
            yield fault(
                f"expected [low, high] with low < high, got {shown(tensor.domain)}", "domain"
            )
        elif dtype in COMPLEX:
            yield fault(
                f"a `domain` is an interval of real numbers, and the tensor is {dtype}", "domain"
            )
    if tensor.symmetric and shape is not None and (len(shape) < 2 or shape[-1] != shape[-2]):
        yield fault(f"a symmetric matrix is square, and the shape is {list(shape)}", "symmetric")

    if kind is not None:
        least = core(kind, False)
        if whole and kind not in WHOLE:
            yield fault(
                f"the numbers of `{kind}` are no {dtype}: leave out `dtype`, or say a floating one",
                "kind",
            )
        elif kind == "simplex" and dtype in COMPLEX:
            yield fault(f"a simplex is a set of real numbers, and the tensor is {dtype}", "kind")
        elif shape is not None and len(shape) < least and kind != "mask":
            yield fault(
                f"`{kind}` needs at least {least} dimension{'s' * (least > 1)}, and the shape is "
                f"{list(shape)}",
                "kind",
            )
        elif shape is not None and kind == "spd" and shape[-1] != shape[-2]:
            yield fault(
                f"a positive definite matrix is square, and the shape is {list(shape)}", "kind"
            )
        elif shape is not None and kind == "permutation" and whole and shape[-1] > whole[1]:
            yield fault(f"the numbers 0 to {shape[-1] - 1} do not fit into {dtype}", "kind")
    if (
        "layout" in said
        and shape is not None
        and (complaint := layout_complaint(tensor, tensor.layout))
    ):
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
            yield fault(
                "a nested tensor needs rows, so at least two dimensions, and the shape is "
                f"{list(shape)}",
                form,
                "lengths",
            )
        elif shape is not None and sum(lengths) != shape[0]:
            yield fault(
                f"the lengths add up to {sum(lengths)}, and the shape {list(shape)} has "
                f"{shape[0]} rows",
                form,
                "lengths",
            )
        return
    if draw in ("values", "file") and sparse.density is not None:
        yield fault(
            f"`{draw}` gives the elements, those that are not 0: remove `density`",
            form,
            "density",
            key=True,
        )
    if sparse.layout in BLOCKED and sparse.blocksize is None:
        yield fault(f"the key 'blocksize' is missing: `{sparse.layout}` holds blocks", form)
    elif sparse.layout not in BLOCKED and sparse.blocksize is not None:
        yield fault(
            f"`{sparse.layout}` holds no blocks: remove `blocksize`", form, "blocksize", key=True
        )
    if sparse.layout == "coo" and shape == ():
        yield fault(
            "a sparse tensor has at least one dimension, and the shape is []", form, "layout"
        )
    elif sparse.layout != "coo" and shape is not None and len(shape) != 2:
        yield fault(
            f"a `{sparse.layout}` tensor has two dimensions, and the shape is {list(shape)}",
            form,
            "layout",
        )
    elif (
        shape
        and sparse.layout in BLOCKED
        and any(n % b for n, b in zip(shape, sparse.blocksize or shape, strict=True))
    ):
        yield fault(
            f"blocks of {sparse.blocksize} do not divide the shape {list(shape)}", form, "blocksize"
        )
    if shape is not None and math.prod(shape) > LARGEST:
        yield fault(
            f"its shape {list(shape)} has more than {LARGEST:,} elements, which are kept as a "
            "dense tensor",
            form,
        )
    if (
        tensor.domain is not None
        and not sparse.masked
        and not tensor.domain[0] <= 0 <= tensor.domain[1]
    ):
        yield fault(
            "under `masked: false` the tensor holds zeros, which lie outside this domain", "domain"
        )


def avoided(tensor: Tensor) -> tuple[float, ...]:
    """The numbers to keep away from, one or many written."""
    if tensor.avoid is None:
        return ()
    return tuple(tensor.avoid) if isinstance(tensor.avoid, list) else (float(tensor.avoid),)


def layout_complaint(tensor: Tensor, layout: str) -> str | None:
    """Why a tensor of a known shape cannot lie so in memory, or None."""
    shape = known_shape(tensor) or ()
    complaint = dimension_complaint(layout, shape)
    if complaint or layout != "expanded" or not is_cut(tensor.kind, tensor.symmetric, shape):
        return complaint
    what = f"`{tensor.kind}`" if tensor.kind is not None else "a symmetric matrix"
    return (
        f"an expanded tensor repeats one slice along its first dimension, which would cut {what}: "
        "give the shape a dimension before"
    )


def split_key(text: str) -> tuple[str, str]:
    """`data.npz#key` → (`data.npz`, `key`); other files have no key, a `#` belongs to their
    name."""
    name, mark, key = text.rpartition("#")
    return (name, key) if mark and name.endswith(".npz") else (text, "")


# ---- a check
PARAMETER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# Also a parameter of a module inside a module: `layers.0.weight`
INSIDE = re.compile(rf"{PARAMETER.pattern}(\.[A-Za-z0-9_]+)*")
LOGIC = ("and", "or", "not")  # the words of `-m TAGEXPR`

Builtins = Mapping[str, tuple[str, ...]]


def members(check: Check) -> Iterator[tuple[str | int, Json]]:
    """(name or position, value) of every input."""
    yield from (
        check.inputs.items() if isinstance(check.inputs, dict) else enumerate(check.inputs or ())
    )


def is_tensors(value: Json) -> bool:
    """Is it a list of tensors?"""
    return (
        isinstance(value, list) and bool(value) and all(isinstance(item, Tensor) for item in value)
    )


def tensors(check: Check, base: Path = ()) -> Iterator[tuple[Path, Tensor]]:
    """Every tensor of the inputs, those in lists and those by keyword too, and where it stands."""
    for key, named in (("inputs", members(check)), ("kwargs", check.kwargs.items())):
        for name, value in named:
            for place, item in (
                leaves(value, (*base, key, name))
                if is_tensors(value)
                else [((*base, key, name), value)]
            ):
                if isinstance(item, Tensor):
                    yield place, item


def check_sense(
    check: Check,
    base: Path,
    dtype: str,
    folder: FilePath,
    builtins: Builtins,
    required: Mapping[str, int],
) -> Iterator[Fault]:
    """Everything wrong with one concrete check (variables replaced) beyond the types of its keys.
    `required`: how many of a built-in's parameters, the first ones, have no default."""

    def fault(message: str, *place: str | int, key: bool = False) -> Fault:
        return Fault((*base, *place), message, key)

    name = check.name or ""
    if not name.isprintable() or name != name.strip():
        yield fault(
            "a name is one line without "
            + (
                "spaces at its ends"
                if name.isprintable()
                else "control characters or others that do not show"
            ),
            "name",
        )
    for key in ("function", "reference", "gradient", "surrogate", "inputs_from"):
        known = tuple(builtins) if key in ("function", "reference") else ()
        if (text := getattr(check, key)) is not None and (
            complaint := resolve(text, folder, known)[1]
        ):
            yield fault(complaint, key)

    if check.inputs is None and check.inputs_from is None:
        yield fault("the key 'inputs' (or `inputs_from`) is missing")
    elif check.inputs is not None and check.inputs_from is not None:
        yield fault(
            "`inputs` and `inputs_from` both give the inputs: keep one", "inputs_from", key=True
        )
    given = check.inputs if isinstance(check.inputs, dict) else {}
    for name, value in given.items():
        if not INSIDE.fullmatch(name):
            hint = (
                f": put a space after the colon: `{name.replace(':', ': ', 1)}`"
                if value is None and ":" in name
                else " (letters, digits and `_`)"
            )
            yield fault(
                f"the input name {name!r} is no parameter's name{hint}", "inputs", name, key=True
            )
        if name in check.kwargs:
            yield fault(f"{name!r} is an input already", "kwargs", name, key=True)
    for name in check.kwargs:
        if not PARAMETER.fullmatch(name):
            yield fault(
                f"the keyword {name!r} is no parameter's name (letters, digits and `_`)",
                "kwargs",
                name,
                key=True,
            )
    for path, tensor in tensors(check, base):
        yield from tensor_faults(tensor, path, dtype, folder)
    parameters = builtins.get(check.function)
    if parameters is not None and check.inputs is not None:
        yield from _builtin_faults(check, parameters, required.get(check.function, 0), base)

    # A module's parameters are inputs too; what those of a function of the user's are called, only
    # it knows
    names = (
        (*given, *check.kwargs, *(parameters or () if check.init is not None else ()))
        if isinstance(check.inputs, dict)
        else None
    )
    for name, numbers in (check.expected or {}).items():
        path, own = (*base, "expected", name), {**given, **check.kwargs}.get(name)
        faults = tuple(number_faults(numbers, path, dtype))
        yield from faults
        if parameters is not None and names is not None and name not in names:
            yield Fault(
                path, f"there is no input {name!r}; {allowed(name, names, 'inputs')}", key=True
            )
        elif isinstance(own, Tensor) and not faults:
            if own.requires_grad is False or dtype_of(own, "float64").startswith(
                ("int", "uint", "bool")
            ):
                yield Fault(
                    path, f"the input {name!r} is not differentiated: it has no gradient", key=True
                )
            if (shape := known_shape(own)) is not None and shape != shape_of(numbers):
                yield Fault(
                    path,
                    f"the gradient of {name!r} has its shape {list(shape)}, got "
                    f"{list(shape_of(numbers))}",
                )
        elif (name in given or name in check.kwargs) and not isinstance(own, (Tensor, list)):
            yield Fault(path, f"the input {name!r} is no tensor: it has no gradient", key=True)
    # Numbers, whatever their nesting: several outputs have a list of them, whose shapes may differ
    if check.grad_output is not None:
        if check.expected is None:
            yield fault(
                "`grad_output` gives the weights of `expected`, and there is none",
                "grad_output",
                key=True,
            )
        for place, number in leaves(check.grad_output):
            if complaint := scalar_complaint(number, dtype):
                yield fault(complaint, "grad_output", *place)


def _builtin_faults(
    check: Check, parameters: tuple[str, ...], required: int, base: Path
) -> Iterator[Fault]:
    def fault(message: str, *place: str) -> Fault:
        return Fault((*base, *place), f"{check.function} {message}", key=True)

    names = tuple(check.inputs) if isinstance(check.inputs, dict) else ()
    strangers = [name for name in names if name not in parameters]
    for name in filter(INSIDE.fullmatch, strangers):
        beside = (
            f" ({name!r} is a key of the check: it belongs next to `inputs`)"
            if name in Check.model_fields
            else ""
        )
        yield fault(
            f"has no input {name!r}; {allowed(name, parameters, 'its inputs')}{beside}",
            "inputs",
            name,
        )
    for name in filter(PARAMETER.fullmatch, check.kwargs):
        if name not in parameters:
            yield fault(
                f"has no parameter {name!r}; {allowed(name, parameters, 'its parameters')}",
                "kwargs",
                name,
            )
    count = len(check.inputs)
    if strangers:
        return
    lacking = [
        name
        for name in parameters[:required]
        if name not in check.kwargs and name not in (names or parameters[:count])
    ]
    if lacking:
        optional = (
            f" ({', '.join(parameters[required:])} may be left out)"
            if parameters[required:]
            else ""
        )
        yield fault(
            f"needs {' and '.join(map(repr, lacking))}; its inputs: "
            f"{', '.join(parameters)}{optional}",
            "inputs",
        )
    elif count > len(parameters):
        yield fault(
            f"takes at most {len(parameters)} ({', '.join(parameters)}), got {count}", "inputs"
        )
    elif names and names != parameters[:count]:
        yield Fault(
            (*base, "inputs"),
            f"inputs are passed in order; {check.function} has {', '.join(parameters)}, got "
            f"{', '.join(names)}",
            key=True,
        )


def name_faults(said: RunSettings, base: Path, codes: Collection[str]) -> Iterator[Fault]:
    """Rule codes that no rule has, and tags that `-m` could not name."""
    rules = said.rules or Rules.model_validate({})
    for place, listed in (
        (("rules", "select"), rules.select),
        (("rules", "ignore"), rules.ignore),
        (("expect",), getattr(said, "expect", ())),
    ):
        for index, code in enumerate(listed if isinstance(listed, list) else ()):
            if code not in codes and not (
                place[0] == "rules" and any(known.startswith(code) for known in codes)
            ):
                yield Fault(
                    (*base, *place, index), f"no rule {code!r}; {allowed(code, sorted(codes))}"
                )
    for index, tag in enumerate(getattr(said, "tags", ())):
        if tag in LOGIC:
            yield Fault(
                (*base, "tags", index),
                f"the tag {tag!r} is a word of `-m` expressions: choose another",
            )


# ---- One written check to its cases: expand its matrix, validate each variant, look for sense,
# settle. The first of these steps that finds faults is
MAX_CASES = 10_000  # of one check; beyond that a matrix is a slip, or a reason to think again
MAX_LABEL = 40  # characters of one value inside a case's name; longer ones are shown by their place
VARIABLE = re.compile(rf"\$(\$?)({PARAMETER.pattern})")
SETTERS = frozenset(Settings.model_fields) - {"matrix"} | {"layout"}
"""Variables of these names set the setting (or every tensor's layout), without a `$name`
anywhere."""
AN_EXAMPLE = "{function: relu, inputs: {input: {shape: [2, 3]}}}"


@dataclass(frozen=True, slots=True)
class World:
    """What a file's checks are judged by: the known names, the layers around them, the file they
    stand in."""

    file: str
    folder: FilePath
    builtins: Builtins
    codes: Collection[str]
    project: Layer
    options: Layer
    search: Search = field(default_factory=Search)
    defaults: Settings = field(default_factory=lambda: Settings.model_validate({}))
    matrix: Json = None
    required: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Built:
    """A case, and the layers its settings come from."""

    case: Case
    layers: tuple[Layer, ...]


@dataclass(frozen=True, slots=True)
class Variant:
    """One combination. `data` is the check with values in place of variables; `part`: the end of
    its name; `places` says where each variable's value stands in the document; `axes` are all
    values of each."""

    data: Mapping[str, Json]
    part: str = ""
    values: Mapping[str, Json] = field(default_factory=dict)
    places: Mapping[str, Path] = field(default_factory=dict)
    axes: Mapping[str, list[Json]] = field(default_factory=dict)


def build(raw: Json, base: Path, line: int, world: World) -> tuple[list[Built], list[Fault]]:
    """The cases of the check `raw` that stands at `base`, on `line`, and its faults; a faulty
    variant has no case."""
    if not isinstance(raw, dict):
        return [], [Fault(base, f"expected a mapping, got {shown(raw)}; for example {AN_EXAMPLE}")]
    variants, faults = expand(raw, base, world.matrix)
    built: list[Built] = []
    for variant in variants:
        found = _judged(variant, base, line, world)
        if isinstance(found, Built):
            built.append(found)
        else:
            known = {fault.path for fault in faults}
            faults += [
                fault
                for fault in (placed(each, variant, raw, base) for each in found)
                if fault.path not in known
            ]
    return built, faults


# ---- the matrix
def expand(
    check: Mapping[str, Json], base: Path, inherited: Json = None
) -> tuple[list[Variant], list[Fault]]:
    """The variants of the check that stands at `base`, or what is wrong with its matrix;
    `inherited` is the matrix of the spec's defaults, used where it has none."""
    own = "matrix" in check
    written = check["matrix"] if own else inherited
    place: Path = (*base, "matrix") if own else ("defaults", "matrix")
    rest = {key: value for key, value in check.items() if key != "matrix"}
    axes: dict[str, list[Json]] = {}
    exclude: list[dict[str, Json]] = []
    faults: list[Fault] = []
    if own or written is not None:
        matrix = validated(Matrix, written, place)
        if isinstance(matrix, tuple):
            return [], list(matrix) if own else []  # of the defaults' whoever reads those tells
        axes = {name: values for name, values in written.items() if name != "exclude"}
        exclude = matrix.exclude

    used = set()

    def use(name: str, path: Path) -> Json:
        used.add(name)
        if name not in axes:
            help_ = (
                allowed(name, tuple(axes), "variables of the matrix")
                if axes
                else "the check has no `matrix`"
            )
            faults.append(Fault((*base, *path), f"unknown variable ${name}; {help_}"))
        return None

    _filled(rest, use)
    keys = {name: [comparable(value) for value in values] for name, values in axes.items()}
    count = math.prod(map(len, keys.values()))
    if count > MAX_CASES:
        faults.append(
            Fault(place, f"{count:,} combinations; at most {MAX_CASES:,} cases come from one check")
        )
    for name, listed in axes.items():
        if not PARAMETER.fullmatch(name):
            faults.append(
                Fault(
                    (*place, name),
                    f"the variable {name!r} is no name of letters, digits and `_`",
                    key=True,
                )
            )
        elif name not in SETTERS and name not in used:
            near = nearest(name, SETTERS)
            hint = f"; did you mean {near!r}?" if near else ""
            faults.append(
                Fault(
                    (*place, name),
                    f"${name} is used nowhere, and {name!r} is no setting{hint}",
                    key=True,
                )
            )
        texts = list(map(json.dumps, listed))
        faults += [
            Fault(
                (*place, name, index),
                f"{shown(listed[index])} is there twice: both cases would have one name",
            )
            for index, text in enumerate(texts)
            if text in texts[:index]
        ]
    for index, rule in enumerate(exclude):
        for name, value in rule.items():
            path = (*place, "exclude", index, name)
            if name not in axes:
                faults.append(
                    Fault(
                        path,
                        f"unknown variable {name!r}; "
                        f"{allowed(name, tuple(axes), 'variables of the matrix')}",
                        key=True,
                    )
                )
            elif comparable(value) not in keys[name]:
                faults.append(
                    Fault(
                        path,
                        f"{shown(value)} is no value of {name}; values: "
                        f"{', '.join(map(shown, axes[name]))}",
                    )
                )
    if faults:
        return [], faults
    dropped = dict[tuple[str, ...], set[tuple[Hashable, ...]]]()
    for rule in exclude:
        dropped.setdefault(tuple(rule), set()).add(tuple(map(comparable, rule.values())))
    variants = []
    for indices in itertools.product(*(range(len(values)) for values in axes.values())):
        chosen = dict(zip(axes, indices, strict=True))
        if any(
            tuple(keys[name][chosen[name]] for name in names) in rules
            for names, rules in dropped.items()
        ):
            continue
        values = {name: axes[name][index] for name, index in chosen.items()}
        data = _filled(rest, lambda name, _, values=values: values[name])  # type: ignore[misc]
        part = ",".join(f"{name}={label(values[name], index)}" for name, index in chosen.items())
        variants.append(
            Variant(
                data | {name: values[name] for name in values.keys() & SETTERS if name != "layout"},
                f"[{part}]" if part else "",
                values,
                {name: (*place, name, index) for name, index in chosen.items()},
                axes,
            )
        )
    return variants, [] if variants else [
        Fault((*place, "exclude"), "`exclude` drops every combination")
    ]


def _filled(check: Mapping[str, Json], value_of: Callable[[str, Path], Json]) -> dict[str, Json]:
    return {
        key: value if key == "name" else substitute(value, value_of, (key,))
        for key, value in check.items()
    }


def substitute(value: Json, value_of: Callable[[str, Path], Json], path: Path) -> Json:
    """The value with every `$name` in it replaced, at any depth; `$$name` stands for the text
    `$name`."""
    if isinstance(value, str):
        match = VARIABLE.fullmatch(value)
        return value if match is None else value[1:] if match[1] else value_of(match[2], path)
    if isinstance(value, list):
        return [substitute(item, value_of, (*path, index)) for index, item in enumerate(value)]
    if isinstance(value, dict):
        return {key: substitute(item, value_of, (*path, key)) for key, item in value.items()}
    return value


def label(value: Json, index: int) -> str:
    """A value as it stands in a case's name: `7`, `cuda`, `[2,3]`; a long one by its place:
    `#2`."""
    text = value if isinstance(value, str) else flow(value).replace(", ", ",").replace(": ", ":")
    return text if len(text) <= MAX_LABEL and text.isprintable() else f"#{index}"


def comparable(value: Json) -> Hashable:
    """What is equal for equal values: `true` is not 1, and NaN equals itself."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool) and value == value
    return value if is_number else json.dumps(value)


def placed(fault: Fault, variant: Variant, check: Mapping[str, Json], base: Path) -> Fault:
    """A fault of a variant at the place a person wrote: at the matrix's value where that set a
    setting, at the `$name` it came through."""
    inside = fault.path[len(base) :]
    if inside and inside[0] in variant.places and inside[0] in SETTERS:
        return replace(fault, path=(*variant.places[str(inside[0])], *inside[1:]))
    value: Json = check
    for depth, part in enumerate((*inside, None)):
        match = VARIABLE.fullmatch(value) if isinstance(value, str) else None
        if match and not match[1] and match[2] in variant.values:
            return Fault(
                (*base, *inside[:depth]),
                f"{fault.message} (${match[2]} is {shown(variant.values[match[2]])})",
            )
        try:
            value = value[part]
        # The check's own key is missing, or the value ends here
        except (KeyError, IndexError, TypeError):
            return fault
    return fault


# ---- one variant
def _judged(variant: Variant, base: Path, line: int, world: World) -> Built | tuple[Fault, ...]:
    """The case of a variant, functions in files by their absolute path, or what is wrong with
    it."""
    check = validated(Check, dict(variant.data), base)
    if isinstance(check, tuple):
        return check
    setters, place = variant.values.keys() & SETTERS, f"{world.file}:{line}"
    layers = (
        world.project,
        layer_of(world.defaults, f"{world.file}: defaults"),
        layer_of(check, place, set(RUN_KEYS) - setters),
        layer_of(check, f"{place}: matrix", setters),
        world.options,
    )
    settings, layout = settle(*layers), variant.values.get("layout")
    faults = [
        *name_faults(check, base, world.codes),
        *check_sense(check, base, settings.dtype, world.folder, world.builtins, world.required),
    ]
    if layout not in (None, "contiguous") and check.inputs is not None:
        complaints = [
            known_shape(tensor) is not None and layout_complaint(tensor, layout)
            for _, tensor in tensors(check)
            if "layout" not in tensor.model_fields_set
        ]
        if all(complaints):  # the case would be the contiguous one under another name
            why = next(iter(complaints), "there is no tensor that names no `layout` of its own")
            faults.append(Fault((*base, "layout"), f"no input can be laid out `{layout}`: {why}"))
    if faults:
        return tuple(faults)

    def target(text: str | None) -> str | None:
        return None if text is None else resolve(text, world.folder)[0]

    def tensor(said: Tensor) -> TensorRecipe:
        draw, form = draw_of(said), said.sparse
        arguments = target(said.make) if draw == "make" else getattr(said, draw)
        if draw == "file":
            name, key = split_key(said.file)
            arguments = str((world.folder / name).resolve()) + (f"#{key}" if key else "")
        own = {
            name: fixed(getattr(said, name))
            for name in ("margin", "dtype", "requires_grad", "domain", "distinct", "device")
        }
        return TensorRecipe(
            shape=None if draw in ("values", "file") else fixed(said.shape),
            draw=cast(DrawKind, draw),
            arguments=arguments,
            avoid=avoided(said),
            symmetric=said.symmetric or said.kind == "spd",
            layout=said.layout if "layout" in said.model_fields_set else None,
            sparse=None
            if form is None
            else Sparse(form.layout, form.density, fixed(form.blocksize), form.masked),
            nested=None if said.nested is None else fixed(said.nested.lengths),
            **own,
        )

    def fixed(value: Any) -> Any:
        return tuple(value) if isinstance(value, list) else value

    def recipe(name: str | int | None, value: Json) -> InputRecipe:
        name = name if isinstance(name, str) else None
        if is_tensors(value):
            return InputRecipe(name, tensors=tuple(map(tensor, value)))
        if isinstance(value, Tensor):
            return InputRecipe(name, tensor(value))
        return InputRecipe(name, value=value)

    function, said = cast(str, target(check.function)), world.defaults.said() | check.said()
    name = check.name or own_name(function)
    keywords = {
        name: value
        for name, value in check.kwargs.items()
        if isinstance(value, Tensor) or is_tensors(value)
    }
    # The others are compared with the CPU, else with the first
    devices = variant.axes.get("device", ())
    first = "cpu" if "cpu" in devices else next(iter(devices), None)
    case = Case(
        id=f"{world.file}::{name}{variant.part}",
        name=f"{name}{variant.part}",
        check=name,
        spec=SpecPlace(world.file, line),
        target=function,
        inputs=tuple(recipe(*member) for member in members(check)),
        inputs_from=target(check.inputs_from),
        init=check.init,
        kwargs={name: value for name, value in check.kwargs.items() if name not in keywords},
        keywords=tuple(recipe(*member) for member in keywords.items()),
        settings=settings,
        oracles=Oracles(
            target(check.reference),
            check.expected,
            check.grad_output,
            target(check.gradient),
            target(check.surrogate),
        ),
        expect=fixed(said.get("expect", "pass")),
        skip=said.get("skip"),
        search=world.search,
        layout=layout,
        other_device=first
        if first != settings.device and variant.values.get("device") == settings.device
        else None,
        **{name: tuple(said.get(name, ())) for name in ("tags", "requires", "sources")},
    )
    return Built(case, layers)
